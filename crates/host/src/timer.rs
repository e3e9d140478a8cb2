//! The timer: when there is something to do even if nothing happens.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use crate::cache::Cache;
use crate::settings::PAUSE;
use crate::work::Work;

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

impl Cache {
    /// Runs on its own thread: calls the engines at the times they request, until `over`.
    pub(crate) fn keep_time(&self, over: impl Fn() -> bool) {
        self.timer.begin();
        let mut work = Work::default();
        while !over() {
            self.timer.clear();
            let mut least = Duration::from_millis(1);
            for shard in 0..self.shards() {
                // Also ends the waits for a poisoned shard.
                if self.step(shard, &mut work) {
                    least = PAUSE;
                } else {
                    self.return_surplus(shard, &mut work);
                }
            }
            self.dispatch(&mut work, None);
            let wait = Duration::from_micros(self.timer.due().saturating_sub(self.now()));
            std::thread::park_timeout(wait.clamp(least, Duration::from_secs(3600)));
        }
    }
}
