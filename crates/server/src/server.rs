//! The server: its threads, their beginning and end.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nigh_backend::{Driver, Handle};
use nigh_control::Directive;
use nigh_engine::ConfigError;
use nigh_policy::Spec;
use rustls::ServerConfig;

use crate::admin::{ChangeError, ExportError, Unwritten, check_clients};
use crate::cache::{Cache, Work};
use crate::connection::{self, Refused};
use crate::control::{self, Reload};
use crate::disk::{DISKS_MAX, Disk, Opening};
use crate::hints::FileExtent;
use crate::http;
use crate::listen::{Listen, ListenError, Listener};
use crate::metrics::{Statistics, statistics};
use crate::negotiate::Guest;
use crate::options::ExportOptions;
use crate::refusals::Refusals;
use crate::settings::{ExportSettings, Settings};
use crate::stream::Stream;
use crate::sync::lock;
use crate::tls::{self, TlsError};

/// Stack of a connection's thread.
const CONNECTION_STACK: usize = 256 << 10;
/// How long a shutdown waits for clients to take their replies.
const FAREWELL: Duration = Duration::from_secs(20);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to serve.
    #[error("there is no export to serve")]
    NoExports,
    /// An export cannot be served.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is less memory in the machine.
    #[error("{asked} MiB of memory were asked for, and the machine has {there} MiB")]
    Memory {
        /// In MiB.
        asked: u64,
        /// In MiB.
        there: u64,
    },
    /// The cache cannot be set up so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Statistics cannot be served.
    #[error("cannot serve statistics on {0}: {1}")]
    Metrics(std::net::SocketAddr, std::io::Error),
    /// The system gives no thread or descriptor.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// What the threads share.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) handle: Handle,
    /// As they are now; those of the exports are with the disks, and what is fetched ahead is with the cache.
    pub(crate) settings: Mutex<Settings>,
    /// The certificates that new clients meet.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) clients: Mutex<HashMap<u64, Client>>,
    /// A client left.
    pub(crate) left: Condvar,
    pub(crate) accepted: AtomicU64,
    /// Connections beyond `Settings::connections_max`.
    pub(crate) refusals: Refusals,
    pub(crate) controllers: Mutex<Vec<Arc<UnixStream>>>,
    /// Held by the one who changes the server.
    pub(crate) administration: Mutex<()>,
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: Arc<Stream>,
    /// What it chose.
    pub(crate) disk: Option<Arc<Disk>>,
    /// The names of its certificate, if it chose.
    pub(crate) names: Vec<String>,
}

/// A running server. It is to be shut down; one that is dropped instead leaves its threads running.
pub struct Server {
    pub(crate) common: Arc<Common>,
    listeners: Vec<Arc<Listener>>,
    threads: Vec<JoinHandle<()>>,
    driver: JoinHandle<()>,
    timer: JoinHandle<()>,
}

impl Server {
    /// Opens the targets and starts the threads that do I/O; nobody can connect yet.
    pub fn start(mut settings: Settings) -> Result<Server, StartError> {
        // Their number stays, whatever memory becomes.
        settings.shards = Some(settings.shards());
        if settings.exports.is_empty() {
            return Err(StartError::NoExports);
        }
        check_memory(settings.memory)?;
        let config = settings.engine();
        let tls = settings.tls.as_ref().map(tls::configure).transpose()?;
        let limit = settings.shards() * DISKS_MAX * settings.depth as usize;
        let (driver, handle) = Driver::new(limit)?;
        let (metrics, exports) = (settings.metrics, std::mem::take(&mut settings.exports));
        let readahead = std::mem::take(&mut settings.readahead);
        let cache = Cache::new(settings.shards(), &config, settings.ports(), readahead, handle.clone())?;
        let common = Arc::new(Common {
            cache: Arc::new(cache),
            handle,
            settings: Mutex::new(settings),
            tls: Mutex::new(tls),
            stopping: AtomicBool::new(false),
            clients: Mutex::default(),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            refusals: Refusals::default(),
            controllers: Mutex::default(),
            administration: Mutex::new(()),
        });
        let http = match metrics {
            Some(address) => {
                let listener = std::net::TcpListener::bind(address);
                Some(Listener::Tcp(listener.map_err(|error| StartError::Metrics(address, error))?))
            }
            None => None,
        };
        let cache = common.cache.clone();
        let driver = Builder::new().name("driver".into()).spawn(move || {
            let mut work = Work::default();
            driver.run(|done| {
                for completion in done.drain(..) {
                    cache.complete(completion, &mut work);
                }
                cache.settle(&mut work, None);
            });
        })?;
        let at = common.clone();
        let timer = Builder::new()
            .name("timer".into())
            .spawn(move || at.cache.keep_time(|| at.stopping.load(Ordering::Acquire)))?;
        let mut server = Server { common, listeners: Vec::new(), threads: Vec::new(), driver, timer };
        for export in exports {
            if let Err(error) = server.common.add_one(export) {
                // There is nothing to lose.
                let _ = server.shut_down();
                return Err(error.into());
            }
        }
        if let Some(listener) = http {
            server.accept(listener, "metrics", |common, socket| {
                http::answer(socket, &statistics(common));
            })?;
        }
        Ok(server)
    }

    /// Listens for clients. Where `insecure`, TCP need not be this machine's own.
    pub fn listen(&mut self, address: &Listen, insecure: bool) -> Result<(), StartError> {
        let listener = Listener::bind(address, insecure || self.has_tls())?;
        self.let_in(listener)
    }

    /// Listens on the sockets that the parent process passed by `LISTEN_FDS`; says how many.
    pub fn listen_on_passed(&mut self, insecure: bool) -> Result<usize, StartError> {
        let passed = Listener::passed(insecure || self.has_tls())?;
        let count = passed.len();
        for listener in passed {
            self.let_in(listener)?;
        }
        Ok(count)
    }

    /// Takes commands on a Unix socket that is its owner's alone. `reload` does what SIGHUP does, and says in words what went
    /// wrong.
    pub fn control(
        &mut self,
        path: &Path,
        reload: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), StartError> {
        let listener = Listener::bind(&Listen::Unix(path.to_owned()), false)?;
        let reload: Reload = Arc::new(reload);
        self.accept(listener, "control", move |common, socket| control::attend(common, socket, &reload))
    }

    fn has_tls(&self) -> bool {
        lock(&self.common.tls).is_some()
    }

    /// Clients over TCP have to start TLS, if there is any.
    fn let_in(&mut self, listener: Listener) -> Result<(), StartError> {
        let tcp = matches!(listener, Listener::Tcp(_));
        self.accept(listener, "listener", move |common, socket| {
            let tls = if tcp { lock(&common.tls).clone() } else { None };
            connect(common, Stream::socket(socket), tls, || ());
        })
    }

    fn accept(
        &mut self,
        listener: Listener,
        name: &str,
        client: impl Fn(&Arc<Common>, OwnedFd) + Send + 'static,
    ) -> Result<(), StartError> {
        let listener = Arc::new(listener);
        self.listeners.push(listener.clone());
        let common = self.common.clone();
        let accept = move || {
            while !common.stopping.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok(socket) => client(&common, socket),
                    Err(_) if common.stopping.load(Ordering::Acquire) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a client cannot be accepted");
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        self.threads.push(Builder::new().name(name.to_owned()).spawn(accept)?);
        Ok(())
    }

    /// Serves one client that is connected already, on a thread of its own: a socket twice, or two pipes. `left` is
    /// called when it has left.
    pub fn attach(&self, input: OwnedFd, output: OwnedFd, left: impl FnOnce() + Send + 'static) {
        connect(&self.common, Stream::of(input, output), None, left);
    }

    /// What it did so far, and holds at the moment.
    pub fn statistics(&self) -> Statistics {
        statistics(&self.common)
    }

    /// Changes the cache while it runs, a few blocks at a time. Another policy does not remember which blocks were evicted.
    pub fn change(&self, memory: u64, policy: &Spec) -> Result<(), ChangeError> {
        self.common.change(Some(memory), Some(policy))
    }

    /// Serves another export.
    pub fn add(&self, export: ExportSettings) -> Result<(), ChangeError> {
        self.common.add(export)
    }

    /// Removes an export: its clients are let go, and its dirty blocks written, or dropped if `discard`.
    pub fn remove(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        self.common.remove(name, discard)
    }

    /// Changes the settings of an export, except its name and target, while its clients work.
    pub fn set(&self, name: &str, options: &ExportOptions) -> Result<(), ChangeError> {
        self.common.set(name, |settings| options.apply(settings))
    }

    /// Says something on behalf of an export's clients: which of its blocks they need less, and what they will read.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use nigh_nbd::client::Client;
    /// use nigh_server::{Allocation, Chunk, Directive, ExportSettings, Order, Server, Settings};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let disk = ExportSettings::new("disk", "memory:16M".parse()?);
    /// let mut settings = Settings::new(4 << 20, "lru".parse()?, vec![disk]);
    /// settings.allocate = Some(Allocation::LruSp);
    /// let server = Server::start(settings)?;
    ///
    /// // It will be read from first to last, again and again: of what is there, the end is needed last.
    /// server.hint("disk", &Directive::SetPolicy { priority: 0, policy: Order::Mru })?;
    /// let all = Chunk { file: 0, bytes: None };
    /// server.hint("disk", &Directive::Predict { accesses: vec![all; 3] })?;
    ///
    /// let (ours, theirs) = UnixStream::pair()?;
    /// server.attach(theirs.try_clone()?.into(), theirs.into(), || ());
    /// let mut client = Client::connect(ours, "disk", &[])?;
    /// for _ in 0..3 {
    ///     for block in 0..4096 {
    ///         client.read(block * 4096, 4096)?;
    ///     }
    /// }
    /// client.disconnect()?;
    ///
    /// let disk = &server.statistics().exports[0];
    /// // LRU would have kept nothing until it is read again.
    /// assert!(disk.misses + disk.prefetch_issued < 3 * 4096);
    /// server.shut_down().map_err(|unwritten| unwritten[0].clone())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.common.hint(name, directive)
    }

    /// Makes `extents` the files of an export, which is one file, number 0, until then. What was said of it before is
    /// forgotten.
    pub fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.common.name_files(name, extents)
    }

    /// What was said on behalf of an export's clients, as far as it holds, as a sidecar of directives (docs/control.md).
    pub fn hints(&self, name: &str) -> Result<String, ChangeError> {
        self.common.hints(name)
    }

    /// Writes back what is dirty, of one export or of all, and flushes the devices.
    pub fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        self.common.write_back(name)
    }

    /// Makes memory, policy, read-ahead and exports those of `wanted`, and reads the certificates again. What does not succeed
    /// is told, and the rest done; where certificates cannot be read, or are missing for what exports want, nothing is.
    pub fn reload(&self, wanted: &Settings) -> Result<(), Vec<ChangeError>> {
        let only = |error: ChangeError| vec![error];
        let now = lock(&self.common.settings).clone();
        if wanted.tls.is_some() != now.tls.is_some() {
            return Err(only(ChangeError::TlsOnOff));
        }
        if (wanted.allocate, wanted.batch) != (now.allocate, now.batch) {
            return Err(only(ChangeError::Tenants));
        }
        let unknown = wanted.exports.iter().filter_map(|export| check_clients(export, wanted.tls.as_ref()).err());
        let unknown: Vec<_> = unknown.map(ChangeError::from).collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let tls = wanted.tls.as_ref().map(tls::configure).transpose().map_err(|error| only(error.into()))?;
        self.change(wanted.memory, &wanted.policy).map_err(only)?;
        self.common.cache.readahead.set(&wanted.readahead);
        *lock(&self.common.tls) = tls;
        lock(&self.common.settings).tls = wanted.tls.clone();
        self.common.reconcile(&wanted.exports)
    }

    /// Lets no more clients in, finishes the replies to those there are, and writes everything back. What could not
    /// be written is told.
    pub fn shut_down(self) -> Result<(), Vec<Unwritten>> {
        let Common { cache, handle, stopping, administration, .. } = &*self.common;
        // Whoever changes the server now finishes that.
        let changing = lock(administration);
        stopping.store(true, Ordering::Release);
        drop(changing);
        self.listeners.iter().for_each(|listener| listener.stop());
        for stream in &*lock(&self.common.controllers) {
            // Its client is gone already, if this fails.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let disks = cache.disks.all();
        disks.iter().for_each(|disk| disk.throttle.set(0, 0));
        self.common.dismiss(|_| true, FAREWELL);
        let mut unwritten = Vec::new();
        for disk in &disks {
            disk.set_opening(Opening::Closed);
            unwritten.extend(self.common.close(disk, false).err());
        }
        cache.wake_timer();
        if unwritten.is_empty() {
            for disk in &disks {
                let _ = handle.detach(disk.port).recv();
            }
            handle.stop();
            for thread in self.threads.into_iter().chain([self.driver, self.timer]) {
                thread.join().expect("threads do not panic");
            }
            Ok(())
        } else {
            Err(unwritten)
        }
    }
}

/// Says no where `memory` bytes are more than the machine has.
fn check_memory(memory: u64) -> Result<(), StartError> {
    let there = machine_memory();
    match memory > there {
        true => Err(StartError::Memory { asked: memory >> 20, there: there >> 20 }),
        false => Ok(()),
    }
}

/// Memory of the machine, in bytes.
pub(crate) fn machine_memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit)
}

/// Serves a client on a thread of its own.
fn connect(common: &Arc<Common>, stream: Stream, tls: Option<Arc<ServerConfig>>, left: impl FnOnce() + Send + 'static) {
    let Some(id) = common.register(Arc::new(stream)) else { return };
    let at = common.clone();
    let thread = Builder::new().name("connection".into()).stack_size(CONNECTION_STACK);
    let serve = move || {
        at.serve(id, tls);
        left();
    };
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!(%error, "no thread for a connection");
        common.forget(id);
    }
}

impl Common {
    /// How many clients there are, and how many of them have each of `disks`.
    pub(crate) fn connections(&self, disks: &[Arc<Disk>]) -> (u64, Vec<u64>) {
        let clients = lock(&self.clients);
        let of = |disk| clients.values().filter(|client| client.has(disk)).count() as u64;
        (clients.len() as u64, disks.iter().map(of).collect())
    }

    /// Counts a connection in; none if there are enough.
    pub(crate) fn register(&self, stream: Arc<Stream>) -> Option<u64> {
        let most = lock(&self.settings).connections_max;
        let mut clients = lock(&self.clients);
        if clients.len() >= most {
            drop(clients);
            if let Some(refused) = self.refusals.add(Instant::now()) {
                tracing::warn!(most, refused, "connections are refused: there are as many as allowed");
            }
            return None;
        }
        let id = self.accepted.fetch_add(1, Ordering::Relaxed);
        clients.insert(id, Client { stream, disk: None, names: Vec::new() });
        Some(id)
    }

    /// The client, whose certificate has these names, chose a disk. It may be that it cannot have it, or not any more.
    pub(crate) fn enter(&self, id: u64, disk: &Arc<Disk>, names: &[String]) -> Result<(), Refused> {
        // Whoever changes the disk's settings looks at the clients afterwards.
        let mut clients = lock(&self.clients);
        if disk.is_leaving() {
            return Err(Refused::Leaving);
        }
        if !disk.is_for(names) {
            return Err(Refused::Others);
        }
        let most = disk.settings().connections;
        let there = clients.values().filter(|client| client.has(disk)).count() as u64;
        if most > 0 && there >= most {
            if let Some(refused) = disk.refusals.add(Instant::now()) {
                tracing::warn!(disk = disk.name, most, refused, "clients are refused: it has as many as allowed");
            }
            return Err(Refused::Full);
        }
        let client = clients.get_mut(&id).expect("it is registered");
        client.disk = Some(disk.clone());
        client.names = names.to_vec();
        Ok(())
    }

    pub(crate) fn forget(&self, id: u64) {
        lock(&self.clients).remove(&id);
        self.left.notify_all();
    }

    fn serve(&self, id: u64, tls: Option<Arc<ServerConfig>>) {
        let stream = lock(&self.clients)[&id].stream.clone();
        // One that came in too late to be told of the end.
        if !self.stopping.load(Ordering::Acquire) {
            self.look_at_sizes();
            tracing::debug!(id, "connected");
            match connection::serve(stream, &self.cache, &Guest { common: self, id, tls }) {
                Ok(()) => tracing::debug!(id, "left"),
                Err(error) => tracing::info!(id, %error, "the connection ended"),
            }
        }
        self.forget(id);
    }
}

impl Client {
    pub(crate) fn has(&self, disk: &Arc<Disk>) -> bool {
        self.disk.as_ref().is_some_and(|of| Arc::ptr_eq(of, disk))
    }
}
