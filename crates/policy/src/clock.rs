//! CLOCK, also called second chance: FIFO, except that a block hit since the hand last passed it stays for another
//! round.
//!
//! The circle is a list whose first slot stands under the hand; the hand advances by moving that slot to the back.
//! A new block takes the place just behind the hand, which is the frame of the victim it replaces.
//!
//! Choice: the reference bit of a block just loaded starts at 0, so that only a hit earns a second chance; this gives
//! the hit ratios of libCacheSim's CLOCK. In a paging machine the reference that loads a page also sets its bit:
//! `first=1`.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

/// CLOCK.
pub struct Clock {
    links: Links,
    /// Resident slots from the one under the hand to the one just behind it.
    circle: List,
    /// Reference bits; clear where the slot is not resident.
    referenced: Vec<bool>,
    /// The reference bit of a block just loaded.
    first: bool,
    capacity: u32,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Configured for Clock {
    const INFO: Info = Info {
        name: "clock",
        summary: "evicts in the order of loading, but gives a block that was hit another round",
        paper: "Corbató, A Paging Experiment with the Multics System, MIT Project MAC Report MAC-M-384 1968",
        params: &[Param {
            key: "first",
            default: "0",
            doc: "the reference bit of a block just loaded, 0 or 1; 1 is what a paging machine does",
        }],
        offline: false,
        spatial: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Clock, SpecError> {
        let (links, [circle]) = Links::new(setup.slots);
        Ok(Clock {
            links,
            circle,
            referenced: vec![false; setup.slots as usize],
            first: params.number("first", 0, 1)? == 1,
            capacity: setup.capacity,
            forgotten: None,
        })
    }
}

impl Policy for Clock {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.referenced[slot.index()] = true;
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Slot {
        let victim = loop {
            let slot = self.circle.pop_front(&mut self.links).expect("a full cache holds a block");
            if !std::mem::take(&mut self.referenced[slot.index()]) {
                break slot;
            }
            self.circle.push_back(&mut self.links, slot);
        };
        self.forgotten = Some(victim);
        victim
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.referenced[slot.index()] = self.first;
        self.circle.push_back(&mut self.links, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.referenced[slot.index()] = false;
        self.circle.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.referenced, slot.index());
    }

    fn check(&self) {
        let resident = self.circle.checked(&self.links);
        assert!(self.circle.len() <= self.capacity, "more blocks on the circle than frames");
        let set = resident.iter().filter(|slot| self.referenced[slot.index()]).count();
        let all = self.referenced.iter().filter(|&&bit| bit).count();
        assert_eq!(set, all, "a block that is not resident has its reference bit set");
    }
}
