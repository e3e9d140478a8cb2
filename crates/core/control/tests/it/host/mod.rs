//! A host for tests: blocks of tenants, slots used again, every invariant checked after every step.

use std::collections::HashMap;

use nigh_control::{Chunk, Config, Directive, Index, LruSp, Order, Refusal};
use nigh_policy::{Access, Block, Kind, Policy, Room, Setup, Slot, Stream, Tenant};
use nigh_testkit::Outcome;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// Blocks of a file.
pub(crate) const FILE: u64 = 8;
/// Blocks of a tenant that `block` numbers.
pub(crate) const OWN: u64 = 1000;

/// A block by one number: tenants have `OWN` blocks each, files `FILE` of these. The same file has the same number.
pub(crate) fn block(number: u64) -> Block {
    Block { volume: file_of(number), index: number % FILE }
}

pub(crate) fn file_of(number: u64) -> u32 {
    (number / FILE) as u32
}

pub(crate) fn number(block: Block) -> u64 {
    u64::from(block.volume) * FILE + block.index
}

#[derive(Default)]
pub(crate) struct Blocks {
    slots: HashMap<Block, Slot>,
    blocks: HashMap<Slot, Block>,
    pub(crate) resident: HashMap<Block, Slot>,
    /// Files whose number is odd lie on a second device.
    pub(crate) two_devices: bool,
}

impl Index for Blocks {
    fn resident(&self, block: Block) -> Option<Slot> {
        self.resident.get(&block).copied()
    }

    fn block(&self, slot: Slot) -> Block {
        self.blocks[&slot]
    }

    fn file_bytes(&self, _file: u32) -> Option<u64> {
        Some(FILE)
    }

    fn device(&self, file: u32) -> u32 {
        if self.two_devices { file % 2 } else { 0 }
    }
}

pub(crate) struct Host {
    pub(crate) control: LruSp,
    pub(crate) blocks: Blocks,
    free: Vec<Slot>,
    slots: u32,
    capacity: usize,
    ghosts: usize,
    tick: u64,
    pub(crate) checked: bool,
    /// Whether directives are applied at once; otherwise `step` does it.
    pub(crate) prompt: bool,
}

impl Host {
    pub(crate) fn new(capacity: u32, ghosts: u32, config: Config) -> Host {
        let slots = capacity + ghosts + 1;
        let control =
            LruSp::new(&Setup { capacity, slots, ghosts, block_bytes: 1, future: None, patterns: None }, config);
        let free = (0..slots).map(Slot).collect();
        Host {
            control,
            blocks: Blocks::default(),
            free,
            slots,
            capacity: capacity as usize,
            ghosts: ghosts as usize,
            tick: 0,
            checked: true,
            prompt: true,
        }
    }

    pub(crate) fn apply(&mut self, tenant: u32, directive: Directive) -> Result<(), Refusal> {
        let done = self.control.apply(Tenant(tenant), &directive, &self.blocks);
        self.settle();
        done
    }

    pub(crate) fn extend(&mut self, tenant: u32, chunk: Chunk) -> Result<(), Refusal> {
        let done = self.control.extend(Tenant(tenant), &chunk, &self.blocks);
        self.settle();
        done
    }

    /// Tenant `tenant` is gone.
    pub(crate) fn close(&mut self, tenant: u32) {
        self.control.close(Tenant(tenant));
        self.settle();
    }

    /// Forgets the tenant's directives for the files that are `gone`.
    pub(crate) fn forget_files(&mut self, tenant: u32, gone: &dyn Fn(u32) -> bool) {
        self.control.forget_files(Tenant(tenant), gone, &self.blocks);
        self.settle();
    }

    pub(crate) fn set_bounds(&mut self, tenant: u32, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        let done = self.control.set_bounds(Tenant(tenant), floor, ceiling);
        self.settle();
        done
    }

    /// The policy of tenants without one of their own.
    pub(crate) fn set_policy(&mut self, policy: Order) -> Result<(), Refusal> {
        let done = self.control.set_policy(policy);
        self.settle();
        done
    }

    /// The policy of `tenant`.
    pub(crate) fn set_policy_of(&mut self, tenant: u32, policy: Option<Order>) -> Result<(), Refusal> {
        let done = self.control.set_policy_of(Tenant(tenant), policy);
        self.settle();
        done
    }

    /// A part of what is left to be done, as long as a block is looked at at most `most` times.
    pub(crate) fn step(&mut self, most: u32) -> bool {
        let more = self.control.step(most, &self.blocks);
        self.check();
        more
    }

    fn settle(&mut self) {
        while self.prompt && self.control.step(1000, &self.blocks) {}
        self.check();
    }

    /// One block less, which the policy chooses. Gives its number.
    pub(crate) fn shed(&mut self) -> u64 {
        self.drain();
        let victim = self.control.shed();
        let shed = self.blocks.blocks[&victim];
        assert!(self.blocks.resident.remove(&shed).is_some(), "the victim was not resident");
        self.check();
        number(shed)
    }

    /// As many blocks less, as far as there are any.
    pub(crate) fn shed_some(&mut self, count: usize) -> Vec<u64> {
        (0..count.min(self.blocks.resident.len())).map(|_| self.shed()).collect()
    }

    /// Changes the room, and sheds what is too much. Gives the numbers of that.
    pub(crate) fn resize(&mut self, capacity: u32, ghosts: u32) -> Vec<u64> {
        self.drain();
        let more = (capacity + ghosts + 1).saturating_sub(self.slots);
        self.free.extend((self.slots..self.slots + more).map(Slot));
        self.slots += more;
        self.capacity = capacity as usize;
        self.ghosts = ghosts as usize;
        self.control.resize(Room { capacity, slots: self.slots, ghosts });
        self.drain();
        let mut shed = Vec::new();
        while self.blocks.resident.len() > self.capacity {
            shed.push(self.shed());
        }
        self.check();
        shed
    }

    pub(crate) fn is_resident(&self, block: Block) -> bool {
        self.blocks.resident.contains_key(&block)
    }

    pub(crate) fn access(&mut self, tenant: u32, block: Block) -> Outcome {
        self.reference(tenant, block, Kind::Read)
    }

    pub(crate) fn reference(&mut self, tenant: u32, block: Block, kind: Kind) -> Outcome {
        let access = Access { block, tenant: Tenant(tenant), stream: Stream(0), kind, tick: self.tick };
        self.tick += 1;
        if let Some(&slot) = self.blocks.resident.get(&block) {
            self.control.hit(slot, &access);
            self.settle();
            return Outcome { hit: true, evicted: None };
        }
        self.drain();
        let slot = match self.blocks.slots.get(&block) {
            Some(&slot) => slot,
            None => {
                let slot = self.free.pop().expect("ghosts within their limit leave a slot for the incoming block");
                self.blocks.slots.insert(block, slot);
                self.blocks.blocks.insert(slot, block);
                slot
            }
        };
        let evicted = (self.blocks.resident.len() == self.capacity).then(|| {
            let victim = self.control.evict(slot, &access).expect("it keeps what comes in");
            assert_ne!(victim, slot);
            let evicted = self.blocks.blocks[&victim];
            assert!(self.blocks.resident.remove(&evicted).is_some(), "the victim was not resident");
            self.drain();
            assert!(self.blocks.slots.contains_key(&block), "the incoming block was forgotten");
            number(evicted)
        });
        self.control.insert(slot, &access);
        self.blocks.resident.insert(block, slot);
        self.settle();
        Outcome { hit: false, evicted }
    }

    /// Invalidates `block`, resident or ghost.
    pub(crate) fn remove(&mut self, block: Block) {
        self.drain();
        if let Some(&slot) = self.blocks.slots.get(&block) {
            self.control.remove(slot);
            self.blocks.resident.remove(&block);
            self.release(slot);
            self.check();
        }
    }

    fn release(&mut self, slot: Slot) {
        let block = self.blocks.blocks.remove(&slot).expect("a released slot had a block");
        self.blocks.slots.remove(&block);
        self.free.push(slot);
    }

    fn drain(&mut self) {
        while let Some(slot) = self.control.take_forgotten() {
            assert!(!self.blocks.resident.contains_key(&self.blocks.blocks[&slot]), "a resident block was forgotten");
            self.release(slot);
        }
    }

    /// Blocks known, resident or ghosts.
    pub(crate) fn known(&mut self) -> usize {
        self.drain();
        self.blocks.slots.len()
    }

    pub(crate) fn check(&mut self) {
        if self.checked {
            self.drain();
            self.control.check();
            let ghosts = self.blocks.slots.len() - self.blocks.resident.len();
            assert!(ghosts <= self.ghosts, "{ghosts} ghosts, there is room for {}", self.ghosts);
        }
    }
}

pub(crate) fn random(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// `length` references of `tenants` tenants, each with its own random mix of patterns over `blocks` blocks of its own.
/// Every reference is a tenant and a number for [`block`].
pub(crate) fn references(seed: u64, tenants: u32, blocks: u64, length: usize) -> Vec<(u32, u64)> {
    let mut random = random(seed);
    let mut own: Vec<_> = (0..tenants)
        .map(|tenant| nigh_testkit::workload::mixed(seed * 31 + u64::from(tenant), blocks, length).into_iter())
        .collect();
    let mut references = Vec::with_capacity(length);
    while references.len() < length {
        let tenant = random.random_range(0..tenants);
        for _ in 0..random.random_range(1..=6) {
            let block = own[tenant as usize].next().expect("as many references as all together");
            references.push((tenant, u64::from(tenant) * OWN + block));
            if references.len() == length {
                break;
            }
        }
    }
    references
}
