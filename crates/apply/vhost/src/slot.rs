//! A request in progress: there is a slot for each descriptor that can be the head of a chain, so a request allocates nothing.
//!
//! 1. The queue's thread begins a slot with a request and the memory of its chain, which stays mapped for as long as the request is in progress.
//! 2. Each piece of it ends once: on that thread, or on another one, where the slot is the waiter.
//! 3. The last piece writes the status to the guest. The queue's thread then makes the chain used.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use nigh_engine::{Fill, Outcome};
use nigh_host::front::{Cache, Measure, Waiter, Work, lock};
use nigh_service::front::Asked;
use nigh_trace::Op as Recorded;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK};
use vm_memory::{Bytes, GuestAddress};

use crate::mail::{Mail, Over};
use crate::memory::Memory;
use crate::request::{Cursor, Segment};

/// Segments of a slot that stay allocated.
const SEGMENTS_KEPT: usize = 32;

/// The status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u8);

impl Status {
    pub(crate) const OK: Status = Status(VIRTIO_BLK_S_OK as u8);
    pub(crate) const FAILED: Status = Status(VIRTIO_BLK_S_IOERR as u8);
    pub(crate) const UNSUPPORTED: Status = Status(virtio_bindings::virtio_blk::VIRTIO_BLK_S_UNSUPP as u8);
}

/// A request in progress.
pub(crate) struct Slot {
    head: u16,
    cache: Arc<Cache>,
    mail: Arc<Mail>,
    /// Whether it had to wait for anything.
    waited: AtomicBool,
    state: Mutex<State>,
}

pub(crate) struct State {
    /// While a request is in progress.
    memory: Option<Arc<Memory>>,
    pub(crate) segments: Vec<Segment>,
    /// The first byte of the disk.
    start: u64,
    status_at: GuestAddress,
    /// Bytes that the guest reads, without the status.
    writable: u32,
    /// Pieces that are not over.
    left: usize,
    status: Status,
    measure: Option<(Measure, Asked)>,
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
    pub(crate) fn new(head: u16, cache: &Arc<Cache>, mail: &Arc<Mail>) -> Slot {
        let state = State {
            memory: None,
            segments: Vec::with_capacity(SEGMENTS_KEPT),
            start: 0,
            status_at: GuestAddress(0),
            writable: 0,
            left: 0,
            status: Status::OK,
            measure: None,
        };
        Slot {
            head,
            cache: cache.clone(),
            mail: mail.clone(),
            waited: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Its state, if no request is in progress.
    pub(crate) fn free(&self) -> Option<MutexGuard<'_, State>> {
        Some(lock(&self.state)).filter(|state| state.memory.is_none())
    }

    /// A piece does not end at once.
    pub(crate) fn wait(&self) {
        self.waited.store(true, Ordering::Relaxed);
    }

    /// Ends a piece, or fills its frames. Returns what the request is over with, if it is.
    pub(crate) fn take(&self, shard: u32, range: &Range<u64>, outcome: Outcome, work: &mut Work) -> Option<Over> {
        match outcome {
            Outcome::Fill(fill) => {
                let fill = self.fill(range, fill);
                self.cache.commit(shard, fill, work);
                None
            }
            Outcome::Data(data) => {
                let mut state = lock(&self.state);
                let is_whole =
                    state.cursor(range.start).is_some_and(|mut to| data.slices().all(|bytes| to.write(bytes)));
                let over = self.end(&mut state, if is_whole { Status::OK } else { Status::FAILED });
                drop(state);
                work.release(shard, data);
                over
            }
            Outcome::Done => self.end(&mut lock(&self.state), Status::OK),
            Outcome::Failed(_) => self.refuse(Status::FAILED),
        }
    }

    /// A piece fails before an engine takes it.
    pub(crate) fn refuse(&self, status: Status) -> Option<Over> {
        self.end(&mut lock(&self.state), status)
    }

    /// Copies the guest's bytes, once: it can change them meanwhile, and what was copied counts.
    fn fill(&self, range: &Range<u64>, mut fill: Fill) -> Fill {
        let mut state = lock(&self.state);
        let mut from = state.cursor(range.start);
        for bytes in fill.frames.slices_mut() {
            if !from.as_mut().is_some_and(|from| from.read(bytes)) {
                // It cannot be: the memory of a chain is checked. Frames have others' bytes before.
                bytes.fill(0);
                from = None;
            }
        }
        if from.is_none() {
            state.status = Status::FAILED;
        }
        drop(state);
        fill
    }

    /// A piece is over.
    fn end(&self, state: &mut State, status: Status) -> Option<Over> {
        if status != Status::OK {
            state.status = status;
        }
        state.left -= 1;
        if state.left > 0 {
            return None;
        }
        let memory = state.memory.take()?;
        // Its place was checked.
        let _ = memory.write_obj(state.status.0, state.status_at);
        state.shrink();
        let mut measure = state.measure.take();
        if let Some((measure @ Measure::Hit, _)) = &mut measure
            && self.waited.load(Ordering::Relaxed)
        {
            *measure = Measure::Miss;
        }
        // A chain has fewer than 2^32 bytes.
        Some(Over { head: self.head, bytes: state.writable + 1, measure })
    }

    /// Begins a request of `pieces` pieces.
    pub(crate) fn begin(&self, state: &mut State, memory: &Arc<Memory>, begun: Begun) {
        let Begun { start, status_at, writable, pieces, measure } = begun;
        self.waited.store(false, Ordering::Relaxed);
        state.memory = Some(memory.clone());
        (state.start, state.status_at, state.writable) = (start, status_at, writable);
        (state.left, state.status, state.measure) = (pieces, Status::OK, measure);
    }

    /// Writes `bytes` to the guest: the reply to a request without pieces on the disk.
    pub(crate) fn answer(&self, bytes: &[u8]) -> Option<Over> {
        let mut state = lock(&self.state);
        let start = state.start;
        let bytes = &bytes[..bytes.len().min(state.writable as usize)];
        let is_written = state.cursor(start).is_some_and(|mut to| to.write(bytes));
        self.end(&mut state, if is_written { Status::OK } else { Status::FAILED })
    }
}

/// A request at its begin.
pub(crate) struct Begun {
    /// The first byte of the disk.
    pub(crate) start: u64,
    pub(crate) status_at: GuestAddress,
    /// Bytes that the guest reads, without the status.
    pub(crate) writable: u32,
    /// At least one.
    pub(crate) pieces: usize,
    pub(crate) measure: Option<(Measure, Asked)>,
}

impl State {
    /// Gives memory up that few chains need.
    pub(crate) fn shrink(&mut self) {
        if self.segments.capacity() > SEGMENTS_KEPT {
            self.segments = Vec::with_capacity(SEGMENTS_KEPT);
        }
    }

    /// The guest's memory for the byte `at` of the disk.
    fn cursor(&self, at: u64) -> Option<Cursor<'_>> {
        Some(Cursor::new(self.memory.as_ref()?, &self.segments, at - self.start))
    }
}

/// A request for the record and its latency.
pub(crate) fn asked(op: Recorded, range: &Range<u64>, since: Instant) -> Asked {
    Asked::new(op, range.start, range.end - range.start, since)
}
