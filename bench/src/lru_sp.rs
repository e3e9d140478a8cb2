//! LRU-SP against LRU: processor time a hit and a miss of oblivious tenants, through the engine, which is all that a read
//! costs but for the device and the copy to its reader.

use anyhow::Context;
use nigh_engine::{Config, Engine, Op, Outcome, Port, PortConfig, Region, Request, Tenants, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};
use nix::time::{ClockId, clock_gettime};

use crate::measure::{load, median};

const BLOCK_BYTES: u64 = 4096;
const TENANTS: u32 = 4;
/// References of a turn: the engines take turns, so that what else the machine does slows down both.
const TURN: usize = 50_000;

struct Case {
    name: &'static str,
    capacity: u32,
    blocks: u32,
    /// The next block to be read.
    next: fn(blocks: u32, state: &mut u64) -> u32,
}

/// Numbers that look random, the same ones in every run.
fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

/// An exponential of a uniform number: every octave of blocks is as popular as any other, as by Zipf's law.
fn skewed(blocks: u32, state: &mut u64) -> u32 {
    let rank = f64::from(blocks).powf(random(state)) as u32 % blocks;
    (u64::from(rank) * 2_654_435_761 % u64::from(blocks)) as u32
}

/// One after the other, and again.
fn all(blocks: u32, state: &mut u64) -> u32 {
    *state = (*state + 1) % u64::from(blocks);
    *state as u32
}

const CASES: [Case; 5] = [
    Case { name: "hits, 100 k blocks", capacity: 100_003, blocks: 100_003, next: skewed },
    Case { name: "hits, 1 M blocks", capacity: 1_000_003, blocks: 1_000_003, next: skewed },
    Case { name: "misses, 100 k blocks", capacity: 100_003, blocks: 200_003, next: all },
    Case { name: "misses, 1 M blocks", capacity: 1_000_003, blocks: 2_000_003, next: all },
    Case { name: "both, 100 k of 1 M", capacity: 100_003, blocks: 1_000_003, next: skewed },
];

fn cpu_s() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

fn engine(capacity: u32, blocks: u32, tenants: Option<Tenants>) -> anyhow::Result<Engine> {
    let config = Config { tenants, ..Config::new(capacity, "lru".parse().context("LRU is a policy")?) };
    let mut engine = Engine::new(config)?;
    engine.attach(Port(0), PortConfig::default())?;
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), u64::from(blocks) * BLOCK_BYTES)])?;
    Ok(engine)
}

/// Reads `block` on a device that is done at once. Whether it was there.
fn read(engine: &mut Engine, block: u32) -> bool {
    let request = Request {
        volume: Volume(0),
        tenant: Tenant(block % TENANTS),
        op: Op::Read,
        offset: u64::from(block) * BLOCK_BYTES,
        length: BLOCK_BYTES,
        fua: false,
        stream: Stream(0),
        token: 0,
    };
    let reply = engine.submit(0, request).expect("one request at a time, of a block of the disk").reply;
    let hit = reply.is_some();
    while let Some(operation) = engine.next_operation(0) {
        engine.complete(0, operation, Ok(()));
    }
    let reply = reply.or_else(|| engine.next_reply()).expect("the device is done");
    let Outcome::Data(data) = reply.outcome else { unreachable!("a read gets data") };
    if data.release() {
        engine.poll(0);
    }
    hit
}

/// Processor nanoseconds a read of `blocks`, and the hits.
fn turn(engine: &mut Engine, blocks: &[u32]) -> anyhow::Result<(f64, usize)> {
    let start = cpu_s()?;
    let hits = blocks.iter().filter(|&&block| read(engine, block)).count();
    Ok(((cpu_s()? - start) * 1e9 / blocks.len() as f64, hits))
}

pub(crate) fn bench(turns: usize) -> anyhow::Result<()> {
    println!(
        "processor nanoseconds a read through the engine, {TENANTS} oblivious tenants, medians of {turns} turns; load {}",
        load()
    );
    println!("{:24}{:>9}{:>9}{:>9}{:>8}", "", "hits", "lru", "lru-sp", "ratio");
    for Case { name, capacity, blocks, next } in CASES {
        let mut lru = engine(capacity, blocks, None)?;
        let mut lru_sp = engine(capacity, blocks, Some(Tenants::default()))?;
        (0..blocks).for_each(|block| _ = (read(&mut lru, block), read(&mut lru_sp, block)));
        let (mut plain_ns, mut shared_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut state, mut hits) = (7, 0);
        for at in 0..turns {
            let references: Vec<u32> = (0..TURN).map(|_| next(blocks, &mut state)).collect();
            // The second one finds in the processor's cache what both use.
            let (plain, shared) = if at % 2 == 0 {
                let plain = turn(&mut lru, &references)?;
                (plain, turn(&mut lru_sp, &references)?)
            } else {
                let shared = turn(&mut lru_sp, &references)?;
                (turn(&mut lru, &references)?, shared)
            };
            anyhow::ensure!(
                plain.1 == shared.1,
                "{name}: oblivious tenants hit {} times and not {}",
                shared.1,
                plain.1
            );
            hits += plain.1;
            plain_ns.push(plain.0);
            shared_ns.push(shared.0);
            ratios.push(shared.0 / plain.0);
        }
        let (plain, shared) = (median(&mut plain_ns), median(&mut shared_ns));
        let share = 100.0 * hits as f64 / (turns * TURN) as f64;
        println!("{name:24}{share:>8.1}%{plain:>9.1}{shared:>9.1}{:>8.2}", median(&mut ratios));
    }
    Ok(())
}
