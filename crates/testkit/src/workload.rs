//! Random reference strings with access patterns that distinguish policies.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::naive::Reference;

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

/// `length` references or a few more, by six pieces of code to five files, as [`Reference::by`] takes them: sequences, loops, random
/// choices, and short steps back and forth.
pub fn coded(seed: u64, length: usize) -> Vec<Reference> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut references = Vec::new();
    while references.len() < length {
        let code = 7000 + random.random_range(0..6);
        let kind = random.random_range(0..4);
        let (file, span) = (random.random_range(0..5), random.random_range(1..60));
        for step in 0..random.random_range(1..150) {
            let index = match kind {
                0 => random.random_range(0..60),
                1 => step % span,
                2 => random.random_range(0..50) + step % 4,
                _ => step,
            };
            references.push(Reference::by(code, file << 32 | index));
        }
    }
    references
}

/// The next operation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// References a block.
    Access(u64),
    /// Evicts a block, if there is one.
    Shed,
    /// Sets the room to these numbers of blocks and ghosts.
    Resize {
        /// Blocks.
        capacity: u32,
        /// Ghosts.
        ghosts: u32,
    },
}

/// The references of [`mixed`], mixed with changes of size that start from `capacity`: small and large ones, and of the
/// room for ghosts too.
pub fn resized(seed: u64, blocks: u64, length: usize, mut capacity: u32) -> Vec<Step> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let mut ghosts = blocks as u32;
    let mut steps = Vec::new();
    for block in mixed(seed, blocks, length) {
        match random.random_range(0..24) {
            0 => steps.extend(std::iter::repeat_n(Step::Shed, random.random_range(1..4))),
            1 => capacity += 1,
            2 => capacity -= 1,
            3 => capacity = random.random_range(1..=blocks as u32 + 2),
            4 => ghosts = random.random_range(0..=blocks as u32),
            5 => ghosts = blocks as u32,
            6 => capacity += random.random_range(0..capacity),
            _ => {}
        }
        capacity = capacity.clamp(1, 2 * blocks as u32);
        let room = Step::Resize { capacity, ghosts };
        if steps.iter().rfind(|step| matches!(step, Step::Resize { .. })) != Some(&room) {
            steps.push(room);
        }
        steps.push(Step::Access(block));
    }
    steps
}

/// The blocks that `steps` reference, in order.
pub fn blocks(steps: &[Step]) -> Vec<u64> {
    steps.iter().filter_map(|step| if let Step::Access(block) = step { Some(*block) } else { None }).collect()
}
