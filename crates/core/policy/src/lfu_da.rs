//! LFU with dynamic aging: the block with the least key leaves; a block's key is its references since it was loaded, and the key
//! of the last block that had left before its last reference.
//!
//! All blocks have the same cost and size, so the key is K = F + L (LFU-DA of GreedyDual-Size with Frequency). Of equal keys, the least
//! recently used block leaves. A block that leaves although none comes in does not change L.

use crate::heap::Heap;
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// LFU with dynamic aging.
pub struct LfuDa {
    /// Resident slots by key and last reference.
    order: Heap<(u64, u64)>,
    /// F of each resident slot.
    references: Vec<u64>,
    /// L: the key of the block evicted last.
    age: u64,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl LfuDa {
    /// Takes out the block that leaves next, and returns it with its key.
    fn pop(&mut self) -> (Slot, u64) {
        let ((key, _), victim) = self.order.least().expect("a block is resident");
        self.order.remove(victim);
        self.forgotten = Some(victim);
        (victim, key)
    }
}

impl Configured for LfuDa {
    const INFO: Info = Info {
        name: "lfu-da",
        summary: "LFU, but blocks that are no longer referenced age with those that leave",
        paper: "Arlitt, Cherkasova, Dilley, Friedrich, Jin, Evaluating Content Management Techniques for Web Proxy Caches, \
                Performance Evaluation Review 2000",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<LfuDa, SpecError> {
        Ok(LfuDa {
            order: Heap::new(setup.slots, setup.capacity.min(setup.slots)),
            references: vec![0; setup.slots as usize],
            age: 0,
            forgotten: None,
        })
    }
}

impl Policy for LfuDa {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let references = &mut self.references[slot.index()];
        *references += 1;
        let key = (*references + self.age, access.tick);
        self.order.remove(slot);
        self.order.push(slot, key);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        let (victim, key) = self.pop();
        self.age = key;
        Some(victim)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.references[slot.index()] = 1;
        self.order.push(slot, (1 + self.age, access.tick));
    }

    fn shed(&mut self) -> Slot {
        self.pop().0
    }

    fn resize(&mut self, room: Room) {
        self.order.grow(room.slots);
        self.references.resize(room.slots as usize, 0);
    }

    fn remove(&mut self, slot: Slot) {
        self.order.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.references, slot.index());
    }

    fn check(&self) {
        for ((key, _), slot) in self.order.checked() {
            assert!(key > 0 && key <= self.references[slot.index()] + self.age, "{slot:?} has an impossible key");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("age", self.age);
    }
}
