//! A disk that is served: one volume of the engines, and its device.

use std::io;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, Weak};

use nigh_backend::{Extent, Geometry};
use nigh_engine::{Operation, Port, Volume};
use nigh_nbd::{BlockSizes, Features};

use crate::latency::Histogram;
use crate::refusals::Refusals;
use crate::settings::ExportSettings;
use crate::sync::lock;
use crate::throttle::Throttle;

/// Most requests of a connection in progress: it is not read from beyond.
const REQUESTS_MAX: u64 = 512;
/// Most disks at a time.
pub(crate) const DISKS_MAX: usize = 4096;

/// One disk.
pub(crate) struct Disk {
    /// Its number in the engines, and its place in the list of disks.
    pub(crate) volume: Volume,
    /// The queue to its device.
    pub(crate) port: Port,
    pub(crate) name: String,
    /// As they are now.
    settings: Mutex<ExportSettings>,
    /// The same as in `settings`.
    read_only: AtomicBool,
    /// Most requests of a client in progress.
    requests_max: AtomicUsize,
    pub(crate) throttle: Throttle,
    /// Clients beyond `ExportSettings::connections`.
    pub(crate) refusals: Refusals,
    /// Whether the device can be written.
    pub(crate) writable: bool,
    /// It is about to be removed: nobody sees it any more.
    leaving: AtomicBool,
    /// Held by whoever closes or opens it in the engines.
    pub(crate) changing: Mutex<()>,
    /// None once the device is gone: what is left of it would keep its file open.
    geometry: RwLock<Option<Arc<dyn Geometry>>>,
    /// As the engines know it, in bytes.
    size: AtomicU64,
    syncs: Mutex<Syncs>,
    opening: Mutex<Opening>,
    opened: Condvar,
    /// Reads that found everything in the cache, from request to reply sent.
    pub(crate) hits: Histogram,
    /// Reads that had to wait.
    pub(crate) misses: Histogram,
    /// Writes, zeroes and trims.
    pub(crate) writes: Histogram,
    pub(crate) flushes: Histogram,
}

/// The device flushes of all shards, made one: those that come while one is under way wait together for the next.
#[derive(Default)]
struct Syncs {
    running: bool,
    /// Done with the one that is under way. An operation comes with the shard that it is from.
    joined: Vec<(u32, Operation)>,
    waiting: Vec<(u32, Operation)>,
}

/// Whether the engines take requests for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Open,
    /// They will again soon.
    Changing,
    Closed,
}

impl Disk {
    pub(crate) fn new(volume: Volume, settings: ExportSettings, geometry: Arc<dyn Geometry>, size: u64) -> Disk {
        Disk {
            volume,
            port: Port(u16::try_from(volume.0).expect("there are fewer disks")),
            name: settings.name.clone(),
            read_only: AtomicBool::new(settings.read_only),
            requests_max: AtomicUsize::new(requests_max(&settings)),
            throttle: Throttle::new(settings.iops, settings.bandwidth),
            refusals: Refusals::default(),
            writable: !settings.read_only,
            leaving: AtomicBool::new(true),
            changing: Mutex::default(),
            settings: Mutex::new(settings),
            geometry: RwLock::new(Some(geometry)),
            size: AtomicU64::new(size),
            syncs: Mutex::default(),
            opening: Mutex::new(Opening::Open),
            opened: Condvar::new(),
            hits: Histogram::default(),
            misses: Histogram::default(),
            writes: Histogram::default(),
            flushes: Histogram::default(),
        }
    }

    pub(crate) fn settings(&self) -> ExportSettings {
        lock(&self.settings).clone()
    }

    /// Takes the settings over that are not the engines' business.
    pub(crate) fn set(&self, settings: ExportSettings) {
        let mut now = lock(&self.settings);
        self.read_only.store(settings.read_only, Ordering::Release);
        self.requests_max.store(requests_max(&settings), Ordering::Relaxed);
        if (settings.iops, settings.bandwidth) != (now.iops, now.bandwidth) {
            self.throttle.set(settings.iops, settings.bandwidth);
        }
        *now = settings;
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn requests_max(&self) -> usize {
        self.requests_max.load(Ordering::Relaxed)
    }

    /// Whether it is for clients with a certificate of these names.
    pub(crate) fn is_for(&self, names: &[String]) -> bool {
        let settings = lock(&self.settings);
        settings.clients.is_empty() || settings.clients.iter().any(|name| names.contains(name))
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Release);
    }

    /// Asks the device.
    fn ask<R>(&self, question: impl FnOnce(&dyn Geometry) -> io::Result<R>) -> io::Result<R> {
        let geometry = self.geometry.read().expect(UNBROKEN);
        question(geometry.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// The size of the device, which may differ from what the engines know.
    pub(crate) fn present_size(&self) -> io::Result<u64> {
        self.ask(|geometry| geometry.size())
    }

    /// As `Geometry::extents`.
    pub(crate) fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        self.ask(|geometry| geometry.extents(range, most))
    }

    /// The device is gone.
    pub(crate) fn forget_device(&self) {
        *self.geometry.write().expect(UNBROKEN) = None;
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_opening(&self, opening: Opening) {
        *lock(&self.opening) = opening;
        self.opened.notify_all();
    }

    /// Waits until the engines take requests again; says no if they never will.
    pub(crate) fn wait_for_opening(&self) -> bool {
        let changing = |opening: &mut Opening| *opening == Opening::Changing;
        let opening = self.opened.wait_while(lock(&self.opening), changing).expect("nobody panics with a lock");
        *opening == Opening::Open
    }

    /// What a client is told of it.
    pub(crate) fn offer(&self) -> nigh_nbd::Export {
        nigh_nbd::Export {
            name: self.name.clone(),
            description: String::new(),
            size: self.size(),
            features: Features {
                read_only: self.read_only(),
                rotational: false,
                flush: true,
                fua: true,
                trim: true,
                write_zeroes: true,
                fast_zero: true,
                cache: true,
                multi_conn: true,
            },
            blocks: BlockSizes::default(),
        }
    }

    /// A shard wants the device flushed.
    pub(crate) fn sync(&self, flush: (u32, Operation)) {
        lock(&self.syncs).waiting.push(flush);
    }

    /// The flush that is to be given to the device now, for all that wait, if none is under way.
    pub(crate) fn next_sync(&self) -> Option<(u32, Operation)> {
        let mut syncs = lock(&self.syncs);
        if syncs.running {
            return None;
        }
        let next = syncs.waiting.pop()?;
        syncs.running = true;
        syncs.joined = mem::take(&mut syncs.waiting);
        Some(next)
    }

    /// The device flush that was given out is over: which others are over with it.
    pub(crate) fn synced(&self) -> Vec<(u32, Operation)> {
        let mut syncs = lock(&self.syncs);
        syncs.running = false;
        mem::take(&mut syncs.joined)
    }
}

fn requests_max(settings: &ExportSettings) -> usize {
    let most = if settings.requests == 0 { REQUESTS_MAX } else { settings.requests.min(REQUESTS_MAX) };
    most as usize
}

/// The disks there are, by number.
#[derive(Default)]
pub(crate) struct Disks {
    places: RwLock<Vec<Place>>,
}

/// A number for a disk. It is used again when nobody has the disk any more that had it before.
#[derive(Default)]
struct Place {
    disk: Option<Arc<Disk>>,
    last: Weak<Disk>,
}

impl Disks {
    /// All of them, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Disk>> {
        self.places.read().expect(UNBROKEN).iter().filter_map(|place| place.disk.clone()).collect()
    }

    /// Which has this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Disk>> {
        self.all().into_iter().find(|disk| disk.name == name)
    }

    /// The disk of an operation.
    pub(crate) fn of(&self, port: Port) -> Arc<Disk> {
        let disk = self.places.read().expect(UNBROKEN)[usize::from(port.0)].disk.clone();
        disk.expect("a disk has no operations when it is removed")
    }

    /// A number that nobody has; none if there are enough.
    pub(crate) fn free_number(&self) -> Option<Volume> {
        let places = self.places.read().expect(UNBROKEN);
        let free = places.iter().position(|place| place.last.strong_count() == 0).unwrap_or(places.len());
        (free < DISKS_MAX).then_some(Volume(free as u32))
    }

    /// Adds a disk whose number is free.
    pub(crate) fn add(&self, disk: Arc<Disk>) {
        let mut places = self.places.write().expect(UNBROKEN);
        let at = disk.volume.0 as usize;
        if places.len() <= at {
            places.resize_with(at + 1, Place::default);
        }
        places[at] = Place { last: Arc::downgrade(&disk), disk: Some(disk) };
    }

    pub(crate) fn remove(&self, volume: Volume) {
        self.places.write().expect(UNBROKEN)[volume.0 as usize].disk = None;
    }
}

const UNBROKEN: &str = "nobody panics with a lock";
