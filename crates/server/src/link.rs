//! The outgoing side of a connection, shared by all who reply to it.
//!
//! Replies are queued, and one thread at a time writes them: the connection's own, a thread that completes operations,
//! which never waits for the socket, or the connection's writer, a thread that is started when the socket is full for
//! the first time.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nigh_engine::{Fill, Shared};
use nigh_host::front::{Budget, Cache, Disk, Measure, Outlet, Work, lock};
use nigh_nbd::{Framing, Header};

use crate::export::Export;
use crate::patience::PATIENCE;
use crate::recording::{Asked, Recorder};
use crate::stream::{SLICES_MAX, Stream};

/// Most bytes of read replies on their way, unless it is one reply: no further reads are begun beyond.
const BYTES_MAX: usize = 2 << 20;
/// How long one call waits for the socket: after that its client is slow, and the engines get their frames back.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);
/// A client that takes nothing for so long may have to leave if others need the memory of its replies.
const SLOW: Duration = Duration::from_secs(1);
/// Bytes that one call writes, about.
const BATCH: usize = 256 << 10;
const WRITER_STACK: usize = 128 << 10;

/// What follows the header of a reply.
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
    /// Where the latency of its request is counted, and what that asked for.
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
        let mut bytes = 0;
        self.slices(|slice| bytes += slice.len());
        bytes
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

#[derive(Default)]
struct State {
    queue: VecDeque<Reply>,
    /// Bytes of the first that are written.
    sent: usize,
    /// Somebody writes: whoever queues a reply need not.
    writing: bool,
    /// The writer is to go on with it.
    handed: bool,
    has_writer: bool,
    /// Requests in progress.
    requests: usize,
    /// Of read replies in progress, as far as they were announced.
    bytes: usize,
    /// Nothing more can be written.
    broken: bool,
    /// Nothing more will be queued.
    closed: bool,
    /// The connection's own thread waits.
    waits: bool,
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
    state: Mutex<State>,
    /// For the connection's own thread: there is room for requests, or all were replied to.
    room: Condvar,
    /// For the writer: there is something to be written, or nothing any more.
    handed: Condvar,
}

impl Outlet for Link {
    /// Writes what can be written without waiting; the writer does the rest.
    fn flush(self: Arc<Self>, work: &mut Work) {
        self.send(lock(&self.state), Wait::No, work);
    }
}

impl State {
    fn add(&mut self, batch: &mut Vec<Reply>) {
        for reply in batch.drain(..) {
            self.requests += usize::from(reply.ends);
            self.bytes += reply.bytes;
            self.queue.push_back(reply);
        }
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
        Arc::new(Link {
            stream,
            framing,
            export,
            cache,
            client,
            recorder,
            state: Mutex::default(),
            room: Condvar::new(),
            handed: Condvar::new(),
        })
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.export.disk
    }

    /// Memory for what clients of the export send while their requests are throttled.
    pub(crate) fn receive_budget(&self) -> &Arc<Budget> {
        &self.export.receive_budget
    }

    /// Whether the connection may have another request in progress, with so many bytes in its reply. If so, it has.
    pub(crate) fn try_admit(&self, requests: usize, bytes: usize) -> bool {
        let mut state = lock(&self.state);
        self.admit_to(&mut state, requests, bytes)
    }

    fn admit_to(&self, state: &mut State, requests: usize, bytes: usize) -> bool {
        let full = state.requests + requests > self.export.requests_max()
            || (state.bytes > 0 && state.bytes + bytes > BYTES_MAX);
        if full && !state.broken {
            return false;
        }
        state.requests += requests;
        state.bytes += bytes;
        true
    }

    /// Waits until `try_admit`.
    pub(crate) fn admit(&self, requests: usize, bytes: usize) {
        let mut state = lock(&self.state);
        while !self.admit_to(&mut state, requests, bytes) {
            state = self.wait(state);
        }
    }

    /// What was admitted is not needed.
    pub(crate) fn release(&self, requests: usize, bytes: usize) {
        let mut state = lock(&self.state);
        state.requests -= requests;
        state.bytes -= bytes;
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
        lock(&self.state).queue.push_back(reply);
    }

    /// Queues the connection's own `batch`, and writes what the socket takes at once.
    pub(crate) fn queue_batch(self: &Arc<Self>, batch: &mut Vec<Reply>, work: &mut Work) {
        let mut state = lock(&self.state);
        state.add(batch);
        self.send(state, Wait::No, work);
    }

    /// Queues the connection's own `batch` and writes what is queued. Waits while too much is.
    pub(crate) fn send_batch(self: &Arc<Self>, batch: &mut Vec<Reply>, work: &mut Work) {
        let mut state = lock(&self.state);
        state.add(batch);
        while state.writing && !state.broken && (state.bytes > BYTES_MAX || state.requests > self.export.requests_max())
        {
            state = self.wait(state);
        }
        self.send(state, Wait::Briefly, work);
    }

    /// The connection's own thread waits until somebody wrote. It ends with the client: replies may be long in coming.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waits = true;
        let (mut state, waited) = self.room.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && self.stream.has_left() {
            self.stream.abandon();
            state.broken = true;
        }
        state
    }

    /// The frames of a write will not be filled.
    pub(crate) fn abort(&self, shard: u32, token: usize, fill: Fill, work: &mut Work) {
        self.cache.abort(shard, token, fill, work);
    }

    /// Somebody wrote. Most of the time nobody waits for that, and a system call is spared.
    fn tell(&self, state: &mut State) {
        if mem::take(&mut state.waits) {
            self.room.notify_one();
        }
    }

    fn send<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, wait: Wait, work: &mut Work) {
        if !mem::replace(&mut state.writing, true) {
            self.write(state, wait, work);
        }
    }

    /// Writes until nothing is queued, or the socket was full for as long as `wait` says. The caller is the one who writes.
    fn write<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, wait: Wait, work: &mut Work) {
        let mut progress = Instant::now();
        let mut full_since = None;
        loop {
            let mut batch = mem::take(&mut state.queue);
            if batch.is_empty() {
                // The memory serves again.
                state.queue = batch;
                state.writing = false;
                self.tell(&mut state);
                return;
            }
            let (mut sent, broken) = (state.sent, state.broken);
            drop(state);
            let (mut requests, mut bytes) = (0, 0);
            let mut result = if broken { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) };
            while result.is_ok() && !batch.is_empty() {
                result = self.write_some(&mut batch, &mut sent, wait != Wait::No, |reply| {
                    requests += usize::from(reply.ends);
                    bytes += reply.bytes;
                    self.dispose(reply, work);
                });
                if result.is_ok() {
                    progress = Instant::now();
                    full_since = None;
                }
            }
            let full = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            let is_slow = full && full_since.get_or_insert_with(Instant::now).elapsed() > SLOW;
            let patient = progress.elapsed() < PATIENCE && !(is_slow && self.gives_way(&batch));
            let goes_on = full && (wait == Wait::No || patient && self.spill(&mut batch, work));
            if wait != Wait::No {
                // Others may wait for the frames that were written or copied.
                self.cache.dispatch(work, Some(&**self));
            }
            state = lock(&self.state);
            state.requests -= requests;
            state.bytes -= bytes;
            match result {
                Ok(()) => {
                    state.sent = 0;
                    if state.queue.is_empty() {
                        state.queue = batch;
                    }
                }
                Err(_) if goes_on && !state.broken => {
                    batch.append(&mut state.queue);
                    state.queue = batch;
                    state.sent = sent;
                    if wait != Wait::Long {
                        self.hand_over(&mut state);
                        self.tell(&mut state);
                        return;
                    }
                }
                Err(error) => {
                    if !mem::replace(&mut state.broken, true) {
                        tracing::debug!(%error, "a reply cannot be written");
                        self.stream.abandon();
                    }
                    state.sent = 0;
                    batch.append(&mut state.queue);
                    state.requests -= batch.iter().filter(|reply| reply.ends).count();
                    state.bytes -= batch.iter().map(|reply| reply.bytes).sum::<usize>();
                    batch.into_iter().for_each(|reply| self.dispose(reply, work));
                }
            }
            self.tell(&mut state);
        }
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

    /// Writes once. `done` is given what is written whole.
    fn write_some(
        &self,
        batch: &mut VecDeque<Reply>,
        sent: &mut usize,
        wait: bool,
        mut done: impl FnMut(Reply),
    ) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(64);
        let (mut skip, mut bytes) = (*sent, 0);
        for reply in batch.iter() {
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
        let mut written = *sent + self.stream.write(&slices, wait)?;
        drop(slices);
        let mut now = None;
        while let Some(first) = batch.front()
            && written >= first.len()
        {
            written -= first.len();
            let reply = batch.pop_front().expect("not empty");
            if let Some((measure, asked)) = reply.measure {
                let now = *now.get_or_insert_with(Instant::now);
                let latency = now.saturating_duration_since(asked.since);
                self.disk().measure(measure, latency);
                self.recorder.record(self.disk(), self.client, &asked, latency);
            }
            done(reply);
        }
        *sent = written;
        Ok(())
    }

    fn hand_over(self: &Arc<Self>, state: &mut State) {
        state.handed = true;
        if mem::replace(&mut state.has_writer, true) {
            self.handed.notify_one();
            return;
        }
        let link = self.clone();
        let thread = std::thread::Builder::new().name("writer".into()).stack_size(WRITER_STACK);
        if let Err(error) = thread.spawn(move || link.run_writer()) {
            tracing::warn!(%error, "no thread to write replies: the connection is closed");
            state.broken = true;
            state.writing = false;
            self.stream.abandon();
        }
    }

    /// The writer: writes what others could not without waiting.
    fn run_writer(self: Arc<Self>) {
        let mut work = Work::default();
        let mut state = lock(&self.state);
        loop {
            if mem::take(&mut state.handed) {
                self.write(state, Wait::Long, &mut work);
                self.cache.dispatch(&mut work, None);
                state = lock(&self.state);
            } else if state.closed {
                return;
            } else {
                state = self.handed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until every request is replied to, or the connection broken.
    pub(crate) fn finish(&self) {
        let mut state = lock(&self.state);
        while !state.broken && (state.requests > 0 || state.writing) {
            state = self.wait(state);
        }
    }

    /// Nothing is read any more: ends the writer, and has later replies dropped.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.broken = true;
        state.closed = true;
        self.stream.abandon();
        self.handed.notify_one();
    }

    /// Whether the connection's own thread waits until less is unsent.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        let state = lock(&self.state);
        state.waits && state.bytes > BYTES_MAX
    }

    /// How many are in progress.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        lock(&self.state).requests
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

    use super::*;
    use crate::{ExportSettings, Server, Settings};

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
    fn what_is_handed_over_when_the_writer_is_gone_is_dropped() {
        // More than a socket holds.
        const LONG: usize = 1 << 20;
        let export = ExportSettings::new("disk", "memory:1M".parse().unwrap());
        let server = Server::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![export])).unwrap();
        let cache = server.host().cache();
        let export = server.common.find("disk").unwrap();
        let heap = cache.heap().left();
        let mut work = Work::default();
        let mut read = || {
            let (told, done) = channel();
            let submission = Submission { op: Op::Read, range: 0..BLOCK, fua: false, stream: Source(0) };
            let waiter = || Arc::new(Told(told)) as Arc<dyn Waiter>;
            let submitted = cache.submit(&export.disk, submission, &mut work, waiter).unwrap();
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
        while lock(&link.state).writing {
            std::thread::yield_now();
        }
        push(long());
        push(first);
        std::thread::scope(|scope| {
            let held = lock(&gate.state);
            scope.spawn(|| {
                // What it is to do after the socket was full and before it hands over.
                let mut work = Work::default();
                work.flush(&gate);
                link.send_batch(&mut Vec::new(), &mut work);
                cache.dispatch(&mut work, None);
            });
            while cache.heap().left() == heap - LONG {
                std::thread::yield_now();
            }
            push(second);
            link.close();
            while Arc::strong_count(&link) > 1 {
                std::thread::yield_now();
            }
            drop(held);
        });
        let state = lock(&link.state);
        assert!(state.queue.is_empty() && !state.writing, "{} replies wait for nobody", state.queue.len());
        assert_eq!((state.requests, cache.heap().left()), (0, heap));
        drop(state);
        server.host().remove("disk", true).unwrap();
        assert_eq!(server.host().host_statistics().frames_bytes, 0);
        server.shut_down().unwrap();
    }
}
