//! ARC: recency and frequency compete for the cache, and the ghosts of each tell which should grow.
//!
//! The cases are those of Figure 4 of the paper. Where the host has room for fewer ghosts than the paper's c, the longer
//! of B1 and B2 forgets its least recently used one. A block that comes in while the cache is not full, because others
//! were invalidated, replaces nothing; all else of its case holds.

use crate::list::{Links, List};
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unknown,
    T1,
    T2,
    B1,
    B2,
    /// A ghost hit between `evict` and `insert`.
    Incoming,
}

/// Adaptive replacement cache.
pub struct Arc {
    places: Vec<Place>,
    links: Links,
    /// Resident, seen once recently. All lists have the most recently used in front.
    t1: List,
    /// Resident, seen at least twice recently.
    t2: List,
    /// Evicted from T1.
    b1: List,
    /// Evicted from T2.
    b2: List,
    /// Slots to be handed back.
    forgotten: List,
    /// The target size of T1.
    p: f64,
    /// c.
    capacity: u32,
    ghosts_most: u32,
}

impl Configured for Arc {
    const INFO: Info = Info {
        name: "arc",
        summary: "balances recency against frequency by which of them would have hit",
        paper: "Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003",
        params: &[],
        offline: false,
        spatial: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Arc, SpecError> {
        let (links, [t1, t2, b1, b2, forgotten]) = Links::new(setup.slots);
        let places = vec![Place::Unknown; setup.slots as usize];
        let (capacity, ghosts_most) = (setup.capacity, setup.ghosts);
        Ok(Arc { places, links, t1, t2, b1, b2, forgotten, p: 0.0, capacity, ghosts_most })
    }
}

impl Arc {
    #[inline(always)]
    fn place(&self, slot: Slot) -> Place {
        self.places[slot.index()]
    }

    #[inline(always)]
    fn unlink(&mut self, slot: Slot) {
        let list = match self.place(slot) {
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
            Place::Unknown | Place::Incoming => return,
        };
        list.unlink(&mut self.links, slot);
    }

    #[inline(always)]
    fn push(&mut self, slot: Slot, place: Place) {
        self.places[slot.index()] = place;
        let list = match place {
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
            Place::Unknown | Place::Incoming => &mut self.forgotten,
        };
        list.push_front(&mut self.links, slot);
    }

    /// Cases II and III: adapts p to a hit in B1 or B2 and takes the block out of it.
    fn recall(&mut self, slot: Slot) {
        let (b1, b2) = (f64::from(self.b1.len()), f64::from(self.b2.len()));
        if self.place(slot) == Place::B1 {
            self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
        } else {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
        }
        self.unlink(slot);
        self.places[slot.index()] = Place::Incoming;
    }

    fn is_ghost(&self, slot: Slot) -> bool {
        matches!(self.place(slot), Place::B1 | Place::B2)
    }

    /// REPLACE(x, p), where `in_b2` is x ∈ B2.
    fn replace(&mut self, in_b2: bool) -> Slot {
        let t1 = f64::from(self.t1.len());
        let (list, ghosts) = if !self.t1.is_empty() && (t1 > self.p || in_b2 && t1 == self.p) {
            (&mut self.t1, Place::B1)
        } else {
            (&mut self.t2, Place::B2)
        };
        let victim = list.pop_back(&mut self.links).expect("a full cache holds a block");
        self.push(victim, ghosts);
        victim
    }

    fn forget_last(&mut self, place: Place) {
        let list = if place == Place::B1 { &mut self.b1 } else { &mut self.b2 };
        if let Some(slot) = list.pop_back(&mut self.links) {
            self.push(slot, Place::Unknown);
        }
    }

    /// Case IV: makes room in the directory for a block that is not in it.
    fn make_room(&mut self) {
        if self.t1.len() + self.b1.len() >= self.capacity {
            self.forget_last(Place::B1);
        } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() >= self.capacity.saturating_mul(2) {
            self.forget_last(Place::B2);
        }
    }
}

impl Policy for Arc {
    /// Case I.
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.place(slot) == Place::T2 {
            self.t2.move_to_front(&mut self.links, slot);
        } else {
            self.t1.unlink(&mut self.links, slot);
            self.push(slot, Place::T2);
        }
    }

    fn evict(&mut self, incoming: Slot, _access: &Access) -> Slot {
        if self.is_ghost(incoming) {
            let in_b2 = self.place(incoming) == Place::B2;
            self.recall(incoming);
            return self.replace(in_b2);
        }
        if self.t1.len() == self.capacity {
            // Case IV(A) with B1 empty: "delete the LRU page in T1 (also remove it from the cache)".
            let victim = self.t1.pop_back(&mut self.links).expect("T1 fills the cache");
            self.push(victim, Place::Unknown);
            return victim;
        }
        self.make_room();
        self.replace(false)
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.is_ghost(slot) {
            self.recall(slot);
        }
        if self.place(slot) == Place::Incoming {
            self.push(slot, Place::T2);
        } else {
            self.make_room();
            self.push(slot, Place::T1);
        }
        if self.b1.len() + self.b2.len() > self.ghosts_most {
            self.forget_last(if self.b1.len() >= self.b2.len() { Place::B1 } else { Place::B2 });
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        self.places[slot.index()] = Place::Unknown;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.links)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    fn check(&self) {
        let lists = [
            (&self.t1, Place::T1),
            (&self.t2, Place::T2),
            (&self.b1, Place::B1),
            (&self.b2, Place::B2),
            (&self.forgotten, Place::Unknown),
        ];
        let mut known = 0;
        for (list, place) in lists {
            let slots = list.checked(&self.links);
            assert!(slots.iter().all(|&slot| self.place(slot) == place), "a block in {place:?} that is not");
            known += if place == Place::Unknown { 0 } else { slots.len() };
        }
        assert_eq!(self.places.iter().filter(|&&place| place != Place::Unknown).count(), known, "a block in no list");
        assert!(self.t1.len() + self.t2.len() <= self.capacity, "|T1| + |T2| <= c");
        assert!(self.t1.len() + self.b1.len() <= self.capacity, "|T1| + |B1| <= c");
        assert!(known <= 2 * self.capacity as usize, "|T1| + |T2| + |B1| + |B2| <= 2c");
        assert!(self.b1.len() + self.b2.len() <= self.ghosts_most, "too many ghosts");
        assert!((0.0..=f64::from(self.capacity)).contains(&self.p), "0 <= p <= c");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("p", self.p as u64);
        report("t1", self.t1.len().into());
        report("t2", self.t2.len().into());
        report("ghosts", (self.b1.len() + self.b2.len()).into());
    }
}
