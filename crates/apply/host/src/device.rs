//! A device of a disk: its part of the disk, and its flushes.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use nigh_backend::Geometry;
use nigh_engine::{Operation, Port};

use crate::faults::Faults;
use crate::sync::{lock, read, write};

/// One device of a disk.
pub(crate) struct DiskDevice {
    /// The port to it.
    pub(crate) port: Port,
    /// As `Geometry::replays`.
    pub(crate) replays: bool,
    /// The start of its part of the disk, in bytes. The part ends where that of the next device begins, or with the
    /// disk.
    pub(crate) begin: u64,
    /// `None` once the device is closed: otherwise it would keep its file open.
    geometry: RwLock<Option<Arc<dyn Geometry>>>,
    /// Its size when it was last checked, in bytes.
    seen: AtomicU64,
    syncs: Mutex<Syncs>,
    /// Operations that it failed.
    pub(crate) faults: Faults,
    underway: Underway,
    /// Operations that it failed because it has no room (ENOSPC).
    full: AtomicU64,
}

/// Operations at the device.
#[derive(Default)]
struct Underway {
    count: AtomicU32,
    /// When the device completed one last, or got the first of these, in microseconds.
    since: AtomicU64,
}

impl Underway {
    fn begin(&self, now: u64) {
        // Before the count: nobody takes an earlier time for that of this operation.
        if self.count.load(Ordering::Acquire) == 0 {
            self.since.store(now, Ordering::Release);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn end(&self, now: u64) {
        self.since.store(now, Ordering::Release);
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    fn silent_us(&self, now: u64) -> u64 {
        let is_waited_for = self.count.load(Ordering::Acquire) > 0;
        if is_waited_for { now.saturating_sub(self.since.load(Ordering::Acquire)) } else { 0 }
    }
}

/// The device flushes of all shards, combined: those that arrive while one is under way wait together for the next.
#[derive(Default)]
struct Syncs {
    running: bool,
    /// Whether the last one failed.
    failing: bool,
    /// Those served by the flush that is under way, each with its shard.
    joined: Vec<(u32, Operation)>,
    waiting: Vec<(u32, Operation)>,
}

impl DiskDevice {
    pub(crate) fn new(port: Port, begin: u64, geometry: Arc<dyn Geometry>, size: u64) -> DiskDevice {
        let replays = geometry.replays();
        let (geometry, seen) = (RwLock::new(Some(geometry)), AtomicU64::new(size));
        DiskDevice {
            port,
            replays,
            begin,
            geometry,
            seen,
            syncs: Mutex::default(),
            faults: Faults::default(),
            underway: Underway::default(),
            full: AtomicU64::new(0),
        }
    }

    /// The device gets an operation, at `now` in microseconds.
    pub(crate) fn begin_operation(&self, now: u64) {
        self.underway.begin(now);
    }

    /// The device completed an operation, at `now` in microseconds.
    pub(crate) fn end_operation(&self, now: u64, is_full: bool) {
        self.underway.end(now);
        if is_full {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How long it has had operations and completed none, in microseconds; 0 if it has none.
    pub(crate) fn silent_us(&self, now: u64) -> u64 {
        self.underway.silent_us(now)
    }

    /// Operations that it failed because it has no room.
    pub(crate) fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Queries the device.
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&dyn Geometry) -> io::Result<R>) -> io::Result<R> {
        let geometry = read(&self.geometry);
        question(geometry.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// Its present size in bytes, and whether that has changed since the last call.
    pub(crate) fn look_at_size(&self) -> io::Result<(u64, bool)> {
        let size = self.ask(|geometry| geometry.size())?;
        Ok((size, self.seen.swap(size, Ordering::Relaxed) != size))
    }

    /// The device is gone.
    pub(crate) fn forget(&self) {
        *write(&self.geometry) = None;
    }

    /// Why it does not do what it is asked at present, in words; none if it does, as far as that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        let own = self.ask(|geometry| Ok(geometry.trouble())).unwrap_or_default();
        own.or_else(|| lock(&self.syncs).failing.then(|| "its last flush failed".to_owned()))
    }

    /// Adds a device flush for a shard.
    pub(crate) fn sync(&self, flush: (u32, Operation)) {
        lock(&self.syncs).waiting.push(flush);
    }

    /// The disk is closed: flushes that wait are of shards that are out of use.
    pub(crate) fn drop_waiting(&self) {
        lock(&self.syncs).waiting.clear();
    }

    /// The flush to be passed to the device now, for all that wait, if none is under way.
    pub(crate) fn next_sync(&self) -> Option<(u32, Operation)> {
        let mut syncs = lock(&self.syncs);
        if syncs.running {
            return None;
        }
        let next = syncs.waiting.pop()?;
        syncs.running = true;
        syncs.joined = mem::take(&mut syncs.waiting);
        Some(next)
    }

    /// The others that the device flush under way serves. It is complete, but the next one waits for `synced`.
    pub(crate) fn take_joined(&self) -> Vec<(u32, Operation)> {
        mem::take(&mut lock(&self.syncs).joined)
    }

    /// The shards know the result of the device flush: the next one may begin. Returns whether it is the first one that
    /// failed, or the first one that succeeded again.
    pub(crate) fn synced(&self, failed: bool) -> bool {
        let mut syncs = lock(&self.syncs);
        syncs.running = false;
        mem::replace(&mut syncs.failing, failed) != failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_silent_while_it_has_operations_and_completes_none() {
        let underway = Underway::default();
        assert_eq!(underway.silent_us(1_000_000), 0, "it has none");
        underway.begin(1_000_000);
        underway.begin(4_000_000);
        assert_eq!(underway.silent_us(5_000_000), 4_000_000, "since the first of them");
        underway.end(6_000_000);
        assert_eq!(underway.silent_us(6_500_000), 500_000, "since it completed one");
        underway.end(7_000_000);
        assert_eq!(underway.silent_us(9_000_000), 0);
        underway.begin(20_000_000);
        assert_eq!(underway.silent_us(20_000_007), 7, "the idle time before does not count");
    }
}
