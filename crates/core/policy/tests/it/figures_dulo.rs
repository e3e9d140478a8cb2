//! Table 1 of the DULO paper (section 2.1), step by step: what is in the cache after each access, and its time. And what
//! a miss costs (section 4.1.3).

use std::collections::{BTreeSet, HashMap};

use nigh_policy::Setup;
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::replay::replay;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEEK_MS: f64 = 6.5;
const ROTATION_MS: f64 = 3.0;

/// The block accessed, the cache of the traditional scheme and its time in ms, the cache of the dual one and its time.
type Step = (&'static str, &'static str, f64, &'static str, f64);

const TABLE_1: [Step; 20] = [
    ("A", "A", 9.5, "A", 9.5),
    ("B", "B A", 9.5, "B A", 9.5),
    ("C", "C B A", 9.5, "C B A", 9.5),
    ("D", "D C B A", 9.5, "D C B A", 9.5),
    ("X1", "X4 X3 X2 X1 D C B A", 9.5, "D C B A X4 X3 X2 X1", 9.5),
    ("X2", "X2 X4 X3 X1 D C B A", 0.0, "D C B A X2 X4 X3 X1", 0.0),
    ("X3", "X3 X2 X4 X1 D C B A", 0.0, "D C B A X3 X2 X4 X1", 0.0),
    ("X4", "X4 X3 X2 X1 D C B A", 0.0, "D C B A X4 X3 X2 X1", 0.0),
    ("Y1", "Y4 Y3 Y2 Y1 X4 X3 X2 X1", 9.5, "D C B A Y4 Y3 Y2 Y1", 9.5),
    ("Y2", "Y2 Y4 Y3 Y1 X4 X3 X2 X1", 0.0, "D C B A Y2 Y4 Y3 Y1", 0.0),
    ("Y3", "Y3 Y2 Y4 Y1 X4 X3 X2 X1", 0.0, "D C B A Y3 Y2 Y4 Y1", 0.0),
    ("Y4", "Y4 Y3 Y2 Y1 X4 X3 X2 X1", 0.0, "D C B A Y4 Y3 Y2 Y1", 0.0),
    ("X1", "X1 Y4 Y3 Y2 Y1 X4 X3 X2", 0.0, "D C B A X4 X3 X2 X1", 9.5),
    ("X2", "X2 X1 Y4 Y3 Y2 Y1 X4 X3", 0.0, "D C B A X2 X4 X3 X1", 0.0),
    ("X3", "X3 X2 X1 Y4 Y3 Y2 Y1 X4", 0.0, "D C B A X3 X2 X4 X1", 0.0),
    ("X4", "X4 X3 X2 X1 Y4 Y3 Y2 Y1", 0.0, "D C B A X4 X3 X2 X1", 0.0),
    ("A", "A X4 X3 X2 X1 Y4 Y3 Y2", 9.5, "A D C B X4 X3 X2 X1", 0.0),
    ("B", "B A X4 X3 X2 X1 Y4 Y3", 9.5, "B A D C X4 X3 X2 X1", 0.0),
    ("C", "C B A X4 X3 X2 X1 Y4", 9.5, "C B A D X4 X3 X2 X1", 0.0),
    ("D", "D C B A X4 X3 X2 X1", 9.5, "D C B A X4 X3 X2 X1", 0.0),
];

/// Place of a block on disk: its file on a track of its own, and its place in the file.
fn block(name: &str) -> u64 {
    let track = 1000 * u64::from(name.as_bytes()[0]);
    track + name[1..].parse::<u64>().unwrap_or(0)
}

/// A disk whose head is somewhere else at every request: "the average seek time to represent the cost of any seek
/// operation, and average rotation time to represent the cost of any rotation operation."
fn request_ms() -> f64 {
    SEEK_MS + ROTATION_MS
}

/// Time to read `name` through `cache`. "Prefetching is activated and all the four sequential blocks are fetched
/// because the prefetcher knows the reference (to block X1) starts at the beginning of the file."
fn read_ms(cache: &mut Host, name: &str) -> f64 {
    if cache.access(block(name)).hit {
        return 0.0;
    }
    if name.ends_with('1') {
        for ahead in 1..4 {
            cache.access(block(name) + ahead);
        }
    }
    request_ms()
}

/// The times of all steps, having compared each with `expected`, if wanted, and the cache after it.
fn times(spec: &str, expected: impl Fn(&Step) -> Option<(&'static str, f64)>) -> Vec<f64> {
    let mut cache = Host::new(spec, 8, 12, Slots::Forever, None);
    let step = |(at, step): (usize, &Step)| {
        let time = read_ms(&mut cache, step.0);
        if let Some((blocks, expected)) = expected(step) {
            let blocks: BTreeSet<u64> = blocks.split(' ').map(block).collect();
            assert_eq!((cache.resident(), time), (&blocks, expected), "{spec}, step {}", at + 1);
        }
        time
    };
    TABLE_1.iter().enumerate().map(step).collect()
}

#[test]
fn table_1_traditional() {
    let times = times("lru", |&(_, blocks, time, ..)| Some((blocks, time)));
    assert_eq!(times.iter().sum::<f64>(), 95.0);
}

/// DULO in a cache of 8 blocks: 4 for the bank, since a file has as many, and 4 for the evicting section. The table's
/// queues are LRU's, so the order within the cache is not the table's.
#[test]
fn table_1_dual() {
    let times = times("dulo:bank=4:evicting=4:first=1", |&(.., blocks, time)| Some((blocks, time)));
    assert_eq!(times.iter().sum::<f64>(), 66.5);
}

/// If a block just loaded is not young, one that was prefetched and then used is younger than one that was loaded
/// because it was used. Here that turns the table around: the sequential blocks stay.
#[test]
fn table_1_dual_with_uses_of_prefetched_blocks_counted_as_hits() {
    let times = times("dulo:bank=4:evicting=4:first=0", |_| None);
    assert_eq!(times.iter().sum::<f64>(), 104.5);
}

/// With its default sizes, DULO takes as long as LRU.
#[test]
fn table_1_with_defaults() {
    assert_eq!(times("dulo", |_| None).iter().sum::<f64>(), 95.0);
}

/// Sequencing operations and merge comparisons per miss of `spec` with `capacity` blocks, and its hit ratio.
fn cost_of_a_miss(spec: &str, capacity: u32, blocks: u32, references: &[u64]) -> (f64, f64, f64) {
    let setup = Setup { capacity, slots: blocks, block_bytes: 4096, ghosts: blocks, future: None, patterns: None };
    let replayed = replay(spec, &setup, references.iter().map(|&block| block as u32));
    let mut gauges = HashMap::new();
    replayed.policy.gauges(&mut |name, value| {
        gauges.insert(name, value as f64);
    });
    let per_miss = |name| gauges[name] / 1000.0;
    let hit_ratio = replayed.hits as f64 / references.len() as f64;
    (per_miss("sequencings_per_1000_misses"), per_miss("comparisons_per_1000_misses"), hit_ratio)
}

/// References of `length` to `blocks` blocks: a share in scans of up to `run` blocks, the rest at random.
fn scans_and_probes(seed: u64, blocks: u64, scanned: f64, run: u64, length: usize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut references = Vec::with_capacity(length + run as usize);
    while references.len() < length {
        let start = random.random_range(0..blocks);
        let run = random.random_range(1..=run);
        // A scan is chosen by its blocks' share, not by its own.
        if random.random::<f64>() * (scanned + (1.0 - scanned) * run as f64) < scanned {
            references.extend((start..start + run).map(|block| block % blocks));
        } else {
            references.push(start);
        }
    }
    references
}

/// "A miss is associated with one block sequencing operation [...] and 1.7 merge sort comparison operation in average"
/// (4.1.3). A young block that reaches the stack bottom is sequenced once more, without a miss of its own: so there are
/// more than one where the hit ratio is high. Comparisons are fewer, since those of one size find their
/// place together.
#[test]
fn cost_of_a_miss_in_operations() {
    const BLOCKS: u32 = 200_000;
    let workloads = [("all scans", 1.0, 1_000), ("mixed", 0.6, 200), ("short scans", 0.5, 8), ("random", 0.0, 1)];
    for (name, scanned, run) in workloads {
        let references = scans_and_probes(1, BLOCKS.into(), scanned, run, 1_000_000);
        for spec in ["dulo", "dulo:bank=64:evicting=64M"] {
            let (sequenced, compared, hit_ratio) = cost_of_a_miss(spec, 40_000, BLOCKS, &references);
            println!(
                "{spec} on {name}, hit ratio {hit_ratio:.3}: {sequenced:.2} sequencings, {compared:.4} comparisons"
            );
            // A hit makes one block young at most, and each of them comes to the bank again at most once for it.
            let hits_per_miss = hit_ratio / (1.0 - hit_ratio);
            assert!((0.9..=1.0 + hits_per_miss).contains(&sequenced), "{name}: {sequenced} sequencings a miss");
            assert!(compared < 1.7, "{name}: {compared} comparisons a miss");
        }
    }
}
