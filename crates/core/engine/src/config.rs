//! The configuration and the limits of an engine.

use nigh_control::Refusal;
use nigh_policy::{Spec, SpecError};

use crate::error::ConfigError;
use crate::files::Files;
use crate::slots::FRAMES_MOST;

/// How tenants share a cache.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    /// The owners of blocks, the choice of victims, and prefetches.
    pub control: nigh_control::Config,
    /// The files of tenants.
    pub files: Files,
}

/// The configuration of an engine. Counts are in blocks unless their names contain another unit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Size of a block: a power of two, at least 512.
    pub block_bytes: u32,
    /// The number of blocks that the policy may keep resident.
    pub capacity: u32,
    /// The limit of `Engine::resize`; address space is reserved for it.
    pub capacity_max: u32,
    /// Frames beyond `capacity`: for blocks that are pinned, dirty or being filled and not resident.
    pub spare: u32,
    /// Further frames for blocks on their way to levels, so that nothing else waits for levels. Each level has an equal part.
    pub storing: u32,
    /// The policy, which decides which block leaves; with tenants, that of each tenant that has none of its own.
    pub policy: Spec,
    /// The blocks of each level that will be added, if the policy decides for levels, too; else nothing.
    pub levels: Vec<u32>,
    /// How tenants share the cache; if present, it decides which tenant loses a block.
    pub tenants: Option<Tenants>,
    /// Limits that are never exceeded.
    pub limits: Limits,
    /// When dirty blocks are written in the background.
    pub write_back: WriteBack,
    /// Frames have checksums: they are compared before a frame is written to a device, and at each read after this many
    /// others. 0 for none.
    pub verify: u32,
    /// Blocks have the same slots in each run, for simulations. A client that chooses which blocks are referenced could
    /// then fill a bucket of the index.
    pub fixed_hash: bool,
    /// Prefetched blocks enter the policy when they are fetched, as in published systems. Otherwise they wait beside it for their first
    /// use. Ignored with tenants and with unified policies, which have rules of their own.
    pub into_policy: bool,
    /// The cache, or each tenant, has a curve: the hit ratio that it would have with less and with more memory. At least this many blocks are sampled of a cache, if it has so
    /// many. 0 for no curves.
    pub curves: u32,
}

/// Limits that an engine never exceeds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests in progress, those waiting included. Hits are not counted.
    pub requests: u32,
    /// Length of a read or write.
    pub request_bytes: u32,
    /// Blocks being loaded.
    pub loading: u32,
    /// Of these, blocks that no request waits for.
    pub prefetching: u32,
    /// Length of one device read or write.
    pub operation_bytes: u32,
    /// Dirty blocks, including those about to be filled: beyond the limit, writes wait. If the capacity changes, this
    /// limit and the marks of `WriteBack` change in proportion, but a request always has room.
    pub dirty: u32,
}

/// When dirty blocks are written in the background.
#[derive(Clone, Debug)]
pub struct WriteBack {
    /// Write-back begins above this many dirty blocks,
    pub start: u32,
    /// and ends below this many.
    pub stop: u32,
    /// Write-back also begins when the oldest dirty block reaches this age.
    pub age_us: u64,
    /// The delay after a failed write before the block's next attempt, unless a request waits for it.
    pub retry_us: u64,
    /// When a block could not be written for this long, writes to it fail; when all writes of a volume have failed for this
    /// long, so do those that would have to wait for room.
    pub patience_us: u64,
    /// The engine flushes a device by itself after it wrote this many blocks of a volume there since the last flush.
    pub unflushed: u32,
}

/// Bounds on dirty blocks at a certain capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// As `Limits::dirty`.
    pub(crate) most: u32,
    /// As `WriteBack::start`.
    pub(crate) start: u32,
    /// As `WriteBack::stop`.
    pub(crate) stop: u32,
}

impl Config {
    /// The usual configuration for `capacity` blocks of 4 KiB: up to an eighth of them may be dirty.
    pub fn new(capacity: u32, policy: Spec) -> Config {
        let dirty = (capacity / 8).max(512);
        Config {
            block_bytes: 4096,
            capacity,
            capacity_max: capacity,
            spare: (capacity / 32).clamp(1024, 16384),
            storing: 0,
            policy,
            levels: Vec::new(),
            tenants: None,
            limits: Limits {
                requests: 1024,
                request_bytes: 1 << 20,
                loading: 4096,
                prefetching: (capacity / 4).clamp(32, 512),
                operation_bytes: 1 << 20,
                dirty,
            },
            write_back: WriteBack {
                start: dirty / 2,
                stop: dirty / 4,
                age_us: 5_000_000,
                retry_us: 1_000_000,
                patience_us: 5_000_000,
                // 32 MiB, unless the cache is small.
                unflushed: (capacity / 4).clamp(1024, 8192),
            },
            verify: 0,
            fixed_hash: false,
            into_policy: false,
            curves: 0,
        }
    }

    /// Checks that the settings are consistent; the error names the one that is not.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what| Err(ConfigError::Impossible { what });
        if !self.block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.block_bytes) {
            return wrong("block_bytes must be a power of two from 512 B to 1 MiB");
        }
        if self.capacity == 0 || self.capacity > self.capacity_max {
            return wrong("capacity must be from 1 to capacity_max");
        }
        let frames = u64::from(self.capacity_max) + u64::from(self.spare) + u64::from(self.storing);
        if frames > u64::from(FRAMES_MOST) {
            return wrong(
                "capacity_max, spare and storing together must be less than 2^24 frames (64 GiB in blocks of 4 KiB)",
            );
        }
        if self.tenants.is_some() && self.policy.is_unified() {
            return Err(Refusal::Unified { policy: self.policy.clone() }.into());
        }
        if !self.levels.is_empty() && !self.policy.is_unified() {
            return wrong("only a policy that decides for levels is told their sizes");
        }
        if self.levels.is_empty() && self.policy.is_unified() {
            return Err(SpecError::NeedsLevels { policy: self.policy.info().name }.into());
        }
        if self.levels.contains(&0) {
            return wrong("a level must have blocks");
        }
        let limits = &self.limits;
        if limits.requests == 0 {
            return wrong("limits.requests must be at least 1");
        }
        if limits.operation_bytes < self.block_bytes {
            return wrong("limits.operation_bytes must be at least a block");
        }
        // Two more are loaded to be merged with.
        let request = self.request_blocks();
        if limits.request_bytes == 0 || request + 2 > self.spare {
            return wrong("spare must hold the largest request and three blocks more");
        }
        if request > limits.loading || request > limits.dirty {
            return wrong("limits.loading and limits.dirty must each hold the largest request and a block more");
        }
        if self.write_back.unflushed == 0 {
            return wrong("write_back.unflushed must be at least 1");
        }
        if self.write_back.stop > self.write_back.start || self.write_back.start > limits.dirty {
            return wrong("write_back.stop <= write_back.start <= limits.dirty");
        }
        Ok(())
    }

    /// The most blocks of a request: it can touch one more than its length in blocks.
    pub(crate) fn request_blocks(&self) -> u32 {
        self.limits.request_bytes.div_ceil(self.block_bytes) + 1
    }

    /// The limits on dirty blocks of a cache of `capacity` blocks: the configured limits, in proportion. They stay
    /// below the capacity, unless they were configured higher.
    pub(crate) fn marks(&self, capacity: u32) -> Marks {
        let (set, request) = (self.limits.dirty, self.request_blocks());
        let proportion = u64::from(set) * u64::from(capacity) / u64::from(self.capacity);
        let most = proportion.min(set.max(capacity).into()).max(request.into()) as u32;
        let scaled = |count| (u64::from(count) * u64::from(most) / u64::from(set)) as u32;
        Marks { most, start: scaled(self.write_back.start), stop: scaled(self.write_back.stop) }
    }
}
