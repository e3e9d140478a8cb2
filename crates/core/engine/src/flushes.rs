//! Device flushes, and requests that wait for their data to be on the device or to be stable there.
//!
//! 1. A request with FUA, a flush or a closing asks for a round of device flushes.
//! 2. A round has one flush for each port that received changes; requests join it until the first of them begins.
//! 3. At its end its requests are done, or fail with the fault of the device.

use crate::engine::Engine;
use crate::queue::{Class, Waiting};
use crate::record::Record;
use crate::request::{Fault, Outcome, Port, Volume};
use crate::requests::Step;
use crate::volume::{Flush, Round, Target};

impl Engine {
    /// Starts a round of device flushes, at each port where `volume` changed something since the last one.
    pub(crate) fn flush_devices(&mut self, volume: Volume, now: u64) {
        let round = self.volumes.state_mut(volume).flushing.round.replace(Round::default());
        assert!(round.is_none(), "one round at a time");
        self.join_round(volume, now);
    }

    /// Adds the ports that need a device flush to the round.
    pub(crate) fn join_round(&mut self, volume: Volume, now: u64) {
        for at in 0..self.volumes.state_mut(volume).targets.len() {
            let &Target { port, unsynced, flushing, .. } = &self.volumes.state_mut(volume).targets[at];
            if unsynced && !flushing {
                self.queue_flush(volume, port, now);
            }
        }
    }

    pub(crate) fn queue_flush(&mut self, volume: Volume, port: Port, now: u64) {
        let state = self.volumes.state_mut(volume);
        state.operations += 1;
        state.target(port).flushing = true;
        state.flushing.round.as_mut().expect("a flush belongs to a round").operations += 1;
        let id = self.ports.made;
        let waiting = Waiting { id, block: 0, blocks: 0, since: now, region: 0, alone: true };
        self.ports.add(port, Class::Control, waiting, Record::Flush { volume });
    }

    /// The device flush of `volume` at `port` is passed to the device. It covers every operation that is complete now.
    /// The first flush of a round therefore takes the requests that wait, and adds a flush at every port that they need.
    pub(crate) fn start_flush(&mut self, volume: Volume, port: Port, now: u64) {
        let state = self.volumes.state_mut(volume);
        let target = state.target(port);
        target.unsynced = false;
        target.unflushed.begin_flush();
        let round = state.flushing.round.as_mut().expect("a flush belongs to a round");
        if !round.begun {
            round.begun = true;
            round.requests = std::mem::take(&mut state.flushing.syncs);
            self.join_round(volume, now);
        }
    }

    /// Data of `volume` is lost, in this engine or in another one that has a part of it: until the volume is closed, with
    /// `discard`, its flushes, its writes with FUA and its closing without `discard` do their work and then fail with
    /// `fault`.
    pub fn condemn(&mut self, volume: Volume, fault: Fault) {
        if let Some(state) = self.volumes.get_mut(volume) {
            state.flushing.lost = state.flushing.lost.or(Some(fault));
        }
    }

    /// The fault by which `volume` lost data, if it did: since then, no flush and no write with FUA succeeds.
    pub fn lost(&self, volume: Volume) -> Option<Fault> {
        self.volumes.get(volume)?.flushing.lost
    }

    /// The cache has done its part of the request; the rest is up to the device.
    pub(crate) fn store(&mut self, id: u32, now: u64) {
        let active = self.requests.active(id);
        active.step = Step::Storing;
        let (volume, fua, storing) = (active.request.volume, active.request.fua, active.storing);
        self.volumes.state_mut(volume).unlockable = true;
        if storing > 0 {
            return;
        }
        let active = self.requests.active(id);
        if let Some(fault) = active.fault {
            self.finish(id, Outcome::Failed(fault));
        } else if fua {
            active.step = Step::Syncing;
            self.volumes.state_mut(volume).flushing.syncs.push(id);
            self.sync(volume, now);
        } else {
            self.finish(id, Outcome::Done);
        }
    }

    /// Continues the flushes of `volume` whose blocks have been written.
    pub(crate) fn drained(&mut self, volume: Volume, now: u64) {
        loop {
            let state = self.volumes.state_mut(volume);
            let oldest = state.dirty.oldest().unwrap_or(u64::MAX);
            let Some(&Flush { request, version }) = state.flushing.flushes.front() else { break };
            if version >= oldest {
                break;
            }
            state.flushing.flushes.pop_front();
            state.flushing.syncs.push(request);
            self.requests.active(request).step = Step::Syncing;
        }
        self.sync(volume, now);
    }

    /// Starts a device flush if a request waits for it and there is something to flush.
    pub(crate) fn sync(&mut self, volume: Volume, now: u64) {
        let state = self.volumes.state_mut(volume);
        if state.flushing.round.is_some() || state.flushing.syncs.is_empty() {
            return;
        }
        if state.is_unsynced() {
            self.flush_devices(volume, now);
        } else {
            let lost = state.flushing.lost;
            for id in std::mem::take(&mut state.flushing.syncs) {
                self.finish(id, lost.map_or(Outcome::Done, Outcome::Failed));
            }
        }
    }
}
