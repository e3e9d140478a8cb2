//! A part of the cache: an engine behind a lock, and reads that are not reported to it yet.

use std::collections::VecDeque;
use std::sync::Arc;

use nigh_engine::{Engine, Noted, Published};
use nigh_policy::Stream;
use parking_lot::{Condvar, Mutex, MutexGuard};
use slab::Slab;

use crate::disk::Disk;
use crate::pins::{Pinning, Pins};
use crate::work::Waiting;

/// A part of the cache.
pub(crate) struct Shard {
    /// A lock of `parking_lot`, because it is fair in the end: with `std`'s, a thread that takes it again and again keeps it from others.
    pub(crate) core: Mutex<Core>,
    /// Blocks that can be read without `core`.
    pub(crate) published: Published,
    /// Lists of reads that are not reported to the engine yet, those that were begun first at the front.
    pub(crate) unknown: Mutex<VecDeque<Arc<Part>>>,
    /// Signalled when a request was replied to.
    pub(crate) room: Condvar,
    pins: Arc<Pins>,
}

/// The state that the lock guards.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    /// The waiters for replies, by token.
    pub(crate) waiters: Slab<Waiting>,
    /// The number of threads that wait for `Shard::room`.
    pub(crate) queueing: usize,
    /// An assertion of the engine failed: it is not called any more.
    pub(crate) poisoned: bool,
    /// Number of calls that took the lock.
    pub(crate) acquisitions: u64,
}

/// The part of a client in one shard.
pub(crate) struct Part {
    pub(crate) published: Published,
    list: Mutex<List>,
    pub(crate) pinning: Arc<Pinning>,
    /// Keeps the number of its volume from being used for another one.
    _disk: Arc<Disk>,
}

struct List {
    noted: Noted,
    /// Whether `Shard::unknown` has it.
    is_entered: bool,
}

impl Part {
    pub(crate) fn new(shard: &Shard, disk: &Arc<Disk>, stream: Stream) -> Part {
        let noted = Noted::new(disk.volume, disk.tenant, stream);
        let list = Mutex::new(List { noted, is_entered: false });
        let pinning = Pinning::new(&shard.pins, disk.volume);
        Part { published: shard.published.clone(), list, pinning, _disk: disk.clone() }
    }

    /// Reports the list to the engine, which is that of its shard.
    #[inline]
    pub(crate) fn report(&self, core: &mut Core) {
        let mut list = self.list.lock();
        if !list.noted.is_empty() {
            core.engine.take_notice(&mut list.noted);
        }
    }
}

impl Shard {
    pub(crate) fn new(engine: Engine) -> Shard {
        let pins = Arc::new(Pins::new(engine.config().spare));
        let published = engine.published().clone();
        let core = Core { engine, waiters: Slab::new(), queueing: 0, poisoned: false, acquisitions: 0 };
        Shard { core: Mutex::new(core), published, unknown: Mutex::default(), room: Condvar::new(), pins }
    }

    /// Blocks that the only client can pin.
    pub(crate) fn pins_most(&self) -> u32 {
        self.pins.most_of_one()
    }

    /// Locks it for a call.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core.lock();
        core.acquisitions += 1;
        core
    }

    /// Notes a read in the list of `part`, one of its parts; returns false if the list is full.
    #[inline]
    pub(crate) fn note(&self, part: &Arc<Part>, offset: u64, length: u64) -> bool {
        let mut list = part.list.lock();
        let is_noted = self.published.note(&mut list.noted, offset, length);
        if is_noted && !std::mem::replace(&mut list.is_entered, true) {
            self.unknown.lock().push_back(part.clone());
        }
        is_noted
    }

    /// Reports the list that was begun first to the engine, if there is one.
    pub(crate) fn report(&self, core: &mut Core) {
        let Some(part) = self.unknown.lock().pop_front() else { return };
        // The shard does not wait for a client that is interrupted while it notes a read.
        let Some(mut list) = part.list.try_lock() else { return self.unknown.lock().push_back(part) };
        list.is_entered = false;
        core.engine.take_notice(&mut list.noted);
    }
}
