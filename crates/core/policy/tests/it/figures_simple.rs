//! Hit ratios on the LIRS authors' traces against those of programs that others wrote, in percent with one decimal.
//!
//! Sources: on cpp, libCacheSim 0.3.5, with which Caffeine's simulator agrees on 2Q and an independent textbook program
//! on CLOCK. On multi1, figures recomputed for comparison with the LIRS authors' own program; which program computed
//! those of 2Q and LRU is not recorded.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use nigh_policy::{Access, Block, Kind, Setup, Slot, Spec, Stream, Tenant, build};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces/lirs");

const CPP_SIZES: [u32; 6] = [20, 35, 50, 80, 100, 200];
const MULTI1_SIZES: [u32; 8] = [600, 800, 1000, 1200, 1400, 1600, 1800, 2000];

/// The blocks of the trace `name`, numbered in the order of their first references, and how many there are.
fn trace(name: &str) -> Option<(Vec<u32>, u32)> {
    let path = Path::new(TRACES).join(format!("{name}.trace.gz"));
    if !path.exists() {
        return None;
    }
    let mut text = String::new();
    let file = std::fs::File::open(&path).expect("the trace can be opened");
    GzDecoder::new(file).read_to_string(&mut text).expect("the trace can be read");
    let mut slots = HashMap::new();
    let mut references = Vec::new();
    // Lines with an asterisk are markers.
    for line in text.lines().filter(|line| !line.contains('*') && !line.trim().is_empty()) {
        let next = slots.len() as u32;
        references.push(*slots.entry(line.trim().to_owned()).or_insert(next));
    }
    Some((references, slots.len() as u32))
}

/// The hit ratio of the policy `spec`, in percent.
fn hit_ratio(spec: &str, capacity: u32, references: &[u32], slots: u32) -> f64 {
    let spec: Spec = spec.parse().expect("a known policy");
    let mut policy =
        build(&spec, &Setup { capacity, slots, block_bytes: 4096, ghosts: slots, future: None, patterns: None })
            .expect("valid parameters");
    let mut resident = vec![false; slots as usize];
    let (mut used, mut hits) = (0, 0);
    for (tick, &number) in references.iter().enumerate() {
        let slot = Slot(number);
        let access = Access {
            block: Block { volume: 0, index: number.into() },
            tenant: Tenant(0),
            stream: Stream(0),
            kind: Kind::Read,
            tick: tick as u64,
        };
        if resident[slot.index()] {
            hits += 1;
            policy.hit(slot, &access);
        } else {
            if used == capacity {
                let victim = policy.evict(slot, &access).expect("a policy of the registry keeps what comes in");
                resident[victim.index()] = false;
                while policy.take_forgotten().is_some() {}
            } else {
                used += 1;
            }
            policy.insert(slot, &access);
            resident[slot.index()] = true;
        }
        while policy.take_forgotten().is_some() {}
    }
    100.0 * f64::from(hits) / references.len() as f64
}

/// The hit ratios of `spec` on the trace `name` are within `tolerance` points of `figures`.
fn reproduces(test: &str, spec: &str, name: &str, sizes: &[u32], figures: &[f64], tolerance: f64) {
    let Some((references, slots)) = trace(name) else {
        println!("skipped: {test}: no trace {name} in {TRACES}");
        return;
    };
    assert_eq!(sizes.len(), figures.len());
    let found: Vec<f64> = sizes.iter().map(|&size| hit_ratio(spec, size, &references, slots)).collect();
    println!("{spec} on {name} at {sizes:?}: {found:.2?}");
    for ((size, found), figure) in sizes.iter().zip(found).zip(figures) {
        // Both are compared as printed, with one decimal.
        let off = ((found * 10.0).round() / 10.0 - figure).abs();
        assert!(off < tolerance + 0.001, "{spec} on {name} with {size} blocks: {found:.2} %, expected {figure} %");
    }
}

#[test]
fn two_q_on_multi1() {
    let figures = [48.1, 48.3, 48.3, 58.2, 66.6, 70.9, 72.6, 74.1];
    reproduces("two_q_on_multi1", "2q", "multi1", &MULTI1_SIZES, &figures, 0.3);
}

#[test]
fn two_q_on_cpp() {
    reproduces("two_q_on_cpp", "2q", "cpp", &CPP_SIZES, &[4.5, 29.9, 38.4, 63.6, 73.4, 82.5], 0.3);
}

#[test]
fn lru_on_both() {
    let multi1 = [47.0, 47.8, 48.2, 48.5, 48.5, 57.0, 82.4, 83.2];
    reproduces("lru_on_both", "lru", "multi1", &MULTI1_SIZES, &multi1, 0.0);
    reproduces("lru_on_both", "lru", "cpp", &CPP_SIZES, &[0.6, 0.9, 9.3, 44.2, 69.7, 82.2], 0.0);
}

#[test]
fn clock_on_cpp() {
    reproduces("clock_on_cpp", "clock", "cpp", &[35, 50], &[1.0, 10.2], 0.0);
}

/// With one bit for a counter, GCLOCK is CLOCK.
#[test]
fn gclock_with_a_bit_is_clock() {
    reproduces("gclock_with_a_bit_is_clock", "gclock:first=0:max=1", "cpp", &[35, 50], &[1.0, 10.2], 0.0);
}
