//! The host: its threads, their start and their end.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nigh_backend::{Driver, ServerShare};
use nigh_control::Directive;
use nigh_policy::{Spec, Stream};

use crate::admin::{check_writers, machine_memory};
use crate::cache::Cache;
use crate::call;
use crate::common::Common;
use crate::content::Contents;
use crate::disk::Disk;
use crate::ending;
use crate::error::{ChangeError, HostError, StartError, Unwritten};
use crate::extent::FileExtent;
use crate::level;
use crate::opening::Late;
use crate::session::Session;
use crate::settings::{DISKS_MAX, DiskSettings, LEVELS_MAX, Settings, TARGETS_MAX, completers};
use crate::statistics::{DiskStatistics, HostStatistics};
use crate::sync::lock;
use crate::tenants::{TenantStatistics, agree_in_tenants};
use crate::warm::Warm;
use crate::work::Work;

/// How long the start compares the file of a level with those of disks that do not respond.
const COMPARISON: Duration = Duration::from_secs(1);

/// A running cache of disks.
///
/// It is shut down by [`shut_down`](Host::shut_down), or when it is dropped: blocks that cannot be written are then
/// lost, and the loss is logged. Dropping it waits for the devices and the host's threads, except in a callback, where
/// another thread does that.
///
/// ```
/// use nigh_host::{DiskSettings, Host, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = DiskSettings::new("disk", "memory:16M".parse()?);
/// let host = Host::start(Settings::new(4 << 20, "lirs".parse()?, vec![disk]))?;
/// let session = host.open("disk")?;
/// session.write(8192, b"near", false)?;
/// let mut bytes = [0; 4];
/// session.read(8192, &mut bytes)?;
/// assert_eq!(&bytes, b"near");
///
/// let (sender, receiver) = std::sync::mpsc::channel();
/// session.read_then(8190..8194, move |read| sender.send(read).expect("it waits"));
/// assert_eq!(receiver.recv()??, b"\0\0ne");
///
/// session.flush()?;
/// assert!(host.statistics().1[0].hits > 0);
/// host.shut_down().map_err(|unwritten| unwritten[0].clone())?;
/// # Ok(())
/// # }
/// ```
pub struct Host {
    common: Arc<Common>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Runs a thread of the cache. If it panics, the cache stops.
fn or_poison(cache: &Cache, name: &str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("the {name} thread panicked: the cache has stopped");
        cache.poison();
    }
}

impl Host {
    /// Opens the disks and starts the threads that do I/O.
    pub fn start(settings: Settings) -> Result<Host, StartError> {
        Host::start_with(settings, None).map(|(host, _)| host)
    }

    /// As [`start`](Host::start), but waits no longer than `limit` for devices that do not respond: their disks are
    /// returned, to be opened when they do.
    pub fn start_within(settings: Settings, limit: Duration) -> Result<(Host, Late), StartError> {
        Host::start_with(settings, Some(limit))
    }

    fn start_with(mut settings: Settings, patience: Option<Duration>) -> Result<(Host, Late), StartError> {
        // The number of shards is fixed, whatever size the memory gets.
        settings.shards = Some(settings.shards());
        let there = machine_memory();
        if settings.memory > there {
            return Err(StartError::Memory { asked: settings.memory >> 20, there: there >> 20 });
        }
        let mut config = settings.engine();
        let limit = settings.shards() * (DISKS_MAX * TARGETS_MAX + LEVELS_MAX) * settings.depth as usize;
        let (driver, handle) = Driver::new(limit)?;
        let mut disks = std::mem::take(&mut settings.disks);
        agree_in_tenants(&mut disks)?;
        check_writers(&disks)?;
        let contents = settings
            .content
            .map(|content| Contents::new(content, settings.memory, settings.memory_max, settings.shards()));
        if let Some(contents) = &contents {
            config.capacity = contents.frames(settings.shards() as u32);
        }
        let above = usize::from(contents.is_some());
        let (mut levels, mut before) = (Vec::new(), Vec::new());
        let left = (there - settings.memory).saturating_sub(contents.as_ref().map_or(0, Contents::index_bytes));
        let limit = patience.map(|_| COMPARISON);
        let each = level::index_of_block(&settings.policy);
        for opened in level::open(&settings.levels, above, settings.shards(), left, each, &disks, limit)? {
            handle.attach(opened.level.port(), opened.device);
            levels.push(opened.level);
            before.push(opened.before);
        }
        if let Some(remote) = &settings.remote_level {
            let used = settings.levels.iter().map(|level| level::index_bytes(level.bytes, each)).sum();
            let left = left.saturating_sub(used);
            let (level, device) = level::open_remote(remote, above + levels.len(), settings.shards(), left, each)?;
            handle.attach(level.port(), device);
            levels.push(level);
        }
        let names = disks.iter().map(|disk| disk.name.as_str()).collect();
        let warm = settings.warm.as_ref().map(|warm| Warm::open(warm, &names)).transpose()?;
        let readahead = std::mem::take(&mut settings.readahead);
        let (shards, ports) = (settings.shards(), settings.ports());
        let cache = Cache::new(shards, &config, ports, contents, levels.into(), readahead, handle.clone())?;
        let common = Common {
            cache: Arc::new(cache),
            handle,
            settings: Mutex::new(settings),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            leaves_levels: AtomicBool::new(false),
            warm,
            administration: Mutex::new(()),
        };
        // From here on, dropping it ends its threads.
        let host = Host { common: Arc::new(common), threads: Mutex::default() };
        host.drive(driver)?;
        let late = host.common.open_first(disks, patience)?;
        host.common.begin_levels(before)?;
        if host.common.warm.is_some() {
            let at = host.common.clone();
            let keep = move || or_poison(&at.cache, "warm", || at.keep_warm());
            lock(&host.threads).push(Builder::new().name("warm".into()).spawn(keep)?);
        }
        Ok((host, late))
    }

    fn drive(&self, driver: Driver) -> Result<(), StartError> {
        let cache = &self.common.cache;
        let (long, completions) = channel();
        let completions = Arc::new(Mutex::new(completions));
        let drive = {
            let cache = cache.clone();
            move || {
                let mut work = Work::default();
                or_poison(&cache, "device", || {
                    driver.run(|done| {
                        for completion in done.drain(..) {
                            match completion.is_long() {
                                // If nobody takes it, the shards are poisoned.
                                true => drop(long.send(completion)),
                                false => cache.complete(completion, &mut work),
                            }
                        }
                        cache.dispatch(&mut work, None);
                    });
                });
            }
        };
        let at = self.common.clone();
        let keep_time = move || {
            or_poison(&at.cache, "timer", || at.cache.keep_time(|| at.closed.load(Ordering::Acquire)));
        };
        let mut threads = lock(&self.threads);
        for _ in 0..completers() {
            let (cache, completions) = (cache.clone(), completions.clone());
            let complete = move || or_poison(&cache, "completer", || cache.complete_all(&completions));
            threads.push(Builder::new().name("completer".into()).spawn(complete)?);
        }
        threads.push(Builder::new().name("driver".into()).spawn(drive)?);
        threads.push(Builder::new().name("timer".into()).spawn(keep_time)?);
        if cache.contents.is_some() {
            let cache = cache.clone();
            threads.push(
                Builder::new().name("encoder".into()).spawn(move || or_poison(&cache, "encoder", || cache.encode()))?,
            );
        }
        Ok(())
    }

    /// The shards, for a front end.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.common.cache
    }

    /// The disk of this name.
    pub fn disk(&self, name: &str) -> Option<Arc<Disk>> {
        self.common.cache.disks.named(name)
    }

    /// A session on the disk of this name.
    pub fn open(&self, name: &str) -> Result<Session, HostError> {
        self.open_as(name, Stream(0))
    }

    /// As [`open`](Host::open), with the identity of the code that issues the requests, which policies may use.
    pub fn open_as(&self, name: &str, stream: Stream) -> Result<Session, HostError> {
        let disk = self.disk(name).ok_or_else(|| HostError::NoDisk(name.to_owned()))?;
        Ok(Session::new(&self.common.cache, &disk, stream))
    }

    /// The present settings, without those of disks.
    pub fn settings(&self) -> Settings {
        let readahead = self.common.cache.readahead().spec();
        Settings { readahead, ..lock(&self.common.settings).clone() }
    }

    /// The present state of the host, and its disks in the order of their numbers.
    pub fn statistics(&self) -> (HostStatistics, Vec<DiskStatistics>) {
        let disks = self.common.cache.disks.all();
        let disks = disks.iter().filter(|disk| !disk.is_hidden()).map(|disk| self.disk_statistics(disk));
        (self.host_statistics(), disks.collect())
    }

    /// The present state of the host.
    pub fn host_statistics(&self) -> HostStatistics {
        self.common.statistics()
    }

    /// The present state of a disk.
    pub fn disk_statistics(&self, disk: &Disk) -> DiskStatistics {
        self.common.disk_statistics(disk)
    }

    /// The memory that the encoded blocks of each disk take, in bytes, by its name; a block that several share counts in equal
    /// parts. Takes time in proportion to the number of encoded blocks.
    pub fn encoded_bytes(&self) -> BTreeMap<String, u64> {
        let named = |(volume, bytes)| Some((self.common.cache.disks.numbered(volume)?.name().to_owned(), bytes as u64));
        self.common.cache.charged().into_iter().filter_map(named).collect()
    }

    /// The present state of the tenants; none without [`Settings::allocate`].
    pub fn tenant_statistics(&self) -> Vec<TenantStatistics> {
        self.common.cache.tenant_statistics()
    }

    /// Changes memory and policy at run time, a few blocks at a time. A new policy starts without a history of evicted
    /// blocks.
    pub fn change(&self, memory: Option<u64>, policy: Option<&Spec>) -> Result<(), ChangeError> {
        self.common.change(memory, policy)
    }

    /// Changes the servers of the level on other hosts, and the parts of it that they have. The level keeps its size, and what moves to another server is
    /// empty.
    pub fn change_level_servers(&self, servers: &[ServerShare]) -> Result<(), ChangeError> {
        self.common.change_level_servers(servers)
    }

    /// Opens another disk.
    pub fn add(&self, settings: DiskSettings) -> Result<Arc<Disk>, ChangeError> {
        self.common.add(settings)
    }

    /// Removes a disk: requests in progress are replied to, and its dirty blocks are written, or dropped with
    /// `discard`. If they cannot be written, the disk stays.
    pub fn remove(&self, name: &str, discard: bool) -> Result<(), ChangeError> {
        self.common.remove(name, discard)
    }

    /// Changes the settings of a disk, except its name, targets and tenant, while it is in use. A floor or ceiling
    /// changes for all disks of its tenant.
    pub fn set(&self, name: &str, change: impl FnOnce(&mut DiskSettings)) -> Result<(), ChangeError> {
        self.common.set(name, change)
    }

    /// Applies a hint of a disk's tenant about files of this disk: which blocks it needs less, and which it will read.
    /// A tenant has one list of predicted reads for all its disks.
    pub fn hint(&self, name: &str, directive: &Directive) -> Result<(), ChangeError> {
        self.common.hint(name, directive)
    }

    /// Names files as [`name_files`](Host::name_files) does, if there are any, and applies the directives of a sidecar
    /// (docs/control.md), one after the other; none of them if the sidecar is invalid.
    pub fn hint_all(&self, name: &str, files: &[FileExtent], sidecar: &str) -> Result<(), ChangeError> {
        self.common.hint_all(name, files, sidecar)
    }

    /// Makes `extents` the files of a disk, which is one file, number 0, until then. Earlier hints for its files are forgotten.
    pub fn name_files(&self, name: &str, extents: &[FileExtent]) -> Result<(), ChangeError> {
        self.common.name_files(name, extents)
    }

    /// The hints of a disk's tenant that are in effect, as far as they concern its files or priority levels, as a
    /// sidecar of directives (docs/control.md).
    pub fn hints(&self, name: &str) -> Result<String, ChangeError> {
        self.common.hints(name)
    }

    /// Writes back the dirty blocks of one disk or of all, and flushes the devices.
    pub fn write_back(&self, name: Option<&str>) -> Result<(), ChangeError> {
        self.common.write_back(name)
    }

    /// Writes back the dirty blocks of a disk with a write log, and everything in the log to its target. Waits for as long as that takes; an error
    /// if the target fails, or there is no log.
    pub fn drain(&self, name: &str) -> Result<(), ChangeError> {
        self.common.drain(name)
    }

    /// Has writes of a disk wait for at most `limit`, so that its targets can be copied, and returns when they have everything that was
    /// written before, its write log included. Reads go on. An error if that takes longer than `limit`, or a target fails: then nothing waits.
    pub fn freeze(&self, name: &str, limit: Duration) -> Result<(), ChangeError> {
        self.common.freeze(name, limit)
    }

    /// Has the writes of a frozen disk go on. [`ChangeError::Thawed`] if they already did.
    pub fn thaw(&self, name: &str) -> Result<(), ChangeError> {
        self.common.thaw(name)
    }

    /// Adapts a disk whose last target changed its size: it is written back and opened anew, with an empty cache. Waits
    /// a few seconds at most: a device that does not respond is adapted when it does.
    pub fn look_at_size(&self, disk: &Arc<Disk>) {
        self.common.look_at_size(disk);
    }

    /// Replies to the requests in progress, writes everything back, and ends the threads. Blocks that cannot be
    /// written, after three attempts, are lost, and their disks are returned. Later requests fail.
    ///
    /// # Panics
    /// In a callback, which must not wait.
    pub fn shut_down(&self) -> Result<(), Vec<Unwritten>> {
        ending::shut_down(&self.common, self.take_threads())
    }

    /// As [`shut_down`](Host::shut_down), for at most `limit`. All disks are written at once, so a device that does not
    /// respond delays no other disk. Disks that are not closed when the time is over are returned with
    /// [`HostError::Late`] and the number of bytes that are only in memory. The process should then end: what remains is
    /// written only while it lives.
    ///
    /// # Panics
    /// As `shut_down`.
    pub fn shut_down_within(&self, limit: Duration) -> Result<(), Vec<Unwritten>> {
        ending::shut_down_within(&self.common, self.take_threads(), limit)
    }

    /// From now on, the dirty blocks of all disks are written at once, whatever their age: for a host that is about to be
    /// shut down.
    pub fn hurry(&self) {
        self.common.cache.hurry();
    }

    /// Has the end leave levels as they are: blocks that are only in memory are not stored there.
    pub fn leave_levels(&self) {
        self.common.leaves_levels.store(true, Ordering::Release);
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        assert!(!call::is_running(), "a callback must not wait for the end of its host");
        std::mem::take(&mut *lock(&self.threads))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let (common, threads) = (self.common.clone(), std::mem::take(&mut *lock(&self.threads)));
        let end = move || {
            for lost in ending::shut_down(&common, threads).err().unwrap_or_default() {
                tracing::error!(%lost, "dirty blocks are lost");
            }
        };
        if !call::is_running() {
            end();
        } else if let Err(error) = Builder::new().name("farewell".into()).spawn(end) {
            tracing::error!(%error, "cannot start the thread that shuts the cache down");
        }
    }
}
