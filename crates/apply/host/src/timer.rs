//! The timer: when there is something to do even if nothing happens.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

/// The thread that waits for the next time at which there is something to do.
#[derive(Default)]
pub(crate) struct Timer {
    /// In µs.
    due: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Timer {
    /// The current thread is the one that waits.
    pub(crate) fn begin(&self) {
        self.thread.set(std::thread::current()).expect("there is one timer");
    }

    /// Nothing is due, until it is noted.
    pub(crate) fn clear(&self) {
        self.due.store(u64::MAX, Ordering::Release);
    }

    /// The earliest time that was noted.
    pub(crate) fn due(&self) -> u64 {
        self.due.load(Ordering::Acquire)
    }

    /// There is something to do at `at`.
    pub(crate) fn note(&self, at: u64) {
        if at < self.due.fetch_min(at, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
            // The timer thread itself checks before it waits; if it were signalled, it would not wait.
            && thread.id() != std::thread::current().id()
        {
            thread.unpark();
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
