//! Changes of a running host: memory, policy, disks and their settings.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use nigh_backend::{Device, Geometry, OpenError, OpenErrorKind, Options, Target};
use nigh_engine::Volume;
use nigh_policy::Spec;

use crate::common::Common;
use crate::device::DiskDevice;
use crate::disk::{Disk, Opening, has_file, same_file};
use crate::error::{ChangeError, DiskError, HostError, Unwritten};
use crate::settings::{BLOCK, DiskSettings, TARGETS_MAX, TENANT_NAME_MAX};
use crate::sync::{lock, lock_within};
use crate::tenants::agree_in_tenants;

/// How long a client waits for a disk whose size changed.
const RESIZING: Duration = Duration::from_secs(5);
/// How long a change of a disk waits for another one.
const CHANGING: Duration = Duration::from_secs(1);
/// Interval at which the end of a drain is checked.
const DRAIN_LOOK: Duration = Duration::from_secs(1);
/// A drain ends with an error if the target fails all writes for so many seconds.
const DRAIN_PATIENCE: u32 = 10;
/// The number of attempts to write dirty blocks when a disk is closed.
pub(crate) const CLOSING_TRIES: u32 = 3;

/// Memory of the machine, in bytes.
pub(crate) fn machine_memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit)
}

/// The error if one of these disks would write the same disk in an object store as another one.
pub(crate) fn check_writers<'a>(disks: impl IntoIterator<Item = &'a DiskSettings>) -> Result<(), DiskError> {
    let mut writers: HashMap<_, &str> = HashMap::new();
    for settings in disks.into_iter().filter(|settings| !settings.read_only) {
        for target in settings.targets().filter_map(Target::objects) {
            if let Some(other) = writers.insert(target.place(), &settings.name) {
                let disks = [other.to_owned(), settings.name.clone()];
                return Err(DiskError::OneWriter { disks, place: target.to_string() });
            }
        }
    }
    Ok(())
}

impl Common {
    /// Changes memory and policy. If the policy changes, it loses its history of absent blocks.
    pub(crate) fn change(&self, memory: Option<u64>, policy: Option<&Spec>) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        let settings = lock(&self.settings).clone();
        let most = settings.memory_max.max(settings.memory);
        let memory = memory.unwrap_or(settings.memory);
        let policy = policy.filter(|policy| **policy != settings.policy);
        if memory < BLOCK {
            return Err(ChangeError::MemoryMin);
        }
        let there = machine_memory();
        if memory > there {
            return Err(ChangeError::Memory { asked: memory >> 20, there: there >> 20 });
        }
        if memory > most {
            return Err(ChangeError::MemoryMax { asked: memory >> 20, most: most >> 20 });
        }
        if policy.is_some() || memory != settings.memory {
            self.cache.change_memory(policy, memory, settings.blocks_per_shard(memory))??;
            let mut settings = lock(&self.settings);
            settings.memory = memory;
            if let Some(policy) = policy {
                settings.policy = policy.clone();
            }
        }
        Ok(())
    }

    /// Opens another disk.
    pub(crate) fn add(&self, settings: DiskSettings) -> Result<Arc<Disk>, ChangeError> {
        let present: Vec<DiskSettings> = self.cache.disks.all().iter().map(|disk| disk.settings()).collect();
        let opened = self.open_targets(&settings, &present)?;
        self.add_in_use(settings, opened)
    }

    /// Opens a disk whose targets are open, while the host is in use.
    pub(crate) fn add_in_use(&self, settings: DiskSettings, opened: Vec<Opened>) -> Result<Arc<Disk>, ChangeError> {
        let added = {
            let _one = self.administrate()?;
            self.add_opened(settings, opened)
        };
        Ok(added?)
    }

    /// Opens the targets of another disk beside `others`. They may not respond, so no lock is held.
    pub(crate) fn open_targets(
        &self,
        settings: &DiskSettings,
        others: &[DiskSettings],
    ) -> Result<Vec<Opened>, DiskError> {
        self.check_new(settings)?;
        if settings.targets().count() > TARGETS_MAX {
            return Err(DiskError::Targets(settings.name.clone()));
        }
        settings.check_log()?;
        if let Some(level) = self.cache.levels.iter().find(|level| has_file(settings, level.path())) {
            return Err(DiskError::Level { name: settings.name.clone(), path: level.path().to_owned() });
        }
        open(settings).map_err(|error| name_other(settings, others, error))
    }

    fn check_new(&self, settings: &DiskSettings) -> Result<Volume, DiskError> {
        self.check_tenant(settings)?;
        if settings.targets().any(|target| target.objects().is_some()) {
            let present: Vec<DiskSettings> = self.cache.disks.all().iter().map(|disk| disk.settings()).collect();
            check_writers(present.iter().chain([settings]))?;
        }
        let volume = self.cache.disks.free_number().ok_or(DiskError::TooMany)?;
        match self.cache.disks.is_taken(&settings.name) {
            true => Err(DiskError::Duplicate(settings.name.clone())),
            false => Ok(volume),
        }
    }

    /// Opens a disk whose targets are open. After an error, their remains are to be dropped when nothing is locked.
    pub(crate) fn add_opened(
        &self,
        mut settings: DiskSettings,
        opened: Vec<Opened>,
    ) -> Result<Arc<Disk>, Box<NotAdded>> {
        settings.take_over = false;
        let tenant = self.cache.disks.tenant_named(settings.tenant());
        let domain = self.cache.disks.domain_of(&settings);
        let volume = self.check_new(&settings).and_then(|volume| {
            if let Some(member) = self.cache.disks.of_tenant(tenant).first() {
                agree_in_tenants([&mut member.settings(), &mut settings])?;
            }
            Ok(volume)
        });
        let volume = match volume {
            Ok(volume) => volume,
            Err(error) => return Err(Box::new(NotAdded { error, _opened: opened, _devices: Vec::new(), disk: None })),
        };
        let end = opened.iter().map(|opened| opened.size).fold(0, u64::saturating_add);
        let (mut devices, mut begin) = (Vec::new(), 0u64);
        for (Opened { device, geometry, size }, port) in opened.into_iter().zip(self.cache.disks.free_ports()) {
            devices.push(Arc::new(DiskDevice::new(port, begin, geometry, size)));
            begin = begin.saturating_add(size);
            self.handle.attach(port, device);
        }
        let disk = Arc::new(Disk::new(volume, tenant, domain, settings, devices, end));
        self.cache.disks.add(disk.clone());
        if let Err(error) = self.open_in_cache(&disk) {
            // Nothing can be lost.
            let _ = self.cache.close(&disk, true);
            let devices = self.take_disk(&disk);
            return Err(Box::new(NotAdded { error, _opened: Vec::new(), _devices: devices, disk: Some(disk) }));
        }
        self.share_settings(&disk);
        disk.set_hidden(false);
        Ok(disk)
    }

    fn open_in_cache(&self, disk: &Disk) -> Result<(), DiskError> {
        let (name, settings) = (|| disk.name().to_owned(), disk.settings());
        let opened = self.cache.open(disk, disk.size(), settings.write_mode)?;
        opened.map_err(|source| DiskError::Config { name: name(), source: Box::new(source) })?;
        if self.cache.has_tenants() {
            self.cache.name_whole(disk, disk.size())?;
            self.cache.set_tenant(disk.tenant, &settings)??;
        }
        Ok(())
    }

    /// Settings of the tenant of `disk` are in the settings of all its disks.
    fn share_settings(&self, disk: &Disk) {
        let DiskSettings { floor, ceiling, policy, .. } = disk.settings();
        for member in self.cache.disks.of_tenant(disk.tenant) {
            let settings = member.settings();
            if (settings.floor, settings.ceiling, &settings.policy) != (floor, ceiling, &policy) {
                member.set(DiskSettings { floor, ceiling, policy: policy.clone(), ..settings });
            }
        }
    }

    /// Removes a disk: requests in progress are replied to, and its dirty blocks are written, or dropped with
    /// `discard`.
    pub(crate) fn remove(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        let disk = {
            let _one = self.administrate()?;
            let disk = self.find(name)?;
            disk.set_hidden(true);
            disk
        };
        // Its device may not respond, so the host is not locked: nobody else changes a hidden disk.
        // No request waits for the rates.
        disk.lift_rates();
        let closed = {
            let _one = lock(&disk.changing);
            disk.set_opening(Opening::Changing);
            let closed = self.close(&disk, discard).or_else(|unwritten| match unwritten.cause {
                // The contents of a poisoned shard are lost already.
                HostError::Poisoned(_) if discard => Ok(()),
                _ => Err(unwritten),
            });
            if closed.is_err() {
                disk.restore_rates();
                // Some shards may have closed it already.
                if let Err(error) = self.reopen(&disk, disk.size(), false) {
                    tracing::error!(disk = disk.name(), %error, "cannot open it again");
                }
            }
            disk.set_opening(if closed.is_ok() { Opening::Closed } else { Opening::Open });
            closed
        };
        if let Err(unwritten) = closed {
            disk.set_hidden(false);
            return Err(match unwritten {
                Unwritten { name, cause: HostError::Lost(fault), .. } => ChangeError::Lost { name, fault },
                unwritten => unwritten.into(),
            });
        }
        let devices = {
            // If the host ends, that is part of its end.
            let _one = self.administrate()?;
            self.take_disk(&disk)
        };
        // Now its files are closed and unlocked, which may wait for them, too.
        drop(devices);
        disk.forget_devices();
        Ok(())
    }

    /// Closes a disk in the engines, with several attempts.
    pub(crate) fn close(&self, disk: &Disk, discard: bool) -> Result<(), Unwritten> {
        let mut result = Ok(());
        for _ in 0..CLOSING_TRIES {
            result = self.cache.close(disk, discard);
            if result.is_ok() {
                break;
            }
        }
        result.map_err(|cause| self.unwritten(disk, cause))
    }

    /// Not everything of `disk` is written because of `cause`; or everything is that was not lost before.
    pub(crate) fn unwritten(&self, disk: &Disk, cause: HostError) -> Unwritten {
        let bytes = self.cache.counters(disk).1 * BLOCK;
        let lost = disk.lost().filter(|_| bytes == 0);
        Unwritten {
            name: disk.name().to_owned(),
            bytes,
            staged: disk.staged(),
            cause: lost.map_or(cause, HostError::Lost),
        }
    }

    /// Removes a disk that is closed in all engines, and returns its devices. A tenant leaves with its last disk.
    fn take_disk(&self, disk: &Disk) -> Vec<Box<dyn Device>> {
        let mut devices = Vec::new();
        for device in &disk.devices {
            device.drop_waiting();
            if self.cache.is_driven() {
                // An error means that the device is gone.
                devices.extend(self.handle.detach(device.port).recv());
            }
            self.cache.detach(device.port);
        }
        self.cache.disks.remove(disk);
        if self.cache.has_tenants() && self.cache.disks.of_tenant(disk.tenant).is_empty() {
            // A poisoned shard forgets everything.
            let _ = self.cache.close_tenant(disk.tenant);
        }
        devices
    }

    /// Changes the settings of a disk while it is in use.
    pub(crate) fn set(&self, name: &str, change: impl FnOnce(&mut DiskSettings)) -> Result<(), ChangeError> {
        let _one = self.administrate()?;
        let disk = self.find(name)?;
        let mut settings = disk.settings();
        change(&mut settings);
        if !settings.read_only && !disk.is_writable() {
            return Err(ChangeError::OpenedReadOnly(settings.name));
        }
        self.check_tenant(&settings)?;
        let before = disk.settings();
        if !settings.targets().eq(before.targets()) {
            return Err(ChangeError::Targets(settings.name));
        }
        if settings.write_log != before.write_log {
            return Err(ChangeError::WriteLog(settings.name));
        }
        if settings.tenant() != before.tenant() {
            return Err(ChangeError::Moves { name: settings.name, tenant: before.tenant().to_owned() });
        }
        if settings.share != before.share {
            return Err(ChangeError::Shares(settings.name));
        }
        let busy = || ChangeError::Busy(disk.name().to_owned());
        let _changing = lock_within(&disk.changing, CHANGING).ok_or_else(busy)?;
        if self.cache.has_tenants() {
            self.cache.set_tenant(disk.tenant, &settings)??;
        }
        self.cache.set_mode(&disk, settings.write_mode)?;
        disk.set(settings);
        self.share_settings(&disk);
        Ok(())
    }

    /// Writes back the dirty blocks of one disk or of all, and flushes the devices.
    pub(crate) fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        let disks = match name {
            Some(name) => vec![self.find(name)?],
            // The thread that removes a disk writes it.
            None => self.cache.disks.all().into_iter().filter(|disk| !disk.is_hidden()).collect(),
        };
        // All at once: one that does not respond does not delay the others, and one that has no room for more comes last.
        let mut begun: Vec<_> = disks.iter().map(|disk| (disk, self.cache.begin_write_back(disk, false))).collect();
        begun.sort_by_key(|(_, begun)| begun.is_err());
        let mut result = Ok(());
        for (disk, begun) in begun {
            let mut written = begun.map(|begun| self.cache.finish_write_back(begun));
            while written.is_err() && disk.wait_for_opening() {
                written = self.cache.write_back(disk);
            }
            match written {
                Ok(written) => result = result.and(written.map_err(|cause| self.unwritten(disk, cause))),
                Err(_) if name.is_none() => {}
                Err(_) => return Err(ChangeError::NoDisk(disk.name().to_owned())),
            }
        }
        Ok(result?)
    }

    /// Writes back the dirty blocks of a disk, and everything in its write log to its target.
    pub(crate) fn drain(&self, name: &str) -> Result<(), ChangeError> {
        let disk = self.find(name)?;
        let no_log = || ChangeError::NoWriteLog(name.to_owned());
        let state = || disk.write_log();
        state().ok_or_else(no_log)?;
        // A log that failed takes no flush: what it has can go home all the same.
        let written = self.write_back(Some(name));
        let device = disk.devices.first().ok_or_else(no_log)?;
        let drained = device.ask(|geometry| geometry.drain()).map_err(|_| no_log())?;
        let mut failing_s = 0;
        loop {
            match drained.recv_timeout(DRAIN_LOOK) {
                Ok(()) => return written,
                Err(RecvTimeoutError::Disconnected) => return Err(no_log()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let state = state().ok_or_else(no_log)?;
            failing_s = if state.is_failing { failing_s + 1 } else { 0 };
            if failing_s >= DRAIN_PATIENCE {
                let (records, bytes) = (state.records, state.used_bytes);
                return Err(ChangeError::Undrained { name: name.to_owned(), records, bytes });
            }
        }
    }

    fn check_tenant(&self, settings: &DiskSettings) -> Result<(), DiskError> {
        let says_nothing =
            settings.tenant() == settings.name && (settings.floor, settings.ceiling, &settings.policy) == (0, 0, &None);
        if !self.cache.has_tenants() && !says_nothing {
            return Err(DiskError::NoTenants(settings.name.clone()));
        }
        // If a tenant is named after its disk, the restrictions on tenant names do not apply.
        let is_odd = |name: &String| !(1..=TENANT_NAME_MAX).contains(&name.len()) || name.contains(char::is_control);
        match settings.tenant.as_ref().filter(|name| is_odd(name)) {
            Some(_) => Err(DiskError::TenantName(settings.name.clone())),
            None => Ok(()),
        }
    }

    /// Adapts a disk to targets whose size changed. Waits no longer than a few seconds: if its device does not respond,
    /// it is adapted later.
    pub(crate) fn look_at_size(self: &Arc<Self>, disk: &Arc<Disk>) {
        // A disk with lost data is closed by an administrator only.
        if disk.is_hidden() || disk.lost().is_some() {
            return;
        }
        let present = disk.present_size();
        let is_new = disk.set_silent(present.is_err());
        match present {
            Ok(size) if size == disk.size() => return,
            Ok(_) => {}
            Err(error) if is_new => return tracing::warn!(disk = disk.name(), %error, "cannot determine its size"),
            Err(_) => return,
        }
        if disk.wait_for_opening_within(Duration::ZERO).is_some() {
            let (common, disk) = (self.clone(), disk.clone());
            let (done, resized) = channel();
            let run = move || {
                common.resize_if_open(&disk);
                // Nobody waits any more if it took long.
                let _ = done.send(());
            };
            match Builder::new().name("resize".into()).spawn(run) {
                Ok(_) => _ = resized.recv_timeout(RESIZING),
                Err(error) => tracing::warn!(%error, "no thread to change the size of a disk"),
            }
        } else {
            disk.wait_for_opening_within(RESIZING);
        }
    }

    fn resize_if_open(&self, disk: &Disk) {
        let _one = lock(&disk.changing);
        match disk.present_size() {
            Ok(size) if size != disk.size() && !disk.is_hidden() => self.resize(disk, size),
            _ => {}
        }
    }

    fn resize(&self, disk: &Disk, size: u64) {
        disk.set_opening(Opening::Changing);
        let closed = self.cache.close(disk, false);
        let size = match &closed {
            Ok(()) => size,
            Err(cause) => {
                tracing::error!(disk = disk.name(), %cause, "its size changed, but its dirty blocks cannot be written back");
                disk.size()
            }
        };
        match self.reopen(disk, size, closed.is_ok()) {
            Ok(()) => {
                tracing::info!(disk = disk.name(), before = disk.size(), size, "its size changed");
                disk.set_size(size);
                disk.set_opening(Opening::Open);
            }
            Err(error) => {
                tracing::error!(disk = disk.name(), %error, "cannot open it with its new size");
                disk.set_opening(Opening::Closed);
            }
        }
    }

    fn reopen(&self, disk: &Disk, size: u64, was_closed: bool) -> Result<(), DiskError> {
        let settings = disk.settings();
        let opened = self.cache.open(disk, size, settings.write_mode)?;
        opened.map_err(|error| DiskError::Config { name: disk.name().to_owned(), source: Box::new(error) })?;
        if was_closed && size > 0 && self.cache.has_tenants() {
            self.cache.name_whole(disk, size)?;
        }
        Ok(())
    }
}

impl DiskSettings {
    /// The error if it cannot have its write log.
    pub(crate) fn check_log(&self) -> Result<(), DiskError> {
        let name = || self.name.clone();
        match &self.write_log {
            Some(_) if !self.next.is_empty() => {
                Err(DiskError::WriteLog { name: name(), reason: "it has several targets" })
            }
            Some(_) if self.read_only => Err(DiskError::WriteLog { name: name(), reason: "it is read-only" }),
            _ => Ok(()),
        }
    }

    /// The error if the target at this place cannot have this size.
    pub(crate) fn check_size(&self, target: &Target, at: usize, size: u64) -> Result<(), DiskError> {
        let wrong = |reason| Err(DiskError::Size { name: self.name.clone(), reason });
        match size {
            0 => wrong(format!("{target} is empty")),
            size if at < self.next.len() && !size.is_multiple_of(BLOCK) => wrong(format!(
                "{target} has {size} bytes: for all targets but the last the size must be a multiple of {BLOCK}"
            )),
            _ => Ok(()),
        }
    }
}

/// A target of a disk.
pub(crate) struct Opened {
    device: Box<dyn Device>,
    geometry: Arc<dyn Geometry>,
    /// In bytes.
    size: u64,
}

/// A disk that could not be added, and what is left of it: files, whose closing may wait for their devices.
pub(crate) struct NotAdded {
    error: DiskError,
    _opened: Vec<Opened>,
    _devices: Vec<Box<dyn Device>>,
    disk: Option<Arc<Disk>>,
}

impl From<Box<NotAdded>> for DiskError {
    fn from(not_added: Box<NotAdded>) -> DiskError {
        if let Some(disk) = &not_added.disk {
            disk.forget_devices();
        }
        not_added.error
    }
}

impl From<Box<NotAdded>> for ChangeError {
    fn from(not_added: Box<NotAdded>) -> ChangeError {
        DiskError::from(not_added).into()
    }
}

/// `error` of opening a disk, in other words if it is another target of this host that has the file locked.
fn name_other(settings: &DiskSettings, others: &[DiskSettings], error: DiskError) -> DiskError {
    let DiskError::Open { source: OpenError { kind: OpenErrorKind::Busy, path, .. }, .. } = &error else {
        return error;
    };
    let own = settings.targets().filter_map(Target::path).filter(|own| same_file(own, path)).count();
    let other = others.iter().find(|other| other.name != settings.name && has_file(other, path));
    let mut disks = match other {
        _ if own > 1 => [settings.name.clone(), settings.name.clone()],
        Some(other) => [other.name.clone(), settings.name.clone()],
        None => return error,
    };
    disks.sort();
    DiskError::OneFile { disks, path: path.clone() }
}

/// Opens the targets of a disk.
fn open(settings: &DiskSettings) -> Result<Vec<Opened>, DiskError> {
    let name = || settings.name.clone();
    let DiskSettings { read_only, take_over, .. } = *settings;
    let options = Options { read_only, take_over, block_bytes: BLOCK as u32, name: name(), ..Options::default() };
    let mut opened = Vec::new();
    for (target, at) in settings.targets().zip(0..) {
        let device = match &settings.write_log {
            Some(log) => target.open_logged(log, &options),
            None => target.open(&options),
        };
        let device = device.map_err(|source| DiskError::Open { name: name(), source })?;
        let geometry = device.geometry();
        let size = loop {
            match geometry.size() {
                // The caller waits for the target.
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                size => break size,
            }
        };
        let size = size.map_err(|error| {
            let reason = format!("cannot determine the size of {target}: {error}");
            DiskError::Size { name: name(), reason }
        })?;
        settings.check_size(target, at, size)?;
        opened.push(Opened { device, geometry, size });
    }
    Ok(opened)
}
