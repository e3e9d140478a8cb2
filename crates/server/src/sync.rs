//! Locks.

use std::sync::{Mutex, MutexGuard};

/// Locks `mutex`.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with a lock")
}
