//! Figure 5.9 of the dissertation: three levels of 12,800 blocks of 8 KB. Hits and demotions of uniLRU on *random* are
//! published; those of ULC are an independent implementation's ("measured").

use nigh_policy::Slot;
use nigh_tier::{Tier, Ulc, UniLru};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

const LEVELS: [u32; 3] = [12_800; 3];
/// Milliseconds of a hit at each level and of a miss (section 5.4.3).
const TIMES: [f64; 4] = [0.0, 1.0, 1.2, 11.2];

/// Percentages of all references after the first tenth: hits by level, then demotions by boundary; and the mean time in ms.
fn measure(mut tier: impl Tier, references: impl Iterator<Item = u32>, length: usize) -> ([f64; 5], f64) {
    let mut moves = Vec::new();
    for (at, block) in references.take(length).enumerate() {
        if at == length / 10 {
            tier.restart();
        }
        tier.reference(Slot(block), &mut moves);
        moves.clear();
    }
    tier.check();
    let counts = tier.counts();
    let share = |count: u64| 100.0 * count as f64 / counts.references as f64;
    let [one, two, three, ..] = counts.hits.map(share);
    let [upper, lower, ..] = counts.demotions.map(share);
    println!("{one:.2} {two:.2} {three:.2}, demotions {upper:.2} {lower:.2}, {:.3} ms", counts.mean_time(&TIMES));
    ([one, two, three, upper, lower], counts.mean_time(&TIMES))
}

fn within(found: [f64; 5], expected: [f64; 5], points: f64) {
    assert!(
        found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() <= points),
        "{found:?}, not {expected:?}"
    );
}

fn random(seed: u64) -> impl Iterator<Item = u32> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    std::iter::repeat_with(move || random.random_range(0..65_536))
}

#[test]
fn random_is_split_evenly_with_few_demotions() {
    for seed in 1..=3 {
        let (unified, unified_ms) = measure(UniLru::new(65_536, &LEVELS), random(seed), 1_000_000);
        within(unified, [19.5, 19.6, 19.5, 80.5, 60.9], 0.25);
        let (ulc, ulc_ms) = measure(Ulc::new(65_536, &LEVELS), random(seed), 1_000_000);
        within(ulc, [19.53, 19.54, 19.54, 24.66, 23.44], 0.25);
        assert!(ulc[3] <= 25.0 && ulc_ms <= 5.4 && ulc_ms < 0.92 * unified_ms, "{ulc_ms} and {unified_ms} ms");
    }
}

/// The probability of block i is proportional to 1 / i.
fn zipf(seed: u64) -> impl Iterator<Item = u32> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zipf = Zipf::new(98_304.0, 1.0).expect("blocks and an exponent");
    std::iter::repeat_with(move || zipf.sample(&mut random) as u32 - 1)
}

/// Four million references: after a tenth of fewer, the last level is not full yet.
#[test]
#[expect(clippy::approx_constant, reason = "a percentage that is near tau")]
fn zipf_hits_high_with_few_demotions() {
    for seed in 1..=2 {
        let (unified, unified_ms) = measure(UniLru::new(98_304, &LEVELS), zipf(seed), 4_000_000);
        within(unified, [76.52, 7.66, 4.68, 23.48, 15.82], 0.15);
        let (ulc, ulc_ms) = measure(Ulc::new(98_304, &LEVELS), zipf(seed), 4_000_000);
        within(ulc, [80.00, 6.28, 3.88, 4.97, 4.20], 0.15);
        assert!(ulc_ms <= 1.3 && ulc_ms < 0.8 * unified_ms, "{ulc_ms} and {unified_ms} ms");
    }
}

/// As the text predicts of tpcc1: what loops stays where it is.
#[test]
fn a_loop_is_split_without_demotions() {
    let levels = [6_400; 3];
    let rounds = || (0..12_724).cycle();
    let (ulc, _) = measure(Ulc::new(12_724, &levels), rounds(), 50 * 12_724);
    within(ulc, [50.3, 49.7, 0.0, 0.0, 0.0], 0.05);
    let (unified, _) = measure(UniLru::new(12_724, &levels), rounds(), 50 * 12_724);
    within(unified, [0.0, 100.0, 0.0, 100.0, 0.0], 0.05);
}
