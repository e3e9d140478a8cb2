//! Which level a block that is not known belongs to when all are full: what the text leaves open is tried out.
//!
//! Two small copies of the scheme receive the references to a sample of the blocks, in levels that are smaller in proportion (miniature
//! simulation, Waldspurger and others, USENIX ATC 2017). In one, such a block is cached at no level, in the other at the last one.

use nigh_policy::Slot;

use crate::levels::{Level, Tier};
use crate::ulc::{First, Ulc};

/// Neighbouring slots are in the sample together: a host can hand them out in any order.
const TOGETHER: u32 = 32;
/// The levels of a copy together have this many blocks at least, unless those of the scheme have fewer.
const BLOCKS: u64 = 1024;
/// The last level is chosen only if it saves at least one miss of so many.
const GAIN: u64 = 20;
/// Decisions are made after so many references for each block of a copy.
const REFERENCES: u64 = 1;

/// Tries both choices.
pub(crate) struct Trial {
    /// One of so many groups of slots is in the sample.
    one_of: u32,
    /// With [`First::Out`] and [`First::Last`].
    copies: [Ulc; 2],
    /// Of each; an eighth less after each decision.
    misses: [u64; 2],
    /// References to the sample since the last decision.
    references: u64,
}

impl Trial {
    pub(crate) fn new(slots: u32, capacities: &[u32]) -> Trial {
        let all: u64 = capacities.iter().map(|&blocks| u64::from(blocks)).sum();
        let one_of = (all / BLOCKS).max(1) as u32;
        let small: Vec<u32> = capacities.iter().map(|&blocks| (blocks / one_of).max(1)).collect();
        let slots = slots.div_ceil(TOGETHER).div_ceil(one_of) * TOGETHER;
        let copies = [First::Out, First::Last].map(|first| Ulc::new(slots, &small).first(first));
        Trial { one_of, copies, misses: [0; 2], references: 0 }
    }

    /// The slot of the copies, if `slot` is in the sample.
    fn sampled(&self, slot: Slot) -> Option<Slot> {
        let (group, at) = (slot.0 / TOGETHER, slot.0 % TOGETHER);
        group.is_multiple_of(self.one_of).then(|| Slot(group / self.one_of * TOGETHER + at))
    }

    /// A reference. Returns what is better, if that was decided just now.
    pub(crate) fn reference(&mut self, slot: Slot) -> Option<First> {
        let slot = self.sampled(slot)?;
        let mut moves = Vec::new();
        for (copy, misses) in self.copies.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(copy.reference(slot, &mut moves).from.is_none());
            moves.clear();
        }
        self.references += 1;
        if self.references < REFERENCES * self.copies[0].capacity() {
            return None;
        }
        let [out, last] = self.misses;
        (self.misses, self.references) = ([out - out / 8, last - last / 8], 0);
        Some(if last + out / GAIN < out { First::Last } else { First::Out })
    }

    /// The block of `slot` is not known any more.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(slot) = self.sampled(slot) {
            self.copies.iter_mut().for_each(|copy| copy.remove(slot, &mut Vec::new()));
        }
    }

    pub(crate) fn grow(&mut self, slots: u32) {
        let slots = slots.div_ceil(TOGETHER).div_ceil(self.one_of) * TOGETHER;
        self.copies.iter_mut().for_each(|copy| copy.grow(slots));
    }

    pub(crate) fn resize(&mut self, level: Level, capacity: u32) {
        let capacity = (capacity / self.one_of).max(1);
        self.copies.iter_mut().for_each(|copy| copy.resize(level, capacity, &mut Vec::new()));
    }

    pub(crate) fn limit_ghosts(&mut self, most: u32) {
        let most = if most == u32::MAX { most } else { (most / self.one_of).max(1) };
        self.copies.iter_mut().for_each(|copy| copy.limit_ghosts(most, &mut Vec::new()));
    }
}
