//! The requests to the kernel that no safe interface has.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nigh_engine::Exclusive;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use rustix::mm::{Advice, madvise};

/// BLKDISCARD, `_IO(0x12, 119)`: discards a range, given as offset and length in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// BLKROGET, `_IO(0x12, 94)`: whether a block device rejects writes.
const BLKROGET: Opcode = opcode::none(0x12, 94);

/// Whether a block device rejects writes.
pub(crate) fn is_read_only(device: impl AsFd) -> Result<bool, Errno> {
    // SAFETY: BLKROGET writes an int behind its argument.
    let value: i32 = unsafe { ioctl(device, Getter::<BLKROGET, i32>::new())? };
    Ok(value != 0)
}

/// Discards `length` bytes at `offset` of a block device.
pub(crate) fn discard(device: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD reads two u64 behind its argument, and writes nothing.
    unsafe {
        let request = Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]);
        ioctl(device, request)
    }
}

/// Locks bytes of a file, whether it has them or not, for its open file description: others can have shared locks there, too.
pub(crate) fn share(file: &File, bytes: Range<i64>) -> io::Result<()> {
    lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, bytes).map(|_| ())
}

/// Takes back the locks of the file's open file description on these bytes.
pub(crate) fn unlock(file: &File, bytes: Range<i64>) -> io::Result<()> {
    lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, bytes).map(|_| ())
}

/// Whether another open file description has a lock on any of these bytes.
pub(crate) fn is_locked(file: &File, bytes: Range<i64>) -> io::Result<bool> {
    Ok(lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, bytes)? != libc::F_UNLCK)
}

/// Returns the kind of lock in the kernel's answer.
fn lock(file: &File, command: i32, kind: i32, bytes: Range<i64>) -> io::Result<i32> {
    let (l_start, l_len) = (bytes.start, bytes.end - bytes.start);
    let mut lock = libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start, l_len, l_pid: 0 };
    // SAFETY: the descriptor is open, and the kernel is done with `lock` when the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0.. => Ok(lock.l_type.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the memory of `frames` back to the system as far as it is whole pages: afterwards the frames may be zeros. If
/// the system does not take it, nothing changes.
pub fn release_memory(frames: &mut Exclusive) {
    let page = rustix::param::page_size();
    let mut run: Option<(*mut u8, usize)> = None;
    for slice in frames.slices_mut() {
        let (start, length) = (slice.as_mut_ptr(), slice.len());
        match &mut run {
            Some((first, bytes)) if first.wrapping_add(*bytes) == start => *bytes += length,
            _ => {
                release_run(run.replace((start, length)), page);
            }
        }
    }
    release_run(run, page);
}

fn release_run(run: Option<(*mut u8, usize)>, page: usize) {
    let Some((start, bytes)) = run else { return };
    let skipped = start.align_offset(page);
    let whole = bytes.saturating_sub(skipped) / page * page;
    if whole > 0 {
        // SAFETY: the pages are inside slices that `release_memory` borrows mutably, one behind the other without a gap, so
        // nobody else reads them; the memory is the process's own and private, so it reads as before or as zeros.
        let _ = unsafe { madvise(start.wrapping_add(skipped).cast(), whole, Advice::LinuxDontNeed) };
    }
}

/// From this size on, in bytes.
const LARGE: i32 = 128 << 10;

/// Gives each large allocation of this process pages of its own. To enlarge one then moves pages and copies nothing, so
/// that a cache that grows holds nobody up; and what is freed goes back to the system. For a program to call before its
/// first host; glibc otherwise keeps freed memory as soon as a large allocation was freed once.
pub fn map_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes how memory is found from now on; blocks that are in use stay what they are.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Processor time of this thread. By libc, because rustix's way to the clock fails under Valgrind.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A thread's share of processors, for the kernel: `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const THIS_THREAD: libc::pid_t = 0;
const NO_FLAGS: libc::c_uint = 0;

impl SchedulingAttributes {
    const SIZE: u32 = size_of::<SchedulingAttributes>() as u32;

    fn of_this_thread() -> io::Result<SchedulingAttributes> {
        let mut found = SchedulingAttributes::default();
        // SAFETY: the kernel writes at most `SIZE` bytes to `found`.
        match unsafe { libc::syscall(libc::SYS_sched_getattr, THIS_THREAD, &raw mut found, Self::SIZE, NO_FLAGS) } {
            0 => Ok(found),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// For how long this thread, and those that it starts later, keep a processor that others want. The shorter, the sooner they
/// get one. Kernels before 6.12 take no notice, and nothing changes for threads with a policy for real time, batches or idle
/// times.
pub fn take_turns_of(length: Duration) -> io::Result<()> {
    let size = SchedulingAttributes::SIZE;
    let mut attributes = SchedulingAttributes::of_this_thread()?;
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes = SchedulingAttributes {
        size,
        runtime_ns: length.as_nanos() as u64,
        nice: attributes.nice,
        flags: attributes.flags & libc::SCHED_FLAG_RESET_ON_FORK as u64,
        ..SchedulingAttributes::default()
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of forks from the first call, in this process or an ancestor, to this process. Threads of the ancestor do not run here.
pub fn forks() -> u32 {
    static WATCHED: Once = Once::new();
    static FORKS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn note() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCHED.call_once(|| {
        // SAFETY: the handler only changes an atomic.
        let result = unsafe { libc::pthread_atfork(None, None, Some(note)) };
        assert_eq!(result, 0, "no memory to watch forks");
    });
    FORKS.load(Ordering::Relaxed)
}
