//! A shadow: a candidate with a miniature cache, which holds no contents.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::spec::{Setup, Spec, SpecError};
use crate::{Access, Block, Policy, Room, Slot, build, ghosts};

const NO_BLOCK: (Block, bool) = (Block { volume: 0, index: 0 }, false);

/// A policy, and the blocks that it knows.
pub(super) struct Shadow {
    policy: Box<dyn Policy + Send>,
    spec: Spec,
    slots: HashMap<Block, u32, RandomState>,
    /// By slot: the block, and whether it is resident.
    blocks: Vec<(Block, bool)>,
    free: Vec<u32>,
    resident: u32,
    room: Room,
    ghosts_most: u32,
}

impl Shadow {
    /// `spec` with a cache of `capacity` blocks, and `most` ghosts at most.
    pub(super) fn new(spec: &Spec, capacity: u32, most: u32, setup: &Setup) -> Result<Shadow, SpecError> {
        let room = Room { capacity, slots: capacity + 1, ghosts: ghosts(spec, capacity)?.min(most) };
        let policy = build(spec, &Setup { capacity, slots: room.slots, ghosts: room.ghosts, ..setup.clone() })?;
        let (blocks, free) = (vec![NO_BLOCK; room.slots as usize], (0..room.slots).rev().collect());
        Ok(Shadow {
            policy,
            spec: spec.clone(),
            slots: HashMap::default(),
            blocks,
            free,
            resident: 0,
            room,
            ghosts_most: most,
        })
    }

    /// A reference; whether it hits.
    pub(super) fn reference(&mut self, access: &Access) -> bool {
        let known = self.slots.get(&access.block).map(|&slot| Slot(slot));
        if let Some(slot) = known.filter(|slot| self.blocks[slot.index()].1) {
            self.policy.hit(slot, access);
            self.drain();
            return true;
        }
        let slot = known.unwrap_or_else(|| self.add(access.block));
        if self.resident == self.room.capacity {
            let victim = self.policy.evict(slot, access).expect("a policy of the registry keeps what comes in");
            self.left(victim);
            self.drain();
        }
        self.policy.insert(slot, access);
        self.blocks[slot.index()].1 = true;
        self.resident += 1;
        self.drain();
        false
    }

    /// From now on the cache has `capacity` blocks, and `most` ghosts at most.
    pub(super) fn resize(&mut self, capacity: u32, most: u32) {
        if (self.room.capacity, self.ghosts_most) == (capacity, most) {
            return;
        }
        self.ghosts_most = most;
        let ghosts = ghosts(&self.spec, capacity).expect("it was built").min(most);
        self.room = Room { capacity, ghosts, ..self.room };
        self.policy.resize(self.room);
        self.drain();
        while self.resident > capacity {
            let victim = self.policy.shed();
            self.left(victim);
            self.drain();
        }
    }

    /// Forgets the blocks that `keep` is false for.
    pub(super) fn retain(&mut self, keep: impl Fn(Block) -> bool) {
        let known = self.slots.iter().map(|(&block, &slot)| (block, slot));
        let mut gone: Vec<(Block, u32)> = known.filter(|&(block, _)| !keep(block)).collect();
        // In an order that does not depend on the table.
        gone.sort_unstable_by_key(|&(_, slot)| slot);
        for (block, slot) in gone {
            if self.slots.get(&block) != Some(&slot) {
                // A ghost that the policy forgot because of an earlier one.
                continue;
            }
            self.policy.remove(Slot(slot));
            self.resident -= u32::from(self.blocks[slot as usize].1);
            self.slots.remove(&block);
            self.free.push(slot);
            self.drain();
        }
    }

    fn left(&mut self, victim: Slot) {
        self.blocks[victim.index()].1 = false;
        self.resident -= 1;
    }

    /// A slot for a block that is not known.
    fn add(&mut self, block: Block) -> Slot {
        if self.free.is_empty() {
            let slots = self.room.slots + self.room.slots / 2 + 16;
            self.free.extend((self.room.slots..slots).rev());
            self.blocks.resize(slots as usize, NO_BLOCK);
            self.room.slots = slots;
            self.policy.resize(self.room);
        }
        let slot = self.free.pop().expect("there are more now");
        self.blocks[slot as usize] = (block, false);
        self.slots.insert(block, slot);
        Slot(slot)
    }

    /// Frees the slots of blocks that the policy no longer remembers.
    fn drain(&mut self) {
        while let Some(slot) = self.policy.take_forgotten() {
            self.slots.remove(&self.blocks[slot.index()].0);
            self.blocks[slot.index()].1 = false;
            self.free.push(slot.0);
        }
    }

    /// Panics on a broken invariant.
    pub(super) fn check(&self) {
        self.policy.check();
        assert_eq!(self.blocks.len(), self.slots.len() + self.free.len(), "a slot is lost");
        assert_eq!(self.resident as usize, self.slots.values().filter(|&&slot| self.blocks[slot as usize].1).count());
        assert!(self.resident <= self.room.capacity, "the shadow is too large");
    }
}
