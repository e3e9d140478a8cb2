//! Locks, and limits that threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// The interval between attempts to get a lock within a limit.
const GLANCE: Duration = Duration::from_millis(5);

/// Locks `mutex`, even if a thread panicked while it held it: the shard records what matters after a panic
/// (`Cache::with`).
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for `mutex`, but no longer than `limit`.
pub(crate) fn lock_within<T>(mutex: &Mutex<T>, limit: Duration) -> Option<MutexGuard<'_, T>> {
    let begin = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begin.elapsed() >= limit => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(GLANCE),
        }
    }
}

/// As `lock`, to read.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As `lock`, to write.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// A number of bytes of memory that any thread can take and return.
pub struct Budget {
    left: AtomicUsize,
    /// Bytes that a thread needs in addition that has waited for long,
    wanted: AtomicUsize,
    /// and those that it has.
    wanting_have: AtomicUsize,
}

impl Budget {
    /// A limit of this many bytes.
    pub fn new(bytes: usize) -> Budget {
        Budget { left: AtomicUsize::new(bytes), wanted: AtomicUsize::new(0), wanting_have: AtomicUsize::new(0) }
    }

    /// Takes `bytes` if that many are left.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// As `take`, for one of several who share the budget, and who has `own` bytes of it: one who has some leaves a seventh of
    /// that to the others, so that each finds some.
    pub fn take_share(&self, own: usize, bytes: usize) -> bool {
        let least = if own == 0 { 0 } else { (own + bytes).div_ceil(7) };
        let less = |left: usize| left.checked_sub(bytes).filter(|&left| left >= least);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Somebody who has `own` bytes has waited for `bytes` for long: others who have more should give something back.
    pub fn want(&self, own: usize, bytes: usize) {
        self.wanting_have.store(own, Ordering::Relaxed);
        // With what is left to others.
        self.wanted.store((bytes + bytes / 6 + 1).saturating_sub(self.left()), Ordering::Release);
    }

    /// Nobody waits any more.
    pub fn want_nothing(&self) {
        self.wanted.store(0, Ordering::Release);
    }

    /// Whether one who has `own` bytes, more than those who wait, should give `bytes` of them back.
    pub fn is_due(&self, own: usize, bytes: usize) -> bool {
        let less = |wanted: usize| (wanted > 0 && bytes > 0).then(|| wanted.saturating_sub(bytes));
        own > self.wanting_have.load(Ordering::Relaxed)
            && self.wanted.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Returns `bytes`.
    pub fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The number of bytes that can be taken.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }
}
