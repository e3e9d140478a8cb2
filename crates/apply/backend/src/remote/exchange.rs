//! Jobs as requests to an NBD server, and what becomes of them when connections are lost. No I/O.
//!
//! A *work* is a job, or something that the device itself wants from the server. It is sent as one *flight* or several, each at
//! most as long as the server allows. A flight is sent on one *link*, and the reply comes on the same.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use nigh_engine::{Action, Fault};
use nigh_nbd::client::{Asked, Coverage, Failure, Part, Unexpected};
use nigh_nbd::{Command, Errno, Framing, Header, RequestHeader, state, wire};
use slab::Slab;

use super::journal::{Change, Journal};
use super::server::Server;
use crate::device::{Completion, Extent, Job};
use crate::perform::ZEROS;

/// Flights at a time.
const FLIGHTS_MAX: usize = 256;
/// Longest part of a request without payload, in bytes.
const RANGE_MAX: u64 = 1 << 30;
/// Longest part of zeros that are written as payload, in bytes.
const ZEROS_MAX: u64 = 1 << 20;
/// Memory for what the server has not flushed, in bytes: beyond it, changes wait for a flush.
const JOURNAL_MAX: usize = 64 << 20;
/// Pause before a change is sent again that the server rejected.
const REPLAY_PAUSE: Duration = Duration::from_secs(1);

/// A query for the extents of a range. They are unknown if no answer arrives.
pub(super) struct Query {
    pub(super) range: Range<u64>,
    pub(super) answer: SyncSender<Vec<Extent>>,
}

/// The purpose of a work.
enum Task {
    Job(Box<Job>),
    Query(Query),
    /// The journal's change that begins there.
    Replay(u64),
    /// A flush that makes room in the journal.
    Flush,
    /// It was reported as failed, but the server may still be at it.
    Orphan,
}

/// Kind of a request to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Zeros, to a server that has no request for them.
    WriteZeros,
    Zeroes {
        keep: bool,
        fast: bool,
    },
    Discard,
    Flush,
    Status,
}

impl Kind {
    /// Whether the server's contents are others then.
    fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Flush | Kind::Status)
    }
}

struct Work {
    task: Task,
    kind: Kind,
    range: Range<u64>,
    /// Beginning of the next part.
    next: u64,
    /// Parts in flight.
    out: usize,
    fault: Option<Fault>,
    /// The server is shutting down and refused a part: all is sent again to the next one.
    again: bool,
    /// Bytes that the journal may grow by, once it is begun.
    counted: usize,
    /// Of a flush: what it covers.
    mark: u64,
    extents: Vec<Extent>,
    /// Works are sent in this order.
    order: u64,
}

struct Flight {
    cookie: u64,
    work: usize,
    command: u16,
    flags: u16,
    range: Range<u64>,
    link: usize,
    arrived: Coverage,
    failure: Option<Errno>,
}

/// The requests that are sent in the present phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: there is no connection.
    Down,
    /// Nothing: what is in flight ends first, then what the server may have lost is done again.
    Draining,
    /// Changes that the server may have lost.
    Replaying,
    /// Everything.
    Live,
}

/// All requests to one server.
pub(super) struct Exchange {
    server: Server,
    phase: Phase,
    works: Slab<Work>,
    flights: Slab<Flight>,
    /// Works with parts to be sent.
    waiting: VecDeque<usize>,
    /// Changes that wait for room in the journal.
    held: VecDeque<usize>,
    journal: Journal,
    /// Bytes that the journal may grow by, for changes that are in flight.
    counted: usize,
    /// Changes that are to be done again.
    replay: VecDeque<u64>,
    /// How many of them are not done.
    replaying: usize,
    /// When the next one may be sent, after a failure.
    replay_at: Option<Instant>,
    /// The last one failed.
    refuses: bool,
    /// When the next flush that makes room may be sent, after a failure.
    flush_at: Option<Instant>,
    /// A flush that makes room is under way.
    flushing: bool,
    orphans: usize,
    /// The server is shutting down: it gets nothing more.
    leaving: bool,
    /// Jobs and queries that are not done.
    pending: usize,
    made: u64,
    pub(super) done: Vec<Completion>,
}

impl Exchange {
    pub(super) fn new(server: Server) -> Exchange {
        Exchange {
            server,
            phase: Phase::Down,
            works: Slab::default(),
            flights: Slab::default(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            journal: Journal::default(),
            counted: 0,
            replay: VecDeque::new(),
            replaying: 0,
            replay_at: None,
            refuses: false,
            flush_at: None,
            flushing: false,
            orphans: 0,
            leaving: false,
            pending: 0,
            made: 0,
            done: Vec::new(),
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Whether a job or a query waits for the server.
    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether jobs are done as they come.
    pub(super) fn is_live(&self) -> bool {
        self.phase == Phase::Live && self.orphans == 0 && !self.leaving
    }

    /// Whether the server has nothing more to reply to and wants nothing more, since it is shutting down.
    pub(super) fn is_left(&self) -> bool {
        self.leaving && self.flights.is_empty()
    }

    /// How many changes would be done again on the next connection.
    pub(super) fn unflushed(&self) -> usize {
        self.journal.starts().count()
    }

    /// How many bytes the server may lose.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.journal.covered()
    }

    /// When [`Exchange::next`] has something to send that it has not now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Replaying => self.replay_at,
            Phase::Live if !self.held.is_empty() => self.flush_at,
            _ => None,
        }
    }

    /// Whether the server does not do again what it may have lost.
    pub(super) fn is_refused(&self) -> bool {
        self.phase == Phase::Replaying && self.refuses
    }

    /// Takes a job on.
    pub(super) fn submit(&mut self, job: Job) {
        let server = &self.server;
        let range = job.operation.offset..job.operation.offset + job.operation.length;
        let none = Ok(());
        let (kind, range) = match &job.operation.action {
            Action::Read(_) if job.bytes > 0 => (Kind::Read, job.range()),
            Action::Write(_) if job.bytes > 0 => (Kind::Write, job.range()),
            Action::Read(_) | Action::Write(_) => return self.done.push(job.finish(none)),
            Action::Flush if server.features.flush => (Kind::Flush, 0..0),
            Action::Discard if server.features.trim => (Kind::Discard, range),
            // There is nothing to flush, and discarding is advice.
            Action::Flush | Action::Discard => return self.done.push(job.finish(none)),
            Action::Zeroes { keep, fast } => {
                let kind = Kind::Zeroes { keep: *keep, fast: *fast };
                match (server.features.write_zeroes, fast) {
                    (true, false) => (kind, range),
                    (true, true) if server.features.fast_zero => (kind, range),
                    (false, false) => (Kind::WriteZeros, range),
                    (_, true) => return self.done.push(job.finish(Err(Fault(libc::EOPNOTSUPP)))),
                }
            }
        };
        if range.end > server.size {
            return self.done.push(job.finish(Err(Fault(libc::EIO))));
        }
        if kind.changes() && server.features.read_only {
            return self.done.push(job.finish(Err(Fault(libc::EROFS))));
        }
        self.pending += 1;
        let work = self.new_work(Task::Job(Box::new(job)), kind, range);
        self.waiting.push_back(work);
    }

    /// Takes a question on.
    pub(super) fn ask(&mut self, query: Query) {
        if self.server.allocation.is_none() {
            return;
        }
        self.pending += 1;
        let range = query.range.start..query.range.end.min(query.range.start + RANGE_MAX);
        let work = self.new_work(Task::Query(query), Kind::Status, range);
        self.waiting.push_back(work);
    }

    fn new_work(&mut self, task: Task, kind: Kind, range: Range<u64>) -> usize {
        self.made += 1;
        let (next, order) = (range.start, self.made);
        let (out, fault, again, counted, mark, extents) = (0, None, false, 0, 0, Vec::new());
        self.works.insert(Work { task, kind, range, next, out, fault, again, counted, mark, extents, order })
    }

    /// There are connections to the server, which is the same as before.
    pub(super) fn connected(&mut self, server: Server) {
        self.server = server;
        self.begin_replay();
    }

    fn begin_replay(&mut self) {
        self.replay = self.journal.starts().collect();
        self.replaying = self.replay.len();
        (self.replay_at, self.refuses) = (None, false);
        // Of what is half sent, the first half may be overwritten by what is done again.
        for at in &self.waiting {
            let work = self.works.get_mut(*at).expect("it waits");
            work.next = work.range.start;
        }
        self.phase = if self.replaying == 0 { Phase::Live } else { Phase::Replaying };
    }

    /// All connections are gone. Requests in flight are sent again on the next ones.
    pub(super) fn lost(&mut self) {
        self.phase = Phase::Down;
        self.flights.clear();
        self.replay.clear();
        (self.replaying, self.counted, self.orphans) = (0, 0, 0);
        (self.flushing, self.leaving) = (false, false);
        self.held.clear();
        let mut again = Vec::new();
        self.works.retain(|at, work| {
            let stays = matches!(work.task, Task::Job(_) | Task::Query(_));
            if stays {
                (work.next, work.out, work.counted) = (work.range.start, 0, 0);
                (work.fault, work.again) = (None, false);
                work.extents.clear();
                again.push((work.order, at));
            }
            stays
        });
        again.sort_unstable();
        self.waiting = again.into_iter().map(|(_, at)| at).collect();
    }

    /// Whether somebody waits for the work of a flight.
    pub(super) fn is_wanted(&self, flight: usize) -> bool {
        let work = self.flights.get(flight).and_then(|flight| self.works.get(flight.work));
        work.is_some_and(|work| matches!(work.task, Task::Job(_) | Task::Query(_)))
    }

    /// A flight whose first byte was not sent is not sent at all.
    pub(super) fn retract(&mut self, flight: usize) {
        if let Some(flight) = self.flights.try_remove(flight)
            && let Some(work) = self.works.get_mut(flight.work)
        {
            work.out -= 1;
        }
    }

    /// Reports that all jobs failed. Those of which something was sent may still be done by the server.
    pub(super) fn give_up(&mut self, fault: Fault) {
        let works = &self.works;
        let stays = |at: &usize| matches!(works.get(*at).map(|work| &work.task), Some(Task::Replay(_) | Task::Flush));
        self.waiting.retain(stays);
        self.held.clear();
        self.works.retain(|_, work| {
            if matches!(work.task, Task::Replay(_) | Task::Flush | Task::Orphan) {
                return true;
            }
            let task = std::mem::replace(&mut work.task, Task::Orphan);
            work.next = work.range.end;
            self.counted -= std::mem::take(&mut work.counted);
            self.pending -= 1;
            // Without an answer, those who asked know that.
            if let Task::Job(job) = task {
                self.done.push(job.finish(Err(fault)));
            }
            let is_sent = work.out > 0;
            self.orphans += usize::from(is_sent);
            is_sent
        });
    }

    /// The next flight, for the link that `choose` returns for its number.
    pub(super) fn next(&mut self, now: Instant, choose: impl Fn(usize) -> usize) -> Option<usize> {
        if self.flights.len() >= FLIGHTS_MAX || self.leaving {
            return None;
        }
        if self.phase == Phase::Draining && self.flights.is_empty() {
            self.begin_replay();
        }
        match self.phase {
            Phase::Down | Phase::Draining => return None,
            Phase::Replaying => self.queue_replay(now),
            Phase::Live if self.orphans > 0 => return None,
            Phase::Live => self.hold_changes(now),
        }
        let at = self.front()?;
        Some(self.launch(at, choose))
    }

    /// The work of which the next part is sent.
    fn front(&self) -> Option<usize> {
        let is_ready = |at: &&usize| match self.phase {
            Phase::Replaying => matches!(self.works.get(**at).map(|work| &work.task), Some(Task::Replay(_))),
            // One at a time: of two, the second could succeed because the server has forgotten what the first one failed to write.
            _ => !self.is_flush(**at) || !self.flights.iter().any(|(_, flight)| self.is_flush(flight.work)),
        };
        self.waiting.front().filter(is_ready).copied()
    }

    fn is_flush(&self, work: usize) -> bool {
        self.works.get(work).is_some_and(|work| work.kind == Kind::Flush)
    }

    /// Has the next change that is to be done again sent before everything else.
    fn queue_replay(&mut self, now: Instant) {
        if self.front().is_some() || self.replay_at.is_some_and(|at| at > now) {
            return;
        }
        self.replay_at = None;
        let Some(start) = self.replay.pop_front() else { return };
        let (range, change) = self.journal.get(start).expect("the journal does not change meanwhile");
        let kind = match change {
            Change::Data(_) => Kind::Write,
            Change::Zeroes { keep } if self.server.features.write_zeroes => Kind::Zeroes { keep: *keep, fast: false },
            Change::Zeroes { .. } => Kind::WriteZeros,
            Change::Discard => Kind::Discard,
        };
        let work = self.new_work(Task::Replay(start), kind, range);
        self.waiting.push_front(work);
    }

    /// Takes changes that the journal has no room for out of the way, and has the server make room.
    fn hold_changes(&mut self, now: Instant) {
        if !self.server.keeps_unflushed() {
            return;
        }
        while let Some(&at) = self.waiting.front() {
            let work = self.works.get(at).expect("it waits");
            let taken = self.journal.bytes() + self.counted;
            let is_new = work.kind.changes() && work.counted == 0;
            if !is_new || taken == 0 || taken + cost(work) <= JOURNAL_MAX {
                break;
            }
            self.waiting.pop_front();
            self.held.push_back(at);
        }
        let is_full = !self.held.is_empty() || self.journal.bytes() > JOURNAL_MAX / 2;
        let may_flush = !self.flushing && self.flush_at.is_none_or(|at| at <= now);
        if is_full && may_flush && !self.journal.is_empty() {
            self.flush_at = None;
            self.flushing = true;
            let work = self.new_work(Task::Flush, Kind::Flush, 0..0);
            self.waiting.push_front(work);
        }
    }

    /// Those that wait for room in the journal look again.
    fn release(&mut self) {
        while let Some(at) = self.held.pop_back() {
            self.waiting.push_front(at);
        }
    }

    /// Makes a flight of the next part of the first work that waits.
    fn launch(&mut self, at: usize, choose: impl Fn(usize) -> usize) -> usize {
        let keeps = self.server.keeps_unflushed();
        let work = self.works.get_mut(at).expect("it waits");
        if keeps && work.kind.changes() && work.counted == 0 && matches!(work.task, Task::Job(_)) {
            work.counted = cost(work);
            self.counted += work.counted;
        }
        let most = match work.kind {
            Kind::Read | Kind::Write => self.server.payload,
            Kind::WriteZeros => self.server.payload.min(ZEROS_MAX),
            _ => RANGE_MAX,
        };
        let range = work.next..work.range.end.min(work.next + most);
        work.next = range.end;
        work.out += 1;
        let fua = self.server.fua_always();
        let command = match work.kind {
            Kind::Read => Command::Read { dont_fragment: false },
            Kind::Write | Kind::WriteZeros => Command::Write { fua },
            Kind::Zeroes { keep, fast } => Command::WriteZeroes { fua, no_hole: keep, fast },
            Kind::Discard => Command::Trim { fua },
            Kind::Flush => {
                work.mark = self.journal.mark();
                Command::Flush
            }
            Kind::Status => Command::BlockStatus { one: false },
        };
        if work.next == work.range.end {
            self.waiting.pop_front();
        }
        let (command, flags) = command.to_wire(Framing::Structured);
        self.made += 1;
        let place = self.flights.vacant_entry();
        let flight = place.key();
        let (cookie, link) = (self.made << 16 | flight as u64, choose(flight));
        let (arrived, failure) = (Coverage::default(), None);
        place.insert(Flight { cookie, work: at, command, flags, range, link, arrived, failure });
        flight
    }

    /// The link that a flight is sent on.
    pub(super) fn link(&self, flight: usize) -> usize {
        self.flights.get(flight).expect("a flight").link
    }

    /// The header of a flight.
    pub(super) fn header(&self, flight: usize, framing: Framing) -> Header {
        let Flight { cookie, command, flags, range, .. } = self.flights.get(flight).expect("a flight");
        let (offset, length) = (range.start, range.end - range.start);
        let header = RequestHeader { flags: *flags, command: *command, cookie: *cookie, offset, length };
        header.encode(framing).expect("parts are shorter than 4 GiB")
    }

    /// Bytes that follow the header of a flight.
    pub(super) fn payload_bytes(&self, flight: usize) -> usize {
        let Flight { command, range, .. } = self.flights.get(flight).expect("a flight");
        if *command == wire::command::WRITE { (range.end - range.start) as usize } else { 0 }
    }

    /// Appends the payload of a flight to `out`, without its first `skip` bytes.
    pub(super) fn payload<'a>(&'a self, flight: usize, skip: usize, out: &mut Vec<IoSlice<'a>>) {
        let Flight { work, command, range, .. } = self.flights.get(flight).expect("a flight");
        if *command != wire::command::WRITE {
            return;
        }
        let work = self.works.get(*work).expect("a flight has a work");
        let begin = (range.start - work.range.start) as usize + skip;
        let length = (range.end - range.start) as usize - skip;
        match &work.task {
            _ if work.kind == Kind::WriteZeros => cut(std::iter::repeat(&ZEROS.0[..]), 0, length, out),
            Task::Job(job) => match &job.operation.action {
                Action::Write(frames) => cut(frames.slices(), begin, length, out),
                _ => unreachable!("only writes have a payload"),
            },
            Task::Replay(start) => match self.journal.get(*start) {
                Some((_, Change::Data(bytes))) => cut(std::iter::once(&bytes[..]), begin, length, out),
                _ => unreachable!("the journal does not change meanwhile"),
            },
            Task::Query(_) | Task::Flush | Task::Orphan => unreachable!("they have no payload"),
        }
    }

    /// The request on `link` with this cookie.
    pub(super) fn asked(&self, cookie: u64, link: usize) -> Option<Asked> {
        let flight = self.flights.get((cookie & 0xffff) as usize)?;
        let is_it = flight.cookie == cookie && flight.link == link;
        let Range { start, end } = flight.range;
        is_it.then_some(Asked { command: flight.command, offset: start, length: end - start })
    }

    /// A part of a reply came.
    pub(super) fn take(&mut self, part: Part<'_>, now: Instant) -> Result<(), Unexpected> {
        let of = |cookie: u64| (cookie & 0xffff) as usize;
        match part {
            Part::Data { cookie, offset, bytes } => self.fill(of(cookie), offset, bytes.len() as u64, Some(bytes)),
            Part::Zeroes { cookie, offset, length } => self.fill(of(cookie), offset, length, None),
            Part::Extents { cookie, context, extents } => {
                if Some(context) == self.server.allocation
                    && let Some(flight) = self.flights.get(of(cookie))
                    && let Some(work) = self.works.get_mut(flight.work)
                {
                    let mut at = work.range.start;
                    work.extents = extents
                        .iter()
                        .map(|extent| {
                            let begin = at;
                            at = at.saturating_add(extent.length);
                            let hole = extent.flags & (state::HOLE | state::ZERO) == state::HOLE | state::ZERO;
                            Extent { range: begin..at, hole }
                        })
                        .collect();
                }
                Ok(())
            }
            Part::Failed { cookie, failure: Failure { errno, .. } } => {
                if let Some(flight) = self.flights.get_mut(of(cookie)) {
                    flight.failure.get_or_insert(errno);
                }
                Ok(())
            }
            Part::Done { cookie } => self.land(of(cookie), now),
        }
    }

    /// `length` bytes of a read came; zeros without `bytes`.
    fn fill(&mut self, flight: usize, offset: u64, length: u64, bytes: Option<&[u8]>) -> Result<(), Unexpected> {
        let flight = self.flights.get_mut(flight).ok_or(Unexpected::Cookie)?;
        flight.arrived.add(offset, length)?;
        let work = self.works.get_mut(flight.work).ok_or(Unexpected::Cookie)?;
        let Task::Job(job) = &mut work.task else { return Ok(()) };
        let Action::Read(frames) = &mut job.operation.action else { return Err(Unexpected::Chunk) };
        let (mut skip, mut left) = ((offset - work.range.start) as usize, length as usize);
        let mut from = 0;
        for slice in frames.slices_mut() {
            let passed = skip.min(slice.len());
            skip -= passed;
            let now = (slice.len() - passed).min(left);
            let into = &mut slice[passed..passed + now];
            match bytes {
                Some(bytes) => into.copy_from_slice(&bytes[from..from + now]),
                None => into.fill(0),
            }
            from += now;
            left -= now;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The reply to a flight is complete.
    fn land(&mut self, at: usize, now: Instant) -> Result<(), Unexpected> {
        let flight = self.flights.try_remove(at).ok_or(Unexpected::Cookie)?;
        let work = self.works.get_mut(flight.work).ok_or(Unexpected::Cookie)?;
        work.out -= 1;
        match flight.failure {
            None if flight.command == wire::command::READ && !flight.arrived.is_whole(&flight.range) => {
                return Err(Unexpected::Incomplete);
            }
            None => {}
            Some(Errno::NotSup) if work.kind == Kind::Discard => {}
            Some(Errno::Shutdown) => {
                self.leaving = true;
                work.again = true;
            }
            Some(errno) => {
                work.fault.get_or_insert(Fault(i32::try_from(errno.number()).unwrap_or(libc::EIO)));
            }
        }
        let stops = (work.fault.is_some() || work.again) && work.next < work.range.end;
        if stops {
            work.next = work.range.end;
            self.waiting.retain(|waiting| *waiting != flight.work);
        }
        let work = self.works.get(flight.work).expect("it is still there");
        // Parts to be sent again wait for the next connection.
        if work.out == 0 && work.next == work.range.end && !work.again {
            self.end(flight.work, now);
        }
        Ok(())
    }

    /// All parts of a work are replied to.
    fn end(&mut self, at: usize, now: Instant) {
        let work = self.works.remove(at);
        self.counted -= work.counted;
        let result = work.fault.map_or(Ok(()), Err);
        match work.task {
            Task::Job(job) => {
                self.pending -= 1;
                match (work.kind, result) {
                    (Kind::Flush, result) => self.flushed(work.mark, result),
                    (kind, Ok(())) if kind.changes() && self.server.keeps_unflushed() => {
                        self.journal.add(work.range, change_of(&job));
                    }
                    _ => {}
                }
                self.done.push(job.finish(result));
            }
            Task::Query(query) => {
                self.pending -= 1;
                if result.is_ok() {
                    // The receiver may be gone.
                    let _ = query.answer.try_send(work.extents);
                }
            }
            Task::Flush => {
                self.flushing = false;
                self.flushed(work.mark, result);
                if let Err(fault) = result {
                    self.flush_at = Some(now + REPLAY_PAUSE);
                    self.fail_held(fault);
                }
            }
            Task::Replay(start) if result.is_err() => {
                self.replay.push_back(start);
                self.refuses = true;
                self.replay_at = Some(now + REPLAY_PAUSE);
            }
            Task::Replay(_) => {
                self.replaying -= 1;
                self.refuses = false;
                if self.replaying == 0 && self.phase == Phase::Replaying {
                    self.phase = Phase::Live;
                }
            }
            Task::Orphan => {
                self.orphans -= 1;
                if work.kind == Kind::Flush && result.is_err() {
                    self.flushed(work.mark, result);
                }
            }
        }
        if work.kind.changes() {
            self.release();
        }
    }

    /// After a flush that failed, the server may have lost what it was to flush: it is done again before anything else.
    fn flushed(&mut self, mark: u64, result: Result<(), Fault>) {
        match result {
            Ok(()) => {
                self.journal.flushed(mark);
                self.release();
            }
            Err(_) if self.phase == Phase::Live && !self.journal.is_empty() => self.phase = Phase::Draining,
            Err(_) => {}
        }
    }

    /// The changes for which the journal has no room fail, since there was to be none.
    fn fail_held(&mut self, fault: Fault) {
        for at in std::mem::take(&mut self.held) {
            if let Task::Job(job) = self.works.remove(at).task {
                self.pending -= 1;
                self.done.push(job.finish(Err(fault)));
            }
        }
    }
}

/// Bytes by which the journal may grow when `work` is done.
fn cost(work: &Work) -> usize {
    let data = if work.kind == Kind::Write { (work.range.end - work.range.start) as usize } else { 0 };
    // A change may cut another one into two.
    data + 512
}

fn change_of(job: &Job) -> Change {
    match &job.operation.action {
        Action::Write(frames) => {
            let mut bytes = Vec::with_capacity(job.bytes as usize);
            for slice in frames.slices() {
                let left = job.bytes as usize - bytes.len();
                bytes.extend_from_slice(&slice[..slice.len().min(left)]);
            }
            Change::Data(bytes)
        }
        Action::Zeroes { keep, .. } => Change::Zeroes { keep: *keep },
        Action::Discard => Change::Discard,
        Action::Read(_) | Action::Flush => unreachable!("they change nothing"),
    }
}

/// Appends the `length` bytes of `slices` that follow the first `skip` to `out`.
fn cut<'a>(slices: impl Iterator<Item = &'a [u8]>, mut skip: usize, mut length: usize, out: &mut Vec<IoSlice<'a>>) {
    for slice in slices {
        if length == 0 {
            return;
        }
        let passed = skip.min(slice.len());
        skip -= passed;
        let now = (slice.len() - passed).min(length);
        if now > 0 {
            out.push(IoSlice::new(&slice[passed..passed + now]));
            length -= now;
        }
    }
}
