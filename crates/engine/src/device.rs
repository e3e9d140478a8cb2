//! The devices' side: operations to them, completions from them, and background write-back.

use std::ops::Range;

use nigh_policy::Tenant;
use smallvec::SmallVec;

use crate::arena::{Exclusive, Shared};
use crate::engine::{Engine, LoadWaiters, Step};
use crate::frames::{DIRTY, LOADING};
use crate::queue::{Class, Waiting};
use crate::request::{Action, Fault, Op, Operation, Outcome, Volume};
use crate::slots::Key;

/// Whether somebody waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Somebody does.
    Demand,
    /// Nobody does yet.
    Ahead,
    /// Nobody does yet; this tenant's list said that it will.
    Predicted(Tenant),
}

/// An operation that is queued or at the device.
pub(crate) enum Record {
    /// Into these frames of consecutive blocks; `alone` if it must not be joined by others.
    Read { block: u64, frames: Vec<u32>, alone: bool },
    /// Of these frames, held until the operation has them.
    Write { block: u64, blocks: u64, held: Option<Shared> },
    /// For the requests that wait by the time it starts.
    Flush { requests: Vec<u32> },
    /// The discard or zeroes of a request.
    Range { request: u32, blocks: Range<u64> },
}

impl Engine {
    fn queue_operation(&mut self, volume: Volume, class: Class, blocks: Range<u64>, record: Record, now: u64) -> u64 {
        let id = self.operations_made;
        self.operations_made += 1;
        let alone = matches!(record, Record::Read { alone: true, .. });
        self.operations.insert(id, record);
        let waiting = Waiting { id, block: blocks.start, blocks: blocks.end - blocks.start, since: now, alone };
        self.volume(volume).queue.push(class, waiting);
        id
    }

    pub(crate) fn queue_read(
        &mut self,
        volume: Volume,
        block: u64,
        frames: Vec<u32>,
        reading: Reading,
        now: u64,
    ) -> u64 {
        let class = match reading {
            Reading::Demand => Class::Read,
            Reading::Ahead | Reading::Predicted(_) => Class::Prefetch,
        };
        let blocks = block..block + frames.len() as u64;
        self.queue_operation(volume, class, blocks, Record::Read { block, frames, alone: false }, now)
    }

    pub(crate) fn queue_range(&mut self, volume: Volume, request: u32, blocks: Range<u64>, now: u64) {
        let record = Record::Range { request, blocks: blocks.clone() };
        self.queue_operation(volume, Class::Control, blocks, record, now);
    }

    pub(crate) fn queue_flush(&mut self, volume: Volume, now: u64) {
        self.queue_operation(volume, Class::Control, 0..0, Record::Flush { requests: Vec::new() }, now);
    }

    /// The bytes of `blocks`, as far as the device goes.
    fn bytes(&self, volume: Volume, blocks: Range<u64>) -> Range<u64> {
        let state = self.volumes[volume.0 as usize].as_ref().expect("an open volume");
        blocks.start << self.shift..(blocks.end << self.shift).min(state.bytes)
    }

    /// The next operation for a device, if there is one that its depth allows.
    pub fn next_operation(&mut self, now: u64) -> Option<Operation> {
        self.fetch_predicted(now);
        if self.dirty > self.marks.start {
            self.writing_back = true;
        } else if self.dirty <= self.marks.stop {
            self.writing_back = false;
        }
        let most = u64::from(self.config.limits.operation_bytes >> self.shift);
        let count = self.volumes.len();
        for at in (self.turn..count).chain(0..self.turn.min(count)) {
            if self.volumes[at].is_none() {
                continue;
            }
            let volume = Volume(at as u32);
            if self.volume(volume).at_device >= self.config.limits.depth {
                continue;
            }
            self.write_back(volume, now);
            let state = self.volume(volume);
            if let Some(run) = state.queue.pop(most, now) {
                state.at_device += 1;
                self.turn = at + 1;
                return Some(self.start(volume, &run));
            }
        }
        None
    }

    fn start(&mut self, volume: Volume, run: &[Waiting]) -> Operation {
        let (first, joined) = run.split_first().expect("a run is not empty");
        for other in joined {
            let Some(Record::Read { frames: more, .. }) = self.operations.remove(&other.id) else {
                unreachable!("only reads are joined");
            };
            for frame in &more {
                self.loads.get_mut(frame).expect("a frame being loaded has a load").operation = first.id;
            }
            let Some(Record::Read { frames, .. }) = self.operations.get_mut(&first.id) else {
                unreachable!("only reads are joined");
            };
            frames.extend(more);
        }
        let state = self.volumes[volume.0 as usize].as_mut().expect("an open volume");
        let (blocks, action) = match self.operations.get_mut(&first.id).expect("a queued operation") {
            Record::Read { block, frames, .. } => {
                let blocks = *block..*block + frames.len() as u64;
                let frames = frames.clone();
                let bytes = self.bytes(volume, blocks.clone());
                let length = (bytes.end - bytes.start) as usize;
                (blocks, Action::Read(Exclusive::of(&self.arena, &frames, 0, length)))
            }
            Record::Write { block, blocks, held } => {
                (*block..*block + *blocks, Action::Write(held.take().expect("an operation starts once")))
            }
            Record::Flush { requests } => {
                *requests = std::mem::take(&mut state.syncs);
                state.unsynced = false;
                state.counters.device_flushes += 1;
                (0..0, Action::Flush)
            }
            Record::Range { request, blocks } => {
                let (request, blocks) = (*request, blocks.clone());
                let action = match self.active(request).request.op {
                    Op::Zeroes { keep, fast } => Action::Zeroes { keep, fast },
                    _ => Action::Discard,
                };
                (blocks, action)
            }
        };
        let bytes = if blocks.is_empty() { 0..0 } else { self.bytes(volume, blocks) };
        let length = bytes.end - bytes.start;
        let counters = &mut self.volume(volume).counters;
        match action {
            Action::Read(_) => {
                counters.device_reads += 1;
                counters.device_read_bytes += length;
            }
            Action::Write(_) => {
                counters.device_writes += 1;
                counters.device_written_bytes += length;
            }
            _ => {}
        }
        Operation { id: first.id, volume, offset: bytes.start, length, action }
    }

    /// The device is done with `operation`: all of it, or it failed, whatever part of it was done.
    ///
    /// # Panics
    /// If the operation came from another engine.
    pub fn complete(&mut self, now: u64, operation: Operation, result: Result<(), Fault>) {
        let Operation { id, volume, action, .. } = operation;
        let record = self.operations.remove(&id).expect("an operation of this engine");
        drop(action);
        let state = self.volume(volume);
        state.at_device -= 1;
        state.counters.device_faults += u64::from(result.is_err());
        match record {
            Record::Read { block, frames, .. } => match result {
                Ok(()) => {
                    for (block, frame) in (block..).zip(frames) {
                        self.complete_load(Key::new(volume, block), frame, now);
                    }
                }
                Err(fault) => self.fail_loads(volume, block, &frames, fault, now),
            },
            Record::Write { block, blocks, .. } => {
                state.writes -= 1;
                state.unsynced = true;
                self.complete_write(volume, block..block + blocks, result, now);
            }
            Record::Flush { requests } => {
                state.syncing = false;
                if result.is_err() {
                    state.unsynced = true;
                }
                for id in requests {
                    self.finish(id, result.map_or_else(Outcome::Failed, |()| Outcome::Done));
                }
                if let Err(fault) = result {
                    self.fail_closing(volume, fault);
                }
                self.sync(volume, now);
            }
            Record::Range { request, blocks } => {
                state.unsynced = true;
                match result {
                    Ok(()) => self.drop_blocks(volume, blocks),
                    Err(fault) => self.active(request).fault = Some(fault),
                }
                self.store(request, now);
                self.unlock(volume, request, now);
                self.drained(volume, now);
            }
        }
        self.pump(now);
    }

    /// The load of `frame` is over. Gives who waits for it, unless the block was overwritten or dropped meanwhile.
    fn end_load(&mut self, key: Key, frame: u32, failed: bool) -> Option<LoadWaiters> {
        let load = self.loads.remove(&frame).expect("a frame being loaded has a load");
        self.prefetching -= u32::from(load.reading != Reading::Demand);
        if let Reading::Predicted(tenant) = load.reading {
            self.predicted_loaded(tenant, key.volume(), failed);
        }
        if self.current(key) == Some(frame) {
            return Some(load.waiters);
        }
        assert!(load.waiters.is_empty());
        self.retire(frame);
        None
    }

    fn complete_load(&mut self, key: Key, frame: u32, now: u64) {
        if let Some(waiters) = self.end_load(key, frame, false) {
            self.frames.clear(frame, LOADING);
            self.wake(waiters, frame, now);
            self.settle(key, frame);
        }
    }

    /// The read of `frames`, blocks from `first` on, failed. That is final for requests that wait for all of them. For the
    /// others the fault may lie in a block that they did not ask for: what the same requests wait for is read again, joined
    /// by nothing. So each time there is less to read. Blocks that nobody waits for are dropped.
    fn fail_loads(&mut self, volume: Volume, first: u64, frames: &[u32], fault: Fault, now: u64) {
        let waiters = |engine: &Engine, frame: u32| -> SmallVec<[u32; 4]> {
            engine.loads[&frame].waiters.iter().map(|&(id, _)| id).collect()
        };
        let mut failed = waiters(self, frames[0]);
        for &frame in &frames[1..] {
            let these = waiters(self, frame);
            failed.retain(|id| these.contains(id));
        }
        let mut again: Vec<(u64, u32, SmallVec<[u32; 4]>)> = Vec::new();
        for (block, &frame) in (first..).zip(frames) {
            let load = self.loads.get_mut(&frame).expect("a frame being loaded has a load");
            load.waiters.retain(|(id, _)| !failed.contains(id));
            if !load.waiters.is_empty() {
                again.push((block, frame, waiters(self, frame)));
            } else if self.end_load(Key::new(volume, block), frame, true).is_some() {
                self.drop_blocks(volume, block..block + 1);
            }
        }
        for run in again.chunk_by(|one, other| one.0 + 1 == other.0 && one.2 == other.2) {
            let blocks = run[0].0..run[0].0 + run.len() as u64;
            let frames: Vec<u32> = run.iter().map(|&(_, frame, _)| frame).collect();
            let record = Record::Read { block: blocks.start, frames: frames.clone(), alone: true };
            let operation = self.queue_operation(volume, Class::Read, blocks, record, now);
            for frame in frames {
                self.loads.get_mut(&frame).expect("it goes on").operation = operation;
            }
        }
        for id in failed {
            let active = self.active(id);
            active.fault = Some(fault);
            active.loading -= frames.len() as u32;
            match (active.loading, active.step) {
                (0, Step::Reading) => self.finish_read(id),
                (0, _) => self.merged(id, now),
                _ => {}
            }
        }
    }

    fn complete_write(&mut self, volume: Volume, blocks: Range<u64>, result: Result<(), Fault>, now: u64) {
        let mut told = false;
        let mut oldest = u64::MAX;
        for block in blocks {
            let key = Key::new(volume, block);
            let written = self.volume(volume).dirty.written(block, result.is_ok(), now);
            oldest = oldest.min(written.first);
            if written.clean {
                self.dirty -= 1;
                self.frames.clear(written.frame, DIRTY);
                self.settle(key, written.frame);
            } else if self.outside.contains_key(&key) {
                self.volume(volume).dirty.hurry(block);
            }
            for waiter in written.waiters {
                told = true;
                let active = self.active(waiter.request);
                active.storing -= 1;
                active.fault = active.fault.or(result.err());
                if active.storing == 0 && active.step == Step::Storing {
                    self.store(waiter.request, now);
                }
            }
        }
        if let Err(fault) = result {
            let retry_at = now + self.config.write_back.retry_us;
            let state = self.volume(volume);
            state.retry_at = retry_at;
            let mut failed = Vec::new();
            state.flushes.retain(|flush| {
                let covered = flush.version >= oldest;
                failed.extend(covered.then_some(flush.request));
                !covered
            });
            told |= !failed.is_empty();
            for id in failed {
                self.finish(id, Outcome::Failed(fault));
            }
            told |= self.fail_closing(volume, fault);
            if !told {
                self.volume(volume).fault = Some(fault);
            }
            // Volumes that are being closed do not wait for room that a failed device may never give.
            for closing in self.closing(|_| true) {
                self.fail_queued(closing, fault, now);
            }
        }
        self.drained(volume, now);
    }

    /// Queues writes of dirty blocks of `volume`, as many as its depth allows, while there is a reason to.
    fn write_back(&mut self, volume: Volume, now: u64) {
        let most = (self.config.limits.operation_bytes >> self.shift) as usize;
        let age_us = self.config.write_back.age_us;
        let general = self.writing_back || !self.writes_waiting.is_empty();
        let depth = self.config.limits.depth;
        loop {
            let state = self.volume(volume);
            let Some((_, since)) = state.dirty.oldest() else { return };
            if state.writes >= depth || now < state.retry_at {
                return;
            }
            let sweep =
                general || !state.flushes.is_empty() || state.closing.is_some() || now.saturating_sub(since) >= age_us;
            if !sweep && !state.dirty.has_urgent() {
                return;
            }
            let started = state.locks.iter().filter(|lock| lock.started);
            let closed: Vec<Range<u64>> = started.map(|lock| lock.blocks.clone()).collect();
            let Some(run) = state.dirty.next_run(!sweep, most, &closed) else { return };
            state.writes += 1;
            let blocks = run.block..run.block + run.frames.len() as u64;
            let bytes = self.bytes(volume, blocks.clone());
            let held = Shared::of(&self.arena, &run.frames, 0, (bytes.end - bytes.start) as usize);
            let record = Record::Write { block: run.block, blocks: run.frames.len() as u64, held: Some(held) };
            self.queue_operation(volume, Class::Write, blocks, record, now);
        }
    }

    /// When `next_operation` should be called again although nothing happened, in µs: for dirty blocks whose age is up
    /// or whose write is to be tried again.
    pub fn next_wakeup(&self) -> Option<u64> {
        // Where an operation is at the device, its completion is what comes next.
        let idle = self.volumes.iter().flatten().filter(|state| state.at_device == 0);
        let times = idle.filter_map(|state| {
            let (_, since) = state.dirty.oldest()?;
            let waited_for = state.dirty.has_urgent() || !state.flushes.is_empty();
            let pressed = self.writing_back || waited_for || !self.writes_waiting.is_empty();
            let due = if pressed { 0 } else { since.saturating_add(self.config.write_back.age_us) };
            Some(due.max(state.retry_at))
        });
        times.min()
    }
}
