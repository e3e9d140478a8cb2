//! A part of the cache: an engine behind a lock.

use nigh_engine::Engine;
use parking_lot::{Condvar, Mutex, MutexGuard};
use slab::Slab;

use crate::work::Waiting;

/// So often a brief request tries to get a shard's lock before its thread waits for it: most calls are over by then, and a thread that
/// waited needs a processor.
const TRIES: usize = 200;

/// A part of the cache.
pub(crate) struct Shard {
    /// A lock of `parking_lot`, because it is fair in the end: with `std`'s, a thread that takes it again and again keeps it from others.
    pub(crate) core: Mutex<Core>,
    /// Whoever needs `core` for more than a brief request takes this first. So one of them at a time waits for `core` or has it, and a brief
    /// request seldom waits for more than that one.
    gate: Mutex<()>,
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
        Shard { core: Mutex::new(core), gate: Mutex::new(()), room: Condvar::new() }
    }

    /// Locks it, for a brief request or something else.
    pub(crate) fn hold(&self, is_brief: bool) -> Held<'_> {
        let gate = (!is_brief).then(|| self.gate.lock());
        let spin = |_: usize| {
            let core = self.core.try_lock();
            if core.is_none() {
                std::hint::spin_loop();
            }
            core
        };
        let tries = if is_brief { TRIES } else { 0 };
        let core = (0..tries).find_map(spin).unwrap_or_else(|| self.core.lock());
        Held { core, gate }
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
