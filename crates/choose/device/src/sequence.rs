//! The time of a device for contiguous blocks.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fit::run_on;
use crate::measure::{Batch, Purpose};
use crate::{Device, Profile};

/// Number of reads of each length.
const READS: usize = 4096;
/// The number of blocks in DULO's longest sequence.
const LONG: u64 = 128;

/// The time of one read of n contiguous blocks, anywhere on an idle device: on average `position_ms + n * block_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequenceCost {
    /// The time for positioning.
    pub position_ms: f64,
    /// The time for each block.
    pub block_ms: f64,
}

impl SequenceCost {
    /// The time for blocks of `block_bytes` in the model of `profile`.
    pub fn of(profile: &Profile, block_bytes: u32) -> SequenceCost {
        let block = u64::from(block_bytes);
        let mean_ms = |blocks: u64| {
            let bytes = (blocks * block).min(profile.bytes());
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut place = || random.random_range(0..=(profile.bytes() - bytes) / block) * block;
            let reads = (0..READS).map(|_| (place(), bytes)).collect();
            let batch = Batch { purpose: Purpose::Distance, reads, outstanding: 1 };
            run_on(&mut Device::new(profile, 1), &mut 0, &batch).total_ns as f64 / 1e6 / READS as f64
        };
        let (one, long) = (mean_ms(1), mean_ms(LONG));
        let block_ms = (long - one) / (LONG - 1) as f64;
        SequenceCost { position_ms: one - block_ms, block_ms }
    }
}
