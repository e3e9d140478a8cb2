//! A level on another host as a device: a place of the level is a block there.
//!
//! The index of the level, with a checksum for each block, is in this process. So the device may fail any operation, and may return
//! anything for a place that the server no longer has. Its thread exchanges messages with the server; another one connects.
//!
//! **Invariant:** no job waits for a connection. While there is none, jobs fail at once.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nigh_engine::{Action, Fault};
use nigh_level::{Decoded, Hello, MESSAGE_MAX, Place, Refusal, Reply, Request, Result as Outcome, VERSIONS, Welcome};
use nigh_tls::{ClientConfig, ClientStream, ClientTlsSettings};

use crate::device::{Completion, Device, Extent, Geometry, Job};
use crate::signal::Signal;

/// How long a request may be without a reply, and how long connecting may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the log is silent about connecting after it said why that fails.
const SILENCE: Duration = Duration::from_secs(10);
/// The most blocks on their way to the server: what a read may have before it in the connection.
const STORES: usize = 32;
/// Bytes that are received at a time, at most.
const BUFFER: usize = 64 << 10;
/// The most requests on their way.
const REQUESTS: usize = 1024;
/// The most jobs that wait to be stored. Others fail.
const QUEUE: usize = 256;

/// A level server, and the name by which it knows this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelServer {
    /// HOST:PORT.
    pub address: String,
    /// This client: of two processes with the same name, only the first has the level.
    pub client: String,
    /// With this, the connection is encrypted, and the server knows this client also by the name in its certificate.
    pub tls: Option<ClientTlsSettings>,
    /// The number of the level: 1 if it is next to the memory.
    pub level: u8,
    /// Bytes of a block.
    pub block_bytes: u32,
}

/// What a level server is like at the moment.
#[derive(Debug, Default)]
pub struct LevelLink {
    /// Whether there is no connection.
    pub is_off: AtomicBool,
    /// Connections that were lost.
    pub lost: AtomicU64,
    /// Blocks that the server no longer had.
    pub missed: AtomicU64,
    /// What the server said since [`LevelLink::take_news`].
    news: Mutex<Option<LevelNews>>,
}

/// What a level server says with its replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelNews {
    /// The places, counted in blocks from the beginning of the device, whose blocks made room for others.
    pub left: Vec<u64>,
    /// Blocks that fit in before one has to leave.
    pub free: u64,
    /// How long ago the block that would leave next was referenced.
    pub oldest_us: Option<u64>,
}

impl LevelLink {
    /// What the server said since the last call, if anything.
    pub fn take_news(&self) -> Option<LevelNews> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, left: impl Iterator<Item = u64>, free: u64, oldest_us: Option<u64>) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let news = news.get_or_insert_default();
        // Whatever is left out is found to be missing when it is asked for.
        news.left.extend(left.take(LEFT_MOST.saturating_sub(news.left.len())));
        (news.free, news.oldest_us) = (free, oldest_us);
    }
}

/// The most places that left and were not looked at yet.
const LEFT_MOST: usize = 64 << 10;

/// The number of this process, for all its connections.
static INSTANCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));

/// Connects to a server, again and again.
struct Connector {
    server: LevelServer,
    /// The certificates, as they were read last.
    tls: Option<(ClientTlsSettings, Mutex<Arc<ClientConfig>>)>,
}

/// An open connection, in an epoch of its own.
struct Session {
    stream: ClientStream,
    namespace: u32,
    epoch: u64,
    requests: usize,
    blocks: u64,
}

impl LevelServer {
    /// Opens it. With `required`, there must be a connection at once; otherwise it is made in the background.
    pub fn open(&self, bytes: u64, required: bool) -> io::Result<(Box<dyn Device>, Arc<LevelLink>)> {
        let connector = Connector::new(self.clone())?;
        let session = match connector.connect() {
            Ok(session) => Ok(session),
            Err(error) if required => return Err(error),
            Err(error) => {
                tracing::warn!(level = self.address, %error, "the level cannot be used yet; the cache starts without it");
                Err(error.to_string())
            }
        };
        let link = Arc::new(LevelLink::default());
        link.is_off.store(session.is_err(), Ordering::Release);
        let desk = Arc::new(Desk { wake: Signal::new()?, done: Signal::new()?, mail: Mutex::default() });
        let worker = Worker::new(connector.into(), desk.clone(), link.clone(), session);
        let thread = Builder::new().name("level".into()).spawn(move || worker.run())?;
        Ok((Box::new(Below { bytes, desk, thread: Some(thread) }), link))
    }

    /// Connects once, as [`LevelServer::open`] does, and disconnects.
    pub fn probe(&self) -> io::Result<()> {
        Connector::new(self.clone())?.connect().map(drop)
    }
}

impl Connector {
    fn new(server: LevelServer) -> io::Result<Connector> {
        let tls = match &server.tls {
            Some(settings) => {
                let config = settings.configure().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
                Some((settings.clone(), Mutex::new(config)))
            }
            None => None,
        };
        Ok(Connector { server, tls })
    }

    /// Connects, and begins an epoch.
    fn connect(&self) -> io::Result<Session> {
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in self.server.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE).and_then(|socket| self.greet(socket)) {
                Ok(session) => return Ok(session),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The certificates, which may have been replaced since they were read last. If they cannot be read any more, those of then.
    fn config(settings: &ClientTlsSettings, last: &Mutex<Arc<ClientConfig>>) -> Arc<ClientConfig> {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match settings.configure() {
            Ok(config) => *last = config,
            Err(error) => tracing::debug!(%error, "the certificates stay as they were"),
        }
        last.clone()
    }

    fn greet(&self, socket: TcpStream) -> io::Result<Session> {
        let LevelServer { address, client, level, block_bytes, .. } = &self.server;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stream = match &self.tls {
            Some((settings, last)) => {
                let host = address.rsplit_once(':').map_or(&**address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                ClientStream::secure(socket, host, &Connector::config(settings, last))
                    .map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?
            }
            None => ClientStream::plain(socket),
        };
        let (mut out, mut input) = (Vec::new(), Vec::new());
        let versions = (*VERSIONS.start(), *VERSIONS.end());
        Hello { versions, block_bytes: *block_bytes, level: *level, instance: *INSTANCE, name: client }
            .encode(&mut out);
        stream.write_all(&out)?;
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        let welcome = loop {
            match Welcome::decode(&input).map_err(invalid)? {
                Decoded::Whole(welcome, length) => {
                    input.drain(..length);
                    break welcome;
                }
                Decoded::Need(_) => more(&mut stream, &mut input)?,
            }
        };
        // Later epochs of this client have higher numbers as long as clocks go forward.
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        out.clear();
        // Servers with the same certificate have a namespace each.
        Request::Open { name: client, epoch }.encode(0, &mut out);
        stream.write_all(&out)?;
        let namespace = loop {
            match Reply::decode(&input).map_err(invalid)? {
                Decoded::Whole(reply, length) => {
                    let opened = match reply.result {
                        Outcome::Opened { namespace } => Ok(namespace),
                        Outcome::Refused { refusal: Refusal::Taken, text } => {
                            Err(io::Error::other(format!("{text}, {client}: give each server its own --level-name")))
                        }
                        Outcome::Refused { text, .. } => Err(io::Error::other(text.to_owned())),
                        _ => Err(io::Error::new(ErrorKind::InvalidData, "another reply than to Open")),
                    };
                    input.drain(..length);
                    break opened?;
                }
                Decoded::Need(_) => more(&mut stream, &mut input)?,
            }
        };
        if !input.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "more than was asked for"));
        }
        stream.socket().set_nonblocking(true)?;
        let requests = (welcome.requests as usize).min(REQUESTS);
        Ok(Session { stream, namespace, epoch, requests, blocks: welcome.blocks })
    }
}

fn more(stream: &mut ClientStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(0) => Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "it closed the connection: is it a level server of this version?",
        )),
        Ok(read) => {
            input.extend(&bytes[..read]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(io::Error::new(ErrorKind::TimedOut, "no answer")),
        Err(error) => Err(error),
    }
}

#[derive(Default)]
struct Mail {
    jobs: Vec<Job>,
    done: Vec<Completion>,
    is_closing: bool,
}

/// What the device shares with its thread.
struct Desk {
    wake: Signal,
    done: Signal,
    mail: Mutex<Mail>,
}

impl Desk {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A job, as far as its blocks are asked for.
struct Begun {
    job: Job,
    next: u64,
    replies: u64,
    result: Result<(), Fault>,
}

/// A connection in use.
struct Live {
    session: Session,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// What is received at a time.
    buffer: Box<[u8]>,
    /// The requests without a reply: job and block of the job, by cookie.
    pending: HashMap<u64, (u64, u64)>,
    stores: usize,
    /// When each request was made, in that order, by cookie; those at the front may have their reply.
    made: VecDeque<(u64, Instant)>,
}

struct Worker {
    connector: Arc<Connector>,
    desk: Arc<Desk>,
    link: Arc<LevelLink>,
    live: Option<Live>,
    retry: Instant,
    connecting: Option<Receiver<io::Result<Session>>>,
    /// What the log said last of connecting, and when.
    complaint: Option<(String, Instant)>,
    begun: HashMap<u64, Begun>,
    reads: VecDeque<u64>,
    writes: VecDeque<u64>,
    /// Numbers for jobs and cookies.
    number: u64,
}

impl Worker {
    /// With a connection, or the reason that the log gave why there is none.
    fn new(
        connector: Arc<Connector>,
        desk: Arc<Desk>,
        link: Arc<LevelLink>,
        session: Result<Session, String>,
    ) -> Worker {
        let mut worker = Worker {
            connector,
            desk,
            link,
            live: None,
            retry: Instant::now() + PAUSE,
            connecting: None,
            complaint: None,
            begun: HashMap::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            number: 0,
        };
        match session {
            Ok(session) => worker.adopt(session),
            Err(reason) => worker.complaint = Some((reason, Instant::now())),
        }
        worker
    }

    fn adopt(&mut self, session: Session) {
        tracing::info!(level = self.server().address, blocks = session.blocks, "connected to the level");
        self.complaint = None;
        self.link.is_off.store(false, Ordering::Release);
        self.live = Some(Live {
            session,
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            buffer: vec![0; BUFFER].into(),
            pending: HashMap::new(),
            stores: 0,
            made: VecDeque::new(),
        });
    }

    fn run(mut self) {
        loop {
            let mut mail = self.desk.mail();
            let (jobs, is_closing) = (std::mem::take(&mut mail.jobs), mail.is_closing);
            drop(mail);
            if is_closing {
                return;
            }
            jobs.into_iter().for_each(|job| self.take(job));
            let now = Instant::now();
            self.reconnect(now);
            if let Some(Err(error)) = self.live.is_some().then(|| self.exchange(now)) {
                self.lose(&error, now);
            }
            let wait = self.wait();
            let socket = self.live.as_ref().map(|live| live.session.stream.as_fd());
            self.desk.wake.wait_with(socket.into_iter(), Some(wait));
        }
    }

    /// How long there may be nothing to do.
    fn wait(&self) -> Duration {
        match &self.live {
            // The socket takes no more at the moment.
            Some(live) if live.sent < live.out.len() || live.session.stream.is_unsent() => Duration::from_millis(1),
            Some(live) if !live.pending.is_empty() => PATIENCE / 4,
            Some(_) => Duration::from_secs(3600),
            None => PATIENCE / 4,
        }
    }

    fn done(&self, begun: Begun) {
        let Begun { job, result, .. } = begun;
        self.desk.mail().done.push(job.finish(result));
        self.desk.done.raise();
    }

    fn take(&mut self, job: Job) {
        let is_read = matches!(job.operation.action, Action::Read(_));
        let is_write = matches!(job.operation.action, Action::Write(_));
        let begun = Begun { job, next: 0, replies: 0, result: Ok(()) };
        if !is_read && !is_write {
            return self.done(begun);
        }
        if self.live.is_none() || is_write && self.writes.len() >= QUEUE {
            return self.done(Begun { result: Err(Fault(libc::ENOTCONN)), ..begun });
        }
        self.number += 1;
        self.begun.insert(self.number, begun);
        if is_read { &mut self.reads } else { &mut self.writes }.push_back(self.number);
    }

    fn reconnect(&mut self, now: Instant) {
        if self.live.is_some() {
            return;
        }
        let tried = self.connecting.as_ref().and_then(|tried| tried.try_recv().ok());
        if let Some(tried) = tried {
            self.connecting = None;
            self.retry = now + PAUSE;
            match tried {
                Ok(session) => self.adopt(session),
                Err(error) => self.complain(&error, now),
            }
        } else if self.connecting.is_none() && now >= self.retry {
            let (sender, tried): (Sender<_>, _) = channel();
            let (connector, desk) = (self.connector.clone(), self.desk.clone());
            let connect = move || {
                // Nobody waits any more if the device is closed.
                let _ = sender.send(connector.connect());
                desk.wake.raise();
            };
            self.retry = now + PAUSE;
            if Builder::new().name("connect".into()).spawn(connect).is_ok() {
                self.connecting = Some(tried);
            }
        }
    }

    fn server(&self) -> &LevelServer {
        &self.connector.server
    }

    /// Logs why there is no connection, unless it was said already.
    fn complain(&mut self, error: &io::Error, now: Instant) {
        let (level, words) = (&self.server().address, error.to_string());
        let is_new = self.complaint.as_ref().is_none_or(|(last, when)| *last != words && now - *when >= SILENCE);
        if is_new {
            tracing::warn!(level, %error, "cannot connect to the level; this is tried again each second");
            self.complaint = Some((words, now));
        } else {
            tracing::debug!(level, %error, "cannot connect to the level");
        }
    }

    /// The connection is of no use any more: what waits for it fails. Whatever the server still does with it belongs to an
    /// epoch that is over.
    fn lose(&mut self, error: &io::Error, now: Instant) {
        tracing::warn!(level = self.server().address, %error, "the connection to the level is lost; the cache continues without it");
        self.link.is_off.store(true, Ordering::Release);
        self.link.lost.fetch_add(1, Ordering::Relaxed);
        self.live = None;
        self.retry = now + PAUSE;
        (self.reads, self.writes) = Default::default();
        for (_, begun) in std::mem::take(&mut self.begun) {
            self.done(Begun { result: Err(Fault(libc::ENOTCONN)), ..begun });
        }
    }

    /// Receives, asks for more and sends, as far as that goes without waiting.
    fn exchange(&mut self, now: Instant) -> io::Result<()> {
        self.receive()?;
        self.fill(now);
        let Some(live) = &mut self.live else { return Ok(()) };
        while live.sent < live.out.len() {
            match live.session.stream.write(&live.out[live.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => live.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match live.session.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if live.sent == live.out.len() {
            live.out.clear();
            live.sent = 0;
        }
        while live.made.front().is_some_and(|(cookie, _)| !live.pending.contains_key(cookie)) {
            live.made.pop_front();
        }
        if live.made.front().is_some_and(|(_, made)| now.duration_since(*made) > PATIENCE) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server does not respond"));
        }
        Ok(())
    }

    fn fill(&mut self, now: Instant) {
        let block_bytes = u64::from(self.server().block_bytes);
        let Some(live) = &mut self.live else { return };
        while live.pending.len() < live.session.requests {
            let is_read = !self.reads.is_empty();
            let queue = if is_read { &mut self.reads } else { &mut self.writes };
            let Some(&number) = queue.front().filter(|_| is_read || live.stores < STORES) else { return };
            let Some(begun) = self.begun.get_mut(&number) else {
                queue.pop_front();
                continue;
            };
            self.number += 1;
            let cookie = self.number;
            let block = begun.job.operation.offset / block_bytes + begun.next;
            let place = Place { namespace: live.session.namespace, epoch: live.session.epoch, block };
            let level = self.connector.server.level;
            match &begun.job.operation.action {
                Action::Write(frames) => {
                    let Some(data) = frames.slices().nth(begun.next as usize) else { return };
                    let (from, to) = (level - 1, level);
                    let age_us = begun.job.operation.ages_us.get(begun.next as usize).copied().unwrap_or(0);
                    Request::Demote { place, from, to, age_us, sum: 0, data }.encode(cookie, &mut live.out);
                    live.stores += 1;
                }
                _ => {
                    let to = if begun.job.operation.leaves { level - 1 } else { level };
                    Request::Retrieve { place, from: Some(level), to: Some(to) }.encode(cookie, &mut live.out);
                }
            }
            live.pending.insert(cookie, (number, begun.next));
            live.made.push_back((cookie, now));
            begun.next += 1;
            if begun.next == begun.job.operation.length / block_bytes {
                queue.pop_front();
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let invalid = |error: String| io::Error::new(ErrorKind::InvalidData, error);
        let block_bytes = u64::from(self.server().block_bytes);
        loop {
            let Some(live) = &mut self.live else { return Ok(()) };
            match live.session.stream.read(&mut live.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => live.input.extend(&live.buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let mut used = 0;
            let mut complete = Vec::new();
            while let Decoded::Whole(reply, length) =
                Reply::decode(&live.input[used..]).map_err(|error| invalid(error.to_string()))?
            {
                used += length;
                let (namespace, epoch) = (live.session.namespace, live.session.epoch);
                let own = reply.notices.iter().filter(|notice| (notice.namespace, notice.epoch) == (namespace, epoch));
                self.link.note(own.map(|notice| notice.block), reply.free, reply.oldest_us);
                let (number, at) =
                    live.pending.remove(&reply.cookie).ok_or_else(|| invalid("a reply to no request".to_owned()))?;
                let Some(begun) = self.begun.get_mut(&number) else { continue };
                begun.replies += 1;
                match (reply.result, &mut begun.job.operation.action) {
                    (Outcome::Found { data, .. }, Action::Read(frames)) if data.len() as u64 == block_bytes => {
                        frames.slices_mut().skip(at as usize).take(1).for_each(|slice| slice.copy_from_slice(data));
                    }
                    // The checksum will not match.
                    (Outcome::Missed, Action::Read(frames)) => {
                        self.link.missed.fetch_add(1, Ordering::Relaxed);
                        frames.slices_mut().skip(at as usize).take(1).for_each(|slice| slice.fill(0xA5));
                    }
                    (Outcome::Done, Action::Write(_)) => live.stores -= 1,
                    (Outcome::Refused { refusal: Refusal::Limit, .. }, Action::Write(_)) => {
                        live.stores -= 1;
                        begun.result = Err(Fault(libc::ENOSPC));
                    }
                    (Outcome::Refused { text, .. }, _) => return Err(io::Error::other(text.to_owned())),
                    _ => return Err(invalid("a reply to another request".to_owned())),
                }
                if begun.replies == begun.job.operation.length / block_bytes {
                    complete.push(number);
                }
            }
            live.input.drain(..used);
            if live.input.len() > 2 * MESSAGE_MAX {
                return Err(invalid("a reply that is too long".to_owned()));
            }
            for number in complete {
                self.begun.remove(&number).into_iter().for_each(|begun| self.done(begun));
            }
        }
    }
}
