//! The server: its threads, their beginning and end.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nigh_backend::{Device, Driver, Handle, OpenError, Options};
use nigh_engine::{ConfigError, Export, Fault};
use nigh_policy::Spec;

use crate::cache::{Cache, Work};
use crate::connection;
use crate::disk::{Disk, Opening};
use crate::http;
use crate::listen::{Listen, ListenError, Listener};
use crate::metrics::{Statistics, statistics};
use crate::settings::{BLOCK, ExportSettings, Settings};
use crate::stream::Stream;
use crate::sync::lock;

/// Stack of a connection's thread.
const CONNECTION_STACK: usize = 256 << 10;
/// How long a shutdown waits for clients to take their replies.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long it waits for those that cannot be told.
const FAREWELL_PIPES: Duration = Duration::from_millis(500);
/// How often the writing of dirty blocks is tried at the end.
const CLOSING_TRIES: u32 = 3;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to serve.
    #[error("there is no export to serve")]
    NoExports,
    /// There are more exports than numbers for them.
    #[error("{0} exports are more than can be served")]
    TooMany(usize),
    /// A name cannot be offered.
    #[error(transparent)]
    Offer(#[from] nigh_nbd::InvalidExport),
    /// A target cannot be opened.
    #[error("export {name}: {source}")]
    Open {
        /// The export.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// The size of a target cannot be told, or is 0.
    #[error("export {name}: {reason}")]
    Size {
        /// The export.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// There is less memory in the machine.
    #[error("{asked} MiB of memory were asked for, and the machine has {there} MiB")]
    Memory {
        /// In MiB.
        asked: u64,
        /// In MiB.
        there: u64,
    },
    /// A change asks for more memory than address space was reserved for.
    #[error("{asked} MiB of memory were asked for, and the server was started for at most {most} MiB")]
    MemoryMax {
        /// In MiB.
        asked: u64,
        /// In MiB.
        most: u64,
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

/// An export with dirty blocks that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {name}: writes are lost: {fault}")]
pub struct Unwritten {
    /// Its name.
    pub name: String,
    /// What its device said last.
    pub fault: Fault,
}

/// What the threads share.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) settings: Mutex<Settings>,
    stopping: AtomicBool,
    connections: Mutex<HashMap<u64, Arc<Stream>>>,
    /// A connection ended.
    left: Condvar,
    pub(crate) accepted: AtomicU64,
    /// One size is changed at a time.
    resizing: Mutex<()>,
}

/// A running server. It is to be shut down; one that is dropped instead leaves its threads running.
pub struct Server {
    common: Arc<Common>,
    handle: Handle,
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
        if settings.exports.len() > usize::from(u16::MAX) {
            return Err(StartError::TooMany(settings.exports.len()));
        }
        check_memory(settings.memory)?;
        let config = settings.engine();
        let opened = (0..).zip(&settings.exports).map(|(number, export)| open(number, export));
        let (disks, devices): (Vec<Disk>, Vec<_>) = opened.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        nigh_nbd::Exports::new(disks.iter().map(|disk| disk.offer()).collect())?;
        let limit = settings.shards() * disks.len() * config.limits.depth as usize;
        let (driver, handle) = Driver::new(limit)?;
        for (disk, device) in disks.iter().zip(devices) {
            handle.attach(disk.export, device);
        }
        let metrics = settings.metrics;
        let cache = Cache::new(
            settings.shards(),
            &config,
            settings.write_mode,
            disks.into(),
            settings.readahead.clone(),
            handle.clone(),
        )?;
        let common = Arc::new(Common {
            cache: Arc::new(cache),
            settings: Mutex::new(settings),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            resizing: Mutex::new(()),
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
        let mut server = Server { common, handle, listeners: Vec::new(), threads: Vec::new(), driver, timer };
        if let Some(listener) = http {
            server.accept(listener, "metrics", |common, socket| {
                http::answer(socket, &statistics(common));
            })?;
        }
        Ok(server)
    }

    /// Listens for clients. Where `insecure`, TCP need not be this machine's own.
    pub fn listen(&mut self, address: &Listen, insecure: bool) -> Result<(), StartError> {
        let listener = Listener::bind(address, insecure)?;
        self.accept(listener, "listener", |common, socket| connect(common, Stream::Socket(socket), || ()))
    }

    /// Listens on the sockets that the parent process passed by `LISTEN_FDS`; says how many.
    pub fn listen_on_passed(&mut self) -> Result<usize, StartError> {
        let passed = Listener::passed()?;
        let count = passed.len();
        for listener in passed {
            self.accept(listener, "listener", |common, socket| connect(common, Stream::Socket(socket), || ()))?;
        }
        Ok(count)
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
        connect(&self.common, Stream::of(input, output), left);
    }

    /// What it did so far, and holds at the moment.
    pub fn statistics(&self) -> Statistics {
        statistics(&self.common)
    }

    /// Changes the cache while it runs. Where anything changes, what the policy remembers of absent blocks is lost.
    pub fn change(&self, memory: u64, policy: &Spec) -> Result<(), StartError> {
        let mut settings = lock(&self.common.settings);
        let most = settings.memory_max.max(settings.memory);
        if memory > most {
            return Err(StartError::MemoryMax { asked: memory >> 20, most: most >> 20 });
        }
        let new_policy = Some(policy).filter(|policy| **policy != settings.policy);
        let new_blocks = Some(settings.blocks_per_shard(memory)).filter(|_| memory != settings.memory);
        self.common.cache.change(new_policy, new_blocks)?;
        settings.memory = memory;
        settings.policy = policy.clone();
        Ok(())
    }

    /// Lets no more clients in, finishes the replies to those there are, and writes everything back. What could not
    /// be written is told.
    pub fn shut_down(self) -> Result<(), Vec<Unwritten>> {
        let Common { cache, stopping, .. } = &*self.common;
        stopping.store(true, Ordering::Release);
        self.listeners.iter().for_each(|listener| listener.stop());
        self.common.say_farewell();
        let mut unwritten = Vec::new();
        for disk in &cache.disks {
            disk.set_opening(Opening::Closed);
            let mut result = Ok(());
            for _ in 0..CLOSING_TRIES {
                result = cache.close(disk.export);
                if result.is_ok() {
                    break;
                }
            }
            if let Err(fault) = result {
                unwritten.push(Unwritten { name: disk.name.clone(), fault });
            }
        }
        cache.wake_timer();
        if unwritten.is_empty() {
            for disk in &cache.disks {
                let _ = self.handle.detach(disk.export).recv();
            }
            self.handle.stop();
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
    let system = rustix::system::sysinfo();
    let there = system.totalram * u64::from(system.mem_unit);
    match memory > there {
        true => Err(StartError::Memory { asked: memory >> 20, there: there >> 20 }),
        false => Ok(()),
    }
}

fn open(number: u16, export: &ExportSettings) -> Result<(Disk, Box<dyn Device>), StartError> {
    let name = export.name.clone();
    let options = Options { read_only: export.read_only, block_bytes: BLOCK as u32, ..Options::default() };
    let device = export.target.open(&options).map_err(|source| StartError::Open { name: name.clone(), source })?;
    let geometry = device.geometry();
    let wrong = |reason| StartError::Size { name: name.clone(), reason };
    let size = geometry.size().map_err(|error| wrong(format!("its size cannot be told: {error}")))?;
    if size == 0 {
        return Err(wrong(format!("{} is empty", export.target)));
    }
    let target = export.target.to_string();
    Ok((Disk::new(Export(number), name, target, export.read_only, geometry, size), device))
}

/// Serves a client on a thread of its own.
fn connect(common: &Arc<Common>, stream: Stream, left: impl FnOnce() + Send + 'static) {
    let Some(id) = common.register(Arc::new(stream)) else { return };
    let at = common.clone();
    let thread = Builder::new().name("connection".into()).stack_size(CONNECTION_STACK);
    let serve = move || {
        at.serve(id);
        left();
    };
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!(%error, "no thread for a connection");
        common.forget(id);
    }
}

impl Common {
    pub(crate) fn connections(&self) -> usize {
        lock(&self.connections).len()
    }

    /// Counts a connection in; none if there are enough.
    fn register(&self, stream: Arc<Stream>) -> Option<u64> {
        let most = lock(&self.settings).connections_max;
        let mut connections = lock(&self.connections);
        if connections.len() >= most {
            tracing::warn!(most, "a connection is refused: there are as many as allowed");
            return None;
        }
        let id = self.accepted.fetch_add(1, Ordering::Relaxed);
        connections.insert(id, stream);
        Some(id)
    }

    fn forget(&self, id: u64) {
        lock(&self.connections).remove(&id);
        self.left.notify_all();
    }

    fn serve(&self, id: u64) {
        let stream = lock(&self.connections)[&id].clone();
        // One that came in too late to be told of the end.
        if !self.stopping.load(Ordering::Acquire) {
            self.look_at_sizes();
            tracing::debug!(id, "connected");
            match connection::serve(stream, &self.cache) {
                Ok(()) => tracing::debug!(id, "left"),
                Err(error) => tracing::info!(id, %error, "the connection ended"),
            }
        }
        self.forget(id);
    }

    /// Has the connections end, and waits for them.
    fn say_farewell(&self) {
        let begin = Instant::now();
        let mut connections = lock(&self.connections);
        connections.values().for_each(|stream| stream.stop_reading());
        while !connections.is_empty() {
            let pipes = connections.values().all(|stream| matches!(**stream, Stream::Pipes { .. }));
            let most = if pipes { FAREWELL_PIPES } else { FAREWELL };
            let Some(left) = most.checked_sub(begin.elapsed()) else { break };
            (connections, _) = self.left.wait_timeout(connections, left).expect("nobody panics with a lock");
        }
        connections.values().for_each(|stream| stream.shut_down());
    }

    /// Takes notice of targets whose size changed.
    fn look_at_sizes(&self) {
        let _one = lock(&self.resizing);
        for disk in &self.cache.disks {
            match disk.geometry.size() {
                Ok(size) if size != disk.size() && size > 0 => self.resize(disk, size),
                Ok(_) => {}
                Err(error) => tracing::warn!(disk = disk.name, %error, "its size cannot be told"),
            }
        }
    }

    fn resize(&self, disk: &Disk, size: u64) {
        let mode = lock(&self.settings).write_mode;
        disk.set_opening(Opening::Changing);
        let size = match self.cache.close(disk.export) {
            Ok(()) => size,
            Err(fault) => {
                tracing::error!(disk = disk.name, %fault, "its size changed, but its dirty blocks cannot be written");
                disk.size()
            }
        };
        match self.cache.open(disk.export, size, mode) {
            Ok(()) => {
                tracing::info!(disk = disk.name, before = disk.size(), size, "its size changed");
                disk.set_size(size);
                disk.set_opening(Opening::Open);
            }
            Err(error) => {
                tracing::error!(disk = disk.name, %error, "it cannot be opened with its new size");
                disk.set_opening(Opening::Closed);
            }
        }
    }
}
