//! A sketch of a block that recognizes similar content also where it moved, and an index of contents by their sketches.
//!
//! The sketch is a one-permutation minhash (P. Li, A. Owen, C.-H. Zhang, "One Permutation Hashing", NIPS 2012) over windows
//! of 8 bytes. Of all 4,089 windows, 1 in 32 is sampled by its content, as Odess does (X. Zou et al., "Odess: Speeding up
//! Resemblance Detection for Redundancy Elimination by Fast Content-Defined Sampling", ICDE 2021). Four bits of the hash of
//! a sampled window choose one of 16 features; the feature is the least of the next 32 bits. Content that moved therefore has the
//! same features, and each edit changes only features whose window it touches.
//!
//! Odess samples a Gear hash, and combines features to super-features, which must agree as a whole. Blocks of 4 KiB have
//! few features in common, so each is a key here, and the content with the most common keys wins. A window is sampled by a
//! hash of its first four bytes, in 16 bits, which compiles to SIMD instructions of every target: the sketch takes 0.8 µs
//! instead of 3.1 µs with a hash of all 8 bytes in 64 bits. The hash is of the difference of two pairs of bytes, so that
//! runs of equal bytes, which distinguish nothing, are not sampled.
//!
//! The index has 12 of the 16 features of a content, and room for those of a quarter of all contents: the ones that were
//! added last, or were last useful as a base. Two contents are tried. docs/content.md has what this finds, and what it costs.

use crate::buckets::{Buckets, Votes, mixed};
use crate::{BLOCK_BYTES, Block};

/// Features of a sketch.
pub const FEATURES: usize = 16;

/// Most features of a content in the index.
const KEYS: usize = 12;

/// Bits of the hash that choose the feature.
const CHOICE: u32 = FEATURES.ilog2();

/// Bytes of a window.
const WINDOW: usize = 8;

/// Windows of a block.
const WINDOWS: usize = BLOCK_BYTES - WINDOW + 1;

/// A window is sampled if this many bits of the hash of its beginning are zero.
const SAMPLED: u32 = 5;

/// No window was sampled for this feature.
const NONE: u32 = u32::MAX;

/// Features of a block; `u32::MAX` for those without a sampled window.
pub type Sketch = [u32; FEATURES];

/// The sketch of a block.
pub fn sketch(block: &Block) -> Sketch {
    let mut features = [NONE; FEATURES];
    let mut sampled = [0; BLOCK_BYTES];
    sample(block, &mut sampled);
    for (word, sampled) in sampled.as_chunks::<8>().0.iter().enumerate() {
        let mut rest = u64::from_le_bytes(*sampled);
        while rest != 0 {
            let at = word * 8 + rest.trailing_zeros() as usize / 8;
            rest &= rest - 1;
            let window = block[at..].first_chunk::<WINDOW>().expect("windows end within the block");
            let hash = u64::from_le_bytes(*window).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let feature = &mut features[(hash >> (64 - CHOICE)) as usize];
            *feature = (*feature).min((hash >> (64 - CHOICE - 32)) as u32);
        }
    }
    features
}

/// Sets a byte to 1 where a sampled window begins. Compiles to SIMD instructions.
fn sample(block: &Block, sampled: &mut Block) {
    let from = |at: usize| &block[at..at + WINDOWS];
    let bytes = from(0).iter().zip(from(1)).zip(from(2)).zip(from(3));
    for (sampled, (((one, two), three), four)) in sampled[..WINDOWS].iter_mut().zip(bytes) {
        // Not `from_le_bytes`, which the compiler does not turn into SIMD instructions here.
        let pair = |low: &u8, high: &u8| u16::from(*low) | u16::from(*high) << 8;
        let hash = pair(one, two).wrapping_sub(pair(three, four)).wrapping_mul(0x9e37).wrapping_add(0x8000);
        *sampled = u8::from(hash >> (16 - SAMPLED) == 0);
    }
}

/// Contents by their sketches, for a fixed number of contents.
#[derive(Debug)]
pub struct Sketches {
    buckets: Buckets,
}

/// As many contents with similar sketches are tried as bases.
pub const CANDIDATES: usize = 3;

impl Sketches {
    /// An index of contents with numbers below `contents`, with room for about a quarter of them, so that it takes 12 bytes
    /// for each. It keeps those that were added or renewed last.
    pub fn new(contents: usize) -> Sketches {
        Sketches::with_room(contents, contents / 4)
    }

    /// An index with room for about `room` of these contents. It takes 48 bytes for each of them.
    pub fn with_room(contents: usize, room: usize) -> Sketches {
        Sketches { buckets: Buckets::new(contents, room.saturating_mul(KEYS)) }
    }

    /// Its memory.
    pub fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// Adds a content.
    pub fn insert(&mut self, sketch: &Sketch, content: u32) {
        keys(sketch).for_each(|key| self.buckets.insert(key, content));
    }

    /// A content with a similar sketch was useful: where it was not displaced, it is as new.
    pub fn renew(&mut self, sketch: &Sketch, content: u32) {
        keys(sketch).for_each(|key| self.buckets.renew(key, content));
    }

    /// The contents that have most features in common, at least one; of several, those with the highest `weight`, then
    /// the newest. Contents without a weight do not count.
    pub fn best(&self, sketch: &Sketch, weight: impl FnMut(u32) -> Option<u32>) -> [Option<u32>; CANDIDATES] {
        let mut votes = Votes::new();
        for key in keys(sketch) {
            self.buckets.get(key).for_each(|content| votes.add(content));
        }
        votes.best(weight)
    }
}

fn keys(sketch: &Sketch) -> impl Iterator<Item = u64> {
    let known = sketch.iter().enumerate().filter(|&(_, &feature)| feature != NONE);
    known.take(KEYS).map(|(at, &feature)| mixed((at as u64) << 32 | u64::from(feature)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
                let pair = |at: usize| u32::from(block[at]) + 256 * u32::from(block[at + 1]);
                let beginning = ((pair(at) + 65536 - pair(at + 2)) % 65536 * 0x9e37 + 0x8000) % 65536;
                let window = (0..8).map(|byte| u64::from(block[at + byte]) << (8 * byte)).sum::<u64>();
                let bits = format!("{:064b}", (u128::from(window) * 0x9e37_79b9_7f4a_7c15) as u64);
                let number = |range: std::ops::Range<usize>| u64::from_str_radix(&bits[range], 2).unwrap();
                (beginning < 65536 / 32 && number(0..4) == feature as u64).then(|| number(4..36) as u32)
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
        assert!(moved_common >= 200 * 12, "{moved_common}");
        assert_eq!(other_common, 0);
    }

    #[test]
    fn the_index_finds_the_most_similar() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut index = Sketches::with_room(1000, 1000);
        let known: Vec<Block> = (0..1000).map(|_| random_block(&mut random)).collect();
        known.iter().enumerate().for_each(|(at, block)| index.insert(&sketch(block), at as u32));
        let mut right = 0;
        for (at, block) in known.iter().enumerate() {
            let mut moved = random_block(&mut random);
            moved[300..].copy_from_slice(&block[..BLOCK_BYTES - 300]);
            right += u32::from(index.best(&sketch(&moved), |_| Some(0))[0] == Some(at as u32));
        }
        assert!(right >= 990, "{right}");
    }
}
