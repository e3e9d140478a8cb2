//! Curves beside replays of all blocks: what they estimate, when they claim to know it, and the memory that they take.

use nigh_policy::curve::{Curve, FULL_FOR, Measured, NOT_FULL_FOR, PRESENT, QUARTERS, REFERENCES_LEAST};
use nigh_policy::{Access, Block, Kind, Setup, Spec, Stream, Tenant, ghosts, registry};
use nigh_testkit::replay::replay;
use nigh_testkit::workload::{self, Load, Phases};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn spec(text: &str) -> Spec {
    text.parse().expect("registered")
}

fn curve(policy: &str, capacity: u32, least: u32) -> Curve {
    Curve::new(&spec(policy), false, capacity, least, 4096).expect("possible")
}

/// References to blocks of one volume. Another volume has another sample.
fn refer(curve: &mut Curve, volume: u32, blocks: impl IntoIterator<Item = u64>) {
    for (tick, index) in (0..).zip(blocks) {
        let block = Block { volume, index };
        if curve.takes(block) {
            curve.reference(&Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick });
        }
    }
}

/// Blocks by a law that has few often and many rarely, among `blocks`.
fn skewed(seed: u64, blocks: u64, count: usize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count).map(|_| ((blocks as f64).powf(random.random::<f64>()) - 1.0) as u64).collect()
}

/// A cache that is simulated as a whole: each size hits as often as a replay of that size, under every policy.
#[test]
fn a_whole_cache_is_replayed() {
    const BLOCKS: u32 = 100;
    const CAPACITY: u32 = 20;
    for info in registry().iter().filter(|info| !info.offline && info.name != "auto") {
        for seed in 0..4 {
            let references = workload::mixed(seed, BLOCKS.into(), 3_000);
            let mut curve = curve(info.name, CAPACITY, 1024);
            refer(&mut curve, 0, references.iter().copied());
            curve.check();
            let measured = curve.measured();
            assert_eq!((measured.references, measured.sampled), (3_000, 3_000));
            for (point, quarters) in measured.points.iter().zip(QUARTERS) {
                let capacity = CAPACITY * quarters / 4;
                let ghosts = ghosts(&spec(info.name), capacity).expect("possible").min(BLOCKS);
                let setup = Setup { capacity, slots: BLOCKS, block_bytes: 4096, ghosts, future: None, patterns: None };
                let hits = replay(info.name, &setup, references.iter().map(|&block| block as u32)).hits;
                assert_eq!(point.hits, hits, "{}, seed {seed}, {quarters} quarters", info.name);
            }
        }
    }
}

/// The share of ratios, of those whose error is shown, that differ from those of all blocks by no more than it; the mean difference and the mean error, in points.
fn compared(policy: &str, references: &[u64], capacity: u32, least: u32, samples: u32) -> (f64, f64, f64) {
    let mut whole = curve(policy, capacity, capacity);
    refer(&mut whole, 0, references.iter().copied());
    let whole = whole.measured();
    let (mut covered, mut difference, mut error, mut count) = (0.0, 0.0, 0.0, 0.0);
    for volume in 0..samples {
        let mut sampled = curve(policy, capacity, least);
        refer(&mut sampled, volume, references.iter().copied());
        for (point, exact) in sampled.measured().points.iter().zip(&whole.points) {
            let apart = (point.hit_ratio - exact.hit_ratio).abs();
            covered += f64::from(apart <= point.error);
            difference += 100.0 * apart;
            error += 100.0 * point.error;
            count += 1.0;
        }
    }
    (covered / count, difference / count, error / count)
}

/// A few blocks with most of the references, of which a sample has more or less than its share; and a loop, a zigzag and a scan beside them.
#[test]
fn samples_err_no_more_than_they_show() {
    let mut phases = Phases::new(4_000);
    [Load::Zipf, Load::Loop, Load::Zigzag, Load::Zipf].into_iter().for_each(|load| phases.run(load, 30));
    let phases: Vec<u64> = phases.blocks.iter().map(|&block| block.into()).collect();
    let skewed = skewed(5, 40_000, 400_000);
    let mut all = Vec::new();
    for policy in ["lirs", "lru", "s3-fifo", "mq"] {
        for (name, references) in [("skewed", &skewed), ("phases", &phases)] {
            let (covered, difference, error) = compared(policy, references, 4_000, 500, 12);
            println!(
                "{policy}, {name}: {difference:.2} points apart, error {error:.2}, {:.1} % covered",
                100.0 * covered
            );
            all.push((covered, error));
        }
    }
    let mean = all.iter().map(|(covered, _)| covered).sum::<f64>() / all.len() as f64;
    assert!(mean >= 0.95, "{mean} of all: {all:?}");
    assert!(all.iter().all(|&(covered, error)| covered >= 0.9 && error < 4.0), "{all:?}");
}

fn known(measured: &Measured) -> [bool; QUARTERS.len()] {
    measured.points.map(|point| point.known)
}

/// A size is known once its shadow was full for four times its blocks in references, or had sixteen times its blocks in references and did not become full.
#[test]
fn a_size_is_known_when_enough_was_referenced() {
    const CAPACITY: u64 = 400;
    let mut scanned = curve("lru", CAPACITY as u32, 1024);
    let mut at = 0;
    for (number, quarters) in QUARTERS.into_iter().enumerate() {
        let size = CAPACITY * u64::from(quarters) / 4;
        let due = (size + FULL_FOR * size).max(REFERENCES_LEAST);
        refer(&mut scanned, 0, at..due - 1);
        assert!(!scanned.measured().points[number].known, "{quarters} quarters, too early");
        refer(&mut scanned, 0, due - 1..due);
        assert!(scanned.measured().points[number].known, "{quarters} quarters, too late");
        at = due;
    }
    // A loop that fits in the cache never fills the larger sizes.
    let mut looped = curve("lru", CAPACITY as u32, 1024);
    refer(&mut looped, 0, (0..NOT_FULL_FOR * CAPACITY).map(|at| at % (CAPACITY - 1)));
    assert_eq!(known(&looped.measured()), [true, true, true, false, false, false]);
    refer(&mut looped, 0, (0..4 * NOT_FULL_FOR * CAPACITY).map(|at| at % (CAPACITY - 1)));
    assert_eq!(known(&looped.measured()), [true; 6]);
    assert!(looped.measured().points[5].hit_ratio > 0.99);
}

/// A loop that is a little longer than the cache: the gain of more memory is known, and where it ends.
#[test]
fn the_gain_of_more_memory_is_known() {
    let mut curve = curve("lru", 1_000, 1024);
    refer(&mut curve, 0, (0..100_000).map(|at| at % 1_400));
    let measured = curve.measured();
    let gains = measured.points.map(|point| (100.0 * point.gain).round());
    assert_eq!(gains, [0.0, 0.0, 0.0, 100.0, 100.0, 100.0], "{measured:?}");
    assert!(measured.points.iter().all(|point| point.gain <= 1.0 && point.gain_error < 1e-3), "{measured:?}");
}

/// After a change of policy, shadows go on with their blocks, and counts begin anew. After a change of size, too.
#[test]
fn a_change_keeps_the_blocks() {
    let mut curve = curve("fifo", 4_000, 500);
    let hot = || (0..40_000).map(|at: u64| at % 3_000);
    refer(&mut curve, 0, hot());
    curve.fit(&spec("lirs"), false, 4_000).expect("possible");
    refer(&mut curve, 0, hot());
    curve.check();
    let measured = curve.measured();
    assert_eq!((measured.policy.to_string().as_str(), known(&measured)[PRESENT]), ("lirs", false), "it begins anew");
    assert!(measured.references < 40_000 && measured.sampled < 40_000 / 8 + 500, "{measured:?}");
    assert_eq!(measured.points[PRESENT].hits, measured.sampled, "its blocks are there");
    for capacity in [8_000, 1_000, 40_000, 6_000] {
        curve.fit(&spec("lirs"), false, capacity).expect("possible");
        refer(&mut curve, 0, hot());
        curve.check();
        assert_eq!(curve.measured().points[PRESENT].blocks, u64::from(capacity));
        assert!(curve.slots() < bound(&spec("lirs"), capacity, 500), "{capacity}: {}", curve.slots());
    }
    // A policy that cannot be simulated is refused, and nothing changes.
    assert!(curve.fit(&spec("lirs:hir=5000"), false, 4_000).is_err());
    assert_eq!(curve.of(), (&spec("lirs"), false, 6_000));
}

/// The blocks and ghosts that a curve has room for, at most.
fn bound(spec: &Spec, capacity: u32, least: u32) -> u64 {
    let least = if spec.info().spatial { 4 * least } else { least };
    let largest = u64::from(capacity.min(3 * least));
    let sizes = QUARTERS.iter().map(|&quarters| (largest * u64::from(quarters) / 4).max(1));
    // Arrays grow by a half and 16 at a time; rounding.
    sizes.map(|size| (size + u64::from(ghosts(spec, size as u32).expect("possible"))) * 3 / 2 + 32).sum()
}

/// However large the cache is and whatever is referenced.
#[test]
fn memory_is_bounded() {
    for info in registry().iter().filter(|info| !info.offline && info.name != "auto") {
        if ghosts(&spec(info.name), 100).expect("possible") == u32::MAX {
            // A server does not have it.
            continue;
        }
        for capacity in [1, 63, 129, 5_000, 1 << 20] {
            let mut curve = curve(info.name, capacity, 64);
            refer(&mut curve, 0, skewed(1, 20_000, 40_000).into_iter().chain(0..10 * u64::from(capacity)));
            curve.check();
            let (slots, most) = (curve.slots(), bound(&spec(info.name), capacity, 64));
            assert!(slots <= most, "{} with {capacity} blocks: {slots} instead of {most}", info.name);
        }
    }
}
