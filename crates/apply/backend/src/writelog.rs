//! A disk with a write log: changes are stable on a fast device before they are acknowledged, and go to the disk's own device (*home*) later.
//!
//! `nigh-writelog` decides what is written where and when; this device executes it. Its operations at both devices have numbers in `ways`, by which
//! their completions are told apart.

mod marker;
mod opening;
mod settings;
mod state;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nigh_engine::{Action, Exclusive, Fault, Operation, OwnFrames, Port, Shared};
use nigh_writelog::{BLOCK, Change, Commit, GroupPlan, HomeOp, HomeWork, Kind, Log, Part, Source, Sum};
use slab::Slab;

use crate::device::{Completion, Device, Geometry, Job};
use crate::perform::ZEROS;
use crate::writelog::marker::Marker;
use crate::writelog::state::Common;

pub(crate) use marker::refuse as refuse_without_log;
pub(crate) use opening::open;
pub use settings::WriteLogSettings;

/// Attempts to commit before the log's device counts as failed.
const TRIES: u32 = 4;
/// The pause between them.
const PAUSE: Duration = Duration::from_millis(50);
/// Blocks of memory for what is on its way home.
const COPY_BLOCKS: u32 = 1024;
/// How long an orderly end waits for the rest to go home, if home and log work.
const ENDING: Duration = Duration::from_millis(500);
/// The ranges that a report of a failed log names.
const REPORTED_MAX: usize = 32;
/// The ranges that the state of a failed log names.
const LISTED_MAX: usize = 1024;
/// The port of operations that no engine asked for.
const OWN: Port = Port(u16::MAX);

/// The course of an operation at one of the two devices.
enum Way {
    /// A client's operation, done by home.
    Passed { sender: u32 },
    /// A client's read whose bytes are together in the log.
    Direct { sender: u32, offset: u64, pin: Option<u64> },
    /// A part of a client's read.
    Part { read: usize },
    /// A write of the commit under way.
    Commit,
    /// Its flush.
    CommitFlush,
    /// A read of the log for a copy.
    CopyRead { copy: usize },
    /// Its write at home.
    CopyWrite { copy: usize },
    /// Another operation at home.
    Home { is_advice: bool },
}

/// A client's read of which some is in the log.
struct Mixed {
    job: Job,
    memory: OwnFrames,
    frames: Vec<u32>,
    left: usize,
    result: Result<(), Fault>,
    pin: Option<u64>,
}

/// Bytes on their way home.
struct Copy {
    op: HomeOp,
    frames: Vec<u32>,
    left: usize,
    is_failed: bool,
}

/// The commit under way.
struct Committing {
    /// Place on the log's device, frames, and bytes.
    writes: Vec<(u64, Vec<u32>, usize)>,
    left: usize,
    result: Result<(), Fault>,
    tries: u32,
    /// After a failed attempt, the time of the next one.
    retry: Option<Instant>,
}

/// The device.
pub(crate) struct Logged {
    home: Box<dyn Device>,
    device: Box<dyn Device>,
    log: Log,
    begin: Instant,
    common: Arc<Common>,
    /// Readable when one of the two devices or a drain has something to do.
    watch: OwnedFd,
    marker: Option<Marker>,
    /// Changes of clients, by their tokens.
    changes: Slab<Job>,
    ways: Slab<Way>,
    reads: Slab<Mixed>,
    copies: Slab<Copy>,
    commit_memory: OwnFrames,
    copy_memory: OwnFrames,
    committing: Option<Committing>,
    /// A copy that waits for memory.
    held: Option<HomeOp>,
    drains: Vec<(u64, Sender<()>)>,
    /// Completions without I/O.
    done: VecDeque<Completion>,
    is_failing: bool,
    /// Epochs home when the missing ranges were listed.
    listed: Option<u64>,
}

/// Copies bytes between lists of slices of the same total length; zeros where `from` ends before.
fn copy<'a, 'b>(from: impl Iterator<Item = &'a [u8]>, to: impl Iterator<Item = &'b mut [u8]>) {
    let mut from = from.filter(|slice| !slice.is_empty());
    let mut now: &[u8] = &[];
    for mut out in to {
        while !out.is_empty() {
            if now.is_empty() {
                match from.next() {
                    Some(next) => now = next,
                    None => {
                        out.fill(0);
                        break;
                    }
                }
            }
            let length = now.len().min(out.len());
            let (first, rest) = out.split_at_mut(length);
            first.copy_from_slice(&now[..length]);
            (now, out) = (&now[length..], rest);
        }
    }
}

/// The slices of `length` bytes of `shared`, from byte `skip` on.
fn part(shared: &Shared, mut skip: usize, mut length: usize) -> impl Iterator<Item = &[u8]> {
    shared.slices().map(move |slice| {
        let start = skip.min(slice.len());
        let end = slice.len().min(start + length);
        skip -= start;
        length -= end - start;
        &slice[start..end]
    })
}

impl Logged {
    fn now_us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begin).as_micros() as u64
    }

    fn at_home(&mut self, way: Way, range: std::ops::Range<u64>, action: Action) {
        let sender = self.ways.insert(way) as u32;
        self.home.submit(Job::new(sender, Operation::own(OWN, range, action)));
    }

    fn in_log(&mut self, way: Way, range: std::ops::Range<u64>, action: Action) {
        let sender = self.ways.insert(way) as u32;
        self.device.submit(Job::new(sender, Operation::own(OWN, range, action)));
    }

    fn read(&mut self, mut job: Job) {
        let range = job.range();
        let reading = self.log.read(range.clone());
        match reading.pieces[..] {
            [ref piece] if piece.source == Source::Home => {
                let sender = self.ways.insert(Way::Passed { sender: job.sender }) as u32;
                job.sender = sender;
                return self.home.submit(job);
            }
            // Of a part of a block, the log has all of it.
            [ref piece] if matches!(piece.source, Source::Log(_)) && job.bytes.is_multiple_of(BLOCK) => {
                let Source::Log(place) = piece.source else { return };
                let (sender, offset) = (job.sender, job.operation.offset);
                job.sender = self.ways.insert(Way::Direct { sender, offset, pin: reading.pin }) as u32;
                job.operation.offset = place;
                return self.device.submit(job);
            }
            _ => {}
        }
        let blocks = (range.end - range.start).div_ceil(BLOCK) as u32;
        let Some(mut memory) = OwnFrames::new(blocks, BLOCK as u32) else {
            self.log.unpin(reading.pin);
            return self.done.push_back(job.finish(Err(Fault(libc::ENOMEM))));
        };
        let frames = memory.take((range.end - range.start) as usize).expect("as many as were made");
        let read = self.reads.insert(Mixed { job, memory, frames, left: 1, result: Ok(()), pin: reading.pin });
        for piece in reading.pieces {
            let length = piece.range.end - piece.range.start;
            let first = ((piece.range.start - range.start) / BLOCK) as usize;
            let mixed = &mut self.reads[read];
            let frames = &mixed.frames[first..first + length.div_ceil(BLOCK) as usize];
            let (bytes, place) = match piece.source {
                // New memory is zeroed.
                Source::Zeroes => continue,
                Source::Home => (length, piece.range.start),
                Source::Log(place) => (length.next_multiple_of(BLOCK), place),
            };
            let action = Action::Read(mixed.memory.exclusive(frames, bytes as usize));
            mixed.left += 1;
            match piece.source {
                Source::Home => self.at_home(Way::Part { read }, place..place + bytes, action),
                _ => self.in_log(Way::Part { read }, place..place + bytes, action),
            }
        }
        self.part_done(read, Ok(()));
    }

    fn part_done(&mut self, read: usize, result: Result<(), Fault>) {
        let mixed = &mut self.reads[read];
        mixed.left -= 1;
        mixed.result = mixed.result.and(result);
        if mixed.left > 0 {
            return;
        }
        let Mixed { mut job, memory, frames, result, pin, .. } = self.reads.remove(read);
        self.log.unpin(pin);
        let bytes = job.bytes as usize;
        if let (Action::Read(to), Ok(())) = (&mut job.operation.action, result) {
            let from = memory.shared(&frames, bytes);
            copy(from.slices(), to.slices_mut());
        }
        self.done.push_back(job.finish(result));
    }

    fn change(&mut self, job: Job, kind: Kind) {
        if self.log.is_broken() {
            // A discard is advice.
            let result = if kind == Kind::Discard { Ok(()) } else { Err(Fault(libc::EIO)) };
            return self.done.push_back(job.finish(result));
        }
        let range = job.operation.offset..job.operation.offset + job.operation.length;
        let token = self.changes.insert(job) as u64;
        self.log.submit(token, Change { kind, range });
    }

    /// Starts a commit, if there is something to commit.
    fn commit(&mut self, now: Instant) -> bool {
        if let Some(committing) = &mut self.committing {
            if committing.retry.is_some_and(|retry| retry <= now) {
                committing.retry = None;
                self.write_commit();
                return true;
            }
            return false;
        }
        let Some(Commit { superblock, group }) = self.log.next_commit(self.now_us(now)) else { return false };
        let mut writes = Vec::new();
        if let Some((place, block)) = superblock {
            let frames = self.commit_memory.take(block.len()).expect("memory for a superblock");
            self.commit_memory.exclusive(&frames, block.len()).copy_from(&block[..]);
            writes.push((place, frames, block.len()));
        }
        if let Some(group) = group {
            let bytes = ((1 + group.data_blocks()) * BLOCK) as usize;
            let frames = self.commit_memory.take(bytes).expect("memory for a group");
            let mut to = self.commit_memory.exclusive(&frames, bytes);
            self.fill(&group, &mut to);
            let mut sum = Sum::default();
            to.slices_mut().skip(1).for_each(|slice| sum.add(slice));
            let header = self.log.header(&group, sum.value());
            to.slices_mut().take(1).for_each(|slice| slice.copy_from_slice(&header[..]));
            drop(to);
            writes.push((group.offset, frames, bytes));
        }
        self.committing = Some(Committing { writes, left: 0, result: Ok(()), tries: 0, retry: None });
        self.write_commit();
        true
    }

    /// Copies the data of a group to where it is written from, after the block of the header.
    fn fill(&self, group: &GroupPlan, to: &mut Exclusive) {
        let mut from: Vec<&[u8]> = Vec::new();
        for Part { token, skip, length, .. } in &group.parts {
            let Action::Write(shared) = &self.changes[*token as usize].operation.action else {
                unreachable!("only writes have data")
            };
            from.extend(part(shared, *skip as usize, *length as usize));
            let rest = (length.next_multiple_of(BLOCK) - length) as usize;
            from.push(&ZEROS.0[..rest]);
        }
        copy(from.into_iter(), to.slices_mut().skip(1));
    }

    fn write_commit(&mut self) {
        let Some(committing) = &mut self.committing else { return };
        committing.result = Ok(());
        committing.left = committing.writes.len();
        let memory = &self.commit_memory;
        let writes: Vec<_> = committing
            .writes
            .iter()
            .map(|(place, frames, bytes)| (*place..*place + *bytes as u64, memory.shared(frames, *bytes)))
            .collect();
        for (range, shared) in writes {
            self.common.count_log(range.end - range.start);
            self.in_log(Way::Commit, range, Action::Write(shared));
        }
    }

    fn commit_written(&mut self, now: Instant, result: Result<(), Fault>) {
        let Some(committing) = &mut self.committing else { return };
        committing.left -= 1;
        committing.result = committing.result.and(result);
        if committing.left > 0 {
            return;
        }
        match committing.result {
            Ok(()) => self.in_log(Way::CommitFlush, 0..0, Action::Flush),
            Err(fault) => self.commit_failed(now, fault),
        }
    }

    fn commit_flushed(&mut self, now: Instant, result: Result<(), Fault>) {
        if let Err(fault) = result {
            // Changes that the flush did not cover are written again.
            return self.commit_failed(now, fault);
        }
        self.end_commit();
        for token in self.log.committed() {
            self.finish(token, Ok(()));
        }
    }

    fn end_commit(&mut self) {
        let writes = self.committing.take().map_or(Vec::new(), |committing| committing.writes);
        writes.into_iter().for_each(|(_, frames, _)| self.commit_memory.give(frames));
    }

    fn finish(&mut self, token: u64, result: Result<(), Fault>) {
        let job = self.changes.remove(token as usize);
        self.done.push_back(job.finish(result));
    }

    fn commit_failed(&mut self, now: Instant, fault: Fault) {
        let Some(committing) = &mut self.committing else { return };
        committing.tries += 1;
        if committing.tries < TRIES {
            committing.retry = Some(now + PAUSE);
            return;
        }
        self.end_commit();
        for token in self.log.fail() {
            self.finish(token, Err(fault));
        }
        let (ranges, count, bytes) = self.log.missing(REPORTED_MAX);
        let name = &self.common.name;
        let listed: Vec<String> =
            ranges.iter().map(|range| format!("{}+{}", range.start, range.end - range.start)).collect();
        let more = if count > ranges.len() as u64 { ", ..." } else { "" };
        tracing::error!(
            disk = name,
            log = %self.common.settings.target,
            error = %fault,
            "its write log failed: it takes no more writes. {bytes} bytes in {count} ranges are not on its target and go there as far as the log \
             can be read: {}{more}",
            listed.join(", ")
        );
        self.common.fail(fault);
    }

    /// Starts what goes home; returns whether anything did.
    fn go_home(&mut self, now: Instant) -> bool {
        let now_us = self.now_us(now);
        let mut any = false;
        while let Some(op) = self.held.take().or_else(|| self.log.next_home(now_us)) {
            let range = op.range.clone();
            match &op.work {
                HomeWork::Flush => self.at_home(Way::Home { is_advice: false }, range, Action::Flush),
                HomeWork::Discard => self.at_home(Way::Home { is_advice: true }, range, Action::Discard),
                HomeWork::Zeroes { keep } => {
                    let action = Action::Zeroes { keep: *keep, fast: false };
                    self.at_home(Way::Home { is_advice: false }, range, action);
                }
                HomeWork::Copy(parts) => {
                    let Some(frames) = self.copy_memory.take((range.end - range.start) as usize) else {
                        self.held = Some(op);
                        break;
                    };
                    let mut reads = Vec::new();
                    let mut first = 0;
                    for &(place, length) in parts {
                        let blocks = length.div_ceil(BLOCK) as usize;
                        let bytes = blocks as u64 * BLOCK;
                        let exclusive = self.copy_memory.exclusive(&frames[first..first + blocks], bytes as usize);
                        reads.push((place..place + bytes, exclusive));
                        first += blocks;
                    }
                    let copy = self.copies.insert(Copy { op, frames, left: reads.len(), is_failed: false });
                    for (range, exclusive) in reads {
                        self.in_log(Way::CopyRead { copy }, range, Action::Read(exclusive));
                    }
                }
            }
            any = true;
        }
        any
    }

    fn copy_read(&mut self, now: Instant, at: usize, result: Result<(), Fault>) {
        let copy = &mut self.copies[at];
        copy.left -= 1;
        copy.is_failed |= result.is_err();
        if copy.left > 0 {
            return;
        }
        if copy.is_failed {
            return self.copy_written(now, at, Err(Fault(libc::EIO)));
        }
        let range = copy.op.range.clone();
        let shared = self.copy_memory.shared(&copy.frames, (range.end - range.start) as usize);
        self.at_home(Way::CopyWrite { copy: at }, range, Action::Write(shared));
    }

    fn copy_written(&mut self, now: Instant, at: usize, result: Result<(), Fault>) {
        let copy = self.copies.remove(at);
        self.copy_memory.give(copy.frames);
        self.home_done(now, result);
    }

    fn home_done(&mut self, now: Instant, result: Result<(), Fault>) {
        self.log.home_done(self.now_us(now), result.is_ok());
        let is_failing = self.log.statistics(0).is_failing;
        if let Err(error) = result
            && is_failing
            && !self.is_failing
        {
            let (disk, log) = (&self.common.name, &self.common.settings.target);
            tracing::warn!(disk, %log, %error, "writes in the log cannot go to the disk's target: they wait in the log");
        } else if self.is_failing && !is_failing {
            tracing::info!(disk = self.common.name, "writes in the log go to the disk's target again");
        }
        self.is_failing = is_failing;
    }

    fn complete(&mut self, now: Instant, mut completion: Completion) {
        match self.ways.remove(completion.sender as usize) {
            Way::Passed { sender } => {
                completion.sender = sender;
                self.done.push_back(completion);
            }
            Way::Direct { sender, offset, pin } => {
                self.log.unpin(pin);
                completion.sender = sender;
                completion.operation.offset = offset;
                self.done.push_back(completion);
            }
            way => {
                let (_, operation, result) = completion.settle();
                // Its frames are free before they are used again.
                drop(operation);
                match way {
                    Way::Part { read } => self.part_done(read, result),
                    Way::Commit => self.commit_written(now, result),
                    Way::CommitFlush => self.commit_flushed(now, result),
                    Way::CopyRead { copy } => self.copy_read(now, copy, result),
                    Way::CopyWrite { copy } => self.copy_written(now, copy, result),
                    Way::Home { is_advice } => self.home_done(now, if is_advice { Ok(()) } else { result }),
                    Way::Passed { .. } | Way::Direct { .. } => {}
                }
            }
        }
    }

    /// Does what can be done now.
    fn step(&mut self, now: Instant) {
        self.common.signal.clear();
        for sender in self.common.drains() {
            self.drains.push((self.log.drain(), sender));
        }
        loop {
            let mut completions = Vec::new();
            self.home.poll(now, &mut completions);
            self.device.poll(now, &mut completions);
            let mut any = !completions.is_empty();
            completions.into_iter().for_each(|completion| self.complete(now, completion));
            any |= self.commit(now);
            any |= self.go_home(now);
            for token in self.log.refused(self.now_us(now)) {
                self.finish(token, Err(Fault(libc::EIO)));
                any = true;
            }
            if !any {
                break;
            }
        }
        let log = &self.log;
        // Nobody waits for one that is gone.
        self.drains.retain(|(epoch, sender)| {
            let is_home = log.is_home(*epoch);
            if is_home {
                let _ = sender.send(());
            }
            !is_home
        });
        self.publish(now);
    }

    fn publish(&mut self, now: Instant) {
        let statistics = self.log.statistics(self.now_us(now));
        let is_listed = !self.log.is_broken() || self.listed == Some(statistics.epochs);
        let missing = (!is_listed).then(|| self.log.missing(LISTED_MAX));
        if missing.is_some() {
            self.listed = Some(statistics.epochs);
        }
        self.common.publish(&statistics, missing);
    }

    /// Whether there is nothing in the log that home does not have.
    fn is_clean(&self) -> bool {
        self.log.is_empty() || self.log.is_broken() && self.log.missing(0).1 == 0
    }
}

impl Device for Logged {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.common.clone()
    }

    fn submit(&mut self, job: Job) {
        match job.operation.action {
            Action::Read(_) => self.read(job),
            Action::Write(_) => self.change(job, Kind::Data),
            Action::Zeroes { keep, .. } => self.change(job, Kind::Zeroes { keep }),
            Action::Discard => self.change(job, Kind::Discard),
            Action::Flush if self.log.is_broken() => self.done.push_back(job.finish(Err(Fault(libc::EIO)))),
            Action::Flush => {
                self.log.flush();
                self.done.push_back(job.finish(Ok(())));
            }
        }
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.step(now);
        done.extend(self.done.drain(..));
    }

    fn deadline(&self) -> Option<Instant> {
        let of_log = self.log.deadline().map(|at_us| self.begin + Duration::from_micros(at_us));
        let retry = self.committing.as_ref().and_then(|committing| committing.retry);
        let all = [self.home.deadline(), self.device.deadline(), of_log, retry];
        all.into_iter().flatten().min()
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn is_restless(&self) -> bool {
        true
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.log.drain();
        let until = Instant::now() + ENDING;
        while !self.is_clean() && !self.is_failing && !self.log.is_broken() {
            let now = Instant::now();
            if now >= until {
                break;
            }
            self.step(now);
            let next = self.deadline().map_or(until, |deadline| deadline.min(until));
            if !self.is_clean() {
                self.common
                    .signal
                    .wait_with(self.signal().into_iter(), Some(next.saturating_duration_since(Instant::now())));
            }
        }
        let is_clean = self.is_clean();
        if let Some(marker) = self.marker.take().filter(|_| is_clean) {
            marker.remove();
        } else if !is_clean {
            let (disk, log) = (&self.common.name, &self.common.settings.target);
            tracing::info!(disk, %log, "its write log has writes that its target does not have yet");
        }
    }
}
