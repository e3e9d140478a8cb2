//! The engine: its state, how requests enter it, and how they continue after a wait.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use nigh_policy::{Access, Kind, Setup, Slot, Stream, Tenant};
use smallvec::SmallVec;

use crate::arena::{Arena, Shared};
use crate::choice;
use crate::config::{Config, Marks};
use crate::decider::{Decider, Successor};
use crate::error::ConfigError;
use crate::fair::Recent;
use crate::files::Files;
use crate::frames::{DIRTY, Frames, LOADING, PREFETCHED, TRANSIT, UNFLUSHED};
use crate::level::LevelState;
use crate::queue::PortState;
use crate::record::{Carry, Reading, Record};
use crate::request::{Damage, Fault, Op, Outcome, Port, Refusal, Reply, Request, Submitted, Volume};
use crate::slots::{Key, NONE, Slots};
use crate::volume::{VolumeState, overlap};

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A read or write waits for frames or for the dirty limit.
    Queued,
    /// A read waits for a lock of its range.
    Parked,
    /// A read waits for loads, or is being started.
    Reading,
    /// The host is filling the frames of a write.
    Filling,
    /// A filled write waits for a lock of its range.
    Filled,
    /// A write waits for the contents of blocks that it overwrites in part.
    Merging,
    /// A write waits for the device.
    Storing,
    /// A discard or zeroes waits for its lock or for the device.
    Locked,
    /// A flush waits for write-back.
    Draining,
    /// A flush, or a request with FUA, waits for a device flush.
    Syncing,
}

/// A request in progress.
pub(crate) struct Active {
    pub(crate) request: Request,
    pub(crate) step: Step,
    /// The bytes that are read or written now: those of the request, or an edge of a zeroes.
    pub(crate) part: Range<u64>,
    /// Edges of a zeroes that are still to be written.
    pub(crate) edges: SmallVec<[Range<u64>; 2]>,
    /// The frame of each block of `part`; `NONE` if a write passed it to the cache.
    pub(crate) frames: Vec<u32>,
    /// The blocks that a read has so far.
    pub(crate) held: Option<Shared>,
    /// Blocks of `part` that wait for a load; one more while a read is being started.
    pub(crate) loading: u32,
    /// Blocks that wait to be written to the device.
    pub(crate) storing: u32,
    pub(crate) fault: Option<Fault>,
}

/// A waiter for a load: a request, and the position of the block within its part.
pub(crate) type LoadWaiters = SmallVec<[(u32, u32); 2]>;

/// The load of one frame.
pub(crate) struct Load {
    /// The operation that loads it.
    pub(crate) operation: u64,
    pub(crate) waiters: LoadWaiters,
    /// The reason why it was started.
    pub(crate) reading: Reading,
}

/// A read that is being started.
pub(crate) struct Start {
    /// The request, and its volume.
    pub(crate) id: u32,
    pub(crate) volume: Volume,
    /// Whether the blocks that are present are to be checked.
    pub(crate) is_checked: bool,
    /// The blocks that are not started yet.
    pub(crate) left: Range<u64>,
    /// Of those that are, the blocks to be loaded, with their frames.
    pub(crate) missing: Vec<(u64, u32)>,
}

impl Start {
    /// How many blocks of `volume` are not started yet.
    pub(crate) fn left_of(&self, volume: Volume) -> u32 {
        if self.volume == volume { self.left() } else { 0 }
    }

    /// How many blocks are not started yet.
    pub(crate) fn left(&self) -> u32 {
        (self.left.end - self.left.start) as u32
    }
}

/// Where a block that was referenced is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In this slot, which is resident.
    Resident(Slot),
    /// Outside: it belongs to a lower level, or to none, and passes through.
    Passing(Key),
}

/// A cache of blocks without I/O: see the crate's documentation for its rules.
pub struct Engine {
    pub(crate) config: Config,
    /// Size of a block, as a power of two.
    pub(crate) shift: u32,
    pub(crate) capacity: u32,
    /// The limits for `capacity`.
    pub(crate) marks: Marks,
    pub(crate) arena: Arc<Arena>,
    pub(crate) policy: Box<dyn Decider>,
    /// The target of the capacity.
    pub(crate) goal: u32,
    /// The next policy, which decides as soon as there is room for its ghosts.
    pub(crate) next: Option<Successor>,
    /// The number of ghosts that the policy has room for, and that of its predecessor while there is one.
    pub(crate) ghosts: u32,
    pub(crate) ghosts_before: u32,
    /// Whether `step` may have something to do.
    pub(crate) stepping: bool,
    /// Volumes of `waiting`, from its front, that were not tried since something changed.
    pub(crate) untried: usize,
    /// The files of tenants.
    pub(crate) files: Files,
    /// Tenants with a list whose next prefetches may be due.
    pub(crate) asking: Vec<Tenant>,
    pub(crate) slots: Slots,
    /// Slots with a frame.
    pub(crate) resident: u32,
    pub(crate) frames: Frames,
    /// Contents of blocks that left the policy while they were dirty, held or being loaded.
    pub(crate) outside: HashMap<Key, u32>,
    /// Frames that become free when their last hold is released: of blocks in `outside`, or of none. Entries can be out
    /// of date.
    pub(crate) lingering: Vec<(Option<Key>, u32)>,
    pub(crate) loads: HashMap<u32, Load>,
    /// By number of the volume.
    pub(crate) volumes: Vec<Option<Box<VolumeState>>>,
    /// Volumes that are being closed.
    pub(crate) closing: Vec<Volume>,
    /// No volume is closed to be forgotten.
    pub(crate) ending: bool,
    /// Volumes with locks.
    pub(crate) locked: Vec<Volume>,
    /// Volumes with a possible reason to write dirty blocks.
    pub(crate) due: VecDeque<Volume>,
    /// Volumes with dirty blocks but no reason to write them yet, by the time at which their age makes them due.
    pub(crate) aging: BTreeSet<(u64, Volume)>,
    /// Volumes whose write-back failed, by the time of the next attempt.
    pub(crate) resting: BTreeSet<(u64, Volume)>,
    /// By number of the port.
    pub(crate) ports: Vec<Option<Box<PortState>>>,
    /// Ports with an operation that can be started, the next first.
    pub(crate) ready: VecDeque<Port>,
    /// The highest first.
    pub(crate) levels: Vec<LevelState>,
    /// Blocks on their way to levels.
    pub(crate) storing: u32,
    /// Whether the policy decides for levels, too.
    pub(crate) unified: bool,
    /// Then: blocks that passed through, and their frames, the first to leave first, and those that were prefetched. Entries can be
    /// out of date.
    pub(crate) transit: VecDeque<(Key, u32)>,
    pub(crate) ahead: VecDeque<(Key, u32)>,
    /// Blocks that levels are about to pass on.
    pub(crate) carries: Vec<Carry>,
    /// The number of times that volumes were opened.
    pub(crate) openings: u32,
    /// If there are levels: the volume of each opening, and the last opening of each volume.
    pub(crate) volume_of: HashMap<u32, Volume>,
    pub(crate) opening_of: HashMap<Volume, u32>,
    /// Operations in the queues of all ports.
    pub(crate) queued: u32,
    /// Requests in progress.
    pub(crate) requests: Vec<Option<Active>>,
    pub(crate) free_requests: Vec<u32>,
    /// Volumes with reads or writes that wait in line, the next first.
    pub(crate) waiting: VecDeque<Volume>,
    /// The number of these requests.
    pub(crate) queueing: u32,
    /// Whether the line is being served, and whether frames without holders were freed meanwhile.
    pub(crate) serving: bool,
    pub(crate) reclaimed: bool,
    /// Requests at `Step::Parked` or `Step::Filled`.
    pub(crate) parked: Vec<u32>,
    /// Reads that are being started, the next first.
    pub(crate) starting: VecDeque<Start>,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) operations: HashMap<u64, Record>,
    pub(crate) operations_made: u64,
    /// The newest version of any block's contents.
    pub(crate) version: u64,
    pub(crate) tick: u64,
    /// Whether a reference of the request that is being submitted was a miss.
    pub(crate) missed: bool,
    /// Frames reserved for writes that may have to load blocks that they overwrite in part, and for reads that are being started.
    pub(crate) reserved: u32,
    /// Blocks of writes that are being filled or wait to be installed.
    pub(crate) filling: u32,
    pub(crate) dirty: u32,
    /// The limit of dirty blocks and blocks being filled together: the configured limit, or their number when it was
    /// lowered.
    pub(crate) dirty_most: u32,
    pub(crate) prefetching: u32,
    /// Blocks that devices wrote.
    pub(crate) recent: Recent,
    /// Whether write-back runs because of the number of dirty blocks.
    pub(crate) writing_back: bool,
    /// The last volume of `aging` that was looked at because of that, and the number of those to be looked at.
    pub(crate) looked_at: (u64, Volume),
    pub(crate) looks: usize,
    /// Volumes that fail.
    pub(crate) failing: Vec<Volume>,
    /// Volumes that began to fail, or no longer do.
    pub(crate) reports: BTreeSet<Volume>,
    /// Reads since the last one that was checked.
    pub(crate) unchecked: u32,
    pub(crate) damages: VecDeque<Damage>,
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
        Ok(Engine {
            shift: config.block_bytes.trailing_zeros(),
            capacity,
            marks,
            arena,
            policy: choice::decider(&config, &setup)?,
            goal: capacity,
            next: None,
            ghosts,
            ghosts_before: 0,
            stepping: false,
            untried: 0,
            files: config.tenants.as_ref().map_or_else(Files::default, |tenants| tenants.files.clone()),
            asking: Vec::new(),
            slots,
            resident: 0,
            frames: Frames::new(config.capacity + config.spare + config.storing, frames_max),
            outside: HashMap::new(),
            lingering: Vec::new(),
            loads: HashMap::new(),
            volumes: Vec::new(),
            closing: Vec::new(),
            ending: false,
            locked: Vec::new(),
            due: VecDeque::new(),
            aging: BTreeSet::new(),
            resting: BTreeSet::new(),
            ports: Vec::new(),
            ready: VecDeque::new(),
            levels: Vec::new(),
            storing: 0,
            unified: config.tenants.is_none() && config.policy.is_unified(),
            transit: VecDeque::new(),
            ahead: VecDeque::new(),
            carries: Vec::new(),
            openings: 0,
            volume_of: HashMap::new(),
            opening_of: HashMap::new(),
            queued: 0,
            requests: Vec::new(),
            free_requests: Vec::new(),
            waiting: VecDeque::new(),
            queueing: 0,
            serving: false,
            reclaimed: false,
            parked: Vec::new(),
            starting: VecDeque::new(),
            replies: VecDeque::new(),
            operations: HashMap::new(),
            operations_made: 0,
            version: 0,
            tick: 0,
            missed: false,
            reserved: 0,
            filling: 0,
            dirty: 0,
            dirty_most: marks.most,
            prefetching: 0,
            recent: Recent::default(),
            writing_back: false,
            looked_at: (0, Volume(0)),
            looks: 0,
            failing: Vec::new(),
            reports: BTreeSet::new(),
            unchecked: 0,
            damages: VecDeque::new(),
            config,
        })
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
        self.unchecked += u32::from(self.config.verify > 0);
        Some(data)
    }

    pub(crate) fn has_levels_or_tenants(&self) -> bool {
        self.unified || !self.levels.is_empty() || self.hears_tenants()
    }

    /// Whether `request` could be executed if nothing else were in progress.
    #[inline]
    pub(crate) fn check_request(&self, request: &Request) -> Result<(), Refusal> {
        let state = self.volumes.get(request.volume.0 as usize).and_then(Option::as_ref);
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
        let before = self.replies.len();
        self.missed = false;
        if self.unified {
            self.policy.note_time(now);
        }
        match request.op {
            Op::Read => {
                let id = self.enter(request)?;
                if !(self.volume(request.volume).reads_waiting.is_empty() && self.start_read(id, now)) {
                    self.wait_in_line(id);
                    let mut blocks = self.blocks(&(request.offset..request.offset + request.length));
                    self.missed = blocks.any(|block| self.current(Key::new(request.volume, block)).is_none());
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
                return Ok(Submitted { reply, missed: self.missed });
            }
        }
        // Only this request can have been replied to.
        let reply = if self.replies.len() > before { self.replies.pop_back() } else { None };
        Ok(Submitted { reply, missed: self.missed })
    }

    /// The next reply to a request that `submit` did not reply to, or to a `close`.
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
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
        let id = self.free_requests.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let state = self.volume(request.volume);
        state.requests += 1;
        state.ranges += u32::from(request.op.is_range());
        self.requests[id as usize] = Some(active);
        Ok(id)
    }

    /// The request is over.
    pub(crate) fn finish(&mut self, id: u32, outcome: Outcome) {
        let Request { token, tenant, .. } = self.leave(id).request;
        self.demand_loaded(tenant);
        self.replies.push_back(Reply { token, outcome });
    }

    pub(crate) fn leave(&mut self, id: u32) -> Active {
        let active = self.requests[id as usize].take().expect("a request in progress");
        self.free_requests.push(id);
        let state = self.volume(active.request.volume);
        state.requests -= 1;
        state.ranges -= u32::from(active.request.op.is_range());
        state.unlockable = true;
        active
    }

    pub(crate) fn active(&mut self, id: u32) -> &mut Active {
        self.requests[id as usize].as_mut().expect("a request in progress")
    }

    pub(crate) fn volume(&mut self, volume: Volume) -> &mut VolumeState {
        self.volumes[volume.0 as usize].as_mut().expect("an open volume")
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
        (0..).zip(&self.requests).any(|(other, active)| {
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
        while self.frames.available() < self.reserved + count && self.leave_transit() {}
        self.has_room_besides(count)
    }

    /// As `has_room`, but the transit buffer keeps its frames.
    pub(crate) fn has_room_besides(&mut self, count: u32) -> bool {
        let enough = |engine: &Engine| engine.frames.available() >= engine.reserved + count;
        if enough(self) || self.reclaimed {
            return enough(self);
        }
        self.reclaim();
        if !enough(self) {
            self.arena.want(true);
            self.reclaim();
            self.reclaimed = self.serving;
        }
        enough(self)
    }

    /// The block of `key` is no longer outside, if it was; its frame.
    pub(crate) fn take_outside(&mut self, key: Key) -> Option<u32> {
        if self.outside.is_empty() {
            return None;
        }
        let frame = self.outside.remove(&key)?;
        self.frames.clear(frame, TRANSIT);
        self.volume(key.volume()).outside -= 1;
        Some(frame)
    }

    /// Frees the frames without holders.
    pub(crate) fn reclaim(&mut self) {
        let mut lingering = std::mem::take(&mut self.lingering);
        lingering.retain(|&(key, frame)| {
            let is_held = self.arena.held(frame);
            let Some(key) = key else {
                if !is_held {
                    self.frames.put(frame);
                }
                return is_held;
            };
            let Entry::Occupied(outside) = self.outside.entry(key) else { return false };
            // The block has returned to the policy, or is dirty again, or is in the transit buffer, which frees its frames itself.
            if *outside.get() != frame || self.frames.has(frame, DIRTY | LOADING | TRANSIT) {
                return false;
            }
            if !is_held {
                outside.remove();
                self.volume(key.volume()).outside -= 1;
                self.note_unflushed(key, frame);
                self.frames.put(frame);
            }
            is_held
        });
        self.lingering = lingering;
    }

    /// `frame` no longer has the contents of any block.
    pub(crate) fn retire(&mut self, frame: u32) {
        self.frames.clear(frame, DIRTY | LOADING | PREFETCHED | UNFLUSHED | TRANSIT);
        if self.arena.held(frame) {
            self.lingering.push((None, frame));
        } else {
            self.frames.put(frame);
        }
    }

    /// `frame` has the contents of `key`, which left the policy: it becomes free when it is clean and has no holder.
    pub(crate) fn free_if_clean(&mut self, key: Key, frame: u32) {
        if self.frames.has(frame, DIRTY | LOADING | TRANSIT) || self.outside.get(&key) != Some(&frame) {
            return;
        }
        if self.arena.held(frame) {
            self.lingering.push((Some(key), frame));
            if self.lingering.len() > 2 * self.config.spare as usize {
                self.reclaim();
            }
        } else {
            self.take_outside(key);
            self.note_unflushed(key, frame);
            self.frames.put(frame);
        }
    }

    /// The frame that has, or will have, the contents of `key`.
    pub(crate) fn current(&self, key: Key) -> Option<u32> {
        let resident = self.slots.find(key).map(|slot| self.slots.frame(slot)).filter(|&frame| frame != NONE);
        resident.or_else(|| self.outside.get(&key).copied())
    }

    /// Whether some of `blocks` may have a frame; if not, `current` need not be asked for each.
    pub(crate) fn may_have(&self, volume: Volume, blocks: &Range<u64>) -> bool {
        let outside = self.volumes[volume.0 as usize].as_ref().map_or(0, |state| state.outside);
        outside > 0 || self.slots.occupied(volume, blocks.clone()).next().is_some()
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
                if !self.first_use(key.volume(), frame) || self.policy.follows_lists() {
                    self.policy.hit(slot, &access);
                    if self.unified {
                        self.follow_orders();
                    }
                }
                return (Place::Resident(slot), Some(frame), true);
            }
        }
        if self.unified
            && let Some(&frame) = self.outside.get(&key)
            && kind != Kind::Prefetch
            && self.first_use(key.volume(), frame)
        {
            return (Place::Passing(key), Some(frame), true);
        }
        let slot = known.unwrap_or_else(|| self.slots.add(key));
        if self.unified || self.resident == self.capacity {
            let victim = self.policy.evict(slot, &access);
            self.follow_orders();
            assert_ne!(victim, Some(slot), "the incoming block is not resident and cannot leave");
            if let Some(victim) = victim {
                self.depart(victim);
                self.drain_forgotten();
            }
            if !self.policy.stays(slot) {
                let frame = self.outside.get(&key).copied();
                if let Some(frame) = frame.filter(|&frame| !self.frames.has(frame, LOADING)) {
                    self.settle(key);
                    self.pass(key, frame);
                }
                return (Place::Passing(key), frame, false);
            }
        }
        self.policy.insert(slot, &access);
        self.resident += 1;
        let frame = self.take_outside(key);
        if let Some(frame) = frame {
            self.slots.set_frame(slot, frame);
            if self.unified && !self.frames.has(frame, LOADING) {
                self.settle(key);
            }
        }
        (Place::Resident(slot), frame, false)
    }

    /// Frees the slots of the blocks that the policy no longer remembers.
    pub(crate) fn drain_forgotten(&mut self) {
        self.follow_orders();
        while let Some(slot) = self.policy.take_forgotten() {
            if self.unified {
                self.release_copies(self.slots.key(slot));
            }
            self.slots.remove(slot);
        }
    }

    /// The policy evicted `victim`: its frame is free, or stays in use outside of the policy.
    pub(crate) fn depart(&mut self, victim: Slot) {
        let (key, frame) = (self.slots.key(victim), self.slots.frame(victim));
        assert_ne!(frame, NONE, "the victim is resident");
        self.slots.set_frame(victim, NONE);
        self.resident -= 1;
        let unused = self.frames.has(frame, PREFETCHED);
        self.note_leaving(key.volume(), frame);
        let dirty = self.frames.has(frame, DIRTY);
        self.volume(key.volume()).counters.evictions += 1;
        let has_lower = self.unified || !self.levels.is_empty();
        if !has_lower && !self.frames.has(frame, DIRTY | LOADING) && !self.arena.held(frame) {
            // Nobody has its contents, or gets them: it is free at once.
            self.note_unflushed(key, frame);
            return self.frames.put(frame);
        }
        let state = self.volume(key.volume());
        state.outside += 1;
        if dirty {
            state.dirty.hurry(key.index());
            self.make_due(key.volume());
        }
        let before = self.outside.insert(key, frame);
        assert_eq!(before, None, "a block is either resident or outside");
        if !self.frames.has(frame, DIRTY | LOADING) {
            match unused {
                false => self.offer(key, frame),
                true if self.unified => self.give_up(key),
                true => {}
            }
        }
        self.free_if_clean(key, frame);
    }

    /// Takes the resident `slot` out of the policy. Returns its frame, which belongs to no block then.
    pub(crate) fn forget(&mut self, slot: Slot) -> u32 {
        self.drain_forgotten();
        let frame = self.slots.frame(slot);
        self.policy.remove(slot);
        if self.unified {
            self.release_copies(self.slots.key(slot));
        }
        if frame != NONE {
            self.slots.set_frame(slot, NONE);
            self.resident -= 1;
        }
        self.slots.remove(slot);
        frame
    }

    /// Drops the contents of all blocks of `volume` in `blocks`. None of them is being written or waited for.
    pub(crate) fn drop_blocks(&mut self, volume: Volume, blocks: Range<u64>) {
        let gone = self.volume(volume).dirty.discard(blocks.clone());
        self.dirty -= gone.len() as u32;
        self.note_unwanted(volume);
        let inside = |key: &Key| key.volume() == volume && blocks.contains(&key.index());
        let mut keys: Vec<Key> = if blocks.end - blocks.start <= u64::from(self.slots.numbers()) {
            let parts = self.slots.occupied(volume, blocks.clone());
            parts.flatten().map(|block| Key::new(volume, block)).collect()
        } else {
            self.slots.used().into_iter().map(|slot| self.slots.key(slot)).filter(inside).collect()
        };
        if self.volume(volume).outside > 0 {
            keys.extend(self.outside.keys().filter(|key| inside(key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| self.drop_block(key));
    }

    /// Drops the contents of the block `key`, which is neither dirty nor being written or waited for.
    pub(crate) fn drop_block(&mut self, key: Key) {
        let frame = match self.slots.find(key).filter(|&slot| self.slots.frame(slot) != NONE) {
            Some(slot) => self.forget(slot),
            None => match self.take_outside(key) {
                Some(frame) => {
                    if self.unified {
                        self.give_up(key);
                    }
                    frame
                }
                None => return,
            },
        };
        self.note_leaving(key.volume(), frame);
        if self.frames.has(frame, DIRTY | UNFLUSHED) {
            self.volume(key.volume()).unflushed(key.index()).forget(key.index());
        }
        match self.loads.get(&frame) {
            // The frame becomes free when the device has finished with it.
            Some(load) => assert!(load.waiters.is_empty(), "a block in use is not dropped"),
            None => self.retire(frame),
        }
    }
}
