//! Hit ratios on the LIRS authors' own traces against published ones, in percent.
//!
//! * cpp, columns OPT, LIRS, CLOCK-Pro and CAR: Jiang, dissertation, College of William and Mary 2004, Table 3.1.
//! * multi1, LIRS: the authors' own LIRS program on its trace, HIR share 1 %, at least 2 blocks.
//! * multi1, LRU and ARC: computed with two independent simulators, which agree to 0.2.
//! * The loops cs and gli have no published tables; section 2.4.2.1 says that LIRS follows OPT there, and that LRU stays
//!   near 0 until the whole loop fits.
//!
//! CLOCK-Pro gets a point: no available program reproduces its column exactly, the authors' own included.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;

use nigh_policy::Setup;
use nigh_testkit::host::future;
use nigh_testkit::replay::replay;

const CPP: [u32; 13] = [20, 35, 50, 80, 100, 200, 300, 400, 500, 600, 700, 800, 900];
const CPP_OPT: [f64; 13] = [26.4, 46.5, 62.8, 79.1, 82.5, 86.0, 86.5, 86.5, 86.5, 86.5, 86.5, 86.5, 86.5];
const CPP_LIRS: [f64; 13] = [24.2, 42.4, 55.0, 72.8, 77.6, 84.3, 85.0, 85.6, 85.9, 86.2, 86.3, 86.4, 86.4];
const CPP_CLOCK_PRO: [f64; 13] = [23.9, 41.2, 53.1, 71.4, 76.2, 84.0, 85.1, 85.7, 85.9, 86.2, 86.3, 86.4, 86.4];
const CPP_CAR: [f64; 13] = [17.6, 26.1, 37.5, 70.1, 77.0, 84.8, 85.6, 85.7, 85.8, 86.0, 86.3, 86.4, 86.4];

const MULTI1: [u32; 8] = [600, 800, 1000, 1200, 1400, 1600, 1800, 2000];
const MULTI1_LIRS: [f64; 8] = [58.2, 63.3, 68.4, 73.4, 78.4, 82.6, 83.1, 83.4];
const MULTI1_LRU: [f64; 8] = [47.0, 47.8, 48.2, 48.5, 48.5, 57.0, 82.4, 83.2];
const MULTI1_ARC: [f64; 8] = [49.5, 49.6, 49.8, 49.8, 51.8, 77.5, 83.1, 83.2];

/// The references of a trace as numbers of distinct blocks; `None`, and a word about it, where the traces are missing.
fn trace(test: &str, name: &str) -> Option<Vec<u64>> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces/lirs/{}.trace.gz"), name);
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: {test}: no trace {name}");
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file of text");
    let mut ids = HashMap::new();
    let blocks = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('*'));
    Some(
        blocks
            .map(|block| {
                let next = ids.len() as u64;
                *ids.entry(block.parse::<u64>().expect("a block number")).or_insert(next)
            })
            .collect(),
    )
}

/// The hit ratio of `spec` with `capacity` blocks, in percent.
fn hit_ratio(spec: &str, capacity: u32, references: &[u64]) -> f64 {
    let slots = references.iter().max().map_or(0, |&last| last as u32 + 1);
    let setup = Setup { capacity, slots, block_bytes: 4096, ghosts: slots, future: None, patterns: None };
    let hits = replay(spec, &setup, references.iter().map(|&block| block as u32)).hits;
    100.0 * hits as f64 / references.len() as f64
}

/// The hit ratio of OPT in percent: the block referenced again last of all leaves.
fn opt(capacity: u32, references: &[u64]) -> f64 {
    let next = future(references);
    // Of the resident blocks, when each is referenced next. Blocks never referenced again are distinguished by number.
    let mut resident = BTreeSet::new();
    let mut hits = 0;
    for (at, &block) in references.iter().enumerate() {
        hits += u32::from(resident.remove(&(at as u32, block)));
        if resident.len() == capacity as usize {
            resident.pop_last();
        }
        resident.insert((next[at], block));
    }
    100.0 * f64::from(hits) / references.len() as f64
}

/// Compares a column and returns the mean of what is measured above what is published, over all sizes.
fn compare(spec: &str, references: &[u64], sizes: &[u32], published: &[f64], tolerance: impl Fn(u32) -> f64) -> f64 {
    let measured: Vec<f64> = sizes.iter().map(|&size| hit_ratio(spec, size, references)).collect();
    let column: Vec<String> = measured.iter().map(|ratio| format!("{ratio:.1}")).collect();
    println!("{spec}: {}", column.join(" "));
    for ((&size, published), measured) in sizes.iter().zip(published).zip(&measured) {
        // Published figures are rounded to one decimal.
        let off = (measured - published).abs() - 0.05;
        assert!(off <= tolerance(size), "{spec} at {size}: {measured:.2} where {published} is published");
    }
    let above: f64 = measured.iter().zip(published).map(|(measured, published)| measured - published).sum();
    above / sizes.len() as f64
}

#[test]
fn cpp_opt() {
    let Some(cpp) = trace("cpp_opt", "cpp") else { return };
    for (&size, published) in CPP.iter().zip(CPP_OPT) {
        let measured = opt(size, &cpp);
        assert!((measured - published).abs() <= 0.051, "{size}: {measured:.2} where {published} is published");
    }
}

#[test]
fn cpp_lirs() {
    let Some(cpp) = trace("cpp_lirs", "cpp") else { return };
    compare("lirs:ghosts=unlimited", &cpp, &CPP, &CPP_LIRS, |_| 0.05);
}

#[test]
fn cpp_car() {
    let Some(cpp) = trace("cpp_car", "cpp") else { return };
    compare("car", &cpp, &CPP, &CPP_CAR, |_| 0.45);
}

#[test]
fn cpp_clock_pro() {
    let Some(cpp) = trace("cpp_clock_pro", "cpp") else { return };
    let above = compare("clock-pro", &cpp, &CPP, &CPP_CLOCK_PRO, |_| 1.0);
    println!("on average {above:+.2}");
    assert!(above >= -0.5, "{above} on average");
}

#[test]
fn multi1_lirs() {
    let Some(multi1) = trace("multi1_lirs", "multi1") else { return };
    compare("lirs:ghosts=unlimited", &multi1, &MULTI1, &MULTI1_LIRS, |_| 0.05);
}

#[test]
fn multi1_lru() {
    let Some(multi1) = trace("multi1_lru", "multi1") else { return };
    compare("lru", &multi1, &MULTI1, &MULTI1_LRU, |_| 0.0);
}

#[test]
fn multi1_arc() {
    let Some(multi1) = trace("multi1_arc", "multi1") else { return };
    compare("arc", &multi1, &MULTI1, &MULTI1_ARC, |_| 0.25);
}

/// On a loop LIRS follows OPT, CLOCK-Pro is "a little lower than LIRS" (3.4.1), and LRU hits only where the loop fits. The
/// default, which has Table 3.1's figures, is up to 7 points lower on cs; with m pages remembered, m_c of 1 at the start and unchanged for a page
/// that HAND_hot met it is 3 points lower.
#[test]
fn loops() {
    for (name, loop_length, below_opt, below_lirs) in [("cs", 1400, 1.6, 7.1), ("gli", 0, 4.8, 1.3)] {
        let Some(references) = trace("loops", name) else { return };
        for size in (200..=1400).step_by(200) {
            let at = |spec| hit_ratio(spec, size, &references);
            let (opt, lirs, lru) = (opt(size, &references), at("lirs:ghosts=unlimited"), at("lru"));
            let (clock_pro, default) = (at("clock-pro:ghosts=1:start=1:overtaken=same"), at("clock-pro"));
            println!(
                "{name} {size}: OPT {opt:.1}, LIRS {lirs:.1}, CLOCK-Pro {clock_pro:.1}, {default:.1}, LRU {lru:.1}"
            );
            assert!(lirs <= opt && lirs >= opt - below_opt, "LIRS on {name} at {size}");
            assert!(clock_pro <= opt && clock_pro >= lirs - 3.2, "CLOCK-Pro on {name} at {size}");
            assert!(default <= opt && default >= lirs - below_lirs, "CLOCK-Pro's default on {name} at {size}");
            assert!(size >= loop_length || lru < 2.0, "LRU on {name} at {size}");
        }
    }
}

/// "A LIRS algorithm with an indefinitely large threshold" is LRU, and comes close as the threshold grows (2.4.4.2).
#[test]
fn lirs_without_threshold_is_lru() {
    let Some(multi1) = trace("lirs_without_threshold_is_lru", "multi1") else { return };
    for size in MULTI1 {
        let at = |spec: &str| hit_ratio(spec, size, &multi1);
        let (lru, near) = (at("lru"), at("lirs:ghosts=unlimited:threshold=550%"));
        let by_threshold =
            ["50%", "75%", "100%", "125%", "150%"].map(|share| at(&format!("lirs:ghosts=unlimited:threshold={share}")));
        println!("{size}: 50..150%: {by_threshold:.1?}, 550%: {near:.1}, LRU {lru:.1}");
        assert_eq!(at("lirs:threshold=none"), lru);
    }
}
