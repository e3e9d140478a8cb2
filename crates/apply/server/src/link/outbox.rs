//! Replies on their way to a client: who writes them, and who waits for that.
//!
//! One thread at a time writes, without the lock. A thread that queues a reply while another one writes leaves it to that one.
//! A thread that must not wait for the socket hands over to the writer.

use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};

use super::{BYTES_MAX, GLANCE, Reply};

#[derive(Default)]
pub(super) struct State {
    /// Those that are written next.
    pub(super) queue: VecDeque<Reply>,
    /// Bytes of the first that are written.
    sent: usize,
    /// A thread is writing: one that queues a reply need not.
    pub(super) writing: bool,
    /// The writer is to go on with it.
    handed: bool,
    has_writer: bool,
    /// Requests in progress.
    pub(super) requests: usize,
    /// Of read replies in progress, as far as they were announced.
    pub(super) bytes: usize,
    /// Nothing more can be written.
    broken: bool,
    /// Nothing more will be queued.
    closed: bool,
    /// The connection's own thread waits.
    pub(super) waits: bool,
}

impl State {
    pub(super) fn add(&mut self, batch: &mut VecDeque<Reply>) {
        if self.queue.is_empty() {
            mem::swap(&mut self.queue, batch);
        } else {
            self.queue.append(batch);
        }
    }

    /// Whether there may be another request in progress, of `requests_max`, with this many bytes in its reply. If so, there is.
    pub(super) fn admits(&mut self, requests: usize, bytes: usize, requests_max: usize) -> bool {
        let full = self.requests + requests > requests_max || (self.bytes > 0 && self.bytes + bytes > BYTES_MAX);
        if full && !self.broken {
            return false;
        }
        self.requests += requests;
        self.bytes += bytes;
        true
    }

    /// Returns admitted requests and bytes that are not needed.
    pub(super) fn release(&mut self, requests: usize, bytes: usize) {
        self.requests -= requests;
        self.bytes -= bytes;
    }
}

/// The state, locked.
pub(super) type Held<'a> = MutexGuard<'a, State>;

/// Replies that one thread writes.
pub(super) struct Batch {
    pub(super) replies: VecDeque<Reply>,
    /// Bytes of the first that are written.
    pub(super) sent: usize,
    /// Nothing can be written.
    pub(super) broken: bool,
    /// Requests that are over, and bytes of their replies.
    requests: usize,
    bytes: usize,
}

impl Batch {
    /// A reply was written or will never be.
    pub(super) fn is_over(&mut self, reply: &Reply) {
        self.requests += usize::from(reply.ends);
        self.bytes += reply.bytes;
    }
}

/// Result of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it is written.
    All,
    /// The socket is full.
    Later,
    /// The connection is broken, and the rest will never be written.
    Never,
}

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// For the connection's own thread: there is room for requests, or all were replied to.
    room: Condvar,
    /// For the writer: there is something to be written, or nothing any more.
    handed: Condvar,
}

impl Outbox {
    pub(super) fn lock(&self) -> Held<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection's own thread waits until somebody wrote, or for a glance. It ends with the client, if that `has_left`:
    /// replies may be long in coming.
    pub(super) fn wait<'a>(&self, mut state: Held<'a>, has_left: impl FnOnce() -> bool) -> Held<'a> {
        state.waits = true;
        let (mut state, waited) = self.room.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && has_left() {
            state.broken = true;
        }
        state
    }

    /// Somebody wrote. Most of the time nobody waits for that, and a system call is spared.
    fn tell(&self, state: &mut State) {
        if mem::take(&mut state.waits) {
            self.room.notify_one();
        }
    }

    /// Has what is queued written, by the caller if nobody else does it. `transmit` writes a batch, as far as possible; what
    /// is left of a broken connection's it drops. If the socket is full, the writer goes on, which `start` starts if there is
    /// none.
    pub(super) fn send<'a>(
        &'a self,
        mut state: Held<'a>,
        start: impl FnOnce() -> bool,
        transmit: impl FnMut(&mut Batch) -> Sent,
    ) {
        if !mem::replace(&mut state.writing, true) {
            self.write(state, Some(start), transmit);
        }
    }

    /// Writes until nothing is queued. The caller is the one who writes. Without `start`, it is the writer.
    fn write<'a>(
        &'a self,
        mut state: Held<'a>,
        mut start: Option<impl FnOnce() -> bool>,
        mut transmit: impl FnMut(&mut Batch) -> Sent,
    ) {
        loop {
            let replies = mem::take(&mut state.queue);
            if replies.is_empty() {
                // The memory serves again.
                state.queue = replies;
                state.writing = false;
                return;
            }
            let mut batch = Batch { replies, sent: state.sent, broken: state.broken, requests: 0, bytes: 0 };
            drop(state);
            let sent = transmit(&mut batch);
            state = self.lock();
            state.release(batch.requests, batch.bytes);
            state.sent = 0;
            match sent {
                Sent::All | Sent::Never => {
                    state.broken |= sent == Sent::Never;
                    assert!(batch.replies.is_empty(), "replies are written or dropped");
                    if state.queue.is_empty() {
                        state.queue = batch.replies;
                    }
                }
                Sent::Later => {
                    batch.replies.append(&mut state.queue);
                    state.queue = batch.replies;
                    state.sent = batch.sent;
                    if !state.broken
                        && let Some(start) = start.take()
                    {
                        if self.hand_over(&mut state, start) {
                            self.tell(&mut state);
                            return;
                        }
                        state.broken = true;
                    }
                }
            }
            self.tell(&mut state);
        }
    }

    /// Whether there is a writer that goes on.
    fn hand_over(&self, state: &mut State, start: impl FnOnce() -> bool) -> bool {
        if !state.has_writer {
            state.has_writer = start();
        } else {
            self.handed.notify_one();
        }
        state.handed = state.has_writer;
        state.handed
    }

    /// The writer waits until it is its turn; none once the connection is closed.
    pub(super) fn wait_for_turn(&self) -> Option<Held<'_>> {
        let mut state = self.lock();
        while !mem::take(&mut state.handed) {
            if state.closed {
                return None;
            }
            state = self.handed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(state)
    }

    /// The writer, whose turn it is, writes until nothing is queued.
    pub(super) fn go_on<'a>(&'a self, state: Held<'a>, transmit: impl FnMut(&mut Batch) -> Sent) {
        self.write(state, None::<fn() -> bool>, transmit);
    }

    /// Waits until every request is replied to, or the connection broken.
    pub(super) fn finish(&self, has_left: impl Fn() -> bool) {
        let mut state = self.lock();
        while !state.broken && (state.requests > 0 || state.writing) {
            state = self.wait(state, &has_left);
        }
    }

    /// Nothing is read any more: ends the writer, and has later replies dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.closed = true;
        self.handed.notify_one();
    }
}

/// All orders of the steps of a connection's threads (`cargo xtask loom`).
#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::link::Data;

    /// Bytes of a reply.
    const LENGTH: usize = 2;

    /// A connection whose socket takes `room` bytes from threads that do not wait; what was written to it, what was dropped, and the
    /// writer.
    struct Connection {
        outbox: Outbox,
        room: Mutex<usize>,
        written: Mutex<Vec<u8>>,
        dropped: Mutex<Vec<u8>>,
        writer: Mutex<Option<thread::JoinHandle<()>>>,
        /// No thread for the writer can be started.
        alone: bool,
    }

    impl Connection {
        fn new(room: usize, alone: bool) -> Arc<Connection> {
            Arc::new(Connection {
                outbox: Outbox::default(),
                room: Mutex::new(room),
                written: Mutex::default(),
                dropped: Mutex::default(),
                writer: Mutex::default(),
                alone,
            })
        }

        fn transmit(&self, batch: &mut Batch, waits: bool) -> Sent {
            while !batch.broken && !batch.replies.is_empty() {
                let mut room = self.room.lock().expect("no error");
                if *room == 0 && !waits {
                    return Sent::Later;
                }
                *room = room.saturating_sub(1);
                drop(room);
                let Data::Heap(bytes) = &batch.replies[0].data else { panic!("bytes") };
                self.written.lock().expect("no error").push(bytes[batch.sent]);
                batch.sent += 1;
                if batch.sent == LENGTH {
                    batch.sent = 0;
                    let reply = batch.replies.pop_front().expect("not empty");
                    batch.is_over(&reply);
                }
            }
            if !batch.broken {
                return Sent::All;
            }
            while let Some(reply) = batch.replies.pop_front() {
                batch.is_over(&reply);
                let Data::Heap(bytes) = &reply.data else { panic!("bytes") };
                self.dropped.lock().expect("no error").push(bytes[0]);
            }
            Sent::Never
        }

        fn start(self: &Arc<Self>) -> bool {
            if !self.alone {
                let connection = self.clone();
                let writer = thread::spawn(move || {
                    while let Some(state) = connection.outbox.wait_for_turn() {
                        connection.outbox.go_on(state, |batch| connection.transmit(batch, true));
                    }
                });
                let before = self.writer.lock().expect("no error").replace(writer);
                assert!(before.is_none(), "two writers");
            }
            !self.alone
        }

        /// Replies to a request that was admitted.
        fn reply(self: &Arc<Self>, number: u8) {
            let data = Data::Heap(vec![number; LENGTH]);
            self.outbox.lock().queue.push_back(Reply { data, bytes: LENGTH, ends: true, ..Reply::default() });
            self.outbox.send(self.outbox.lock(), || self.start(), |batch| self.transmit(batch, false));
        }

        /// Closes it, once all threads but the writer are done with it.
        fn close(&self) {
            self.outbox.close();
            let writer = self.writer.lock().expect("no error").take();
            if let Some(writer) = writer {
                writer.join().expect("no error");
            }
        }

        /// Everything is over: what was written whole, in order, and what was dropped.
        fn end(&self) -> (Vec<u8>, Vec<u8>) {
            let state = self.outbox.lock();
            assert!(state.queue.is_empty() && !state.writing, "{} replies wait for nobody", state.queue.len());
            assert_eq!((state.requests, state.bytes), (0, 0));
            let written = self.written.lock().expect("no error");
            let whole = written.chunks_exact(LENGTH).map(|reply| {
                assert_eq!(reply[0], reply[1], "a reply within another");
                reply[0]
            });
            let mut dropped = self.dropped.lock().expect("no error").clone();
            dropped.sort_unstable();
            (whole.collect(), dropped)
        }
    }

    fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 10_000;
        builder.check(model);
    }

    /// Two threads reply while the connection's own waits for the end: every reply is written once and whole, wherever the
    /// socket becomes full.
    #[test]
    fn every_reply_is_written_once() {
        for room in 0..=2 * LENGTH {
            check(2, move || {
                let connection = Connection::new(room, false);
                assert!([(); 3].iter().all(|()| connection.outbox.lock().admits(1, LENGTH, 3)));
                let other = connection.clone();
                let replies = thread::spawn(move || other.reply(1));
                connection.reply(2);
                connection.reply(3);
                connection.outbox.finish(|| false);
                assert_eq!(connection.written.lock().expect("no error").len(), 3 * LENGTH, "finished too early");
                replies.join().expect("no error");
                connection.close();
                let (written, dropped) = connection.end();
                let place = |number| written.iter().position(|&other| other == number).expect("it is written");
                assert!(written.len() == 3 && dropped.is_empty() && place(1) < 3 && place(2) < place(3), "{written:?}");
            });
        }
    }

    /// A connection is closed while another thread replies, and the writer may have something to do: every reply is written or
    /// dropped, and nothing waits for a writer that has ended.
    #[test]
    fn a_closed_connection_keeps_nothing() {
        for room in 0..=LENGTH {
            check(3, move || {
                let connection = Connection::new(room, false);
                assert!([(); 2].iter().all(|()| connection.outbox.lock().admits(1, LENGTH, 2)));
                let other = connection.clone();
                let replies = thread::spawn(move || other.reply(1));
                connection.reply(2);
                connection.close();
                replies.join().expect("no error");
                connection.close();
                let (written, dropped) = connection.end();
                let mut all = [written, dropped].concat();
                all.sort_unstable();
                // The beginning of a reply may have been written before it was dropped.
                all.dedup();
                assert_eq!(all, [1, 2]);
            });
        }
    }

    /// The connection's own thread waits until its requests are few enough, and is woken when they are.
    #[test]
    fn whoever_waits_for_room_gets_it() {
        check(3, || {
            let connection = Connection::new(1, false);
            assert!(connection.outbox.lock().admits(1, LENGTH, 1));
            let other = connection.clone();
            let replies = thread::spawn(move || other.reply(1));
            let mut state = connection.outbox.lock();
            while !state.admits(1, LENGTH, 1) {
                state = connection.outbox.wait(state, || false);
            }
            drop(state);
            connection.reply(2);
            connection.outbox.finish(|| false);
            replies.join().expect("no error");
            connection.close();
            assert_eq!(connection.end(), (vec![1, 2], vec![]));
        });
    }

    /// No writer can be started when the socket is full: the connection is broken, and keeps nothing.
    #[test]
    fn without_a_writer_all_is_dropped() {
        check(3, || {
            let connection = Connection::new(1, true);
            assert!([(); 2].iter().all(|()| connection.outbox.lock().admits(1, LENGTH, 2)));
            let other = connection.clone();
            let replies = thread::spawn(move || other.reply(1));
            connection.reply(2);
            connection.outbox.finish(|| false);
            replies.join().expect("no error");
            assert_eq!(connection.end(), (vec![], vec![1, 2]));
        });
    }
}
