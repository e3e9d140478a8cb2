//! The clock of recordings.

use std::sync::atomic::{AtomicU64, Ordering};

/// When the clock stopped, in nanoseconds; 0 while it runs.
static STOPPED_NS: AtomicU64 = AtomicU64::new(0);

/// The monotonic clock, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    if is_stopped() {
        // Records stay in order.
        return STOPPED_NS.fetch_add(1, Ordering::Relaxed);
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Does without the processor's counter from now on: the kernel forbids it in the strict mode of seccomp.
pub(crate) fn stop() {
    STOPPED_NS.store(now_ns(), Ordering::Relaxed);
}

/// Uses it again.
pub(crate) fn go_on() {
    STOPPED_NS.store(0, Ordering::Relaxed);
}

pub(crate) fn is_stopped() -> bool {
    STOPPED_NS.load(Ordering::Relaxed) != 0
}
