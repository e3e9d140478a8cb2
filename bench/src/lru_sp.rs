//! LRU-SP against LRU: processor time a hit and a miss of oblivious tenants, in the same host: an index of blocks such as
//! the engine has, and no contents.

use std::hash::BuildHasher;

use anyhow::Context;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use nigh_control::{Config, Control};
use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Stream, Tenant, build};
use nix::time::{ClockId, clock_gettime};

use crate::measure::{load, median};

const REFERENCES: usize = 8_000_000;
const TENANTS: u32 = 4;

struct Case {
    name: &'static str,
    capacity: u32,
    references: Vec<u32>,
    blocks: u32,
}

/// Numbers that look random, the same ones in every run.
fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

fn cases() -> Vec<Case> {
    // An exponential of a uniform number: every octave of blocks is as popular as any other, as by Zipf's law.
    let skewed = |blocks: u32| -> Vec<u32> {
        let mut state = 7;
        let scattered = |rank: u32| (u64::from(rank) * 2_654_435_761 % u64::from(blocks)) as u32;
        (0..REFERENCES).map(|_| scattered(f64::from(blocks).powf(random(&mut state)) as u32 % blocks)).collect()
    };
    let all = |blocks: u32| -> Vec<u32> { (0..REFERENCES as u32).map(|at| at % blocks).collect() };
    let case = |name, capacity, blocks, references| Case { name, capacity, references, blocks };
    vec![
        case("hits, 100 k blocks", 100_003, 100_003, skewed(100_003)),
        case("hits, 1 M blocks", 1_000_003, 1_000_003, skewed(1_000_003)),
        case("misses, 100 k blocks", 100_003, 200_003, all(200_003)),
        case("misses, 1 M blocks", 1_000_003, 2_000_003, all(2_000_003)),
        case("both, 100 k of 1 M", 100_003, 1_000_003, skewed(1_000_003)),
    ]
}

fn cpu_s() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Which block has which slot, and whether it is resident.
struct Host<'a> {
    policy: &'a mut dyn Policy,
    index: HashTable<u32>,
    hasher: RandomState,
    blocks: Vec<u64>,
    resident: Vec<bool>,
    unused: Vec<u32>,
    frames: u32,
}

impl Host<'_> {
    /// Whether `access` hits.
    #[inline]
    fn reference(&mut self, access: &Access) -> bool {
        let block = access.block.index;
        let hash = self.hasher.hash_one(block);
        let found = self.index.find(hash, |&slot| self.blocks[slot as usize] == block).copied();
        if let Some(slot) = found.filter(|&slot| self.resident[slot as usize]) {
            self.policy.hit(Slot(slot), access);
            return true;
        }
        self.drain();
        let slot = found.unwrap_or_else(|| {
            let slot = self.unused.pop().expect("one slot more than blocks and ghosts");
            self.blocks[slot as usize] = block;
            let Host { index, hasher, blocks, .. } = self;
            index.insert_unique(hash, slot, |&slot| hasher.hash_one(blocks[slot as usize]));
            slot
        });
        if self.frames == 0 {
            let victim = self.policy.evict(Slot(slot), access);
            self.resident[victim.index()] = false;
            self.drain();
        } else {
            self.frames -= 1;
        }
        self.policy.insert(Slot(slot), access);
        self.resident[slot as usize] = true;
        false
    }

    fn drain(&mut self) {
        while let Some(Slot(slot)) = self.policy.take_forgotten() {
            let hash = self.hasher.hash_one(self.blocks[slot as usize]);
            self.index.find_entry(hash, |&other| other == slot).expect("a known slot is in the index").remove();
            self.unused.push(slot);
        }
    }
}

/// Processor nanoseconds a reference once the cache is full, and the hits.
fn run(case: &Case, policy: &mut dyn Policy) -> anyhow::Result<(f64, u64)> {
    let slots = 2 * case.capacity + 1;
    let mut host = Host {
        policy,
        index: HashTable::with_capacity(slots as usize),
        hasher: RandomState::default(),
        blocks: vec![0; slots as usize],
        resident: vec![false; slots as usize],
        unused: (0..slots).rev().collect(),
        frames: case.capacity,
    };
    let mut tick = 0;
    let mut refer = |block: u32| {
        tick += 1;
        let (block, tenant) = (Block { volume: 0, index: u64::from(block) }, Tenant(block % TENANTS));
        host.reference(&Access { block, tenant, stream: Stream(0), kind: Kind::Read, tick })
    };
    (0..case.blocks).for_each(|block| _ = refer(block));
    let start = cpu_s()?;
    let hits = case.references.iter().filter(|&&block| refer(block)).count();
    Ok(((cpu_s()? - start) * 1e9 / case.references.len() as f64, hits as u64))
}

pub(crate) fn bench(rounds: usize) -> anyhow::Result<()> {
    println!("processor nanoseconds a reference, {TENANTS} oblivious tenants; load {}", load());
    println!("{:24}{:>9}{:>9}{:>9}{:>8}", "", "hits", "lru", "lru-sp", "ratio");
    for case in cases() {
        let setup = Setup {
            capacity: case.capacity,
            slots: 2 * case.capacity + 1,
            ghosts: case.capacity,
            block_bytes: 4096,
            future: None,
        };
        let (mut lru, mut lru_sp, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut share = 0.0;
        for _ in 0..rounds {
            let spec = "lru".parse().context("LRU is a policy")?;
            let (plain, hits) = run(&case, &mut *build(&spec, &setup)?)?;
            let (shared, same) = run(&case, &mut Control::new(&setup, Config::default()))?;
            anyhow::ensure!(hits == same, "{}: oblivious tenants hit {same} times and not {hits}", case.name);
            share = hits as f64 / case.references.len() as f64;
            lru.push(plain);
            lru_sp.push(shared);
            ratios.push(shared / plain);
        }
        let (lru, lru_sp) = (median(&mut lru), median(&mut lru_sp));
        println!("{:24}{:>8.1}%{lru:>9.1}{lru_sp:>9.1}{:>8.2}", case.name, share * 100.0, median(&mut ratios));
    }
    Ok(())
}
