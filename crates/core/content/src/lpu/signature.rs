//! Sub-signatures of blocks, and how often each was accessed (section 2.1).

use crate::{BLOCK_BYTES, Block};

/// Sub-blocks of a block.
pub const SUB_BLOCKS: usize = 8;

/// Bytes of a sub-block.
const SUB_BLOCK_BYTES: usize = BLOCK_BYTES / SUB_BLOCKS;

/// The offsets of the bytes of a sub-block that its signature is the sum of.
pub const SAMPLED: [usize; 4] = [0, 16, 32, 64];

/// The sub-signatures of a block.
pub type Signature = [u8; SUB_BLOCKS];

/// The signature of a block: of each 512-byte sub-block, the sum of the bytes at offsets 0, 16, 32 and 64.
pub fn signature(block: &Block) -> Signature {
    let (sub_blocks, _) = block.as_chunks::<SUB_BLOCK_BYTES>();
    std::array::from_fn(|at| SAMPLED.into_iter().fold(0, |sum: u8, offset| sum.wrapping_add(sub_blocks[at][offset])))
}

/// How many sub-signatures of two blocks match.
pub fn similarity(one: &Signature, other: &Signature) -> usize {
    one.iter().zip(other).filter(|(one, other)| one == other).count()
}

/// For each sub-block, how often it was accessed with each signature.
pub struct Heatmap([[u64; 256]; SUB_BLOCKS]);

impl Heatmap {
    /// All zero.
    pub(super) fn new() -> Heatmap {
        Heatmap([[0; 256]; SUB_BLOCKS])
    }

    /// A block with this signature was accessed.
    pub(super) fn add(&mut self, signature: &Signature) {
        for (row, &value) in self.0.iter_mut().zip(signature) {
            row[usize::from(value)] += 1;
        }
    }

    /// The row of a sub-block: one count for each signature that it can have.
    pub fn row(&self, sub_block: usize) -> &[u64; 256] {
        &self.0[sub_block]
    }

    /// The popularity of a block with this signature: the sum of the popularity values of its sub-blocks.
    pub fn popularity(&self, signature: &Signature) -> u64 {
        self.0.iter().zip(signature).map(|(row, &value)| row[usize::from(value)]).sum()
    }
}
