//! A disk: one volume of the engines, and its devices.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::device::DiskDevice;
use crate::latency::Histogram;
use crate::settings::{BLOCK, DISKS_MAX, DiskSettings, LEVELS_MAX, TARGETS_MAX};
use crate::sync::{lock, read, write};
use crate::throttle::Throttle;
use nigh_backend::{Extent, Stamp, WriteLogState, joint_stamp};
use nigh_content::DOMAINS_MAX;
use nigh_engine::{Fault, Port, Region, Volume};
use nigh_policy::Tenant;

/// The latency class of a request.
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
    /// Its number in the engines, and its index in the list of disks.
    pub(crate) volume: Volume,
    /// The tenant that is charged for its blocks.
    pub(crate) tenant: Tenant,
    /// Disks with the same number here share memory of equal and similar blocks.
    pub(crate) domain: u32,
    /// In the order of their parts of the disk; at least one.
    pub(crate) devices: Vec<Arc<DiskDevice>>,
    name: String,
    /// The present settings.
    settings: Mutex<DiskSettings>,
    /// The same as in `settings`.
    read_only: AtomicBool,
    /// Whether one of its devices belongs to another writer for good.
    taken_over: AtomicBool,
    throttle: Throttle,
    /// Whether the devices can be written.
    pub(crate) writable: bool,
    /// Whether it is not open yet, or about to be removed: it is then not found by its name.
    hidden: AtomicBool,
    /// Held while it is closed or opened in the engines.
    pub(crate) changing: Mutex<()>,
    /// Its size in the engines, in bytes.
    size: AtomicU64,
    /// Its devices did not report their size at the last query.
    silent: AtomicBool,
    opening: Mutex<Opening>,
    opened: Condvar,
    /// Blocks that programs are changing.
    edited: Mutex<BTreeSet<u64>>,
    /// The fault of the flush by which data was lost.
    lost: OnceLock<Fault>,
    /// The shards whose writes have failed for long.
    pub(crate) failing: Mutex<BTreeSet<u32>>,
    /// Reads that found everything in the cache, from request to reply sent.
    pub(crate) hits: Histogram,
    /// Reads that had to wait.
    pub(crate) misses: Histogram,
    /// Writes, zeroes and trims.
    pub(crate) writes: Histogram,
    pub(crate) flushes: Histogram,
    /// Requests that took longer than the service's limit.
    slow: AtomicU64,
}

/// Whether the engines accept requests for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Open,
    /// They will do so again soon.
    Changing,
    Closed,
}

impl Disk {
    pub(crate) fn new(
        volume: Volume,
        tenant: Tenant,
        domain: u32,
        settings: DiskSettings,
        devices: Vec<Arc<DiskDevice>>,
        size: u64,
    ) -> Disk {
        Disk {
            volume,
            tenant,
            domain,
            devices,
            name: settings.name.clone(),
            read_only: AtomicBool::new(settings.read_only),
            taken_over: AtomicBool::new(false),
            throttle: Throttle::new(settings.iops, settings.bandwidth),
            writable: !settings.read_only,
            hidden: AtomicBool::new(true),
            changing: Mutex::default(),
            settings: Mutex::new(settings),
            size: AtomicU64::new(size),
            silent: AtomicBool::new(false),
            opening: Mutex::new(Opening::Open),
            opened: Condvar::new(),
            edited: Mutex::default(),
            lost: OnceLock::new(),
            failing: Mutex::default(),
            hits: Histogram::default(),
            misses: Histogram::default(),
            writes: Histogram::default(),
            flushes: Histogram::default(),
            slow: AtomicU64::new(0),
        }
    }

    /// Its number in the engines.
    pub fn volume(&self) -> Volume {
        self.volume
    }

    /// The tenant that is charged for its blocks.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its present settings.
    pub fn settings(&self) -> DiskSettings {
        lock(&self.settings).clone()
    }

    /// Adopts those settings that do not concern the engines.
    pub(crate) fn set(&self, settings: DiskSettings) {
        let mut now = lock(&self.settings);
        self.read_only.store(settings.read_only, Ordering::Release);
        if (settings.iops, settings.bandwidth) != (now.iops, now.bandwidth) {
            self.throttle.set(settings.iops, settings.bandwidth);
        }
        *now = settings;
    }

    /// Whether writes are rejected now.
    #[inline]
    pub fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire) || self.taken_over.load(Ordering::Acquire)
    }

    /// Writes are rejected from now on, whatever the settings: another writer has one of its devices. Returns whether that is
    /// new.
    pub(crate) fn take_over(&self) -> bool {
        !self.taken_over.swap(true, Ordering::AcqRel)
    }

    /// Whether the devices can be written, independent of the present settings.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden.load(Ordering::Acquire)
    }

    pub(crate) fn set_hidden(&self, hidden: bool) {
        self.hidden.store(hidden, Ordering::Release);
    }

    /// Whether requests have to wait for the rates.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.throttle.is_on()
    }

    /// Waits until a request of this many bytes is within the rates, or they change. Meanwhile calls `rest`, which
    /// returns after the given time, when `waker` is woken, or sooner. If `rest` returns false, so does this function,
    /// and the request must not be made.
    pub fn wait_for_turn(&self, bytes: u64, waker: &Waker, rest: impl FnMut(Duration) -> bool) -> bool {
        self.throttle.wait(bytes, waker, rest)
    }

    /// Parks the thread until a request of this many bytes is within the rates, or they change.
    pub(crate) fn park_for_turn(&self, bytes: u64) {
        self.throttle.park(bytes);
    }

    /// Lifts the rates: waiting requests continue at once. The rates are restored if a removal fails.
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

    /// Whether its devices report their size; returns whether that is new.
    pub(crate) fn set_silent(&self, silent: bool) -> bool {
        self.silent.swap(silent, Ordering::Relaxed) != silent
    }

    /// Records the latency of a request.
    pub fn measure(&self, measure: Measure, took: Duration) {
        match measure {
            Measure::Hit => self.hits.add(took),
            Measure::Miss => self.misses.add(took),
            Measure::Write => self.writes.add(took),
            Measure::Flush => self.flushes.add(took),
        }
    }

    /// A request took longer than the service's limit.
    pub fn count_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that took longer than the service's limit, while it had one.
    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// The devices, each with its part of a disk of `size` bytes.
    fn parts(&self, size: u64) -> impl Iterator<Item = (&DiskDevice, Range<u64>)> {
        let ends = self.devices.iter().skip(1).map(|next| next.begin).chain([size]);
        self.devices.iter().zip(ends).map(|(device, end)| (&**device, device.begin..end))
    }

    /// The regions of the parts of a disk of `size` bytes, for the engines.
    pub(crate) fn regions(&self, size: u64) -> Vec<Region> {
        self.parts(size).map(|(device, part)| Region::whole(device.port, part.end - part.start)).collect()
    }

    /// The size it would have if it were opened with the present size of its last device. The other devices keep their
    /// parts: a change of their size is logged.
    pub(crate) fn present_size(&self) -> io::Result<u64> {
        let mut present = self.size();
        for ((device, part), at) in self.parts(present).zip(1..) {
            let (size, is_new) = device.look_at_size()?;
            let before = part.end - part.start;
            if at == self.devices.len() {
                present = part.start + size;
            } else if is_new && size != before {
                tracing::warn!(
                    disk = self.name,
                    target = at,
                    before,
                    size,
                    "only the last target may change its size: the disk stays as it is"
                );
            }
        }
        Ok(present)
    }

    /// A stamp that changes when the disk changes, as `Geometry::stamp`; `None` if one of its devices has no stamp, or
    /// does not have the size that the engines know.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let of_each = self.parts(self.size()).map(|(device, part)| {
            let (size, stamp) = device.ask(|geometry| Ok((geometry.size()?, geometry.stamp()?))).ok()?;
            stamp.filter(|_| size == part.end - part.start)
        });
        Some(joint_stamp(&of_each.collect::<Option<Vec<Stamp>>>()?))
    }

    /// As `Geometry::extents` of its devices.
    pub fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        let mut extents: Vec<Extent> = Vec::new();
        for (device, part) in self.parts(self.size().max(range.end)) {
            let (start, end) = (range.start.max(part.start), range.end.min(part.end));
            if start >= end || extents.len() >= most {
                continue;
            }
            let inner = start - part.start..end - part.start;
            let found = device.ask(|geometry| geometry.extents(inner, most - extents.len()))?;
            for Extent { range, hole } in found {
                let range = part.start + range.start..(part.start + range.end).min(part.end);
                extents.push(Extent { range, hole });
            }
        }
        Ok(extents)
    }

    /// Each of its devices: the bytes of its part, what it has received and not made stable, and why it does not do what it is asked.
    pub(crate) fn states(&self) -> Vec<(u64, u64, Option<String>)> {
        let state = |(device, part): (&DiskDevice, Range<u64>)| {
            let staged = device.ask(|geometry| Ok(geometry.staged())).unwrap_or_default();
            (part.end - part.start, staged, device.trouble())
        };
        self.parts(self.size()).map(state).collect()
    }

    /// The state of its write log, if it has one.
    pub(crate) fn write_log(&self) -> Option<WriteLogState> {
        self.devices.first()?.ask(|geometry| Ok(geometry.write_log())).ok()?
    }

    /// The data that its devices have received and not made stable, in bytes, as far as they know.
    pub(crate) fn staged(&self) -> u64 {
        self.states().iter().map(|(_, staged, _)| staged).sum()
    }

    /// The fault of a device flush by which data was lost: since then, flushes and writes with FUA fail.
    pub fn lost(&self) -> Option<Fault> {
        self.lost.get().copied()
    }

    /// Whether its devices have failed writes for long.
    pub(crate) fn is_failing(&self) -> bool {
        !lock(&self.failing).is_empty()
    }

    /// A device flush failed with `fault`, and data was lost.
    pub(crate) fn set_lost(&self, fault: Fault) {
        // The first fault counts.
        let _ = self.lost.set(fault);
    }

    /// The devices are gone.
    pub(crate) fn forget_devices(&self) {
        self.devices.iter().for_each(|device| device.forget());
    }

    /// A program begins to change the blocks of `range`; returns false if one of them is being changed.
    pub(crate) fn begin_change(&self, range: &Range<u64>) -> bool {
        let mut edited = lock(&self.edited);
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let is_free = edited.range(blocks.clone()).next().is_none();
        if is_free {
            edited.extend(blocks);
        }
        is_free
    }

    /// The change that began with `begin_change` is over.
    pub(crate) fn end_change(&self, range: &Range<u64>) {
        let mut edited = lock(&self.edited);
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            edited.remove(&block);
        }
    }

    /// Its size in the engines, in bytes.
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

    /// As `wait_for_opening`, for at most `limit`; `None` if that is over before.
    pub fn wait_for_opening_within(&self, limit: Duration) -> Option<bool> {
        let changing = |opening: &mut Opening| *opening == Opening::Changing;
        let waited = self.opened.wait_timeout_while(lock(&self.opening), limit, changing);
        match *waited.unwrap_or_else(PoisonError::into_inner).0 {
            Opening::Changing => None,
            opening => Some(opening == Opening::Open),
        }
    }

    /// Waits until the engines accept requests again; returns false if they never will.
    pub fn wait_for_opening(&self) -> bool {
        let changing = |opening: &mut Opening| *opening == Opening::Changing;
        let opening = self.opened.wait_while(lock(&self.opening), changing).unwrap_or_else(PoisonError::into_inner);
        *opening == Opening::Open
    }
}

/// The disks, by number, and their devices, by port.
#[derive(Default)]
pub(crate) struct Disks {
    places: RwLock<Vec<Place>>,
    devices: RwLock<BTreeMap<Port, Arc<DiskDevice>>>,
    /// The number of the next group that shares memory.
    domains: AtomicU32,
}

/// A number for a disk. It is reused when all references to the disk that had it are gone.
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

    /// The disk with this number.
    pub(crate) fn numbered(&self, volume: Volume) -> Option<Arc<Disk>> {
        read(&self.places).get(volume.0 as usize)?.disk.clone()
    }

    /// The disk with this name, unless it is hidden.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Disk>> {
        self.all().into_iter().find(|disk| disk.name == name && !disk.is_hidden())
    }

    /// Whether a disk has this name, hidden or not.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.all().iter().any(|disk| disk.name == name)
    }

    /// The disks of a tenant, in the order of their numbers.
    pub(crate) fn of_tenant(&self, tenant: Tenant) -> Vec<Arc<Disk>> {
        self.all().into_iter().filter(|disk| disk.tenant == tenant).collect()
    }

    /// The number of the tenant of this name: that of its disks, or a free one. There always is one, since there are at
    /// most as many tenants as disks.
    pub(crate) fn tenant_named(&self, name: &str) -> Tenant {
        let disks = self.all();
        if let Some(disk) = disks.iter().find(|disk| lock(&disk.settings).tenant() == name) {
            return disk.tenant;
        }
        let taken: BTreeSet<Tenant> = disks.iter().map(|disk| disk.tenant).collect();
        let free = (0..).map(Tenant).find(|tenant| !taken.contains(tenant));
        free.expect("there are fewer disks than numbers")
    }

    /// The number of those who share memory with a disk of these settings: that of other disks, or a new one.
    pub(crate) fn domain_of(&self, settings: &DiskSettings) -> u32 {
        let disks = self.all();
        let same = disks.iter().find(|disk| lock(&disk.settings).shares_with(settings));
        // A number serves again late: blocks of disks that were removed may still be encoded.
        let next = || self.domains.fetch_add(1, Ordering::Relaxed) % DOMAINS_MAX;
        same.map_or_else(next, |disk| disk.domain)
    }

    /// All devices of disks.
    pub(crate) fn devices(&self) -> Vec<Arc<DiskDevice>> {
        read(&self.devices).values().cloned().collect()
    }

    /// The device at a port; `None` if that is one of a level.
    pub(crate) fn device_at(&self, port: Port) -> Option<Arc<DiskDevice>> {
        read(&self.devices).get(&port).cloned()
    }

    /// The device of an operation.
    pub(crate) fn device(&self, port: Port) -> Arc<DiskDevice> {
        let device = read(&self.devices).get(&port).cloned();
        device.expect("a disk has no operations when it is removed")
    }

    /// The disk of a device, if another writer has the device.
    pub(crate) fn taken_over(&self, port: Port) -> Option<Arc<Disk>> {
        let device = read(&self.devices).get(&port).cloned()?;
        let is_taken_over = device.ask(|geometry| Ok(geometry.is_taken_over())).unwrap_or(false);
        is_taken_over.then(|| self.of_port(port))
    }

    /// The disk of a device with an operation.
    pub(crate) fn of_port(&self, port: Port) -> Arc<Disk> {
        let has = |disk: &Arc<Disk>| disk.devices.iter().any(|device| device.port == port);
        self.all().into_iter().find(has).expect("a disk has no operations when it is removed")
    }

    /// A free number; `None` if the limit is reached.
    pub(crate) fn free_number(&self) -> Option<Volume> {
        let places = read(&self.places);
        let free = places.iter().position(|place| place.last.strong_count() == 0).unwrap_or(places.len());
        (free < DISKS_MAX).then_some(Volume(free as u32))
    }

    /// Ports that no device uses, after those of levels. There are enough for the most targets of the most disks.
    pub(crate) fn free_ports(&self) -> Vec<Port> {
        let devices = read(&self.devices);
        let free = (LEVELS_MAX as u16..).map(Port).filter(|port| !devices.contains_key(port));
        free.take(TARGETS_MAX).collect()
    }

    /// Adds a disk whose number and ports are free.
    pub(crate) fn add(&self, disk: Arc<Disk>) {
        write(&self.devices).extend(disk.devices.iter().map(|device| (device.port, device.clone())));
        let mut places = write(&self.places);
        let at = disk.volume.0 as usize;
        if places.len() <= at {
            places.resize_with(at + 1, Place::default);
        }
        places[at] = Place { last: Arc::downgrade(&disk), disk: Some(disk) };
    }

    pub(crate) fn remove(&self, disk: &Disk) {
        write(&self.devices).retain(|port, _| disk.devices.iter().all(|device| device.port != *port));
        write(&self.places)[disk.volume.0 as usize].disk = None;
    }
}

/// Whether a target of a disk is this file; false if the file does not exist.
pub(crate) fn has_file(settings: &DiskSettings, path: &Path) -> bool {
    settings.targets().filter_map(|target| target.path()).any(|target| same_file(target, path))
}

/// Whether both paths are the same file; false if it does not exist.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|of| identity(other) == Some(of))
}
