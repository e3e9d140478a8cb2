//! Blocks of one connection that are read from the file: by threads of its own, so that a client, or a place of the file, that makes them wait delays no
//! other client.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use nigh_backend::PlacesBuffer;
use nigh_host::front::lock;
use nigh_level::Fetch;

use super::Common;
use super::file::File;
use crate::stream::Stream;

/// The most threads of a connection.
const THREADS: usize = 4;
/// The most blocks of a connection that wait.
const WAITING: usize = 256;

/// What a connection and its threads share.
pub(super) struct Fetching {
    common: Arc<Common>,
    stream: Arc<Stream>,
    /// Held while a reply is sent.
    sending: Mutex<()>,
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    waiting: VecDeque<Fetch>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Fetching {
    pub(super) fn new(common: &Arc<Common>, stream: &Arc<Stream>) -> Arc<Fetching> {
        Arc::new(Fetching {
            common: common.clone(),
            stream: stream.clone(),
            sending: Mutex::default(),
            work: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Sends whole messages.
    pub(super) fn send(&self, messages: &[u8]) -> io::Result<()> {
        let _alone = lock(&self.sending);
        self.common.send(&self.stream, messages)
    }

    fn wait<'a>(&self, work: MutexGuard<'a, Work>) -> MutexGuard<'a, Work> {
        self.changed.wait(work).unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a block read and sent. Waits if too much waits already.
    pub(super) fn add(self: &Arc<Fetching>, fetch: Fetch) {
        let mut work = lock(&self.work);
        while work.waiting.len() >= WAITING {
            work = self.wait(work);
        }
        work.waiting.push_back(fetch);
        self.changed.notify_all();
        if work.idle >= work.waiting.len() || work.threads >= THREADS || !self.common.begin_fetching() {
            if work.threads > 0 {
                return;
            }
            // Nobody can read it.
            let fetches: Vec<Fetch> = work.waiting.drain(..).collect();
            drop(work);
            fetches.iter().for_each(|fetch| self.reply(fetch, None));
            return;
        }
        work.threads += 1;
        drop(work);
        let at = self.clone();
        let spawned = Builder::new().name("fetching".into()).spawn(move || at.run());
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to read the file of the level");
            self.common.end_fetching();
            let mut work = lock(&self.work);
            work.threads -= 1;
            if work.threads == 0 {
                let fetches: Vec<Fetch> = work.waiting.drain(..).collect();
                drop(work);
                fetches.iter().for_each(|fetch| self.reply(fetch, None));
            }
        }
    }

    /// The connection has ended. What waits is still read, but nobody receives it.
    pub(super) fn end(&self) {
        lock(&self.work).is_over = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut buffer = PlacesBuffer::new(1, self.common.limits.block_bytes);
        loop {
            let mut work = lock(&self.work);
            while work.waiting.is_empty() && !work.is_over {
                work.idle += 1;
                work = self.wait(work);
                work.idle -= 1;
            }
            let Some(fetch) = work.waiting.pop_front() else { break };
            drop(work);
            self.changed.notify_all();
            let file: Option<&File> = self.common.file.as_ref();
            let data = file.and_then(|file| file.read(&fetch.filed, &mut buffer));
            self.reply(&fetch, data);
        }
        self.common.end_fetching();
    }

    fn reply(&self, fetch: &Fetch, data: Option<&[u8]>) {
        let mut out = Vec::new();
        let mut store = lock(&self.common.store);
        store.finish(self.common.now_us(), fetch, data).encode(&mut out);
        drop(store);
        if let Err(error) = self.send(&out) {
            tracing::debug!(%error, "a client does not get a block");
            // The connection's thread notices.
            self.stream.shut_down();
        }
    }
}

impl Common {
    /// Whether another thread may read the file. [`Common::end_fetching`] follows.
    fn begin_fetching(&self) -> bool {
        let most = self.connections_max * THREADS;
        let begun = self
            .fetching
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |threads| (threads < most).then_some(threads + 1));
        begun.is_ok()
    }

    fn end_fetching(&self) {
        self.fetching.fetch_sub(1, Ordering::Relaxed);
    }
}
