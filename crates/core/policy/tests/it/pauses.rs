//! Most steps of a reference, on average over a long run: they do not grow with the cache.
//!
//! The bounds are processor times, far above what a run of constant steps takes and far below one whose steps grow with
//! the cache.

use nigh_policy::{Access, Block, Kind, Policy, Room, Setup, Slot, Stream, Tenant, build, registry};
use nigh_testkit::replay::replay;
use rustix::time::{ClockId, clock_gettime};

const CAPACITY: u32 = 40_000;
const LARGE: u32 = 200_000;
const CPU_S_MOST: f64 = 2.0;

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Replays `references` with room for `ghosts` ghosts.
fn run(spec: &str, capacity: u32, ghosts: u32, references: impl Iterator<Item = u32>) {
    let setup = Setup { capacity, slots: 8 * capacity, block_bytes: 4096, ghosts, future: None, patterns: None };
    let start = cpu_s();
    replay(spec, &setup, references);
    let took = cpu_s() - start;
    println!("{spec}, {ghosts} ghosts: {took:.2} s");
    assert!(took < CPU_S_MOST, "{spec}, {ghosts} ghosts: {took:.2} s");
}

const SPECS: [&str; 10] = [
    "ubm",
    "pcc",
    "amp",
    "clock-pro",
    "clock-pro:cold=1",
    "clock-pro:cold=100%",
    "lirs",
    "lirs:threshold=150%",
    "lirs:threshold=150%:stack=1.5",
    "lirs:threshold=50%",
];

#[test]
fn a_scan() {
    for spec in SPECS {
        for ghosts in [0, 100, CAPACITY] {
            run(spec, CAPACITY, ghosts, 0..5 * CAPACITY);
        }
    }
}

#[test]
fn a_loop() {
    for spec in SPECS {
        for ghosts in [0, 100, CAPACITY] {
            run(spec, CAPACITY, ghosts, (0..5 * CAPACITY).map(|at| at % (CAPACITY + CAPACITY / 4)));
        }
    }
}

/// Blocks used again after random others, in a set twice the size of the cache: LIR blocks are demoted all the time.
#[test]
fn random_references() {
    for spec in SPECS {
        for ghosts in [0, 100, LARGE] {
            let mut state = 1u64;
            let random = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % u64::from(2 * LARGE)) as u32
            });
            run(spec, LARGE, ghosts, random.take(3 * LARGE as usize));
        }
    }
}

/// A cache that is as large as what it holds grows and becomes smaller by one block at a time, up and down all of the way and
/// back and forth at each of some sizes: a change costs no more in a large cache than in a small one.
#[test]
fn one_block_more_or_less() {
    let setup = Setup { capacity: 1, slots: 1, block_bytes: 4096, ghosts: 1, future: None, patterns: None };
    for info in registry().iter().filter(|info| !info.offline) {
        let mut pool = Pool {
            policy: build(&info.name.parse().expect("a policy"), &setup).expect("it can be made"),
            free: Vec::new(),
            slots: 0,
            size: 0,
            tick: 0,
        };
        let start = cpu_s();
        for waypoint in [CAPACITY, CAPACITY / 2, CAPACITY, 0] {
            while pool.size != waypoint {
                if pool.size < waypoint {
                    pool.grow()
                } else {
                    pool.shrink()
                }
                if pool.size % 5_000 == 1 {
                    for _ in 0..5_000 {
                        pool.grow();
                        pool.shrink();
                    }
                }
            }
        }
        let took = cpu_s() - start;
        println!("{}: {took:.2} s", info.name);
        assert!(took < CPU_S_MOST, "{}: {took:.2} s", info.name);
    }
}

struct Pool {
    policy: Box<dyn Policy + Send>,
    free: Vec<Slot>,
    slots: u32,
    size: u32,
    tick: u64,
}

impl Pool {
    fn resize(&mut self, size: u32) {
        self.size = size;
        let slots = (2 * size.max(1) + 1).max(self.slots);
        self.free.extend((self.slots..slots).map(Slot));
        self.slots = slots;
        self.policy.resize(Room { capacity: size.max(1), slots, ghosts: size.max(1) });
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(slot) = self.policy.take_forgotten() {
            self.free.push(slot);
        }
    }

    fn grow(&mut self) {
        self.resize(self.size + 1);
        self.tick += 1;
        let slot = self.free.pop().expect("there is room for the ghosts and one more");
        let block = Block { volume: 0, index: self.tick * 7 % 100_000 };
        let access = Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: self.tick };
        self.policy.insert(slot, &access);
        self.drain();
    }

    fn shrink(&mut self) {
        self.policy.shed();
        self.drain();
        self.resize(self.size - 1);
    }
}
