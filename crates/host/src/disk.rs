//! A disk: one volume of the engines, and its device.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use crate::latency::Histogram;
use crate::settings::{DISKS_MAX, DiskSettings};
use crate::sync::lock;
use crate::throttle::Throttle;
use nigh_backend::{Extent, Geometry, Stamp};
use nigh_engine::{Operation, Port, Volume};
use nigh_policy::Tenant;

/// What kind of latency a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A read that found everything in the cache.
    Hit,
    /// A read that had to wait.
    Miss,
    /// A write, zeroes or trim.
    Write,
    /// A flush.
    Flush,
}

/// One disk.
pub struct Disk {
    /// Its number in the engines, and its place in the list of disks.
    pub(crate) volume: Volume,
    /// Who is charged for its blocks.
    pub(crate) tenant: Tenant,
    /// The queue to its device.
    pub(crate) port: Port,
    name: String,
    /// As they are now.
    settings: Mutex<DiskSettings>,
    /// The same as in `settings`.
    read_only: AtomicBool,
    throttle: Throttle,
    /// Whether the device can be written.
    pub(crate) writable: bool,
    /// It is not open yet, or about to be removed: it is not found by its name.
    hidden: AtomicBool,
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
    pub(crate) fn new(
        volume: Volume,
        tenant: Tenant,
        settings: DiskSettings,
        geometry: Arc<dyn Geometry>,
        size: u64,
    ) -> Disk {
        Disk {
            volume,
            tenant,
            port: Port(u16::try_from(volume.0).expect("there are fewer disks")),
            name: settings.name.clone(),
            read_only: AtomicBool::new(settings.read_only),
            throttle: Throttle::new(settings.iops, settings.bandwidth),
            writable: !settings.read_only,
            hidden: AtomicBool::new(true),
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

    /// Its number in the engines.
    pub fn volume(&self) -> Volume {
        self.volume
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its settings as they are now.
    pub fn settings(&self) -> DiskSettings {
        lock(&self.settings).clone()
    }

    /// Takes the settings over that are not the engines' business.
    pub(crate) fn set(&self, settings: DiskSettings) {
        let mut now = lock(&self.settings);
        self.read_only.store(settings.read_only, Ordering::Release);
        if (settings.iops, settings.bandwidth) != (now.iops, now.bandwidth) {
            self.throttle.set(settings.iops, settings.bandwidth);
        }
        *now = settings;
    }

    /// Whether writes are refused now.
    pub fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Whether the device can be written, whatever the settings are now.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden.load(Ordering::Acquire)
    }

    pub(crate) fn set_hidden(&self, hidden: bool) {
        self.hidden.store(hidden, Ordering::Release);
    }

    /// Whether requests have to wait for their turn.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.throttle.is_on()
    }

    /// Waits until a request of so many bytes is within the rates, or they change. Returns false if `gone` becomes true
    /// meanwhile: then the request is not to be made.
    pub fn wait_for_turn(&self, bytes: u64, gone: impl Fn() -> bool) -> bool {
        self.throttle.wait(bytes, gone)
    }

    /// Lifts the rates: waiting requests go on at once. They return when a removal fails.
    pub fn lift_rates(&self) {
        self.throttle.set(0, 0);
    }

    /// Restores the rates of the settings.
    pub(crate) fn restore_rates(&self) {
        let (iops, bandwidth) = {
            let settings = lock(&self.settings);
            (settings.iops, settings.bandwidth)
        };
        self.throttle.set(iops, bandwidth);
    }

    /// Counts how long a request took.
    pub fn measure(&self, measure: Measure, took: Duration) {
        match measure {
            Measure::Hit => self.hits.add(took),
            Measure::Miss => self.misses.add(took),
            Measure::Write => self.writes.add(took),
            Measure::Flush => self.flushes.add(took),
        }
    }

    /// Asks the device.
    fn ask<R>(&self, question: impl FnOnce(&dyn Geometry) -> io::Result<R>) -> io::Result<R> {
        let geometry = read(&self.geometry);
        question(geometry.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// The size of the device, which may differ from what the engines know.
    pub(crate) fn present_size(&self) -> io::Result<u64> {
        self.ask(|geometry| geometry.size())
    }

    /// As `Geometry::stamp` of its device; none where that is not known.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.ask(|geometry| geometry.stamp()).ok().flatten()
    }

    /// As `Geometry::extents` of its device.
    pub fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        self.ask(|geometry| geometry.extents(range, most))
    }

    /// The device is gone.
    pub(crate) fn forget_device(&self) {
        *write(&self.geometry) = None;
    }

    /// Its size as the engines know it, in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_opening(&self, opening: Opening) {
        *lock(&self.opening) = opening;
        self.opened.notify_all();
    }

    /// Waits until the engines take requests again; returns false if they never will.
    pub fn wait_for_opening(&self) -> bool {
        let changing = |opening: &mut Opening| *opening == Opening::Changing;
        let opening = self.opened.wait_while(lock(&self.opening), changing).unwrap_or_else(PoisonError::into_inner);
        *opening == Opening::Open
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
        read(&self.places).iter().filter_map(|place| place.disk.clone()).collect()
    }

    /// Which has this name, and is not hidden.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Disk>> {
        self.all().into_iter().find(|disk| disk.name == name && !disk.is_hidden())
    }

    /// Whether a disk has this name, hidden or not.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.all().iter().any(|disk| disk.name == name)
    }

    /// Those of a tenant, in the order of their numbers.
    pub(crate) fn of_tenant(&self, tenant: Tenant) -> Vec<Arc<Disk>> {
        self.all().into_iter().filter(|disk| disk.tenant == tenant).collect()
    }

    /// The number of the tenant of this name: that of its disks, or one that no tenant has. There is one, since there are not
    /// more tenants than disks.
    pub(crate) fn tenant_named(&self, name: &str) -> Tenant {
        let disks = self.all();
        if let Some(disk) = disks.iter().find(|disk| lock(&disk.settings).tenant() == name) {
            return disk.tenant;
        }
        let taken: BTreeSet<Tenant> = disks.iter().map(|disk| disk.tenant).collect();
        let free = (0..).map(Tenant).find(|tenant| !taken.contains(tenant));
        free.expect("there are fewer disks than numbers")
    }

    /// The disk of an operation.
    pub(crate) fn of(&self, port: Port) -> Arc<Disk> {
        let disk = read(&self.places)[usize::from(port.0)].disk.clone();
        disk.expect("a disk has no operations when it is removed")
    }

    /// A number that nobody has; none if there are enough.
    pub(crate) fn free_number(&self) -> Option<Volume> {
        let places = read(&self.places);
        let free = places.iter().position(|place| place.last.strong_count() == 0).unwrap_or(places.len());
        (free < DISKS_MAX).then_some(Volume(free as u32))
    }

    /// Adds a disk whose number is free.
    pub(crate) fn add(&self, disk: Arc<Disk>) {
        let mut places = write(&self.places);
        let at = disk.volume.0 as usize;
        if places.len() <= at {
            places.resize_with(at + 1, Place::default);
        }
        places[at] = Place { last: Arc::downgrade(&disk), disk: Some(disk) };
    }

    pub(crate) fn remove(&self, volume: Volume) {
        write(&self.places)[volume.0 as usize].disk = None;
    }
}

/// Whether both are the same file; not if there is none.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|of| identity(other) == Some(of))
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
