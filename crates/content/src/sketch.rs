//! A sketch of a block that recognizes similar content also where it moved, and an index of contents by their sketches.
//!
//! The sketch is a one-permutation minhash (P. Li, A. Owen, C.-H. Zhang, "One Permutation Hashing", NIPS 2012) over windows
//! of 8 bytes. Of all 4,089 windows, those whose hash begins with five zeros are sampled (1 in 32), as Odess does (X. Zou
//! et al., "Odess: Speeding up Resemblance Detection for Redundancy Elimination by Fast Content-Defined Sampling", ICDE
//! 2021). Three more bits of the hash choose one of eight features; the feature is the least of the next 32 bits. So
//! content that moved has the same features, and each edit changes only features whose window it touches.
//!
//! Odess samples a Gear hash and combines the features to super-features, which must agree as a whole. For blocks of 4 KiB
//! these find half of what single features with a vote do. The windows are hashed by a multiplication instead, because one
//! does not depend on the one before, and the processor works on several at a time.

use crate::Block;
use crate::buckets::{Buckets, Votes, mixed};

/// Features of a sketch.
pub const FEATURES: usize = 8;

/// Bytes of a window.
const WINDOW: usize = 8;

/// Bits of the hash that are zero where a window is sampled.
const SAMPLED: u32 = 5;

/// No window was sampled for this feature.
const NONE: u32 = u32::MAX;

/// Features of a block; `u32::MAX` for those without a sampled window.
pub type Sketch = [u32; FEATURES];

/// The sketch of a block.
pub fn sketch(block: &Block) -> Sketch {
    let mut features = [NONE; FEATURES];
    for window in block.windows(WINDOW) {
        let window = u64::from_le_bytes(window.try_into().expect("eight bytes"));
        let hash = window.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Windows of equal bytes, such as zeros, say nothing.
        if hash >> (64 - SAMPLED) == 0 && window != window.rotate_left(8) {
            let feature = &mut features[(hash >> (64 - SAMPLED - 3)) as usize & (FEATURES - 1)];
            *feature = (*feature).min((hash >> (64 - SAMPLED - 3 - 32)) as u32);
        }
    }
    features
}

/// Contents by their sketches, for a fixed number of contents.
#[derive(Debug)]
pub struct Sketches {
    buckets: Buckets,
}

impl Sketches {
    /// An index for about `capacity` contents. It takes 48 bytes for each.
    pub fn new(capacity: usize) -> Sketches {
        Sketches { buckets: Buckets::new(capacity.saturating_mul(FEATURES)) }
    }

    /// Adds a content.
    pub fn insert(&mut self, sketch: &Sketch, content: u32) {
        keys(sketch).for_each(|key| self.buckets.insert(key, content));
    }

    /// Removes a content, where it was not displaced by later ones.
    pub fn remove(&mut self, sketch: &Sketch, content: u32) {
        keys(sketch).for_each(|key| self.buckets.remove(key, content));
    }

    /// The content that has most features in common, at least one; of several, the one with the highest `weight`, then the
    /// newest. Contents without a weight do not count.
    pub fn best(&self, sketch: &Sketch, weight: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
        let mut votes = Votes::new();
        for key in keys(sketch) {
            self.buckets.get(key).for_each(|content| votes.add(content));
        }
        votes.best(weight)
    }
}

fn keys(sketch: &Sketch) -> impl Iterator<Item = u64> {
    let known = sketch.iter().enumerate().filter(|&(_, &feature)| feature != NONE);
    known.map(|(at, &feature)| mixed((at as u64) << 32 | u64::from(feature)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    fn common(one: &Block, other: &Block) -> usize {
        let (one, other) = (sketch(one), sketch(other));
        one.iter().zip(other).filter(|&(one, other)| *one == other && other != NONE).count()
    }

    fn random_block(random: &mut fastrand::Rng) -> Block {
        let mut block = [0; BLOCK_BYTES];
        random.fill(&mut block);
        block
    }

    /// From the description above, window by window and feature by feature.
    fn plainly(block: &Block) -> Sketch {
        std::array::from_fn(|feature| {
            let of = (0..=BLOCK_BYTES - 8).filter_map(|at| {
                let window = (0..8).map(|byte| u64::from(block[at + byte]) << (8 * byte)).sum::<u64>();
                let hash = (u128::from(window) * 0x9e37_79b9_7f4a_7c15) as u64;
                if block[at..at + 8].iter().all(|&byte| byte == block[at]) {
                    return None;
                }
                let bits = format!("{hash:064b}");
                let number = |range: std::ops::Range<usize>| u64::from_str_radix(&bits[range], 2).unwrap();
                (number(0..5) == 0 && number(5..8) == feature as u64).then(|| number(8..40) as u32)
            });
            of.min().unwrap_or(u32::MAX)
        })
    }

    #[test]
    fn it_is_what_the_description_says() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..20 {
            let block = random_block(&mut random);
            assert_eq!(sketch(&block), plainly(&block));
        }
    }

    #[test]
    fn equal_bytes_have_no_features() {
        for value in 0..=255 {
            assert_eq!(sketch(&[value; BLOCK_BYTES]), [NONE; FEATURES], "{value}");
        }
    }

    #[test]
    fn moved_content_keeps_most_features() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut moved_common, mut other_common) = (0, 0);
        for _ in 0..200 {
            let block = random_block(&mut random);
            let mut moved = random_block(&mut random);
            let by = random.usize(1..400);
            moved[by..].copy_from_slice(&block[..BLOCK_BYTES - by]);
            moved_common += common(&block, &moved);
            other_common += common(&block, &random_block(&mut random));
        }
        // A block that moved by 200 bytes keeps 95 % of its windows.
        assert!(moved_common >= 200 * 6, "{moved_common}");
        assert_eq!(other_common, 0);
    }

    #[test]
    fn the_index_finds_the_most_similar() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut index = Sketches::new(1000);
        let known: Vec<Block> = (0..1000).map(|_| random_block(&mut random)).collect();
        known.iter().enumerate().for_each(|(at, block)| index.insert(&sketch(block), at as u32));
        let mut right = 0;
        for (at, block) in known.iter().enumerate() {
            let mut moved = random_block(&mut random);
            moved[300..].copy_from_slice(&block[..BLOCK_BYTES - 300]);
            right += u32::from(index.best(&sketch(&moved), |_| Some(0)) == Some(at as u32));
        }
        assert!(right >= 990, "{right}");
        known.iter().enumerate().for_each(|(at, block)| index.remove(&sketch(block), at as u32));
        assert!(known.iter().all(|block| index.best(&sketch(block), |_| Some(0)).is_none()));
    }
}
