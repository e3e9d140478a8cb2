//! Volumes whose device fails their writes for longer than `WriteBack::patience_us`: their dirty blocks occupy room that
//! requests need. Their own writes fail instead of waiting for it, and other requests get other room.

use crate::engine::Engine;
use crate::request::{Fault, Volume};
use crate::volume::Failures;

impl Engine {
    /// A volume that began to fail, with the fault, or whose writes succeed again. Volumes that are no longer open are
    /// not reported.
    pub fn next_report(&mut self) -> Option<(Volume, Option<Fault>)> {
        while let Some(volume) = self.reports.pop_first() {
            if self.volumes[volume.0 as usize].is_some() {
                return Some((volume, self.lasting_fault(volume)));
            }
        }
        None
    }

    /// The fault of the writes of `volume`, if it fails.
    pub(crate) fn lasting_fault(&self, volume: Volume) -> Option<Fault> {
        let failures = self.volumes[volume.0 as usize].as_ref()?.failures.as_ref()?;
        failures.lasting.then_some(failures.fault)
    }

    /// The device wrote blocks of `volume`. If it fails, that ends when no block is dirty any more that was when it began.
    pub(crate) fn note_written(&mut self, volume: Volume) {
        let state = self.volume(volume);
        let oldest = || state.dirty.oldest().map_or(u64::MAX, |(_, since)| since);
        let ends = |failures: &mut Failures| !failures.lasting || oldest() > failures.since;
        if state.failures.take_if(ends).is_some_and(|failures| failures.lasting) {
            self.failing.retain(|&other| other != volume);
            self.reports.insert(volume);
        }
    }

    /// The device failed to write blocks of `volume`.
    pub(crate) fn note_unwritten(&mut self, volume: Volume, fault: Fault, now: u64) {
        let patience = self.config.write_back.patience_us;
        let new = Failures { since: now, fault, lasting: false };
        let failures = self.volume(volume).failures.get_or_insert(new);
        failures.fault = fault;
        if !failures.lasting && now - failures.since >= patience {
            failures.lasting = true;
            self.failing.push(volume);
            self.reports.insert(volume);
            self.fail_writes(volume, fault, now);
        }
    }

    /// Blocks of `volume` need not be written any more. If no other has to be, single failures that come later do not continue
    /// those that were.
    pub(crate) fn note_unwanted(&mut self, volume: Volume) {
        let state = self.volume(volume);
        if state.dirty.is_empty() && state.failures.as_ref().is_some_and(|failures| !failures.lasting) {
            state.failures = None;
        }
    }

    /// The dirty blocks of failing volumes.
    pub(crate) fn stuck(&self) -> u32 {
        let of =
            |&volume: &Volume| self.volumes[volume.0 as usize].as_ref().map_or(0, |state| state.dirty.len() as u32);
        self.failing.iter().map(of).sum()
    }

    /// Whether requests wait for frames that blocks of failing volumes may occupy, and the policy has blocks to give.
    pub(crate) fn is_cramped(&self) -> bool {
        // The longest request, and the blocks at its edges.
        let needed = self.config.request_blocks() + 2;
        !self.waiting.is_empty()
            && !self.failing.is_empty()
            && self.frames.available() < self.reserved + needed
            && self.resident > self.capacity / 2
    }

    /// Evicts some blocks, so that requests need not wait until a failing device writes. The frames of those that are
    /// clean become free; the cache is smaller until then by at most the dirty blocks.
    pub(crate) fn give_way(&mut self, most: u32, now: u64) {
        for _ in 0..most {
            if !self.is_cramped() {
                break;
            }
            self.drain_forgotten();
            let victim = self.policy.shed();
            self.depart(victim);
            self.drain_forgotten();
        }
        self.pump(now);
    }
}
