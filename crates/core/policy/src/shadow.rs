//! Miniature simulations (Waldspurger et al., ATC 2017): which blocks are sampled, and a policy with a small cache, which holds no contents.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::sample::hash;
use crate::spec::{Setup, Spec, SpecError};
use crate::{Access, Block, Kind, Policy, Room, Slot, Stream, Tenant, build, ghosts};

/// Blocks in an extent are sampled together: 2^5.
const EXTENT_BITS: u32 = 5;

/// With extents, shadows have 2^2 times as many blocks.
const EXTENT_MORE_BITS: u32 = 2;

/// Which blocks are sampled: those of which the last bits of the hash are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) bits: u32,
    /// Blocks that a shadow has at least, if the cache has this many.
    least: u32,
    pub(crate) extents: bool,
}

impl Sample {
    /// For a cache of `capacity` blocks.
    pub(crate) fn new(capacity: u32, least: u32, extents: bool) -> Sample {
        let least = if extents { least << EXTENT_MORE_BITS } else { least };
        Sample { bits: (capacity / least).checked_ilog2().unwrap_or(0), least, extents }
    }

    /// For a cache of `capacity` blocks from now on. A shadow may become a quarter smaller and a half larger than when it began before the share changes.
    pub(crate) fn resize(self, capacity: u32) -> Sample {
        let size = u64::from(self.of(capacity));
        let least = u64::from(self.least);
        let fits = size < 3 * least && (4 * size >= 3 * least || self.bits == 0);
        let bits = (capacity / self.least).checked_ilog2().unwrap_or(0);
        if fits { self } else { Sample { bits, ..self } }
    }

    /// Whether `block` is sampled. The lower half of the hash decides: in a sample by the upper half (`--sample`), the share is the same.
    #[inline(always)]
    pub(crate) fn takes(self, block: Block) -> bool {
        self.hash(block).trailing_zeros() >= self.bits
    }

    /// Blocks of an extent have the same one if extents are sampled.
    #[inline(always)]
    pub(crate) fn hash(self, block: Block) -> u64 {
        hash(if self.extents { Block { index: block.index >> EXTENT_BITS, ..block } } else { block })
    }

    pub(crate) fn of(self, count: u32) -> u32 {
        count >> self.bits
    }

    /// As `least` in `new`.
    pub(crate) fn least(self) -> u32 {
        if self.extents { self.least >> EXTENT_MORE_BITS } else { self.least }
    }
}

const NO_BLOCK: (Block, bool) = (Block { volume: 0, index: 0 }, false);

/// A policy, and the blocks that it knows.
pub(crate) struct Shadow {
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
    pub(crate) fn new(spec: &Spec, capacity: u32, most: u32, setup: &Setup) -> Result<Shadow, SpecError> {
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
    pub(crate) fn reference(&mut self, access: &Access) -> bool {
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
    pub(crate) fn resize(&mut self, capacity: u32, most: u32) {
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

    /// From now on `spec` decides. It gets the blocks in the order in which the present policy would evict them, and `most` ghosts at most.
    pub(crate) fn succeed(&mut self, spec: &Spec, most: u32, setup: &Setup) -> Result<(), SpecError> {
        let mut next = Shadow::new(spec, self.room.capacity, most, setup)?;
        for tick in 0..u64::from(self.resident) {
            let victim = self.policy.shed();
            let block = self.blocks[victim.index()].0;
            self.left(victim);
            self.drain();
            next.reference(&Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick });
        }
        *self = next;
        Ok(())
    }

    /// The policy.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether it has as many blocks as it can have.
    pub(crate) fn is_full(&self) -> bool {
        self.resident == self.room.capacity
    }

    /// Blocks that it can have.
    pub(crate) fn capacity(&self) -> u32 {
        self.room.capacity
    }

    /// Blocks and ghosts that its arrays have room for.
    pub(crate) fn slots(&self) -> u32 {
        self.room.slots
    }

    /// Forgets the blocks that `keep` is false for.
    pub(crate) fn retain(&mut self, keep: impl Fn(Block) -> bool) {
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
    pub(crate) fn check(&self) {
        self.policy.check();
        assert_eq!(self.blocks.len(), self.slots.len() + self.free.len(), "a slot is lost");
        assert_eq!(self.resident as usize, self.slots.values().filter(|&&slot| self.blocks[slot as usize].1).count());
        assert!(self.resident <= self.room.capacity, "the shadow is too large");
    }
}
