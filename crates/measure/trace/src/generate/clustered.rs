//! Temporally clustered references: the LRU stack model.
//!
//! The blocks form a stack in the order of their last reference. Each reference draws a depth from a distribution,
//! takes the block at that depth and puts it on top. The distribution is thus that of the references' LRU stack
//! distances, which determines the hit ratio of LRU at every cache size.

use rand::RngExt;

use super::spec::{Part, SpecError};
use super::zipf::{Scatter, Zipf};
use super::{Made, Random, References};

/// Every block uses one to two places of 8 bytes.
const BLOCKS_MOST: u64 = 1 << 28;

/// Blocks in the order of their last reference, with a Fenwick tree over the places in use.
struct Stack {
    /// The block whose last reference was at this place in time, or `FREE` if it was referenced again since.
    places: Vec<u32>,
    /// At `i`, the number of places in `(i - lowest bit of i)..i` that are in use; the number of places is a power of
    /// two, counted from 1.
    taken: Vec<u32>,
    /// Places from here on are free.
    next: usize,
    blocks: usize,
}

const FREE: u32 = u32::MAX;

impl Stack {
    /// A stack of the blocks of `order`, the last one on top.
    fn new(order: Vec<u32>) -> Stack {
        let blocks = order.len();
        let mut places = order;
        places.resize((2 * blocks).next_power_of_two(), FREE);
        let mut stack = Stack { taken: vec![0; places.len() + 1], places, next: blocks, blocks };
        stack.count();
        stack
    }

    /// Recounts the tree from the places.
    fn count(&mut self) {
        self.taken.fill(0);
        for at in 1..self.taken.len() {
            self.taken[at] += u32::from(self.places[at - 1] != FREE);
            let parent = at + (at & at.wrapping_neg());
            if parent < self.taken.len() {
                self.taken[parent] += self.taken[at];
            }
        }
    }

    fn adjust(&mut self, place: usize, change: i32) {
        let mut at = place + 1;
        while at < self.taken.len() {
            self.taken[at] = self.taken[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Takes the block at `depth`, 1 for the top, puts it on top and returns it.
    fn touch(&mut self, depth: usize) -> u32 {
        if self.next == self.places.len() {
            self.compact();
        }
        // The place before which exactly `blocks - depth` places are in use.
        let mut below = (self.blocks - depth) as u32;
        let mut place = 0;
        let mut step = self.places.len();
        while step > 0 {
            if place + step < self.taken.len() && self.taken[place + step] <= below {
                place += step;
                below -= self.taken[place];
            }
            step /= 2;
        }
        let block = std::mem::replace(&mut self.places[place], FREE);
        self.adjust(place, -1);
        self.places[self.next] = block;
        self.adjust(self.next, 1);
        self.next += 1;
        block
    }

    fn compact(&mut self) {
        let mut kept = 0;
        for at in 0..self.places.len() {
            if self.places[at] != FREE {
                self.places.swap(kept, at);
                kept += 1;
            }
        }
        self.next = kept;
        self.count();
    }
}

/// Depths `1..=blocks`.
enum Depths {
    /// P(depth) in proportion to `ratio^depth`; `whole` = 1 − ratio^blocks.
    Geometric { log_ratio: f64, whole: f64 },
    /// P(depth) in proportion to `depth^-alpha`.
    Zipf(Zipf),
}

/// `clustered`.
struct Clustered {
    stack: Stack,
    depths: Depths,
}

pub(super) fn make(part: &Part, random: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    let mean = part.number("mean", 1.0, 1e12)?;
    let alpha = part.number("alpha", 0.0, 10.0)?;
    let depths = match part.word("distances", &["geometric", "zipf"])? {
        "zipf" => Depths::Zipf(Zipf::new(blocks, alpha)),
        _ => {
            let log_ratio = libm::log1p(-1.0 / mean);
            Depths::Geometric { log_ratio, whole: -libm::expm1(blocks as f64 * log_ratio) }
        }
    };
    let order = if part.yes("scatter")? {
        let scatter = Scatter::new(blocks, random);
        (0..blocks).map(|at| scatter.apply(at) as u32).collect()
    } else {
        (0..blocks as u32).rev().collect()
    };
    Ok(Made { blocks, references: Box::new(Clustered { stack: Stack::new(order), depths }) })
}

impl References for Clustered {
    fn next(&mut self, random: &mut Random) -> Option<u64> {
        let depth = match &self.depths {
            Depths::Zipf(zipf) => zipf.sample(random) as usize,
            Depths::Geometric { log_ratio, whole } => {
                let below = libm::log1p(-random.random::<f64>() * whole) / log_ratio;
                (below as usize + 1).min(self.stack.blocks)
            }
        };
        Some(u64::from(self.stack.touch(depth)))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_stack_moves_what_it_touches_to_the_top() {
        for blocks in [1, 2, 3, 7, 8, 100] {
            let mut stack = Stack::new((0..blocks).collect());
            let mut plain: Vec<u32> = (0..blocks).rev().collect();
            let mut random = Random::seed_from_u64(u64::from(blocks));
            for _ in 0..1000 {
                let depth = random.random_range(1..=blocks) as usize;
                let expected = plain.remove(depth - 1);
                plain.insert(0, expected);
                assert_eq!(stack.touch(depth), expected);
            }
        }
    }
}
