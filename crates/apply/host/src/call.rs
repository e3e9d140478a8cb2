//! A request of a program with a callback for its completion.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nigh_engine::{Outcome, Shared};

use crate::cache::Cache;
use crate::disk::{Disk, Measure};
use crate::error::HostError;
use crate::sync::lock;
use crate::work::{Outlet, Waiter, Work};

/// The bytes of a request.
pub(crate) enum Bytes {
    /// Those that are written, or as many as are read.
    Own(Vec<u8>),
    /// Those of the only piece of a read stay in the cache: in the frames of this shard, once it is complete.
    Pinned(Option<(u32, Shared)>),
}

impl Bytes {
    /// The request's own bytes; none if it is pinned.
    pub(crate) fn own(self) -> Vec<u8> {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Pinned(_) => Vec::new(),
        }
    }
}

/// The callback.
pub(crate) type Done = Box<dyn FnOnce(Result<Bytes, HostError>) + Send>;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Requests that completed inside the running callback.
    static ENDED: RefCell<VecDeque<Arc<Call>>> = const { RefCell::new(VecDeque::new()) };
}

/// Whether this thread runs a callback, which must not wait.
pub(crate) fn is_running() -> bool {
    RUNNING.get()
}

/// A request in progress.
pub(crate) struct Call {
    cache: Arc<Cache>,
    disk: Arc<Disk>,
    measure: Measure,
    since: Instant,
    /// The start of the bytes on the disk.
    origin: u64,
    /// Whether a piece had to wait.
    waited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Pieces that are not complete, plus one for the submission.
    left: usize,
    bytes: Bytes,
    error: Option<HostError>,
    done: Option<Done>,
}

impl Call {
    pub(crate) fn new(
        cache: &Arc<Cache>,
        disk: &Arc<Disk>,
        pieces: usize,
        origin: u64,
        measure: Measure,
        bytes: Bytes,
        done: Done,
    ) -> Arc<Call> {
        let state = State { left: pieces + 1, bytes, error: None, done: Some(done) };
        Arc::new(Call {
            cache: cache.clone(),
            disk: disk.clone(),
            measure,
            since: Instant::now(),
            origin,
            waited: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// A piece waits.
    pub(crate) fn waiter(self: &Arc<Self>) -> Arc<dyn Waiter> {
        self.waited.store(true, Ordering::Relaxed);
        self.clone()
    }

    /// A piece is complete.
    pub(crate) fn end_piece(self: &Arc<Self>, error: Option<HostError>, work: &mut Work) {
        let mut state = lock(&self.state);
        state.error = state.error.take().or(error);
        state.left -= 1;
        if state.left == 0 {
            work.flush(self);
        }
    }

    /// All pieces were submitted.
    pub(crate) fn end_submission(self: &Arc<Self>, work: &mut Work) {
        self.end_piece(None, work);
    }

    fn part(&self, range: &Range<u64>) -> Range<usize> {
        (range.start - self.origin) as usize..(range.end - self.origin) as usize
    }
}

impl Waiter for Call {
    fn deliver(self: Arc<Self>, shard: u32, range: Range<u64>, outcome: Outcome, work: &mut Work) {
        match outcome {
            Outcome::Fill(mut fill) => {
                if let Bytes::Own(bytes) = &lock(&self.state).bytes {
                    fill.frames.copy_from(&bytes[self.part(&range)]);
                }
                self.cache.commit(shard, fill, work)
            }
            Outcome::Data(data) => {
                match &mut lock(&self.state).bytes {
                    Bytes::Own(bytes) => {
                        data.copy_to(&mut bytes[self.part(&range)]);
                        work.release(shard, data);
                    }
                    Bytes::Pinned(pinned) => *pinned = Some((shard, data)),
                }
                self.end_piece(None, work);
            }
            Outcome::Done => self.end_piece(None, work),
            Outcome::Failed(fault) => self.end_piece(Some(self.cache.failure(shard, fault)), work),
        }
    }
}

impl Outlet for Call {
    /// Runs the callback. Requests that complete inside a callback are called back after it, so that callbacks which
    /// submit again do not nest.
    fn flush(self: Arc<Self>, _work: &mut Work) {
        if is_running() {
            return ENDED.with_borrow_mut(|ended| ended.push_back(self));
        }
        RUNNING.set(true);
        let mut next = Some(self);
        while let Some(call) = next {
            call.call_back();
            next = ENDED.with_borrow_mut(VecDeque::pop_front);
        }
        RUNNING.set(false);
    }
}

impl Call {
    fn call_back(&self) {
        let mut state = lock(&self.state);
        let bytes = std::mem::replace(&mut state.bytes, Bytes::Pinned(None));
        let (error, done) = (state.error.take(), state.done.take());
        drop(state);
        let waited = self.measure == Measure::Hit && self.waited.load(Ordering::Relaxed);
        self.disk.measure(if waited { Measure::Miss } else { self.measure }, self.since.elapsed());
        let done = done.expect("a request ends once");
        if catch_unwind(AssertUnwindSafe(|| done(error.map_or(Ok(bytes), Err)))).is_err() {
            tracing::error!(disk = self.disk.name(), "a callback panicked");
        }
    }
}
