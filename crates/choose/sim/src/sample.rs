//! Spatially hashed sampling of blocks: SHARDS with the adjustment of SHARDS-adj.
//!
//! Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with SHARDS, FAST 2015. A block is in the sample
//! when its hash lies below a threshold, so all its references are, or none. A cache of size C is replayed over the
//! sample with R × C blocks. The sample rarely holds exactly R × N of the N references; section 3.4 of the paper
//! credits the difference to the smallest sizes, where the very hot blocks that make it would have hit.

use nigh_policy::{Block, Share};

/// Which blocks are in the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample(Share);

/// With fewer sampled blocks than this, the error is larger than the paper measured at any rate.
pub const BLOCKS_LEAST: usize = 10_000;

impl Sample {
    /// A sample of about `rate` of the blocks, `0 < rate <= 1`; `None` for another rate.
    pub fn new(rate: f64) -> Option<Sample> {
        Share::new(rate).map(Sample)
    }

    /// The share of the blocks that the sample aims at.
    pub fn rate(self) -> f64 {
        self.0.rate()
    }

    /// Whether `block` is in the sample.
    #[inline]
    pub fn takes(self, block: Block) -> bool {
        self.0.takes(block)
    }

    /// The size at which a cache of `size` blocks is replayed over the sample; at least 1.
    pub fn scaled(self, size: u32) -> u32 {
        ((f64::from(size) * self.rate()).round() as u32).max(1)
    }

    /// Of the blocks that a cache of `size` holds, R × size are in the sample, give or take one standard deviation:
    /// the scaled sizes at both ends of that, from which the error of a replay at [`Sample::scaled`] is estimated.
    pub fn around(self, size: u32) -> [u32; 2] {
        let deviation = (f64::from(size) * self.rate() * (1.0 - self.rate())).sqrt();
        let scaled = f64::from(size) * self.rate();
        [(scaled - deviation).round().max(1.0) as u32, ((scaled + deviation).round() as u32).max(1)]
    }

    /// The miss ratio of a trace of `references`, of which the blocks of this sample have these `misses`.
    pub fn estimate(self, references: f64, misses: &Misses) -> Estimate {
        let expected = references * self.rate();
        // Each block is in the sample with probability R, independently of the others: misses / R is the
        // Horvitz-Thompson estimate of the misses of the whole trace, with a variance of (1 - R) / R² Σ misses².
        let of_blocks = (1.0 - self.rate()) * misses.squared;
        let of_size = (misses.around[0].abs_diff(misses.around[1]) as f64 / 2.0).powi(2);
        let error = 1.96 * (of_blocks + of_size).sqrt() / expected;
        Estimate { miss_ratio: (misses.counted as f64 / expected).min(1.0), error }
    }
}

/// The misses of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// At the scaled size.
    pub counted: u64,
    /// The sum of the squares of the misses of each block.
    pub squared: f64,
    /// At the two sizes of [`Sample::around`].
    pub around: [u64; 2],
}

/// A miss ratio estimated from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimated miss ratio of the whole trace.
    pub miss_ratio: f64,
    /// Half the width of its 95 % confidence interval: which blocks are in the sample makes their misses vary, and how
    /// many of those that a cache holds.
    pub error: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_about_its_rate() {
        let sample = Sample::new(0.1).unwrap();
        let taken = (0..100_000).filter(|&index| sample.takes(Block { volume: 2, index })).count();
        assert!((9_700..10_300).contains(&taken), "{taken}");
    }

    #[test]
    fn everything_is_exact() {
        let all = Sample::new(1.0).unwrap();
        assert!((0..1_000).all(|index| all.takes(Block { volume: 0, index })));
        let misses = Misses { counted: 250, squared: 900.0, around: [250, 250] };
        assert_eq!(all.around(77), [77, 77]);
        assert_eq!(all.estimate(1_000.0, &misses), Estimate { miss_ratio: 0.25, error: 0.0 });
        assert_eq!(Sample::new(0.0), None);
        assert_eq!(Sample::new(1.1), None);
        assert_eq!(Sample::new(f64::NAN), None);
    }
}
