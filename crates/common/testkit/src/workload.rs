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

/// A kind of load. Each suits another policy, and has blocks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// To and fro over two and a half times the cache.
    Zigzag,
    /// Again and again over one and a quarter times the cache.
    Loop,
    /// Twenty times the cache, block r with a probability of 1/r, nearly.
    Zipf,
    /// Blocks that are referenced once, or after 400 times the cache.
    Scan,
}

impl Load {
    /// All of them.
    pub const ALL: [Load; 4] = [Load::Zigzag, Load::Loop, Load::Zipf, Load::Scan];
}

/// References to one load after another.
pub struct Phases {
    capacity: u32,
    random: Xoshiro256PlusPlus,
    /// By load, how many references there were.
    at: [u32; 4],
    /// The blocks that are referenced.
    pub blocks: Vec<u32>,
}

impl Phases {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Phases {
        Phases { capacity, random: Xoshiro256PlusPlus::seed_from_u64(1), at: [0; 4], blocks: Vec::new() }
    }

    /// All loads in turn, in this many `rounds`, each for `length` times the cache.
    pub fn rounds(capacity: u32, length: u32, rounds: u32) -> Phases {
        let mut phases = Phases::new(capacity);
        for _ in 0..rounds {
            Load::ALL.into_iter().for_each(|load| phases.run(load, length));
        }
        phases
    }

    /// A zigzag and a loop in turn, each for `period` times the cache, and together for about `whole` times.
    pub fn flips(capacity: u32, period: u32, whole: u32) -> Phases {
        let mut phases = Phases::new(capacity);
        (0..whole / period)
            .for_each(|at| phases.run(if at.is_multiple_of(2) { Load::Zigzag } else { Load::Loop }, period));
        phases
    }

    /// The number of blocks of each load, in the order of [`Load::ALL`].
    fn sizes(&self) -> [u32; 4] {
        [self.capacity * 5 / 2, self.capacity * 5 / 4, 20 * self.capacity, 400 * self.capacity]
    }

    /// All blocks have numbers below this.
    pub fn distinct(&self) -> u32 {
        self.sizes().iter().sum()
    }

    /// Adds references to `load` for `length` times the cache; they continue where this load stopped.
    pub fn run(&mut self, load: Load, length: u32) {
        let sizes = self.sizes();
        let (size, first) = (sizes[load as usize], sizes[..load as usize].iter().sum::<u32>());
        for _ in 0..length * self.capacity {
            let at = self.at[load as usize];
            self.at[load as usize] += 1;
            self.blocks.push(
                first
                    + match load {
                        Load::Zigzag if !(at / size).is_multiple_of(2) => size - 1 - at % size,
                        Load::Zipf => (f64::from(size).powf(self.random.random()) - 1.0) as u32,
                        Load::Zigzag | Load::Loop | Load::Scan => at % size,
                    },
            );
        }
    }
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
