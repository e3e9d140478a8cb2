//! Unified LRU, also called DEMOTE: one LRU stack, cut into the levels.
//!
//! T. M. Wong and J. Wilkes, "My cache or yours? Making storage more exclusive", USENIX 2002; as compared in S. Jiang,
//! dissertation, 2004, section 5.1.2 and figure 5.2: every referenced block enters at the top of the first level, and the block at
//! the bottom of a full level is demoted to the top of the next one.

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use crate::counts::Counts;
use crate::levels::{LEVELS_MAX, Level, Move, Retrieve, Tier};

/// One LRU stack over all levels. 12 bytes a slot.
pub struct UniLru {
    /// The level of each slot, one more than it is; 0 for none.
    links: Links<u8>,
    lists: [List; LEVELS_MAX],
    capacities: Vec<u32>,
    counts: Counts,
}

impl UniLru {
    /// Levels of `capacities` blocks, the first one first, and blocks in slots below `slots`.
    ///
    /// # Panics
    /// Without a level, with more than [`LEVELS_MAX`], or if one holds no block.
    pub fn new(slots: u32, capacities: &[u32]) -> UniLru {
        assert!((1..=LEVELS_MAX).contains(&capacities.len()) && !capacities.contains(&0), "levels hold blocks");
        let (links, lists) = Links::with_own(slots);
        UniLru { links, lists, capacities: capacities.to_vec(), counts: Counts::default() }
    }

    fn set(&mut self, slot: Slot, level: usize) {
        self.lists[level].push_front(&mut self.links, slot);
        *self.links.own_mut(slot) = level as u8 + 1;
    }
}

impl Tier for UniLru {
    fn reference(&mut self, slot: Slot, moves: &mut Vec<Move>) -> Retrieve {
        let from = self.level(slot);
        if let Some(from) = from {
            self.lists[usize::from(from)].unlink(&mut self.links, slot);
        }
        self.set(slot, 0);
        for level in 0..self.capacities.len() {
            if self.lists[level].len() <= self.capacities[level] {
                break;
            }
            let bottom = self.lists[level].pop_back(&mut self.links).expect("the level is too full");
            if level + 1 < self.capacities.len() {
                self.set(bottom, level + 1);
                self.counts.demoted(level as Level);
                moves.push(Move::Demote(bottom, level as Level));
            } else {
                *self.links.own_mut(bottom) = 0;
                moves.extend([Move::Drop(bottom, level as Level), Move::Forget(bottom)]);
            }
        }
        let retrieve = Retrieve { from, to: Some(0) };
        self.counts.count(retrieve);
        retrieve
    }

    fn remove(&mut self, slot: Slot, _: &mut Vec<Move>) {
        if let Some(level) = self.level(slot) {
            self.lists[usize::from(level)].unlink(&mut self.links, slot);
            *self.links.own_mut(slot) = 0;
        }
    }

    fn level(&self, slot: Slot) -> Option<Level> {
        self.links.own(slot).checked_sub(1)
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn restart(&mut self) {
        self.counts = Counts::default();
    }

    fn check(&self) {
        for (level, (list, &capacity)) in self.lists.iter().zip(&self.capacities).enumerate() {
            let slots = list.checked(&self.links);
            assert!(slots.len() <= capacity as usize, "level {level} holds too much");
            assert!(slots.iter().all(|&slot| usize::from(*self.links.own(slot)) == level + 1), "a slot is elsewhere");
        }
    }
}
