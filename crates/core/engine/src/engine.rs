//! The engine: its parts, and the way of requests and completions through them.

use nigh_policy::{Setup, Slot};

use crate::arena::{Arena, Exclusive};
use crate::checks::Checks;
use crate::choice;
use crate::cleaner::Cleaner;
use crate::config::Config;
use crate::curves::Curves;
use crate::decider::Decider;
use crate::error::ConfigError;
use crate::files::Files;
use crate::files::Tenants;
use crate::frames::{DIRTY, Frames, LOADING};
use crate::level::LevelState;
use crate::levels::Levels;
use crate::line::Line;
use crate::memory::Memory;
use crate::port::{PortConfig, Ports};
use crate::published::Published;
use crate::record::Record;
use crate::request::{
    Fault, Fill, Op, Operation, Outcome, Port, Refusal, Region, Reply, Request, Submitted, Volume, WriteMode,
};
use crate::requests::Requests;
use crate::size::Size;
use crate::slots::{Key, NONE, Slots};
use crate::volume::{Closing, Part, VolumeState};
use crate::volumes::Volumes;

/// The most slots that one call examines to keep blocks for the next start.
const SLOTS_LOOKED_AT: u32 = 4096;

/// Place of a block after its reference.
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
    pub(crate) curves: Curves,
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
    pub(crate) published: Published,
}

impl Engine {
    /// An empty cache without volumes.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        config.check()?;
        let frames_max = config.capacity_max + config.spare + config.storing;
        let bytes = u64::from(frames_max) * u64::from(config.block_bytes);
        let unified = config.policy.is_unified();
        let most = if unified || config.tenants.is_some() { 0 } else { Published::most(config.verify) };
        let arena = Arena::new(frames_max, config.block_bytes as usize, config.verify > 0, most > 0);
        let arena = arena.ok_or(ConfigError::NoMemory { bytes })?;
        let (capacity, block_bytes) = (config.capacity, config.block_bytes);
        let ghosts = choice::ghosts(&config, &config.policy, capacity)?;
        let slots = Slots::new(Slots::most(capacity, ghosts), config.fixed_hash);
        let setup = Setup { capacity, slots: slots.numbers(), block_bytes, ghosts, future: None, patterns: None };
        let marks = config.marks(capacity);
        let policy = choice::decider(&config, &setup)?;
        let files = config.tenants.as_ref().map_or_else(Files::default, |tenants| tenants.files.clone());
        let shift = config.block_bytes.trailing_zeros();
        let published = Published::new(&arena, frames_max, shift, most, config.fixed_hash);
        Ok(Engine {
            shift,
            policy,
            curves: Curves::new(&config),
            tick: 0,
            size: Size::new(capacity, ghosts, marks),
            slots,
            memory: Memory::new(arena, Frames::new(config.capacity + config.spare + config.storing, frames_max)),
            volumes: Volumes::default(),
            requests: Requests::default(),
            line: Line::default(),
            cleaner: Cleaner::new(marks.most),
            ports: Ports::default(),
            levels: Levels::new(unified, shift),
            checks: Checks::default(),
            tenants: Tenants { files, asking: Vec::new() },
            published,
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
        if request.op == Op::Read {
            if let Some(outcome) = self.read_hit(now, &request)? {
                return Ok(Submitted { reply: Some(Reply { token: request.token, outcome }), missed: false });
            }
        } else {
            self.check_request(&request)?;
        }
        self.submit_slowly(now, request)
    }

    /// The reply to a read, `Data` or `Failed`, if all of it is in memory; otherwise nothing happens.
    #[inline]
    pub fn read_hit(&mut self, now: u64, read: &Request) -> Result<Option<Outcome>, Refusal> {
        self.check_request(read)?;
        if self.is_check_due()
            && let Err(fault) = self.inspect(read, now)
        {
            return Ok(Some(Outcome::Failed(fault)));
        }
        Ok(self.hit(read).map(Outcome::Data))
    }

    fn submit_slowly(&mut self, now: u64, request: Request) -> Result<Submitted, Refusal> {
        let before = self.requests.replies.len();
        self.requests.missed = false;
        if let Some(unified) = self.policy.unified_mut() {
            unified.note_time(now);
        }
        match request.op {
            Op::Read => {
                let id = self.enter(request)?;
                if !(self.volumes.state_mut(request.volume).turns.reads.is_empty() && self.start_read(id, now)) {
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

    /// Begins to close `volume`: new requests are rejected, those in progress complete, dirty blocks are written, and
    /// the device is flushed. Then [`step`](Engine::step) forgets its blocks, a few at a time. The reply has `token`;
    /// if it is `Failed`, the volume stays open. With `discard` it never fails: dirty blocks are dropped, unless a
    /// request waits for their write, and requests that wait for room fail.
    pub fn close(&mut self, now: u64, volume: Volume, discard: bool, token: u64) -> Result<(), Refusal> {
        match self.volumes.get_mut(volume) {
            Some(state) if state.closing.is_none() => {
                state.closing = Some(Closing { token, discard, forgetting: None });
                state.flushing.pause = 0;
            }
            _ => return Err(Refusal::NoVolume),
        }
        self.end_freeze(volume);
        self.volumes.closing.push(volume);
        self.cleaner.make_due(&mut self.volumes, volume);
        self.pump(now);
        Ok(())
    }

    /// A flush of the device at `port` failed with `fault`, for this engine or for another one: the device may have lost
    /// what was written since its last good flush, and a later flush does not cover that. [`Engine::complete`] calls it
    /// for its own flushes. Nothing happens with [`PortConfig::replays`](crate::PortConfig::replays), or if the port is not
    /// open here.
    ///
    /// These blocks become dirty again. If one of them is no longer in memory, the volume is lost, as after
    /// [`Engine::condemn`].
    pub fn distrust(&mut self, now: u64, port: Port, fault: Fault) {
        if self.ports.get(port).is_none() {
            return;
        }
        self.fail_flush(port, fault, now);
        self.pump(now);
    }

    /// The frames of a write are filled.
    ///
    /// # Panics
    /// If `fill` came from another engine.
    pub fn commit(&mut self, now: u64, mut fill: Fill) {
        fill.seal();
        let id = self.take_back(fill);
        self.filled(id, now);
        self.pump(now);
    }

    /// The frames of a write will not be filled: the request is over, without a reply.
    ///
    /// # Panics
    /// If `fill` came from another engine.
    pub fn abort(&mut self, now: u64, fill: Fill) {
        let id = self.take_back(fill);
        let active = self.leave(id);
        self.requests.filling -= active.frames.len() as u32;
        self.volumes.state_mut(active.request.volume).filling -= active.frames.len() as u32;
        self.memory.reserved -= self.edges(active.request.volume, &active.part);
        for frame in active.frames {
            self.memory.frames.put(frame);
        }
        self.pump(now);
    }

    /// Stores blocks from memory in `level`, for the next start: as many as may be in progress at a time, from slot number `from` on. Returns the
    /// slot to continue with when some are stored; `None` after the last one, if the level takes none, or if the policy decides for
    /// levels. To be called when all volumes are closed, after [`Engine::end`].
    ///
    /// # Panics
    /// If there is no such level.
    pub fn keep(&mut self, now: u64, level: usize, from: u32) -> Option<u32> {
        let end = self.slots.numbers().min(from.saturating_add(SLOTS_LOOKED_AT));
        let LevelState { level: of, late, .. } = &self.levels.all[level];
        if self.levels.unified || of.off || *late || from >= end {
            return None;
        }
        let mut at = from;
        while at < end && self.levels.has_room_to_store(self.config.storing, level) {
            let slot = Slot(at);
            at += 1;
            let Some(key) = self.slots.known(slot) else { continue };
            let frame = self.slots.frame(slot);
            let is_clean = frame != NONE && !self.memory.frames.has(frame, DIRTY | LOADING);
            let is_kept = || self.levels.volume_of.contains_key(&self.volumes.entry(key).opening());
            if is_clean && is_kept() && self.levels.takes_stores(&self.volumes, level, key.volume()) {
                self.offer_to(level, key, frame);
            }
        }
        self.pump(now);
        Some(at)
    }

    /// Takes back the frames of `surplus_memory`, and continues requests that waited for frames meanwhile.
    pub fn return_memory(&mut self, now: u64, frames: Exclusive) {
        assert!(frames.belongs(&self.memory.arena));
        let list = frames.frames().to_vec();
        drop(frames);
        list.into_iter().for_each(|frame| self.memory.frames.put_idle(frame));
        self.pump(now);
    }

    /// When `next_operation` should be called again even if nothing happens, in µs: for dirty blocks that reach the
    /// limit of their age or whose write is to be tried again, for the end of a freeze, and for levels that take too long. It is 0 if `step` has
    /// something to do at once.
    pub fn next_wakeup(&self) -> Option<u64> {
        if self.can_step() {
            return Some(0);
        }
        let late = self.levels.all.iter().filter(|state| !state.late).filter_map(LevelState::late_at);
        self.next_write_back().into_iter().chain(self.next_thaw()).chain(late).min()
    }

    /// The device has finished `operation`: completely, or with an error, after which any part of it may have been done.
    ///
    /// # Panics
    /// If the operation came from another engine.
    pub fn complete(&mut self, now: u64, mut operation: Operation, result: Result<(), Fault>) {
        if result.is_ok() {
            operation.seal();
        }
        let Operation { id, port, action, sums, damages, .. } = operation;
        let record = self.ports.operations.remove(&id).expect("an operation of this engine");
        drop(action);
        self.ports.state_mut(port).at_device -= 1;
        if let Some(volume) = record.volume() {
            self.volumes.state_mut(volume).unlockable = true;
        }
        if let Some(level) = record.level() {
            let since = self.levels.all[level].since(id);
            self.levels.all[level].at_device.retain(|&(of, _)| of != id);
            if let (Record::Fetch(fetch), Some(since), Ok(())) = (&record, since, result) {
                self.levels.note_time(&mut self.volumes, level, fetch.first.volume(), now.saturating_sub(since), now);
            }
        }
        if let (&Record::Read { first, ref frames, since, passed, .. }, Ok(())) = (&record, result) {
            let us = now.saturating_sub(since);
            self.volumes.state_mut(first.volume()).cost.note(frames.len() as u32, us);
            self.levels.note_home_time(&mut self.volumes, first.volume(), us, passed, now);
        }
        match record {
            record if !damages.at.is_empty() => self.complete_damaged(port, record, &damages, now),
            Record::Fetch(fetch) => {
                self.volumes.state_mut(fetch.first.volume()).operations -= 1;
                self.complete_fetch(fetch, &sums, result, now);
            }
            Record::Store(store) => self.complete_store(store, &sums, result),
            Record::Carry(carry) => self.complete_carry(carry, &sums, result, now),
            Record::Late { level, frames } => self.complete_late(level, &frames, result),
            record => self.complete_home(port, record, result, now),
        }
        self.ports.make_ready(port);
        self.pump(now);
    }
}
