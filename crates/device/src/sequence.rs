//! What a device takes for blocks that lie together.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fit::run_on;
use crate::measure::{Batch, Purpose};
use crate::{Device, Profile};

/// Reads of each length.
const READS: usize = 4096;
/// As many blocks as DULO's longest sequence has.
const LONG: u64 = 128;

/// The time of one read of n blocks that lie together, anywhere on an idle device: on average `position_ms + n * block_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequenceCost {
    /// To get there.
    pub position_ms: f64,
    /// For each block.
    pub block_ms: f64,
}

impl SequenceCost {
    /// That of the model of `profile`, for blocks of `block_bytes`.
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
