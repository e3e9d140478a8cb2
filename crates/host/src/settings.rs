//! How a host is set up.

use std::thread::available_parallelism;
use std::time::Duration;

use nigh_backend::Target;
use nigh_control::{Allocation, Config as Control, Limits};
use nigh_engine::{Config, Files, PortConfig, Scheduler, Tenants, WriteMode};
use nigh_policy::Spec;
use nigh_prefetch::Spec as ReadAhead;

/// Size of a block, in bytes.
pub const BLOCK: u64 = 4096;
/// Longest read or write of an engine: it is what one client can hold in frames while it sends or receives.
pub const PIECE: u64 = 256 << 10;
/// Most disks at a time.
pub const DISKS_MAX: usize = 4096;
/// Most targets of a disk. Those of all disks, and the levels, are numbered in 16 bits.
pub const TARGETS_MAX: usize = 15;
/// Most levels.
pub const LEVELS_MAX: usize = 2;
/// Longest name of a tenant, in bytes.
pub(crate) const TENANT_NAME_MAX: usize = 255;
/// Between two steps of a change, so that others get the lock.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);
/// Files of a disk are numbered below this.
pub(crate) const FILES_MAX: u32 = 1 << 16;
/// Processors that share the lock of a shard where nobody asked for another number of shards. That costs 1 to 2 % of the rate of
/// hits; 16 processors at one lock would lose 12 % (`cargo xtask bench shards`: two measured, more by a model).
const PROCESSORS_PER_SHARD: usize = 4;
/// A shard has at most so many bytes where nobody asked for fewer shards.
const SHARD_BYTES_MOST: u64 = 8 << 30;
/// A shard has at least so many blocks where nobody asked for more shards.
const SHARD_BLOCKS: u64 = 1024;

/// A disk in the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSettings {
    /// Its name; no other disk of the host has it.
    pub name: String,
    /// Where its blocks are, or the first of them.
    pub target: Target,
    /// Where it goes on, in this order: the disk is its targets, one after the other. All but the last are whole blocks.
    pub next: Vec<Target>,
    /// Writes are refused.
    pub read_only: bool,
    /// When writes reach the device.
    pub write_mode: WriteMode,
    /// Requests per second; 0 for no limit.
    pub iops: u64,
    /// Bytes read and written per second; 0 for no limit.
    pub bandwidth: u64,
    /// With [`Settings::allocate`]: who is charged for its blocks. Disks with the same name here are of one tenant; without
    /// one, the tenant has the disk's name.
    pub tenant: Option<String>,
    /// With [`Settings::allocate`]: bytes of the cache that its tenant keeps, whatever others do. What one disk of a tenant
    /// gives holds for all of them; 0 where another one gives it.
    pub floor: u64,
    /// In the same way: bytes of the full cache that its tenant has at most; 0 for no limit.
    pub ceiling: u64,
}

impl DiskSettings {
    /// `target` as `name`: written back, without limits.
    pub fn new(name: impl Into<String>, target: Target) -> DiskSettings {
        DiskSettings {
            name: name.into(),
            target,
            next: Vec::new(),
            read_only: false,
            write_mode: WriteMode::Back,
            iops: 0,
            bandwidth: 0,
            tenant: None,
            floor: 0,
            ceiling: 0,
        }
    }

    /// Its targets, one after the other.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(&self.next)
    }

    /// The name of its tenant.
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(&self.name)
    }

    /// Floor and ceiling in blocks.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        let blocks = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX - 1);
        let ceiling = if self.ceiling == 0 { 0 } else { (self.ceiling / BLOCK).max(1) };
        (blocks(self.floor.div_ceil(BLOCK)), blocks(ceiling))
    }
}

/// A level below the memory: a file on a faster device than the disks'.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSettings {
    /// The file. It is made where there is none, and is nothing but a level.
    pub target: Target,
    /// How many bytes it takes.
    pub bytes: u64,
}

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory for the contents of blocks, in bytes.
    pub memory: u64,
    /// How much memory a change while running can ask for, in bytes.
    pub memory_max: u64,
    /// Which block leaves.
    pub policy: Spec,
    /// With this, disks have tenants, and that is who decides which block leaves, instead of `policy`. The cache is one
    /// shard then.
    pub allocate: Option<Allocation>,
    /// The most blocks of predicted accesses that are fetched at a time.
    pub batch: u32,
    /// What is fetched ahead of the reads of each client.
    pub readahead: ReadAhead,
    /// In which order operations go to a device.
    pub scheduler: Scheduler,
    /// Operations of each shard at one device at a time; those beyond wait for the scheduler.
    pub depth: u32,
    /// Parts of the cache, each with a lock of its own; chosen by the number of processors if none.
    pub shards: Option<usize>,
    /// Where blocks are found again that left memory, the fastest first.
    pub levels: Vec<LevelSettings>,
    /// The disks at the start.
    pub disks: Vec<DiskSettings>,
}

impl Settings {
    /// Operations of a shard at a device unless said otherwise: those of a fast device are not held back.
    pub const DEPTH: u32 = 32;

    /// Predicted blocks that are fetched at a time unless said otherwise: ACFS, 5.3.
    pub const BATCH: u32 = 16;

    /// `disks` in `memory` bytes under `policy`.
    pub fn new(memory: u64, policy: Spec, disks: Vec<DiskSettings>) -> Settings {
        Settings {
            memory,
            memory_max: memory,
            policy,
            allocate: None,
            batch: Settings::BATCH,
            readahead: ReadAhead::None,
            scheduler: Scheduler::default(),
            depth: Settings::DEPTH,
            shards: None,
            levels: Vec::new(),
            disks,
        }
    }

    /// What decides which block leaves, in words.
    pub(crate) fn decides(&self) -> String {
        self.allocate.map_or_else(|| self.policy.to_string(), |allocation| allocation.to_string())
    }

    /// How many shards there will be.
    pub fn shards(&self) -> usize {
        if self.allocate.is_some() {
            return 1;
        }
        self.shards.unwrap_or_else(|| {
            let processors = available_parallelism().map_or(1, |processors| processors.get());
            let most = (self.memory / BLOCK / SHARD_BLOCKS).max(1) as usize;
            let least = self.memory.max(self.memory_max).div_ceil(SHARD_BYTES_MOST) as usize;
            (processors / PROCESSORS_PER_SHARD).max(1).min(most).max(least)
        })
    }

    /// Blocks of each shard in `memory` bytes.
    pub(crate) fn blocks_per_shard(&self, memory: u64) -> u32 {
        (memory / BLOCK / self.shards() as u64).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// How the engine of one shard is set up.
    pub(crate) fn engine(&self) -> Config {
        let capacity = self.blocks_per_shard(self.memory);
        let mut config = Config::new(capacity, self.policy.clone());
        config.block_bytes = BLOCK as u32;
        config.tenants = self.allocate.map(|allocation| Tenants {
            control: Control {
                allocation,
                batch: self.batch,
                limits: Limits { tenants: DISKS_MAX as u32, ..Limits::default() },
                ..Control::default()
            },
            files: Files::default(),
        });
        config.capacity_max = self.blocks_per_shard(self.memory_max.max(self.memory));
        // A piece and what it is merged with, several times over.
        config.spare = (capacity / 32).clamp(256, 4096);
        if !self.levels.is_empty() {
            config.storing = config.spare;
        }
        config.limits.request_bytes = PIECE as u32;
        config.limits.dirty = (capacity / 8).max(128);
        config.write_back.start = config.limits.dirty / 2;
        config.write_back.stop = config.limits.dirty / 4;
        config
    }

    /// How the engines' ports are set up.
    pub(crate) fn ports(&self) -> PortConfig {
        PortConfig { depth: self.depth, scheduler: self.scheduler }
    }
}
