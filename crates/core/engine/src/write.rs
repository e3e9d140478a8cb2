//! Writes, zeroes, trims and flushes.

use std::ops::Range;

use nigh_policy::Kind;
use smallvec::SmallVec;

use crate::arena::{Exclusive, Shared};
use crate::engine::Engine;
use crate::frames::{DIRTY, LOADING};
use crate::memory::LoadWaiters;
use crate::queue::Class;
use crate::record::{Reading, Record};
use crate::request::{Fill, Op, Outcome, Reply, Volume, WriteMode};
use crate::requests::Step;
use crate::slots::{Key, NONE};
use crate::volume::{Flush, Listed, Lock, overlap};

impl Engine {
    /// Starts the write of the request's part, or queues it.
    pub(crate) fn begin_write(&mut self, id: u32, now: u64) {
        self.requests.active(id).step = Step::Queued;
        let volume = self.requests.active(id).request.volume;
        let unwritable = match self.volumes.state_mut(volume).failures {
            Some(_) => self.fault_of_blocks(id, now),
            None => None,
        };
        if unwritable.is_none() && self.volumes.state_mut(volume).turns.writes.is_empty() && self.start_write(id, now) {
            return;
        }
        match unwritable.or_else(|| self.fault_of_room(volume)) {
            Some(fault) => {
                self.requests.active(id).fault = Some(fault);
                self.store(id, now);
            }
            None => self.wait_in_line(id),
        }
    }

    /// The part of `block` that the bytes `part` cover, within the block, and the length of the block on the device.
    fn covered(&self, volume: Volume, block: u64, part: &Range<u64>) -> (Range<usize>, usize) {
        let (start, size) = (block << self.shift, u64::from(self.config.block_bytes));
        let state = self.volumes.state(volume);
        let exists = (state.bytes - start).min(size);
        let from = part.start.max(start) - start;
        let to = part.end.min(start + size) - start;
        (from as usize..to as usize, exists as usize)
    }

    fn is_whole(&self, volume: Volume, block: u64, part: &Range<u64>) -> bool {
        let (covered, exists) = self.covered(volume, block, part);
        covered == (0..exists)
    }

    /// The number of blocks of `part` that are partly overwritten.
    pub(crate) fn edges(&self, volume: Volume, part: &Range<u64>) -> u32 {
        let blocks = self.blocks(part);
        let partial = |&block: &u64| !self.is_whole(volume, block, part);
        let last = Some(blocks.end - 1).filter(|&last| last > blocks.start);
        [Some(blocks.start), last].into_iter().flatten().filter(partial).count() as u32
    }

    /// Assigns its frames to the write, unless it has to wait in the queue; returns false then.
    pub(crate) fn start_write(&mut self, id: u32, now: u64) -> bool {
        let active = self.requests.active(id);
        let (request, part) = (active.request, active.part.clone());
        let blocks = self.blocks(&part);
        let count = (blocks.end - blocks.start) as u32;
        let edges = self.edges(request.volume, &part);
        let room =
            |engine: &mut Engine| engine.has_room(count + edges) || engine.make_room(request.volume, count + edges);
        if self.volumes.is_frozen(request.volume) || !self.may_become_dirty(request.volume, count) || !room(self) {
            return false;
        }
        self.memory.reserved += edges;
        self.requests.filling += count;
        self.volumes.state_mut(request.volume).filling += count;
        let frames: Vec<u32> = blocks.map(|_| self.memory.frames.take()).collect();
        let skip = (part.start & (u64::from(self.config.block_bytes) - 1)) as usize;
        let mut target = Exclusive::of(&self.memory.arena, &frames, skip, (part.end - part.start) as usize);
        let active = self.requests.active(id);
        active.frames = frames;
        active.step = Step::Filling;
        if request.op == Op::Write {
            let outcome = Outcome::Fill(Fill { request: id, sealed: false, frames: target });
            self.requests.replies.push_back(Reply { token: request.token, outcome });
        } else {
            target.slices_mut().for_each(|slice| slice.fill(0));
            target.seal();
            drop(target);
            self.filled(id, now);
        }
        true
    }

    pub(crate) fn take_back(&mut self, fill: Fill) -> u32 {
        assert!(fill.frames.belongs(&self.memory.arena), "a write of another engine");
        let active = self.requests.active(fill.request);
        assert!(active.step == Step::Filling && active.frames == fill.frames.frames());
        fill.request
    }

    /// The frames of the request's part hold its bytes: they become the contents of its blocks, except of those that
    /// are partly overwritten and whose contents have to be loaded.
    pub(crate) fn filled(&mut self, id: u32, now: u64) {
        let active = self.requests.active(id);
        let (request, part, frames) = (active.request, active.part.clone(), active.frames.clone());
        let volume = request.volume;
        let blocks = self.blocks(&part);
        if self.volumes.state_mut(volume).is_locked(&blocks, id) {
            self.requests.active(id).step = Step::Filled;
            self.requests.parked.push(id);
            return;
        }
        let counters = &mut self.volumes.state_mut(volume).counters;
        counters.writes += 1;
        counters.written_bytes += part.end - part.start;
        self.requests.active(id).step = Step::Merging;
        let mut loading = 0;
        for (at, (block, &frame)) in (0..).zip(blocks.zip(&frames)) {
            let is_whole = self.is_whole(volume, block, &part);
            if !is_whole
                && self.config.verify > 0
                && let Err(fault) = self.inspect_block(Key::new(volume, block), now)
            {
                self.requests.active(id).fault = Some(fault);
                continue;
            }
            let (place, current, resident) =
                self.reference(Key::new(volume, block), Kind::Write, request.tenant, request.stream);
            let counters = self.count(volume, current, resident);
            counters.write_references += 1;
            counters.write_hits += u64::from(resident);
            if is_whole {
                if current.is_none() {
                    self.place(place, frame);
                }
                self.requests.active(id).frames[at as usize] = NONE;
                self.install(id, block, frame, now);
                continue;
            }
            match current {
                Some(current) if self.memory.frames.has(current, LOADING) => {
                    self.join(current, (id, at));
                    loading += 1;
                }
                Some(_) => self.merge(id, at, now),
                None => {
                    let base = self.memory.frames.take();
                    self.place(place, base);
                    self.memory.frames.set(base, LOADING);
                    let waiters = |_| SmallVec::from_slice(&[(id, at)]);
                    self.load(volume, &[(block, base)], Reading::Demand, now, waiters);
                    loading += 1;
                }
            }
        }
        self.memory.reserved -= self.edges(volume, &part);
        self.requests.active(id).loading = loading;
        if loading == 0 {
            self.merged(id, now);
        }
    }

    /// Completes block number `at` of the request's part, which it partly overwrites, with the block's contents.
    pub(crate) fn merge(&mut self, id: u32, at: u32, now: u64) {
        let active = self.requests.active(id);
        let (volume, part) = (active.request.volume, active.part.clone());
        let frame = std::mem::replace(&mut active.frames[at as usize], NONE);
        let block = (part.start >> self.shift) + u64::from(at);
        let current = self.memory.current(&self.slots, Key::new(volume, block)).expect("the contents are there");
        assert!(frame != NONE && !self.memory.frames.has(current, LOADING));
        let (covered, exists) = self.covered(volume, block, &part);
        let base = Shared::of(&self.memory.arena, &[current], 0, exists);
        let mut target = Exclusive::of(&self.memory.arena, &[frame], 0, exists);
        for (to, from) in target.slices_mut().zip(base.slices()) {
            to[..covered.start].copy_from_slice(&from[..covered.start]);
            to[covered.end..].copy_from_slice(&from[covered.end..]);
        }
        target.seal();
        drop((base, target));
        self.install(id, block, frame, now);
    }

    /// `frame` becomes the contents of `block`, which is in the policy or outside.
    fn install(&mut self, id: u32, block: u64, frame: u32, now: u64) {
        let request = self.requests.active(id).request;
        let volume = request.volume;
        let key = Key::new(volume, block);
        self.levels.invalidate(&self.volumes, key);
        self.volumes.replace_lost(volume, block..block + 1);
        let resident = self.slots.find(key).filter(|&slot| self.slots.frame(slot) != NONE);
        let old = match resident {
            Some(slot) => {
                let old = self.slots.frame(slot);
                self.memory.assign(&mut self.slots, slot, frame);
                old
            }
            None => self.memory.outside.insert(key, frame).expect("the block is resident or outside"),
        };
        let mut woken = LoadWaiters::new();
        let was_dirty = old != frame && self.memory.frames.has(old, DIRTY);
        if old != frame {
            match self.memory.loads.get_mut(&old) {
                // Its waiters have the contents now; the frame becomes free when the device has finished with it.
                Some(load) => woken = std::mem::take(&mut load.waiters),
                None => self.memory.retire(old),
            }
        }
        self.memory.frames.set(frame, DIRTY);
        self.requests.filling -= 1;
        self.cleaner.dirty += u32::from(!was_dirty);
        self.cleaner.version += 1;
        self.cleaner.look_again();
        let version = self.cleaner.version;
        let state = self.volumes.state_mut(volume);
        state.filling -= 1;
        state.dirty.write(block, frame, version, now);
        let waits = request.fua || state.mode == WriteMode::Through;
        if resident.is_none() {
            state.dirty.hurry(block);
        }
        if waits {
            state.dirty.wait(block, id);
            state.flushing.pause = 0;
            self.requests.active(id).storing += 1;
        }
        let state = self.volumes.state_mut(volume);
        if waits || resident.is_none() || state.listed == Listed::No {
            self.cleaner.make_due(&mut self.volumes, volume);
        }
        self.wake(woken, frame, now);
    }

    /// The wait for the load of `frame`, or of one that it replaces, is over.
    pub(crate) fn wake(&mut self, waiters: LoadWaiters, frame: u32, now: u64) {
        if waiters.is_empty() {
            return;
        }
        // A write among the waiters replaces the frame, which later waiters still need.
        let held = Shared::of(&self.memory.arena, &[frame], 0, self.config.block_bytes as usize);
        for (id, at) in waiters {
            self.loaded(id, at, frame, now);
        }
        drop(held);
    }

    /// The wait of `id` for block number `at` of its part is over: `frame` has the contents.
    fn loaded(&mut self, id: u32, at: u32, frame: u32, now: u64) {
        let active = self.requests.active(id);
        active.loading -= 1;
        if let Some(held) = &mut active.held {
            held.push(frame);
            active.frames[at as usize] = frame;
            if active.loading == 0 {
                self.finish_read(id);
            }
        } else {
            self.merge(id, at, now);
            if self.requests.active(id).loading == 0 {
                self.merged(id, now);
            }
        }
    }

    /// Every block of the write's part has its new contents, or failed.
    pub(crate) fn merged(&mut self, id: u32, now: u64) {
        let active = self.requests.active(id);
        let volume = active.request.volume;
        // A failed block leaves its frame behind.
        let left: Vec<u32> = active.frames.drain(..).filter(|&frame| frame != NONE).collect();
        for frame in left {
            self.requests.filling -= 1;
            self.volumes.state_mut(volume).filling -= 1;
            self.memory.frames.put(frame);
        }
        if matches!(self.requests.active(id).request.op, Op::Zeroes { .. }) && self.requests.active(id).fault.is_none()
        {
            self.go_on_zeroing(id, now);
        } else {
            self.store(id, now);
        }
    }

    /// Starts a trim or zeroes.
    pub(crate) fn begin_range(&mut self, id: u32, now: u64) {
        let active = self.requests.active(id);
        let (request, part) = (active.request, active.part.clone());
        if request.op != Op::Trim {
            let inner = self.inner(request.volume, &part);
            let mut edges: SmallVec<[Range<u64>; 2]> = SmallVec::new();
            if inner.is_empty() && inner.start << self.shift > part.end {
                edges.push(part);
            } else {
                let (start, end) = (inner.start << self.shift, (inner.end << self.shift).min(part.end));
                edges.extend(
                    [part.start..start.min(part.end), end..part.end].into_iter().filter(|edge| !edge.is_empty()),
                );
            }
            self.requests.active(id).edges = edges;
        }
        self.go_on_zeroing(id, now);
    }

    /// The blocks that `part` covers whole.
    fn inner(&self, volume: Volume, part: &Range<u64>) -> Range<u64> {
        let bytes = self.volumes.state(volume).bytes;
        let start = part.start.div_ceil(u64::from(self.config.block_bytes));
        let end = if part.end == bytes { self.blocks(part).end } else { part.end >> self.shift };
        start..end.max(start)
    }

    /// Starts the next edge of a zeroes, and after the edges the blocks between them.
    fn go_on_zeroing(&mut self, id: u32, now: u64) {
        let volume = self.requests.active(id).request.volume;
        self.volumes.state_mut(volume).unlockable = true;
        let active = self.requests.active(id);
        if let Some(edge) = active.edges.pop() {
            active.part = edge;
            return self.begin_write(id, now);
        }
        let (offset, length) = (active.request.offset, active.request.length);
        let blocks = self.inner(volume, &(offset..offset + length));
        if blocks.is_empty() {
            return self.store(id, now);
        }
        self.requests.active(id).step = Step::Locked;
        let state = self.volumes.state_mut(volume);
        state.locks.push(Lock { request: id, blocks, started: false, operations: 0 });
        state.unlockable = true;
        if state.locks.len() == 1 {
            self.requests.locked.push(volume);
        }
        self.start_ranges(now);
    }

    /// Queues the discards and zeroes whose ranges are no longer in use.
    pub(crate) fn start_ranges(&mut self, now: u64) {
        for at in 0..self.requests.locked.len() {
            let volume = self.requests.locked[at];
            if !std::mem::take(&mut self.volumes.state_mut(volume).unlockable) {
                continue;
            }
            let is_frozen = self.volumes.is_frozen(volume);
            for lock in 0..self.volumes.state_mut(volume).locks.len() {
                let state = self.volumes.state_mut(volume);
                let (id, blocks) = (state.locks[lock].request, state.locks[lock].blocks.clone());
                let free = !is_frozen
                    && !state.locks[lock].started
                    && !state.locks[..lock].iter().any(|earlier| overlap(&earlier.blocks, &blocks))
                    && !state.dirty.is_writing(blocks.clone());
                if free && !self.is_in_use(volume, &blocks, id) {
                    let pieces = self.volumes.pieces(volume, &blocks);
                    let lock = &mut self.volumes.state_mut(volume).locks[lock];
                    (lock.started, lock.operations) = (true, pieces.len() as u32);
                    for blocks in pieces {
                        let record = Record::Range { volume, request: id, blocks: blocks.clone(), void: false };
                        self.ports.queue_home(&mut self.volumes, volume, Class::Control, blocks, record, now);
                    }
                }
            }
        }
    }

    /// Unlocks the request's range.
    pub(crate) fn unlock(&mut self, volume: Volume, id: u32, now: u64) {
        let state = self.volumes.state_mut(volume);
        state.locks.retain(|lock| lock.request != id);
        state.unlockable = true;
        if state.locks.is_empty() {
            self.requests.locked.retain(|&other| other != volume);
        }
        self.cleaner.make_due(&mut self.volumes, volume);
        for parked in std::mem::take(&mut self.requests.parked) {
            let active = self.requests.active(parked);
            if active.step == Step::Filled {
                self.filled(parked, now);
            } else {
                active.step = Step::Queued;
                self.wait_in_line(parked);
            }
        }
    }

    /// Starts a flush.
    pub(crate) fn flush(&mut self, id: u32, now: u64) {
        let volume = self.requests.active(id).request.volume;
        if let Some(fault) = self.volumes.state_mut(volume).flushing.fault.take() {
            return self.finish(id, Outcome::Failed(fault));
        }
        self.requests.active(id).step = Step::Draining;
        let version = self.cleaner.version;
        let state = self.volumes.state_mut(volume);
        state.flushing.pause = 0;
        state.flushing.flushes.push_back(Flush { request: id, version });
        self.cleaner.make_due(&mut self.volumes, volume);
        self.drained(volume, now);
    }
}
