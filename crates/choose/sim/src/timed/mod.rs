//! Timed simulation: programs take turns at a cache on a modelled device, under a virtual clock.
//!
//! A program in a closed loop computes for its think time, issues a request, and waits until it has the reply; one in an open loop
//! issues each request at its time. Programs compute independently, as if each had a processor, or share one ([`Processors`]).
//! The cache is the engine that `nigh serve` runs, unchanged; the device is one of `nigh-device`.

mod devices;
mod encoded;
mod figures;
mod latency;
mod load;
mod processor;
mod program;
mod sequences;
mod world;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};

use nigh_content::{BLOCK_BYTES, Scheme};
use nigh_control::{Refusal, Statistics};
use nigh_device::{BeyondEnd, Profile};
use nigh_engine::{Config, ConfigError, Counters, Files, LevelCounters, Piece, Scheduler, Tenants, Volume};
use nigh_policy::Spec;
use nigh_trace::layout::{Extent, Layout};

use crate::contents::Source;
use crate::threads::in_threads;
use crate::warmup::{Warmup, WarmupError};
use encoded::EncodedLevel;

pub use devices::{DeviceError, Devices, VolumeDevice, profile};
pub use figures::{Figures, Latency, Subject, seconds};
pub use latency::Latencies;
pub use load::{Loaded, ProgramError, Programs, Recorded};
pub use processor::Processors;
pub use program::{
    DISKS_MOST, NoPacing, NoThink, Pace, Pacing, Program, Recorder, SPEED_MOST, Said, Step, Think, TooManyVolumes,
    Volumes, What,
};
pub use sequences::Sequences;

/// Settings that all runs of one simulation have in common.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The programs, which begin together.
    pub programs: &'a [Program],
    /// Bytes in a block: a power of two from 512 to 1 MiB.
    pub block_bytes: u32,
    /// The disks that programs go to, by number; at most [`DISKS_MOST`].
    pub disks: &'a [Disk<'a>],
    /// Levels for clean blocks that left memory, the highest first; at most two.
    pub levels: &'a [Level<'a>],
    /// Above the levels, a part of the memory that stores equal contents once, and others as differences or compressed.
    pub encoded: Option<Encoded<'a>>,
    /// Decides what of the devices is random.
    pub seed: u64,
    /// The read-ahead.
    pub readahead: &'a nigh_prefetch::Spec,
    /// In which order requests go to a device.
    pub scheduler: Scheduler,
    /// How programs share the cache, each a tenant; then their directives count, and no policy does.
    pub tenants: Option<&'a nigh_control::Config>,
    /// Processors of the programs.
    pub processors: Processors,
    /// Processor time of each block that a device reads or writes, in ns: the program that computes next waits for
    /// it.
    pub processor_ns_a_block: u64,
    /// References to blocks, by all programs together, before anything is counted: fewer than there are.
    pub warmup: u64,
    /// Grows with the programs' steps.
    pub progress: Option<&'a AtomicU64>,
    /// Once it is true, runs end with [`TimedError::Stopped`].
    pub stop: Option<&'a AtomicBool>,
}

/// A disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk<'a> {
    /// The device.
    pub profile: &'a Profile,
    /// Which file has which place on it, for each program or for all: then files are read ahead. If there is none, the
    /// disk is. A file is on one disk, and to tenants it has its number here, so they have one layout for all; to tenants
    /// a disk without a layout is a file, if no disk has one.
    pub layouts: &'a [Layout],
}

/// A level between memory and the disks.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// Its device, which is no disk's.
    pub profile: &'a Profile,
    /// How much of the device it uses, from its beginning on; part of a block is left over.
    pub bytes: u64,
}

/// Encoded blocks: `nigh serve --content`, in a group of all disks.
#[derive(Clone, Debug)]
pub struct Encoded<'a> {
    /// Contents of the disks.
    pub source: &'a Source,
    /// The number of each disk in `source`.
    pub volumes: &'a [u32],
    /// Seed of the contents of writes.
    pub seed: u64,
    /// Scheme: which blocks are stored once, and how the rest is encoded.
    pub scheme: Scheme,
    /// The share of one processor in which blocks are encoded, 0.01 to 1. No program computes with this one.
    pub cpu: f64,
}

/// Counts of encoded blocks in a run, and their state at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedOutcome {
    /// Counters of the cache.
    pub cache: LevelCounters,
    /// Pages of the memory that they had at the end. Frames had the rest.
    pub lent_pages: u64,
    /// Of the blocks that left the frames, one of this many was encoded at the end.
    pub one_of: u32,
    /// Encoded blocks.
    pub blocks: u64,
    /// Their contents.
    pub contents: u32,
    /// Contents that are stored as differences.
    pub differences: u32,
    /// Blocks that were encoded.
    pub encoded: u64,
    /// How long that took, in ns.
    pub encode_ns: u64,
    /// Blocks that found no room.
    pub rejected: u64,
    /// Blocks that were decoded.
    pub decoded: u64,
    /// How long that took, in ns.
    pub decode_ns: u64,
    /// Blocks whose content had left when it was asked for; they were loaded from below.
    pub missing: u64,
}

/// Results of one level in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelOutcome {
    /// Counters of the cache.
    pub cache: LevelCounters,
    /// Counters of its device, until the last program ended.
    pub device: nigh_device::Counters,
}

/// Results of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When each program had its last reply, in ns from the common beginning, or from the end of the warm-up.
    pub ends_ns: Vec<u64>,
    /// How long each of them waited for replies, in ns.
    pub waited_ns: Vec<u64>,
    /// How long the reads of all programs took.
    pub reads: Latencies,
    /// How long their writes took.
    pub writes: Latencies,
    /// How long after its last request was due a program in an open loop had its last reply, in ns: the most of all.
    pub behind_ns: u64,
    /// Whether all programs are closed loops.
    pub is_closed: bool,
    /// Whether a program in an open loop ever had [`IN_FLIGHT`] requests in progress, so that the next had to wait for one of them.
    pub was_held: bool,
    /// Counters of the cache.
    pub cache: Counters,
    /// Statistics of each program as a tenant; none in a cache without tenants.
    pub tenants: Vec<Statistics>,
    /// Counters of the disks' devices, all together, until the last program ended.
    pub device: nigh_device::Counters,
    /// The same of each disk.
    pub disks: Vec<nigh_device::Counters>,
    /// Results of encoded blocks, if there were any.
    pub encoded: Option<EncodedOutcome>,
    /// Results of each level.
    pub levels: Vec<LevelOutcome>,
    /// The blocks that were read from a disk's device, by the length of the sequence that they were part of.
    pub sequences: Sequences,
}

impl Setup<'_> {
    /// The references of all programs.
    pub fn references(&self) -> u64 {
        let steps = self.programs.iter().flat_map(|program| &program.steps);
        steps.map(|step| step.references(self.block_bytes)).sum()
    }
}

impl Outcome {
    /// When the last program ended, in ns.
    pub fn execution_ns(&self) -> u64 {
        self.ends_ns.iter().copied().max().unwrap_or(0)
    }

    /// Whether requests of an open loop came faster than they could be replied to: the last reply came late by more than a twentieth
    /// of the whole time, or too many requests were in progress while a device worked nearly all the time.
    pub fn is_overloaded(&self) -> bool {
        let whole_ns = self.execution_ns();
        let devices = self.disks.iter().chain(self.levels.iter().map(|level| &level.device));
        let busiest_ns = devices.map(|device| device.busy_ns).max().unwrap_or(0);
        self.behind_ns > whole_ns / 20 || (self.was_held && busiest_ns > whole_ns / 20 * 19)
    }

    /// How long the reads and writes of all programs took.
    pub fn latencies(&self) -> Latencies {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        all
    }

    /// The share of the references that found their block in the cache, or on its way there.
    pub fn hit_ratio(&self) -> f64 {
        let Counters { hits, joined, misses, .. } = self.cache;
        let references = hits + joined + misses;
        if references == 0 { 0.0 } else { (hits + joined) as f64 / references as f64 }
    }
}

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TimedError {
    /// A program refers to what the device does not have.
    #[error("{program}: {beyond}")]
    Beyond {
        /// Its name.
        program: String,
        /// Its request beyond the end.
        beyond: BeyondEnd,
    },
    /// Nothing is left to count.
    #[error("a warm-up of {0}")]
    Warmup(WarmupError),
    /// It was stopped.
    #[error("stopped")]
    Stopped,
    /// A level cannot be so large or so small.
    #[error(
        "a level of {bytes} bytes: expected at most the {device_bytes} bytes of its device, and from 1 to \
         {LEVEL_BLOCKS_MOST} blocks of {block_bytes} bytes"
    )]
    Level {
        /// Its size.
        bytes: u64,
        /// The size of its device.
        device_bytes: u64,
        /// Bytes in a block.
        block_bytes: u32,
    },
    /// An extent of a layout does not consist of whole blocks.
    #[error("file {}: its extent at {} of the disk does not begin with a block of {block_bytes} bytes", .extent.file, .extent.disk)]
    Misaligned {
        /// It.
        extent: Extent,
        /// Bytes in a block.
        block_bytes: u32,
    },
    /// A directive of a program is rejected.
    #[error("{program}, before request {step} of those replayed: {refusal}")]
    Refused {
        /// Its name.
        program: String,
        /// The step before which it was sent.
        step: usize,
        /// Why.
        refusal: Refusal,
    },
    /// Contents are of blocks of another size.
    #[error("blocks of {block_bytes} bytes: contents are of blocks of {BLOCK_BYTES} bytes")]
    ContentBlocks {
        /// Bytes in a block.
        block_bytes: u32,
    },
    /// An image could not be read.
    #[error("cannot read an image: {0}")]
    Image(#[from] io::Error),
    /// The cache cannot be set up.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Most blocks of a level.
const LEVEL_BLOCKS_MOST: u32 = u32::MAX - 1;

/// The most requests that a program in an open loop has in progress; those that come then wait, and that counts as part of their
/// latency. As many as the engine of a server takes.
pub const IN_FLIGHT: usize = 1024;

/// Longest request that the engine takes; longer ones are made in parts, one after the other.
const PART_BYTES: u32 = 1 << 20;

/// Whether every program and every level keeps to its device.
///
/// # Panics
/// If there is no such disk.
pub fn check(setup: &Setup) -> Result<(), TimedError> {
    for program in setup.programs {
        let bytes_of = |step: &Step| setup.disks[usize::from(step.disk)].profile.bytes();
        if let Some(step) = program.steps.iter().find(|step| step.end() > bytes_of(step)) {
            let device_bytes = bytes_of(step);
            let beyond = BeyondEnd { offset_bytes: step.offset, end_bytes: step.end(), device_bytes };
            return Err(TimedError::Beyond { program: program.name.clone(), beyond });
        }
    }
    if setup.warmup > 0 {
        let [warmup, references] =
            [setup.warmup, setup.references()].map(|count| count.try_into().unwrap_or(usize::MAX));
        Warmup::References(warmup).references(references).map_err(TimedError::Warmup)?;
    }
    for &Level { profile, bytes } in setup.levels {
        let (device_bytes, block_bytes) = (profile.bytes(), setup.block_bytes);
        let blocks = bytes / u64::from(block_bytes);
        if bytes > device_bytes || !(1..=u64::from(LEVEL_BLOCKS_MOST)).contains(&blocks) {
            return Err(TimedError::Level { bytes, device_bytes, block_bytes });
        }
    }
    if setup.encoded.is_some() && setup.block_bytes as usize != BLOCK_BYTES {
        return Err(TimedError::ContentBlocks { block_bytes: setup.block_bytes });
    }
    Ok(())
}

/// Runs the programs of `setup` with a cache of `capacity` blocks under `policy`. The same arguments give the same
/// outcome.
///
/// # Panics
/// If `capacity` is 0.
pub fn run(setup: &Setup, policy: &Spec, capacity: u32) -> Result<Outcome, TimedError> {
    check(setup)?;
    world::World::new(setup, config(setup, policy, capacity)?)?.run()
}

/// Runs each policy at its size in blocks, in `threads` threads; the outcomes are in the order of the jobs.
pub fn sweep(setup: &Setup, jobs: &[(Spec, u32)], threads: usize) -> Result<Vec<Outcome>, TimedError> {
    in_threads(jobs, threads, |(policy, capacity)| run(setup, policy, *capacity)).into_iter().collect()
}

/// The engine's usual set-up.
fn config(setup: &Setup, policy: &Spec, capacity: u32) -> Result<Config, TimedError> {
    let mut config = Config::new(capacity, policy.clone());
    config.block_bytes = setup.block_bytes;
    config.into_policy = setup.readahead.is_into_policy();
    if setup.encoded.is_some() {
        // They have a part of the memory.
        config.capacity = EncodedLevel::lending(capacity).frames(1);
    }
    let part = (PART_BYTES / setup.block_bytes).max(1) + 1;
    config.limits.request_bytes = PART_BYTES;
    config.limits.operation_bytes = PART_BYTES;
    config.spare = config.spare.max(2 * part + 4);
    config.storing = if setup.levels.is_empty() && setup.encoded.is_none() { 0 } else { config.spare };
    config.limits.loading = config.limits.loading.max(4 * part);
    config.limits.dirty = config.limits.dirty.max(2 * part);
    let most = |program: &Program| match program.pace {
        Pace::Closed => 1,
        Pace::Open => IN_FLIGHT,
    };
    // A disk has its share of these.
    let requests = 8 * setup.programs.iter().map(most).sum::<usize>();
    config.limits.requests = config.limits.requests.max(requests.try_into().unwrap_or(u32::MAX));
    if policy.is_unified() {
        config.levels = setup.levels.iter().map(|level| level_blocks(level, setup.block_bytes)).collect();
    }
    if let Some(control) = setup.tenants {
        let mut control = control.clone();
        control.limits.tenants = control.limits.tenants.max(setup.programs.len() as u32);
        config.tenants = Some(Tenants { control, files: files(setup)? });
    }
    Ok(config)
}

/// The blocks of a level.
fn level_blocks(level: &Level, block_bytes: u32) -> u32 {
    (level.bytes / u64::from(block_bytes)) as u32
}

/// The files of all layouts, in blocks.
fn files(setup: &Setup) -> Result<Files, TimedError> {
    let block_bytes = setup.block_bytes;
    let block = u64::from(block_bytes);
    let mut pieces = Vec::new();
    for (number, disk) in (0..).zip(setup.disks) {
        for &extent in disk.layouts.iter().flat_map(|layout| layout.extents()) {
            if !extent.disk.is_multiple_of(block) || !extent.offset.is_multiple_of(block) {
                return Err(TimedError::Misaligned { extent, block_bytes });
            }
            pieces.push(Piece {
                volume: Volume(number),
                disk: extent.disk / block,
                file: extent.file,
                offset: extent.offset / block,
                blocks: extent.length.div_ceil(block),
            });
        }
    }
    Ok(Files::new(pieces)?)
}
