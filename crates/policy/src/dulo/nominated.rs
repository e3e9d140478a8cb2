//! DULO's idea under another policy, beyond the paper: a base policy nominates victims, and of the nominated the one
//! leaves that is cheapest to fetch again.
//!
//! The base has the place of the correlation buffer. It runs over the cache without the room for bank and evicting
//! section, and what it evicts to keep that size is nominated: it comes to the bank, stays resident, and is ordered
//! there and evicted as DULO's blocks are. So a victim is always a nominated block, and there are never more of them
//! than bank, evicting section and what invalidations left free hold. A nominated block that is referenced goes back to
//! the base, to which it is a miss of a block it evicted, a ghost where it remembers it.
//!
//! With LRU for a base this is DULO on the strict LRU stack of section 3, where "both missed blocks and hit blocks are
//! required to move to the stack top". A hit on a nominated block costs what a miss does, without the I/O.
//!
//! The base gets smaller, which costs it hits: the sections have 1 % and 8 % of the cache unless their sizes are given.

use super::sections::Sections;
use super::{new_sections, section_sizes};
use crate::list::Links;
use crate::prefetch::prefetch;
use crate::spec::{Configured, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

// What the base holds a slot for.
const UNKNOWN: u8 = 0;
const RESIDENT: u8 = 1;
const GHOST: u8 = 2;

/// DULO on the base policy `P`.
pub(crate) struct Nominated<P> {
    base: P,
    /// Resident blocks of the base.
    resident: u32,
    resident_most: u32,
    states: Vec<u8>,
    links: Links,
    /// What the base nominated.
    sections: Sections,
    /// Slots to be handed back.
    forgotten: Vec<Slot>,
    capacity: u32,
}

impl<P: Configured> Nominated<P> {
    pub(crate) fn new(setup: &Setup, params: &Params) -> Result<Nominated<P>, SpecError> {
        let capacity = setup.capacity;
        if params.given("first") {
            return Err(params.bad("first", "no such parameter where base is not clock"));
        }
        // A base has at least one block.
        let most = (capacity - 1).max(1);
        let auto = (capacity / 100, capacity / 100 * 8);
        let (bank, evicting) = section_sizes(setup, params, auto, most)?;
        let resident_most = (capacity - bank - evicting).max(1);
        let (links, lists) = Links::new(setup.slots);
        let base_setup = Setup { capacity: resident_most, ..setup.clone() };
        Ok(Nominated {
            base: P::new(&base_setup, &Params::defaults(&P::INFO))?,
            resident: 0,
            resident_most,
            states: vec![UNKNOWN; setup.slots as usize],
            links,
            sections: new_sections(setup, params, lists, bank)?,
            forgotten: Vec::new(),
            capacity,
        })
    }

    /// Makes room in the base for `incoming`.
    #[inline]
    fn nominate(&mut self, incoming: Slot, access: &Access) {
        if self.resident == self.resident_most {
            let nominee = self.base.evict(incoming, access).expect("a base keeps what comes in");
            self.states[nominee.index()] = GHOST;
            self.resident -= 1;
            self.sections.enter(&mut self.links, nominee);
            self.drain();
        }
    }

    #[inline]
    fn load(&mut self, slot: Slot, access: &Access) {
        self.nominate(slot, access);
        self.base.insert(slot, access);
        self.states[slot.index()] = RESIDENT;
        self.resident += 1;
        self.drain();
    }

    /// Hands back what the base forgot, except for the nominated.
    #[inline]
    fn drain(&mut self) {
        while let Some(slot) = self.base.take_forgotten() {
            self.states[slot.index()] = UNKNOWN;
            if !self.sections.contains(slot) {
                self.forgotten.push(slot);
            }
        }
    }
}

impl<P: Configured> Policy for Nominated<P> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        if self.states[slot.index()] == RESIDENT {
            self.base.hit(slot, access);
            self.drain();
        } else {
            self.sections.remove(&mut self.links, slot);
            self.load(slot, access);
        }
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.nominate(incoming, access);
        let victim = self.sections.evict(&mut self.links);
        if self.states[victim.index()] == UNKNOWN {
            self.forgotten.push(victim);
        }
        Some(victim)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.sections.loaded(slot, access.block);
        self.load(slot, access);
    }

    fn remove(&mut self, slot: Slot) {
        if self.sections.contains(slot) {
            self.sections.remove(&mut self.links, slot);
        }
        match std::mem::replace(&mut self.states[slot.index()], UNKNOWN) {
            UNKNOWN => return,
            RESIDENT => self.resident -= 1,
            _ => {}
        }
        self.base.remove(slot);
        self.drain();
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.states, slot.index());
        self.base.warm(slot);
    }

    fn check(&self) {
        self.base.check();
        let nominated = self.sections.checked(&self.links);
        let count = |state| self.states.iter().filter(|&&other| other == state).count();
        assert_eq!(count(RESIDENT), self.resident as usize, "resident blocks of the base");
        assert!(self.resident <= self.resident_most, "more blocks in the base than it has room for");
        assert!(self.resident as usize + nominated.len() <= self.capacity as usize, "more blocks than frames");
        assert!(nominated.iter().all(|slot| self.states[slot.index()] != RESIDENT), "a nominated block in the base");
        let unknown = |slot: &Slot| self.states[slot.index()] == UNKNOWN && !self.sections.contains(*slot);
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.base.gauges(report);
        self.sections.gauges(report);
    }
}
