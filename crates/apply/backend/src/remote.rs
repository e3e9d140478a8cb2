//! An export of an NBD server as a device.

mod connect;
mod exchange;
mod journal;
mod link;
mod server;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nigh_engine::Fault;
use nigh_nbd::uri::Uri;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::device::{Completion, Device, Extent, Geometry, Job};
use crate::error::{OpenError, OpenErrorKind, TargetError};
use crate::open::Options;
use crate::signal::Signal;
use crate::units::time;
use connect::{Connection, Connector, PAUSE_MAX, Tried, no_answer};
use exchange::{Exchange, Query};
use link::Link;
use server::Server;

/// How long jobs wait for a server that is gone or silent, unless its URI sets another time.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server is waited for when it is opened.
const OPENING: Duration = Duration::from_secs(10);
/// Connections at a time, if the server allows several, unless its URI sets another number.
const CONNECTIONS: usize = 4;
const CONNECTIONS_MAX: usize = 16;
/// How long somebody who asks for extents waits.
const ASKING: Duration = Duration::from_secs(5);

/// An export of an NBD server, as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExport {
    uri: Uri,
    patience: Duration,
    connections: usize,
}

impl NbdExport {
    /// Most file descriptors that it takes: those of connections that are lost and of those made instead, the watch and the signal.
    pub(crate) fn descriptors(&self) -> usize {
        2 * self.connections + 2
    }

    pub(crate) fn parse(text: &str) -> Result<NbdExport, TargetError> {
        let uri: Uri = text.parse().map_err(|error| TargetError::Uri { text: text.to_owned(), error })?;
        let (mut patience, mut connections) = (PATIENCE, CONNECTIONS);
        for (name, value) in &uri.extensions {
            let wrong = |what| TargetError::Value { text: value.clone(), what };
            match name.as_str() {
                "x-reconnect" => {
                    let within = Duration::from_secs(1)..=Duration::from_secs(3600);
                    let given = time(value)?;
                    patience = Some(given)
                        .filter(|given| within.contains(given))
                        .ok_or(wrong("a time from 1s to 3600s, such as `x-reconnect=60s`"))?;
                }
                "x-connections" => {
                    let given = value.parse().ok().filter(|given| (1..=CONNECTIONS_MAX).contains(given));
                    connections = given.ok_or(wrong("a number of connections from 1 to 16"))?;
                }
                _ => {
                    let takes = "x-reconnect=TIME and x-connections=N";
                    return Err(TargetError::Option { kind: "nbd", word: name.clone(), nearest: None, takes });
                }
            }
        }
        Ok(NbdExport { uri, patience, connections })
    }

    /// The error if the server does not let a client have the export. Returns its size in bytes.
    pub(crate) fn check(&self, options: &Options) -> Result<u64, OpenError> {
        let one = NbdExport { connections: 1, ..self.clone() };
        Ok(one.open(options)?.shared.size)
    }

    pub(crate) fn open(&self, options: &Options) -> Result<Remote, OpenError> {
        let fail = |kind, action, source| OpenError { kind, action, path: self.to_string().into(), source };
        let system = |source| fail(OpenErrorKind::System, "watch", source);
        let signal = Arc::new(Signal::new().map_err(system)?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| system(error.into()))?;
        epoll::add(&watch, &signal, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)
            .map_err(|error| system(error.into()))?;
        let connector = Connector::start(&self.uri, self.connections, Duration::ZERO, &signal).map_err(system)?;
        let unsuitable = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let connections = match connector.tried.recv_timeout(OPENING) {
            Ok(Ok(connections)) => connections,
            Ok(Err(reason)) => return Err(fail(OpenErrorKind::System, "connect to", io::Error::other(reason))),
            Err(_) => return Err(fail(OpenErrorKind::System, "connect to", no_answer())),
        };
        let server = describe(&connections, options.block_bytes)
            .map_err(|reason| fail(OpenErrorKind::Unsuitable, "use", unsuitable(reason)))?;
        if server.features.read_only && !options.read_only {
            let source = unsuitable("the server offers it for reading only: add `read-only`".to_owned());
            return Err(fail(OpenErrorKind::Denied, "write to", source));
        }
        let (staged, trouble) = (AtomicU64::new(0), Mutex::default());
        let shared = Shared { size: server.size, queries: Mutex::default(), signal, staged, trouble };
        let now = Instant::now();
        let mut remote = Remote {
            export: self.clone(),
            disk: options.name.clone(),
            block_bytes: options.block_bytes,
            shared: Arc::new(shared),
            watch,
            exchange: Exchange::new(server.clone()),
            links: Vec::new(),
            connector: None,
            connects: None,
            reason: String::new(),
            progress: now,
            adopted: now,
            given_up: None,
        };
        remote.adopt(connections, server).map_err(|error| system(error.into()))?;
        Ok(remote)
    }
}

/// As it is parsed.
impl fmt::Display for NbdExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

fn describe(connections: &[Connection], block: u32) -> Result<Server, String> {
    let first = connections.first().ok_or("there is no connection")?;
    Server::new(&first.export, first.allocation, block)
}

/// State of the device for other threads.
struct Shared {
    size: u64,
    queries: Mutex<Vec<Query>>,
    /// Raised when there are queries, and by the connector.
    signal: Arc<Signal>,
    /// How many bytes the server may lose.
    staged: AtomicU64,
    /// Why it does nothing at present.
    trouble: Mutex<Option<String>>,
}

impl Shared {
    fn queries(&self) -> MutexGuard<'_, Vec<Query>> {
        self.queries.lock().expect("nobody panics with it")
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().expect("nobody panics with it")
    }
}

impl Geometry for Shared {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    /// From its journal.
    fn replays(&self) -> bool {
        true
    }

    fn staged(&self) -> u64 {
        self.staged.load(Ordering::Relaxed)
    }

    fn trouble(&self) -> Option<String> {
        Shared::trouble(self).clone()
    }

    /// A range that the server does not describe is data.
    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        let until = Instant::now() + ASKING;
        let mut extents = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < most {
            let (answer, answered) = sync_channel(1);
            self.queries().push(Query { range: at..range.end, answer });
            self.signal.raise();
            let found = answered.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_default();
            let before = at;
            for extent in found.into_iter().take(most - extents.len()) {
                at = extent.range.end.min(self.size);
                extents.push(Extent { range: extent.range.start..at, ..extent });
            }
            if at <= before {
                extents.push(Extent { range: before..range.end, hole: false });
                at = range.end;
            }
        }
        Ok(extents)
    }
}

/// The number of the signal in epoll. Links have their own numbers.
const OWN: u64 = u64::MAX;

/// The device.
pub(crate) struct Remote {
    export: NbdExport,
    /// Whose device it is, for the log.
    disk: String,
    block_bytes: u32,
    shared: Arc<Shared>,
    /// Readable when a link or the signal is.
    watch: OwnedFd,
    exchange: Exchange,
    links: Vec<Link>,
    /// While there is no connection.
    connector: Option<Connector>,
    /// When a connector is started for which there was no thread.
    connects: Option<Instant>,
    /// Why there is no connection.
    reason: String,
    /// When the server last replied to something, or had nothing to reply to.
    progress: Instant,
    /// When the connections were made.
    adopted: Instant,
    /// Jobs fail until the server is back: why.
    given_up: Option<String>,
}

impl Remote {
    /// Goes on with these connections.
    fn adopt(&mut self, connections: Vec<Connection>, server: Server) -> Result<(), Errno> {
        for (number, Connection { fd, framing, .. }) in (0..).zip(connections) {
            epoll::add(&self.watch, &fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            self.links.push(Link::new(fd, framing));
        }
        self.adopted = Instant::now();
        self.exchange.connected(server);
        Ok(())
    }

    /// The connections are of no use any more: others are made.
    fn lose(&mut self, reason: String) {
        tracing::warn!(disk = self.disk, target = %self.export, reason, "the connection to the NBD server is lost: connecting again");
        *self.shared.trouble() = Some(format!("the connection to the NBD server is lost: {reason}"));
        self.reason = reason;
        self.links.clear();
        self.exchange.lost();
        // A server that ends each connection at once is not asked all the time.
        let is_useless = self.progress <= self.adopted && self.adopted.elapsed() < PAUSE_MAX;
        self.connect(if is_useless { PAUSE_MAX } else { Duration::ZERO });
    }

    fn connect(&mut self, pause: Duration) {
        let NbdExport { uri, connections, .. } = &self.export;
        match Connector::start(uri, *connections, pause, &self.shared.signal) {
            Ok(connector) => self.connector = Some(connector),
            Err(error) => {
                tracing::warn!(disk = self.disk, target = %self.export, %error, "no thread to connect to the NBD server");
                self.connects = Some(Instant::now() + PAUSE_MAX);
            }
        }
    }

    /// Looks whether there is a connection again.
    fn reconnect(&mut self) {
        let Some(connector) = &self.connector else { return };
        let Some(tried) = connector.tried.try_iter().last() else { return };
        if let Err(Reason { text, is_other }) = self.welcome(tried) {
            self.reason = text;
            if is_other {
                self.give_up();
                self.connect(PAUSE_MAX);
            }
        }
    }

    fn welcome(&mut self, tried: Tried) -> Result<(), Reason> {
        let other = |text| Reason { text, is_other: true };
        let connections = tried.map_err(|text| Reason { text, is_other: false })?;
        let server = describe(&connections, self.block_bytes).map_err(other)?;
        if let Some(change) = self.exchange.server().change(&server) {
            return Err(other(format!("{change}: remove the export and add it again")));
        }
        self.connector = None;
        let unflushed = self.exchange.unflushed();
        if let Err(error) = self.adopt(connections, server) {
            self.lose(error.to_string());
            return Ok(());
        }
        tracing::info!(disk = self.disk, target = %self.export, unflushed, "connected to the NBD server again");
        if self.given_up.is_none() {
            *self.shared.trouble() = None;
        }
        Ok(())
    }

    /// Fails what waits, and what comes until the server is back.
    fn give_up(&mut self) {
        let reason = match self.links.is_empty() {
            true => self.reason.as_str(),
            false if self.exchange.is_refused() => "it refuses to repeat writes that it may have lost",
            false => "it does not answer",
        };
        if self.given_up.as_deref() == Some(reason) {
            return;
        }
        tracing::error!(disk = self.disk, target = %self.export, reason, "the NBD server is gone: requests fail until it is back");
        *self.shared.trouble() = Some(format!("the NBD server is gone, and requests fail until it is back: {reason}"));
        self.given_up = Some(reason.to_owned());
        for link in &mut self.links {
            link.retract(&mut self.exchange);
        }
        self.exchange.give_up(Fault(libc::EIO));
    }

    /// Takes the questions of other threads, and a connection if there is one again.
    fn attend(&mut self, now: Instant) {
        // Before the work that it announces, so that none is missed.
        self.shared.signal.clear();
        let queries = std::mem::take(&mut *self.shared.queries());
        if !queries.is_empty() {
            self.note_work(now);
            // Without an answer, those who ask know that.
            queries.into_iter().filter(|_| self.given_up.is_none()).for_each(|query| self.exchange.ask(query));
        }
        self.reconnect();
    }

    /// Receives on the links that are `ready`, and sends what there is to send.
    fn communicate(&mut self, ready: &[epoll::Event], now: Instant) -> Result<(), String> {
        for event in ready {
            let number = event.data.u64();
            if number != OWN
                && let Some(link) = self.links.get_mut(number as usize)
                && link.receive(number as usize, &mut self.exchange, now).map_err(|lost| lost.to_string())?
                && !self.exchange.is_refused()
            {
                self.progress = now;
            }
        }
        if self.exchange.is_left() {
            return Err("the server is shutting down".to_owned());
        }
        let links = self.links.len();
        while links > 0
            && let Some(flight) = self.exchange.next(now, |flight| flight % links)
        {
            self.links[self.exchange.link(flight)].push(flight);
        }
        for (number, link) in (0..).zip(&mut self.links) {
            let was_full = link.is_full();
            if !link.is_sent() {
                link.send(&self.exchange).map_err(|lost| lost.to_string())?;
            }
            if link.is_full() != was_full {
                let room = if link.is_full() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                let flags = epoll::EventFlags::IN | room;
                epoll::modify(&self.watch, link.fd(), epoll::EventData::new_u64(number), flags)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Before there is something for the server to do: it has until now had nothing to reply to.
    fn note_work(&mut self, now: Instant) {
        if !self.exchange.is_pending() {
            self.progress = now;
        }
    }

    fn expires(&self) -> Option<Instant> {
        let waits = self.exchange.is_pending() && self.given_up.is_none();
        waits.then(|| self.progress + self.export.patience)
    }
}

/// Why there is no connection.
struct Reason {
    text: String,
    /// The server is there, but it is another one than before.
    is_other: bool,
}

impl Device for Remote {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.shared.clone()
    }

    fn submit(&mut self, job: Job) {
        if self.given_up.is_some() {
            self.exchange.done.push(job.finish(Err(Fault(libc::EIO))));
            return;
        }
        self.note_work(Instant::now());
        self.exchange.submit(job);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            CONNECTIONS_MAX + 1];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Events that an interrupted call did not return are returned by the next one.
        let ready = epoll::wait(&self.watch, &mut events, Some(&at_once)).unwrap_or_default();
        let ready = &events[..ready];
        if ready.iter().any(|event| event.data.u64() == OWN) {
            self.attend(now);
        }
        if let Err(reason) = self.communicate(ready, now) {
            self.lose(reason);
        }
        if self.connects.take_if(|at| *at <= now).is_some() {
            self.connect(Duration::ZERO);
        }
        if self.expires().is_some_and(|expires| expires <= now) {
            self.give_up();
        }
        if self.given_up.is_some() && self.exchange.is_live() && !self.links.is_empty() {
            tracing::info!(disk = self.disk, target = %self.export, "the NBD server is back");
            self.given_up = None;
            *self.shared.trouble() = None;
        }
        self.shared.staged.store(self.exchange.unflushed_bytes(), Ordering::Relaxed);
        done.append(&mut self.exchange.done);
    }

    fn deadline(&self) -> Option<Instant> {
        self.expires().into_iter().chain(self.exchange.deadline()).chain(self.connects).min()
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn is_restless(&self) -> bool {
        true
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.links.iter_mut().for_each(Link::disconnect);
    }
}
