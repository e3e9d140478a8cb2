//! FIFO: the block that was loaded longest ago leaves.

use crate::list::{Links, List};
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// First in, first out.
pub struct Fifo {
    links: Links,
    /// Resident slots, the one loaded last first.
    queue: List,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Configured for Fifo {
    const INFO: Info = Info {
        name: "fifo",
        summary: "evicts the block loaded longest ago",
        paper: "Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems Journal 1966",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Fifo, SpecError> {
        let (links, [queue]) = Links::new(setup.slots);
        Ok(Fifo { links, queue, forgotten: None })
    }
}

impl Fifo {
    /// Takes out the block that leaves next.
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = self.queue.pop_back(&mut self.links).expect("a block is resident");
        self.forgotten = Some(victim);
        victim
    }
}

impl Policy for Fifo {
    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.queue.push_front(&mut self.links, slot);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.queue]);
    }

    fn remove(&mut self, slot: Slot) {
        self.queue.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    fn check(&self) {
        self.queue.checked(&self.links);
    }
}
