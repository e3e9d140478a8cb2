//! The configuration of a host.

use std::io;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use nigh_backend::{ClientTlsSettings, RemoteLevel, ServerShare, Target, WriteLogSettings};
use nigh_content::Scheme;
use nigh_control::{Allocation, Config as Control, Limits};
use nigh_engine::{Config, Files, PortConfig, Scheduler, Tenants, WriteMode};
use nigh_policy::Spec;
use nigh_prefetch::Spec as ReadAhead;

/// Size of a block, in bytes.
pub const BLOCK: u64 = 4096;
/// Longest read or write of an engine: the frames that one client can hold while it sends or receives.
pub const PIECE: u64 = 256 << 10;
/// Most bytes of a pin.
pub const PIN_MOST: u64 = PIECE;
/// Long trims and zeroes, and what is fetched ahead on request, are charged to the rates of a disk in steps of this many bytes, each as a
/// request.
pub const STEP: u64 = 32 << 20;
/// Most disks at a time.
pub const DISKS_MAX: usize = 4096;
/// Most targets of a disk. Those of all disks, and the levels, are numbered in 16 bits.
pub const TARGETS_MAX: usize = 15;
/// Most levels.
pub const LEVELS_MAX: usize = 2;
/// Longest name of a tenant, in bytes.
pub(crate) const TENANT_NAME_MAX: usize = 255;
/// The pause between two steps of a change, in which others get the lock.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);
/// Number of blocks of a long device read that one call completes: as many as 64 KiB can touch.
pub(crate) const AT_ONCE: u32 = 17;
/// Files of a disk are numbered below this.
pub(crate) const FILES_MAX: u32 = 1 << 16;
/// Processors that share the lock of a shard if the number of shards is not given. Sharing costs 1 to 2 % of the hit
/// throughput; 16 processors at one lock would lose 12 % (`cargo xtask bench shards`: two measured, more by a
/// model).
const PROCESSORS_PER_SHARD: usize = 4;
/// The most threads that complete long reads.
const COMPLETERS_MOST: usize = 4;
/// The most bytes of a shard, if a smaller number of shards is not given.
const SHARD_BYTES_MOST: u64 = 8 << 30;
/// The least blocks of a shard, if a larger number of shards is not given.
const SHARD_BLOCKS: u64 = 1024;
/// With checksums, one of this many reads is checked.
const VERIFY: u32 = 64;

/// The number of threads that complete long reads: they occupy half of the processors at most.
pub(crate) fn completers() -> usize {
    available_parallelism().map_or(1, |processors| processors.get().div_ceil(2).min(COMPLETERS_MOST))
}

/// The most dirty blocks of a shard of `capacity` blocks.
fn dirty_blocks_max(capacity: u32) -> u32 {
    (capacity / 8).max(128)
}

/// A disk in the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSettings {
    /// Its name; no other disk of the host has it.
    pub name: String,
    /// Its target, or the first of them.
    pub target: Target,
    /// The further targets, in this order: the disk consists of its targets, one after the other. All but the last are
    /// whole blocks.
    pub next: Vec<Target>,
    /// The log that makes writes stable before they reach the target. A disk with a log has one target.
    pub write_log: Option<WriteLogSettings>,
    /// Writes are rejected.
    pub read_only: bool,
    /// When writes reach the device.
    pub write_mode: WriteMode,
    /// Requests per second; 0 for no limit.
    pub iops: u64,
    /// Bytes read and written per second; 0 for no limit.
    pub bandwidth: u64,
    /// With [`Settings::allocate`]: the tenant that is charged for its blocks. Disks with the same name here have the
    /// same tenant; without a name, the tenant has the name of the disk.
    pub tenant: Option<String>,
    /// With [`Settings::allocate`]: bytes of the cache that its tenant always keeps. The value of one disk of a tenant
    /// applies to all of them; 0 if another one has it.
    pub floor: u64,
    /// Likewise, the most bytes of the full cache that its tenant can have; 0 for no limit.
    pub ceiling: u64,
    /// Likewise, which of its blocks its tenant loses; without one, [`Settings::policy`].
    pub policy: Option<Spec>,
    /// With [`Settings::content`]: the disks with which it shares memory of equal and similar blocks: those with the same name
    /// here. Without a name, the disks of its tenant. The duration of a read reveals whether another disk of the group has its
    /// contents.
    pub share: Option<String>,
    /// Whether it is opened although another writer of a disk in an object store seems to live. It has no effect later.
    pub take_over: bool,
}

impl DiskSettings {
    /// `target` under the name `name`: written back, without limits.
    pub fn new(name: impl Into<String>, target: Target) -> DiskSettings {
        DiskSettings {
            name: name.into(),
            target,
            next: Vec::new(),
            write_log: None,
            read_only: false,
            write_mode: WriteMode::Back,
            iops: 0,
            bandwidth: 0,
            tenant: None,
            floor: 0,
            ceiling: 0,
            policy: None,
            share: None,
            take_over: false,
        }
    }

    /// Its targets, one after the other.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(&self.next)
    }

    /// Its targets and that of its write log: all that is opened for it.
    pub fn opened(&self) -> impl Iterator<Item = &Target> {
        self.targets().chain(self.write_log.iter().map(|log| &log.target))
    }

    /// The name of its tenant.
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(&self.name)
    }

    /// Whether it shares memory of equal and similar blocks with `other`.
    pub(crate) fn shares_with(&self, other: &DiskSettings) -> bool {
        self.share == other.share && (self.share.is_some() || self.tenant() == other.tenant())
    }

    /// Floor and ceiling in blocks.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        let blocks = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX - 1);
        let ceiling = if self.ceiling == 0 { 0 } else { (self.ceiling / BLOCK).max(1) };
        (blocks(self.floor.div_ceil(BLOCK)), blocks(ceiling))
    }
}

/// A level below the memory: a file on a device faster than those of the disks.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSettings {
    /// The file. It is created if it does not exist, and serves only as a level.
    pub target: Target,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Encoded blocks: part of the memory keeps what left the frames, equal and similar blocks once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentSettings {
    /// The scheme: which blocks are stored once, and how the rest is encoded.
    pub scheme: Scheme,
    /// The processor time for encoding, as a share of one processor.
    pub cpu: f64,
}

impl ContentSettings {
    /// Default of the processor time.
    pub const CPU: f64 = 0.25;
}

/// A level on other hosts, below all others: what level servers (`nigh level`) have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLevelSettings {
    /// The servers, with the bytes of the level that are on each. There is at least one.
    pub servers: Vec<ServerShare>,
    /// The name by which the servers know this host. Of two hosts with the same name, only the first has the level.
    pub client: String,
    /// With this, connections are encrypted, and servers know this host also by the name in its certificate.
    pub tls: Option<ClientTlsSettings>,
    /// Whether the start fails if a server cannot be reached. Otherwise it is used as soon as it can be.
    pub required: bool,
}

impl RemoteLevelSettings {
    /// Its servers as users write them, without sizes.
    pub fn name(&self) -> String {
        let names: Vec<String> = self.servers.iter().map(|share| self.name_of(share)).collect();
        names.join(" and ")
    }

    /// A server as users write it, without a size.
    pub fn name_of(&self, share: &ServerShare) -> String {
        format!("{}:{}", if self.tls.is_some() { "tls" } else { "tcp" }, share.address)
    }

    /// The bytes of the level.
    pub fn bytes(&self) -> u64 {
        self.servers.iter().map(|share| share.bytes).sum()
    }

    /// The level, number `number`: 1 if it is next to the memory.
    pub(crate) fn level(&self, number: u8) -> RemoteLevel {
        let RemoteLevelSettings { servers, client, tls, .. } = self.clone();
        RemoteLevel { servers, client, tls, number, block_bytes: BLOCK as u32 }
    }

    /// Connects once and disconnects, to find out whether the level can be used.
    pub fn probe(&self) -> io::Result<()> {
        self.level(1).probe()
    }
}

/// The list of the blocks in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmSettings {
    /// Its file, which is replaced; it is created if it does not exist.
    pub file: PathBuf,
    /// The time between two lists. One is kept at the end, too.
    pub every: Duration,
}

impl WarmSettings {
    /// A list in `file`, every minute.
    pub fn new(file: impl Into<PathBuf>) -> WarmSettings {
        WarmSettings { file: file.into(), every: Duration::from_secs(60) }
    }
}

/// The configuration of a host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory for the contents of blocks, in bytes.
    pub memory: u64,
    /// The most memory that a change at run time can request, in bytes.
    pub memory_max: u64,
    /// The policy; with `allocate`, that of each tenant that has none of its own.
    pub policy: Spec,
    /// If present, disks have tenants, and this decides which tenant loses a block. The cache is one shard then.
    pub allocate: Option<Allocation>,
    /// The most blocks of predicted accesses in one batch.
    pub batch: u32,
    /// Whether batches have one block on devices where large ones do not save time for each block ([`Control::adapt_batch`]).
    pub adapt_batch: bool,
    /// The window of the prefetch allowance of tenants, in blocks ([`Control::window`]); 0 switches the allowance off.
    pub prefetch_window: u32,
    /// The read-ahead for each client.
    pub readahead: ReadAhead,
    /// The order in which operations go to a device.
    pub scheduler: Scheduler,
    /// The most operations of each shard at one device at a time; further ones wait in the scheduler.
    pub depth: u32,
    /// When a block could not be written for this long, writes to it fail; when all writes of a disk have failed for this
    /// long, so do those that would have to wait for room.
    pub patience: Duration,
    /// Whether blocks in memory have checksums: they are compared before blocks are written to devices, and at some reads.
    pub verify: bool,
    /// Blocks that the curves sample of a cache of the present size, at least: the hit ratio with less and with more memory. If absent, by the memory
    /// ([`Settings::sampled`]); 0 for no curves.
    pub curves: Option<u32>,
    /// Parts of the cache, each with a lock of its own; if absent, chosen by the number of processors.
    pub shards: Option<usize>,
    /// If present, part of the memory holds encoded blocks. It counts as a level, the first one.
    pub content: Option<ContentSettings>,
    /// The levels, the fastest first: they hold blocks that left memory.
    pub levels: Vec<LevelSettings>,
    /// The level below those, on other hosts.
    pub remote_level: Option<RemoteLevelSettings>,
    /// If present, a file keeps the list of the blocks in memory, which are loaded again after a start.
    pub warm: Option<WarmSettings>,
    /// The disks at the start.
    pub disks: Vec<DiskSettings>,
}

/// Blocks of the cache for each that curves sample.
const SAMPLED_ONE_IN: u64 = 64;

/// Sampled blocks, at least.
const SAMPLED_LEAST: u32 = 512;

/// The largest default of `Settings::sampled`. Twice as many can be sampled, because shares are powers of two.
const SAMPLED_MOST: u32 = 8192;

impl Settings {
    /// Default of the operations of a shard at a device: high enough for a fast device.
    pub const DEPTH: u32 = 32;

    /// Default of the time for which a device may fail writes.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Default of the predicted blocks in one batch: ACFS, 5.3.
    pub const BATCH: u32 = 16;

    /// Default of the window of the prefetch allowance.
    pub const PREFETCH_WINDOW: u32 = Control::WINDOW;

    /// `disks` in `memory` bytes under `policy`.
    pub fn new(memory: u64, policy: Spec, disks: Vec<DiskSettings>) -> Settings {
        Settings {
            memory,
            memory_max: memory,
            policy,
            allocate: None,
            batch: Settings::BATCH,
            adapt_batch: false,
            prefetch_window: Settings::PREFETCH_WINDOW,
            readahead: ReadAhead::None,
            scheduler: Scheduler::default(),
            depth: Settings::DEPTH,
            patience: Settings::PATIENCE,
            verify: true,
            curves: None,
            shards: None,
            content: None,
            levels: Vec::new(),
            remote_level: None,
            warm: None,
            disks,
        }
    }

    /// The policy, or the allocation and the policy of its tenants, as text.
    pub(crate) fn decides(&self) -> String {
        match self.allocate {
            Some(allocation) => nigh_control::among_tenants(allocation, &self.policy),
            None => self.policy.to_string(),
        }
    }

    /// The number of shards that these settings give.
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

    /// Least number of blocks that the curves sample, if the cache has that many.
    pub fn sampled(&self) -> u32 {
        let blocks = (self.memory / BLOCK / SAMPLED_ONE_IN) as u32;
        self.curves.unwrap_or(blocks.clamp(SAMPLED_LEAST, SAMPLED_MOST))
    }

    /// The engine configuration of one shard.
    pub(crate) fn engine(&self) -> Config {
        let capacity = self.blocks_per_shard(self.memory);
        let mut config = Config::new(capacity, self.policy.clone());
        config.block_bytes = BLOCK as u32;
        config.curves = self.sampled().div_ceil(self.shards() as u32);
        config.verify = if self.verify { VERIFY } else { 0 };
        config.tenants = self.allocate.map(|allocation| Tenants {
            control: Control {
                allocation,
                batch: self.batch,
                adapt_batch: self.adapt_batch,
                window: self.prefetch_window,
                limits: Limits { tenants: DISKS_MAX as u32, ..Limits::default() },
                ..Control::default()
            },
            files: Files::default(),
        });
        config.capacity_max = self.blocks_per_shard(self.memory_max.max(self.memory));
        // A piece and the blocks it is merged with, several times.
        config.spare = (capacity / 32).clamp(256, 4096);
        if self.content.is_some() || !self.levels.is_empty() || self.remote_level.is_some() {
            config.storing = config.spare;
        }
        config.limits.request_bytes = PIECE as u32;
        // Blocks being loaded and dirty blocks cannot leave. Most of the cache can.
        config.limits.loading = (capacity / 4).clamp(256, 4096);
        config.limits.dirty = dirty_blocks_max(capacity);
        config.write_back.patience_us = self.patience.as_micros() as u64;
        config.write_back.start = config.limits.dirty / 2;
        config.write_back.stop = config.limits.dirty / 4;
        config
    }

    /// The most bytes that are not on devices yet, of all shards.
    pub(crate) fn dirty_limit(&self) -> u64 {
        self.shards() as u64 * u64::from(dirty_blocks_max(self.blocks_per_shard(self.memory))) * BLOCK
    }

    /// The port configuration of the engines.
    pub(crate) fn ports(&self) -> PortConfig {
        PortConfig { depth: self.depth, scheduler: self.scheduler, replays: false }
    }
}
