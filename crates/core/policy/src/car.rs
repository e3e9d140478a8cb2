//! CAR: ARC on two clocks, so that a hit sets one bit.
//!
//! The steps are those of Figure 2 of the paper. The paper has no invalidation, which leaves a cache with free frames:
//! a page that enters such a cache replaces nothing, and the other steps apply. When a page must leave without another
//! one entering, replace() runs with the current p, and takes T1 while T2 is empty.

use crate::directory::{B1, B2, Directory, T1, T2};
use crate::prefetch::prefetch;
use crate::recency::SLOTS_MOST;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// Clock with adaptive replacement.
pub struct Car {
    /// T1 and T2 are clocks with the hand at the first page; B1 and B2 have the least recently used page first.
    directory: Directory,
    /// Reference bits; clear for slots that are not resident.
    referenced: Vec<bool>,
}

impl Configured for Car {
    const INFO: Info = Info {
        name: "car",
        summary: "ARC on two clocks: a hit only sets a bit",
        paper: "Bansal and Modha, CAR: Clock with Adaptive Replacement, FAST 2004",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(_params: &Params, capacity: u32) -> Result<u32, SpecError> {
        // A full cache has c resident blocks, and |T1| + |T2| + |B1| + |B2| <= 2c.
        Ok(capacity)
    }

    fn new(setup: &Setup, _params: &Params) -> Result<Car, SpecError> {
        let directory = Directory::new(Car::INFO.name, setup)?;
        Ok(Car { directory, referenced: vec![false; setup.slots as usize] })
    }
}

impl Car {
    /// replace().
    #[inline(always)]
    fn replace(&mut self) -> Slot {
        loop {
            let from_t1 =
                f64::from(self.directory.len(T1)) >= self.directory.p().max(1.0) || self.directory.len(T2) == 0;
            let (clock, ghosts) = if from_t1 { (T1, B1) } else { (T2, B2) };
            let slot = self.directory.pop(clock).expect("the clock holds a page");
            if !std::mem::take(&mut self.referenced[slot.index()]) {
                self.directory.push(slot, ghosts);
                return slot;
            }
            // "Set the page reference bit of head page in T1 to 0, and make it the tail page in T2", and alike in T2.
            self.directory.push(slot, T2);
        }
    }
}

impl Policy for Car {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.referenced[slot.index()] = true;
    }

    #[inline(always)]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.replace())
    }

    #[inline(always)]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.directory.recall(slot).is_some() {
            self.directory.push(slot, T2);
        } else {
            self.directory.make_room();
            self.directory.push(slot, T1);
        }
        self.directory.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.replace();
        self.directory.shorten();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.directory.resize(room);
        self.referenced.resize(room.slots as usize, false);
    }

    fn slots_most(&self) -> u32 {
        SLOTS_MOST
    }

    fn remove(&mut self, slot: Slot) {
        self.directory.leave(slot);
        self.referenced[slot.index()] = false;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.directory.take_forgotten()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.directory.warm(slot);
        prefetch(&self.referenced, slot.index());
    }

    fn check(&self) {
        let resident = self.directory.check();
        let bits = resident.iter().filter(|slot| self.referenced[slot.index()]).count();
        assert_eq!(self.referenced.iter().filter(|&&bit| bit).count(), bits, "a reference bit outside the cache");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.directory.gauges(report);
    }
}
