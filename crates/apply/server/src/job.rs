//! A request that is not answered at once: it waits for one or more pieces, each the business of one shard.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nigh_engine::{Fault, Fill, Outcome, Shared};
use nigh_host::front::{Measure, Waiter, Work, lock};
use nigh_nbd::{Errno, Tag};
use nigh_service::front::Asked;
use nigh_trace::Op;

use crate::link::{Data, Link, Reply};

/// How the answer to a request is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A read of one piece: its frames are the reply.
    Whole,
    /// A read whose pieces are sent as they come, a chunk each.
    Chunks,
    /// A read whose pieces are collected in memory, since the reply has to be in one part.
    Collected,
    /// A request without data in its reply.
    Plain,
}

/// A request in progress.
pub(crate) struct Job {
    link: Arc<Link>,
    kind: Kind,
    tag: Tag,
    measure: Measure,
    asked: Asked,
    /// Whether the request had to wait for anything.
    waited: AtomicBool,
    state: Mutex<State>,
    /// The frames of a write have come, or pieces have ended.
    filled: Condvar,
}

struct State {
    /// Pieces that are not over.
    left: usize,
    errno: Option<Errno>,
    /// Of a collected read.
    buffer: Vec<u8>,
    /// Frames for the piece of a write that the connection's thread waits for.
    fill: Option<Fill>,
    /// The connection's thread waits until no more pieces than these are left.
    awaited: Option<usize>,
    /// The token of the piece whose frames the connection's thread does not wait for any more.
    deserted: Option<usize>,
    /// Pieces of a write that failed, by where they begin.
    failed: Vec<u64>,
}

/// State of the frames of a write's piece.
pub(crate) enum Frames {
    /// They are to be filled.
    Here(Fill),
    /// It failed.
    Failed,
    /// They have not come yet.
    Awaited,
}

/// The error that a client gets for a fault of a device.
fn errno(fault: Fault, kind: Measure) -> Errno {
    if fault == Fault::SHUT_DOWN {
        return Errno::Shutdown;
    }
    match Errno::from(std::io::Error::from_raw_os_error(fault.0).kind()) {
        // Only in reply to zeroes that were to be fast.
        Errno::NotSup if kind != Measure::Write => Errno::Io,
        errno => errno,
    }
}

impl Waiter for Job {
    fn deliver(self: Arc<Self>, shard: u32, range: Range<u64>, outcome: Outcome, work: &mut Work) {
        let result = match outcome {
            Outcome::Fill(fill) => {
                let mut state = lock(&self.state);
                return match state.deserted {
                    Some(token) => {
                        drop(state);
                        self.link.abort(shard, token, fill, work);
                    }
                    None => {
                        state.fill = Some(fill);
                        self.filled.notify_one();
                    }
                };
            }
            Outcome::Data(data) => Ok(Some(data)),
            Outcome::Done => Ok(None),
            Outcome::Failed(fault) => {
                if self.asked.op == Op::Write {
                    lock(&self.state).failed.push(range.start);
                    self.filled.notify_one();
                }
                Err(errno(fault, self.measure))
            }
        };
        self.end_piece(shard, range, result, work);
    }
}

impl Job {
    /// A request of `pieces` pieces.
    pub(crate) fn new(link: &Arc<Link>, kind: Kind, tag: Tag, measure: Measure, asked: Asked, pieces: usize) -> Job {
        let state = State {
            left: pieces,
            errno: None,
            buffer: Vec::new(),
            fill: None,
            awaited: None,
            deserted: None,
            failed: Vec::new(),
        };
        Job {
            link: link.clone(),
            kind,
            tag,
            measure,
            asked,
            waited: AtomicBool::new(false),
            state: Mutex::new(state),
            filled: Condvar::new(),
        }
    }

    /// A read of `length` bytes that are collected, in memory that was taken from `Cache::heap`.
    pub(crate) fn collected(link: &Arc<Link>, tag: Tag, asked: Asked, pieces: usize, length: usize) -> Job {
        let job = Job::new(link, Kind::Collected, tag, Measure::Hit, asked, pieces);
        // Each byte is written before any is sent.
        lock(&job.state).buffer = link.buffer(length);
        job
    }

    /// Its client left: the memory of a collected read is not needed, whenever the device responds.
    pub(crate) fn give_back(&self) {
        let buffer = std::mem::take(&mut lock(&self.state).buffer);
        self.link.free(buffer);
    }

    /// One of the pieces becomes two.
    pub(crate) fn divide_piece(&self) {
        lock(&self.state).left += 1;
    }

    /// A piece does not get its reply at once.
    pub(crate) fn wait(&self) {
        self.waited.store(true, Ordering::Relaxed);
    }

    fn end_piece(&self, shard: u32, range: Range<u64>, result: Result<Option<Shared>, Errno>, work: &mut Work) {
        let (data, failure) = match result {
            Ok(data) => (data, None),
            Err(errno) => (None, Some(errno)),
        };
        let mut state = lock(&self.state);
        state.left -= 1;
        if state.awaited.is_some_and(|most| state.left <= most) {
            self.filled.notify_one();
        }
        state.errno = state.errno.or(failure);
        let last = state.left == 0;
        let framing = self.link.framing;
        let mut reply = Reply {
            measure: last.then(|| (self.measured(), self.link.ready(self.asked))),
            ends: last,
            ..Reply::default()
        };
        if matches!(self.kind, Kind::Whole | Kind::Chunks) {
            reply.bytes = (range.end - range.start) as usize;
        }
        match (self.kind, data) {
            (Kind::Whole, Some(data)) => {
                reply.head = Some(framing.data(self.tag, data.len() as u32));
                reply.data = Data::Frames(shard, data);
            }
            (Kind::Chunks, Some(data)) => {
                let chunks = framing.chunks().expect("chunks were agreed");
                reply.head = Some(chunks.data(self.tag, range.start, data.len() as u32, last));
                reply.data = Data::Frames(shard, data);
            }
            (Kind::Collected, Some(data)) => {
                let at = (range.start - self.tag.offset) as usize;
                // Otherwise it was given back.
                if let Some(part) = state.buffer.get_mut(at..at + data.len()) {
                    data.copy_to(part);
                }
                work.release(shard, data);
            }
            (Kind::Chunks, None) => {
                let chunks = framing.chunks().expect("chunks were agreed");
                let failure = failure.expect("a read has data or fails");
                reply.head = Some(chunks.error_at(self.tag, failure, range.start, last));
            }
            _ => {}
        }
        if last && reply.head.is_none() {
            let buffer = std::mem::take(&mut state.buffer);
            reply.bytes += buffer.len();
            match state.errno {
                Some(errno) => {
                    reply.head = Some(framing.error(self.tag, errno));
                    self.link.free(buffer);
                }
                None if self.kind == Kind::Collected => {
                    reply.head = Some(framing.data(self.tag, buffer.len() as u32));
                    reply.data = Data::Heap(buffer);
                }
                None => reply.head = Some(framing.success(self.tag)),
            }
        }
        if reply.head.is_some() {
            // With the lock held, so that the last chunk is behind the others.
            self.link.push(reply);
            work.flush(&self.link);
        }
    }

    fn measured(&self) -> Measure {
        match self.measure {
            Measure::Hit if self.waited.load(Ordering::Relaxed) => Measure::Miss,
            measure => measure,
        }
    }

    /// A piece failed before an engine took it.
    pub(crate) fn refuse(&self, range: Range<u64>, errno: Errno, work: &mut Work) {
        self.end_piece(0, range, Err(errno), work);
    }

    /// Waits until at most this many pieces are left, but no longer than `timeout`; returns whether they are.
    pub(crate) fn wait_until_left(&self, most: usize, timeout: Duration) -> bool {
        let mut state = lock(&self.state);
        state.awaited = Some(most);
        let more = |state: &mut State| state.left > most;
        let waited = self.filled.wait_timeout_while(state, timeout, more);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.awaited = None;
        state.left <= most
    }

    /// The whole payload of a write was received or passed over.
    pub(crate) fn received(&self, work: &mut Work) {
        self.end_piece(0, 0..0, Ok(None), work);
    }

    /// This many pieces, at least one, are not submitted.
    pub(crate) fn give_up(&self, pieces: usize, work: &mut Work) {
        lock(&self.state).left -= pieces - 1;
        self.refuse(0..0, Errno::Shutdown, work);
    }

    /// Waits for the frames of the piece of a write that was submitted last and begins at `start`, for up to `timeout`.
    pub(crate) fn wait_for_frames(&self, start: u64, timeout: Duration) -> Frames {
        let awaited = |state: &mut State| state.fill.is_none() && !state.failed.contains(&start);
        let waited = self.filled.wait_timeout_while(lock(&self.state), timeout, awaited);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.fill.take() {
            Some(fill) => Frames::Here(fill),
            None if state.failed.contains(&start) => Frames::Failed,
            None => Frames::Awaited,
        }
    }

    /// Nobody waits for the frames of the piece of a write that was submitted last, with this token: they go back to the
    /// engine when they come. Returns them if they are here.
    pub(crate) fn desert(&self, token: usize) -> Option<Fill> {
        let mut state = lock(&self.state);
        state.deserted = Some(token);
        state.fill.take()
    }
}
