//! The engine: its state, how requests enter it, and how they continue after a wait.

use std::ops::Range;

use nigh_policy::{Access, Kind, Setup, Slot, Stream, Tenant};
use smallvec::SmallVec;

use crate::arena::{Arena, Shared};
use crate::change::Size;
use crate::choice;
use crate::config::Config;
use crate::decider::Decider;
use crate::error::ConfigError;
use crate::files::Files;
use crate::frames::{DIRTY, Frames, LOADING, PREFETCHED, UNFLUSHED};
use crate::levels::Levels;
use crate::memory::Memory;
use crate::port::{PortConfig, Ports};
use crate::request::{Op, Outcome, Port, Refusal, Region, Reply, Request, Submitted, Volume, WriteMode};
use crate::requests::{Active, Requests, Step};
use crate::shares::Line;
use crate::slots::{Key, NONE, Slots};
use crate::tenants::Tenants;
use crate::verify::Checks;
use crate::volume::{Part, VolumeState, overlap};
use crate::volumes::Volumes;
use crate::write_back::Cleaner;

/// Where a block that was referenced is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In this slot, which is resident.
    Resident(Slot),
    /// Outside: it belongs to a lower level, or to none, and passes through.
    Passing(Key),
}

/// A cache of blocks without I/O: see the crate's documentation for its rules. Each part owns its fields.
pub struct Engine {
    pub(crate) config: Config,
    /// Size of a block, as a power of two.
    pub(crate) shift: u32,
    pub(crate) policy: Box<dyn Decider>,
    /// The number of references so far.
    pub(crate) tick: u64,
    pub(crate) size: Size,
    pub(crate) slots: Slots,
    pub(crate) memory: Memory,
    pub(crate) volumes: Volumes,
    pub(crate) requests: Requests,
    pub(crate) line: Line,
    pub(crate) cleaner: Cleaner,
    pub(crate) ports: Ports,
    pub(crate) levels: Levels,
    pub(crate) checks: Checks,
    pub(crate) tenants: Tenants,
}

impl Engine {
    /// An empty cache without volumes.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        config.check()?;
        let frames_max = config.capacity_max + config.spare + config.storing;
        let bytes = u64::from(frames_max) * u64::from(config.block_bytes);
        let arena = Arena::new(frames_max, config.block_bytes as usize, config.verify > 0);
        let arena = arena.ok_or(ConfigError::NoMemory { bytes })?;
        let (capacity, block_bytes) = (config.capacity, config.block_bytes);
        let ghosts = choice::ghosts(&config, capacity)?;
        let slots = Slots::new(Slots::most(capacity, ghosts), config.fixed_hash);
        let setup = Setup { capacity, slots: slots.numbers(), block_bytes, ghosts, future: None, patterns: None };
        let marks = config.marks(capacity);
        let policy = choice::decider(&config, &setup)?;
        let files = config.tenants.as_ref().map_or_else(Files::default, |tenants| tenants.files.clone());
        let unified = config.tenants.is_none() && config.policy.is_unified();
        Ok(Engine {
            shift: config.block_bytes.trailing_zeros(),
            policy,
            tick: 0,
            size: Size::new(capacity, ghosts, marks),
            slots,
            memory: Memory::new(arena, Frames::new(config.capacity + config.spare + config.storing, frames_max)),
            volumes: Volumes::default(),
            requests: Requests::default(),
            line: Line::default(),
            cleaner: Cleaner::new(marks.most),
            ports: Ports::default(),
            levels: Levels::new(unified),
            checks: Checks::default(),
            tenants: Tenants { files, asking: Vec::new() },
            config,
        })
    }

    /// Opens `port`.
    pub fn attach(&mut self, port: Port, config: PortConfig) -> Result<(), ConfigError> {
        self.ports.attach(port, config)
    }

    /// Closes `port`. Volumes with regions at it must be closed first.
    pub fn detach(&mut self, port: Port) -> Result<(), ConfigError> {
        self.ports.detach(port)
    }

    /// Opens `volume`, which consists of `regions`, one after the other.
    pub fn open(&mut self, volume: Volume, mode: WriteMode, regions: &[Region]) -> Result<(), ConfigError> {
        let block_bytes = u64::from(self.config.block_bytes);
        let mut bytes = 0u64;
        let mut parts = smallvec::SmallVec::new();
        for (at, region) in (1..).zip(regions) {
            if self.ports.get(region.port).is_none() {
                return Err(ConfigError::NoPort(region.port.0));
            }
            let is_last = at == regions.len();
            let whole = region.bytes.is_multiple_of(block_bytes) && region.bytes > 0;
            if !(whole || is_last) || !region.offset.is_multiple_of(block_bytes) {
                return Err(ConfigError::Impossible {
                    what: "regions must begin and end with a block, and only the last may be empty",
                });
            }
            let start = bytes >> self.shift;
            bytes = bytes.saturating_add(region.bytes);
            let blocks = start..bytes.div_ceil(block_bytes);
            parts.push(Part { blocks, port: region.port, place: region.offset >> self.shift });
        }
        if regions.is_empty() || bytes.div_ceil(block_bytes) > Key::BLOCKS {
            return Err(ConfigError::Impossible { what: "a volume must have regions, of at most 2^34 blocks" });
        }
        if volume.0 >= Key::VOLUMES {
            return Err(ConfigError::Impossible { what: "the number of a volume must be below 2^22 - 1" });
        }
        if self.volumes.get(volume).is_some() {
            return Err(ConfigError::Taken(volume.0));
        }
        let opening = self.levels.next_opening(volume);
        let state = VolumeState::new(mode, bytes, opening, parts, self.levels.all.len());
        for part in &state.parts {
            self.ports.state_mut(part.port).users += 1;
        }
        for target in &state.targets {
            self.ports.state_mut(target.port).volumes.push(volume);
        }
        self.volumes.add(volume, state);
        Ok(())
    }

    /// Takes a request. Returns the reply at once if nothing has to be waited for; otherwise it comes from
    /// `next_reply`. A read gets `Data`, a write first `Fill`, everything else `Done`, or `Failed`.
    #[inline]
    pub fn submit(&mut self, now: u64, request: Request) -> Result<Submitted, Refusal> {
        self.check_request(&request)?;
        if request.op == Op::Read {
            if self.is_check_due()
                && let Err(fault) = self.inspect(&request, now)
            {
                let reply = Some(Reply { token: request.token, outcome: Outcome::Failed(fault) });
                return Ok(Submitted { reply, missed: false });
            }
            if let Some(data) = self.hit(&request) {
                let reply = Some(Reply { token: request.token, outcome: Outcome::Data(data) });
                return Ok(Submitted { reply, missed: false });
            }
        }
        self.submit_slowly(now, request)
    }

    /// The bytes of a read, as from `submit`, if nothing results from it but them: whoever gets them need not look for replies,
    /// operations or anything else. Levels need to be looked after now and then, so there is nothing in a cache that has some.
    #[inline]
    pub fn try_hit(&mut self, request: &Request) -> Option<Shared> {
        if request.op != Op::Read
            || self.has_levels_or_tenants()
            || self.is_check_next()
            || self.check_request(request).is_err()
        {
            return None;
        }
        let data = self.hit(request)?;
        self.checks.unchecked += u32::from(self.config.verify > 0);
        Some(data)
    }

    pub(crate) fn has_levels_or_tenants(&self) -> bool {
        self.levels.unified || !self.levels.all.is_empty() || self.hears_tenants()
    }

    /// Whether `request` could be executed if nothing else were in progress.
    #[inline]
    pub(crate) fn check_request(&self, request: &Request) -> Result<(), Refusal> {
        let state = self.volumes.get(request.volume);
        let Some(state) = state.filter(|state| state.closing.is_none()) else { return Err(Refusal::NoVolume) };
        if request.op == Op::Flush {
            return Ok(());
        }
        let is_inside = request.offset < state.bytes && request.length <= state.bytes - request.offset;
        if request.length == 0 || !is_inside {
            return Err(Refusal::OutOfRange);
        }
        if matches!(request.op, Op::Read | Op::Write) && request.length > u64::from(self.config.limits.request_bytes) {
            return Err(Refusal::TooLong);
        }
        Ok(())
    }

    fn submit_slowly(&mut self, now: u64, request: Request) -> Result<Submitted, Refusal> {
        let before = self.requests.replies.len();
        self.requests.missed = false;
        if self.levels.unified {
            self.policy.note_time(now);
        }
        match request.op {
            Op::Read => {
                let id = self.enter(request)?;
                if !(self.volumes.state_mut(request.volume).reads_waiting.is_empty() && self.start_read(id, now)) {
                    self.wait_in_line(id);
                    let mut blocks = self.blocks(&(request.offset..request.offset + request.length));
                    self.requests.missed =
                        blocks.any(|block| self.memory.current(&self.slots, Key::new(request.volume, block)).is_none());
                }
            }
            Op::Write => {
                let id = self.enter(request)?;
                self.begin_write(id, now);
            }
            Op::Flush => {
                let id = self.enter(request)?;
                self.flush(id, now);
            }
            Op::Trim | Op::Zeroes { .. } => {
                let id = self.enter(request)?;
                self.begin_range(id, now);
            }
            Op::Prefetch => {
                self.prefetch(&request, now);
                let reply = Some(Reply { token: request.token, outcome: Outcome::Done });
                return Ok(Submitted { reply, missed: self.requests.missed });
            }
        }
        // Only this request can have been replied to.
        let reply = if self.requests.replies.len() > before { self.requests.replies.pop_back() } else { None };
        Ok(Submitted { reply, missed: self.requests.missed })
    }

    /// The next reply to a request that `submit` did not reply to, or to a `close`.
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.requests.replies.pop_front()
    }

    /// Continues requests that waited for frames: to be called when `Shared::release` requests it.
    pub fn poll(&mut self, now: u64) {
        self.pump(now);
    }

    fn enter(&mut self, request: Request) -> Result<u32, Refusal> {
        if !self.may_enter(request.volume, request.op) {
            return Err(Refusal::Busy);
        }
        let active = Active {
            // A flush has no range, whatever its fields contain.
            part: request.offset..request.offset.saturating_add(request.length),
            request,
            step: Step::Queued,
            edges: SmallVec::new(),
            frames: Vec::new(),
            held: None,
            loading: 0,
            storing: 0,
            fault: None,
        };
        let id = self.requests.add(active);
        let state = self.volumes.state_mut(request.volume);
        state.requests += 1;
        state.ranges += u32::from(request.op.is_range());
        Ok(id)
    }

    /// The request is over.
    pub(crate) fn finish(&mut self, id: u32, outcome: Outcome) {
        let Request { token, tenant, .. } = self.leave(id).request;
        self.demand_loaded(tenant);
        self.requests.replies.push_back(Reply { token, outcome });
    }

    pub(crate) fn leave(&mut self, id: u32) -> Active {
        let active = self.requests.remove(id);
        let state = self.volumes.state_mut(active.request.volume);
        state.requests -= 1;
        state.ranges -= u32::from(active.request.op.is_range());
        state.unlockable = true;
        active
    }

    /// The blocks that `bytes` touches.
    pub(crate) fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start >> self.shift..((bytes.end - 1) >> self.shift) + 1
    }

    /// Continues every request that may no longer have to wait.
    pub(crate) fn pump(&mut self, now: u64) {
        self.drop_discarded(now);
        self.start_ranges(now);
        self.serve_line(now);
        self.go_on_closing(now);
    }

    /// Whether a request in progress other than `id` uses any of `blocks` of `volume`.
    pub(crate) fn is_in_use(&self, volume: Volume, blocks: &Range<u64>, id: u32) -> bool {
        (0..).zip(&self.requests.all).any(|(other, active)| {
            active.as_ref().is_some_and(|active| {
                let Request { offset, length, .. } = active.request;
                other != id
                    && active.request.volume == volume
                    && (matches!(active.step, Step::Reading | Step::Merging) || active.storing > 0)
                    && overlap(&self.blocks(&(offset..offset + length)), blocks)
            })
        })
    }

    /// Whether `count` frames can be taken, beyond those that are reserved, if the transit buffer gives up its own. If not, threads
    /// that release frames are told to call `poll`.
    pub(crate) fn has_room(&mut self, count: u32) -> bool {
        while !self.memory.has(count) && self.leave_transit() {}
        self.memory.has_room(&mut self.volumes, self.line.serving, count)
    }

    #[inline]
    pub(crate) fn access(&mut self, key: Key, kind: Kind, tenant: Tenant, stream: Stream) -> Access {
        let tick = self.tick;
        self.tick += 1;
        let block = if self.config.tenants.is_none() { key.block() } else { self.name_block(key, kind, tenant) };
        Access { block, tenant, stream, kind, tick }
    }

    /// Reports a reference to `key` to the policy, unless it is the first one after a prefetch of `key` that was
    /// reported. Returns where the block is kept afterwards, its frame if there is one (otherwise the caller must `place` one),
    /// and whether it was resident.
    pub(crate) fn reference(
        &mut self,
        key: Key,
        kind: Kind,
        tenant: Tenant,
        stream: Stream,
    ) -> (Place, Option<u32>, bool) {
        let access = self.access(key, kind, tenant, stream);
        self.drain_forgotten();
        let known = self.slots.find(key);
        if let Some(slot) = known {
            let frame = self.slots.frame(slot);
            if frame != NONE {
                self.note_late(slot, frame, tenant);
                if !self.memory.first_use(&mut self.volumes, key.volume(), frame) || self.policy.follows_lists() {
                    self.policy.hit(slot, &access);
                    if self.levels.unified {
                        self.follow_orders();
                    }
                }
                return (Place::Resident(slot), Some(frame), true);
            }
        }
        if self.levels.unified
            && let Some(&frame) = self.memory.outside.get(&key)
            && kind != Kind::Prefetch
            && self.memory.first_use(&mut self.volumes, key.volume(), frame)
        {
            return (Place::Passing(key), Some(frame), true);
        }
        let slot = known.unwrap_or_else(|| self.slots.add(key));
        if self.levels.unified || self.slots.resident == self.size.capacity {
            let victim = self.policy.evict(slot, &access);
            self.follow_orders();
            assert_ne!(victim, Some(slot), "the incoming block is not resident and cannot leave");
            if let Some(victim) = victim {
                self.depart(victim);
                self.drain_forgotten();
            }
            if !self.policy.stays(slot) {
                let frame = self.memory.outside.get(&key).copied();
                if let Some(frame) = frame.filter(|&frame| !self.memory.frames.has(frame, LOADING)) {
                    self.settle(key);
                    self.levels.pass(&mut self.memory, key, frame);
                }
                return (Place::Passing(key), frame, false);
            }
        }
        self.policy.insert(slot, &access);
        self.slots.resident += 1;
        let frame = self.memory.take_outside(&mut self.volumes, key);
        if let Some(frame) = frame {
            self.slots.set_frame(slot, frame);
            if self.levels.unified && !self.memory.frames.has(frame, LOADING) {
                self.settle(key);
            }
        }
        (Place::Resident(slot), frame, false)
    }

    /// Frees the slots of the blocks that the policy no longer remembers.
    pub(crate) fn drain_forgotten(&mut self) {
        self.follow_orders();
        while let Some(slot) = self.policy.take_forgotten() {
            if self.levels.unified {
                self.levels.release_copies(&self.volumes, self.slots.key(slot));
            }
            self.slots.remove(slot);
        }
    }

    /// The policy evicted `victim`: its frame is free, or stays in use outside of the policy.
    pub(crate) fn depart(&mut self, victim: Slot) {
        let (key, frame) = (self.slots.key(victim), self.slots.frame(victim));
        assert_ne!(frame, NONE, "the victim is resident");
        self.slots.set_frame(victim, NONE);
        self.slots.resident -= 1;
        let unused = self.memory.frames.has(frame, PREFETCHED);
        self.memory.note_leaving(&mut self.volumes, key.volume(), frame);
        let dirty = self.memory.frames.has(frame, DIRTY);
        self.volumes.state_mut(key.volume()).counters.evictions += 1;
        let has_lower = self.levels.unified || !self.levels.all.is_empty();
        if !has_lower && !self.memory.frames.has(frame, DIRTY | LOADING) && !self.memory.arena.held(frame) {
            // Nobody has its contents, or gets them: it is free at once.
            self.memory.note_unflushed(&mut self.volumes, key, frame);
            return self.memory.frames.put(frame);
        }
        let state = self.volumes.state_mut(key.volume());
        state.outside += 1;
        if dirty {
            state.dirty.hurry(key.index());
            self.cleaner.make_due(&mut self.volumes, key.volume());
        }
        let before = self.memory.outside.insert(key, frame);
        assert_eq!(before, None, "a block is either resident or outside");
        if !self.memory.frames.has(frame, DIRTY | LOADING) {
            match unused {
                false => self.offer(key, frame),
                true if self.levels.unified => self.give_up(key),
                true => {}
            }
        }
        self.memory.free_if_clean(self.config.spare, &mut self.volumes, key, frame);
    }

    /// Takes the resident `slot` out of the policy. Returns its frame, which belongs to no block then.
    pub(crate) fn forget(&mut self, slot: Slot) -> u32 {
        self.drain_forgotten();
        let frame = self.slots.frame(slot);
        self.policy.remove(slot);
        if self.levels.unified {
            self.levels.release_copies(&self.volumes, self.slots.key(slot));
        }
        if frame != NONE {
            self.slots.set_frame(slot, NONE);
            self.slots.resident -= 1;
        }
        self.slots.remove(slot);
        frame
    }

    /// Drops the contents of all blocks of `volume` in `blocks`. None of them is being written or waited for.
    pub(crate) fn drop_blocks(&mut self, volume: Volume, blocks: Range<u64>) {
        let gone = self.volumes.state_mut(volume).dirty.discard(blocks.clone());
        self.cleaner.dirty -= gone.len() as u32;
        self.volumes.note_unwanted(volume);
        let inside = |key: &Key| key.volume() == volume && blocks.contains(&key.index());
        let mut keys: Vec<Key> = if blocks.end - blocks.start <= u64::from(self.slots.numbers()) {
            let parts = self.slots.occupied(volume, blocks.clone());
            parts.flatten().map(|block| Key::new(volume, block)).collect()
        } else {
            self.slots.used().into_iter().map(|slot| self.slots.key(slot)).filter(inside).collect()
        };
        if self.volumes.state_mut(volume).outside > 0 {
            keys.extend(self.memory.outside.keys().filter(|key| inside(key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| self.drop_block(key));
    }

    /// Drops the contents of the block `key`, which is neither dirty nor being written or waited for.
    pub(crate) fn drop_block(&mut self, key: Key) {
        let frame = match self.slots.find(key).filter(|&slot| self.slots.frame(slot) != NONE) {
            Some(slot) => self.forget(slot),
            None => match self.memory.take_outside(&mut self.volumes, key) {
                Some(frame) => {
                    if self.levels.unified {
                        self.give_up(key);
                    }
                    frame
                }
                None => return,
            },
        };
        self.memory.note_leaving(&mut self.volumes, key.volume(), frame);
        if self.memory.frames.has(frame, DIRTY | UNFLUSHED) {
            self.volumes.state_mut(key.volume()).unflushed(key.index()).forget(key.index());
        }
        match self.memory.loads.get(&frame) {
            // The frame becomes free when the device has finished with it.
            Some(load) => assert!(load.waiters.is_empty(), "a block in use is not dropped"),
            None => self.memory.retire(frame),
        }
    }
}
