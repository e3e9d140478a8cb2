//! How an engine is set up, and what limits it keeps.

use nigh_policy::Spec;

use crate::error::ConfigError;
use crate::files::Files;
use crate::slots::FRAMES_MOST;

/// How tenants share a cache, in place of a policy.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    /// Who gives up a block, which one, and what is fetched ahead.
    pub control: nigh_control::Config,
    /// What tenants call a file.
    pub files: Files,
}

/// How an engine is set up. Counts are in blocks unless their names say otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    /// Size of a block: a power of two, at least 512.
    pub block_bytes: u32,
    /// How many blocks the policy may keep resident.
    pub capacity: u32,
    /// How far `Engine::resize` can go; address space is reserved for it.
    pub capacity_max: u32,
    /// Frames beyond `capacity`: for what is pinned, dirty or being filled and not resident.
    pub spare: u32,
    /// Frames beyond these for blocks on their way to levels, so that nobody else waits for levels.
    pub storing: u32,
    /// Which block leaves.
    pub policy: Spec,
    /// How tenants share the cache, and that is who decides then instead of `policy`.
    pub tenants: Option<Tenants>,
    /// What is never exceeded.
    pub limits: Limits,
    /// When dirty blocks are written without being asked for.
    pub write_back: WriteBack,
    /// Blocks have the same slots in each run, for simulations. Whoever chooses which blocks are referenced can then fill a
    /// bucket of the index.
    pub fixed_hash: bool,
}

/// What an engine never exceeds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests in progress, those waiting included. Hits are not counted.
    pub requests: u32,
    /// Length of a read or write.
    pub request_bytes: u32,
    /// Blocks being loaded.
    pub loading: u32,
    /// Of these, blocks that nobody waits for.
    pub prefetching: u32,
    /// Length of one device read or write.
    pub operation_bytes: u32,
    /// Dirty blocks, those about to be filled included: writes wait beyond. Where the capacity changes, this and the marks
    /// of `WriteBack` change in proportion, but a request always has room.
    pub dirty: u32,
}

/// When dirty blocks are written without being asked for.
#[derive(Clone, Debug)]
pub struct WriteBack {
    /// Write-back begins above this many dirty blocks,
    pub start: u32,
    /// and ends below this many.
    pub stop: u32,
    /// Or when the oldest dirty block has waited for so long.
    pub age_us: u64,
    /// After a failed write, the volume's next attempt waits for so long, unless a flush asks for it.
    pub retry_us: u64,
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
    /// The usual set-up for `capacity` blocks of 4 KiB: an eighth of them may be dirty.
    pub fn new(capacity: u32, policy: Spec) -> Config {
        let dirty = (capacity / 8).max(512);
        Config {
            block_bytes: 4096,
            capacity,
            capacity_max: capacity,
            spare: (capacity / 32).clamp(1024, 16384),
            storing: 0,
            policy,
            tenants: None,
            limits: Limits {
                requests: 1024,
                request_bytes: 1 << 20,
                loading: 4096,
                prefetching: (capacity / 8).clamp(32, 512),
                operation_bytes: 1 << 20,
                dirty,
            },
            write_back: WriteBack { start: dirty / 2, stop: dirty / 4, age_us: 5_000_000, retry_us: 1_000_000 },
            fixed_hash: false,
        }
    }

    /// Whether the parts fit together; what does not is named.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what| Err(ConfigError::Impossible { what });
        if !self.block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&self.block_bytes) {
            return wrong("block_bytes is a power of two from 512 to 1 MiB");
        }
        if self.capacity == 0 || self.capacity > self.capacity_max {
            return wrong("capacity is from 1 to capacity_max");
        }
        let frames = u64::from(self.capacity_max) + u64::from(self.spare) + u64::from(self.storing);
        if frames > u64::from(FRAMES_MOST) {
            return wrong("capacity_max, spare and storing make less than 2^24 frames, 64 GiB in blocks of 4 KiB");
        }
        let limits = &self.limits;
        if limits.requests == 0 {
            return wrong("limits.requests is at least 1");
        }
        if limits.operation_bytes < self.block_bytes {
            return wrong("limits.operation_bytes is at least a block");
        }
        // Two more are loaded to be merged with.
        let request = self.request_blocks();
        if limits.request_bytes == 0 || request + 2 > self.spare {
            return wrong("spare holds the largest request and three blocks more");
        }
        if request > limits.loading || request > limits.dirty {
            return wrong("limits.loading and limits.dirty hold the largest request and a block more");
        }
        if self.write_back.stop > self.write_back.start || self.write_back.start > limits.dirty {
            return wrong("write_back.stop <= write_back.start <= limits.dirty");
        }
        Ok(())
    }

    /// The blocks of the largest request: it can touch one more than its length says.
    fn request_blocks(&self) -> u32 {
        self.limits.request_bytes.div_ceil(self.block_bytes) + 1
    }

    /// The bounds on dirty blocks of a cache of `capacity` blocks: those that are set, in proportion. They stay below the
    /// capacity, unless they were set higher.
    pub(crate) fn marks(&self, capacity: u32) -> Marks {
        let (set, request) = (self.limits.dirty, self.request_blocks());
        let proportion = u64::from(set) * u64::from(capacity) / u64::from(self.capacity);
        let most = proportion.min(set.max(capacity).into()).max(request.into()) as u32;
        let scaled = |count| (u64::from(count) * u64::from(most) / u64::from(set)) as u32;
        Marks { most, start: scaled(self.write_back.start), stop: scaled(self.write_back.stop) }
    }
}
