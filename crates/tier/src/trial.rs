//! Which level a block that is not known belongs to when all are full: what the text leaves open is tried out.
//!
//! Two small copies of the scheme receive the references to a sample of the blocks, in levels that are smaller in proportion (miniature
//! simulation, Waldspurger and others, USENIX ATC 2017). In one, such a block is cached at no level, in the other at the last one.

use nigh_policy::Slot;

use crate::levels::Tier;

/// Neighbouring slots are in the sample together: a host can hand them out in any order.
const TOGETHER: u32 = 32;
/// The levels of a copy together have this many blocks at least, unless those of the scheme have fewer.
const BLOCKS: u64 = 1024;
/// The last level is chosen only if it saves at least one miss of so many.
const GAIN: u64 = 20;

/// Where a block is cached that is not in the stack, when all levels are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// At no level.
    Out,
    /// At the last one.
    Last,
}

/// How a sample of the blocks, and levels for it, are smaller than all.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// One of so many groups of slots is in the sample.
    one_of: u32,
}

impl Scale {
    /// For levels that hold `blocks` together.
    pub(crate) fn new(blocks: u64) -> Scale {
        Scale { one_of: (blocks / BLOCKS).max(1) as u32 }
    }

    /// Slots of the sample, of slots below `slots`.
    pub(crate) fn slots(self, slots: u32) -> u32 {
        slots.div_ceil(TOGETHER).div_ceil(self.one_of) * TOGETHER
    }

    /// What `blocks` blocks are for the sample.
    pub(crate) fn blocks(self, blocks: u32) -> u32 {
        if blocks == u32::MAX { blocks } else { (blocks / self.one_of).max(1) }
    }

    /// The number that `slot` has in the sample, if it is in it.
    fn sampled(self, slot: Slot) -> Option<Slot> {
        let (group, at) = (slot.0 / TOGETHER, slot.0 % TOGETHER);
        group.is_multiple_of(self.one_of).then(|| Slot(group / self.one_of * TOGETHER + at))
    }
}

/// Tries both choices.
pub(crate) struct Trial<T> {
    scale: Scale,
    /// With [`First::Out`] and [`First::Last`].
    copies: [T; 2],
    /// Of each; an eighth less after each decision.
    misses: [u64; 2],
    /// References to the sample since the last decision, and how many there are between two.
    references: u64,
    most: u64,
}

impl<T: Tier> Trial<T> {
    /// With copies whose levels hold `blocks` blocks each.
    pub(crate) fn new(scale: Scale, copies: [T; 2], blocks: u64) -> Trial<T> {
        Trial { scale, copies, misses: [0; 2], references: 0, most: blocks }
    }

    /// A reference. Returns what is better, if that was decided just now.
    pub(crate) fn reference(&mut self, slot: Slot) -> Option<First> {
        let slot = self.scale.sampled(slot)?;
        let mut moves = Vec::new();
        for (copy, misses) in self.copies.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(copy.reference(slot, &mut moves).from.is_none());
            moves.clear();
        }
        self.references += 1;
        if self.references < self.most {
            return None;
        }
        let [out, last] = self.misses;
        (self.misses, self.references) = ([out - out / 8, last - last / 8], 0);
        Some(if last + out / GAIN < out { First::Last } else { First::Out })
    }

    /// The block of `slot` is not known any more.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(slot) = self.scale.sampled(slot) {
            self.copies.iter_mut().for_each(|copy| copy.remove(slot, &mut Vec::new()));
        }
    }

    /// Changes both copies alike.
    pub(crate) fn each(&mut self, mut change: impl FnMut(&mut T, Scale)) {
        self.copies.iter_mut().for_each(|copy| change(copy, self.scale));
    }
}
