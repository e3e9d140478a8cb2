//! Background write-back: which volumes have a reason to write dirty blocks, and when.
//!
//! No call examines all volumes. A volume with dirty blocks is in one list, by what it waits for. Each event that may
//! be a reason to write makes it due: it is looked at once, and either queues writes or moves to the list of what it
//! waits for next.

use std::ops::{Bound, Range};

use crate::arena::Shared;
use crate::dirty::Reasons;
use crate::engine::Engine;
use crate::queue::Class;
use crate::record::Record;
use crate::request::{Port, Volume};
use crate::slots::Key;
use crate::volume::{Listed, Target, VolumeState};

/// The most volumes that one call examines because there are too many dirty blocks, in addition to those that are due.
const LOOKS: usize = 16;

/// The most dirty blocks that left the policy and wait for others: these parts of the capacity and of the frames beyond it.
const DEPARTED_OF_CAPACITY: u32 = 8;
const DEPARTED_OF_SPARE: u32 = 4;

impl Engine {
    /// When dirty blocks are due, in µs.
    pub(crate) fn next_write_back(&self) -> Option<u64> {
        if self.is_departed_due() {
            return Some(0);
        }
        let due = self.cleaner.due.iter().filter_map(|volume| {
            let state = self.volumes.get(*volume)?;
            self.reasons(state, self.is_pressed(*volume)).1
        });
        let looks = self.cleaner.writing_back && self.cleaner.looks > 0;
        let aging = self.cleaner.aging.first().map(|&(time, _)| if looks { 0 } else { time });
        let resting = self.cleaner.resting.first().map(|&(time, _)| time);
        due.chain(aging).chain(resting).min()
    }

    /// From now on, dirty blocks are written whatever their age, beginning with the next call of `next_operation`.
    pub fn hurry(&mut self) {
        self.config.write_back.age_us = 0;
        let aging: Vec<Volume> = self.cleaner.aging.iter().map(|&(_, volume)| volume).collect();
        aging.into_iter().for_each(|volume| self.cleaner.make_due(&mut self.volumes, volume));
    }

    /// Whether dirty blocks that left the policy wait no longer: there are enough of them, or frames are scarce.
    fn is_departed_due(&self) -> bool {
        let (waiting, spare) = (self.cleaner.departed.len() as u32, self.config.spare);
        let most = (self.size.capacity / DEPARTED_OF_CAPACITY).min(spare / DEPARTED_OF_SPARE);
        waiting > most || waiting > 0 && !self.memory.has((spare / 2).max(self.config.request_blocks() + 2))
    }

    /// Dirty blocks that left the policy are written as soon as their ports allow.
    fn hurry_departed(&mut self) {
        for key in std::mem::take(&mut self.cleaner.departed) {
            // Others have returned to the policy, or left memory.
            if self.memory.outside.contains_key(&key) {
                self.volumes.state_mut(key.volume()).dirty.hurry(key.index());
                self.cleaner.make_due(&mut self.volumes, key.volume());
            }
        }
    }

    /// Queues the writes that are due.
    pub(crate) fn write_back(&mut self, now: u64) {
        if self.is_departed_due() {
            self.hurry_departed();
        }
        if self.cleaner.dirty > self.size.marks.start {
            self.cleaner.writing_back = true;
        } else if self.cleaner.dirty <= self.size.marks.stop {
            self.cleaner.writing_back = false;
        }
        while let Some(&(time, volume)) = self.cleaner.resting.first()
            && time <= now
        {
            self.cleaner.make_due(&mut self.volumes, volume);
        }
        while let Some(&(time, volume)) = self.cleaner.aging.first()
            && time <= now
        {
            self.cleaner.make_due(&mut self.volumes, volume);
        }
        self.look_at_due(now);
        for _ in 0..LOOKS {
            if self.cleaner.looks == 0 || !self.cleaner.writing_back {
                break;
            }
            self.cleaner.looks -= 1;
            let next = self.cleaner.aging.range((Bound::Excluded(self.cleaner.looked_at), Bound::Unbounded)).next();
            let Some(&(time, volume)) = next.or(self.cleaner.aging.first()) else { break };
            self.cleaner.looked_at = (time, volume);
            if self.is_pressed(volume) {
                self.cleaner.make_due(&mut self.volumes, volume);
                self.look_at_due(now);
            }
        }
    }

    fn look_at_due(&mut self, now: u64) {
        while let Some(volume) = self.cleaner.due.pop_front() {
            let state = self.volumes.get_mut(volume);
            if state.is_some_and(|state| state.listed == Listed::Due) {
                self.look_at(volume, now);
            }
        }
    }

    /// When there is a reason to write the blocks of `state`: those whose writes did not fail, and any.
    fn reasons(&self, state: &VolumeState, pressed: bool) -> (Option<u64>, Option<u64>) {
        let age_us = self.config.write_back.age_us;
        let (dirty, awaited) = (&state.dirty, state.awaited());
        let is_awaited = pressed || !state.flushing.flushes.is_empty() || state.closing.is_some();
        let sweep = dirty.dirty_since().map(|since| if is_awaited { 0 } else { since.saturating_add(age_us) });
        let pause = state.failures.as_ref().map_or(0, |failures| failures.retry_at);
        let retry = dirty.retry_at().map(|time| time.max(pause));
        let now = (dirty.has_urgent() || dirty.has_failed_version(awaited)).then_some(0);
        let any = [sweep, retry, now].into_iter().flatten().min();
        (sweep, any.map(|time| time.max(state.flushing.pause)))
    }

    /// How much of the depth of its ports write-back of `state` may use, 0 to 1: all of it if a request, a flush or a frame waits for it, or
    /// blocks wait for twice the age at which they are due; otherwise little at the mark at which write-back ends, and more and more up to the
    /// limit of dirty blocks. A read that comes meanwhile then waits for few writes.
    fn urgency(&self, state: &VolumeState, now: u64) -> f64 {
        let late_us = self.config.write_back.age_us.saturating_mul(2);
        let is_late = state.dirty.dirty_since().is_some_and(|since| now >= since.saturating_add(late_us));
        if is_late || state.is_awaited() {
            return 1.0;
        }
        let marks = &self.size.marks;
        let room = marks.most.saturating_sub(marks.stop).max(1);
        let used = self.cleaner.dirty.saturating_sub(marks.stop).min(room);
        (f64::from(used) / f64::from(room)).powi(2)
    }

    /// Queues writes of dirty blocks of `volume`, as many as its ports allow, while there is a reason to write.
    fn look_at(&mut self, volume: Volume, now: u64) {
        let most = (self.config.limits.operation_bytes >> self.shift) as usize;
        let unflushed_most = self.config.write_back.unflushed.saturating_mul(2);
        let listed = loop {
            let pressed = self.is_pressed(volume);
            let (sweep, any) = self.reasons(self.volumes.state(volume), pressed);
            let urgency = self.urgency(self.volumes.state(volume), now);
            let state = self.volumes.state_mut(volume);
            let Some(time) = any else { break Listed::No };
            if now < time {
                break if sweep.is_some() && now >= state.flushing.pause {
                    Listed::Aging(time)
                } else {
                    Listed::Resting(time)
                };
            }
            let ports = &self.ports.all;
            let full = state.targets.iter().map(|target| target.port).find(|port| {
                let port = ports[usize::from(port.0)].as_ref().expect("an open port");
                port.writes >= ((f64::from(port.depth) * urgency).ceil() as u32).max(1)
            });
            if let Some(port) = full {
                state.listed = Listed::Blocked;
                state.is_calm = urgency < 1.0;
                let blocked = &mut self.ports.state_mut(port).blocked;
                // It is there already if it was due before its turn came.
                if !blocked.contains(&volume) {
                    blocked.push_back(volume);
                }
                return;
            }
            let is_bound = |target: &Target| target.unflushed.written() >= unflushed_most;
            if state.flushing.round.is_some() && state.targets.iter().any(is_bound) {
                // Due again when the flush is complete.
                break Listed::No;
            }
            let started = state.locks.iter().filter(|lock| lock.started);
            let closed: Vec<Range<u64>> = started.map(|lock| lock.blocks.clone()).collect();
            let parts = &state.parts;
            let region = |block: u64| parts[parts.partition_point(|part| part.blocks.end <= block)].blocks.clone();
            let version = state.awaited();
            let failures = state.failures.as_mut();
            let (retry, retry_most) = failures.map_or((None, 1), |failures| (failures.retry(now), failures.retry_most));
            let reasons = Reasons { sweep: sweep.is_some_and(|time| time <= now), retry, version, retry_most };
            let Some(run) = state.dirty.next_run(&reasons, most, &closed, region) else { break Listed::No };
            let blocks = run.block..run.block + run.frames.len() as u64;
            let (port, bytes) = self.volumes.home(self.shift, volume, blocks.clone());
            self.ports.state_mut(port).writes += 1;
            let held = Shared::of(&self.memory.arena, &run.frames, 0, (bytes.end - bytes.start) as usize);
            let first = Key::new(volume, run.block);
            let record = Record::Write { first, blocks: run.frames.len() as u64, held: Some(held), void: false };
            self.ports.queue_home(&mut self.volumes, volume, Class::Write, blocks, record, now);
        };
        self.cleaner.list(&mut self.volumes, volume, listed);
        // It leaves room at its ports, which another volume may use.
        for at in 0..self.volumes.state_mut(volume).targets.len() {
            let port = self.volumes.state_mut(volume).targets[at].port;
            self.unblock(port);
        }
    }

    /// A write at `port` is over, or a volume that it would let write has nothing to write: the next volume is due.
    pub(crate) fn unblock(&mut self, port: Port) {
        let state = self.ports.state_mut(port);
        if state.writes >= state.depth {
            return;
        }
        while let Some(volume) = self.ports.state_mut(port).blocked.pop_front() {
            let state = self.volumes.get_mut(volume);
            if state.is_some_and(|state| state.listed == Listed::Blocked) {
                self.cleaner.list(&mut self.volumes, volume, Listed::Due);
                break;
            }
        }
    }

    /// As [`Engine::check`], for the lists of volumes and ports.
    pub(crate) fn check_lists(&mut self) {
        let mut users = vec![0; self.ports.all.len()];
        self.levels.users().for_each(|port| users[usize::from(port.0)] += 1);
        for (volume, state) in self.volumes.numbered() {
            state.parts.iter().for_each(|part| users[usize::from(part.port.0)] += 1);
            let lists = |port: Port| self.ports.get(port).is_some_and(|p| p.volumes.contains(&volume));
            assert!(state.targets.iter().all(|target| lists(target.port)));
            assert_eq!(self.volumes.closing.contains(&volume), state.closing.is_some());
            assert_eq!(self.requests.locked.contains(&volume), !state.locks.is_empty());
            let requests = self.requests.all.iter().flatten().filter(|active| active.request.volume == volume);
            assert_eq!(requests.count() as u32, state.requests);
            match state.listed {
                Listed::No => {
                    let busy = self.ports.operations.values().any(|record| record.volume() == Some(volume));
                    assert!(state.dirty.is_empty() || busy || !state.locks.is_empty(), "write-back is forgotten");
                }
                Listed::Due => assert!(self.cleaner.due.contains(&volume)),
                Listed::Aging(time) => assert!(self.cleaner.aging.contains(&(time, volume))),
                Listed::Resting(time) => assert!(self.cleaner.resting.contains(&(time, volume))),
                Listed::Blocked => assert!(self.ports.all.iter().flatten().any(|port| port.blocked.contains(&volume))),
            }
        }
        let mut queued = 0;
        for (at, port) in self.ports.all.iter().enumerate() {
            let Some(port) = port else { continue };
            queued += port.queue.len();
            assert_eq!(port.users, users[at]);
            assert!(port.at_device <= port.depth && port.writes <= port.depth);
            let waits = port.queue.len() > 0 && port.at_device < port.depth;
            assert!(!waits || self.ports.ready.contains(&Port(at as u16)), "a port is forgotten");
        }
        assert_eq!(queued as u32, self.ports.queued);
    }
}
