//! The devices' side: operations to devices, and their completions.

use std::ops::Range;

use smallvec::SmallVec;

use crate::arena::Exclusive;
use crate::engine::Engine;
use crate::frames::{DIRTY, LOADING, UNFLUSHED};
use crate::level::Entry;
use crate::queue::{Class, Waiting};
use crate::record::{Carry, Fetch, Record, Store};
use crate::request::{Action, Damages, Fault, Op, Operation, Outcome, Port, Volume};
use crate::requests::Step;
use crate::slots::Key;

impl Engine {
    /// The next operation for a device, if a port has one and its depth allows it.
    pub fn next_operation(&mut self, now: u64) -> Option<Operation> {
        self.fetch_predicted(now);
        self.pass_late_levels(now);
        self.thaw_late(now);
        self.write_back(now);
        self.go_on_storing(now);
        let most = u64::from(self.config.limits.operation_bytes >> self.shift);
        while let Some(port) = self.ports.next_ready() {
            let state = self.ports.state_mut(port);
            if let Some(run) = state.queue.pop(most, now) {
                state.at_device += 1;
                self.ports.queued -= run.len() as u32;
                self.ports.make_ready(port);
                return Some(self.start(port, &run, now));
            }
        }
        None
    }

    fn start(&mut self, port: Port, run: &[Waiting], now: u64) -> Operation {
        let (first, joined) = run.split_first().expect("a run is not empty");
        for other in joined {
            let Some(Record::Read { first: key, frames: more, passed: too, .. }) =
                self.ports.operations.remove(&other.id)
            else {
                unreachable!("only reads are joined");
            };
            self.volumes.state_mut(key.volume()).operations -= 1;
            for frame in &more {
                self.memory.loads.get_mut(frame).expect("a frame being loaded has a load").operation = first.id;
            }
            let Some(Record::Read { frames, passed, .. }) = self.ports.operations.get_mut(&first.id) else {
                unreachable!("only reads are joined");
            };
            frames.extend(more);
            *passed |= too;
        }
        if let Some(Record::Fetch(_) | Record::Store(_) | Record::Carry(_)) = self.ports.operations.get(&first.id) {
            return self.start_level(first.id, port, now);
        }
        let consecutive = |first: Key, count: usize| first.index()..first.index() + count as u64;
        let (volume, blocks, action) = match self.ports.operations.get_mut(&first.id).expect("a queued operation") {
            Record::Read { first, frames, since, .. } => {
                *since = now;
                let (first, frames) = (*first, frames.clone());
                let blocks = consecutive(first, frames.len());
                let (_, bytes) = self.volumes.home(self.shift, first.volume(), blocks.clone());
                let length = (bytes.end - bytes.start) as usize;
                (first.volume(), blocks, Action::Read(Exclusive::of(&self.memory.arena, &frames, 0, length)))
            }
            Record::Write { first, blocks, held, .. } => {
                let held = held.take().expect("an operation starts once");
                (first.volume(), consecutive(*first, *blocks as usize), Action::Write(held))
            }
            Record::Flush { volume } => {
                let volume = *volume;
                self.start_flush(volume, port, now);
                (volume, 0..0, Action::Flush)
            }
            Record::Range { volume, request, blocks, .. } => {
                let (volume, request, blocks) = (*volume, *request, blocks.clone());
                let action = match self.requests.active(request).request.op {
                    Op::Zeroes { keep, fast } => Action::Zeroes { keep, fast },
                    _ => Action::Discard,
                };
                (volume, blocks, action)
            }
            Record::Fetch(_) | Record::Store(_) | Record::Carry(_) | Record::Late { .. } => unreachable!("a level's"),
        };
        let bytes = if blocks.is_empty() { 0..0 } else { self.volumes.home(self.shift, volume, blocks).1 };
        let length = bytes.end - bytes.start;
        let counters = &mut self.volumes.state_mut(volume).counters;
        match action {
            Action::Read(_) => {
                counters.device_reads += 1;
                counters.device_read_bytes += length;
            }
            Action::Write(_) => {
                counters.device_writes += 1;
                counters.device_written_bytes += length;
            }
            Action::Flush => counters.device_flushes += 1,
            Action::Discard | Action::Zeroes { .. } => {}
        }
        Operation::new(first.id, port, bytes, action, Vec::new())
    }

    /// As `start`, for an operation of a level.
    fn start_level(&mut self, id: u64, port: Port, now: u64) -> Operation {
        let block_bytes = self.config.block_bytes as usize;
        let mut volumes = Vec::new();
        let (mut keys, mut leaves) = (Vec::new(), false);
        let (level, place, action, seeds) = match self.ports.operations.get_mut(&id).expect("a queued operation") {
            Record::Fetch(Fetch { level, place, first, frames, leaves: of, .. }) => {
                leaves = *of;
                let seeds: Vec<u64> = (first.index()..).take(frames.len()).collect();
                let frames = Exclusive::of(&self.memory.arena, frames, 0, frames.len() * block_bytes);
                (*level, *place, Action::Read(frames), seeds)
            }
            Record::Store(Store { level, place, blocks, held, .. }) => {
                volumes.extend(blocks.iter().map(|(key, _)| key.volume()));
                keys.extend(blocks.iter().map(|&(key, _)| key));
                let seeds = blocks.iter().map(|(key, _)| key.index()).collect();
                (*level, *place, Action::Write(held.take().expect("an operation starts once")), seeds)
            }
            Record::Carry(Carry { at, place, key, frame, .. }) => {
                let frames = Exclusive::of(&self.memory.arena, &[*frame], 0, block_bytes);
                (*at, *place, Action::Read(frames), vec![key.index()])
            }
            _ => unreachable!("no level's"),
        };
        let secret = self.levels.all[level].level.secret();
        let seeds = seeds.into_iter().map(|seed| seed ^ secret).collect::<Vec<u64>>();
        let (offset, length) = (self.levels.offset(level, place), (seeds.len() * block_bytes) as u64);
        self.levels.count(level, matches!(action, Action::Read(_)), length);
        if self.levels.all[level].level.config.patience_us < u64::MAX {
            self.levels.all[level].at_device.push_back((id, now));
        }
        let is_shared = self.levels.unified && self.levels.all[level].level.config.shared;
        let ages_us = if is_shared { keys.into_iter().map(|key| self.age_us(key, now)).collect() } else { Vec::new() };
        Operation { leaves, ages_us, volumes, ..Operation::new(id, port, offset..offset + length, action, seeds) }
    }

    /// Completes the first `blocks` blocks of a long read that succeeded, so that a host can let others have the engine before it
    /// completes the next ones. Returns false without having done anything if no more than these are left, or if the operation is
    /// no such read: [`complete`](Engine::complete) does what is left.
    pub fn complete_first(&mut self, now: u64, operation: &mut Operation, blocks: usize) -> bool {
        let Some(Record::Read { first, frames, .. }) = self.ports.operations.get(&operation.id) else { return false };
        let (volume, range) = (first.volume(), first.index()..first.index() + frames.len() as u64);
        if frames.len() <= blocks || self.volumes.has_lost(volume, range.clone()) {
            return false;
        }
        operation.seal();
        let Action::Read(held) = &mut operation.action else { unreachable!("a read has frames") };
        held.let_go_first(blocks);
        let Some(Record::Read { first, frames, .. }) = self.ports.operations.get_mut(&operation.id) else {
            unreachable!("it was there")
        };
        *first = Key::new(volume, range.start + blocks as u64);
        let done: SmallVec<[u32; 16]> = frames.drain(..blocks).collect();
        for (block, frame) in range.zip(done) {
            self.complete_load(Key::new(volume, block), frame, now);
        }
        true
    }

    pub(crate) fn complete_home(&mut self, port: Port, record: Record, result: Result<(), Fault>, now: u64) {
        let volume = record.volume().expect("a volume's");
        let state = self.volumes.state_mut(volume);
        state.operations -= 1;
        state.counters.device_faults += u64::from(result.is_err());
        match record {
            Record::Read { first, frames, .. } => match result {
                Ok(()) if self.volumes.has_lost(volume, first.index()..first.index() + frames.len() as u64) => {
                    self.fail_loads(volume, first.index(), &frames, Fault::DAMAGED, now);
                }
                Ok(()) => {
                    for (block, frame) in (first.index()..).zip(frames) {
                        self.complete_load(Key::new(volume, block), frame, now);
                    }
                }
                Err(fault) => self.fail_loads(volume, first.index(), &frames, fault, now),
            },
            Record::Write { first, blocks, void, .. } => {
                state.target(port).unsynced = true;
                self.ports.state_mut(port).writes -= 1;
                self.complete_write(volume, port, first.index()..first.index() + blocks, result, void, now);
                self.unblock(port);
            }
            Record::Flush { .. } => self.complete_flush(volume, port, result, now),
            Record::Range { request, blocks, void, .. } => {
                state.target(port).unsynced = true;
                self.invalidate_range(volume, &blocks);
                match result {
                    // The request has failed already.
                    Ok(()) if void => {}
                    Ok(()) => {
                        self.volumes.replace_lost(volume, blocks.clone());
                        let unflushed = &mut self.volumes.state_mut(volume).target(port).unflushed;
                        unflushed.forget(&blocks);
                        if self.requests.active(request).request.op != Op::Trim && !self.ports.state_mut(port).replays {
                            unflushed.zero();
                        }
                        self.drop_blocks(volume, blocks);
                    }
                    Err(fault) => self.requests.active(request).fault = Some(fault),
                }
                let mut locks = self.volumes.state_mut(volume).locks.iter_mut();
                let lock = locks.find(|lock| lock.request == request).expect("its range is locked");
                lock.operations -= 1;
                if lock.operations == 0 {
                    self.store(request, now);
                    self.unlock(volume, request, now);
                    self.drained(volume, now);
                }
            }
            Record::Fetch(_) | Record::Store(_) | Record::Carry(_) | Record::Late { .. } => unreachable!("a level's"),
        }
    }

    fn complete_flush(&mut self, volume: Volume, port: Port, result: Result<(), Fault>, now: u64) {
        if let Err(fault) = result {
            self.fail_flush(port, fault, now);
        }
        let retry_us = self.config.write_back.retry_us;
        let state = self.volumes.state_mut(volume);
        let lost = state.flushing.lost;
        let target = state.target(port);
        target.flushing = false;
        match result {
            Ok(()) => target.unflushed.end_flush(),
            Err(_) => target.unsynced = true,
        }
        let mut round = state.flushing.round.take().expect("a flush belongs to a round");
        round.operations -= 1;
        round.fault = round.fault.or(result.err());
        if round.operations > 0 {
            state.flushing.round = Some(round);
            return;
        }
        if round.fault.is_some() && round.requests.is_empty() && state.flushing.flushes.is_empty() {
            // It was the engine's own, and would be repeated at once.
            state.flushing.pause = now + retry_us;
        }
        for id in round.requests {
            self.finish(id, round.fault.or(lost).map_or(Outcome::Done, Outcome::Failed));
        }
        if let Some(fault) = round.fault {
            self.fail_closing(volume, fault);
        }
        self.cleaner.make_due(&mut self.volumes, volume);
        self.sync(volume, now);
        self.flush_if_due(volume, now);
    }

    pub(crate) fn complete_load(&mut self, key: Key, frame: u32, now: u64) {
        if let Some(waiters) = self.end_load(key, frame, false, now) {
            self.memory.frames.clear(frame, LOADING);
            let is_wanted = !waiters.is_empty();
            self.wake(waiters, frame, now);
            if is_wanted {
                self.offer_if_outside(key, frame);
            }
            self.arrive(key, frame);
        }
    }

    /// The read of `frames`, blocks from `first` on, failed. Requests that wait for all of these blocks fail. For the
    /// others, the fault may be in a block that they did not request: blocks that the same requests wait for are read
    /// again as one operation, which no other may join. Each time, there is less to read. Blocks that no request
    /// waits for are dropped.
    fn fail_loads(&mut self, volume: Volume, first: u64, frames: &[u32], fault: Fault, now: u64) {
        let waiters = |engine: &Engine, frame: u32| -> SmallVec<[u32; 4]> {
            engine.memory.loads[&frame].waiters.iter().map(|&(id, _)| id).collect()
        };
        let mut failed = waiters(self, frames[0]);
        for &frame in &frames[1..] {
            let these = waiters(self, frame);
            failed.retain(|id| these.contains(id));
        }
        let mut again: Vec<(u64, u32, SmallVec<[u32; 4]>)> = Vec::new();
        for (block, &frame) in (first..).zip(frames) {
            let load = self.memory.loads.get_mut(&frame).expect("a frame being loaded has a load");
            load.waiters.retain(|(id, _)| !failed.contains(id));
            if !load.waiters.is_empty() {
                again.push((block, frame, waiters(self, frame)));
            } else if self.end_load(Key::new(volume, block), frame, true, now).is_some() {
                self.drop_blocks(volume, block..block + 1);
            }
        }
        for run in again.chunk_by(|one, other| one.0 + 1 == other.0 && one.2 == other.2) {
            let blocks = run[0].0..run[0].0 + run.len() as u64;
            let frames: Vec<u32> = run.iter().map(|&(_, frame, _)| frame).collect();
            let first = Key::new(volume, blocks.start);
            let record = Record::Read { first, frames: frames.clone(), alone: true, since: 0, passed: 0 };
            let operation = self.ports.queue_home(&mut self.volumes, volume, Class::Read, blocks, record, now);
            for frame in frames {
                self.memory.loads.get_mut(&frame).expect("it goes on").operation = operation;
            }
        }
        for id in failed {
            let active = self.requests.active(id);
            active.fault = Some(fault);
            active.loading -= frames.len() as u32;
            match (active.loading, active.step) {
                (0, Step::Reading) => self.finish_read(id),
                (0, _) => self.merged(id, now),
                _ => {}
            }
        }
    }

    /// The device has finished the write of `blocks`. With `void`, they are written again whatever the result.
    fn complete_write(
        &mut self,
        volume: Volume,
        port: Port,
        blocks: Range<u64>,
        result: Result<(), Fault>,
        void: bool,
        now: u64,
    ) {
        let count = blocks.end - blocks.start;
        let mut told = false;
        let mut oldest = u64::MAX;
        let is_written = result.is_ok() && !void;
        let range = blocks.clone();
        let again = self.volumes.state_mut(volume).dirty.has_failed_since(range.clone(), now);
        // The fault may be in one of several blocks: those are tried again in shorter runs at once.
        let retry_at = now + if count > 1 { 0 } else { self.config.write_back.retry_us };
        let written = match result {
            Ok(()) if void => Err(None),
            result => result.map_err(|_| Some(retry_at)),
        };
        let is_unflushed = is_written && !self.ports.state_mut(port).replays;
        for block in blocks {
            let key = Key::new(volume, block);
            let written = self.volumes.state_mut(volume).dirty.written(block, written, now);
            oldest = oldest.min(written.first);
            if is_unflushed {
                self.volumes.state_mut(volume).target(port).unflushed.write(block);
            }
            if written.clean {
                self.cleaner.dirty -= 1;
                self.memory.frames.clear(written.frame, DIRTY);
                self.memory.frames.set(written.frame, if is_unflushed { UNFLUSHED } else { 0 });
                self.offer_if_outside(key, written.frame);
                self.arrive(key, written.frame);
            } else if self.memory.outside.contains_key(&key) {
                self.volumes.state_mut(volume).dirty.hurry(block);
            }
            for waiter in written.waiters {
                told = true;
                let active = self.requests.active(waiter.request);
                active.storing -= 1;
                active.fault = active.fault.or(result.err());
                if active.storing == 0 && active.step == Step::Storing {
                    self.store(waiter.request, now);
                }
            }
        }
        match result {
            Ok(()) => {
                self.line.count_written(&mut self.cleaner, &mut self.volumes, volume, count, now);
                self.volumes.note_written(volume, again);
            }
            Err(fault) => self.note_unwritten(volume, range, again, fault, now),
        }
        if let Err(fault) = result {
            let state = self.volumes.state_mut(volume);
            let mut failed = Vec::new();
            state.flushing.flushes.retain(|flush| {
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
                self.volumes.state_mut(volume).flushing.fault = Some(fault);
            }
            // Volumes that are being closed do not wait for room that a failed device may never free.
            for at in 0..self.volumes.closing.len() {
                self.fail_queued(self.volumes.closing[at], fault, now);
            }
        }
        self.cleaner.make_due(&mut self.volumes, volume);
        self.drained(volume, now);
        if self.volumes.state_mut(volume).target(port).unflushed.since() >= self.config.write_back.unflushed {
            self.flush_if_due(volume, now);
        }
    }

    /// The level's device has finished `fetch`. Blocks that differ from what was stored are loaded from below.
    pub(crate) fn complete_fetch(&mut self, fetch: Fetch, sums: &[u64], result: Result<(), Fault>, now: u64) {
        let Fetch { level, place, first, frames, opening, sums: expected, leaves } = fetch;
        let volume = first.volume();
        self.note_level_result(level, result);
        // A level that is away may return the block later.
        let of = &mut self.levels.all[level].level;
        let stays = of.is_away(result) && !leaves;
        let is_good = |at: usize| result.is_ok() && sums[at] == expected[at];
        let mut bad: Vec<(u64, u32)> = Vec::new();
        let mut hits = 0;
        for (at, &frame) in frames.iter().enumerate() {
            if is_good(at) {
                hits += 1;
                if leaves {
                    of.drop_entry(place + at as u32, Entry::new(opening, first.index() + at as u64));
                }
            } else {
                let block = first.index() + at as u64;
                if !stays {
                    of.drop_entry(place + at as u32, Entry::new(opening, block));
                }
                of.counters.mismatches += u64::from(result.is_ok());
                bad.push((block, frame));
            }
        }
        of.counters.hits += hits;
        let counters = &mut self.volumes.state_mut(volume).counters;
        *[&mut counters.level_1_hits, &mut counters.level_2_hits][level] += hits;
        for (at, &frame) in frames.iter().enumerate() {
            if is_good(at) {
                self.complete_load(Key::new(volume, first.index() + at as u64), frame, now);
            }
        }
        self.load_below(volume, bad, level, now);
    }

    /// An operation that would have written damaged frames was not passed to its device.
    pub(crate) fn complete_damaged(&mut self, port: Port, record: Record, damages: &Damages, now: u64) {
        match record {
            Record::Write { first, .. } => {
                let volume = first.volume();
                self.volumes.state_mut(volume).operations -= 1;
                self.ports.state_mut(port).writes -= 1;
                for block in (first.index()..).take(damages.frames.len()) {
                    self.volumes.state_mut(volume).dirty.put_back(block);
                }
                for &at in &damages.at {
                    let key = Key::new(volume, first.index() + at as u64);
                    // There may be newer contents in another frame.
                    if self.memory.current(&self.slots, key) == Some(damages.frames[at]) {
                        self.lose(key, now);
                    }
                }
                self.cleaner.make_due(&mut self.volumes, volume);
                self.drained(volume, now);
                self.unblock(port);
            }
            Record::Store(store) => {
                let damaged: Vec<_> = damages.at.iter().map(|&at| (store.blocks[at].0, store.frames[at])).collect();
                for (key, frame) in damaged {
                    if self.memory.current(&self.slots, key) == Some(frame) && !self.memory.frames.has(frame, DIRTY) {
                        self.drop_block(key);
                    }
                    if self.memory.current(&self.slots, key).is_none() {
                        self.checks.report(&mut self.volumes, key, false);
                    }
                }
                self.complete_store(store, &[], Ok(()));
            }
            _ => unreachable!("nothing else writes frames"),
        }
    }
}
