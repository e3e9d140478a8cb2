//! One policy takes over from another while both are in use.
//!
//! A failure prints the policies, the seed and the sizes that replay it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nigh_policy::{Access, Block, Kind, Policy, Promises, Room, Setup, Slot, Spec, Stream, Succession, Tenant, build};

pub(crate) const BLOCKS: u64 = 60;
const POLICIES: [&str; 10] = ["lru", "fifo", "clock", "lfu", "2q", "arc", "lirs", "s3-fifo", "sieve", "w-tinylfu"];

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Uses slots again as soon as they are forgotten, as the engine does, and sees to the contract at every step.
pub(crate) struct Host {
    pub(crate) policy: Promises,
    pub(crate) room: Room,
    slots: HashMap<u64, Slot>,
    blocks: HashMap<Slot, u64>,
    pub(crate) resident: Vec<u64>,
    free: Vec<Slot>,
    pub(crate) ghosts_most: usize,
    tick: u64,
}

fn made(spec: &str, room: Room) -> Box<dyn Policy + Send> {
    let spec: Spec = spec.parse().expect("registered");
    let Room { capacity, slots, ghosts } = room;
    build(&spec, &Setup { capacity, slots, block_bytes: 4096, ghosts, future: None, patterns: None }).expect("possible")
}

fn access(block: u64, kind: Kind, tick: u64) -> Access {
    let block = Block { volume: 0, index: block };
    Access { block, tenant: Tenant(0), stream: Stream(0), kind, tick }
}

impl Host {
    pub(crate) fn new(spec: &str, capacity: u32, ghosts: u32) -> Host {
        // Twice: the next one may remember as much again.
        let slots = 2 * (capacity + ghosts) + 64;
        let room = Room { capacity, slots, ghosts };
        Host {
            policy: Promises::new(Succession::new(made(spec, room), room), room, true),
            room,
            slots: HashMap::new(),
            blocks: HashMap::new(),
            resident: Vec::new(),
            free: (0..slots).rev().map(Slot).collect(),
            ghosts_most: ghosts as usize,
            tick: 0,
        }
    }

    /// Takes back the slots that are forgotten; `but` is not among them.
    fn take_back(&mut self, but: Option<Slot>) {
        while let Some(slot) = self.policy.take_forgotten() {
            assert_ne!(Some(slot), but, "the incoming block is not forgotten");
            let block = self.blocks.remove(&slot).expect("a slot is forgotten once");
            assert!(!self.resident.contains(&block), "a resident block is not forgotten");
            self.slots.remove(&block);
            self.free.push(slot);
        }
    }

    pub(crate) fn settle(&mut self) {
        self.take_back(None);
        assert!(self.resident.len() <= self.room.capacity as usize);
        assert!(self.slots.len() - self.resident.len() <= self.ghosts_most, "more ghosts than there is room for");
        self.policy.check();
    }

    fn leave(&mut self, victim: Slot) {
        let block = self.blocks[&victim];
        let at = self.resident.iter().position(|&other| other == block).expect("the victim is resident");
        self.resident.swap_remove(at);
    }

    pub(crate) fn reference(&mut self, block: u64) -> bool {
        self.access(block, Kind::Read)
    }

    /// Does nothing if the block is there.
    pub(crate) fn prefetch(&mut self, block: u64) {
        if !self.resident.contains(&block) {
            self.access(block, Kind::Prefetch);
        }
    }

    fn access(&mut self, block: u64, kind: Kind) -> bool {
        self.tick += 1;
        let access = access(block, kind, self.tick);
        if self.resident.contains(&block) {
            self.policy.hit(self.slots[&block], &access);
            self.settle();
            return true;
        }
        let slot = *self.slots.entry(block).or_insert_with(|| self.free.pop().expect("a free slot"));
        self.blocks.insert(slot, block);
        if self.resident.len() == self.room.capacity as usize {
            let victim = self.policy.evict(slot, &access).expect("policies of the registry keep what comes in");
            self.leave(victim);
            self.take_back(Some(slot));
        }
        self.policy.insert(slot, &access);
        self.resident.push(block);
        self.settle();
        false
    }

    pub(crate) fn remove(&mut self, block: u64) {
        let Some(slot) = self.slots.remove(&block) else { return };
        self.resident.retain(|&other| other != block);
        self.blocks.remove(&slot);
        self.policy.remove(slot);
        self.free.push(slot);
        self.settle();
    }

    pub(crate) fn resize(&mut self, capacity: u32) {
        self.room.capacity = capacity;
        self.policy.resize(self.room);
        while self.resident.len() > capacity as usize {
            self.take_back(None);
            let victim = self.policy.shed();
            self.leave(victim);
        }
        self.settle();
    }

    pub(crate) fn step(&mut self, most: u32) -> bool {
        let (blocks, tick) = (&self.blocks, &mut self.tick);
        let more = self.policy.policy_mut().step(most, &mut |slot| {
            *tick += 1;
            access(blocks[&slot], Kind::Read, *tick)
        });
        self.settle();
        more
    }

    pub(crate) fn succeed(&mut self, spec: &str, ghosts: u32) {
        self.ghosts_most = self.ghosts_most.max(ghosts as usize);
        self.room.ghosts = ghosts;
        self.policy.succeed(made(spec, self.room), self.room);
    }
}

#[test]
fn any_policy_after_any_other() {
    for (seed, (before, after)) in (1..).zip(POLICIES.iter().flat_map(|one| POLICIES.map(|other| (*one, other)))) {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut random = Random(seed);
            let capacity = [1, 2, 7, 20, 45][random.below(5) as usize];
            let ghosts = [0, capacity / 2, capacity, 2 * capacity][random.below(4) as usize];
            let mut host = Host::new(before, capacity, ghosts);
            for policy in [after, before, after, after] {
                for _ in 0..random.below(300) {
                    host.reference(random.below(BLOCKS).min(random.below(BLOCKS)));
                }
                let resident = host.resident.len();
                host.succeed(policy, random.below(u64::from(ghosts) + 1) as u32);
                assert_eq!(host.resident.len(), resident);
                let most = 1 + random.below(5) as u32;
                for _ in 0..2000 {
                    match random.below(12) {
                        0..=2 => {
                            if !host.step(most) {
                                break;
                            }
                        }
                        3 => host.remove(random.below(BLOCKS)),
                        4 => host.resize(1 + random.below(u64::from(capacity)) as u32),
                        _ => _ = host.reference(random.below(BLOCKS)),
                    }
                }
                while host.step(most) {}
                assert!(host.policy.policy_mut().take_retired().is_some());
                host.ghosts_most = host.room.ghosts as usize;
                host.settle();
                host.resize(capacity);
            }
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("{after} after {before}, seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// With nothing in between, the order is that of the one before, and so are the next victims.
#[test]
fn order_changes_over() {
    let mut host = Host::new("lru", 20, 20);
    for block in (0..20).chain(3..9).chain([0, 30, 31]) {
        host.reference(block);
    }
    host.succeed("fifo", 0);
    while host.step(3) {}
    let order: Vec<Slot> = (0..20).map(|_| host.policy.shed()).collect();
    let order: Vec<u64> = order.iter().map(|slot| host.blocks[slot]).collect();
    assert_eq!(order, [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 3, 4, 5, 6, 7, 8, 0, 30, 31]);
}

/// A block that is hit while the policies change over belongs to the new one at once, and victims are the old one's.
#[test]
fn what_is_used_changes_over_at_once() {
    let mut host = Host::new("lru", 4, 4);
    for block in 0..4 {
        host.reference(block);
    }
    host.succeed("lru", 4);
    assert!(host.reference(0));
    for block in 10..13 {
        assert!(!host.reference(block));
    }
    let mut resident = host.resident.clone();
    resident.sort_unstable();
    assert_eq!(resident, [0, 10, 11, 12]);
    assert!(!host.step(1) && !host.policy.policy().is_pending());
    host.reference(13);
    assert!(!host.resident.contains(&0), "it is the oldest of the new one");
}

/// Counts the calls.
struct Counting {
    policy: Box<dyn Policy + Send>,
    calls: Arc<AtomicU32>,
}

impl Counting {
    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Policy for Counting {
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.count();
        self.policy.hit(slot, access);
    }

    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.count();
        self.policy.evict(incoming, access)
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.count();
        self.policy.insert(slot, access);
    }

    fn shed(&mut self) -> Slot {
        self.count();
        self.policy.shed()
    }

    fn resize(&mut self, room: Room) {
        self.count();
        self.policy.resize(room);
    }

    fn remove(&mut self, slot: Slot) {
        self.count();
        self.policy.remove(slot);
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        self.policy.take_forgotten()
    }

    fn check(&self) {
        self.policy.check();
    }
}

/// No call passes a policy more than a few blocks: `succeed` none, `step` as many as its argument.
#[test]
fn no_call_moves_more_than_it_may() {
    const CAPACITY: u32 = 10_000;
    for (before, after) in [("lru", "lirs"), ("lirs", "lru"), ("arc", "2q"), ("2q", "arc")] {
        let calls = Arc::new(AtomicU32::new(0));
        let counting = |spec: &str, room: Room| {
            let (policy, calls) = (made(spec, room), calls.clone());
            Box::new(Counting { policy, calls })
        };
        let counted = || calls.swap(0, Ordering::Relaxed);
        let room = Room { capacity: CAPACITY, slots: 3 * CAPACITY, ghosts: CAPACITY };
        let mut policy = Succession::new(counting(before, room), room);
        let mut tick = 0;
        let mut free: Vec<Slot> = (0..room.slots).rev().map(Slot).collect();
        for at in 0..2 * CAPACITY {
            tick += 1;
            let slot = free.pop().expect("a free slot");
            if at >= CAPACITY {
                policy.evict(slot, &access(at.into(), Kind::Read, tick));
                free.extend(std::iter::from_fn(|| policy.take_forgotten()));
            }
            policy.insert(slot, &access(at.into(), Kind::Read, tick));
        }
        counted();
        policy.succeed(counting(after, room), room);
        assert_eq!(counted(), 0);
        let mut steps = 0;
        while policy.step(100, &mut |slot| access(slot.0.into(), Kind::Read, tick)) {
            // A block is shed, removed and inserted.
            let calls = counted();
            assert!(calls <= 300, "{calls} calls in a step from {before} to {after}");
            while policy.take_forgotten().is_some() {}
            steps += 1;
        }
        assert!((99..=250).contains(&steps), "{steps} steps from {before} to {after}");
    }
}
