//! Blocks of one connection that are read from the file: by threads of its own, so that a client, or a place of the file, that makes them wait delays no
//! other client.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use nigh_backend::PlacesBuffer;
use nigh_host::front::lock;
use nigh_level::{Fetch, ReadBlock};
use nigh_service::parts::Stream;

use super::Common;
use super::file::File;

/// The most threads of a connection.
const THREADS: usize = 4;
/// The most blocks of a connection that wait.
const WAITING: usize = 256;
/// How often a connection with too much looks whether the file responds.
const GLANCE: Duration = Duration::from_millis(100);

/// State that a connection and its threads share.
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

    /// Sends whole messages. If that fails, nothing more is sent: another message must not follow half of one.
    pub(super) fn send(&self, messages: &[u8]) -> io::Result<()> {
        let _alone = lock(&self.sending);
        let sent = self.common.send(&self.stream, messages);
        if sent.is_err() {
            self.stream.shut_down();
        }
        sent
    }

    /// Has a block read and sent. Waits if too much waits already. While the file does not respond, nothing waits: its blocks are not returned.
    pub(super) fn add(self: &Arc<Fetching>, fetch: Fetch) {
        let is_stuck = || self.common.file.as_ref().is_some_and(File::is_stuck);
        let mut work = lock(&self.work);
        while work.waiting.len() >= WAITING && !is_stuck() {
            work = self.changed.wait_timeout(work, GLANCE).unwrap_or_else(PoisonError::into_inner).0;
        }
        work.waiting.push_back(fetch);
        if is_stuck() {
            return self.skip(work);
        }
        self.changed.notify_all();
        if work.idle >= work.waiting.len() || work.threads >= THREADS {
            return;
        }
        if self.common.begin_fetching() {
            let at = self.clone();
            match Builder::new().name("fetching".into()).spawn(move || at.run()) {
                Ok(_) => {
                    work.threads += 1;
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "no thread to read the file of the level");
                    self.common.end_fetching();
                }
            }
        }
        if work.threads == 0 {
            self.skip(work);
        }
    }

    /// Nobody reads what waits.
    fn skip(&self, mut work: MutexGuard<'_, Work>) {
        let fetches: Vec<Fetch> = work.waiting.drain(..).collect();
        drop(work);
        fetches.iter().for_each(|fetch| self.reply(fetch, ReadBlock::Skipped));
    }

    /// The connection has ended. Waiting reads are still done, but nobody receives them.
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
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
                work.idle -= 1;
            }
            let Some(fetch) = work.waiting.pop_front() else { break };
            drop(work);
            self.changed.notify_all();
            let file: Option<&File> = self.common.file.as_ref();
            let read = file.map_or(ReadBlock::Damaged, |file| file.read(&fetch.filed, &mut buffer));
            self.reply(&fetch, read);
        }
        self.common.end_fetching();
    }

    fn reply(&self, fetch: &Fetch, read: ReadBlock<'_>) {
        let mut out = Vec::new();
        let mut store = lock(&self.common.store);
        let (reply, is_lost) = store.finish(self.common.now_us(), fetch, read);
        reply.encode(&mut out);
        drop(store);
        if let Some(file) = self.common.file.as_ref().filter(|_| is_lost) {
            file.note_damaged(&fetch.filed);
        }
        if let Err(error) = self.send(&out) {
            tracing::debug!(%error, "a client does not get a block");
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
