//! State that the threads of a server share: its exports and its clients.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nigh_backend::Target;
use nigh_host::front::lock;
use nigh_host::{DiskSettings, Host};
use nigh_tls::TlsSettings;
use rustls::ServerConfig;

use crate::controllers::Controllers;
use crate::error::{ChangeError, Refused};
use crate::export::Export;
use crate::gate::Gate;
use crate::listen::Listen;
use crate::loss::Loss;
use crate::newcomers::{self, CONNECTIONS_EXTRA, Fruitless, Newcomer, Peer, Place};
use crate::pending::Opening;
use crate::rates::Meter;
use crate::recording::{RecordError, Recorder, Recording};
use crate::refusals::Refusals;
use crate::stream::Stream;

/// Time for clients that cannot be asked to leave.
const FAREWELL_PIPES: Duration = Duration::from_millis(500);

/// How long a new connection waits for the end of others that are being closed.
const CLOSING: Duration = Duration::from_secs(1);

/// Connections that each export has for itself, whatever the clients of others do, unless there are too many exports for that.
const OWN: usize = 4;

/// The URI by which clients call an export at an address, over TCP with TLS if that is true.
pub(crate) type Uri = Arc<dyn Fn(&Listen, &str, bool) -> Option<String> + Send + Sync>;

/// By number.
type Clients = HashMap<u64, Client>;

/// State that the threads share.
pub(crate) struct Common {
    pub(crate) host: Host,
    /// In the order of their disks' numbers.
    exports: Mutex<Vec<Arc<Export>>>,
    pub(crate) connections_max: usize,
    /// As `Settings::front_descriptors`.
    pub(crate) front_descriptors: usize,
    /// As `Settings::sandboxed`.
    pub(crate) sandboxed: bool,
    /// Which certificates there are, and as new clients meet them.
    pub(crate) tls: Mutex<(Option<TlsSettings>, Option<Arc<ServerConfig>>)>,
    pub(crate) stopping: AtomicBool,
    pub(crate) started: Instant,
    pub(crate) meter: Meter,
    pub(crate) gate: Gate,
    clients: Mutex<Clients>,
    /// A client left.
    left: Condvar,
    accepted: AtomicU64,
    /// Connections beyond `Settings::connections_max`.
    refusals: Refusals,
    /// Newcomers that were closed for other connections.
    displaced: Refusals,
    fruitless: Fruitless,
    /// Connections that ended with an error.
    failed: Refusals,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) loss: Loss,
    /// Exports that are being opened.
    pub(crate) opening: Opening,
    /// The addresses for clients, with absolute paths, and the URIs of exports there.
    addresses: Mutex<Vec<(Listen, Uri)>>,
    /// Held by the one who changes the server.
    pub(crate) administration: Mutex<()>,
}

/// A connection.
pub(crate) struct Client {
    stream: Arc<Stream>,
    /// Until it chooses, unless it was passed to the server.
    newcomer: Option<Newcomer>,
    /// The export that it chose.
    export: Option<Arc<Export>>,
    /// The names of its certificate, if it chose.
    pub(crate) names: Vec<String>,
    /// The URI of the device that it is.
    uri: Option<String>,
}

impl Client {
    pub(crate) fn has(&self, export: &Arc<Export>) -> bool {
        self.export.as_ref().is_some_and(|of| Arc::ptr_eq(of, export))
    }
}

/// Clients so far and at the moment.
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl Common {
    pub(crate) fn new(
        host: Host,
        (connections_max, front_descriptors): (usize, usize),
        tls: (Option<TlsSettings>, Option<Arc<ServerConfig>>),
        (sandboxed, has_page, after_loss): (bool, bool, Option<u64>),
    ) -> Common {
        Common {
            host,
            exports: Mutex::default(),
            connections_max,
            front_descriptors,
            sandboxed,
            tls: Mutex::new(tls),
            stopping: AtomicBool::new(false),
            started: Instant::now(),
            meter: Meter::new(has_page),
            gate: Gate::default(),
            clients: Mutex::default(),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            refusals: Refusals::default(),
            displaced: Refusals::default(),
            fruitless: Fruitless::default(),
            failed: Refusals::default(),
            recorder: Arc::default(),
            controllers: Arc::default(),
            loss: Loss::new(after_loss),
            opening: Opening::default(),
            addresses: Mutex::default(),
            administration: Mutex::new(()),
        }
    }

    /// Clients can connect to `address`, where exports have such URIs.
    pub(crate) fn add_address(&self, address: &Listen, uri: Uri) {
        lock(&self.addresses).push((address.absolute(), uri));
    }

    /// The URIs of `export` for clients, one for each address and each device.
    pub(crate) fn uris(&self, export: &Arc<Export>) -> Vec<String> {
        let clients = lock(&self.clients);
        let mut devices: Vec<_> =
            clients.values().filter(|client| client.has(export)).filter_map(|client| client.uri.clone()).collect();
        drop(clients);
        devices.sort_unstable();
        let tls = lock(&self.tls).1.is_some();
        let addresses = lock(&self.addresses);
        let of_addresses = addresses.iter().filter_map(|(address, uri)| uri(address, export.name(), tls));
        of_addresses.chain(devices).collect()
    }

    /// The client `id` is a device with this URI.
    pub(crate) fn announce(&self, id: u64, uri: String) {
        if let Some(client) = lock(&self.clients).get_mut(&id) {
            client.uri = Some(uri);
        }
    }

    /// All exports that clients may see.
    pub(crate) fn exports(&self) -> Vec<Arc<Export>> {
        lock(&self.exports).iter().filter(|export| !export.is_leaving()).cloned().collect()
    }

    /// Exports that are being removed, and for how long.
    pub(crate) fn leaving(&self) -> Vec<(Arc<Export>, Duration)> {
        let exports = lock(&self.exports);
        exports.iter().filter_map(|export| Some((export.clone(), export.leaving_for()?))).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Export>, ChangeError> {
        let exports = lock(&self.exports);
        let found = exports.iter().find(|export| export.name() == name);
        found.cloned().ok_or_else(|| ChangeError::NoExport(name.to_owned()))
    }

    /// Records what is asked of the exports that `recording` names.
    pub(crate) fn record(&self, recording: Recording) -> Result<(), RecordError> {
        let numbers = recording.exports.iter().map(|name| {
            let export = self.find(name).map_err(|_| RecordError::NoExport(name.clone()))?;
            Ok(export.disk.volume().0)
        });
        let volumes = numbers.collect::<Result<_, RecordError>>()?;
        let host = self.host.settings();
        let disks: Vec<_> = lock(&self.exports).iter().map(|export| export.disk.settings()).collect();
        let levels = host.levels.iter().map(|level| &level.target);
        let files = disks.iter().flat_map(DiskSettings::targets).chain(levels).filter_map(Target::path);
        let files = files.chain(host.warm.iter().map(|warm| &*warm.file));
        self.recorder.start(recording, volumes, &files.collect::<Vec<_>>())
    }

    pub(crate) fn add_export(&self, export: Export) {
        let mut exports = lock(&self.exports);
        let at = exports.partition_point(|other| other.disk.volume() < export.disk.volume());
        exports.insert(at, Arc::new(export));
    }

    pub(crate) fn remove_export(&self, export: &Arc<Export>) {
        lock(&self.exports).retain(|other| !Arc::ptr_eq(other, export));
    }

    /// The right to change the server, one at a time.
    pub(crate) fn administrate(&self) -> Result<MutexGuard<'_, ()>, ChangeError> {
        let one = lock(&self.administration);
        match self.stopping.load(Ordering::Acquire) {
            true => Err(ChangeError::Stopping),
            false => Ok(one),
        }
    }

    /// How many clients there are, and how many of them have each of `exports`.
    pub(crate) fn connections(&self, exports: &[Arc<Export>]) -> (Counts, Vec<u64>) {
        let clients = lock(&self.clients);
        let of = |export| clients.values().filter(|client| client.has(export)).count() as u64;
        let counts = Counts {
            connections: clients.len() as u64,
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refusals.count(),
        };
        (counts, exports.iter().map(of).collect())
    }

    /// Registers a connection and returns its number; none if there are as many as allowed. A connection that was accepted
    /// from `peer` may take the place of another one that has chosen no export yet.
    pub(crate) fn register(&self, stream: Arc<Stream>, peer: Option<Peer>) -> Option<u64> {
        let (most, now) = (self.connections_max, Instant::now());
        let mut clients = lock(&self.clients);
        if peer.is_some() {
            clients = self.wait_for_closing(clients);
        }
        let others = clients.iter().map(|(id, client)| (*id, client.stream.is_abandoned(), client.newcomer));
        let place = newcomers::place(others, peer, most, now);
        match place {
            Place::Free => {}
            Place::Of(other) => {
                let other = clients.get_mut(&other).expect("it is there");
                other.newcomer = None;
                other.stream.abandon();
            }
            Place::None => {
                drop(clients);
                if let Some(refused) = self.refusals.add(now) {
                    tracing::warn!(most, refused, "connections are refused: there are as many as allowed");
                }
                return None;
            }
        }
        let id = self.accepted.fetch_add(1, Ordering::Relaxed);
        let newcomer = peer.map(|peer| Newcomer { peer, since: now });
        clients.insert(id, Client { stream, newcomer, export: None, names: Vec::new(), uri: None });
        drop(clients);
        if place != Place::Free
            && let Some(closed) = self.displaced.add(now)
        {
            tracing::warn!(closed, "connections that choose no export are closed for others");
        }
        Some(id)
    }

    /// Waits, for a limited time, until few connections are left that are being closed.
    fn wait_for_closing<'a>(&self, clients: MutexGuard<'a, Clients>) -> MutexGuard<'a, Clients> {
        let most = self.connections_max.saturating_add(CONNECTIONS_EXTRA);
        let waits = |clients: &mut Clients| {
            clients.len() >= most && clients.values().any(|client| client.stream.is_abandoned())
        };
        self.left.wait_timeout_while(clients, CLOSING, waits).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The stream of a client that is there.
    pub(crate) fn stream_of(&self, id: u64) -> Arc<Stream> {
        lock(&self.clients)[&id].stream.clone()
    }

    /// The client, whose certificate has these names, chose an export. It may be that it cannot have it, or not any more.
    pub(crate) fn enter(&self, id: u64, export: &Arc<Export>, names: &[String]) -> Result<(), Refused> {
        // The thread that changes the export's settings checks the clients afterwards.
        let mut clients = lock(&self.clients);
        if export.is_leaving() {
            return Err(Refused::Leaving);
        }
        if !export.is_for(names) {
            return Err(Refused::Others);
        }
        let most = export.connections_max();
        let there = clients.values().filter(|client| client.has(export)).count() as u64;
        if most > 0 && there >= most {
            if let Some(refused) = export.refusals.add(Instant::now()) {
                tracing::warn!(export = export.name(), most, refused, "clients are refused: it has as many as allowed");
            }
            return Err(Refused::Full);
        }
        if !self.leaves_room(&clients, export) {
            if let Some(refused) = export.refusals.add(Instant::now()) {
                let name = export.name();
                tracing::warn!(
                    export = name,
                    refused,
                    "clients are refused: the remaining connections are reserved for other exports"
                );
            }
            return Err(Refused::Crowded);
        }
        let client = clients.get_mut(&id).expect("it is registered");
        client.newcomer = None;
        client.export = Some(export.clone());
        client.names = names.to_vec();
        Ok(())
    }

    /// The error if the client at `stream` may rely on writes of `export` that the server before this one lost.
    pub(crate) fn check_loss(&self, stream: &Stream, export: &Export) -> Result<(), Refused> {
        if !self.loss.concerns(stream, &export.settings().disk) {
            return Ok(());
        }
        if let Some(refused) = export.refusals.add(Instant::now()) {
            tracing::warn!(
                export = export.name(),
                refused,
                "clients are refused: the server before this one did not end in order, and they may rely on writes that it lost. Start them again, or accept the \
                 loss (nigh ctl accept-loss)"
            );
        }
        Err(Refused::Lost)
    }

    /// Whether each other export can have its own connections beside another client of `export`.
    fn leaves_room(&self, clients: &Clients, export: &Arc<Export>) -> bool {
        let exports = self.exports();
        let each = OWN.min(self.connections_max / 2 / exports.len().max(1));
        if clients.len() + each * exports.len() <= self.connections_max {
            return true;
        }
        let mut of: HashMap<*const Export, usize> = HashMap::new();
        let there = clients.values().filter(|client| !client.stream.is_abandoned());
        for export in there.filter_map(|client| client.export.as_ref()) {
            *of.entry(Arc::as_ptr(export)).or_default() += 1;
        }
        let has = |export| of.get(&Arc::as_ptr(export)).copied().unwrap_or(0);
        let own = |export: &Arc<Export>| match export.connections_max() as usize {
            0 => each,
            most => each.min(most),
        };
        let others = exports.iter().filter(|other| !Arc::ptr_eq(other, export));
        let needed: usize = others.map(|other| own(other).saturating_sub(has(other))).sum();
        has(export) < own(export) || of.values().sum::<usize>() + needed < self.connections_max
    }

    pub(crate) fn forget(&self, id: u64) {
        let client = lock(&self.clients).remove(&id);
        if client.is_some_and(|client| client.newcomer.is_some()) {
            self.fruitless.add();
        }
        self.left.notify_all();
    }

    /// The connection `id` ended with an error.
    pub(crate) fn note_failed(&self, id: u64, error: &dyn Display) {
        tracing::debug!(id, %error, "the connection ended");
        if let Some(failed) = self.failed.add(Instant::now()) {
            tracing::info!(id, %error, failed_in_all = failed, "a connection ended with an error");
        }
    }

    /// How long the next connection waits.
    pub(crate) fn pause(&self) -> Duration {
        self.fruitless.pause()
    }

    /// Takes no more requests of the clients that are `chosen`, also of what they sent.
    pub(crate) fn cut_off(&self, chosen: impl Fn(&Client) -> bool) {
        lock(&self.clients).values().filter(|client| chosen(client)).for_each(|client| client.stream.cut_off());
    }

    /// Lets the clients go that are `chosen`: they get their replies if they take them within `patience`.
    pub(crate) fn disconnect(&self, chosen: impl Fn(&Client) -> bool, patience: Duration) {
        let begin = Instant::now();
        let mut clients = lock(&self.clients);
        let chosen = |client: &&Client| chosen(client);
        clients.values().filter(chosen).for_each(|client| client.stream.stop_reading());
        while clients.values().any(|client| chosen(&client)) {
            let pipes = clients.values().filter(chosen).all(|client| client.stream.is_deaf());
            let most = if pipes { patience.min(FAREWELL_PIPES) } else { patience };
            let Some(left) = most.checked_sub(begin.elapsed()) else { break };
            (clients, _) = self.left.wait_timeout(clients, left).unwrap_or_else(PoisonError::into_inner);
        }
        clients.values().filter(chosen).for_each(|client| client.stream.shut_down());
    }
}
