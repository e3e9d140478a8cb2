//! ARC: recency and frequency compete for the cache, and the ghosts of each tell which should grow.
//!
//! The cases are those of Figure 4 of the paper. A block that comes in while the cache is not full, because others were
//! invalidated, replaces nothing; all else of its case holds.

use crate::directory::{B1, B2, Directory, T1, T2};
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

/// Adaptive replacement cache.
pub struct Arc {
    /// All lists have the most recently used last.
    directory: Directory,
    /// The ghost that was hit by the `evict` before this `insert`.
    recalled: Option<Slot>,
}

impl Configured for Arc {
    const INFO: Info = Info {
        name: "arc",
        summary: "balances recency against frequency by which of them would have hit",
        paper: "Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003",
        params: &[],
        offline: false,
        spatial: false,
        one_size: true,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Arc, SpecError> {
        Ok(Arc { directory: Directory::new(Arc::INFO.name, setup)?, recalled: None })
    }
}

impl Arc {
    /// REPLACE(x, p), where `in_b2` is x ∈ B2.
    #[inline]
    fn replace(&mut self, in_b2: bool) -> Slot {
        let (t1, p) = (f64::from(self.directory.len(T1)), self.directory.p());
        let (list, ghosts) = if t1 > 0.0 && (t1 > p || in_b2 && t1 == p) { (T1, B1) } else { (T2, B2) };
        let victim = self.directory.pop(list).expect("a full cache holds a block");
        self.directory.push(victim, ghosts);
        victim
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
