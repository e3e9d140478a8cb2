//! Exports: what clients connect to. Each is a disk of the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_host::DiskSettings;
use nigh_host::front::{Budget, Disk, lock};

use crate::refusals::Refusals;
use crate::settings::{self, ExportSettings};

/// Most requests of a connection in progress: it is not read from beyond.
const REQUESTS_MAX: u64 = 512;
/// Memory for replies to an export's clients, before it takes some of `Cache::heap`: whatever others have of that, it finds this. As
/// much as a connection may have on its way.
const OWN_HEAP: usize = 2 << 20;
/// Memory for what an export's clients send while their requests are throttled, and for writes that they send slowly.
const RECEIVE_BUDGET: usize = 8 << 20;

/// The share of `Cache::heap` that an export with `has` bytes for replies uses, and the share of `bytes` more.
fn shared(has: usize, bytes: usize) -> (usize, usize) {
    let of = |bytes: usize| bytes.saturating_sub(OWN_HEAP);
    (of(has), of(has + bytes) - of(has))
}

/// An export.
pub struct Export {
    /// The disk.
    pub disk: Arc<Disk>,
    /// As they are now; those of the disk are with the disk.
    access: Mutex<Access>,
    /// Most requests of a client in progress.
    requests_max: AtomicUsize,
    /// Memory for what its clients send while their requests are throttled, and for writes that they send slowly.
    pub receive_budget: Arc<Budget>,
    /// Bytes of memory for replies: those beyond `OWN_HEAP` are of `Cache::heap`.
    heap: Mutex<usize>,
    /// Clients beyond `ExportSettings::connections`.
    pub(crate) refusals: Refusals,
    /// Since when it is about to be removed: no client sees it any more.
    leaving: Mutex<Option<Instant>>,
}

/// The clients that may use it, and their limits.
struct Access {
    clients: Vec<String>,
    connections: u64,
    requests: u64,
}

impl Access {
    fn of(settings: ExportSettings) -> Access {
        let ExportSettings { disk: DiskSettings { .. }, clients, connections, requests } = settings;
        Access { clients, connections, requests }
    }

    fn requests_max(&self) -> usize {
        let most = if self.requests == 0 { REQUESTS_MAX } else { self.requests.min(REQUESTS_MAX) };
        most as usize
    }
}

impl Export {
    /// `settings` without what had its effect when the disk was opened.
    pub(crate) fn new(disk: Arc<Disk>, mut settings: ExportSettings) -> Export {
        settings.disk.take_over = false;
        let access = Access::of(settings);
        Export {
            disk,
            requests_max: AtomicUsize::new(access.requests_max()),
            access: Mutex::new(access),
            receive_budget: Arc::new(Budget::new(RECEIVE_BUDGET)),
            heap: Mutex::new(0),
            refusals: Refusals::default(),
            leaving: Mutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.disk.name()
    }

    pub(crate) fn settings(&self) -> ExportSettings {
        let disk = self.disk.settings();
        let access = lock(&self.access);
        let Access { clients, connections, requests } = &*access;
        ExportSettings { disk, clients: clients.clone(), connections: *connections, requests: *requests }
    }

    /// Takes the settings over that are not the disk's.
    pub(crate) fn set(&self, settings: ExportSettings) {
        let access = Access::of(settings);
        self.requests_max.store(access.requests_max(), Ordering::Relaxed);
        *lock(&self.access) = access;
    }

    /// Most requests of a connection in progress.
    #[inline]
    pub fn requests_max(&self) -> usize {
        self.requests_max.load(Ordering::Relaxed)
    }

    /// Most clients at a time; 0 for no limit.
    pub(crate) fn connections_max(&self) -> u64 {
        lock(&self.access).connections
    }

    /// Whether clients with a certificate for these names may use it.
    pub(crate) fn is_for(&self, names: &[String]) -> bool {
        settings::is_for(&lock(&self.access).clients, names)
    }

    /// Takes memory for replies: its own, and then that of `heap`, of which each export leaves some to the others.
    pub fn take_heap(&self, heap: &Budget, bytes: usize) -> bool {
        let mut has = lock(&self.heap);
        let (own, more) = shared(*has, bytes);
        let taken = more == 0 || heap.take_share(own, more);
        if taken {
            *has += bytes;
        }
        taken
    }

    /// A client has waited for `bytes` of `heap` for long.
    pub fn want_heap(&self, heap: &Budget, bytes: usize) {
        let (own, more) = shared(*lock(&self.heap), bytes);
        heap.want(own, more);
    }

    /// Whether a slow client should give `bytes` of `heap` back, since a client of another export waits that has less.
    pub fn is_due(&self, heap: &Budget, bytes: usize) -> bool {
        let (own, _) = shared(*lock(&self.heap), 0);
        heap.is_due(own, bytes)
    }

    /// Returns memory, that of `heap` first.
    pub fn give_heap(&self, heap: &Budget, bytes: usize) {
        let mut has = lock(&self.heap);
        *has -= bytes;
        heap.give(shared(*has, bytes).1);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        lock(&self.leaving).is_some()
    }

    /// How long it has been leaving.
    pub(crate) fn leaving_for(&self) -> Option<Duration> {
        lock(&self.leaving).map(|since| since.elapsed())
    }

    pub(crate) fn set_leaving(&self, leaving: bool) {
        *lock(&self.leaving) = leaving.then(Instant::now);
    }
}
