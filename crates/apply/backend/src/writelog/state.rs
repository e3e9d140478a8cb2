//! The parts of a disk with a write log that any thread can ask.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use nigh_engine::Fault;
use nigh_writelog::Statistics;

use crate::device::{Extent, Geometry};
use crate::signal::Signal;
use crate::stamp::Stamp;
use crate::writelog::settings::WriteLogSettings;

/// The state of a write log at one moment. Counts are since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteLogState {
    /// The log's target.
    pub target: String,
    /// Bytes that it has room for.
    pub bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// Changes in it that are not home.
    pub records: u64,
    /// Age of the oldest of them, in µs.
    pub oldest_us: u64,
    /// Writes to the log, and their bytes.
    pub log_writes: u64,
    /// Bytes of these.
    pub log_bytes: u64,
    /// Writes that went home.
    pub home_writes: u64,
    /// Bytes of these.
    pub home_bytes: u64,
    /// Memory for its bookkeeping, in bytes.
    pub memory_bytes: u64,
    /// Changes wait for room.
    pub is_full: bool,
    /// The last attempt to write home failed.
    pub is_failing: bool,
    /// Why it takes no more changes.
    pub failure: Option<String>,
    /// With a failure, the first ranges of the disk whose newest bytes are not home.
    pub missing: Vec<Range<u64>>,
    /// The count of all.
    pub missing_ranges: u64,
    /// Their bytes.
    pub missing_bytes: u64,
}

/// The geometry of home, and what the log has.
pub(crate) struct Common {
    pub(crate) name: String,
    pub(crate) settings: WriteLogSettings,
    pub(crate) home: Arc<dyn Geometry>,
    pub(crate) signal: Signal,
    pub(crate) state: Mutex<WriteLogState>,
    pub(crate) drains: Mutex<Vec<Sender<()>>>,
}

impl Common {
    pub(crate) fn state(&self) -> MutexGuard<'_, WriteLogState> {
        self.state.lock().expect("nobody panics with it")
    }

    pub(crate) fn count_log(&self, bytes: u64) {
        let mut state = self.state();
        state.log_writes += 1;
        state.log_bytes += bytes;
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.state().failure = Some(fault.to_string());
    }

    pub(crate) fn publish(&self, now: &Statistics, missing: Option<(Vec<Range<u64>>, u64, u64)>) {
        let mut state = self.state();
        state.bytes = now.ring_bytes;
        state.used_bytes = now.used_bytes;
        state.records = now.records;
        state.oldest_us = now.oldest_us;
        state.home_writes = now.home_writes;
        state.home_bytes = now.home_bytes;
        state.memory_bytes = now.memory_bytes;
        (state.is_full, state.is_failing) = (now.is_full, now.is_failing);
        if let Some((first, count, bytes)) = missing {
            (state.missing, state.missing_ranges, state.missing_bytes) = (first, count, bytes);
        }
    }

    /// Drains that were asked for since the last call.
    pub(crate) fn drains(&self) -> Vec<Sender<()>> {
        std::mem::take(&mut *self.drains.lock().expect("nobody panics with it"))
    }
}

impl Geometry for Common {
    fn size(&self) -> io::Result<u64> {
        self.home.size()
    }

    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        // A hole of home may have bytes in the log.
        match self.state().records {
            0 => self.home.extents(range, most),
            _ => Ok(vec![Extent { range, hole: false }]),
        }
    }

    fn is_taken_over(&self) -> bool {
        self.home.is_taken_over()
    }

    fn staged(&self) -> u64 {
        self.home.staged()
    }

    fn trouble(&self) -> Option<String> {
        let state = self.state();
        if let Some(failure) = &state.failure {
            let (ranges, bytes) = (state.missing_ranges, state.missing_bytes);
            return Some(format!(
                "its write log failed ({failure}): {bytes} bytes in {ranges} ranges are not on the target"
            ));
        }
        let failing = state.is_failing.then(|| "writes in its write log cannot go to it".to_owned());
        failing.or_else(|| self.home.trouble())
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        // Home changes later than the disk.
        if self.state().records > 0 { Ok(None) } else { self.home.stamp() }
    }

    fn write_log(&self) -> Option<WriteLogState> {
        Some(self.state().clone())
    }

    fn drain(&self) -> io::Result<Receiver<()>> {
        let (sender, drained) = channel();
        self.drains.lock().expect("nobody panics with it").push(sender);
        self.signal.raise();
        Ok(drained)
    }
}
