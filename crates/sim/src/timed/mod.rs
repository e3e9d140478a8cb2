//! Timed simulation: programs take turns at a cache on a modelled device, under a virtual clock.
//!
//! Each program is a closed loop: it computes for its think time, issues a request, and waits until it has the reply.
//! The cache is the engine that `nigh serve` runs, unchanged; the device is one of `nigh-device`.

mod program;
mod sequences;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nigh_device::{BeyondEnd, Profile};
use nigh_engine::{Config, ConfigError, Counters, Scheduler};
use nigh_policy::Spec;
use nigh_trace::layout::Layout;

pub use program::{Program, Recorder, Step, Think, TwoVolumes, What};
pub use sequences::Sequences;

/// What all runs of one simulation have in common.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The programs, which begin together.
    pub programs: &'a [Program],
    /// Bytes in a block: a power of two from 512 to 1 MiB.
    pub block_bytes: u32,
    /// The device.
    pub profile: &'a Profile,
    /// Decides what of the device is random.
    pub seed: u64,
    /// What is fetched ahead.
    pub readahead: &'a nigh_prefetch::Spec,
    /// Which file has which place on the disk, for each program or for all: then files are read ahead. Where there is
    /// none, the disk is.
    pub layouts: &'a [Layout],
    /// In which order requests go to the device.
    pub scheduler: Scheduler,
    /// Grows with the programs' steps.
    pub progress: Option<&'a AtomicU64>,
}

/// What one run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When each program had its last reply, in ns from the common beginning.
    pub ends_ns: Vec<u64>,
    /// How long each of them waited for replies, in ns.
    pub waited_ns: Vec<u64>,
    /// What the cache counted.
    pub cache: Counters,
    /// What the device counted, until the last program ended.
    pub device: nigh_device::Counters,
    /// The blocks that were read from the device, by the length of the sequence that they were part of.
    pub sequences: Sequences,
}

impl Outcome {
    /// When the last program ended, in ns.
    pub fn execution_ns(&self) -> u64 {
        self.ends_ns.iter().copied().max().unwrap_or(0)
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
        /// What it refers to.
        beyond: BeyondEnd,
    },
    /// The cache cannot be set up.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Longest request that the engine takes; longer ones are made in parts, one after the other.
const PART_BYTES: u32 = 1 << 20;

/// Whether every program keeps to the device.
pub fn check(setup: &Setup) -> Result<(), TimedError> {
    let device_bytes = setup.profile.bytes();
    for program in setup.programs {
        if let Some(step) = program.steps.iter().find(|step| step.end() > device_bytes) {
            let beyond = BeyondEnd { offset_bytes: step.offset, end_bytes: step.end(), device_bytes };
            return Err(TimedError::Beyond { program: program.name.clone(), beyond });
        }
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
    world::World::new(setup, config(setup, policy, capacity))?.run()
}

/// Runs each policy at its size in blocks, in `threads` threads; the outcomes are in the order of the jobs.
pub fn sweep(setup: &Setup, jobs: &[(Spec, u32)], threads: usize) -> Result<Vec<Outcome>, TimedError> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Result<Outcome, TimedError>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, (policy, capacity))) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    let outcome = run(setup, policy, *capacity);
                    *outcomes[at].lock().expect("no thread panics while it holds one") = Some(outcome);
                }
            });
        }
    });
    outcomes.into_iter().map(|cell| cell.into_inner().expect("no thread panicked").expect("every job ran")).collect()
}

/// The engine's usual set-up, with as many operations at the device as it works on at once.
fn config(setup: &Setup, policy: &Spec, capacity: u32) -> Config {
    let mut config = Config::new(capacity, policy.clone());
    config.block_bytes = setup.block_bytes;
    config.scheduler = setup.scheduler;
    let part = (PART_BYTES / setup.block_bytes).max(1) + 1;
    config.limits.request_bytes = PART_BYTES;
    config.limits.operation_bytes = PART_BYTES;
    config.spare = config.spare.max(2 * part + 4);
    config.limits.loading = config.limits.loading.max(4 * part);
    config.limits.dirty = config.limits.dirty.max(2 * part);
    config.limits.requests = config.limits.requests.max(setup.programs.len() as u32);
    config
}
