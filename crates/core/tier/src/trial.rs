//! Which level a block that is not known belongs to when all are full: what the text leaves open is tried out.
//!
//! Two small copies of the scheme receive the references to a sample of the blocks, in levels that are smaller in proportion (miniature
//! simulation, Waldspurger and others, USENIX ATC 2017). In one, such a block is cached at no level, in the other at the last one.

use std::collections::HashMap;

use nigh_policy::Slot;

use crate::levels::{Move, Tier};

/// The levels of a copy together have this many blocks at least, unless those of the scheme have fewer.
const BLOCKS: u64 = 1024;
/// The last level is chosen only if it saves at least one miss of this many.
const GAIN: u64 = 20;

/// Level of a block that is not in the stack, when all levels are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// At no level.
    Out,
    /// At the last one.
    Last,
}

/// How levels for a sample of the blocks are smaller than those for all.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// One of this many blocks is in the sample.
    one_of: u32,
}

impl Scale {
    /// For levels that hold `blocks` together.
    pub(crate) fn new(blocks: u64) -> Scale {
        Scale { one_of: (blocks / BLOCKS).max(1) as u32 }
    }

    /// The number of blocks of the sample for `blocks` blocks.
    pub(crate) fn blocks(self, blocks: u32) -> u32 {
        if blocks == u32::MAX { blocks } else { (blocks / self.one_of).max(1) }
    }

    fn has(self, block: u64) -> bool {
        (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(self.one_of.into())
    }
}

/// Tries both choices.
pub(crate) struct Trial<T> {
    scale: Scale,
    /// With [`First::Out`] and [`First::Last`].
    copies: [T; 2],
    /// The slots of blocks that a copy knows. By slot: the block, and which copies know it, as bits.
    slots: HashMap<u64, Slot>,
    blocks: Vec<(u64, u8)>,
    free: Vec<Slot>,
    /// Slots of the copies.
    room: u32,
    /// Of each; an eighth less after each decision.
    misses: [u64; 2],
    /// References to the sample since the last decision, and how many there are between two.
    references: u64,
    most: u64,
}

impl<T: Tier> Trial<T> {
    /// With copies whose levels hold `blocks` blocks each, and no slots yet.
    pub(crate) fn new(scale: Scale, copies: [T; 2], blocks: u64) -> Trial<T> {
        Trial {
            scale,
            copies,
            slots: HashMap::new(),
            blocks: Vec::new(),
            free: Vec::new(),
            room: 0,
            misses: [0; 2],
            references: 0,
            most: blocks,
        }
    }

    /// A reference to `block`, a number that stays the same. Returns what is better, if that was decided just now. `grow` gives a copy more slots.
    pub(crate) fn reference(&mut self, block: u64, grow: impl Fn(&mut T, u32)) -> Option<First> {
        if !self.scale.has(block) {
            return None;
        }
        let slot = match self.slots.get(&block) {
            Some(&slot) => slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.blocks.push((0, 0));
                    Slot(self.blocks.len() as u32 - 1)
                });
                if slot.0 >= self.room {
                    self.room = (2 * self.room).max(64);
                    self.copies.iter_mut().for_each(|copy| grow(copy, self.room));
                }
                self.slots.insert(block, slot);
                slot
            }
        };
        self.blocks[slot.index()] = (block, 0b11);
        for at in 0..2 {
            let from = self.with(at, |copy, moves| copy.reference(slot, moves)).from;
            self.misses[at] += u64::from(from.is_none());
        }
        self.references += 1;
        if self.references < self.most {
            return None;
        }
        let [out, last] = self.misses;
        (self.misses, self.references) = ([out - out / 8, last - last / 8], 0);
        Some(if last + out / GAIN < out { First::Last } else { First::Out })
    }

    /// Changes both copies alike.
    pub(crate) fn each(&mut self, change: impl Fn(&mut T, Scale, &mut Vec<Move>)) {
        let scale = self.scale;
        (0..2).for_each(|at| self.with(at, |copy, moves| change(copy, scale, moves)));
    }

    /// Calls copy number `at`, and frees the slots of blocks that none knows any more.
    fn with<R>(&mut self, at: usize, call: impl FnOnce(&mut T, &mut Vec<Move>) -> R) -> R {
        let mut moves = Vec::new();
        let result = call(&mut self.copies[at], &mut moves);
        for step in moves {
            let Move::Forget(slot) = step else { continue };
            let (block, known) = &mut self.blocks[slot.index()];
            *known &= !(1 << at);
            if *known == 0 {
                self.slots.remove(block);
                self.free.push(slot);
            }
        }
        result
    }
}
