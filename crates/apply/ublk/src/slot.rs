//! A request in progress: there is a slot for each tag of a queue, so a request allocates nothing.
//!
//! 1. The queue's thread begins a slot with a request.
//! 2. Each piece of it ends once: on that thread, or on another one, where the slot is the waiter. Its data is copied between the request
//!    and the cache's frames by one call for the character device, which does not wait.
//! 3. After the last piece, the queue's thread commits the result.
//!
//! The kernel can end a request that the server has: if the device was stopped. Then its data cannot be copied, and the frames of a write go back as
//! they are: its piece is aborted by the queue's thread, which knows its token.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nigh_engine::{Fault, Fill, Outcome, Shared};
use nigh_host::BLOCK;
use nigh_host::front::{Cache, Measure, PIECE, Waiter, Work, lock};
use nigh_service::front::{Asked, Mail};
use rustix::io::{Errno, preadv, pwritev};

use crate::kernel::place;

/// Frames of a piece at most: it may begin and end within one.
const SLICES: usize = (PIECE / BLOCK) as usize + 1;

/// Something for the thread of a queue.
pub(crate) enum Over {
    /// The request of a tag ended.
    Request(Ended),
    /// The data of a piece of a write, which begins here, cannot be copied: its frames in `shard`.
    Deserted { tag: u16, start: u64, shard: u32, fill: Fill },
}

/// A request that ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) tag: u16,
    /// Bytes of its data, or a negative error.
    pub(crate) result: i32,
    /// The counter of its latency, and its range; none if it failed before anything was asked.
    pub(crate) measure: Option<(Measure, Asked)>,
}

/// A request in progress.
pub(crate) struct Slot {
    tag: u16,
    /// The place of its data in the character device.
    place: u64,
    device: Arc<File>,
    cache: Arc<Cache>,
    mail: Arc<Mail<Over>>,
    /// Whether it had to wait for anything.
    waited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The first byte of the disk.
    start: u64,
    /// Pieces that are not over.
    left: usize,
    /// Bytes of its data; 0 if it has none.
    bytes: i32,
    error: Option<Errno>,
    measure: Option<(Measure, Asked)>,
    /// The tokens of a write's pieces, by where they begin.
    tokens: Vec<(u64, usize)>,
}

/// The error that the kernel's users get for a fault of a device.
fn errno(fault: Fault) -> Errno {
    match Errno::from_raw_os_error(fault.0) {
        Errno::NOSPC | Errno::DQUOT => Errno::NOSPC,
        Errno::OPNOTSUPP => Errno::OPNOTSUPP,
        Errno::TIMEDOUT => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}

impl Waiter for Slot {
    fn deliver(self: Arc<Self>, shard: u32, range: Range<u64>, outcome: Outcome, work: &mut Work) {
        if let Some(over) = self.take(shard, &range, outcome, work) {
            self.mail.push(over);
            work.flush(&self.mail);
        }
    }
}

impl Slot {
    pub(crate) fn new(queue: u16, tag: u16, device: &Arc<File>, cache: &Arc<Cache>, mail: &Arc<Mail<Over>>) -> Slot {
        let tokens = Vec::with_capacity(4);
        let state = State { start: 0, left: 0, bytes: 0, error: None, measure: None, tokens };
        Slot {
            tag,
            place: place(queue, tag),
            device: device.clone(),
            cache: cache.clone(),
            mail: mail.clone(),
            waited: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Begins a request of `pieces` pieces for the disk from `start`, with `bytes` bytes of data.
    pub(crate) fn begin(&self, start: u64, bytes: u64, pieces: usize, measure: Option<(Measure, Asked)>) {
        let mut state = lock(&self.state);
        debug_assert_eq!(state.left, 0, "tag {} is in progress", self.tag);
        self.waited.store(false, Ordering::Relaxed);
        (state.start, state.left, state.error, state.measure) = (start, pieces, None, measure);
        // A request has at most as many as the driver was told.
        state.bytes = bytes as i32;
        state.tokens.clear();
    }

    /// A piece does not end at once.
    pub(crate) fn wait(&self) {
        self.waited.store(true, Ordering::Relaxed);
    }

    /// The token of the piece of a write that begins here.
    pub(crate) fn note_token(&self, start: u64, token: usize) {
        lock(&self.state).tokens.push((start, token));
    }

    /// Ends a piece, or fills its frames. Returns something for the queue's thread, if there is anything.
    pub(crate) fn take(&self, shard: u32, range: &Range<u64>, outcome: Outcome, work: &mut Work) -> Option<Over> {
        match outcome {
            Outcome::Fill(mut fill) => {
                if !self.fill(range, &mut fill) {
                    return Some(Over::Deserted { tag: self.tag, start: range.start, shard, fill });
                }
                self.cache.commit(shard, fill, work);
                None
            }
            Outcome::Data(data) => {
                let is_whole = self.give(range, &data);
                work.release(shard, data);
                self.end((!is_whole).then_some(Errno::IO))
            }
            Outcome::Done => self.end(None),
            Outcome::Failed(fault) => self.end(Some(errno(fault))),
        }
    }

    /// A piece fails before an engine has it.
    pub(crate) fn refuse(&self, error: Errno) -> Option<Over> {
        self.end(Some(error))
    }

    /// The piece of a write that begins at `start` is aborted: its data cannot be had.
    pub(crate) fn abort(&self, start: u64, shard: u32, fill: Fill, work: &mut Work) -> Option<Over> {
        let token = lock(&self.state).tokens.iter().find(|(of, _)| *of == start).map(|(_, token)| *token);
        self.cache.abort(shard, token.expect("the piece was submitted"), fill, work);
        self.end(Some(Errno::IO))
    }

    /// Offset of a piece's data in the character device.
    fn offset(&self, range: &Range<u64>) -> u64 {
        self.place + (range.start - lock(&self.state).start)
    }

    /// Copies frames to the request; returns false if that is not possible.
    fn give(&self, range: &Range<u64>, data: &Shared) -> bool {
        let mut offset = self.offset(range);
        let mut frames = data.slices();
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (mut count, mut bytes) = (0, 0);
            for (to, frame) in slices.iter_mut().zip(&mut frames) {
                *to = IoSlice::new(frame);
                (count, bytes) = (count + 1, bytes + frame.len());
            }
            if count == 0 {
                return true;
            }
            let copied = retry(|| pwritev(&*self.device, &slices[..count], offset));
            if copied != Ok(bytes) {
                return false;
            }
            offset += bytes as u64;
        }
    }

    /// Copies the request to frames; returns false if that is not possible.
    fn fill(&self, range: &Range<u64>, fill: &mut Fill) -> bool {
        let mut offset = self.offset(range);
        let mut frames = fill.frames.slices_mut();
        loop {
            let mut slices = [const { None }; SLICES];
            let (mut count, mut bytes) = (0, 0);
            for (to, frame) in slices.iter_mut().zip(&mut frames) {
                bytes += frame.len();
                *to = Some(IoSliceMut::new(frame));
                count += 1;
            }
            if count == 0 {
                return true;
            }
            let mut slices = slices.map(|slice| slice.unwrap_or_else(|| IoSliceMut::new(&mut [])));
            let copied = retry(|| preadv(&*self.device, &mut slices[..count], offset));
            if copied != Ok(bytes) {
                return false;
            }
            offset += bytes as u64;
        }
    }

    /// A piece is over.
    fn end(&self, error: Option<Errno>) -> Option<Over> {
        let mut state = lock(&self.state);
        state.error = state.error.or(error);
        state.left -= 1;
        if state.left > 0 {
            return None;
        }
        let result = match state.error {
            None => state.bytes,
            Some(error) => -error.raw_os_error(),
        };
        let mut measure = state.measure.take();
        if let Some((measure @ Measure::Hit, _)) = &mut measure
            && self.waited.load(Ordering::Relaxed)
        {
            *measure = Measure::Miss;
        }
        Some(Over::Request(Ended { tag: self.tag, result, measure }))
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
