//! DULO's idea on another policy, beyond the paper: a base policy nominates victims, and the nominated block that is
//! cheapest to fetch again leaves.
//!
//! The base replaces the correlation buffer. It manages the cache without the room for bank and evicting section. The
//! blocks that it evicts to keep that size are nominated: they enter the bank, stay resident, and are ordered and
//! evicted as in DULO. A victim is thus always a nominated block, and the number of nominated blocks is limited to the
//! room of bank and evicting section plus frames that invalidations freed. A nominated block that is referenced returns
//! to the base, which treats it as a miss of an evicted block (a ghost if the base remembers it).
//!
//! With LRU as the base, this is DULO on the strict LRU stack of section 3, where "both missed blocks and hit blocks
//! are required to move to the stack top". A hit on a nominated block costs as much as a miss, without the I/O.
//!
//! A base that becomes smaller sheds blocks, which are then nominated. If a block must leave a cache that is not full
//! and none is nominated, the base sheds one.
//!
//! The smaller base costs hits: unless their sizes are given, the sections have 1 % and 8 % of the cache.

use super::sections::Sections;
use super::{Shares, new_sections};
use crate::list::Links;
use crate::prefetch::prefetch;
use crate::spec::{Configured, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

// The base's state of a slot.
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
    /// The nominated blocks.
    sections: Sections,
    /// Slots to be handed back.
    forgotten: Vec<Slot>,
    shares: Shares,
}

/// The sizes of bank and evicting section if none are given.
fn auto_sizes(capacity: u32) -> (u32, u32) {
    (capacity / 100, capacity / 100 * 8)
}

/// The most blocks of the bank and of the base, which has at least one.
fn divide(shares: &Shares, capacity: u32) -> (u32, u32) {
    let (bank, evicting) = shares.sizes(capacity, auto_sizes(capacity), (capacity - 1).max(1));
    (bank, (capacity - bank - evicting).max(1))
}

impl<P: Configured> Nominated<P> {
    pub(crate) fn new(setup: &Setup, params: &Params) -> Result<Nominated<P>, SpecError> {
        if params.given("first") {
            return Err(params.bad("first", "no such parameter where base is not clock"));
        }
        let shares = Shares::new(setup, params)?;
        if shares.adapts {
            return Err(params.bad("adapt", "0 where base is not clock"));
        }
        shares.check(params, setup.capacity, auto_sizes(setup.capacity))?;
        let (bank, resident_most) = divide(&shares, setup.capacity);
        let (links, lists) = Links::new(setup.slots);
        let base_setup = Setup { capacity: resident_most, ..setup.clone() };
        Ok(Nominated {
            base: P::new(&base_setup, &Params::defaults(&P::INFO))?,
            resident: 0,
            resident_most,
            states: vec![UNKNOWN; setup.slots as usize],
            links,
            sections: new_sections(setup, params, lists, bank, &shares)?,
            forgotten: Vec::new(),
            shares,
        })
    }

    /// Makes room in the base for `incoming`.
    #[inline]
    fn nominate(&mut self, incoming: Slot, access: &Access) {
        if self.resident == self.resident_most {
            let nominee = self.base.evict(incoming, access).expect("a base keeps what comes in");
            self.enter(nominee);
        }
    }

    /// Puts `nominee`, which the base evicted, into the bank.
    #[inline]
    fn enter(&mut self, nominee: Slot) {
        self.states[nominee.index()] = GHOST;
        self.resident -= 1;
        self.sections.enter(&mut self.links, nominee);
        self.drain();
    }

    fn shed_nominee(&mut self) {
        let nominee = self.base.shed();
        self.enter(nominee);
    }

    /// Takes the block at the stack bottom out.
    #[inline]
    fn evict_bottom(&mut self) -> Slot {
        let victim = self.sections.evict(&mut self.links);
        if self.states[victim.index()] == UNKNOWN {
            self.forgotten.push(victim);
        }
        victim
    }

    #[inline]
    fn load(&mut self, slot: Slot, access: &Access) {
        self.nominate(slot, access);
        self.base.insert(slot, access);
        self.states[slot.index()] = RESIDENT;
        self.resident += 1;
        self.drain();
    }

    /// Returns the slots that the base forgot to the host, except those of nominated blocks.
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
        Some(self.evict_bottom())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.sections.loaded(slot, access.block);
        self.load(slot, access);
    }

    fn shed(&mut self) -> Slot {
        if self.sections.is_empty() {
            self.shed_nominee();
        }
        self.sections.settle_bottom(&mut self.links);
        self.evict_bottom()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, self.sections.lists());
        self.states.resize(room.slots as usize, UNKNOWN);
        let (bank, resident_most) = divide(&self.shares, room.capacity);
        let table = self.shares.table_bytes(room.capacity);
        self.sections.resize(&mut self.links, room.slots, bank, table);
        self.resident_most = resident_most;
        self.base.resize(Room { capacity: resident_most, ..room });
        self.drain();
        while self.resident > resident_most {
            self.shed_nominee();
        }
    }

    fn slots_most(&self) -> u32 {
        self.base.slots_most()
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
        assert!(nominated.iter().all(|slot| self.states[slot.index()] != RESIDENT), "a nominated block in the base");
        let unknown = |slot: &Slot| self.states[slot.index()] == UNKNOWN && !self.sections.contains(*slot);
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.base.gauges(report);
        self.sections.gauges(report);
    }
}
