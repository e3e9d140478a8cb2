//! The ring of a thread.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use nigh_ring::{Claim, Record, SLOTS, Unseen, Writer};

use crate::clock::{self, now_ns};
use crate::kernel;

thread_local! {
    static OWN: Cell<Option<Claim>> = const { Cell::new(None) };
    static TID: Cell<u32> = const { Cell::new(0) };
    /// A part of the stack that can be read.
    static READABLE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// Bytes that devices had read for this thread when it was asked last; `NOT_ASKED` before.
    static DEVICE_BYTES: Cell<u64> = const { Cell::new(NOT_ASKED) };
    /// The stack pointer while this thread is in a hook, which a signal handler may interrupt; 0 outside of hooks.
    static BUSY: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is in `io_submit`.
    static SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

const NOT_ASKED: u64 = u64::MAX;

/// The process's shared file, or null.
static WRITER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The function that starts a child.
static CHILD: OnceLock<fn()> = OnceLock::new();

/// The page that `watch_for_fork` mapped.
static SAME: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

const PAGE_BYTES: u64 = 4096;

/// Gives a thread's ring back when the thread ends.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// This process writes to `writer` from now on.
pub(crate) fn begin(writer: Option<Writer>) {
    OWN.set(None);
    TID.set(0);
    DEVICE_BYTES.set(NOT_ASKED);
    BUSY.set(0);
    WRITER.store(writer.map_or(std::ptr::null_mut(), Writer::into_raw), Ordering::Release);
}

/// A call could not be looked at, because system calls are limited.
pub(crate) fn miss_limited() {
    if kernel::denied() != 0 {
        writer().inspect(|writer| writer.miss(Unseen::Limited));
    }
}

/// The main stack is shorter. Other stacks are further away.
const MAIN_BYTES_MOST: u64 = 1 << 27;

/// Code that is further from its stack's end has a stack of its own: a signal handler or a coroutine.
const STACK_BYTES_MOST: u64 = 1 << 26;

/// How many bytes of stack are below `rsp`: those up to where the thread's first function was called, which does not
/// depend on the environment. For the main thread, the C library knows it; others have their control block behind it. 0 on
/// a stack that is not the thread's.
pub(crate) fn depth(rsp: u64) -> u32 {
    unsafe extern "C" {
        static __libc_stack_end: u64;
    }
    // SAFETY: the C library sets it before any library starts.
    let main = unsafe { __libc_stack_end }.wrapping_sub(rsp);
    let below = if main < MAIN_BYTES_MOST { main } else { control_block().wrapping_sub(rsp) };
    if below < STACK_BYTES_MOST { below as u32 } else { 0 }
}

/// The address of this thread's control block, which is at the end of its stack.
fn control_block() -> u64 {
    let block: u64;
    // SAFETY: the control block begins with its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly, preserves_flags)) };
    block
}

/// The most that a record can have.
const DEVICE_BYTES_MOST: u64 = u16::MAX as u64 * 4096;

/// Calls that are faster read nothing from a device, and begin no read-ahead.
const DEVICE_NS_LEAST: u64 = 4000;

/// Bytes that devices read for this thread since the last call of this, which now took `latency_ns`. Only the first call
/// and slow ones ask the kernel.
pub(crate) fn device_bytes(latency_ns: u64) -> u64 {
    let before = DEVICE_BYTES.get();
    if before != NOT_ASKED && latency_ns < DEVICE_NS_LEAST {
        return 0;
    }
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for the answer, and zeros are valid.
    let blocks = unsafe {
        kernel::call(libc::SYS_getrusage, [libc::RUSAGE_THREAD.into(), usage.as_mut_ptr() as i64]);
        usage.assume_init().ru_inblock
    };
    let bytes = blocks as u64 * 512;
    if before == NOT_ASKED {
        DEVICE_BYTES.set(bytes);
        return 0;
    }
    // The bytes that a record has no room for are in the next one.
    let new = bytes.saturating_sub(before).min(DEVICE_BYTES_MOST);
    DEVICE_BYTES.set(before + new);
    new
}

/// The word at an address of the stack; `None` if nothing can be read there. Pages are tried once.
pub(crate) fn stack_word(address: u64) -> Option<u64> {
    if !address.is_multiple_of(8) {
        return None;
    }
    let (low, high) = READABLE.get();
    if !(low..high).contains(&address) && !is_on_stack(address) {
        let page = address & !(PAGE_BYTES - 1);
        if page == 0 || !is_readable(page) {
            return None;
        }
        let end = page + PAGE_BYTES;
        READABLE.set(match (page == high, end == low) {
            (true, _) => (low, end),
            (_, true) => (page, high),
            _ => (page, end),
        });
    }
    // SAFETY: the page was tried, and it is of a stack that is in use: its frames led here.
    Some(unsafe { *(address as *const u64) })
}

/// Memory that the caller passed. Whether it can be read is asked for each page, because it may have been unmapped, except for the
/// known part of the stack.
#[derive(Default)]
pub(crate) struct Passed {
    /// The page that was asked for last, and can be read.
    page: u64,
}

impl Passed {
    fn can_be_read(&mut self, address: u64) -> bool {
        let (low, high) = READABLE.get();
        let page = address & !(PAGE_BYTES - 1);
        if (low..high).contains(&address) || (page == self.page && page != 0) || is_on_stack(address) {
            return true;
        }
        let can = page != 0 && is_readable(page);
        if can {
            self.page = page;
        }
        can
    }

    /// The word at an address; `None` if it cannot be read, as the kernel will find, too.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let can = self.can_be_read(address) && self.can_be_read(address.wrapping_add(7));
        // SAFETY: the pages of both ends can be read.
        can.then(|| unsafe { (address as *const u64).read_unaligned() })
    }

    /// The byte at an address, in the same way.
    pub(crate) fn byte(&mut self, address: u64) -> Option<u8> {
        // SAFETY: its page can be read.
        self.can_be_read(address).then(|| unsafe { *(address as *const u8) })
    }
}

/// Whether the word at `address` can be read. The kernel reads it as a set of signals before it refuses the rest.
fn is_readable(address: u64) -> bool {
    const NO_SUCH_CHANGE: i64 = -1;
    const SET_BYTES: i64 = 8;
    let arguments = [NO_SUCH_CHANGE, address as i64, 0, SET_BYTES];
    // SAFETY: the call changes nothing.
    unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) == -i64::from(libc::EINVAL) }
}

/// If the kernel cannot be asked: whether `address` is between here and the end of the thread's stack.
fn is_on_stack(address: u64) -> bool {
    let here = stack_pointer();
    let below = depth(here);
    !kernel::may(libc::SYS_rt_sigprocmask) && (here..here + u64::from(below)).contains(&address)
}

fn stack_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: it only reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Has `child` called in each child of a `fork`, however it was made, before its first call is recorded. A page that is
/// empty in a child tells; `None` if the kernel gives none.
pub(crate) fn watch_for_fork(child: fn()) -> Option<()> {
    // SAFETY: a new mapping.
    let page = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), PAGE_BYTES as usize, protection, flags, -1, 0)
    };
    // SAFETY: the page was just mapped.
    if page == libc::MAP_FAILED || unsafe { libc::madvise(page, PAGE_BYTES as usize, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    CHILD.get_or_init(|| child);
    SAME.store(page.cast(), Ordering::Release);
    is_same_process();
    Some(())
}

/// Whether this is the process that was asked about before; false once in each child.
fn is_same_process() -> bool {
    // SAFETY: null, or a page that is never unmapped.
    unsafe { SAME.load(Ordering::Acquire).as_ref() }.is_none_or(|same| {
        same.load(Ordering::Relaxed) == 1 || {
            same.store(1, Ordering::Relaxed);
            false
        }
    })
}

/// Creates the key whose destructor gives rings back.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: a plain call; the destructor fits.
    if unsafe { libc::pthread_key_create(&mut key, Some(release)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
}

extern "C" fn release(_: *mut c_void) {
    if let Some(claim) = OWN.take() {
        claim.release();
    }
}

/// The process's shared file; `None` if nothing is recorded, or not any more.
pub(crate) fn writer() -> Option<Writer> {
    // SAFETY: it is null, or was a writer, which is never unmapped.
    unsafe { Writer::from_raw(WRITER.load(Ordering::Acquire)) }.filter(Writer::is_read)
}

/// This thread in a hook.
pub(crate) struct Here {
    pub(crate) writer: Writer,
}

impl Here {
    /// `None` if nothing is recorded, or if a signal handler interrupted a hook: that call is counted as lost.
    pub(crate) fn enter() -> Option<Here> {
        if !is_same_process() {
            CHILD.get().into_iter().for_each(|begin| begin());
        }
        let writer = writer()?;
        let (pointer, holder) = (stack_pointer(), BUSY.get());
        // A hook that was interrupted is above its handler. One that is below was left by a jump.
        let is_left = pointer >= holder && depth(pointer) > 0 && depth(holder) > 0;
        if holder != 0 && !is_left {
            writer.lose();
            return None;
        }
        BUSY.set(pointer);
        Some(Here { writer })
    }

    /// The number of this thread; 0 if it cannot be asked.
    pub(crate) fn tid(&self) -> u32 {
        if TID.get() == 0 {
            // SAFETY: a plain call.
            TID.set(unsafe { kernel::call(libc::SYS_gettid, []) }.try_into().unwrap_or(0));
        }
        TID.get()
    }

    /// A number that no other thread has, and that is not 0.
    fn own(&self) -> u32 {
        match self.tid() {
            0 => (control_block() >> 4) as u32 | 1 << 31,
            tid => tid,
        }
    }

    /// Counts a call, or the name of a file, that is not recorded.
    pub(crate) fn lose(&self) {
        self.writer.lose();
        miss_limited();
    }

    /// Gets memory for the whole ring of this thread.
    pub(crate) fn prepare(&self) {
        self.claim().map(|claim| claim.prepare(SLOTS));
    }

    fn claim(&self) -> Option<Claim> {
        if OWN.get().is_none() {
            let claim = self.writer.claim(self.own());
            OWN.set(claim);
            let key = KEY.load(Ordering::Relaxed);
            if claim.is_some() && key != u32::MAX {
                // SAFETY: the key exists; any pointer but null has its destructor called.
                unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
            }
        }
        OWN.get()
    }

    /// Writes `records`, all or none; waits for the recorder if there is no room.
    pub(crate) fn write(&self, records: &[Record]) -> bool {
        let mut wait = Wait::default();
        let written = self.writer.write(self.claim(), self.own(), records, || wait.pause());
        if !written {
            self.lose();
        }
        written
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        BUSY.set(0);
    }
}

/// The program jumps (`longjmp`), perhaps out of a hook that a signal interrupted.
pub(crate) fn jumps() {
    BUSY.set(0);
    SUBMITTING.set(false);
}

pub(crate) fn is_submitting() -> bool {
    SUBMITTING.get()
}

pub(crate) fn set_submitting(is_submitting: bool) {
    SUBMITTING.set(is_submitting);
}

/// How long a call waits for the recorder.
const WAIT_MOST_NS: u64 = 5_000_000_000;

/// A call that waits.
#[derive(Default)]
struct Wait {
    pauses: u32,
    begun_ns: u64,
}

impl Wait {
    /// Pauses; returns whether to go on waiting.
    fn pause(&mut self) -> bool {
        const SPINS: u32 = 100;
        const SLEEP_NS: i64 = 100_000;
        self.pauses = self.pauses.saturating_add(1);
        if self.pauses < SPINS {
            std::hint::spin_loop();
            return true;
        }
        if clock::is_stopped() {
            const SPINS_MOST: u32 = 50_000_000;
            std::hint::spin_loop();
            return self.pauses < SPINS_MOST;
        }
        let now_ns = now_ns();
        if self.begun_ns == 0 {
            self.begun_ns = now_ns;
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS };
        let arguments = [libc::CLOCK_MONOTONIC.into(), 0, std::ptr::from_ref(&time) as i64, 0];
        // SAFETY: the time is valid for the call. If the kernel cannot be asked, this thread spins.
        unsafe { kernel::call(libc::SYS_clock_nanosleep, arguments) };
        now_ns - self.begun_ns < WAIT_MOST_NS
    }
}
