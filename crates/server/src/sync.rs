//! Locks, and limits that threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Locks `mutex`.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with a lock")
}

/// So many bytes of memory, taken and given by any thread.
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: AtomicUsize::new(bytes) }
    }

    /// Takes `bytes` if they are left.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }
}
