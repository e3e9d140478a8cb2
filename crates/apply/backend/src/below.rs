//! A level on other hosts as a device: a place of the level is a block there, on one of its servers.
//!
//! The index of the level, with a checksum for each block, is in this process. The device may therefore fail any operation, and may return
//! anything for a place that no server has any more. Its thread exchanges messages with the servers (`worker.rs`, `peer.rs`); other threads connect.
//!
//! **Invariant:** no job waits for a connection. While there is none to the server of a place, its jobs fail at once.
//!
//! **Invariant:** a server returns what was stored at a place last, or nothing. A connection begins with nothing, or resumes all that the server has. Places that
//! move to another server are forgotten where they were before, or the next connection there begins with nothing; nothing is stored there again before that.

mod connect;
mod jobs;
mod peer;
mod spread;
mod worker;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use nigh_tls::ClientTlsSettings;

use crate::device::{Completion, Device, Extent, Geometry, Job};
use crate::signal::Signal;

use connect::Connector;
use worker::Worker;

/// A server of a level, and what it has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerShare {
    /// HOST:PORT.
    pub address: String,
    /// The bytes of the level that are on this server. Places are spread over the servers in proportion.
    pub bytes: u64,
}

/// A level on other hosts, and the name by which their servers know this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLevel {
    /// The servers.
    pub servers: Vec<ServerShare>,
    /// This client: of two processes with the same name, only the first has the level.
    pub client: String,
    /// With this, connections are encrypted, and servers know this client also by the name in its certificate.
    pub tls: Option<ClientTlsSettings>,
    /// The number of the level: 1 if it is next to the memory.
    pub number: u8,
    /// Bytes of a block.
    pub block_bytes: u32,
}

/// State of one server of a level.
#[derive(Debug)]
pub struct ServerState {
    /// HOST:PORT.
    pub address: String,
    /// Its share of the level, as configured.
    pub bytes: AtomicU64,
    /// Whether there is no connection.
    pub is_off: AtomicBool,
    /// Connections that were lost.
    pub lost: AtomicU64,
    /// Blocks that the server no longer had.
    pub missed: AtomicU64,
}

/// State of a level on other hosts.
pub struct LevelLink {
    bytes: u64,
    block_bytes: u32,
    desk: Arc<Desk>,
    /// Whether there is no connection to any server.
    pub is_off: AtomicBool,
    /// Connections that were lost.
    pub lost: AtomicU64,
    /// Blocks that their server no longer had.
    pub missed: AtomicU64,
    servers: Mutex<Vec<Arc<ServerState>>>,
    news: Mutex<News>,
}

/// Messages of the servers, and the changes of their places.
#[derive(Default)]
struct News {
    /// Whether there is anything that was not taken.
    is_new: bool,
    left: Vec<u64>,
    /// Extents whose blocks are gone.
    gone: BTreeSet<u64>,
    free: u64,
    oldest_us: Option<u64>,
}

/// Counts and rooms that the servers of a level report with their replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelNews {
    /// Places, counted in blocks from the beginning of the device, whose blocks made room for others. Not necessarily all of them.
    pub left: Vec<u64>,
    /// Places that have nothing any more, nor get what is being stored there.
    pub gone: Vec<u64>,
    /// Blocks that fit in before one has to leave.
    pub free: u64,
    /// How long ago the block that would leave next was referenced.
    pub oldest_us: Option<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LevelLink {
    /// The news since the last call, if any.
    pub fn take_news(&self) -> Option<LevelNews> {
        let mut news = locked(&self.news);
        if !news.is_new {
            return None;
        }
        let left = std::mem::take(&mut news.left);
        let mut gone = Vec::new();
        while gone.len() < GONE_AT_ONCE
            && let Some(extent) = news.gone.pop_first()
        {
            gone.extend(spread::places(extent, self.block_bytes.into()));
        }
        news.is_new = !news.gone.is_empty();
        Some(LevelNews { left, gone, free: news.free, oldest_us: news.oldest_us })
    }

    /// Changes the servers, and the parts of the level that they have. Places that move are empty.
    pub fn change(&self, servers: Vec<ServerShare>) {
        self.desk.mail().servers = Some(servers);
        self.desk.wake.raise();
    }

    /// The servers.
    pub fn servers(&self) -> Vec<Arc<ServerState>> {
        locked(&self.servers).clone()
    }

    fn set_servers(&self, servers: Vec<Arc<ServerState>>) {
        *locked(&self.servers) = servers;
    }

    fn note(&self, left: Vec<u64>, free: u64, oldest_us: Option<u64>) {
        let mut news = locked(&self.news);
        // Whatever is left out is found to be missing when it is asked for.
        let room = LEFT_MOST.saturating_sub(news.left.len());
        news.left.extend(left.into_iter().take(room));
        (news.free, news.oldest_us, news.is_new) = (free, oldest_us, true);
    }

    fn note_gone(&self, extents: impl IntoIterator<Item = u64>) {
        let mut news = locked(&self.news);
        news.gone.extend(extents);
        news.is_new |= !news.gone.is_empty();
    }
}

/// The most places that left and were not looked at yet.
const LEFT_MOST: usize = 64 << 10;
/// Most places of gone blocks in one report.
const GONE_AT_ONCE: usize = 4096;

impl ServerState {
    fn new(share: &ServerShare) -> ServerState {
        ServerState {
            address: share.address.clone(),
            bytes: AtomicU64::new(share.bytes),
            is_off: AtomicBool::new(true),
            lost: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }
}

impl RemoteLevel {
    /// Opens it, as a device of `bytes`. With `required`, there must be a connection to each server at once; otherwise they are made in the
    /// background.
    pub fn open(&self, bytes: u64, required: bool) -> io::Result<(Box<dyn Device>, Arc<LevelLink>)> {
        let connector = Connector::new(self.clone())?;
        let mut sessions = Vec::new();
        for share in &self.servers {
            let session = match connector.connect(&share.address, 0) {
                Ok(session) => Ok(session),
                Err(error) if required => return Err(of(&share.address, &error)),
                Err(error) => {
                    tracing::warn!(level = share.address, %error, "the level cannot be used yet; the cache starts without it");
                    Err(error.to_string())
                }
            };
            sessions.push((Arc::new(ServerState::new(share)), session));
        }
        let desk = Arc::new(Desk { wake: Signal::new()?, done: Signal::new()?, mail: Mutex::default() });
        let link = Arc::new(LevelLink {
            bytes,
            block_bytes: self.block_bytes,
            desk: desk.clone(),
            is_off: AtomicBool::new(sessions.iter().all(|(_, session)| session.is_err())),
            lost: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            servers: Mutex::new(sessions.iter().map(|(state, _)| state.clone()).collect()),
            news: Mutex::default(),
        });
        let worker = Worker::new(connector.into(), desk.clone(), link.clone(), sessions);
        let thread = Builder::new().name("level".into()).spawn(move || worker.run())?;
        Ok((Box::new(Below { bytes, desk, thread: Some(thread) }), link))
    }

    /// Connects to each server once, as [`RemoteLevel::open`] does, and disconnects.
    pub fn probe(&self) -> io::Result<()> {
        let connector = Connector::new(self.clone())?;
        self.servers.iter().try_for_each(|share| {
            connector.connect(&share.address, 0).map(drop).map_err(|error| of(&share.address, &error))
        })
    }
}

/// The error of the server at `address`.
fn of(address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{address}: cannot connect: {error}"))
}

#[derive(Default)]
struct Mail {
    jobs: Vec<Job>,
    done: Vec<Completion>,
    /// Others than before.
    servers: Option<Vec<ServerShare>>,
    is_closing: bool,
}

/// State that the device shares with its thread.
struct Desk {
    wake: Signal,
    done: Signal,
    mail: Mutex<Mail>,
}

impl Desk {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        locked(&self.mail)
    }
}

/// The device.
struct Below {
    bytes: u64,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

struct Size(u64);

impl Geometry for Size {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0)
    }

    fn extents(&self, range: Range<u64>, _: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { range, hole: false }])
    }
}

impl Device for Below {
    fn geometry(&self) -> Arc<dyn Geometry> {
        Arc::new(Size(self.bytes))
    }

    fn submit(&mut self, job: Job) {
        self.desk.mail().jobs.push(job);
        self.desk.wake.raise();
    }

    fn poll(&mut self, _: Instant, done: &mut Vec<Completion>) {
        self.desk.done.clear();
        done.append(&mut self.desk.mail().done);
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(self.desk.done.as_fd())
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        self.desk.mail().is_closing = true;
        self.desk.wake.raise();
        if let Some(thread) = self.thread.take() {
            // A panic was reported on its thread.
            let _ = thread.join();
        }
    }
}
