//! Reads and prefetches.

use std::ops::Range;

use nigh_policy::{Kind, Slot};
use smallvec::SmallVec;

use crate::arena::Shared;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::frames::{LOADING, PREFETCHED};
use crate::memory::LoadWaiters;
use crate::queue::Class;
use crate::record::Reading;
use crate::request::{Outcome, Reached, Request, Volume};
use crate::requests::Step;
use crate::slots::{Key, NONE};

impl Engine {
    /// The bytes of `request` if every block is resident with its contents; otherwise changes nothing. Locks do not
    /// matter: an incomplete discard has not happened yet.
    #[inline]
    pub(crate) fn hit(&mut self, request: &Request) -> Option<Shared> {
        let blocks = self.blocks(&(request.offset..request.offset + request.length));
        let mut slots: SmallVec<[Slot; 4]> = SmallVec::new();
        let mut held = Shared::new(&self.memory.arena);
        for block in blocks.clone() {
            let slot = self.slots.find(Key::new(request.volume, block))?;
            let frame = self.slots.frame(slot);
            if frame == NONE || self.memory.frames.has(frame, LOADING) {
                return None;
            }
            held.push(frame);
            slots.push(slot);
        }
        for (block, &slot) in blocks.zip(&slots) {
            if self.memory.first_use(&mut self.volumes, request.volume, self.slots.frame(slot))
                && !self.policy.counts_first_use()
            {
                continue;
            }
            let access = self.access(Key::new(request.volume, block), Kind::Read, request.tenant, request.stream);
            self.policy.hit(slot, &access);
            self.measure(&access);
        }
        if self.published.is_for(slots.len() as u64) && self.levels.all.is_empty() {
            for (block, &frame) in self.blocks(&(request.offset..request.offset + request.length)).zip(held.frames()) {
                self.publish(Key::new(request.volume, block), frame);
            }
        }
        if self.levels.unified {
            // A dirty block that belongs elsewhere may go to another level.
            self.follow_orders();
        }
        self.count_read(request, slots.len());
        let skip = request.offset & (u64::from(self.config.block_bytes) - 1);
        Some(held.part(skip as usize, request.length as usize))
    }

    #[inline]
    fn count_read(&mut self, request: &Request, hits: usize) {
        let counters = &mut self.volumes.state_mut(request.volume).counters;
        counters.reads += 1;
        counters.read_bytes += request.length;
        counters.hits += hits as u64;
    }

    /// Starts the read, unless it has to wait in the queue; returns false then.
    pub(crate) fn start_read(&mut self, id: u32, now: u64) -> bool {
        let active = self.requests.active(id);
        let (request, part) = (active.request, active.part.clone());
        let blocks = self.blocks(&part);
        if self.volumes.state_mut(request.volume).is_locked(&blocks, id) {
            self.requests.active(id).step = Step::Parked;
            self.requests.parked.push(id);
            return true;
        }
        if self.is_check_due()
            && let Err(fault) = self.inspect(&request, now)
        {
            self.finish(id, Outcome::Failed(fault));
            return true;
        }
        let key = |block| Key::new(request.volume, block);
        if !self.memory.outside.is_empty() {
            blocks.clone().for_each(|block| self.memory.let_go(&mut self.volumes, key(block)));
        }
        // Blocks that are present must not leave while room is made for the others.
        let mut held = Shared::new(&self.memory.arena);
        let count = (blocks.end - blocks.start) as u32;
        let mut absent = count;
        if self.memory.may_have(&self.volumes, &self.slots, request.volume, &blocks) {
            for frame in blocks.clone().filter_map(|block| self.memory.current(&self.slots, key(block))) {
                absent -= 1;
                if !self.memory.frames.has(frame, LOADING) {
                    held.push(frame);
                }
            }
        }
        let room = |engine: &mut Engine| engine.has_room(absent) || engine.make_room(request.volume, absent);
        if absent > 0 && !(self.may_load(request.volume, absent) && room(self)) {
            return false;
        }
        self.count_read(&request, 0);
        let active = self.requests.active(id);
        active.step = Step::Reading;
        active.frames.reserve_exact(count as usize);
        active.held = Some(held);
        // The start itself: the read is not over before it ends.
        active.loading = 1;
        let missing = self.start_blocks(id, &request, blocks);
        self.queue_loads(request.volume, &missing, Class::Read, 0, now);
        let active = self.requests.active(id);
        active.loading -= 1;
        if active.loading == 0 {
            self.finish_read(id);
        }
        true
    }

    /// Starts `blocks` of the read `id`. For those that are absent there is room. Returns these, with their frames.
    fn start_blocks(&mut self, id: u32, request: &Request, blocks: Range<u64>) -> Vec<(u64, u32)> {
        let first = blocks.start;
        let mut missing = Vec::new();
        let key = |block| Key::new(request.volume, block);
        blocks.clone().for_each(|block| self.slots.prefetch(key(block)));
        for block in blocks {
            let waiter = (id, (block - first) as u32);
            let (place, frame, resident) = self.reference(key(block), Kind::Read, request.tenant, request.stream);
            self.count(request.volume, frame, resident);
            let frame = match frame {
                Some(frame) => {
                    if self.memory.frames.has(frame, LOADING) {
                        self.join(frame, waiter);
                    }
                    frame
                }
                None => {
                    let frame = self.memory.frames.take();
                    self.place(place, frame);
                    self.memory.frames.set(frame, LOADING);
                    self.begin_load(request.volume, frame, Reading::Demand, SmallVec::from_slice(&[waiter]));
                    missing.push((block, frame));
                    frame
                }
            };
            let waits = self.memory.frames.has(frame, LOADING);
            let active = self.requests.active(id);
            active.frames.push(frame);
            match waits {
                true => active.loading += 1,
                false => active.held.as_mut().expect("a read holds what it has").push(frame),
            }
        }
        missing
    }

    /// Counts a reference that found `frame`, and returns the counters of its volume.
    pub(crate) fn count(&mut self, volume: Volume, frame: Option<u32>, resident: bool) -> &mut Counters {
        let loading = frame.is_some_and(|frame| self.memory.frames.has(frame, LOADING));
        self.requests.missed |= !resident;
        let counters = &mut self.volumes.state_mut(volume).counters;
        match (resident, loading) {
            (true, false) => counters.hits += 1,
            (true, true) => counters.joined += 1,
            (false, _) => {
                counters.misses += 1;
                counters.adopted += u64::from(frame.is_some());
            }
        }
        counters
    }

    /// Queues the loads of `missing`, blocks in ascending order with their frames; neighbours make one operation.
    pub(crate) fn load(
        &mut self,
        volume: Volume,
        missing: &[(u64, u32)],
        reading: Reading,
        now: u64,
        waiters: impl Fn(u64) -> LoadWaiters,
    ) {
        for &(block, frame) in missing {
            self.begin_load(volume, frame, reading, waiters(block));
        }
        let class = if reading == Reading::Demand { Class::Read } else { Class::Prefetch };
        self.queue_loads(volume, missing, class, 0, now);
    }

    /// Every block of the read is present, or failed.
    pub(crate) fn finish_read(&mut self, id: u32) {
        let block_bytes = u64::from(self.config.block_bytes);
        let arena = self.memory.arena.clone();
        let active = self.requests.active(id);
        assert_eq!(active.step, Step::Reading);
        let outcome = match active.fault {
            Some(fault) => Outcome::Failed(fault),
            None => {
                let skip = (active.part.start & (block_bytes - 1)) as usize;
                let length = (active.part.end - active.part.start) as usize;
                Outcome::Data(Shared::of(&arena, &active.frames, skip, length))
            }
        };
        self.finish(id, outcome);
    }

    /// Whether one more block of `volume` can be prefetched, besides `more` blocks whose loads are not queued yet.
    pub(crate) fn has_prefetch_budget(&mut self, volume: Volume, more: u32) -> bool {
        if !self.may_prefetch(volume)
            || !self.may_load(volume, more + 1)
            || !self.volumes.state(volume).turns.is_empty()
        {
            return false;
        }
        // Half of the spare frames is left for requests, or what other volumes leave of it.
        let request = self.config.request_blocks() + 2;
        let spare = (self.config.spare / 2).saturating_sub(self.outside_of_others(volume)).max(request);
        self.memory.has_room(&mut self.volumes, self.line.serving, spare) || self.make_room(volume, spare)
    }

    /// Loads the absent blocks of the request's range, up to the limit.
    pub(crate) fn prefetch(&mut self, request: &Request, now: u64) {
        let blocks = self.blocks(&(request.offset..request.offset + request.length));
        let total = blocks.end - blocks.start;
        let budget = u64::from(self.config.limits.prefetching);
        let considered = blocks.start..blocks.end.min(blocks.start + budget);
        let (_, loading) = self.load_ahead(request, considered, Kind::Prefetch, now);
        let counters = &mut self.volumes.state_mut(request.volume).counters;
        counters.prefetch_issued += u64::from(loading);
        counters.prefetch_dropped += total - u64::from(loading);
    }

    /// Loads the absent ones of `blocks` as far as the limits allow. Returns the first block that was not considered, and how
    /// many are being loaded now.
    fn load_ahead(&mut self, request: &Request, blocks: Range<u64>, kind: Kind, now: u64) -> (u64, u32) {
        let volume = request.volume;
        let mut missing = Vec::new();
        let mut next = blocks.end;
        for block in blocks {
            let key = Key::new(volume, block);
            if !self.has_prefetch_budget(volume, missing.len() as u32) {
                next = block;
                break;
            }
            self.memory.let_go(&mut self.volumes, key);
            if self.memory.current(&self.slots, key).is_some()
                || self.volumes.state_mut(volume).is_locked(&(block..block + 1), NONE)
            {
                continue;
            }
            let (place, _, _) = self.reference(key, kind, request.tenant, request.stream);
            let frame = self.memory.frames.take();
            self.place(place, frame);
            self.memory.frames.set(frame, LOADING | PREFETCHED);
            self.requests.prefetching += 1;
            self.volumes.state_mut(volume).prefetching += 1;
            missing.push((block, frame));
        }
        self.load(volume, &missing, Reading::Ahead, now, |_| SmallVec::new());
        (next, missing.len() as u32)
    }

    /// Loads the absent blocks of a prefetch's range, as far as the limits allow, if there is memory that no block takes: what
    /// was in memory before a restart replaces nothing that came since.
    pub fn warm(&mut self, now: u64, request: &Request) -> Reached {
        let free = u64::from(self.size.capacity.saturating_sub(self.slots.resident));
        if free == 0 || self.check_request(request).is_err() {
            return Reached::Full;
        }
        let blocks = self.blocks(&(request.offset..request.offset + request.length));
        let considered = blocks.start..blocks.end.min(blocks.start + free);
        // For a single policy, a reference: the block was referenced before the restart.
        let kind = if self.hears_tenants() || self.levels.unified { Kind::Prefetch } else { Kind::Read };
        let (next, loading) = self.load_ahead(request, considered, kind, now);
        self.volumes.state_mut(request.volume).counters.prefetch_issued += u64::from(loading);
        Reached::Block { next, loading }
    }
}
