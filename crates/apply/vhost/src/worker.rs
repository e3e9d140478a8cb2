//! The thread of a queue: takes chains, submits them to the cache, and makes those used that are over.
//!
//! 1. A turn takes up to [`BATCH`] chains. Hits are copied from the frames to the guest at once. Other requests are over later: their slots are
//!    in the mail then.
//! 2. At the end of a turn, the work for other threads is done. Then the chains that are over become used, and the guest is interrupted once.
//! 3. If a turn found nothing, the thread polls for a limited time, enables the guest's notifications, looks again, and sleeps.
//!
//! **Only this thread accesses the rings and interrupts the guest.** A write to an eventfd waits if its owner filled it, and the other threads must
//! not wait. This one has no frames and no work of others while it interrupts.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use nigh_engine::{Op, Refusal};
use nigh_host::SubmitError;
use nigh_host::front::{Ahead, Cache, Client, Disk, Measure, PIECE, Submission, Submitted, Waiter, Work, pieces};
use nigh_policy::Stream as Source;
use nigh_service::front::{Export, Recorder, Stream};
use nigh_trace::Op as Recorded;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::mail::{Mail, Over};
use crate::request::{self, ID_BYTES, Malformed, Operation, Request};
use crate::ring::{Broken, Ring};
use crate::slot::{Begun, Slot, Status, asked};

/// Chains of a turn.
const BATCH: usize = 64;
/// How long a thread waits for what may not be signalled.
const GLANCE: Duration = Duration::from_millis(100);

/// State that the queues of a connection share.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) export: Arc<Export>,
    /// The number of the connection.
    pub(crate) id: u64,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) stream: Option<Arc<Stream>>,
    /// Writes are acknowledged before they are stable, because the guest flushes.
    pub(crate) writeback: AtomicBool,
    /// All requests fail: the guest may have lost what was acknowledged.
    pub(crate) failed: AtomicBool,
    /// How long a queue is polled before its thread sleeps.
    pub(crate) poll: Duration,
}

impl Common {
    fn disk(&self) -> &Disk {
        &self.export.disk
    }

    /// Whether the frontend has left, so that no one waits for what takes long.
    fn has_left(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.has_left())
    }
}

/// A queue in progress.
pub(crate) struct Worker {
    common: Arc<Common>,
    mail: Arc<Mail>,
    ring: Ring,
    slots: Vec<Arc<Slot>>,
    client: Client,
    ahead: Ahead,
    work: Work,
    /// To be made used.
    over: Vec<Over>,
    in_progress: usize,
    /// The kick of the guest and the wake-up call of others; none if nobody waits.
    events: Option<Events>,
    /// Wakes this thread when a throttled request may go.
    turn: Waker,
    /// Tells the frontend that the queue is broken.
    error: Option<Arc<OwnedFd>>,
    /// The queue is not processed any more.
    broken: Option<Broken>,
}

/// Descriptors that a thread waits for. They are never read: each write to an eventfd is an edge.
pub(crate) struct Events {
    epoll: OwnedFd,
    _kick: OwnedFd,
}

impl Events {
    /// Of a kick of the guest, and of `mail`.
    pub(crate) fn new(kick: OwnedFd, mail: &Mail) -> rustix::io::Result<Events> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &kick, epoll::EventData::new_u64(0), flags)?;
        epoll::add(&epoll, mail.wake.as_fd(), epoll::EventData::new_u64(1), flags)?;
        Ok(Events { epoll, _kick: kick })
    }

    fn wait(&self, most: Option<Duration>) {
        let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        match epoll::wait(&self.epoll, &mut events[..], most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Worker {
    pub(crate) fn new(
        common: &Arc<Common>,
        mail: &Arc<Mail>,
        ring: Ring,
        events: Option<Events>,
        error: Option<Arc<OwnedFd>>,
    ) -> Worker {
        let Common { cache, export, id, .. } = &**common;
        let slots = (0..ring.entries()).map(|head| Arc::new(Slot::new(head, cache, mail))).collect();
        Worker {
            mail: mail.clone(),
            slots,
            client: cache.client(&export.disk, Source(*id)),
            ahead: Ahead::new(cache.readahead()),
            work: Work::default(),
            over: Vec::with_capacity(ring.entries().into()),
            in_progress: 0,
            events,
            turn: Waker::noop().clone(),
            error,
            broken: None,
            common: common.clone(),
            ring,
        }
    }

    /// Processes the queue until it is to stop, and no request is in progress. Returns the next entry of the available ring.
    pub(crate) fn run(mut self) -> u16 {
        self.turn = WakeMail(self.mail.clone()).waker();
        if self.ring.base() != 0 {
            // An earlier server may have made chains used without an interrupt.
            self.ring.interrupt();
        }
        if let Err(broken) = self.process() {
            let disk = self.common.disk().name();
            tracing::warn!(disk, id = self.common.id, %broken, "a queue of a guest is not processed any more");
            self.finish(broken);
        }
        self.ring.base()
    }

    fn process(&mut self) -> Result<(), Broken> {
        loop {
            if self.turn()? {
                continue;
            }
            let is_stopping = self.mail.is_stopping();
            if is_stopping && self.in_progress == 0 {
                return Ok(());
            }
            if self.takes_chains() && !is_stopping && (self.poll() || self.ring.listen()?) {
                self.ring.silence()?;
                continue;
            }
            self.sleep(is_stopping, None);
        }
    }

    /// The queue is broken: waits for the requests in progress, which the guest does not get to know of, and for the end.
    fn finish(&mut self, broken: Broken) {
        self.broken = Some(broken);
        if let Some(error) = &self.error {
            // Fails only where the count is at its maximum, and then it is readable anyway.
            let _ = rustix::io::write(error, &1u64.to_ne_bytes());
        }
        loop {
            self.publish();
            let is_stopping = self.mail.is_stopping();
            if is_stopping && self.in_progress == 0 {
                return;
            }
            self.sleep(is_stopping, None);
        }
    }

    fn sleep(&self, knows_of_stop: bool, most: Option<Duration>) {
        if self.mail.may_sleep(knows_of_stop)
            && let Some(events) = &self.events
        {
            events.wait(most);
        }
        self.mail.awake();
    }

    /// Requests in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// Chains that became used.
    pub(crate) fn used(&self) -> u64 {
        self.ring.used
    }

    /// Interrupts of the guest that were due.
    pub(crate) fn interrupts(&self) -> u64 {
        self.ring.interrupts
    }

    /// Polls for chains and for completed requests for a limited time; returns whether there are some.
    fn poll(&self) -> bool {
        let most = self.common.poll;
        if most.is_zero() {
            return false;
        }
        let begin = Instant::now();
        loop {
            if self.ring.has_chain() || !self.mail.is_empty() {
                return true;
            }
            if begin.elapsed() >= most {
                return false;
            }
            // The guest may need this processor.
            std::thread::yield_now();
        }
    }

    /// Whether the next chain may be taken.
    fn takes_chains(&self) -> bool {
        self.in_progress < self.common.export.requests_max()
            && !self.common.stream.as_ref().is_some_and(|stream| stream.is_cut_off())
    }

    /// Takes chains, and makes those used that are over. Returns whether there were any.
    pub(crate) fn turn(&mut self) -> Result<bool, Broken> {
        let mut taken = 0;
        let is_stopping = self.mail.is_stopping();
        let mut since = None;
        while taken < BATCH && !is_stopping && self.takes_chains() {
            let Some((head, request)) = self.take()? else { break };
            taken += 1;
            self.in_progress += 1;
            match request {
                Some(request) => self.begin(head, request, *since.get_or_insert_with(Instant::now)),
                None => self.over.push(Over { head, bytes: 0, measure: None }),
            }
        }
        let published = self.publish();
        self.broken.map_or(Ok(taken > 0 || published), Err)
    }

    /// Does the work for other threads, and makes chains used that are over. Returns whether there were any.
    fn publish(&mut self) -> bool {
        self.common.cache.dispatch(&mut self.work, Some(&*self.mail));
        self.mail.take(&mut self.over);
        if self.over.is_empty() {
            return false;
        }
        self.in_progress -= self.over.len();
        if self.broken.is_none() {
            let mut over = self.over.iter();
            let used = over.try_for_each(|over| self.ring.add_used(over.head, over.bytes));
            self.broken = used.and_then(|()| self.ring.notify()).err();
        }
        let now = Instant::now();
        let Common { recorder, id, .. } = &*self.common;
        for (measure, asked) in self.over.drain(..).filter_map(|over| over.measure) {
            let latency = now.saturating_duration_since(asked.since);
            self.common.disk().measure(measure, latency);
            recorder.record(self.common.disk(), *id, &asked, latency);
        }
        true
    }

    /// The next chain: its head, and its request unless it is none.
    fn take(&mut self) -> Result<Option<(u16, Option<Request>)>, Broken> {
        let memory = self.ring.memory.clone();
        let Some(chain) = self.ring.pop()? else { return Ok(None) };
        let head = chain.head_index();
        let mut state = self.slots[usize::from(head)].free().ok_or(Broken::Twice)?;
        match request::read(chain, &memory, &mut state.segments) {
            Ok(request) => Ok(Some((head, Some(request)))),
            Err(Malformed) => {
                state.shrink();
                Ok(Some((head, None)))
            }
        }
    }

    /// The status of a request that fails at once.
    fn refusal(&self, operation: &Operation) -> Option<Status> {
        let (range, writes) = match operation {
            Operation::Invalid => return Some(Status::FAILED),
            Operation::Unsupported => return Some(Status::UNSUPPORTED),
            Operation::Read(range) => (range.clone(), false),
            Operation::Write(range) | Operation::Discard(range) | Operation::Zeroes { range, .. } => {
                (range.clone(), true)
            }
            Operation::Flush | Operation::Id => (0..0, false),
        };
        let disk = self.common.disk();
        let fails = range.end > disk.size()
            || writes && disk.read_only()
            || *operation != Operation::Id && self.common.failed.load(Ordering::Relaxed);
        fails.then_some(Status::FAILED)
    }

    fn begin(&mut self, head: u16, request: Request, since: Instant) {
        let Request { operation, status, writable } = request;
        let slot = self.slots[usize::from(head)].clone();
        let cache = self.common.cache.clone();
        let mut begun = Begun { start: 0, status_at: status, writable, pieces: 1, measure: None };
        if let Some(status) = self.refusal(&operation) {
            slot_begin(&slot, &self.ring, begun);
            self.over.extend(slot.refuse(status));
            return;
        }
        let (op, range, of_rate, measure, recorded) = match operation {
            Operation::Read(range) => {
                let bytes = range.end - range.start;
                (Op::Read, range, bytes, Measure::Hit, Recorded::Read)
            }
            Operation::Write(range) => {
                let bytes = range.end - range.start;
                (Op::Write, range, bytes, Measure::Write, Recorded::Write)
            }
            Operation::Discard(range) => (Op::Trim, range, 0, Measure::Write, Recorded::Trim),
            Operation::Zeroes { range, unmap } => {
                let bytes = range.end - range.start;
                (Op::Zeroes { keep: !unmap, fast: false }, range, bytes, Measure::Write, Recorded::Write)
            }
            Operation::Flush => (Op::Flush, 0..0, 0, Measure::Flush, Recorded::Flush),
            Operation::Id => {
                slot_begin(&slot, &self.ring, begun);
                let mut name = [0; ID_BYTES];
                let own = self.common.disk().name().as_bytes();
                let length = own.len().min(ID_BYTES);
                name[..length].copy_from_slice(&own[..length]);
                self.over.extend(slot.answer(&name));
                return;
            }
            Operation::Invalid | Operation::Unsupported => unreachable!("it was refused"),
        };
        begun.start = range.start;
        let mut asked = asked(recorded, &range, since);
        begun.measure = Some((measure, asked));
        if self.common.disk().is_throttled() {
            if !self.wait_for_turn(of_rate) {
                slot_begin(&slot, &self.ring, begun);
                self.over.extend(slot.refuse(Status::FAILED));
                return;
            }
            asked = asked.with_turn(Instant::now());
            begun.measure = Some((measure, asked));
        }
        let fua = !self.common.writeback.load(Ordering::Relaxed);
        match op {
            Op::Flush => {
                let shards = cache.shards();
                slot_begin(&slot, &self.ring, Begun { pieces: shards as usize, ..begun });
                for shard in 0..shards {
                    self.submit_flush(&slot, shard);
                }
            }
            _ if range.is_empty() => {
                slot_begin(&slot, &self.ring, begun);
                self.over.extend(slot.answer(&[]));
            }
            Op::Read | Op::Write => {
                let pieces = pieces(range, PIECE);
                slot_begin(&slot, &self.ring, Begun { pieces: pieces.len(), ..begun });
                for piece in pieces {
                    self.submit(&slot, op, piece, fua);
                }
            }
            _ => {
                let extents = cache.extents(range);
                slot_begin(&slot, &self.ring, Begun { pieces: extents.len(), ..begun });
                for extent in extents {
                    self.submit(&slot, op, extent, fua);
                }
            }
        }
    }

    /// Waits until a request of this many bytes is within the export's rates; returns false if the frontend leaves before that. Meanwhile, requests that
    /// are over become used.
    fn wait_for_turn(&mut self, bytes: u64) -> bool {
        let (common, waker) = (self.common.clone(), self.turn.clone());
        self.publish();
        common.disk().wait_for_turn(bytes, &waker, |left| {
            self.sleep(true, Some(left.min(GLANCE)));
            self.publish();
            !common.has_left()
        })
    }

    fn submit(&mut self, slot: &Arc<Slot>, op: Op, range: Range<u64>, fua: bool) {
        loop {
            let (cache, client, work) = (&self.common.cache, &self.client, &mut self.work);
            let submission = Submission { op, range: range.clone(), fua };
            let waiter = || {
                slot.wait();
                slot.clone() as Arc<dyn Waiter>
            };
            match cache.submit_ahead(client, submission, &mut self.ahead, work, waiter) {
                Ok(Submitted { shard, outcome: Some(outcome), .. }) => {
                    self.over.extend(slot.take(shard, &range, outcome, work));
                    return;
                }
                Ok(_) => return,
                Err(error) => {
                    let start = range.start;
                    if !self.may_retry(error, |cache, disk| cache.wait_for_room(disk, start)) {
                        self.over.extend(slot.refuse(Status::FAILED));
                        return;
                    }
                }
            }
        }
    }

    fn submit_flush(&mut self, slot: &Arc<Slot>, shard: u32) {
        loop {
            let waiter = || slot.clone() as Arc<dyn Waiter>;
            let Common { cache, export, .. } = &*self.common;
            match cache.flush(shard, &export.disk, &mut self.work, waiter) {
                Ok(Submitted { outcome: Some(outcome), .. }) => {
                    self.over.extend(slot.take(shard, &(0..0), outcome, &mut self.work));
                    return;
                }
                Ok(_) => return,
                Err(error) => {
                    if !self.may_retry(error, |cache, _| cache.wait_for_room_in(shard)) {
                        self.over.extend(slot.refuse(Status::FAILED));
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a submission that was refused can be tried again; returns false if it cannot.
    fn may_retry(&mut self, error: SubmitError, wait: impl FnOnce(&Cache, &Disk)) -> bool {
        match error {
            SubmitError::Refused(Refusal::Busy) => {
                self.publish();
                wait(&self.common.cache, self.common.disk());
                !self.common.has_left()
            }
            SubmitError::Refused(Refusal::NoVolume) => {
                self.publish();
                self.common.disk().wait_for_opening_within(GLANCE) != Some(false)
            }
            // The disk has become shorter, or an engine failed.
            _ => false,
        }
    }
}

fn slot_begin(slot: &Slot, ring: &Ring, begun: Begun) {
    let mut state = slot.free().expect("it was free");
    slot.begin(&mut state, &ring.memory, begun);
}

/// Wakes the thread of a queue whose request may go.
struct WakeMail(Arc<Mail>);

impl WakeMail {
    fn waker(self) -> Waker {
        Arc::new(self).into()
    }
}

impl std::task::Wake for WakeMail {
    fn wake(self: Arc<Self>) {
        self.0.wake.raise();
    }
}
