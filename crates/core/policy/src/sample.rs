//! Which blocks are in a spatially hashed sample: a block's references are all in it, or none. Replays and recordings use the same
//! hash, so a sampled recording is the sample of the whole one.

use crate::Block;

/// A share of all blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    rate: f64,
    threshold: u64,
}

impl Share {
    /// About `rate` of the blocks, `0 < rate <= 1`; `None` for another rate.
    pub fn new(rate: f64) -> Option<Share> {
        // 2^64, to which the largest u64 rounds.
        (rate > 0.0 && rate <= 1.0).then_some(Share { rate, threshold: (rate * u64::MAX as f64) as u64 })
    }

    /// The share of the blocks that is aimed at.
    pub fn rate(self) -> f64 {
        self.rate
    }

    /// Whether `block` is among them.
    #[inline]
    pub fn takes(self, block: Block) -> bool {
        hash(block) <= self.threshold
    }
}

/// The finalizer of SplitMix64 over both halves of the identity.
#[inline]
pub(crate) fn hash(block: Block) -> u64 {
    let mut z = block.index ^ u64::from(block.volume).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
