//! Failed device flushes: what the device may have lost is written again, or the volume's flushes fail from then on.

use crate::engine::Engine;
use crate::frames::DIRTY;
use crate::record::Record;
use crate::request::{Fault, Op, Outcome, Port, Volume, WriteMode};
use crate::requests::{Active, Step};
use crate::slots::Key;

impl Engine {
    /// Flushes the devices of `volume` if enough was written there since the last flush: what a failed flush entails, and
    /// what has to be remembered for it, is limited.
    pub(crate) fn flush_if_due(&mut self, volume: Volume, now: u64) {
        let most = self.config.write_back.unflushed;
        let state = self.volumes.state_mut(volume);
        if state.flushing.round.is_none() && state.targets.iter().any(|target| target.unflushed.since() >= most) {
            self.flush_devices(volume, now);
        }
    }

    /// As `distrust`, within another call.
    pub(crate) fn fail_flush(&mut self, port: Port, fault: Fault, now: u64) {
        let volumes = self.ports.state_mut(port).volumes.clone();
        // A copy that is being made may lack some of it.
        volumes.iter().for_each(|&volume| _ = self.end_freeze(volume));
        if self.ports.state_mut(port).replays {
            return;
        }
        for volume in volumes {
            self.write_again(volume, port, fault, now);
        }
    }

    fn write_again(&mut self, volume: Volume, port: Port, fault: Fault, now: u64) {
        let version = self.cleaner.version;
        let (blocks, complete) = self.volumes.state_mut(volume).target(port).unflushed.take();
        if !complete {
            self.condemn(volume, fault);
        }
        for block in blocks {
            let key = Key::new(volume, block);
            let frame = self.memory.current(&self.slots, key).expect("an unflushed block is in memory");
            let is_outside = self.memory.outside.contains_key(&key);
            if !self.memory.frames.has(frame, DIRTY) {
                self.memory.frames.set(frame, DIRTY);
                self.cleaner.dirty += 1;
            }
            let dirty = &mut self.volumes.state_mut(volume).dirty;
            dirty.write_again(block, frame, version, now);
            if is_outside {
                dirty.hurry(block);
            }
        }
        self.cleaner.dirty_most = self.cleaner.dirty_most.max(self.cleaner.dirty + self.requests.filling);
        // The device may have had these, too.
        let state = self.volumes.state(volume);
        for record in self.ports.operations.values_mut().filter(|record| record.volume() == Some(volume)) {
            match record {
                Record::Write { first, held: None, void, .. } => {
                    *void |= state.parts[state.part_of(first.index())].port == port;
                }
                Record::Range { void, .. } => *void = true,
                _ => {}
            }
        }
        self.fail_changes(volume, fault);
        self.cleaner.make_due(&mut self.volumes, volume);
    }

    /// Fails the requests that must not be acknowledged before the device has their changes, and those that wait for a
    /// device flush: blocks that they had written have to be written again.
    fn fail_changes(&mut self, volume: Volume, fault: Fault) {
        let state = self.volumes.state_mut(volume);
        let mode = state.mode;
        let syncs = std::mem::take(&mut state.flushing.syncs);
        if let Some(round) = state.flushing.round.as_mut().filter(|round| round.begun) {
            round.fault = round.fault.or(Some(fault));
        }
        for id in syncs {
            self.finish(id, Outcome::Failed(fault));
        }
        let began = |active: &Active| match active.request.op {
            Op::Write => !matches!(active.step, Step::Queued | Step::Filling | Step::Filled),
            Op::Trim | Op::Zeroes { .. } => true,
            Op::Read | Op::Flush | Op::Prefetch => false,
        };
        let waits = |active: &Active| {
            active.request.fua || active.storing > 0 || mode == WriteMode::Through || active.request.op != Op::Write
        };
        let requests = self.requests.all.iter_mut().flatten().filter(|active| active.request.volume == volume);
        for active in requests.filter(|active| began(active) && waits(active)) {
            active.fault = active.fault.or(Some(fault));
        }
    }
}
