//! CAR: ARC on two clocks, so that a hit sets one bit.
//!
//! The steps are those of Figure 2 of the paper. Where the host has room for fewer ghosts than the paper's c, the longer
//! of B1 and B2 forgets its least recently used one. A page that comes in while the cache is not full, because others
//! were invalidated, replaces nothing; all else holds.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
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
}

/// Clock with adaptive replacement.
pub struct Car {
    places: Vec<Place>,
    referenced: Vec<bool>,
    links: Links,
    /// The clock of pages seen once recently, its head in front.
    t1: List,
    /// The clock of pages seen at least twice recently, its head in front.
    t2: List,
    /// Evicted from T1, the least recently used in front.
    b1: List,
    /// Evicted from T2, the least recently used in front.
    b2: List,
    /// Slots to be handed back.
    forgotten: List,
    /// The target size of T1.
    p: f64,
    /// c.
    capacity: u32,
    ghosts_most: u32,
}

impl Configured for Car {
    const INFO: Info = Info {
        name: "car",
        summary: "ARC on two clocks: a hit only sets a bit",
        paper: "Bansal and Modha, CAR: Clock with Adaptive Replacement, FAST 2004",
        params: &[],
        offline: false,
        spatial: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Car, SpecError> {
        let (links, [t1, t2, b1, b2, forgotten]) = Links::new(setup.slots);
        let places = vec![Place::Unknown; setup.slots as usize];
        let referenced = vec![false; setup.slots as usize];
        let (capacity, ghosts_most) = (setup.capacity, setup.ghosts);
        Ok(Car { places, referenced, links, t1, t2, b1, b2, forgotten, p: 0.0, capacity, ghosts_most })
    }
}

impl Car {
    fn place(&self, slot: Slot) -> Place {
        self.places[slot.index()]
    }

    fn unlink(&mut self, slot: Slot) {
        let list = match self.place(slot) {
            Place::Unknown => &mut self.forgotten,
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
        };
        list.unlink(&mut self.links, slot);
    }

    /// Puts `slot` at the tail of a list.
    fn push(&mut self, slot: Slot, place: Place) {
        self.places[slot.index()] = place;
        let list = match place {
            Place::Unknown => &mut self.forgotten,
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
        };
        list.push_back(&mut self.links, slot);
    }

    fn forget_first(&mut self, place: Place) {
        let list = if place == Place::B1 { &mut self.b1 } else { &mut self.b2 };
        if let Some(slot) = list.pop_front(&mut self.links) {
            self.push(slot, Place::Unknown);
        }
    }
}

impl Policy for Car {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.referenced[slot.index()] = true;
    }

    /// replace().
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Slot {
        loop {
            let from_t1 = f64::from(self.t1.len()) >= self.p.max(1.0);
            let (clock, ghosts) = if from_t1 { (&mut self.t1, Place::B1) } else { (&mut self.t2, Place::B2) };
            let slot = clock.pop_front(&mut self.links).expect("a full cache holds a page");
            if !std::mem::take(&mut self.referenced[slot.index()]) {
                self.push(slot, ghosts);
                return slot;
            }
            // "Set the page reference bit of head page in T1 to 0, and make it the tail page in T2", and alike in T2.
            self.push(slot, Place::T2);
        }
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        let (b1, b2) = (f64::from(self.b1.len()), f64::from(self.b2.len()));
        match self.place(slot) {
            Place::B1 => {
                self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
                self.b1.unlink(&mut self.links, slot);
                self.push(slot, Place::T2);
            }
            Place::B2 => {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                self.b2.unlink(&mut self.links, slot);
                self.push(slot, Place::T2);
            }
            _ => {
                // "Cache directory replacement."
                if self.t1.len() + self.b1.len() >= self.capacity {
                    self.forget_first(Place::B1);
                } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len()
                    >= self.capacity.saturating_mul(2)
                {
                    self.forget_first(Place::B2);
                }
                self.push(slot, Place::T1);
            }
        }
        if self.b1.len() + self.b2.len() > self.ghosts_most {
            self.forget_first(if self.b1.len() >= self.b2.len() { Place::B1 } else { Place::B2 });
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        self.places[slot.index()] = Place::Unknown;
        self.referenced[slot.index()] = false;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.links)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.referenced, slot.index());
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
            assert!(slots.iter().all(|&slot| self.place(slot) == place), "a page in {place:?} that is not");
            known += if place == Place::Unknown { 0 } else { slots.len() };
            let resident = matches!(place, Place::T1 | Place::T2);
            let bits = slots.iter().filter(|slot| self.referenced[slot.index()]).count();
            assert!(resident || bits == 0, "a reference bit outside the cache");
        }
        assert_eq!(self.places.iter().filter(|&&place| place != Place::Unknown).count(), known, "a page in no list");
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
