//! The outgoing side of a connection, shared by all who reply to it.
//!
//! Replies are queued, and one thread at a time writes them: the connection's own, a thread that completes operations,
//! which never waits for the socket, or the connection's writer, a thread that is started when the socket is full for
//! the first time (`outbox.rs`).

mod outbox;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_engine::{Fill, Shared};
use nigh_host::front::{Budget, Cache, Disk, Measure, Outlet, Work};
use nigh_nbd::{Framing, Header};
use nigh_service::front::{Asked, Export, Recorder, SLICES_MAX, Stream};

use self::outbox::{Batch, Held, Outbox, Sent};
use crate::patience::{PATIENCE, RATE_MIN};

/// Most bytes of read replies on their way, unless it is one reply: no further reads are begun beyond.
const BYTES_MAX: usize = 2 << 20;
/// How long one call waits for the socket: after that its client is slow, and the engines get their frames back.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);
/// A client that is behind `RATE_MIN` for this time may have to leave if others need the memory of its replies.
const SLOW: Duration = Duration::from_secs(1);
/// After this many bytes, a thread that does not wait for the socket leaves the rest to the writer: others need that thread.
const AT_ONCE: u64 = 1 << 20;
/// Bytes that one call writes, about.
const BATCH: usize = 256 << 10;
const WRITER_STACK: usize = 128 << 10;

/// The part of a reply after its header.
#[derive(Default)]
pub(crate) enum Data {
    #[default]
    None,
    /// Of this shard.
    Frames(u32, Shared),
    /// Memory that was taken from `Cache::heap`.
    Heap(Vec<u8>),
}

/// A reply, or a chunk of one.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) head: Option<Header>,
    pub(crate) data: Data,
    /// Bytes that count against the connection's limit until they are written.
    pub(crate) bytes: usize,
    /// Whether a request in progress is over when this is written.
    pub(crate) ends: bool,
    /// The measure that counts its latency, and the size of its request.
    pub(crate) measure: Option<(Measure, Asked)>,
}

impl Reply {
    fn slices<'a>(&'a self, mut add: impl FnMut(&'a [u8])) {
        if let Some(head) = &self.head {
            add(head);
        }
        match &self.data {
            Data::None => {}
            Data::Frames(_, frames) => frames.slices().for_each(add),
            Data::Heap(bytes) => add(bytes),
        }
    }

    /// How long it is, at most 256 KiB and a header unless it is collected.
    pub(crate) fn len(&self) -> usize {
        let data = match &self.data {
            Data::None => 0,
            Data::Frames(_, frames) => frames.len(),
            Data::Heap(bytes) => bytes.len(),
        };
        self.head.as_ref().map_or(0, |head| head.len()) + data
    }
}

/// How long a thread that writes waits for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Not at all: then the writer goes on.
    No,
    /// A glance: then the writer goes on.
    Briefly,
    /// As long as a client may take.
    Long,
}

/// How a thread that writes gets on. A client that takes less than `RATE_MIN` falls behind.
struct Progress {
    /// When the client is left, if it takes no more.
    end: Instant,
    /// Bytes that the client took.
    bytes: u64,
}

impl Progress {
    fn new(now: Instant) -> Progress {
        Progress { end: now + PATIENCE, bytes: 0 }
    }

    /// The client took this many bytes.
    fn add(&mut self, bytes: u64, now: Instant) {
        self.bytes = self.bytes.saturating_add(bytes);
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE_MIN);
        self.end = (self.end + earned).min(now + PATIENCE);
    }

    /// How long it is behind that rate.
    fn behind(&self, now: Instant) -> Duration {
        PATIENCE.saturating_sub(self.end.saturating_duration_since(now))
    }
}

/// The outgoing side of a connection.
pub(crate) struct Link {
    pub(crate) stream: Arc<Stream>,
    pub(crate) framing: Framing,
    export: Arc<Export>,
    cache: Arc<Cache>,
    /// The number of the connection.
    client: u64,
    recorder: Arc<Recorder>,
    outbox: Outbox,
}

impl Outlet for Link {
    /// Writes what can be written without waiting; the writer does the rest.
    fn flush(self: Arc<Self>, work: &mut Work) {
        self.send(self.outbox.lock(), Wait::No, work);
    }
}

impl Link {
    /// `recorder` is where its requests are recorded, and under which number its client is known there.
    pub(crate) fn new(
        stream: Arc<Stream>,
        framing: Framing,
        export: Arc<Export>,
        cache: Arc<Cache>,
        recorder: (u64, Arc<Recorder>),
    ) -> Arc<Link> {
        let (client, recorder) = recorder;
        Arc::new(Link { stream, framing, export, cache, client, recorder, outbox: Outbox::default() })
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.export.disk
    }

    /// Memory for what clients of the export send while their requests are throttled.
    pub(crate) fn receive_budget(&self) -> &Arc<Budget> {
        &self.export.receive_budget
    }

    /// Whether the connection may have another request in progress, with this many bytes in its reply. If so, it has.
    pub(crate) fn try_admit(&self, requests: usize, bytes: usize) -> bool {
        self.outbox.lock().admits(requests, bytes, self.export.requests_max())
    }

    /// Waits until `try_admit`.
    pub(crate) fn admit(&self, requests: usize, bytes: usize) {
        let mut state = self.outbox.lock();
        while !state.admits(requests, bytes, self.export.requests_max()) {
            state = self.wait(state);
        }
    }

    /// Returns admitted requests and bytes that are not needed.
    pub(crate) fn release(&self, requests: usize, bytes: usize) {
        self.outbox.lock().release(requests, bytes);
    }

    /// Takes memory for a reply from `Cache::heap`.
    pub(crate) fn take_heap(&self, bytes: usize) -> bool {
        self.export.take_heap(self.cache.heap(), bytes)
    }

    /// The client has waited for `bytes` of that for long.
    pub(crate) fn want_heap(&self, bytes: usize) {
        self.export.want_heap(self.cache.heap(), bytes);
    }

    /// It has them, or does not wait any more.
    pub(crate) fn want_nothing(&self) {
        self.cache.heap().want_nothing();
    }

    /// Returns `bytes` of that.
    pub(crate) fn give_heap(&self, bytes: usize) {
        self.export.give_heap(self.cache.heap(), bytes);
    }

    /// Memory for a reply, whose length was taken. It may contain what others contained.
    pub(crate) fn buffer(&self, length: usize) -> Vec<u8> {
        self.cache.buffers().take(length)
    }

    /// Returns memory of a reply.
    pub(crate) fn free(&self, buffer: Vec<u8>) {
        self.give_heap(buffer.len());
        self.cache.buffers().give(buffer);
    }

    /// Queues a reply.
    pub(crate) fn push(&self, reply: Reply) {
        self.outbox.lock().queue.push_back(reply);
    }

    /// Queues the connection's own `batch` and writes what is queued. With a `glance`, the client has that long to take it.
    pub(crate) fn send_batch(self: &Arc<Self>, batch: &mut VecDeque<Reply>, glance: bool, work: &mut Work) {
        let mut state = self.outbox.lock();
        state.add(batch);
        self.send(state, if glance { Wait::Briefly } else { Wait::No }, work);
    }

    fn wait<'a>(&self, state: Held<'a>) -> Held<'a> {
        self.outbox.wait(state, || self.has_left())
    }

    /// Whether the client has left, which ends the connection.
    fn has_left(&self) -> bool {
        let left = self.stream.has_left();
        if left {
            self.stream.abandon();
        }
        left
    }

    /// The frames of a write will not be filled.
    pub(crate) fn abort(&self, shard: u32, token: usize, fill: Fill, work: &mut Work) {
        self.cache.abort(shard, token, fill, work);
    }

    fn send(self: &Arc<Self>, state: Held<'_>, wait: Wait, work: &mut Work) {
        let mut progress = Progress::new(Instant::now());
        self.outbox.send(state, || self.start_writer(), |batch| self.transmit(batch, wait, &mut progress, work));
    }

    /// Writes what the socket takes, within `wait`. The caller is the writing thread.
    fn transmit(&self, batch: &mut Batch, wait: Wait, progress: &mut Progress, work: &mut Work) -> Sent {
        let mut result = if batch.broken { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) };
        while result.is_ok() && !batch.replies.is_empty() {
            result = self.write_some(batch, wait != Wait::No, work).and_then(|(bytes, now)| {
                progress.add(bytes as u64, now);
                // Then it is as good as full. Pipes have no limits.
                let is_slow = progress.behind(now) > GLANCE && !self.stream.is_deaf();
                let is_long = wait == Wait::No && progress.bytes >= AT_ONCE;
                if (is_slow || is_long) && !batch.replies.is_empty() {
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            });
        }
        let full = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let goes_on = full && (wait == Wait::No || self.keeps(&mut batch.replies, progress, work));
        if wait != Wait::No {
            // Others may wait for the frames that were written or copied.
            self.cache.dispatch(work, Some(self));
        }
        match result {
            Ok(()) => Sent::All,
            Err(_) if goes_on => Sent::Later,
            Err(error) => {
                if !batch.broken {
                    tracing::debug!(%error, "a reply cannot be written");
                    self.stream.abandon();
                }
                while let Some(reply) = batch.replies.pop_front() {
                    batch.is_over(&reply);
                    self.dispose(reply, work);
                }
                Sent::Never
            }
        }
    }

    /// Whether the client, whose socket is full, keeps its connection. Its replies are no longer in frames then.
    fn keeps(&self, batch: &mut VecDeque<Reply>, progress: &Progress, work: &mut Work) -> bool {
        let behind = progress.behind(Instant::now());
        behind < PATIENCE && !(behind > SLOW && self.gives_way(batch)) && self.spill(batch, work)
    }

    /// Whether a client of another export needs the memory of these replies, which nobody reads.
    fn gives_way(&self, batch: &VecDeque<Reply>) -> bool {
        let bytes = batch.iter().map(|reply| if let Data::Heap(bytes) = &reply.data { bytes.len() } else { 0 }).sum();
        let gives = self.export.is_due(self.cache.heap(), bytes);
        if gives {
            tracing::warn!("a slow client is left: others need the memory of its replies");
        }
        gives
    }

    /// `reply` is written, or will never be.
    fn dispose(&self, reply: Reply, work: &mut Work) {
        match reply.data {
            Data::None => {}
            Data::Frames(shard, frames) => work.release(shard, frames),
            Data::Heap(bytes) => self.free(bytes),
        }
    }

    /// The client is slow: copies what it will get and gives the engines their frames back. Says no where the memory
    /// for that is used up.
    fn spill(&self, batch: &mut VecDeque<Reply>, work: &mut Work) -> bool {
        for reply in batch {
            if let Data::Frames(_, frames) = &reply.data {
                let length = frames.len();
                if !self.take_heap(length) {
                    tracing::warn!("a slow client is left: others need the memory of its replies");
                    return false;
                }
                let mut bytes = self.buffer(length);
                frames.copy_to(&mut bytes);
                if let Data::Frames(shard, frames) = mem::replace(&mut reply.data, Data::Heap(bytes)) {
                    work.release(shard, frames);
                }
            }
        }
        true
    }

    /// Writes once; returns how many bytes, and when.
    fn write_some(&self, batch: &mut Batch, wait: bool, work: &mut Work) -> io::Result<(usize, Instant)> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(64);
        let (mut skip, mut bytes) = (batch.sent, 0);
        for reply in &batch.replies {
            reply.slices(|slice| {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                let rest = &slice[skipped..];
                if !rest.is_empty() && slices.len() < SLICES_MAX {
                    bytes += rest.len();
                    slices.push(IoSlice::new(rest));
                }
            });
            if bytes >= BATCH || slices.len() >= SLICES_MAX {
                break;
            }
        }
        let taken = self.stream.write(&slices, wait)?;
        drop(slices);
        let now = Instant::now();
        let mut written = batch.sent + taken;
        // Requests that were received together have the same latency.
        let (mut since, mut latency) = (now, Duration::ZERO);
        while let Some(first) = batch.replies.front()
            && written >= first.len()
        {
            written -= first.len();
            let reply = batch.replies.pop_front().expect("not empty");
            if let Some((measure, asked)) = reply.measure {
                if asked.since != since {
                    (since, latency) = (asked.since, now.saturating_duration_since(asked.since));
                }
                self.disk().measure(measure, latency);
                self.recorder.record(self.disk(), self.client, &asked, latency);
            }
            batch.is_over(&reply);
            self.dispose(reply, work);
        }
        batch.sent = written;
        Ok((taken, now))
    }

    /// The reply to this request can be sent.
    #[inline]
    pub(crate) fn ready(&self, asked: Asked) -> Asked {
        if self.recorder.is_timed() { asked.with_ready(Instant::now()) } else { asked }
    }

    fn start_writer(self: &Arc<Self>) -> bool {
        let link = self.clone();
        let thread = std::thread::Builder::new().name("writer".into()).stack_size(WRITER_STACK);
        let started = thread.spawn(move || link.run_writer());
        if let Err(error) = &started {
            tracing::warn!(%error, "no thread to write replies: the connection is closed");
            self.stream.abandon();
        }
        started.is_ok()
    }

    /// The writer: writes what others could not without waiting.
    fn run_writer(self: Arc<Self>) {
        while let Some(state) = self.outbox.wait_for_turn() {
            let (mut progress, mut work) = (Progress::new(Instant::now()), Work::default());
            self.outbox.go_on(state, |batch| self.transmit(batch, Wait::Long, &mut progress, &mut work));
            self.cache.dispatch(&mut work, None);
        }
    }

    /// Waits until every request is replied to, or the connection broken.
    pub(crate) fn finish(&self) {
        self.outbox.finish(|| self.has_left());
    }

    /// Nothing is read any more: ends the writer, and has later replies dropped.
    pub(crate) fn close(&self) {
        self.outbox.close();
        self.stream.abandon();
    }

    /// Whether the connection's own thread waits until less is unsent.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        self.outbox.lock().waits
    }

    /// How many are in progress.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        self.outbox.lock().requests
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};

    use nigh_engine::{Op, Outcome};
    use nigh_host::BLOCK;
    use nigh_host::front::{Submission, Waiter};
    use nigh_policy::Stream as Source;
    use nigh_service::{ExportSettings, Service, Settings};

    use super::*;

    /// Tells that a reply came.
    struct Told(Sender<()>);

    impl Waiter for Told {
        fn deliver(self: Arc<Self>, shard: u32, _: std::ops::Range<u64>, outcome: Outcome, work: &mut Work) {
            if let Outcome::Data(data) = outcome {
                work.release(shard, data);
            }
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn what_comes_slowly_is_no_progress() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut progress = Progress::new(begin);
        (1..30).for_each(|second| progress.add(1, at(second)));
        assert!(progress.behind(at(29)) > Duration::from_secs(28));
        assert_eq!(progress.behind(at(31)), PATIENCE);
        // A client that catches up has the full patience again.
        progress.add(PATIENCE.as_secs() * RATE_MIN, at(29));
        assert_eq!(progress.behind(at(29)), Duration::ZERO);
        // Bytes taken in advance do not extend the patience.
        progress.add(u64::MAX, at(30));
        assert_eq!(progress.behind(at(60)), PATIENCE);
        let mut progress = Progress::new(begin);
        (1..1000).for_each(|second| progress.add(RATE_MIN, at(second)));
        assert!(progress.behind(at(1000)) <= Duration::from_secs(1));
    }

    /// A thread that others need does not write for as long as a client takes what it gets.
    #[test]
    fn driver_18_long_replies_are_left_to_the_writer() {
        const LONG: usize = 4 << 20;
        let export = ExportSettings::new("disk", "memory:1M".parse().unwrap());
        let server = Service::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![export])).unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        if rustix::net::sockopt::set_socket_send_buffer_size_force(&theirs, 4 * LONG).is_err() {
            println!(
                "skipped: driver_18_long_replies_are_left_to_the_writer: needs the right to have large socket buffers"
            );
            return server.shut_down().unwrap();
        }
        let stream = Arc::new(Stream::socket(theirs.into()));
        let (cache, export) = (server.host().cache(), server.export("disk").unwrap());
        let link = Link::new(stream, Framing::Simple, export, cache.clone(), (0, Arc::default()));
        for _ in 0..LONG / BATCH {
            assert!(link.take_heap(BATCH));
            link.admit(1, 0);
            link.push(Reply { data: Data::Heap(vec![7; BATCH]), ends: true, ..Reply::default() });
        }
        link.clone().flush(&mut Work::default());
        assert!(Arc::strong_count(&link) > 1, "no writer was started: all was written at once");
        ours.read_exact(&mut vec![0; LONG]).unwrap();
        link.finish();
        link.close();
        server.shut_down().unwrap();
    }

    #[test]
    fn what_is_handed_over_when_the_writer_is_gone_is_dropped() {
        // More than a socket holds, and than an export has for itself.
        const LONG: usize = 3 << 20;
        let export = ExportSettings::new("disk", "memory:1M".parse().unwrap());
        let server = Service::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![export])).unwrap();
        let cache = server.host().cache();
        let export = server.export("disk").unwrap();
        let heap = cache.heap().left();
        let client = cache.client(&export.disk, Source(0));
        let mut work = Work::default();
        let mut read = || {
            let (told, done) = channel();
            let submission = Submission { op: Op::Read, range: 0..BLOCK, fua: false };
            let waiter = || Arc::new(Told(told)) as Arc<dyn Waiter>;
            let submitted = cache.submit(&client, submission, &mut work, waiter).unwrap();
            cache.dispatch(&mut work, None);
            match submitted.outcome {
                Some(Outcome::Data(data)) => Some(Data::Frames(submitted.shard, data)),
                _ => done.recv().map(|_| None).unwrap(),
            }
        };
        assert!(read().is_none(), "it was there already");
        let [first, second] = [(); 2].map(|()| read().unwrap());

        let link = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let stream = Arc::new(Stream::socket(theirs.into()));
            stream.set_patience(GLANCE, GLANCE).unwrap();
            (ours, Link::new(stream, Framing::Simple, export.clone(), cache.clone(), (0, Arc::default())))
        };
        let (_other, gate) = link();
        let (mut ours, link) = link();
        let push = |data| {
            link.admit(1, 0);
            link.push(Reply { data, ends: true, ..Reply::default() });
        };
        let long = || {
            assert!(link.take_heap(LONG));
            Data::Heap(vec![0; LONG])
        };
        // Has the writer started, and wait for more.
        push(long());
        link.clone().flush(&mut Work::default());
        ours.read_exact(&mut vec![0; LONG]).unwrap();
        while link.outbox.lock().writing {
            std::thread::yield_now();
        }
        push(long());
        push(first);
        let taken = cache.heap().left();
        assert!(taken < heap);
        std::thread::scope(|scope| {
            let held = gate.outbox.lock();
            scope.spawn(|| {
                // Work to do after the socket was full and before it hands over.
                let mut work = Work::default();
                work.flush(&gate);
                link.send_batch(&mut VecDeque::new(), true, &mut work);
                cache.dispatch(&mut work, None);
            });
            while cache.heap().left() == taken {
                std::thread::yield_now();
            }
            push(second);
            link.close();
            while Arc::strong_count(&link) > 1 {
                std::thread::yield_now();
            }
            drop(held);
        });
        let state = link.outbox.lock();
        assert!(state.queue.is_empty() && !state.writing, "{} replies wait for nobody", state.queue.len());
        assert_eq!((state.requests, cache.heap().left()), (0, heap));
        drop(state);
        server.host().remove("disk", true).unwrap();
        assert_eq!(server.host().host_statistics().frames_bytes, 0);
        server.shut_down().unwrap();
    }
}
