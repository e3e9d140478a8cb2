//! OPT: the block whose next reference is farthest in the future leaves.
//!
//! Of the blocks that are never referenced again, the least recently used leaves: the paper leaves this tie open, and
//! no choice changes the number of hits. The block being loaded always enters, even if it is never referenced again.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// In `Setup::future` and `Opt::next`: never.
const NEVER: u32 = u32::MAX;

/// Belady's MIN, Mattson's OPT.
pub struct Opt {
    /// By tick, the tick of the next reference to the same block.
    future: Arc<[u32]>,
    /// By slot, the tick of the next reference; `NEVER` also for slots that are not resident.
    next: Vec<u32>,
    /// (next reference, slot) of every resident slot that is referenced again, and stale entries: those whose tick is
    /// no longer the slot's `next`. A hit leaves a stale entry below all others, because its tick is now.
    upcoming: BinaryHeap<(u32, u32)>,
    /// The number of entries that `upcoming` has room for: twice as many as can be valid, so that sweeping costs O(1) a
    /// reference.
    entries_most: usize,
    links: Links,
    /// Resident slots that are never referenced again, the most recently used first.
    never: List,
    forgotten: Option<Slot>,
}

impl Opt {
    /// Takes out the block referenced farthest in the future.
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = match self.never.pop_back(&mut self.links) {
            Some(victim) => victim,
            None => self.farthest(),
        };
        self.forgotten = Some(victim);
        victim
    }

    fn enter(&mut self, slot: Slot, access: &Access) {
        let next = self.future[access.tick as usize];
        self.next[slot.index()] = next;
        if next == NEVER {
            self.never.push_front(&mut self.links, slot);
            return;
        }
        if self.upcoming.len() >= self.entries_most {
            self.sweep();
        }
        self.upcoming.push((next, slot.0));
    }

    fn leave(&mut self, slot: Slot) {
        if self.next[slot.index()] == NEVER {
            self.never.unlink(&mut self.links, slot);
        }
        self.next[slot.index()] = NEVER;
    }

    /// Removes the stale entries.
    fn sweep(&mut self) {
        let valid = &self.next;
        self.upcoming.retain(|&(next, slot)| valid[slot as usize] == next);
    }

    fn farthest(&mut self) -> Slot {
        loop {
            let (next, slot) = self.upcoming.pop().expect("a block is resident");
            if self.next[slot as usize] == next {
                self.next[slot as usize] = NEVER;
                return Slot(slot);
            }
        }
    }
}

impl Configured for Opt {
    const INFO: Info = Info {
        name: "opt",
        summary: "evicts the block referenced farthest in the future: no policy can have more hits",
        paper: "Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems Journal 1966; \
                Mattson et al., Evaluation Techniques for Storage Hierarchies, IBM Systems Journal 1970",
        params: &[],
        offline: true,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Opt, SpecError> {
        let future = setup.future.clone().ok_or(SpecError::NeedsFuture { policy: Opt::INFO.name })?;
        let entries_most = 2 * setup.capacity.min(setup.slots) as usize;
        let (links, [never]) = Links::new(setup.slots);
        Ok(Opt {
            future,
            next: vec![NEVER; setup.slots as usize],
            upcoming: BinaryHeap::with_capacity(entries_most),
            entries_most,
            links,
            never,
            forgotten: None,
        })
    }
}

impl Policy for Opt {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.leave(slot);
        self.enter(slot, access);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.enter(slot, access);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.never]);
        self.next.resize(room.slots as usize, NEVER);
        self.entries_most = 2 * room.capacity.min(room.slots) as usize;
        if self.upcoming.len() > self.entries_most {
            self.sweep();
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.leave(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.next, slot.index());
    }

    fn check(&self) {
        for slot in self.never.checked(&self.links) {
            assert_eq!(self.next[slot.index()], NEVER, "{slot:?} is referenced again");
        }
        let mut valid: Vec<u32> =
            self.upcoming.iter().filter(|e| self.next[e.1 as usize] == e.0).map(|e| e.1).collect();
        let entries = valid.len();
        valid.sort_unstable();
        valid.dedup();
        assert_eq!(valid.len(), entries, "a slot has two valid entries");
        let referenced_again = self.next.iter().filter(|&&next| next != NEVER).count();
        assert_eq!(entries, referenced_again, "a slot that is referenced again has no entry");
        assert!(self.upcoming.len() <= self.entries_most.max(entries), "stale entries were not swept");
    }
}
