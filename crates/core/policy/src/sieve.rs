//! SIEVE: FIFO with a hand that moves from the oldest block to the newest and evicts the first one not visited since
//! the hand last passed. Unlike in CLOCK, blocks that stay keep their places, and new ones enter at the head, not at
//! the hand.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// SIEVE.
pub struct Sieve {
    links: Links,
    /// Resident slots, the one loaded last (the paper's head) first.
    queue: List,
    /// Slot at which the search for a victim continues; the tail if `None`.
    hand: Option<Slot>,
    /// Whether a slot was hit since the hand passed it; clear for slots that are not resident.
    visited: Vec<bool>,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Sieve {
    /// Moves the hand to a block that was not visited, and takes that block out.
    #[inline]
    fn sweep(&mut self) -> Slot {
        let mut at = self.hand;
        let victim = loop {
            let slot = at.or_else(|| self.queue.back(&self.links)).expect("a block is resident");
            if !std::mem::take(&mut self.visited[slot.index()]) {
                break slot;
            }
            at = self.queue.before(&self.links, slot);
        };
        self.unlink(victim);
        self.forgotten = Some(victim);
        victim
    }

    /// Takes `slot` out; if the hand is there, it moves on: "p ← o.prev".
    #[inline]
    fn unlink(&mut self, slot: Slot) {
        self.hand = self.queue.before(&self.links, slot);
        self.queue.unlink(&mut self.links, slot);
    }
}

impl Configured for Sieve {
    const INFO: Info = Info {
        name: "sieve",
        summary: "moves a hand from old blocks to new ones and evicts the first one not hit since the hand last passed",
        paper: "Zhang, Yang, Yue, Vigfusson, Rashmi, SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction \
                Algorithm for Web Caches, NSDI 2024",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Sieve, SpecError> {
        let (links, [queue]) = Links::new(setup.slots);
        Ok(Sieve { links, queue, hand: None, visited: vec![false; setup.slots as usize], forgotten: None })
    }
}

impl Policy for Sieve {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.visited[slot.index()] = true;
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.sweep())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.queue.push_front(&mut self.links, slot);
    }

    fn shed(&mut self) -> Slot {
        self.sweep()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.queue]);
        self.visited.resize(room.slots as usize, false);
    }

    fn remove(&mut self, slot: Slot) {
        self.visited[slot.index()] = false;
        if self.hand == Some(slot) {
            self.unlink(slot);
        } else {
            self.queue.unlink(&mut self.links, slot);
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.visited, slot.index());
    }

    fn check(&self) {
        let resident = self.queue.checked(&self.links);
        assert!(self.hand.is_none_or(|hand| resident.contains(&hand)), "the hand points at no resident block");
        let set = resident.iter().filter(|slot| self.visited[slot.index()]).count();
        let all = self.visited.iter().filter(|&&bit| bit).count();
        assert_eq!(set, all, "a block that is not resident has its visited bit set");
    }
}
