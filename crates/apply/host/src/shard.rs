//! A part of the cache: an engine behind a lock.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_engine::Engine;
use parking_lot::{Condvar, Mutex, MutexGuard};
use slab::Slab;

use crate::work::Waiting;

/// So often a brief request tries to get a shard's lock before its thread waits for it: most calls are over by then, and a thread that
/// waited needs a processor.
const TRIES: usize = 1000;

/// A part of the cache.
pub(crate) struct Shard {
    /// A lock of `parking_lot`, because it is fair in the end: with `std`'s, a thread that takes it again and again keeps it from others.
    pub(crate) core: Mutex<Core>,
    /// Whoever needs `core` for more than a brief request takes this first. So one of them at a time waits for `core` or has it, and a brief
    /// request seldom waits for more than that one.
    gate: Mutex<()>,
    /// Brief requests that try to get `core`: whoever comes through the gate lets them go first.
    trying: AtomicUsize,
    /// Signalled when a request was replied to.
    pub(crate) room: Condvar,
}

/// What the lock is for.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    /// The waiters for replies, by token.
    pub(crate) waiters: Slab<Waiting>,
    /// The number of threads that wait for `Shard::room`.
    pub(crate) queueing: usize,
    /// An assertion of the engine failed: it is not called any more.
    pub(crate) poisoned: bool,
}

/// A shard's lock, and its gate if it was needed.
pub(crate) struct Held<'a> {
    pub(crate) core: MutexGuard<'a, Core>,
    gate: Option<MutexGuard<'a, ()>>,
}

impl Shard {
    pub(crate) fn new(engine: Engine) -> Shard {
        let core = Core { engine, waiters: Slab::new(), queueing: 0, poisoned: false };
        Shard { core: Mutex::new(core), gate: Mutex::new(()), trying: AtomicUsize::new(0), room: Condvar::new() }
    }

    /// Locks it, for a brief request or something else.
    pub(crate) fn hold(&self, is_brief: bool) -> Held<'_> {
        if is_brief {
            let core = self.core.try_lock().or_else(|| self.try_long()).unwrap_or_else(|| self.core.lock());
            return Held { core, gate: None };
        }
        let gate = Some(self.gate.lock());
        for _ in 0..TRIES {
            if self.trying.load(Ordering::Relaxed) == 0 {
                break;
            }
            spin_loop();
        }
        Held { core: self.core.lock(), gate }
    }

    /// The lock, if one of many tries gets it.
    #[cold]
    fn try_long(&self) -> Option<MutexGuard<'_, Core>> {
        self.trying.fetch_add(1, Ordering::Relaxed);
        let core = (0..TRIES).find_map(|_| {
            spin_loop();
            self.core.try_lock()
        });
        self.trying.fetch_sub(1, Ordering::Relaxed);
        core
    }
}

impl Held<'_> {
    /// Who came through the gate leaves the lock to whoever waits for it: without that, the next one would often be faster.
    pub(crate) fn unlock(self) {
        match self.gate {
            Some(_) => MutexGuard::unlock_fair(self.core),
            None => drop(self.core),
        }
    }

    /// As `unlock`, and leaves the gate to whoever waits for that.
    pub(crate) fn hand_over(self) {
        MutexGuard::unlock_fair(self.core);
        self.gate.into_iter().for_each(MutexGuard::unlock_fair);
    }
}
