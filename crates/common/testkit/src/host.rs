//! A host that maps blocks to slots, drives a policy, and asserts the contract at every step.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use nigh_policy::{Access, Block, Kind, Policy, Room, Setup, Slot, Spec, Stream, Tenant};

use crate::Outcome;
use crate::twins::build;

/// How slots are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// One permanent slot for each distinct block, as in a replay; any number of ghosts.
    Forever,
    /// As few slots as possible, each reused as soon as the policy forgets it, as in the engine.
    Reused {
        /// The limit of ghosts.
        ghosts: u32,
    },
}

impl Slots {
    /// The room of a host for `blocks` distinct blocks, of which `capacity` can be resident.
    pub fn room(self, capacity: u32, blocks: u32) -> Room {
        match self {
            Slots::Forever => Room { capacity, slots: blocks, ghosts: blocks },
            Slots::Reused { ghosts } => Room { capacity, slots: capacity + ghosts + 1, ghosts },
        }
    }
}

/// The upper half of a block's number is its volume.
fn named(block: u64) -> Block {
    Block { volume: (block >> 32) as u32, index: block & u64::from(u32::MAX) }
}

/// A policy, and the mapping of blocks to slots for it.
pub struct Host {
    policy: Box<dyn Policy + Send>,
    capacity: usize,
    ghosts_most: usize,
    /// The number of slots.
    slots: u32,
    /// Slots that hold no block.
    free: Vec<Slot>,
    slot_of: HashMap<u64, Slot>,
    block_of: HashMap<Slot, u64>,
    resident: BTreeSet<u64>,
    ghosts: BTreeSet<u64>,
    tick: u64,
    recycle: bool,
}

impl Host {
    /// A host for the policy `spec` (such as `lirs:hir=1%`) over `blocks` distinct blocks. The upper half of a block's
    /// number is its volume.
    ///
    /// # Panics
    /// If the policy cannot be created.
    pub fn new(spec: &str, capacity: u32, blocks: u32, slots: Slots, future: Option<Arc<[u32]>>) -> Host {
        Host::with_block_bytes(4096, spec, capacity, blocks, slots, future)
    }

    /// As [`new`](Host::new), for blocks of `block_bytes` instead of 4096.
    pub fn with_block_bytes(
        block_bytes: u32,
        spec: &str,
        capacity: u32,
        blocks: u32,
        slots: Slots,
        future: Option<Arc<[u32]>>,
    ) -> Host {
        let room = slots.room(capacity, blocks);
        let setup = Setup { capacity, slots: room.slots, block_bytes, ghosts: room.ghosts, future, patterns: None };
        let spec: Spec = spec.parse().unwrap_or_else(|error| panic!("{error}"));
        let policy = build(&spec, &setup).unwrap_or_else(|error| panic!("{error}"));
        Host::of(policy, room, slots)
    }

    /// A host for a new `policy` with this [`room`](Slots::room).
    pub fn of(policy: Box<dyn Policy + Send>, room: Room, slots: Slots) -> Host {
        Host {
            policy,
            capacity: room.capacity as usize,
            ghosts_most: room.ghosts as usize,
            slots: room.slots,
            free: (0..room.slots).rev().map(Slot).collect(),
            slot_of: HashMap::new(),
            block_of: HashMap::new(),
            resident: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            tick: 0,
            recycle: slots != Slots::Forever,
        }
    }

    /// The blocks that are resident.
    pub fn resident(&self) -> &BTreeSet<u64> {
        &self.resident
    }

    /// The blocks that the policy remembers without their contents.
    pub fn ghosts(&self) -> &BTreeSet<u64> {
        &self.ghosts
    }

    /// Reports the policy's gauges.
    pub fn gauges(&self) -> Vec<(&'static str, u64)> {
        let mut gauges = Vec::new();
        self.policy.gauges(&mut |name, value| gauges.push((name, value)));
        gauges
    }

    /// References `block`, with a replay's order of calls, and checks every invariant.
    pub fn access(&mut self, block: u64) -> Outcome {
        let outcome = self.access_unchecked(block);
        self.check();
        outcome
    }

    /// Checks every invariant.
    ///
    /// # Panics
    /// On a broken one.
    pub fn check(&self) {
        self.policy.check();
        assert!(self.resident.len() <= self.capacity, "more resident blocks than the cache holds");
    }

    /// As `access_unchecked`, for a reference by the code with the identity `code`.
    pub fn access_by(&mut self, code: u64, block: u64) -> Outcome {
        self.refer(code, block, Kind::Read)
    }

    /// As `access`, without the policy's own recount, which takes time in proportion to its cache.
    pub fn access_unchecked(&mut self, block: u64) -> Outcome {
        self.reference(block, Kind::Read)
    }

    /// As `access_unchecked`, for a reference of this kind.
    pub fn reference(&mut self, block: u64, kind: Kind) -> Outcome {
        self.refer(0, block, kind)
    }

    fn refer(&mut self, code: u64, block: u64, kind: Kind) -> Outcome {
        let access = Access { block: named(block), tenant: Tenant(0), stream: Stream(code), kind, tick: self.tick };
        self.tick += 1;
        let outcome = if self.resident.contains(&block) {
            self.policy.hit(self.slot_of[&block], &access);
            Outcome { hit: true, evicted: None }
        } else {
            Outcome { hit: false, evicted: self.load(block, &access) }
        };
        self.drain();
        self.check_ghosts();
        outcome
    }

    fn check_ghosts(&self) {
        assert!(
            self.ghosts.len() <= self.ghosts_most,
            "the policy remembers {} ghosts, the host has room for {}",
            self.ghosts.len(),
            self.ghosts_most
        );
    }

    /// Evicts a block without another one entering, and checks every invariant.
    pub fn shed(&mut self) -> u64 {
        let victim = self.policy.shed();
        let block = *self.block_of.get(&victim).expect("the victim has a block");
        assert!(self.resident.remove(&block), "the victim was not resident");
        self.ghosts.insert(block);
        self.drain();
        self.check_ghosts();
        self.policy.check();
        block
    }

    /// Sets the room to `capacity` blocks and, if slots are reused, `ghosts` ghosts; checks every invariant. While more
    /// blocks than that are resident, only [`shed`](Host::shed) and `resize` may follow.
    pub fn resize(&mut self, capacity: u32, ghosts: u32) {
        if self.recycle && self.slots < capacity + ghosts + 1 {
            let more = self.slots..capacity + ghosts + 1;
            self.slots = more.end;
            self.free.splice(0..0, more.rev().map(Slot));
        }
        (self.capacity, self.ghosts_most) = (capacity as usize, ghosts as usize);
        let resident = self.resident.clone();
        self.policy.resize(Room { capacity, slots: self.slots, ghosts });
        self.drain();
        assert_eq!(self.resident, resident, "no block leaves before the host asks for it");
        self.check_ghosts();
        self.policy.check();
    }

    /// Invalidates `block`, resident or ghost; does nothing if it is neither.
    pub fn remove(&mut self, block: u64) {
        if self.resident.remove(&block) || self.ghosts.remove(&block) {
            let slot = self.slot_of[&block];
            self.policy.remove(slot);
            self.release(slot);
            self.drain();
            self.policy.check();
        }
    }

    fn load(&mut self, block: u64, access: &Access) -> Option<u64> {
        let slot = match self.slot_of.get(&block) {
            Some(&slot) => slot,
            None => {
                let slot = self.free.pop().expect("ghosts within their limit leave a slot for the incoming block");
                self.slot_of.insert(block, slot);
                self.block_of.insert(slot, block);
                slot
            }
        };
        let mut evicted = None;
        if self.resident.len() == self.capacity {
            let ghost = self.ghosts.contains(&block);
            let victim = self.policy.evict(slot, access);
            assert_ne!(victim, Some(slot), "the incoming block is not resident yet and cannot leave");
            evicted = victim.map(|victim| {
                let evicted = *self.block_of.get(&victim).expect("the victim has a block");
                assert!(self.resident.remove(&evicted), "the victim was not resident");
                self.ghosts.insert(evicted);
                evicted
            });
            self.drain();
            let known = self.slot_of.contains_key(&block) && self.ghosts.contains(&block) == ghost;
            assert!(known, "the incoming block was forgotten before it was inserted or rejected");
            if victim.is_none() {
                if !ghost {
                    self.release(slot);
                }
                return None;
            }
        }
        self.policy.insert(slot, access);
        self.policy.go_on(access, &|slot| named(self.block_of[&slot]));
        self.ghosts.remove(&block);
        self.resident.insert(block);
        evicted
    }

    fn drain(&mut self) {
        while let Some(slot) = self.policy.take_forgotten() {
            let block = *self.block_of.get(&slot).expect("a forgotten slot had a block");
            assert!(self.ghosts.remove(&block), "a forgotten block was a ghost until now");
            self.release(slot);
        }
    }

    fn release(&mut self, slot: Slot) {
        if self.recycle {
            let block = self.block_of.remove(&slot).expect("a released slot had a block");
            self.slot_of.remove(&block);
            self.free.push(slot);
        }
    }
}

/// For each position of `blocks`, the next position of the same block, `u32::MAX` for never.
pub fn future(blocks: &[u64]) -> Arc<[u32]> {
    let mut next = vec![u32::MAX; blocks.len()];
    let mut seen = HashMap::new();
    for (at, block) in blocks.iter().enumerate().rev() {
        if let Some(later) = seen.insert(block, at as u32) {
            next[at] = later;
        }
    }
    next.into()
}
