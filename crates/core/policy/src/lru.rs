//! LRU: the block whose last reference is longest ago leaves.

use crate::list::{Links, List};
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// Least recently used.
pub struct Lru {
    links: Links,
    /// Resident slots, the most recently used first.
    stack: List,
    /// The victim that the host has not taken back yet.
    forgotten: Option<Slot>,
}

impl Configured for Lru {
    const INFO: Info = Info {
        name: "lru",
        summary: "evicts the least recently used block",
        paper: "Mattson et al., Evaluation Techniques for Storage Hierarchies, IBM Systems Journal 1970",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Lru, SpecError> {
        let (links, [stack]) = Links::new(setup.slots);
        Ok(Lru { links, stack, forgotten: None })
    }
}

impl Lru {
    /// Takes out the block that leaves next.
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = self.stack.pop_back(&mut self.links).expect("a block is resident");
        self.forgotten = Some(victim);
        victim
    }
}

impl Policy for Lru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.stack.move_to_front(&mut self.links, slot);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.stack.push_front(&mut self.links, slot);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.stack]);
    }

    fn remove(&mut self, slot: Slot) {
        self.stack.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        self.stack.checked(&self.links);
    }
}
