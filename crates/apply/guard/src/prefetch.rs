//! Prefetch of a protected group's pages in swap: they are requested together, instead of fault by fault.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The size of one request; a prefetch can be stopped between two requests.
const CHUNK: u64 = 4 << 20;
/// The pause before the search for pages that were swapped out meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// A running prefetch; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Prefetch {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Prefetch {
    /// Prefetches for the processes listed in the file `processes` (`cgroup.procs`), and repeats this as they change.
    pub(crate) fn start(procfs: &Path, processes: PathBuf) -> io::Result<Prefetch> {
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work { procfs: procfs.to_owned(), processes, stop: stop.clone() };
        // On a thread of its own, because a request for pages can wait for reclaim to make room for them.
        let builder = std::thread::Builder::new().name("prefetch".into()).stack_size(64 << 10);
        let thread = builder.spawn(move || work.run())?.thread().clone();
        Ok(Prefetch { stop, thread })
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

struct Work {
    procfs: PathBuf,
    processes: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn run(&self) {
        let mut has_told = false;
        while !self.stopped() {
            let listed = fs::read_to_string(&self.processes).unwrap_or_default();
            for pid in listed.lines().filter_map(|line| line.parse().ok()) {
                if let Err(error) = self.process(pid)
                    && !has_told
                {
                    tracing::warn!("no prefetch for process {pid}: {error}");
                    has_told = true;
                }
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn process(&self, pid: i32) -> io::Result<()> {
        let Some(id) = Pid::from_raw(pid) else { return Ok(()) };
        let ranges = match File::open(self.procfs.join(pid.to_string()).join("smaps")) {
            Ok(file) => swapped_ranges(BufReader::new(file))?,
            // It has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if ranges.is_empty() {
            return Ok(());
        }
        let process = pidfd_open(id, PidfdFlags::empty())?;
        for (start, end) in ranges {
            for at in (start..end).step_by(CHUNK as usize) {
                if self.stopped() {
                    return Ok(());
                }
                match will_need(&process, at, CHUNK.min(end - at)) {
                    // Unmapped meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

/// The mappings with pages in swap, each by its first address and the address after its last.
fn swapped_ranges(smaps: impl BufRead) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        let line = line?;
        if let Some(swapped) = line.strip_prefix("Swap:") {
            let is_some = swapped.split_ascii_whitespace().next() != Some("0");
            ranges.extend(current.filter(|_| is_some));
        } else if let Some(range) = range(&line) {
            current = Some(range);
        }
    }
    Ok(ranges)
}

/// The range of a mapping's first line, `7f00-8000 rw-p 00000000 00:00 0`; `None` for the lines that describe it.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Advises the kernel that another process will need `length` bytes at `address` of its memory.
fn will_need(process: &OwnedFd, address: u64, length: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length as usize };
    // SAFETY: the address belongs to another process and is not dereferenced here; the kernel reads one iovec, which
    // lives until then. The advice changes no memory contents.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), &raw const range, 1usize, libc::MADV_WILLNEED, 0)
    };
    if advised < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_with_pages_in_swap_are_asked_for() {
        let smaps = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Swap:                 12 kB
SwapPss:              12 kB
7f1200000000-7f120c350000 rw-p 00000000 00:00 0
Swap:                  0 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Swap:                  4 kB
";
        let ranges = swapped_ranges(smaps.as_bytes()).unwrap();
        assert_eq!(ranges, [(0x55d0c0000000, 0x55d0c0021000), (0x7ffd00000000, 0x7ffd00021000)]);
    }

    #[test]
    fn the_kernel_takes_the_advice_for_an_own_mapping() {
        let memory = vec![1u8; 1 << 20];
        let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        if let Err(error) = will_need(&own, start, 512 << 10) {
            println!("skipped: the_kernel_takes_the_advice_for_an_own_mapping: process_madvise: {error}");
        }
        assert!(memory.iter().all(|byte| *byte == 1));
    }
}
