//! The server of a level (`nigh level`): memory of this host, and perhaps a file, for caches on other hosts.
//!
//! Each connection has a thread, and more while it reads the file. The store's lock is held for one request: while a block is copied, and never while a thread waits
//! for a client or the file.

mod connection;
mod fetching;
mod file;

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nigh_host::front::lock;
use nigh_level::{ClientState, Limits, Store, StoreCounts};
use nigh_service::parts::{
    Controllers, Desk, Form, Fruitless, Gate, Listener, Newcomer, Peer, Place, Refusals, Report, Stream,
    allow_descriptors, attend_with, one_line, place,
};
use nigh_service::{
    Answer, Closed, Command, LenderClient, LenderCounts, LenderFile, LenderStatistics, Listen, MetricsSettings,
    SocketSettings,
};
use nigh_tls::{TlsError, TlsSettings};
use rustix::net::sockopt;
use rustls::ServerConfig;

use crate::error::StartError;

use file::File;
pub use file::LenderFileSettings;

/// When a silent client is first asked whether it is there, then how often, and how often in vain: a client whose machine is gone
/// keeps its name from its successor for no longer than that.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;
/// How long a reply may be without the client's acknowledgement: as long as all of the above.
const UNACKNOWLEDGED_MS: u32 = 25_000;

/// How long the end waits for connections, and for the file without any progress.
const END: Duration = Duration::from_secs(1);
const END_OF_FILE: Duration = Duration::from_secs(8);
const GLANCE: Duration = Duration::from_millis(2);

/// How the server of a level is set up.
#[derive(Clone, Debug)]
pub struct LenderSettings {
    /// Blocks of all clients and of each, in memory.
    pub limits: Limits,
    /// With this, blocks that memory has no room for are in a file.
    pub file: Option<LenderFileSettings>,
    /// Connections at a time. A part of them may be of clients that have not greeted; beyond that, the oldest of those are closed.
    pub connections_max: usize,
    /// With this, connections are encrypted, and the name of a client is that of its certificate.
    pub tls: Option<TlsSettings>,
    /// Statistics over HTTP.
    pub metrics: Option<MetricsSettings>,
}

/// A running server of a level. The contents of its memory are gone when it ends.
pub struct Lender {
    common: Arc<Common>,
    /// Writes the file.
    writer: Mutex<Option<JoinHandle<()>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    metrics: Option<SocketAddr>,
}

/// State that the threads share.
struct Common {
    store: Mutex<Store>,
    file: Option<File>,
    /// Threads that read it.
    fetching: AtomicUsize,
    limits: Limits,
    connections_max: usize,
    settings: Option<TlsSettings>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    start: Instant,
    /// The number of this start.
    instance: u64,
    stopping: AtomicBool,
    gate: Gate,
    guests: Mutex<HashMap<u64, Guest>>,
    accepted: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Connections beyond `connections_max`.
    crowded: Refusals,
    /// Newcomers that were closed for other connections.
    displaced: Refusals,
    fruitless: Fruitless,
    /// Connections that did not become those of a client: without an acceptable certificate, or of another program.
    strangers: Refusals,
    /// Connections whose name another one has.
    taken: Refusals,
    controllers: Arc<Controllers>,
}

/// A connection.
struct Guest {
    stream: Arc<Stream>,
    peer: SocketAddr,
    /// Until it greets.
    newcomer: Option<Newcomer>,
    /// Its names, once it has one: of the client, and of its namespaces.
    name: String,
    namespaces: Vec<String>,
}

impl Lender {
    /// Makes the level; nobody can connect yet.
    pub fn start(settings: LenderSettings) -> Result<Lender, StartError> {
        let LenderSettings { mut limits, file, connections_max, tls, metrics } = settings;
        let config = tls.as_ref().map(TlsSettings::configure).transpose().map_err(nigh_service::StartError::from)?;
        allow_descriptors(connections_max, 0, std::iter::empty()).map_err(nigh_service::StartError::from)?;
        let http = match &metrics {
            Some(metrics) => Some((metrics.listen()?, Desk::new(metrics.token()?))),
            None => None,
        };
        let opened = file.as_ref().map(|settings| File::open(settings, limits.block_bytes)).transpose()?;
        if let (Some(settings), Some((_, blocks, _))) = (&file, &opened) {
            limits = file::limits(limits, settings, *blocks)?;
        }
        limits.blocks_each = limits.blocks_each.min(limits.blocks);
        let mut store = Store::new(limits)?;
        let file = match opened {
            Some((file, _, image)) => {
                file.restore(image, &mut store)?;
                Some(file)
            }
            None => None,
        };
        let common = Common {
            store: Mutex::new(store),
            file,
            fetching: AtomicUsize::new(0),
            limits,
            connections_max,
            settings: tls,
            tls: Mutex::new(config),
            start: Instant::now(),
            instance: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
            stopping: AtomicBool::new(false),
            gate: Gate::default(),
            guests: Mutex::default(),
            accepted: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            crowded: Refusals::default(),
            displaced: Refusals::default(),
            fruitless: Fruitless::default(),
            strangers: Refusals::default(),
            taken: Refusals::default(),
            controllers: Arc::default(),
        };
        let metrics = http.as_ref().map(|((address, _), _)| *address);
        let lender =
            Lender { common: Arc::new(common), writer: Mutex::default(), listeners: Mutex::default(), metrics };
        if lender.common.file.is_some() {
            let common = lender.common.clone();
            let write = move || common.file.iter().for_each(|file| file.write_all(&common));
            let writer = Builder::new().name("writing".into()).spawn(write).map_err(nigh_service::StartError::from)?;
            *lock(&lender.writer) = Some(writer);
        }
        if let Some(((_, listener), desk)) = http {
            let common = lender.common.clone();
            let report: Report = Arc::new(move |form| match form {
                Form::Prometheus => Some(common.statistics().prometheus()),
                Form::Json => Some(common.statistics().json()),
                Form::Page { .. } | Form::History { .. } => None,
            });
            lender.accept(Listener::Tcp(listener), "metrics", move |_, socket, _| desk.attend(&report, socket))?;
        }
        Ok(lender)
    }

    /// As [`Service::close_gate`](nigh_service::Service::close_gate).
    pub fn close_gate(&self) -> Closed<'_> {
        self.common.gate.close()
    }

    /// The address of the statistics over HTTP, with the port that the system chose for port 0.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The file for what memory has no room for.
    pub fn file(&self) -> Option<&Path> {
        self.common.file.as_ref().map(File::path)
    }

    /// Listens for clients, and returns where: with the port that the system chose for port 0. Without TLS, the address has to be
    /// this machine's own, unless `insecure`.
    pub fn listen(&self, address: &Listen, insecure: bool) -> Result<Listen, nigh_service::StartError> {
        let is_safe = insecure || self.common.settings.is_some();
        let listener = Listener::bind(address, is_safe, &SocketSettings::default())?;
        let at = listener.address();
        self.accept(listener, "listener", Common::let_in)?;
        Ok(at.unwrap_or_else(|| address.clone()))
    }

    /// Takes the commands `status` and `reload` on a Unix socket that is its owner's alone.
    pub fn control(&self, path: &Path) -> Result<(), nigh_service::StartError> {
        let listener = Listener::bind(&Listen::Unix(path.to_owned()), false, &SocketSettings::default())?;
        self.accept(listener, "control", |common, socket, _| {
            let at = common.clone();
            attend_with(&common.controllers, socket, move |_, line| at.answer(line));
        })
    }

    /// Reads the certificates again, for connections from now on.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.common.reload()
    }

    /// Counters since the start, and the present state.
    pub fn statistics(&self) -> LenderStatistics {
        self.common.statistics()
    }

    /// Closes all connections, and keeps what the file has for the next start.
    pub fn shut_down(&self) {
        self.common.stopping.store(true, Ordering::Release);
        lock(&self.listeners).drain(..).for_each(|listener| listener.stop());
        self.common.controllers.shut_down();
        lock(&self.common.guests).values().for_each(|guest| guest.stream.shut_down());
        let Some(writer) = lock(&self.writer).take() else { return };
        let until = Instant::now() + END;
        while Instant::now() < until && (!writer.is_finished() || !lock(&self.common.guests).is_empty()) {
            std::thread::sleep(GLANCE);
        }
        // On a thread of its own: a file that does not respond does not delay the end for long.
        let (common, (sender, kept)) = (self.common.clone(), channel());
        let keep = move || {
            // It ends after what it is writing.
            if writer.join().is_ok() {
                common.file.iter().for_each(|file| file.keep(&common.store));
            }
            // After the limit, nobody waits.
            let _ = sender.send(());
        };
        let spawned = Builder::new().name("keeping".into()).spawn(keep);
        let progress = || self.common.file.as_ref().map_or(0, |file| file.progress.load(Ordering::Relaxed));
        let mut before = progress();
        while spawned.is_ok() && kept.recv_timeout(END_OF_FILE) == Err(RecvTimeoutError::Timeout) {
            let now = progress();
            if now == before {
                tracing::error!("the file of the level does not respond: it will start empty");
                return;
            }
            before = now;
        }
    }

    fn accept(
        &self,
        listener: Listener,
        name: &str,
        client: impl Fn(&Arc<Common>, OwnedFd, Peer) + Send + 'static,
    ) -> Result<(), nigh_service::StartError> {
        let listener = Arc::new(listener);
        lock(&self.listeners).push(listener.clone());
        let common = self.common.clone();
        let accept = move || {
            common.gate.wait();
            listener.accept_all(&common.stopping, |socket, peer| client(&common, socket, peer));
        };
        Builder::new().name(name.to_owned()).spawn(accept)?;
        Ok(())
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Common {
    /// Serves a connection on a thread of its own.
    fn let_in(self: &Arc<Common>, socket: OwnedFd, from: Peer) {
        std::thread::sleep(self.fruitless.pause());
        let socket = TcpStream::from(socket);
        // Fails if the client is gone already.
        let Ok(peer) = socket.peer_addr() else { return };
        let keepalive = sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)
            .and_then(|()| sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_PAUSE))
            .and_then(|()| sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_TRIES))
            .and_then(|()| sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MS));
        if let Err(error) = keepalive {
            tracing::debug!(%peer, %error, "a client that is gone will be noticed late");
        }
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(Stream::socket(socket.into()));
        let (most, now) = (self.connections_max, Instant::now());
        let mut guests = lock(&self.guests);
        let others = guests.iter().map(|(number, guest)| (*number, guest.stream.is_abandoned(), guest.newcomer));
        match place(others, Some(from), most, now) {
            Place::Free => {}
            Place::Of(other) => {
                let other = guests.get_mut(&other).expect("it is there");
                other.newcomer = None;
                other.stream.abandon();
                if let Some(closed) = self.displaced.add(now) {
                    tracing::warn!(closed, "connections that say nothing are closed for others");
                }
            }
            Place::None => {
                drop(guests);
                if let Some(refused) = self.crowded.add(now) {
                    tracing::warn!(%peer, refused, "rejected: there are {most} connections, as many as --connections allows");
                }
                return;
            }
        }
        let newcomer = Some(Newcomer { peer: from, since: now });
        let guest = Guest { stream: stream.clone(), peer, newcomer, name: String::new(), namespaces: Vec::new() };
        guests.insert(number, guest);
        drop(guests);
        let common = self.clone();
        let serve = move || {
            connection::serve(&common, number, &stream, peer);
            stream.shut_down();
            let guest = lock(&common.guests).remove(&number);
            if guest.is_some_and(|guest| guest.newcomer.is_some()) {
                common.fruitless.add();
            }
            // Usually those of this client.
            while lock(&common.store).free_some() {}
        };
        if let Err(error) = Builder::new().name("client".into()).spawn(serve) {
            lock(&self.guests).remove(&number);
            tracing::warn!(%peer, %error, "rejected: no thread can be started");
        }
    }

    /// Sends whole messages. `WouldBlock` if the client does not take them.
    fn send(&self, stream: &Stream, mut messages: &[u8]) -> io::Result<()> {
        self.sent_bytes.fetch_add(messages.len() as u64, Ordering::Relaxed);
        while !messages.is_empty() {
            let sent = stream.write(&[IoSlice::new(messages)], true)?;
            messages = &messages[sent..];
        }
        Ok(())
    }

    /// The time since the start, in microseconds.
    fn now_us(&self) -> u64 {
        Store::START_US + self.start.elapsed().as_micros() as u64
    }

    fn reload(&self) -> Result<(), TlsError> {
        let config = self.settings.as_ref().map(TlsSettings::configure).transpose();
        match config {
            Ok(config) => {
                *lock(&self.tls) = config;
                tracing::info!("the certificates were read again");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "the certificates stay as they were");
                Err(error)
            }
        }
    }

    fn statistics(&self) -> LenderStatistics {
        let block = u64::from(self.limits.block_bytes);
        let refused = [&self.crowded, &self.displaced, &self.strangers, &self.taken]
            .map(|refusals| refusals.count())
            .iter()
            .sum();
        let connections = lock(&self.guests).len() as u64;
        let store = lock(&self.store);
        let client = |ClientState { name, connections, blocks, counts }: ClientState<'_>| LenderClient {
            name: name.to_owned(),
            connections: connections.into(),
            used_bytes: u64::from(blocks) * block,
            counts: counted(counts),
        };
        let mut clients: Vec<LenderClient> = store.clients().map(client).collect();
        let (all, free) = (store.counts(), store.free());
        drop(store);
        let counts = counted(all);
        let file = self.file.as_ref().map(|file| LenderFile {
            path: file.path().display().to_string(),
            bytes: u64::from(self.limits.blocks) * block,
            reads: all.filed,
            damaged: all.damaged,
            writes: file.written.load(Ordering::Relaxed),
            faults: file.faults.load(Ordering::Relaxed),
            off: file.is_off(),
            oldest_read_us: file.oldest_read().map_or(0, |age| age.as_micros() as u64),
            stuck: file.is_stuck(),
        });
        clients.sort_by(|one, other| one.name.cmp(&other.name));
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        LenderStatistics {
            schema: 1,
            memory_bytes: u64::from(self.limits.memory_blocks) * block,
            used_bytes: u64::from(self.limits.blocks - free) * block,
            file,
            connections,
            accepted: count(&self.accepted),
            refused,
            received_bytes: count(&self.received_bytes),
            sent_bytes: count(&self.sent_bytes),
            counts,
            clients,
        }
    }

    fn answer(&self, line: &[u8]) -> Answer {
        match serde_json::from_slice(line) {
            Ok(Command::Status {}) => Answer { level: Some(self.statistics()), ..Answer::done() },
            Ok(Command::Reload {}) => match self.reload() {
                Ok(()) => Answer::done(),
                Err(error) => Answer::refused(one_line(&error.to_string())),
            },
            Ok(_) => Answer::refused("a level server has the commands 'status' and 'reload' only".to_owned()),
            Err(error) => Answer::refused(one_line(&format!("no command: {error}"))),
        }
    }
}

/// The counts of the store, as they are reported.
fn counted(counts: StoreCounts) -> LenderCounts {
    let StoreCounts { found, missed, demoted, replaced, invalidated, refused, .. } = counts;
    LenderCounts {
        retrieves: found + missed,
        hits: found,
        misses: missed,
        stores: demoted,
        evictions: replaced,
        invalidations: invalidated,
        refused_requests: refused,
    }
}
