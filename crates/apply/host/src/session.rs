//! A session: a program's use of a disk. Its requests wait for their completion, and may come from any thread.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nigh_engine::{Op, Outcome, Refusal};
use nigh_policy::Stream;

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

/// A program's use of a disk, from any thread. Read-ahead depends only on the reads of the session.
///
/// Requests of one session that overlap in time may be executed in any order.
pub struct Session {
    cache: Arc<Cache>,
    client: Client,
    ahead: Mutex<Ahead>,
}

/// The bytes of a request.
enum Bytes<'a> {
    None,
    Into(&'a mut [u8]),
    From(&'a [u8]),
}

impl Session {
    pub(crate) fn new(cache: &Arc<Cache>, disk: &Arc<Disk>, stream: Stream) -> Session {
        let client = cache.client(disk, stream);
        Session { cache: cache.clone(), client, ahead: Mutex::new(Ahead::new(cache.readahead())) }
    }

    /// The disk.
    pub fn disk(&self) -> &Disk {
        &self.client.disk
    }

    /// Reads from `offset` until `into` is full.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        let range = self.range(offset, into.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.take_turn(into.len())?;
        self.perform(Op::Read, pieces(range, PIECE), false, Measure::Hit, Bytes::Into(into))
    }

    /// Writes `from` at `offset`; with `durable`, to stable storage.
    pub fn write(&self, offset: u64, from: &[u8], durable: bool) -> Result<(), HostError> {
        let range = self.writable(offset, from.len())?;
        if range.is_empty() {
            return Ok(());
        }
        self.take_turn(from.len())?;
        self.perform(Op::Write, pieces(range, PIECE), durable, Measure::Write, Bytes::From(from))
    }

    /// Makes everything that was written before stable.
    pub fn flush(&self) -> Result<(), HostError> {
        self.take_turn(0)?;
        let since = Instant::now();
        let written = loop {
            match self.cache.write_back(&self.client.disk) {
                Ok(written) => break written,
                Err(_) if self.client.disk.wait_for_opening() => {}
                Err(_) => return Err(HostError::Closed),
            }
        };
        self.client.disk.measure(Measure::Flush, since.elapsed());
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
            self.take_turn(if op == Op::Trim { 0 } else { (step.end - step.start) as usize })?;
        }
        self.perform(op, self.cache.extents(range), false, Measure::Write, Bytes::None)
    }

    /// `range` will be read soon. Returns at once.
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), HostError> {
        let range = self.range(range.start, range.end.saturating_sub(range.start) as usize)?;
        let mut work = Work::default();
        self.cache.prefetch(&self.client, range, &mut work);
        self.cache.dispatch(&mut work, None);
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
        self.start(Op::Read, pieces, false, Measure::Hit, vec![0; length], Box::new(done));
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
        self.start(Op::Write, pieces(range, PIECE), durable, Measure::Write, bytes, Box::new(done));
    }

    /// Makes everything that was written before stable, and calls `done`, as [`read_then`](Session::read_then) does,
    /// with no bytes.
    pub fn flush_then(&self, done: impl FnOnce(Result<Vec<u8>, HostError>) + Send + 'static) {
        let shards = (0..self.cache.shards()).map(|_| 0..0);
        self.start(Op::Flush, shards, false, Measure::Flush, Vec::new(), Box::new(done));
    }

    fn range(&self, offset: u64, length: usize) -> Result<Range<u64>, HostError> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.client.disk.size());
        end.map(|end| offset..end).ok_or(HostError::OutOfRange)
    }

    fn writable(&self, offset: u64, length: usize) -> Result<Range<u64>, HostError> {
        if self.client.disk.read_only() {
            return Err(HostError::ReadOnly);
        }
        self.range(offset, length)
    }

    /// Waits until the request is within the disk's rates.
    fn take_turn(&self, bytes: usize) -> Result<(), HostError> {
        if call::is_running() {
            return Err(HostError::InCallback);
        }
        if self.client.disk.is_throttled() {
            self.client.disk.park_for_turn(bytes as u64);
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
            Op::Flush => self.cache.flush(flushed, &self.client.disk, work, waiter),
            Op::Read if self.cache.readahead().is_on() => {
                let mut ahead = lock(&self.ahead);
                match ahead.prefetcher(self.cache.readahead()) {
                    Some(prefetcher) => self.cache.read_ahead(&self.client, submission, prefetcher, work, waiter),
                    None => self.cache.submit(&self.client, submission, work, waiter),
                }
            }
            _ => self.cache.submit(&self.client, submission, work, waiter),
        }
    }

    /// Decides what follows a piece that was not accepted: `Ok` to try again.
    fn retry(&self, error: SubmitError, shard: Option<u32>, start: u64, work: &mut Work) -> Result<(), HostError> {
        let refusal = match error {
            SubmitError::Poisoned(poisoned) => return Err(poisoned.into()),
            SubmitError::Refused(refusal) => refusal,
        };
        self.cache.dispatch(work, None);
        match refusal {
            // The disk has become shorter.
            Refusal::OutOfRange => Err(HostError::OutOfRange),
            _ if call::is_running() => Err(HostError::InCallback),
            Refusal::Busy => {
                match shard {
                    Some(shard) => self.cache.wait_for_room_in(shard),
                    None => self.cache.wait_for_room(&self.client.disk, start),
                }
                Ok(())
            }
            Refusal::NoVolume if self.client.disk.wait_for_opening() => Ok(()),
            Refusal::NoVolume => Err(HostError::Closed),
            Refusal::TooLong => unreachable!("pieces are short"),
        }
    }

    /// Submits `pieces` and waits for the end of all.
    fn perform(
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
                    self.cache.commit(shard, fill, work);
                    return false;
                }
                (Outcome::Data(data), Bytes::Into(into)) => {
                    data.copy_to(&mut into[part]);
                    work.release(shard, data);
                }
                (Outcome::Failed(fault), _) => *result = result.clone().and(Err(self.cache.failure(shard, fault))),
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
                        self.cache.dispatch(&mut work, None);
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
                self.cache.dispatch(&mut work, None);
                let letter = mailbox.get().expect("it waits for pieces").wait();
                left -= usize::from(take(letter, origin, &mut work, &mut result));
            }
        }
        while left > 0 {
            self.cache.dispatch(&mut work, None);
            let letter = mailbox.get().expect("it waits for pieces").wait();
            left -= usize::from(take(letter, origin.expect("there were pieces"), &mut work, &mut result));
        }
        self.cache.dispatch(&mut work, None);
        let measure = if waited && measure == Measure::Hit { Measure::Miss } else { measure };
        self.client.disk.measure(measure, since.elapsed());
        result
    }

    /// Submits `pieces`; when all are complete, `done` is called.
    fn start(
        &self,
        op: Op,
        pieces: impl ExactSizeIterator<Item = Range<u64>> + Clone,
        fua: bool,
        measure: Measure,
        bytes: Vec<u8>,
        done: call::Done,
    ) {
        if self.client.disk.is_throttled() {
            let moved = matches!(op, Op::Read | Op::Write);
            if let Err(error) = self.take_turn(if moved { bytes.len() } else { 0 }) {
                return done(Err(error));
            }
        }
        let origin = pieces.clone().next().map_or(0, |piece| piece.start);
        let call = Call::new(&self.cache, &self.client.disk, pieces.len(), origin, measure, bytes, done);
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
        self.cache.dispatch(&mut work, None);
    }
}
