//! The log: changes in, work for the log's device and for the disk's own device (*home*) out.
//!
//! 1. [`Log::submit`] queues a change. [`Log::next_commit`] puts queued changes into a group, and [`Log::committed`] returns those that are
//!    stable. One commit is under way at a time: all that arrives meanwhile shares the next one.
//! 2. [`Log::flush`] ends an *epoch*. It needs no I/O, because everything that was acknowledged is stable.
//! 3. [`Log::next_home`] moves the oldest epoch home: the newest bytes of each range in the order of their place, and then a flush of home. If
//!    any of that fails, all of the epoch is written again.
//! 4. The next commit has a superblock with the new tail. After that the space is free, and the next epoch begins.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;

use crate::change::{Change, Kind};
use crate::extents::{Extents, Place};
use crate::format::{
    BLOCK, Block, ENTRIES_MAX, Entry, GROUP_BLOCKS_MAX, Header, Mark, RING_OFFSET, Superblock, sum_in,
};

/// The most entries that a discard becomes.
const DISCARD_ENTRIES: usize = 120;
/// Share of the ring that an epoch without a flush may take before it goes home.
const OPEN_SHARE: u64 = 4;

/// How a log behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// After this time, in µs, an epoch that no flush has ended goes home.
    pub age_us: u64,
    /// The pause before an epoch whose write-back failed is written again, in µs.
    pub retry_us: u64,
    /// If the log is full and write-back has failed for this time, in µs, changes that wait are refused.
    pub patience_us: u64,
    /// The most operations at home at a time.
    pub depth: usize,
    /// The most bytes of an operation at home.
    pub copy_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { age_us: 1_000_000, retry_us: 1_000_000, patience_us: 10_000_000, depth: 16, copy_bytes: 256 << 10 }
    }
}

/// Bytes of a change, and their place on the log's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The change.
    pub token: u64,
    /// Its first byte within the change's range.
    pub skip: u64,
    /// In bytes. The rest of the last block is zeros.
    pub length: u64,
    /// On the log's device, in bytes.
    pub offset: u64,
}

/// A group to be written.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// The place of its header on the log's device, in bytes. The data follows in the order of the parts.
    pub offset: u64,
    /// Its data.
    pub parts: Vec<Part>,
    header: Header,
}

impl GroupPlan {
    /// Blocks of its data.
    pub fn data_blocks(&self) -> u64 {
        self.header.data_blocks()
    }
}

/// What is written to the log's device in any order, and then flushed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// A superblock and its place in bytes.
    pub superblock: Option<(u64, Box<Block>)>,
    /// A group. Its header comes from [`Log::header`].
    pub group: Option<GroupPlan>,
}

/// The source of bytes that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The same range of home.
    Home,
    /// The log's device, from this byte on.
    Log(u64),
    /// They are zeros.
    Zeroes,
}

/// A part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of the disk, in bytes.
    pub range: Range<u64>,
    /// Where its bytes are.
    pub source: Source,
}

/// The parts of a read. Their places in the log stay until [`Log::unpin`].
#[must_use = "the log is pinned"]
#[derive(Clone, Debug)]
pub struct Reading {
    /// In order and without gaps.
    pub pieces: Vec<Piece>,
    /// For [`Log::unpin`].
    pub pin: Option<u64>,
}

/// An operation at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeOp {
    /// Of the disk, in bytes; empty for a flush.
    pub range: Range<u64>,
    /// What is done.
    pub work: HomeWork,
}

/// The work of a [`HomeOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeWork {
    /// Bytes of the log are written: of each part the place on the log's device and its length in bytes.
    Copy(Vec<(u64, u64)>),
    /// Zeros are written.
    Zeroes {
        /// As in [`Kind::Zeroes`].
        keep: bool,
    },
    /// The range is discarded.
    Discard,
    /// All that was written becomes stable.
    Flush,
}

/// A group that is stable in the log.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The place before it.
    pub(crate) mark: Mark,
    /// The position of its header.
    pub(crate) position: u64,
    pub(crate) epoch: u64,
    pub(crate) entries: Box<[Entry]>,
    /// When it was committed.
    pub(crate) at_us: u64,
}

impl Group {
    /// The entries with the places of their data, in bytes since the log was made.
    fn placed(&self) -> impl Iterator<Item = (Range<u64>, Place, Kind)> {
        let mut at = (self.position + 1) * BLOCK;
        self.entries.iter().map(move |entry| {
            let place = match entry.kind {
                Kind::Data => Place::Log(at),
                Kind::Zeroes { keep } => Place::Zeroes { keep },
                Kind::Discard => Place::Discarded,
            };
            at += entry.blocks() * BLOCK;
            (entry.offset..entry.offset + entry.length, place, entry.kind)
        })
    }
}

/// A change that is not in a group yet, or only its beginning.
#[derive(Clone, Debug)]
struct Waiting {
    token: u64,
    change: Change,
    /// Bytes that are in groups.
    done: u64,
}

/// The commit under way.
#[derive(Clone, Debug, Default)]
struct Committing {
    superblock: Option<Superblock>,
    group: Option<Group>,
    /// The place after the group, without its chain.
    head: Mark,
    /// Changes that are complete with it.
    tokens: Vec<u64>,
}

/// The write-back of an epoch.
#[derive(Clone, Debug)]
enum Home {
    Idle,
    Writing {
        ops: VecDeque<HomeOp>,
        busy: usize,
        failed: bool,
    },
    Flushing,
    /// After a failure, until this time.
    Resting(u64),
}

/// Counters and gauges of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Bytes of the ring in use.
    pub used_bytes: u64,
    /// Changes in the log that are not home.
    pub records: u64,
    /// The oldest of these is so old, in µs.
    pub oldest_us: u64,
    /// Groups committed since it was opened.
    pub groups: u64,
    /// Epochs moved home since it was opened.
    pub epochs: u64,
    /// Operations at home that changed it, since it was opened.
    pub home_writes: u64,
    /// Bytes that they wrote.
    pub home_bytes: u64,
    /// Memory for its bookkeeping, in bytes.
    pub memory_bytes: u64,
    /// Changes wait for room.
    pub is_full: bool,
    /// The last write-back failed.
    pub is_failing: bool,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log {
    settings: Settings,
    /// The last one that is stable.
    superblock: Superblock,
    /// The place of the next group.
    head: Mark,
    /// Up to here everything is home, which no superblock says yet.
    next_tail: Option<Mark>,
    /// Groups that are not home, from the oldest.
    groups: VecDeque<Group>,
    /// Entries in `groups`.
    records: u64,
    newest: Extents,
    queue: VecDeque<Waiting>,
    committing: Option<Committing>,
    /// The epoch of the next group.
    epoch: u64,
    home: Home,
    failing_since: Option<u64>,
    /// Whether the front of the queue waits for room.
    is_full: bool,
    /// Positions that are being read, and how often.
    pins: BTreeMap<u64, u32>,
    /// The log's device takes no more commits.
    is_broken: bool,
    counts: Statistics,
}

impl Log {
    /// A log of which `superblock` is stable, with the groups after its tail.
    pub(crate) fn new(settings: Settings, superblock: Superblock, head: Mark, groups: VecDeque<Group>) -> Log {
        let mut newest = Extents::default();
        for group in &groups {
            group.placed().for_each(|(range, place, _)| newest.insert(range, place, group.epoch));
        }
        let records = groups.iter().map(|group| group.entries.len() as u64).sum();
        let epoch = head.epoch;
        Log {
            settings,
            superblock,
            head,
            next_tail: None,
            groups,
            records,
            newest,
            queue: VecDeque::new(),
            committing: None,
            epoch,
            home: Home::Idle,
            failing_since: None,
            is_full: false,
            pins: BTreeMap::new(),
            is_broken: false,
            counts: Statistics::default(),
        }
    }

    fn ring_blocks(&self) -> u64 {
        self.superblock.ring_blocks
    }

    /// The place on the log's device of a byte, counted since the log was made.
    fn place(&self, at: u64) -> u64 {
        RING_OFFSET + at / BLOCK % self.ring_blocks() * BLOCK + at % BLOCK
    }

    /// Its identity.
    pub fn id(&self) -> crate::format::Id {
        self.superblock.id
    }

    /// Whether everything is home, and the log's device knows it.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.next_tail.is_none() && self.committing.is_none() && self.queue.is_empty()
    }

    /// Whether its device takes no more commits.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Queues a change, which is not empty and not in conflict with another one in the queue. The log must not be broken.
    pub fn submit(&mut self, token: u64, change: Change) {
        debug_assert!(!self.is_broken && !change.range.is_empty() && change.range.start.is_multiple_of(BLOCK));
        self.queue.push_back(Waiting { token, change, done: 0 });
    }

    /// Ends the epoch, if it has changes. All changes that were acknowledged are stable, and reach home before later ones.
    pub fn flush(&mut self) {
        let is_last = |group: &Group| group.epoch == self.epoch;
        let committing = self.committing.as_ref().and_then(|commit| commit.group.as_ref());
        if self.groups.back().is_some_and(is_last) || committing.is_some_and(is_last) {
            self.epoch += 1;
        }
    }

    /// Ends the epoch, and returns its number for [`Log::is_home`].
    pub fn drain(&mut self) -> u64 {
        self.flush();
        self.epoch - 1
    }

    /// Whether all changes of this epoch and earlier ones are home.
    pub fn is_home(&self, epoch: u64) -> bool {
        let is_before = |group: &Group| group.epoch <= epoch;
        let committing = self.committing.as_ref().and_then(|commit| commit.group.as_ref());
        !self.groups.front().is_some_and(is_before)
            && !committing.is_some_and(is_before)
            && (self.next_tail.is_none() || self.is_broken)
    }

    /// The sources of the bytes of `range`.
    pub fn read(&mut self, range: Range<u64>) -> Reading {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = range.start;
        let mut pin = None;
        let mut add = |range: Range<u64>, source| {
            if let Some(last) = pieces.last_mut()
                && source == Source::Home
                && last.source == Source::Home
            {
                last.range.end = range.end;
            } else if !range.is_empty() {
                pieces.push(Piece { range, source });
            }
        };
        for (part, place) in self.newest.within(range.clone()) {
            add(at..part.start, Source::Home);
            at = part.end;
            let source = match place {
                Place::Log(byte) => {
                    pin = Some(pin.unwrap_or(u64::MAX).min(byte / BLOCK));
                    Source::Log(self.place(byte))
                }
                Place::Zeroes { .. } => Source::Zeroes,
                Place::Discarded => Source::Home,
            };
            add(part, source);
        }
        add(at..range.end, Source::Home);
        if let Some(pin) = pin {
            *self.pins.entry(pin).or_default() += 1;
        }
        Reading { pieces, pin }
    }

    /// The read with this pin is complete.
    pub fn unpin(&mut self, pin: Option<u64>) {
        let Some(pin) = pin else { return };
        if let Some(count) = self.pins.get_mut(&pin) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&pin);
            }
        }
    }

    /// The parts of a discard: zeros for what the log has, so that no older bytes appear, and a discard for the rest. Small gaps between
    /// the former are zeros, too, if there are many.
    fn resolve(&self, range: &Range<u64>) -> Vec<Entry> {
        let mut gap = 0;
        loop {
            let mut here: Vec<Range<u64>> = Vec::new();
            for (part, place) in self.newest.within(range.clone()) {
                match here.last_mut() {
                    _ if place == Place::Discarded => {}
                    Some(last) if part.start - last.end <= gap => last.end = part.end,
                    _ => here.push(part),
                }
            }
            if here.len() * 2 < DISCARD_ENTRIES {
                let mut entries = Vec::new();
                let mut at = range.start;
                let mut add = |kind, range: Range<u64>| {
                    let (offset, length) = (range.start, range.end - range.start);
                    if length > 0 {
                        entries.push(Entry { kind, offset, length });
                    }
                };
                for part in here {
                    add(Kind::Discard, at..part.start);
                    at = part.end;
                    add(Kind::Zeroes { keep: false }, part);
                }
                add(Kind::Discard, at..range.end);
                return entries;
            }
            gap = (gap * 2).max(BLOCK);
        }
    }

    /// The changes at the front of the queue that go into a group, as entries and parts without places, and how far each change is then done.
    fn gather(&self) -> (Vec<Entry>, Vec<Part>, Vec<u64>) {
        let most = GROUP_BLOCKS_MAX.min(self.ring_blocks() / 8);
        let (mut entries, mut parts, mut done): (Vec<Entry>, Vec<Part>, Vec<u64>) = Default::default();
        let mut blocks = 0;
        for Waiting { token, change: Change { kind, range }, done: before } in &self.queue {
            let (offset, left) = (range.start + before, range.end - range.start - before);
            match kind {
                Kind::Data => {
                    let length = left.min((most - blocks) * BLOCK);
                    if length == 0 || entries.len() == ENTRIES_MAX {
                        break;
                    }
                    entries.push(Entry { kind: *kind, offset, length });
                    parts.push(Part { token: *token, skip: *before, length, offset: blocks * BLOCK });
                    blocks += length.div_ceil(BLOCK);
                    done.push(before + length);
                    if length < left {
                        break;
                    }
                }
                Kind::Zeroes { .. } if entries.len() < ENTRIES_MAX => {
                    entries.push(Entry { kind: *kind, offset, length: left });
                    done.push(before + left);
                }
                Kind::Discard => {
                    let overlaps =
                        |entry: &Entry| entry.offset < range.end && range.start < entry.offset + entry.length;
                    // What this group has of the range is not known to `resolve`.
                    if entries.iter().any(overlaps) {
                        break;
                    }
                    let resolved = self.resolve(range);
                    if entries.len() + resolved.len() > ENTRIES_MAX {
                        break;
                    }
                    entries.extend(resolved);
                    done.push(before + left);
                }
                Kind::Zeroes { .. } => break,
            }
        }
        (entries, parts, done)
    }

    /// The position for a group of so many blocks, if there is room.
    fn room(&self, blocks: u64) -> Option<u64> {
        let ring = self.ring_blocks();
        let at = self.head.position;
        let start = if at % ring + blocks <= ring { at } else { at.next_multiple_of(ring) };
        let tail = self.superblock.tail.position.min(self.pins.keys().next().copied().unwrap_or(u64::MAX));
        (start + blocks - tail <= ring).then_some(start)
    }

    /// What is to be written to the log's device, if anything. The next one comes after [`Log::committed`] or [`Log::fail`].
    pub fn next_commit(&mut self, now_us: u64) -> Option<Commit> {
        if self.committing.is_some() || self.is_broken {
            return None;
        }
        let mut committing = Committing { head: self.head, ..Committing::default() };
        let mut commit = Commit { superblock: None, group: None };
        if let Some(tail) = self.next_tail {
            let next = Superblock { number: self.superblock.number + 1, tail, ..self.superblock.clone() };
            commit.superblock = Some((next.place(), next.encode()));
            committing.superblock = Some(next);
        }
        let (entries, mut parts, done) = self.gather();
        if !entries.is_empty() {
            let blocks = 1 + entries.iter().map(Entry::blocks).sum::<u64>();
            let room = self.room(blocks);
            self.is_full = room.is_none();
            if let Some(position) = room {
                let first = self.place((position + 1) * BLOCK);
                parts.iter_mut().for_each(|part| part.offset += first);
                let mark = Mark { epoch: self.epoch, ..self.head };
                for (at, done) in done.iter().enumerate().rev() {
                    let waiting = &mut self.queue[at];
                    waiting.done = *done;
                    if waiting.change.range.end - waiting.change.range.start == *done {
                        committing.tokens.push(waiting.token);
                        self.queue.remove(at);
                    }
                }
                let header = Header {
                    id: self.superblock.id,
                    session: self.superblock.session,
                    sequence: mark.sequence,
                    chain: mark.chain,
                    position,
                    epoch: self.epoch,
                    sum: 0,
                    entries,
                };
                let group =
                    Group { mark, position, epoch: self.epoch, entries: header.entries.clone().into(), at_us: now_us };
                committing.head =
                    Mark { position: position + blocks, sequence: mark.sequence + 1, chain: 0, epoch: self.epoch };
                committing.group = Some(group);
                commit.group = Some(GroupPlan { offset: self.place(position * BLOCK), parts, header });
            }
        } else {
            self.is_full = false;
        }
        if commit.superblock.is_none() && commit.group.is_none() {
            return None;
        }
        self.committing = Some(committing);
        Some(commit)
    }

    /// The header of the group under way, whose data has this checksum.
    pub fn header(&mut self, plan: &GroupPlan, sum: u64) -> Box<Block> {
        let header = Header { sum, ..plan.header.clone() }.encode();
        if let Some(commit) = &mut self.committing {
            commit.head.chain = sum_in(&header);
        }
        header
    }

    /// The commit under way is stable. Returns the changes that are complete.
    pub fn committed(&mut self) -> Vec<u64> {
        let Some(Committing { superblock, group, head, tokens }) = self.committing.take() else { return Vec::new() };
        if let Some(superblock) = superblock {
            self.superblock = superblock;
            self.next_tail = None;
        }
        if let Some(group) = group {
            group.placed().for_each(|(range, place, _)| self.newest.insert(range, place, group.epoch));
            self.records += group.entries.len() as u64;
            self.counts.groups += 1;
            self.head = head;
            self.groups.push_back(group);
        }
        tokens
    }

    /// The commit under way failed for good: the log's device takes no more. Returns the changes that fail: all that are not acknowledged.
    pub fn fail(&mut self) -> Vec<u64> {
        self.is_broken = true;
        self.is_full = false;
        let mut tokens = self.committing.take().map_or(Vec::new(), |commit| commit.tokens);
        tokens.extend(self.queue.drain(..).map(|waiting| waiting.token));
        tokens
    }

    /// Changes that fail now, because the log is full and home has failed for long.
    pub fn refused(&mut self, now_us: u64) -> Vec<u64> {
        let is_over = |since: u64| now_us.saturating_sub(since) >= self.settings.patience_us;
        if !self.is_full || !self.failing_since.is_some_and(is_over) {
            return Vec::new();
        }
        self.is_full = false;
        self.queue.drain(..).map(|waiting| waiting.token).collect()
    }

    /// Whether the open epoch is to go home although no flush has ended it.
    fn is_overdue(&self, oldest: &Group, now_us: u64) -> bool {
        let used = self.head.position - oldest.position;
        self.is_full
            || self.is_broken
            || used * OPEN_SHARE >= self.ring_blocks()
            || now_us.saturating_sub(oldest.at_us) >= self.settings.age_us
    }

    /// The next operation at home, if there is one now; [`Log::home_done`] follows for each, in any order.
    pub fn next_home(&mut self, now_us: u64) -> Option<HomeOp> {
        if matches!(self.home, Home::Resting(until) if until <= now_us) {
            self.home = Home::Idle;
        }
        if let Home::Idle = self.home {
            // The space of the epoch before is free only when a superblock says so, and until then a crash would repeat it.
            if self.next_tail.is_some() && !self.is_broken {
                return None;
            }
            let oldest = self.groups.front()?;
            if oldest.epoch == self.epoch && self.is_overdue(oldest, now_us) {
                self.epoch += 1;
            }
            let oldest = self.groups.front()?.epoch;
            let committing = self.committing.as_ref().and_then(|commit| commit.group.as_ref());
            if oldest == self.epoch || committing.is_some_and(|group| group.epoch == oldest) {
                return None;
            }
            self.home = Home::Writing { ops: self.operations(oldest), busy: 0, failed: false };
        }
        let Home::Writing { ops, busy, failed } = &mut self.home else { return None };
        if *failed || *busy >= self.settings.depth {
            return None;
        }
        if let Some(op) = ops.pop_front() {
            *busy += 1;
            self.counts.home_writes += 1;
            self.counts.home_bytes += op.range.end - op.range.start;
            return Some(op);
        }
        if *busy > 0 {
            return None;
        }
        self.home = Home::Flushing;
        Some(HomeOp { range: 0..0, work: HomeWork::Flush })
    }

    /// The operations that write the newest bytes of `epoch`, in the order of their place.
    fn operations(&self, epoch: u64) -> VecDeque<HomeOp> {
        let mut newest = Extents::default();
        for group in self.groups.iter().take_while(|group| group.epoch == epoch) {
            group.placed().for_each(|(range, place, _)| newest.insert(range, place, epoch));
        }
        let mut ops: VecDeque<HomeOp> = VecDeque::new();
        for (mut range, place) in newest.all() {
            let Place::Log(mut at) = place else {
                let work = match place {
                    Place::Zeroes { keep } => HomeWork::Zeroes { keep },
                    _ => HomeWork::Discard,
                };
                ops.push_back(HomeOp { range, work });
                continue;
            };
            while !range.is_empty() {
                let length = match ops.back_mut() {
                    Some(HomeOp { range: before, work: HomeWork::Copy(parts) })
                        if before.end == range.start
                            && before.end.is_multiple_of(BLOCK)
                            && before.end - before.start < self.settings.copy_bytes =>
                    {
                        let room = self.settings.copy_bytes - (before.end - before.start);
                        let length = room.min(range.end - range.start);
                        parts.push((self.place(at), length));
                        before.end += length;
                        length
                    }
                    _ => {
                        let length = self.settings.copy_bytes.min(range.end - range.start);
                        let work = HomeWork::Copy(vec![(self.place(at), length)]);
                        ops.push_back(HomeOp { range: range.start..range.start + length, work });
                        length
                    }
                };
                range.start += length;
                at += length;
            }
        }
        ops
    }

    /// An operation at home is complete, or failed: then all of its epoch is repeated after a pause.
    pub fn home_done(&mut self, now_us: u64, is_done: bool) {
        let failed = match &mut self.home {
            Home::Writing { busy, failed, .. } => {
                *busy -= 1;
                *failed |= !is_done;
                if !*failed || *busy > 0 {
                    return;
                }
                true
            }
            Home::Flushing => !is_done,
            Home::Idle | Home::Resting(_) => return,
        };
        if failed {
            self.failing_since.get_or_insert(now_us);
            self.home = Home::Resting(now_us + self.settings.retry_us);
            return;
        }
        self.failing_since = None;
        self.home = Home::Idle;
        self.retire();
    }

    /// The oldest epoch is home and stable.
    fn retire(&mut self) {
        let Some(epoch) = self.groups.front().map(|group| group.epoch) else { return };
        while self.groups.front().is_some_and(|group| group.epoch == epoch) {
            let Some(group) = self.groups.pop_front() else { break };
            self.records -= group.entries.len() as u64;
            group.placed().for_each(|(range, ..)| self.newest.remove(range, epoch));
        }
        self.counts.epochs += 1;
        let tail = self.groups.front().map_or(self.head, |group| group.mark);
        self.next_tail = Some(tail);
    }

    /// When something is to be done although nothing is complete, in µs.
    pub fn deadline(&self) -> Option<u64> {
        let rest = match self.home {
            Home::Resting(until) => Some(until),
            Home::Idle if self.next_tail.is_none() || self.is_broken => {
                // The end of the commit under way is what an epoch that was ended waits for.
                let open = self.groups.front().filter(|group| group.epoch == self.epoch);
                open.map(|group| group.at_us + self.settings.age_us)
            }
            _ => None,
        };
        let refusal = self.failing_since.filter(|_| self.is_full).map(|since| since + self.settings.patience_us);
        rest.into_iter().chain(refusal).min()
    }

    /// The first `most` ranges of the disk whose newest bytes are not home, and the count and bytes of all.
    pub fn missing(&self, most: usize) -> (Vec<Range<u64>>, u64, u64) {
        let (mut first, mut count, mut bytes): (Vec<Range<u64>>, u64, u64) = (Vec::new(), 0, 0);
        let mut end = None;
        for (range, _) in self.newest.all().filter(|(_, place)| *place != Place::Discarded) {
            bytes += range.end - range.start;
            let goes_on = end == Some(range.start);
            end = Some(range.end);
            match goes_on {
                true if count as usize <= first.len() => {
                    first.iter_mut().next_back().into_iter().for_each(|last| last.end = range.end)
                }
                true => {}
                false => {
                    count += 1;
                    if first.len() < most {
                        first.push(range);
                    }
                }
            }
        }
        (first, count, bytes)
    }

    /// Counters and gauges.
    pub fn statistics(&self, now_us: u64) -> Statistics {
        let per_group = (mem::size_of::<Group>() + mem::size_of::<Entry>()) as u64;
        Statistics {
            ring_bytes: self.ring_blocks() * BLOCK,
            used_bytes: (self.head.position - self.superblock.tail.position) * BLOCK,
            records: self.records,
            oldest_us: self.groups.front().map_or(0, |group| now_us.saturating_sub(group.at_us)),
            // An extent takes 40 bytes in a node of the tree, which is two thirds full.
            memory_bytes: self.newest.len() as u64 * 60
                + self.groups.len() as u64 * per_group
                + self.records * mem::size_of::<Entry>() as u64,
            is_full: self.is_full,
            is_failing: self.failing_since.is_some(),
            ..self.counts
        }
    }

    /// Recounts what is counted. For tests.
    #[doc(hidden)]
    pub fn check(&self) {
        assert_eq!(self.records, self.groups.iter().map(|group| group.entries.len() as u64).sum::<u64>());
        assert!(!self.groups.is_empty() || self.newest.is_empty(), "ranges without groups");
        assert!(self.head.position - self.superblock.tail.position <= self.ring_blocks());
        let mut newest = Extents::default();
        for group in &self.groups {
            group.placed().for_each(|(range, place, _)| newest.insert(range, place, group.epoch));
        }
        // A range may be cut differently.
        let flat = |extents: &Extents| {
            let mut all: Vec<(Range<u64>, Place)> = Vec::new();
            for (range, place) in extents.all() {
                match all.last_mut() {
                    Some((last, before)) if last.end == range.start && joins(last, *before, place) => {
                        last.end = range.end
                    }
                    _ => all.push((range, place)),
                }
            }
            all
        };
        assert_eq!(flat(&self.newest), flat(&newest));
    }
}

/// Whether `next` continues the place of `range`.
fn joins(range: &Range<u64>, place: Place, next: Place) -> bool {
    match (place, next) {
        (Place::Log(at), Place::Log(next)) => at + (range.end - range.start) == next,
        (one, other) => one == other,
    }
}
