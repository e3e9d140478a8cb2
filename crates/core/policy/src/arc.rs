//! ARC: recency and frequency compete for the cache, and hits in their ghost lists decide which of the two grows.
//!
//! The cases are those of Figure 4 of the paper. The paper has no invalidation, which leaves a cache with free frames:
//! a block that enters such a cache replaces nothing, and the rest of its case applies. When a block must leave without
//! another one entering, REPLACE runs with the current p; if it finds T2 empty, the LRU page of T1 leaves.

use crate::directory::{B1, B2, Directory, T1, T2};
use crate::recency::SLOTS_MOST;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// Adaptive replacement cache.
pub struct Arc {
    /// All lists have the most recently used last.
    directory: Directory,
    /// The ghost that `evict` hit before this `insert`.
    recalled: Option<Slot>,
}

impl Configured for Arc {
    const INFO: Info = Info {
        name: "arc",
        summary: "balances recency against frequency by hits among recently evicted blocks",
        paper: "Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(_params: &Params, capacity: u32) -> Result<u32, SpecError> {
        // A full cache has c resident blocks, and |T1| + |T2| + |B1| + |B2| <= 2c.
        Ok(capacity)
    }

    fn new(setup: &Setup, _params: &Params) -> Result<Arc, SpecError> {
        Ok(Arc { directory: Directory::new(Arc::INFO.name, setup)?, recalled: None })
    }
}

impl Arc {
    /// The LRU page of T1, or of T2, becomes a ghost.
    #[inline]
    fn retire(&mut self, from_t1: bool) -> Slot {
        let (list, ghosts) = if from_t1 { (T1, B1) } else { (T2, B2) };
        let victim = self.directory.pop(list).expect("the list holds a block");
        self.directory.push(victim, ghosts);
        victim
    }

    /// REPLACE(x, p), where `in_b2` is x ∈ B2.
    #[inline]
    fn replace(&mut self, in_b2: bool) -> Slot {
        let (t1, p) = (f64::from(self.directory.len(T1)), self.directory.p());
        self.retire(t1 > 0.0 && (t1 > p || in_b2 && t1 == p))
    }
}

impl Policy for Arc {
    /// Case I.
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.directory.leave(slot);
        self.directory.push(slot, T2);
    }

    #[inline(always)]
    fn evict(&mut self, incoming: Slot, _access: &Access) -> Option<Slot> {
        // Cases II and III.
        if let Some(list) = self.directory.recall(incoming) {
            self.recalled = Some(incoming);
            return Some(self.replace(list == B2));
        }
        if self.directory.len(T1) == self.directory.capacity() {
            // Case IV(A) with B1 empty: "delete the LRU page in T1 (also remove it from the cache)".
            let victim = self.directory.pop(T1).expect("T1 fills the cache");
            self.directory.forget(victim);
            return Some(victim);
        }
        self.directory.make_room();
        Some(self.replace(false))
    }

    #[inline(always)]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.recalled.take().is_some() || self.directory.recall(slot).is_some() {
            self.directory.push(slot, T2);
        } else {
            self.directory.make_room();
            self.directory.push(slot, T1);
        }
        self.directory.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = if self.directory.len(T2) == 0 { self.retire(true) } else { self.replace(false) };
        self.directory.shorten();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.directory.resize(room);
    }

    fn slots_most(&self) -> u32 {
        SLOTS_MOST
    }

    fn remove(&mut self, slot: Slot) {
        self.directory.leave(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.directory.take_forgotten()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.directory.warm(slot);
    }

    fn check(&self) {
        self.directory.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.directory.gauges(report);
    }
}
