//! The parts of a disk with a write log that any thread can ask.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use nigh_engine::Fault;
use nigh_writelog::Statistics;

use crate::device::{Extent, Geometry};
use crate::log_state::WriteLogState;
use crate::signal::Signal;
use crate::stamp::Stamp;
use crate::writelog::settings::WriteLogSettings;

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
