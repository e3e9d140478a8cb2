//! A level: a file below the memory, or on other hosts, opened before the disks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_backend::{Device, Image, LevelFile, LevelLink, Options, PLACES, ServerState};
use nigh_engine::{LevelConfig, Port};
use nigh_policy::Spec;

use crate::disk::{has_file, same_file};
use crate::error::LevelError;
use crate::faults::Faults;
use crate::settings::{BLOCK, DiskSettings, LEVELS_MAX, LevelSettings, RemoteLevelSettings};
use crate::sync::lock;

/// After this many failed operations in a row of a shard, a level is switched off.
const FAULTS: u32 = 8;
/// Memory of a level's index, in bytes a block; slightly more than it really uses.
pub(crate) const INDEX: u64 = 25;
/// Memory of a policy that decides for levels, and of the list of usable places, in bytes a block.
const KNOWN: u64 = 35;
const LISTED: u64 = 8;

/// A level of the host. Each shard has a part of it.
pub(crate) struct Level {
    path: PathBuf,
    pub(crate) bytes: u64,
    /// The port to its device.
    port: Port,
    /// The number of blocks in each shard's part.
    pub(crate) part_blocks: u32,
    /// `None` before it starts, and after its index has been saved.
    pub(crate) file: Mutex<Option<LevelFile>>,
    /// Blocks from an earlier run.
    pub(crate) warm_blocks: AtomicU64,
    /// Set when its device failed: it is switched off.
    pub(crate) off: AtomicBool,
    /// The shards for which its device takes too long.
    pub(crate) late: AtomicU32,
    /// The disks for which a shard leaves it out, as far as that was logged, and for how long, in µs.
    left_out: Mutex<BTreeMap<String, u64>>,
    /// Of a level on another host.
    pub(crate) link: Option<Arc<LevelLink>>,
    /// Operations that its device failed.
    pub(crate) faults: Faults,
    /// Blocks that were not read as they were stored, and when that was logged last.
    mismatches: AtomicU64,
    told: Mutex<Option<Instant>>,
}

/// Pause of the log after it reported blocks that differ.
const SILENCE: Duration = Duration::from_secs(60);

/// The file of a level that has not started yet, and its saved index.
pub(crate) type Before = (LevelFile, Option<Image>);

/// A level that was opened.
pub(crate) struct Opened {
    pub(crate) level: Level,
    pub(crate) device: Box<dyn Device>,
    pub(crate) before: Before,
}

/// The state of a level at one moment. Counts are since its start, in blocks unless their names contain another unit.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LevelStatistics {
    /// Its file, or the addresses of its servers.
    pub path: String,
    /// Its configured size, in bytes.
    pub bytes: u64,
    /// The number of blocks that it can hold.
    pub blocks: u64,
    /// The number of blocks that it holds.
    pub stored: u64,
    /// Of these, blocks that memory or a level above holds, too; estimated from a sample of its places.
    #[serde(default)]
    pub duplicates: u64,
    /// Blocks that it held at the start, from an earlier run.
    pub warm_blocks: u64,
    /// Blocks that were loaded from it.
    pub hits: u64,
    /// Blocks that were stored in it.
    pub stores: u64,
    /// Of these, blocks that came from the level above.
    #[serde(default)]
    pub carried: u64,
    /// Blocks that were not stored, because too many were on their way.
    pub drops: u64,
    /// Blocks evicted to make room for others.
    pub evictions: u64,
    /// Blocks that it held when their contents changed.
    pub invalidations: u64,
    /// Blocks whose contents differed when they were read back; they were loaded from below.
    pub mismatches: u64,
    /// Reads from its device.
    pub reads: u64,
    /// The bytes of these.
    pub read_bytes: u64,
    /// Writes to its device.
    pub writes: u64,
    /// The bytes of these.
    pub written_bytes: u64,
    /// Operations that its device failed.
    pub faults: u64,
    /// Times that its device took too long for an operation, so that blocks were loaded from below, added up over the shards.
    #[serde(default)]
    pub late: u64,
    /// Times that it was left out for a while, because reads took longer there than from the disk, added up over the shards and disks.
    #[serde(default)]
    pub left_out: u64,
    /// Blocks that the server of a level on another host no longer had; also counted in `mismatches`.
    #[serde(default)]
    pub missed: u64,
    /// Connections to servers that were lost.
    #[serde(default)]
    pub lost: u64,
    /// Whether it was switched off, because its device failed, or has no connection to a server.
    pub off: bool,
    /// The servers of a level on other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<LevelServerStatistics>,
}

/// A server of a level at one moment.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LevelServerStatistics {
    /// HOST:PORT.
    pub address: String,
    /// Its share of the level, as configured.
    pub bytes: u64,
    /// Blocks that it no longer had.
    pub missed: u64,
    /// Connections that were lost.
    pub lost: u64,
    /// Whether there is no connection.
    pub off: bool,
}

impl LevelServerStatistics {
    pub(crate) fn of(state: &ServerState) -> LevelServerStatistics {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LevelServerStatistics {
            address: state.address.clone(),
            bytes: count(&state.bytes),
            missed: count(&state.missed),
            lost: count(&state.lost),
            off: state.is_off.load(Ordering::Acquire),
        }
    }
}

impl Level {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its file, or its servers at the moment.
    pub(crate) fn name(&self) -> String {
        let path = self.path.display().to_string();
        let Some(link) = &self.link else { return path };
        let transport = path.split(':').next().unwrap_or_default();
        let servers: Vec<String> = link.servers().iter().map(|of| format!("{transport}:{}", of.address)).collect();
        servers.join(" and ")
    }

    pub(crate) fn port(&self) -> Port {
        self.port
    }

    /// Its number in the engines.
    pub(crate) fn number(&self) -> usize {
        self.port.0.into()
    }

    /// The part of a shard, for its engine.
    pub(crate) fn part(&self, shard: u32) -> LevelConfig {
        // A level on another host is used again when there is a connection.
        let faults = if self.link.is_some() { u32::MAX } else { FAULTS };
        let offset = PLACES + u64::from(shard) * u64::from(self.part_blocks) * BLOCK;
        LevelConfig {
            port: self.port,
            offset,
            blocks: self.part_blocks,
            faults,
            patience_us: LevelConfig::PATIENCE_US,
            shared: self.link.is_some(),
            elastic: false,
        }
    }

    /// This many more blocks were not read as they were stored. Logged, unless their server no longer had them.
    pub(crate) fn note_mismatches(&self, more: u64) {
        let all = self.mismatches.fetch_add(more, Ordering::Relaxed) + more;
        let missed = self.link.as_ref().map_or(0, |link| link.missed.load(Ordering::Relaxed));
        let damaged = all.saturating_sub(missed);
        let mut told = lock(&self.told);
        if damaged > 0 && told.is_none_or(|told| told.elapsed() >= SILENCE) {
            *told = Some(Instant::now());
            let level = self.path.display();
            tracing::warn!(%level, damaged, "blocks were not read from the level as they were stored; they were loaded from below");
        }
    }

    /// A shard leaves it out for `disk` for this time, or uses it again (0). Returns whether to log that: once for all shards.
    pub(crate) fn note_left_out(&self, disk: &str, for_us: u64) -> bool {
        let mut told = lock(&self.left_out);
        if for_us == 0 {
            return told.remove(disk).is_some();
        }
        let before = told.insert(disk.to_owned(), for_us).unwrap_or(0);
        before < for_us
    }

    pub(crate) fn is_off(&self) -> bool {
        let is_cut_off = self.link.as_ref().is_some_and(|link| link.is_off.load(Ordering::Acquire));
        is_cut_off || self.off.load(Ordering::Acquire)
    }
}

/// Opens the levels below `above` others, each in a part for each shard. `memory` is what their indexes can take, in bytes, `each` for a
/// block. Their files are compared with those of `disks`, for no longer than `limit` each.
pub(crate) fn open(
    settings: &[LevelSettings],
    above: usize,
    shards: usize,
    memory: u64,
    each: u64,
    disks: &[DiskSettings],
    limit: Option<Duration>,
) -> Result<Vec<Opened>, LevelError> {
    if above + settings.len() > LEVELS_MAX {
        return Err(LevelError::Many);
    }
    let mut levels: Vec<Opened> = Vec::new();
    let mut left = memory;
    for (settings, number) in settings.iter().zip(above as u16..) {
        let path = settings.target.path().ok_or(LevelError::Memory)?;
        if let Some(disk) = disk_with(path, disks, limit) {
            return Err(LevelError::Disk { path: path.to_owned(), name: disk.name.clone() });
        }
        if levels.iter().any(|level| same_file(&level.level.path, path)) {
            return Err(LevelError::Twice(path.to_owned()));
        }
        let index = index_bytes(settings.bytes, each);
        left = left.checked_sub(index).ok_or_else(|| {
            let (index, left) = (index >> 20, left >> 20);
            LevelError::Index { path: path.to_owned(), index, left }
        })?;
        let (file, image) = LevelFile::open(path, settings.bytes, BLOCK as u32, shards as u32)?;
        let device = settings.target.open(&Options { block_bytes: BLOCK as u32, ..Options::default() })?;
        let part_blocks = u32::try_from(file.part_blocks()).unwrap_or(u32::MAX);
        let level = Level {
            path: path.to_owned(),
            bytes: settings.bytes,
            port: Port(number),
            part_blocks,
            file: Mutex::default(),
            warm_blocks: AtomicU64::new(0),
            off: AtomicBool::new(false),
            late: AtomicU32::new(0),
            left_out: Mutex::default(),
            link: None,
            faults: Faults::default(),
            mismatches: AtomicU64::new(0),
            told: Mutex::default(),
        };
        levels.push(Opened { level, device, before: (file, image) });
    }
    Ok(levels)
}

/// Memory of the index of a level of `bytes`.
pub(crate) fn index_bytes(bytes: u64, each: u64) -> u64 {
    bytes / BLOCK * each
}

/// That of a block of a level, in bytes, including what a policy that decides for levels knows of this block and of others.
pub(crate) fn index_of_block(policy: &Spec) -> u64 {
    const MANY: u32 = 1 << 20;
    if !policy.is_unified() {
        return INDEX;
    }
    let ghosts = nigh_policy::ghosts(policy, MANY).unwrap_or(u32::MAX);
    INDEX + LISTED + KNOWN + KNOWN * u64::from(ghosts) / u64::from(MANY)
}

/// Opens the level on other hosts, below `above` others. `memory` is what its index can take, in bytes, `each` for a block.
pub(crate) fn open_remote(
    settings: &RemoteLevelSettings,
    above: usize,
    shards: usize,
    memory: u64,
    each: u64,
) -> Result<(Level, Box<dyn Device>), LevelError> {
    if above >= LEVELS_MAX {
        return Err(LevelError::Many);
    }
    let path = PathBuf::from(settings.name());
    let bytes = settings.bytes();
    let index = index_bytes(bytes, each);
    if index > memory {
        return Err(LevelError::Index { path, index: index >> 20, left: memory >> 20 });
    }
    let part_blocks = u32::try_from(bytes / BLOCK / shards as u64).unwrap_or(u32::MAX);
    if part_blocks == 0 {
        return Err(LevelError::Small { path });
    }
    let opened = settings.level(above as u8 + 1).open(PLACES + bytes, settings.required);
    let (device, link) = opened.map_err(LevelError::Server)?;
    let level = Level {
        path,
        bytes,
        port: Port(above as u16),
        part_blocks,
        file: Mutex::default(),
        warm_blocks: AtomicU64::new(0),
        off: AtomicBool::new(false),
        late: AtomicU32::new(0),
        left_out: Mutex::default(),
        link: Some(link),
        faults: Faults::default(),
        mismatches: AtomicU64::new(0),
        told: Mutex::default(),
    };
    Ok((level, device))
}

/// The disk of which this is a file. One whose device does not respond within `limit` is compared when it is opened.
fn disk_with<'a>(path: &Path, disks: &'a [DiskSettings], limit: Option<Duration>) -> Option<&'a DiskSettings> {
    let Some(limit) = limit else { return disks.iter().find(|disk| has_file(disk, path)) };
    let (sender, found) = channel();
    for (at, disk) in disks.iter().enumerate() {
        let (of, level, sender) = (disk.clone(), path.to_owned(), sender.clone());
        let compare = move || {
            if has_file(&of, &level) {
                // After the limit, nobody waits.
                let _ = sender.send(at);
            }
        };
        if Builder::new().name("opening".into()).spawn(compare).is_err() {
            return disks.iter().find(|disk| has_file(disk, path));
        }
    }
    drop(sender);
    // Ends when all have answered.
    found.recv_timeout(limit).ok().map(|at| &disks[at])
}
