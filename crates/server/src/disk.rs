//! A disk that is served: one export of the engines, and its device.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use nigh_backend::Geometry;
use nigh_engine::{Export, Operation};
use nigh_nbd::{BlockSizes, Features};

use crate::latency::Histogram;
use crate::sync::lock;

/// One disk.
pub(crate) struct Disk {
    /// Its number in the engines, and its place in the list of disks.
    pub(crate) export: Export,
    pub(crate) name: String,
    /// What it is served from, for people.
    pub(crate) target: String,
    pub(crate) read_only: bool,
    pub(crate) geometry: Arc<dyn Geometry>,
    /// As the engines know it, in bytes.
    size: AtomicU64,
    syncs: Mutex<Syncs>,
    /// Whether `Syncs::waiting` may have any: spares the lock.
    flushes_wanted: AtomicBool,
    opening: Mutex<Opening>,
    opened: Condvar,
    /// Reads that found everything in the cache, from request to reply sent.
    pub(crate) hits: Histogram,
    /// Reads that had to wait.
    pub(crate) misses: Histogram,
    /// Writes, zeroes and trims.
    pub(crate) writes: Histogram,
    pub(crate) flushes: Histogram,
}

/// The device flushes of all shards, made one: those that come while one is under way wait together for the next.
#[derive(Default)]
struct Syncs {
    running: bool,
    /// Done with the one that is under way. An operation comes with the shard that it is from.
    joined: Vec<(u32, Operation)>,
    waiting: Vec<(u32, Operation)>,
}

/// Whether the engines take requests for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Open,
    /// They will again soon.
    Changing,
    Closed,
}

impl Disk {
    pub(crate) fn new(
        export: Export,
        name: String,
        target: String,
        read_only: bool,
        geometry: Arc<dyn Geometry>,
        size: u64,
    ) -> Disk {
        Disk {
            export,
            name,
            target,
            read_only,
            geometry,
            size: AtomicU64::new(size),
            syncs: Mutex::default(),
            flushes_wanted: AtomicBool::new(false),
            opening: Mutex::new(Opening::Open),
            opened: Condvar::new(),
            hits: Histogram::default(),
            misses: Histogram::default(),
            writes: Histogram::default(),
            flushes: Histogram::default(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_opening(&self, opening: Opening) {
        *lock(&self.opening) = opening;
        self.opened.notify_all();
    }

    /// Waits until the engines take requests again; says no if they never will.
    pub(crate) fn wait_for_opening(&self) -> bool {
        let changing = |opening: &mut Opening| *opening == Opening::Changing;
        let opening = self.opened.wait_while(lock(&self.opening), changing).expect("nobody panics with a lock");
        *opening == Opening::Open
    }

    /// What a client is told of it.
    pub(crate) fn offer(&self) -> nigh_nbd::Export {
        nigh_nbd::Export {
            name: self.name.clone(),
            description: String::new(),
            size: self.size(),
            features: Features {
                read_only: self.read_only,
                rotational: false,
                flush: true,
                fua: true,
                trim: true,
                write_zeroes: true,
                fast_zero: true,
                cache: true,
                multi_conn: true,
            },
            blocks: BlockSizes::default(),
        }
    }

    /// A shard wants the device flushed.
    pub(crate) fn sync(&self, flush: (u32, Operation)) {
        lock(&self.syncs).waiting.push(flush);
        self.flushes_wanted.store(true, Ordering::Release);
    }

    /// The flush that is to be given to the device now, for all that wait, if none is under way.
    pub(crate) fn next_sync(&self) -> Option<(u32, Operation)> {
        if !self.flushes_wanted.load(Ordering::Acquire) {
            return None;
        }
        let mut syncs = lock(&self.syncs);
        if syncs.running {
            return None;
        }
        self.flushes_wanted.store(false, Ordering::Release);
        let next = syncs.waiting.pop()?;
        syncs.running = true;
        syncs.joined = mem::take(&mut syncs.waiting);
        Some(next)
    }

    /// The device flush that was given out is over: which others are over with it.
    pub(crate) fn synced(&self) -> Vec<(u32, Operation)> {
        let mut syncs = lock(&self.syncs);
        syncs.running = false;
        mem::take(&mut syncs.joined)
    }
}
