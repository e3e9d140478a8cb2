//! A session: a program's use of a disk. Its requests wait for their completion, and may come from any thread.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nigh_engine::{Op, Outcome, Refusal, Shared};
use nigh_policy::Stream;
use nigh_prefetch::Prefetcher;

use crate::cache::{Cache, Submission, pieces};
use crate::call::{self, Call};
use crate::client::Client;
use crate::disk::{Disk, Measure};
use crate::error::{HostError, SubmitError};
use crate::mailbox::{Letter, Mailbox};
use crate::readahead::Ahead;
use crate::settings::{PIECE, STEP};
use crate::sync::lock;
use crate::work::{Submitted, Waiter, Work};

/// Pieces of a request that are in progress at a time.
const PIECES_MOST: usize = 8;

/// A program's use of a disk, from any thread. Read-ahead depends only on the reads of the session. Clones are the same session.
///
/// Requests of one session that overlap in time may be executed in any order.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// The state that the clones of a session share.
pub(crate) struct Inner {
    pub(crate) cache: Arc<Cache>,
    pub(crate) client: Client,
    ahead: Mutex<Ahead>,
}

/// The bytes of a request.
pub(crate) enum Bytes<'a> {
    None,
    Into(&'a mut [u8]),
    From(&'a [u8]),
    /// Those of its only piece stay in the cache, in the frames of this shard.
    Pin(&'a mut Option<(u32, Shared)>),
}

impl Inner {
    /// Calls `read` with the session's prefetcher; without one if read-ahead is off.
    #[inline]
    pub(crate) fn with_prefetcher<R>(&self, read: impl FnOnce(Option<&mut Prefetcher>) -> R) -> R {
        let setting = self.cache.readahead();
        if setting.is_on() { read(lock(&self.ahead).prefetcher(setting)) } else { read(None) }
    }
}

impl Session {
    pub(crate) fn new(cache: &Arc<Cache>, disk: &Arc<Disk>, stream: Stream) -> Session {
        let client = cache.client(disk, stream);
        let ahead = Mutex::new(Ahead::new(cache.readahead()));
        Session { inner: Arc::new(Inner { cache: cache.clone(), client, ahead }) }
    }

    /// The disk.
    pub fn disk(&self) -> &Disk {
        &self.inner.client.disk
    }

    /// Read-ahead goes no further than the byte at `end` from now on: the end of the file that the session reads, where a disk has several.
    pub fn limit_readahead(&self, end: u64) {
        self.inner.client.limit_readahead(end);
    }

    /// Reads from `offset` until `into` is full.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        let range = self.range(offset, into.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.take_turn(into.len() as u64)?;
        self.perform(Op::Read, pieces(range, PIECE), false, Measure::Hit, Bytes::Into(into))
    }

    /// Writes `from` at `offset`; with `durable`, to stable storage.
    pub fn write(&self, offset: u64, from: &[u8], durable: bool) -> Result<(), HostError> {
        let range = self.writable(offset, from.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.take_turn(from.len() as u64)?;
        self.perform(Op::Write, pieces(range, PIECE), durable, Measure::Write, Bytes::From(from))
    }

    /// Makes everything that was written before stable.
    pub fn flush(&self) -> Result<(), HostError> {
        self.range(0, 0)?;
        self.take_turn(0)?;
        let since = Instant::now();
        let written = loop {
            match self.inner.cache.write_back(&self.inner.client.disk) {
                Ok(written) => break written,
                Err(_) if self.inner.client.disk.wait_for_opening() => {}
                Err(_) => return Err(HostError::Closed),
            }
        };
        self.inner.client.disk.measure(Measure::Flush, since.elapsed());
        written
    }

    /// The contents of `range` are no longer needed.
    pub fn trim(&self, range: Range<u64>) -> Result<(), HostError> {
        self.alter(Op::Trim, range)
    }

    /// Makes `range` read as zeros.
    pub fn zero(&self, range: Range<u64>) -> Result<(), HostError> {
        self.alter(Op::Zeroes { keep: false, fast: false }, range)
    }

    fn alter(&self, op: Op, range: Range<u64>) -> Result<(), HostError> {
        let range = self.writable(range.start, range.end.saturating_sub(range.start) as usize)?;
        if range.is_empty() {
            return Ok(());
        }
        for step in pieces(range.clone(), STEP) {
            // The device may have to write zeroes.
            self.take_turn(if op == Op::Trim { 0 } else { step.end - step.start })?;
        }
        self.perform(op, self.inner.cache.extents(range), false, Measure::Write, Bytes::None)
    }

    /// `range` will be read soon. Returns at once.
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), HostError> {
        let range = self.range(range.start, range.end.saturating_sub(range.start) as usize)?;
        let mut work = Work::default();
        self.inner.cache.prefetch(&self.inner.client, range, &mut work);
        self.inner.cache.dispatch(&mut work, None);
        Ok(())
    }

    /// Reads `range`, and calls `done` with its bytes: on this thread before it returns if all were in the cache,
    /// otherwise on a thread of the host. `done` must not wait for anything; it may submit again.
    pub fn read_then(&self, range: Range<u64>, done: impl FnOnce(Result<Vec<u8>, HostError>) + Send + 'static) {
        let length = range.end.saturating_sub(range.start) as usize;
        let range = match self.range(range.start, length) {
            Ok(range) if range.is_empty() => return done(Ok(Vec::new())),
            Ok(range) => range,
            Err(error) => return done(Err(error)),
        };
        let pieces = pieces(range, PIECE);
        let done = |ended: Result<call::Bytes, HostError>| done(ended.map(call::Bytes::own));
        self.start(Op::Read, pieces, false, Measure::Hit, call::Bytes::Own(vec![0; length]), Box::new(done));
    }

    /// Writes `bytes` at `offset`, and calls `done` with them, as [`read_then`](Session::read_then) does.
    pub fn write_then(
        &self,
        offset: u64,
        bytes: Vec<u8>,
        durable: bool,
        done: impl FnOnce(Result<Vec<u8>, HostError>) + Send + 'static,
    ) {
        let range = match self.writable(offset, bytes.len()) {
            Ok(range) if range.is_empty() => return done(Ok(bytes)),
            Ok(range) => range,
            Err(error) => return done(Err(error)),
        };
        let done = |ended: Result<call::Bytes, HostError>| done(ended.map(call::Bytes::own));
        self.start(Op::Write, pieces(range, PIECE), durable, Measure::Write, call::Bytes::Own(bytes), Box::new(done));
    }

    /// Makes everything that was written before stable, and calls `done`, as [`read_then`](Session::read_then) does,
    /// with no bytes.
    pub fn flush_then(&self, done: impl FnOnce(Result<Vec<u8>, HostError>) + Send + 'static) {
        if let Err(error) = self.range(0, 0) {
            return done(Err(error));
        }
        let shards = (0..self.inner.cache.shards()).map(|_| 0..0);
        let done = |ended: Result<call::Bytes, HostError>| done(ended.map(call::Bytes::own));
        self.start(Op::Flush, shards, false, Measure::Flush, call::Bytes::Own(Vec::new()), Box::new(done));
    }

    pub(crate) fn range(&self, offset: u64, length: usize) -> Result<Range<u64>, HostError> {
        if self.inner.cache.is_forked() {
            return Err(HostError::Forked);
        }
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.inner.client.disk.size());
        end.map(|end| offset..end).ok_or(HostError::OutOfRange)
    }

    pub(crate) fn writable(&self, offset: u64, length: usize) -> Result<Range<u64>, HostError> {
        if self.inner.client.disk.read_only() {
            return Err(HostError::ReadOnly);
        }
        self.range(offset, length)
    }

    /// Waits until the request is within the disk's rates.
    pub(crate) fn take_turn(&self, bytes: u64) -> Result<(), HostError> {
        if call::is_running() {
            return Err(HostError::InCallback);
        }
        if self.inner.client.disk.is_throttled() {
            self.inner.client.disk.park_for_turn(bytes);
        }
        Ok(())
    }

    /// Submits once. A flush goes to the shard of its number.
    fn submit(
        &self,
        op: Op,
        flushed: u32,
        range: &Range<u64>,
        fua: bool,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let submission = Submission { op, range: range.clone(), fua };
        match op {
            Op::Flush => self.inner.cache.flush(flushed, &self.inner.client.disk, work, waiter),
            Op::Read => self.inner.with_prefetcher(|prefetcher| match prefetcher {
                Some(prefetcher) => {
                    self.inner.cache.read_ahead(&self.inner.client, submission, prefetcher, work, waiter)
                }
                None => self.inner.cache.submit(&self.inner.client, submission, work, waiter),
            }),
            _ => self.inner.cache.submit(&self.inner.client, submission, work, waiter),
        }
    }

    /// Decides what follows a piece that was not accepted: `Ok` to try again.
    fn retry(&self, error: SubmitError, shard: Option<u32>, start: u64, work: &mut Work) -> Result<(), HostError> {
        let refusal = match error {
            SubmitError::Poisoned(poisoned) => return Err(poisoned.into()),
            SubmitError::Refused(refusal) => refusal,
        };
        self.inner.cache.dispatch(work, None);
        match refusal {
            // The disk has become shorter.
            Refusal::OutOfRange => Err(HostError::OutOfRange),
            _ if call::is_running() => Err(HostError::InCallback),
            Refusal::Busy => {
                match shard {
                    Some(shard) => self.inner.cache.wait_for_room_in(shard),
                    None => self.inner.cache.wait_for_room(&self.inner.client.disk, start),
                }
                Ok(())
            }
            Refusal::NoVolume if self.inner.client.disk.wait_for_opening() => Ok(()),
            Refusal::NoVolume => Err(HostError::Closed),
            Refusal::TooLong => unreachable!("pieces are short"),
        }
    }

    /// Submits `pieces` and waits for the end of all.
    pub(crate) fn perform(
        &self,
        op: Op,
        pieces: impl Iterator<Item = Range<u64>>,
        fua: bool,
        measure: Measure,
        mut bytes: Bytes<'_>,
    ) -> Result<(), HostError> {
        let since = Instant::now();
        let mailbox = OnceCell::<Arc<Mailbox>>::new();
        let (mut work, mut left, mut result) = (Work::default(), 0, Ok(()));
        let mut origin = None;
        let mut waited = false;
        let mut take = |letter: Letter, origin: u64, work: &mut Work, result: &mut Result<(), HostError>| {
            let Letter { shard, range, outcome } = letter;
            let part = (range.start - origin) as usize..(range.end - origin) as usize;
            match (outcome, &mut bytes) {
                (Outcome::Fill(mut fill), Bytes::From(from)) => {
                    fill.frames.copy_from(&from[part]);
                    self.inner.cache.commit(shard, fill, work);
                    return false;
                }
                (Outcome::Data(data), Bytes::Into(into)) => {
                    data.copy_to(&mut into[part]);
                    work.release(shard, data);
                }
                (Outcome::Data(data), Bytes::Pin(pinned)) => **pinned = Some((shard, data)),
                (Outcome::Failed(fault), _) => {
                    *result = result.clone().and(Err(self.inner.cache.failure(shard, fault)))
                }
                _ => {}
            }
            true
        };
        'pieces: for piece in pieces {
            let origin = *origin.get_or_insert(piece.start);
            let letter = loop {
                let waiter = || mailbox.get_or_init(Arc::default).clone() as Arc<dyn Waiter>;
                match self.submit(op, 0, &piece, fua, &mut work, waiter) {
                    Ok(Submitted { shard, outcome, .. }) => {
                        break outcome.map(|outcome| Letter { shard, range: piece, outcome });
                    }
                    // Replies that have arrived hold frames.
                    Err(SubmitError::Refused(Refusal::Busy)) if left > 0 => {
                        self.inner.cache.dispatch(&mut work, None);
                        let letter = mailbox.get().expect("it waits for pieces").wait();
                        left -= usize::from(take(letter, origin, &mut work, &mut result));
                    }
                    Err(error) => {
                        if let Err(error) = self.retry(error, None, piece.start, &mut work) {
                            result = result.and(Err(error));
                            break 'pieces;
                        }
                    }
                }
            };
            left += 1;
            match letter {
                Some(letter) => left -= usize::from(take(letter, origin, &mut work, &mut result)),
                None => waited = true,
            }
            while left >= PIECES_MOST {
                self.inner.cache.dispatch(&mut work, None);
                let letter = mailbox.get().expect("it waits for pieces").wait();
                left -= usize::from(take(letter, origin, &mut work, &mut result));
            }
        }
        while left > 0 {
            self.inner.cache.dispatch(&mut work, None);
            let letter = mailbox.get().expect("it waits for pieces").wait();
            left -= usize::from(take(letter, origin.expect("there were pieces"), &mut work, &mut result));
        }
        self.inner.cache.dispatch(&mut work, None);
        let measure = if waited && measure == Measure::Hit { Measure::Miss } else { measure };
        self.inner.client.disk.measure(measure, since.elapsed());
        result
    }

    /// Submits `pieces`; when all are complete, `done` is called.
    pub(crate) fn start(
        &self,
        op: Op,
        pieces: impl ExactSizeIterator<Item = Range<u64>> + Clone,
        fua: bool,
        measure: Measure,
        bytes: call::Bytes,
        done: call::Done,
    ) {
        if self.inner.client.disk.is_throttled() {
            let moved = if op == Op::Flush { 0 } else { pieces.clone().map(|piece| piece.end - piece.start).sum() };
            if let Err(error) = self.take_turn(moved) {
                return done(Err(error));
            }
        }
        let origin = pieces.clone().next().map_or(0, |piece| piece.start);
        let call = Call::new(&self.inner.cache, &self.inner.client.disk, pieces.len(), origin, measure, bytes, done);
        let mut work = Work::default();
        for (at, piece) in pieces.enumerate() {
            let shard = (op == Op::Flush).then_some(at as u32);
            let submitted = loop {
                let waiter = || call.waiter();
                match self.submit(op, at as u32, &piece, fua, &mut work, waiter) {
                    Ok(submitted) => break Ok(submitted),
                    Err(error) => {
                        if let Err(error) = self.retry(error, shard, piece.start, &mut work) {
                            break Err(error);
                        }
                    }
                }
            };
            match submitted {
                Ok(Submitted { shard, outcome: Some(outcome), .. }) => {
                    call.clone().deliver(shard, piece, outcome, &mut work);
                }
                Ok(_) => {}
                Err(error) => call.end_piece(Some(error), &mut work),
            }
        }
        call.end_submission(&mut work);
        self.inner.cache.dispatch(&mut work, None);
    }
}
