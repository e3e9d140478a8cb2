//! The service: its threads, their beginning and end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nigh_control::Directive;
use nigh_host::front::lock;
use nigh_host::{FileExtent, Host, Late, Unwritten};
use nigh_policy::Spec;
use nigh_tls::TlsSettings;
use rustix::event::{EventfdFlags, eventfd};
use rustls::ServerConfig;

use crate::admin;
use crate::choices::Choices;
use crate::clients::Common;
use crate::control::{self, Program, ReloadError};
use crate::descriptors::allow_descriptors;
use crate::error::{ChangeError, HandOverError, StartError};
use crate::export::Export;
use crate::gate::Closed;
use crate::guest::{Front, Guest};
use crate::handover::{self, HandedOver, OfferedSocket, Purpose, Successor};
use crate::http::{Desk, Form, Report};
use crate::listen::{Listen, Listener};
use crate::metrics::{Statistics, statistics};
use crate::newcomers::Peer;
use crate::options::ExportOptions;
use crate::recording::{RecordError, Recorder, Recording};
use crate::replace::Sockets;
use crate::settings::{ExportSettings, Settings, SocketSettings};
use crate::stream::Stream;

/// Stack of a connection's thread.
const CONNECTION_STACK: usize = 256 << 10;
/// How long a shutdown waits for clients to take their replies, unless it has less than twice as long in all.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long a shutdown waits for the file of a recording, although its time is over.
const RECORDING: Duration = Duration::from_millis(200);
/// How long the start waits for devices that do not respond.
const OPENING: Duration = Duration::from_secs(5);
/// How often everything is written before a server ends for another one, while clients write.
const WRITES_AHEAD: u32 = 4;
/// Dirty bytes that are written fast enough.
const LITTLE: u64 = 16 << 20;
/// The interval between checks of a thread that is to end.
const GLANCE: Duration = Duration::from_millis(1);

/// A running service. Dropping it shuts it down; what cannot be written then is lost.
pub struct Service {
    common: Arc<Common>,
    sockets: SocketSettings,
    stop_within: Duration,
    accepting: Arc<Mutex<Vec<Accepting>>>,
    /// Sockets of the server whose place it takes.
    inherited: Sockets,
    metrics: Option<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// It was shut down.
    ended: AtomicBool,
}

/// A listening socket, and the thread that accepts its clients.
struct Accepting {
    offered: OfferedSocket,
    listener: Arc<Listener>,
    /// Written to when the thread is to leave the socket to another process.
    left: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Service {
    /// Opens the targets and starts the threads that do I/O; nobody can connect yet.
    pub fn start(settings: Settings) -> Result<Service, StartError> {
        Service::start_with(settings, Sockets::default())
    }

    /// As `start`, in place of a server that has handed its sockets over: addresses that it had are listened on with those.
    pub fn start_with(settings: Settings, inherited: Sockets) -> Result<Service, StartError> {
        let agreed = settings.agreed().map_err(nigh_host::StartError::from)?;
        let Settings { mut host, exports, connections_max, front_descriptors, metrics, slow, sockets, .. } = agreed;
        let Settings { tls, stop_within, sandboxed, after_loss, .. } = settings;
        if exports.is_empty() {
            return Err(StartError::NoExports);
        }
        admin::check(&exports, tls.as_ref())?;
        host.disks = exports.iter().map(|export| export.disk.clone()).collect();
        let config = tls.as_ref().map(TlsSettings::configure).transpose()?;
        let of_exports = exports.iter().flat_map(|export| export.disk.opened());
        let of_levels = host.levels.iter().map(|level| &level.target);
        allow_descriptors(connections_max, front_descriptors, of_exports.chain(of_levels))?;
        let http = match &metrics {
            Some(metrics) => {
                let listen = Listen::Tcp(metrics.address.to_string());
                let listener = match inherited.take(Purpose::Metrics, &listen) {
                    Some(Listener::Tcp(listener)) => (listener.local_addr()?, listener),
                    _ => metrics.listen()?,
                };
                Some((listener, Desk::new(metrics.token()?)))
            }
            None => None,
        };
        let (host, late) = Host::start_within(host, OPENING)?;
        let flags = (sandboxed, http.is_some(), after_loss);
        let common = Common::new(host, (connections_max, front_descriptors), (tls, config), flags);
        common.recorder.slow.set(slow);
        let metrics = http.as_ref().map(|((address, _), _)| *address);
        let server = Service {
            common: Arc::new(common),
            sockets,
            stop_within,
            accepting: Arc::default(),
            inherited,
            metrics,
            threads: Mutex::default(),
            ended: AtomicBool::new(false),
        };
        for export in exports {
            match server.common.host.disk(&export.disk.name) {
                Some(disk) => server.common.add_export(Export::new(disk, export)),
                None => server.common.opening.add(export),
            }
        }
        open_late(&server.common, late)?;
        let common = server.common.clone();
        let measure = move || {
            let mut choices = Choices::default();
            common.meter.run(|is_note| {
                if is_note {
                    choices.log(&common.host);
                }
                common.recorder.slow.tell(Instant::now());
                common.exports().iter().map(|export| common.host.disk_statistics(&export.disk)).collect()
            });
        };
        lock(&server.threads).push(Builder::new().name("meter".into()).spawn(measure)?);
        if let Some(((_, listener), desk)) = http {
            let common = server.common.clone();
            let report: Report = Arc::new(move |form| match form {
                Form::Prometheus => Some(statistics(&common).prometheus()),
                Form::Json => Some(statistics(&common).json()),
                Form::Page { nonce } => Some(nigh_report::live_page(nonce)),
                Form::History { export } => common.meter.history(export),
            });
            let attend = move |_: &Arc<Common>, socket, _| desk.attend(&report, socket);
            server.accept(Listener::Tcp(listener), Purpose::Metrics, false, attend)?;
        }
        Ok(server)
    }

    /// The address of the statistics over HTTP, with the port that the system chose for port 0.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Records what clients ask from now on.
    pub fn record(&self, recording: Recording) -> Result<(), RecordError> {
        self.common.record(recording)
    }

    /// Listens for clients of `front`. Returns the address, with the port that the system chose for port 0. With `insecure`, TCP is not
    /// limited to loopback addresses.
    pub fn listen(&self, front: impl Front, address: &Listen, insecure: bool) -> Result<Listen, StartError> {
        let insecure = insecure || self.has_tls();
        let listener = match self.inherited.take(Purpose::Clients, address) {
            Some(listener) => {
                listener.permit(address, insecure, &self.sockets)?;
                listener
            }
            None => Listener::bind(address, insecure, &self.sockets)?,
        };
        let at = self.let_in(&(Arc::new(front) as Arc<dyn Front>), listener, false)?;
        Ok(at.unwrap_or_else(|| address.clone()))
    }

    /// As `listen`, on the sockets that the parent process passed by `LISTEN_FDS`, to this server or to the one whose place it takes, and returns how many there
    /// are. Those sockets have the permissions that the parent process gave them.
    pub fn listen_on_passed(&self, front: impl Front, insecure: bool) -> Result<usize, StartError> {
        let mut passed = Listener::passed(insecure || self.has_tls())?;
        passed.extend(self.inherited.take_passed());
        let (count, front) = (passed.len(), Arc::new(front) as Arc<dyn Front>);
        for listener in passed {
            self.let_in(&front, listener, true)?;
        }
        Ok(count)
    }

    /// Closes the sockets of the server whose place this one takes that are not listened on so far.
    pub fn close_inherited(&self) {
        self.inherited.close();
    }

    /// Until the result is dropped, listeners that are added from now on accept nobody: clients that connect wait. A server can therefore
    /// listen, drop privileges, and then accept.
    pub fn close_gate(&self) -> Closed<'_> {
        self.common.gate.close()
    }

    /// Takes commands on a Unix socket that is its owner's alone. `reload` does what SIGHUP does, and returns in words what went
    /// wrong.
    pub fn control(
        &self,
        path: &Path,
        reload: impl Fn() -> Result<(), ReloadError> + Send + Sync + 'static,
    ) -> Result<(), StartError> {
        self.control_with(path, Box::new(reload), None)
    }

    /// As `control`. `hand_over` has the service end for another server, which is answered and then waited for.
    pub fn control_and_hand_over(
        &self,
        path: &Path,
        reload: impl Fn() -> Result<(), ReloadError> + Send + Sync + 'static,
        hand_over: impl Fn(Successor) + Send + Sync + 'static,
    ) -> Result<(), StartError> {
        self.control_with(path, Box::new(reload), Some(Box::new(hand_over)))
    }

    fn control_with(
        &self,
        path: &Path,
        reload: Box<dyn Fn() -> Result<(), ReloadError> + Send + Sync>,
        hand_over: Option<Box<dyn Fn(Successor) + Send + Sync>>,
    ) -> Result<(), StartError> {
        let listen = Listen::Unix(path.to_owned());
        let listener = match self.inherited.take(Purpose::Control, &listen) {
            Some(listener) => listener,
            None => Listener::bind(&listen, false, &SocketSettings::default())?,
        };
        let accepting = self.accepting.clone();
        let sockets = Box::new(move || {
            lock(&accepting).iter().map(|accepting| (accepting.offered.clone(), accepting.listener.clone())).collect()
        });
        let program = Arc::new(Program { reload, hand_over, sockets });
        let attend = move |common: &Arc<Common>, socket, _| control::attend(common, socket, &program);
        self.accept(listener, Purpose::Control, false, attend)
    }

    fn has_tls(&self) -> bool {
        lock(&self.common.tls).1.is_some()
    }

    /// Lets clients connect, and returns where, if that has a name. Clients over TCP have to start TLS, if there is any.
    fn let_in(&self, front: &Arc<dyn Front>, listener: Listener, passed: bool) -> Result<Option<Listen>, StartError> {
        let tcp = matches!(listener, Listener::Tcp(_));
        let address = listener.address();
        address.iter().for_each(|address| {
            let front = front.clone();
            let uri = move |at: &Listen, export: &str, tls: bool| front.uri(at, export, tls);
            self.common.add_address(address, Arc::new(uri));
        });
        let front = front.clone();
        self.accept(listener, Purpose::Clients, passed, move |common, socket, peer| {
            std::thread::sleep(common.pause());
            let tls = if tcp { lock(&common.tls).1.clone() } else { None };
            connect(common, front.clone(), Stream::socket(socket), Some(peer), tls, || ());
        })?;
        Ok(address)
    }

    fn accept(
        &self,
        listener: Listener,
        purpose: Purpose,
        passed: bool,
        client: impl Fn(&Arc<Common>, OwnedFd, Peer) + Send + 'static,
    ) -> Result<(), StartError> {
        let offered = handover::offered(purpose, &listener, passed);
        let listener = Arc::new(listener);
        let left = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
        let accept = {
            let (common, listener, left) = (self.common.clone(), listener.clone(), left.clone());
            move || {
                common.gate.wait();
                let client = |socket, peer| client(&common, socket, peer);
                listener.accept_until(&common.stopping, Some(left.as_fd()), client);
            }
        };
        let name = match purpose {
            Purpose::Clients => "listener",
            Purpose::Control => "control",
            Purpose::Metrics => "metrics",
        };
        let thread = Builder::new().name(name.to_owned()).spawn(accept)?;
        lock(&self.accepting).push(Accepting { offered, listener, left, thread });
        Ok(())
    }

    /// Serves one client of `front` that is connected already, on a thread of its own: a socket twice, or two pipes. `left` is
    /// called when it has left.
    pub fn attach(&self, front: impl Front, input: OwnedFd, output: OwnedFd, left: impl FnOnce() + Send + 'static) {
        connect(&self.common, Arc::new(front), Stream::of(input, output), None, None, left);
    }

    /// Counters since the start, and the present state.
    pub fn statistics(&self) -> Statistics {
        statistics(&self.common)
    }

    /// Changes the cache while it runs, a few blocks at a time. Another policy does not remember which blocks were evicted.
    pub fn change(&self, memory: Option<u64>, policy: Option<&Spec>) -> Result<(), ChangeError> {
        self.common.change(memory, policy)
    }

    /// The export of this name.
    pub fn export(&self, name: &str) -> Result<Arc<Export>, ChangeError> {
        self.common.find(name)
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
    pub fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.common.find(name)?;
        Ok(self.common.host.hint(name, directive)?)
    }

    /// Makes `extents` the files of an export, which is one file, number 0, until then. Earlier directives for it are
    /// forgotten.
    pub fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.common.find(name)?;
        Ok(self.common.host.name_files(name, extents)?)
    }

    /// The directives in force of an export's clients, as a sidecar of directives (docs/control.md).
    pub fn hints(&self, name: &str) -> Result<String, ChangeError> {
        self.common.hints(name)
    }

    /// Writes back what is dirty, of one export or of all, and flushes the devices.
    pub fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        self.common.write_back(name)
    }

    /// Makes memory, policy, read-ahead, exports and the limit of slow requests those of `wanted`, and reads the certificates
    /// again. Changes that fail are returned, and the others are made; if certificates cannot be read, or are missing for
    /// those exports that need them, none is.
    pub fn reload(&self, wanted: &Settings) -> Result<(), Vec<ChangeError>> {
        self.common.reload(wanted)
    }

    /// Records requests of fronts whose clients have no connection to the service.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.common.recorder
    }

    /// The cache that it serves.
    pub fn host(&self) -> &Host {
        &self.common.host
    }

    /// Stops accepting clients, finishes the replies to those that are connected, and writes everything back. Data that could not
    /// be written within `Settings::stop_within` is returned; it is lost unless the process lives on.
    pub fn shut_down(&self) -> Result<(), Vec<Unwritten>> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.end()
    }

    /// Ends for a server that has the sockets, which stay open: everything is written back while clients go on, then it accepts nobody and shuts down. An error if
    /// it goes on, because not everything can be written, or the successor has left.
    pub fn hand_over(&self, successor: &Successor) -> Result<HandedOver, HandOverError> {
        self.write_ahead(successor)?;
        if self.ended.swap(true, Ordering::AcqRel) {
            return Err(HandOverError::Ends);
        }
        let since = Instant::now();
        let accepting = std::mem::take(&mut *lock(&self.accepting));
        for Accepting { left, .. } in &accepting {
            // It can be written to: nobody did before.
            let _ = rustix::io::write(left, &1u64.to_ne_bytes());
        }
        let mut listeners = Vec::new();
        for Accepting { thread, listener, .. } in accepting {
            if thread.join().is_err() {
                tracing::error!("a listening thread panicked");
            }
            listeners.push(listener);
        }
        if self.common.host.settings().warm.is_some() {
            // Blocks in memory are loaded again by the list, so that nobody waits until levels have them.
            self.common.host.leave_levels();
        }
        let unwritten = self.end().err().unwrap_or_default();
        Ok(HandedOver { unwritten, since, listeners })
    }

    /// Writes everything back while clients go on, so that little is left for the end.
    fn write_ahead(&self, successor: &Successor) -> Result<(), HandOverError> {
        for _ in 0..WRITES_AHEAD {
            let (done, written) = channel();
            let common = self.common.clone();
            // Nobody waits any more if the successor left.
            let write = move || _ = done.send(common.write_back(None));
            Builder::new().name("ahead".into()).spawn(write).map_err(ChangeError::Thread)?;
            handover::wait_while(&written, || successor.is_there()).ok_or(HandOverError::Left)??;
            let exports = self.common.exports();
            let dirty = exports.iter().map(|export| self.common.host.disk_statistics(&export.disk).dirty_bytes);
            if dirty.sum::<u64>() <= LITTLE {
                break;
            }
        }
        if successor.is_there() { Ok(()) } else { Err(HandOverError::Left) }
    }

    fn end(&self) -> Result<(), Vec<Unwritten>> {
        let until = Instant::now() + self.stop_within;
        let left = || until.saturating_duration_since(Instant::now());
        let Common { host, stopping, controllers, recorder, .. } = &*self.common;
        stopping.store(true, Ordering::Release);
        self.common.meter.end();
        // Before anything that waits, for what was acknowledged.
        host.hurry();
        let accepting = std::mem::take(&mut *lock(&self.accepting));
        accepting.iter().for_each(|accepting| accepting.listener.stop());
        controllers.shut_down();
        self.common.exports().iter().for_each(|export| export.disk.lift_rates());
        // Requests at a device that does not respond take no more than half of the time.
        self.common.disconnect(|_| true, FAREWELL.min(self.stop_within / 2));
        // It needs no more than what is left at the end, unless its file does not respond.
        recorder.close(Duration::ZERO);
        let result = host.shut_down_within(left());
        recorder.close(left().max(RECORDING));
        let listening = accepting.into_iter().map(|accepting| accepting.thread);
        for thread in listening.chain(lock(&self.threads).drain(..)) {
            while !thread.is_finished() && !left().is_zero() {
                std::thread::sleep(GLANCE);
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a listening thread panicked");
            }
        }
        result
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for lost in self.shut_down().err().unwrap_or_default() {
            tracing::error!(%lost, "dirty blocks are lost");
        }
    }
}

/// Serves exports whose devices respond late.
fn open_late(common: &Arc<Common>, mut late: Late) -> std::io::Result<()> {
    let mut is_late = false;
    for export in late.names() {
        is_late = true;
        tracing::warn!(export, "not open yet: its device does not respond; it is served when it does");
    }
    if !is_late {
        return Ok(());
    }
    let common = common.clone();
    let open = move || {
        while let Some((export, opened)) = late.next_disk() {
            match opened {
                Ok(disk) => match common.serve_opened(disk) {
                    Ok(()) => tracing::info!(export, "open, and served from now on"),
                    Err(error) => tracing::info!(export, %error, "not served"),
                },
                Err(error) => {
                    common.opening.take(&export);
                    tracing::error!(export, %error, "cannot be opened");
                }
            }
        }
    };
    Builder::new().name("opening".into()).spawn(open).map(|_| ())
}

/// Calls a function when it is dropped.
struct AtEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// Serves a client on a thread of its own, and calls `left` when it has left or cannot be served. It has a `peer` if it came by
/// itself.
fn connect(
    common: &Arc<Common>,
    front: Arc<dyn Front>,
    stream: Stream,
    peer: Option<Peer>,
    tls: Option<Arc<ServerConfig>>,
    left: impl FnOnce() + Send + 'static,
) {
    let left = AtEnd(Some(left));
    let Some(id) = common.register(Arc::new(stream), peer) else { return };
    let at = common.clone();
    let thread = Builder::new().name("connection".into()).stack_size(CONNECTION_STACK);
    let serve = move || {
        serve(&at, &*front, id, tls);
        drop(left);
    };
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!(%error, "no thread for a connection");
        common.forget(id);
    }
}

fn serve(common: &Common, front: &dyn Front, id: u64, tls: Option<Arc<ServerConfig>>) {
    let guest = Guest::new(common, id, tls);
    let _left = AtEnd(Some(|| common.forget(id)));
    // A client that came in too late to be notified of the end.
    if !common.stopping.load(Ordering::Acquire) {
        tracing::debug!(id, "connected");
        front.serve(&guest);
    }
}
