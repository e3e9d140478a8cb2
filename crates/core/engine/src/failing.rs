//! Blocks that a device fails to write. They wait for the next attempt, and other blocks of the volume are written as ever.
//! After `WriteBack::patience_us`, the volume *fails*: writes to such blocks fail. Writes that find no room fail, too, if no write
//! succeeds or such blocks take all the room for dirty ones. Other requests get other room than these blocks occupy.

use std::ops::Range;

use crate::engine::Engine;
use crate::request::{Fault, Op, Volume, WriteMode};
use crate::volume::{Failures, VolumeState};

/// The most attempts to write blocks of a volume again that fail within `WriteBack::retry_us`.
const RETRIES: u32 = 16;

impl Failures {
    pub(crate) fn new(fault: Fault) -> Failures {
        Failures {
            fault,
            lasting: false,
            none_since: None,
            all: false,
            retry_at: 0,
            retries: RETRIES,
            retry_most: usize::MAX,
            retried: false,
        }
    }

    /// A write of `blocks` blocks failed; `again` if it was not the first attempt. The fault may be in one of them: the next
    /// attempts are shorter.
    pub(crate) fn fail(&mut self, blocks: u64, again: bool, next: u64) {
        if blocks > 1 || again {
            self.retry_most = self.retry_most.min((blocks as usize / 2).max(1));
        }
        self.retries = self.retries.saturating_sub(u32::from(again));
        if self.retries == 0 {
            self.retry_at = next;
        }
    }

    /// The time up to which blocks are due to be tried again, if any may be tried now.
    pub(crate) fn retry(&mut self, now: u64) -> Option<u64> {
        if now < self.retry_at {
            return None;
        }
        if self.retries == 0 {
            self.retries = RETRIES;
            // If all fail, short attempts are only more.
            if !std::mem::take(&mut self.retried) {
                self.retry_most = usize::MAX;
            }
        }
        Some(now)
    }
}

impl VolumeState {
    /// Whether its device fails all writes, for longer than `WriteBack::patience_us`.
    fn fails_all(&self) -> bool {
        self.failures.as_ref().is_some_and(|failures| failures.all) && self.dirty.failed_len() == self.dirty.len()
    }
}

impl Engine {
    /// A volume that began to fail, with its fault, or whose blocks are all written again, with `None`. Volumes that are no longer
    /// open are not reported.
    pub fn next_report(&mut self) -> Option<(Volume, Option<Fault>)> {
        while let Some(volume) = self.volumes.reports.pop_first() {
            if let Some(state) = self.volumes.get(volume) {
                let failures = state.failures.as_ref().filter(|failures| failures.lasting);
                return Some((volume, failures.map(|failures| failures.fault)));
            }
        }
        None
    }

    /// The dirty blocks of `volume` whose last write failed: how many, and the first runs of them, at most `most`.
    pub fn failed_blocks(&self, volume: Volume, most: usize) -> (u64, Vec<Range<u64>>) {
        match self.volumes.get(volume) {
            Some(state) if state.failures.is_some() => (state.dirty.failed_len() as u64, state.dirty.failed_runs(most)),
            _ => (0, Vec::new()),
        }
    }

    /// The fault of writes of `volume` that find no room, if only its device, which has long failed, can make room.
    pub(crate) fn fault_of_room(&self, volume: Volume) -> Option<Fault> {
        let state = self.volumes.state(volume);
        let failures = state.failures.as_ref()?;
        let has_none = state.fails_all() || failures.lasting && self.has_many_failed(volume);
        has_none.then_some(failures.fault)
    }

    /// The fault of a write to a block that could not be written for long. Requests that wait for the device are tried
    /// there.
    pub(crate) fn fault_of_blocks(&mut self, id: u32, now: u64) -> Option<Fault> {
        let active = self.requests.active(id);
        let (request, part) = (active.request, active.part.clone());
        let blocks = self.blocks(&part);
        let time = now.saturating_sub(self.config.write_back.patience_us);
        let state = self.volumes.state_mut(request.volume);
        let failures = state.failures.as_ref().filter(|failures| failures.lasting)?;
        let waits = request.op == Op::Write && (request.fua || state.mode == WriteMode::Through);
        (!waits && state.dirty.has_failed_since(blocks, time)).then_some(failures.fault)
    }

    /// Whether requests wait for frames that blocks of failing volumes or operations of late levels may occupy, and the policy has
    /// blocks to give.
    pub(crate) fn is_cramped(&self) -> bool {
        // The longest request, and the blocks at its edges.
        let needed = self.config.request_blocks() + 2;
        !self.line.waiting.is_empty()
            && (!self.volumes.failing.is_empty() || self.levels.all.iter().any(|state| state.late))
            && !self.memory.has(needed)
            && self.slots.resident > self.size.capacity / 2
    }

    /// Whether blocks that cannot be written take all the room for dirty blocks, and `volume` has more of them than the longest
    /// request.
    pub(crate) fn has_many_failed(&self, volume: Volume) -> bool {
        let failed = |state: &VolumeState| state.dirty.failed_len() as u32;
        failed(self.volumes.state(volume)) > self.config.request_blocks()
            && self.volumes.iter().map(failed).sum::<u32>() > self.size.marks.most
    }
}
