//! Random reference strings with the access patterns that tell policies apart.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

/// `length` references to blocks `0..blocks`: a seeded mix of skewed and uniform choices, loops, scans and repeats.
pub fn mixed(seed: u64, blocks: u64, length: usize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zipf = Zipf::new(blocks as f64, 0.9).expect("at least one block and a positive exponent");
    let mut references = Vec::with_capacity(length);
    while references.len() < length {
        let run = random.random_range(1..=2 * blocks) as usize;
        let start = random.random_range(0..blocks);
        let span = random.random_range(1..=blocks);
        let pattern = random.random_range(0..5);
        for step in 0..run as u64 {
            references.push(match pattern {
                0 => zipf.sample(&mut random) as u64 - 1,
                1 => random.random_range(0..blocks),
                2 => (start + step % span) % blocks,
                3 => (start + step) % blocks,
                _ => (start + step / 3) % blocks,
            });
        }
    }
    references.truncate(length);
    references
}
