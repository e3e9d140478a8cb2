//! Requests that fail because a device fails or their volume is closed.

use std::collections::VecDeque;
use std::ops::Range;

use crate::engine::Engine;
use crate::request::{Fault, Volume};
use crate::volume::Failures;

impl Engine {
    /// Ends writes of `volume` that wait for room with `fault`.
    pub(crate) fn fail_writes(&mut self, volume: Volume, fault: Fault, now: u64) {
        let failed = std::mem::take(&mut self.volumes.state_mut(volume).turns.writes);
        self.fail_waiting(failed, fault, now);
    }

    pub(crate) fn fail_waiting(&mut self, failed: VecDeque<u32>, fault: Fault, now: u64) {
        self.line.queueing -= failed.len() as u32;
        for id in failed {
            self.requests.active(id).fault = Some(fault);
            // An edge of a zeroes may be under way to the device.
            self.store(id, now);
        }
    }

    /// Ends requests of `volume` that wait for room with `fault`.
    pub(crate) fn fail_queued(&mut self, volume: Volume, fault: Fault, now: u64) {
        let failed = std::mem::take(&mut self.volumes.state_mut(volume).turns.reads);
        self.fail_waiting(failed, fault, now);
        self.fail_writes(volume, fault, now);
    }

    /// The device failed to write `blocks` of `volume`; `again` if it failed to do so before.
    pub(crate) fn note_unwritten(&mut self, volume: Volume, blocks: Range<u64>, again: bool, fault: Fault, now: u64) {
        let (patience, next) = (self.config.write_back.patience_us, now + self.config.write_back.retry_us);
        let state = self.volumes.state_mut(volume);
        let failures = state.failures.get_or_insert_with(|| Failures::new(fault));
        failures.fault = fault;
        failures.fail(blocks.end - blocks.start, again, next);
        failures.all |= now - *failures.none_since.get_or_insert(now) >= patience;
        let lasts = now.checked_sub(patience).is_some_and(|time| state.dirty.has_failed_since(blocks, time));
        if lasts && !std::mem::replace(&mut failures.lasting, true) {
            self.volumes.failing.push(volume);
            self.volumes.reports.insert(volume);
        }
        if let Some(fault) = self.fault_of_room(volume) {
            self.fail_writes(volume, fault, now);
        }
    }
}
