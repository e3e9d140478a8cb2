//! ublk as a front of the service: disks as block devices of this host.

#![doc = include_str!("../README.md")]

mod commands;
mod device;
mod in_use;
mod kernel;
mod recovery;
mod request;
mod slot;
mod worker;

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nigh_host::front::lock;
use nigh_service::front::{Export, Front, Guest, Mail, Refused};
use nigh_service::{DiskSettings, Listen, Service, WriteMode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub use device::DeviceError;

use crate::device::Driver;
use crate::kernel::{DEPTH_MAX, Info};
use crate::recovery::{FOLDER, Fate, Note, Own, fate};
use crate::slot::Over;
use crate::worker::{Common, QueueError, Requests, Worker};

/// Stack of a queue's thread.
const STACK: usize = 256 << 10;
/// The interval between checks whether a disk is open.
const GLANCE: Duration = Duration::from_millis(100);

/// A block device of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkSettings {
    /// The export that it is.
    pub export: String,
    /// Queues at most, each with a thread; 1 to 64. The kernel makes at most one for each processor.
    pub queues: u16,
    /// Requests of a queue in progress at most; 1 to 4096.
    pub depth: u16,
    /// The number N of `/dev/ublkbN`; without this, the kernel chooses one.
    pub number: Option<u32>,
    /// It stays when the server ends in order, also if it is not seen to be in use.
    pub keep: bool,
}

impl UblkSettings {
    /// Default number of queues.
    pub const QUEUES: u16 = 4;
    /// Most queues of a device.
    pub const QUEUES_MAX: u16 = 64;
    /// Default depth of a queue.
    pub const DEPTH: u16 = 128;
    /// The deepest queue.
    pub const DEPTH_MAX: u16 = DEPTH_MAX as u16;
    /// The highest number of a device.
    pub const NUMBER_MAX: u32 = (1 << 20) - 1;

    /// `export`, with the defaults.
    pub fn new(export: impl Into<String>) -> UblkSettings {
        let (queues, depth) = (UblkSettings::QUEUES, UblkSettings::DEPTH);
        UblkSettings { export: export.into(), queues, depth, number: None, keep: false }
    }

    /// Descriptors that it needs: for the driver, its ring, the character device, the note and the connection, and two for each queue.
    pub fn descriptors(&self) -> usize {
        6 + 2 * usize::from(self.queues)
    }
}

/// The error if this kernel has no ublk that can be used, or this process may not use it.
pub fn check() -> Result<(), DeviceError> {
    Driver::open().map(drop)
}

/// Has the kernel not write to a device in order to find memory for this process and the threads that it starts: that device may be one of
/// its own. Needs CAP_SYS_RESOURCE.
pub fn become_io_flusher() -> std::io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Why a server does not serve a block device any more.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("a queue: {0}")]
    Queue(#[from] QueueError),
    #[error("a thread of a queue ended before it began")]
    NoThread,
    #[error("the disk cannot be chosen: {0:?}")]
    Refused(Refused),
    #[error(
        "the server before this one did not write everything: what its users rely on may be lost, so the device has ended"
    )]
    Lost,
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// The block device of a disk: [`Service::attach`] takes it, with [`Ublk::connect`].
#[derive(Clone)]
pub struct Ublk {
    inner: Arc<Inner>,
}

struct Inner {
    settings: UblkSettings,
    driver: Mutex<Driver>,
    device: Device,
    /// Opened; without this, the device has another server or had one.
    character: Mutex<Option<File>>,
    /// The device has no disk yet.
    is_new: AtomicBool,
    /// The device has been left for another server.
    is_left: AtomicBool,
    note: Note,
    /// The loss of writes is accepted.
    accepts_loss: bool,
    /// The server ends; the device is to go on with the next one if it is in use.
    ending: AtomicBool,
    /// Another server takes the place of this one.
    replaced: AtomicBool,
    /// The result of its start; empty until then.
    started: Mutex<Option<Result<PathBuf, String>>>,
    has_started: Condvar,
}

/// A device as it was made.
#[derive(Clone, Copy)]
struct Device {
    number: u32,
    own: Own,
    queues: u16,
    depth: u16,
}

impl Ublk {
    /// Makes the device of a disk, or finds the one that waits for a server of it; the disk appears when the service has the device. If this server
    /// `replaces` a running one, that may still have it. To be called while the process may open its files.
    pub fn prepare(
        settings: UblkSettings,
        disk: &DiskSettings,
        replaces: bool,
        accepts_loss: bool,
    ) -> Result<Ublk, DeviceError> {
        let mut driver = Driver::open()?;
        let survives = disk.read_only || disk.write_log.is_some() || disk.write_mode == WriteMode::Through;
        let targets: Vec<String> = disk.targets().map(ToString::to_string).collect();
        let own = Own::new(&disk.name, targets.iter().map(String::as_str), survives);
        let note = |number| {
            Note::open(Path::new(FOLDER), number)
                .map_err(|error| DeviceError::System("its note in /run/nigh-ublk", error))
        };
        let mut found = None;
        for number in Driver::devices() {
            let Some(info) = driver.settled(number, false)? else { continue };
            if !Own::of(&info).is_some_and(|other| other.is_same_disk(own)) {
                continue;
            }
            let note = note(number)?;
            match fate(&info, note.has_ended(&info), accepts_loss) {
                Fate::Taken if !replaces => return Err(DeviceError::Taken(device::disk(number).display().to_string())),
                Fate::Taken | Fate::GoesOn if found.is_none() => found = Some((Device::found(&info), note)),
                _ => {
                    driver.stop(number);
                    driver.delete(number);
                }
            }
        }
        let (device, note, character) = match found {
            Some((device, note)) => (device, note, None),
            None => {
                let info = driver.add(settings.number, settings.queues, settings.depth, own)?;
                let added = note(info.device).and_then(|note| Ok((Driver::open_character(info.device)?, note)));
                match added {
                    Ok((character, note)) => {
                        note.begin();
                        (Device::found(&info), note, Some(character))
                    }
                    Err(error) => {
                        driver.delete(info.device);
                        return Err(error);
                    }
                }
            }
        };
        Ok(Ublk {
            inner: Arc::new(Inner {
                settings,
                driver: Mutex::new(driver),
                device,
                is_new: AtomicBool::new(character.is_some()),
                character: Mutex::new(character),
                is_left: AtomicBool::new(false),
                note,
                accepts_loss,
                ending: AtomicBool::new(false),
                replaced: AtomicBool::new(false),
                started: Mutex::default(),
                has_started: Condvar::new(),
            }),
        })
    }

    /// The export that it is.
    pub fn export(&self) -> &str {
        &self.inner.settings.export
    }

    /// Its character device, which the server opens.
    pub fn character(&self) -> PathBuf {
        device::character(self.inner.device.number)
    }

    /// Has `service` serve it. Returns the other end of its connection: the device ends when that is dropped.
    pub fn connect(&self, service: &Service) -> std::io::Result<OwnedFd> {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (own, other) = pair()?;
        let output = own.try_clone()?;
        service.attach(self.clone(), own, output, || ());
        Ok(other)
    }

    /// Waits for its start: the path of the disk, or why there is none; `None` if that takes longer than `limit`.
    pub fn wait_for_start(&self, limit: Duration) -> Option<Result<PathBuf, String>> {
        let started = lock(&self.inner.started);
        let waited = self.inner.has_started.wait_timeout_while(started, limit, |started| started.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The server is about to end, or, if it is `replaced`, to leave its place to another one. A device that is in use then stays, and its requests
    /// wait for the next server; any other one is removed. Without this call, it is removed when the export is.
    pub fn will_end(&self, replaced: bool) {
        self.inner.replaced.store(replaced, Ordering::Release);
        self.inner.ending.store(true, Ordering::Release);
    }

    /// The server does not end after all.
    pub fn goes_on(&self) {
        self.inner.ending.store(false, Ordering::Release);
    }

    /// The server has ended, and everything that was acknowledged is on the disk: the device can go on with the next server.
    pub fn end(&self) {
        if self.inner.is_left.load(Ordering::Acquire) {
            self.inner.note.end(self.inner.device.own);
        }
    }
}

impl Device {
    fn found(info: &Info) -> Device {
        Device {
            number: info.device,
            own: Own::of(info).expect("it is one of nigh's"),
            queues: info.queues,
            depth: info.depth,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.is_new.get_mut() {
            *lock(&self.character) = None;
            lock(&self.driver).delete(self.device.number);
        }
    }
}

impl Front for Ublk {
    fn uri(&self, _: &Listen, _: &str, _: bool) -> Option<String> {
        None
    }

    fn serve(&self, guest: &Guest<'_>) {
        let export = self.export();
        if let Err(error) = self.inner.serve(guest) {
            tracing::error!(export, "its block device: {error}");
            self.inner.note_start(Err(error.to_string()));
            guest.note_failed(&error);
        }
    }
}

/// The queues of a device that is served.
struct Queues {
    mails: Vec<Arc<Mail<Over>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Queues {
    /// Begins the threads of all queues; returns when the driver has all of their commands.
    fn begin(common: &Arc<Common>, queues: u16, depth: u16) -> Result<Queues, Ended> {
        let mut begun = Queues { mails: Vec::new(), threads: Vec::new() };
        let (ready, results) = channel();
        for queue in 0..queues {
            let mail = Arc::new(Mail::new(depth.into())?);
            let (at, common, ready) = (mail.clone(), common.clone(), ready.clone());
            let serve = move || {
                let worker = match Worker::begin(&common, &at, queue, depth) {
                    Ok(worker) => worker,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let mut requests = Requests::new(&common, &at, queue, depth);
                let _ = ready.send(Ok(()));
                drop(ready);
                if let Err(error) = worker.run(&mut requests) {
                    let disk = common.export.name();
                    tracing::error!(disk, queue, %error, "a queue of a block device is not served any more");
                }
                // Its device ends.
                common.stream.iter().for_each(|stream| stream.shut_down());
            };
            begun.mails.push(mail);
            begun.threads.push(Builder::new().name("ublk".into()).stack_size(STACK).spawn(serve)?);
        }
        drop(ready);
        for _ in 0..queues {
            match results.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(Ended::NoThread),
            }
        }
        Ok(begun)
    }

    /// Each takes no more requests, and ends when none is in progress.
    fn stop(&self) {
        self.mails.iter().for_each(|mail| mail.stop());
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("the thread of a queue panicked");
            }
        }
    }
}

impl Inner {
    fn note_start(&self, result: Result<PathBuf, String>) {
        lock(&self.started).get_or_insert(result);
        self.has_started.notify_all();
    }

    /// The export, when it is open; `None` if the server ends before that.
    fn export(&self, guest: &Guest<'_>) -> Option<Arc<Export>> {
        loop {
            let found = guest.exports(&[]).into_iter().find(|export| export.name() == self.settings.export);
            if found.is_some() {
                return found;
            }
            if guest.stream().wait_for_input(GLANCE) {
                return None;
            }
        }
    }

    /// Serves the device until its export is removed, the server ends, or the device does.
    fn serve(&self, guest: &Guest<'_>) -> Result<(), Ended> {
        let Some(export) = self.export(guest) else { return Ok(()) };
        guest.enter(&export, &[]).map_err(Ended::Refused)?;
        let device = self.device;
        let character = lock(&self.character).take();
        let character = character.map_or_else(|| self.recover(), Ok)?;
        let common = Arc::new(Common {
            cache: guest.host().cache().clone(),
            export: export.clone(),
            id: guest.id,
            recorder: guest.recorder().clone(),
            stream: Some(guest.stream().clone()),
            device: Arc::new(character),
            survives: device.own.survives(),
        });
        let queues = Queues::begin(&common, device.queues, device.depth)?;
        let is_new = self.is_new.swap(false, Ordering::AcqRel);
        let started = self.start(&export, is_new);
        if started.is_err() {
            drop(queues);
            drop(common);
            if is_new {
                lock(&self.driver).delete(device.number);
            }
            return Ok(started?);
        }
        let path = device::disk(device.number);
        tracing::info!("{} is {}", export.name(), path.display());
        guest.announce(format!("ublk:{}", path.display()));
        self.note_start(Ok(path));
        while guest.stream().read(&mut [IoSliceMut::new(&mut [0])], true).is_ok_and(|bytes| bytes > 0) {}
        let stays = self.stays(device.number);
        if !stays {
            // The queues serve what comes until its disk has ended.
            lock(&self.driver).stop(device.number);
        }
        drop(queues);
        drop(common);
        if !stays {
            lock(&self.driver).delete(device.number);
        }
        self.is_left.store(stays, Ordering::Release);
        Ok(())
    }

    /// Makes a device that had another server ready for this one, if its users have lost nothing.
    fn recover(&self) -> Result<File, Ended> {
        let device = self.device;
        let mut driver = lock(&self.driver);
        let info = driver.settled(device.number, true)?;
        let fate = info.map_or(Fate::Ends, |info| fate(&info, self.note.has_ended(&info), self.accepts_loss));
        match fate {
            Fate::GoesOn => {}
            Fate::Taken => return Err(DeviceError::Taken(device::disk(device.number).display().to_string()).into()),
            Fate::Ends => {
                driver.stop(device.number);
                driver.delete(device.number);
                return Err(Ended::Lost);
            }
        }
        driver.begin_recovery(device.number)?;
        self.note.begin();
        Ok(Driver::open_character(device.number)?)
    }

    /// Begins the disk, or has it go on.
    fn start(&self, export: &Export, is_new: bool) -> Result<(), DeviceError> {
        let device = self.device;
        let mut driver = lock(&self.driver);
        let size = export.disk.size();
        if is_new {
            return driver.start(device.number, size, export.disk.read_only());
        }
        let known = driver.bytes(device.number)?;
        if known != size {
            let path = device::disk(device.number);
            tracing::warn!("{} keeps its size of {known} bytes: the disk has {size} now", path.display());
        }
        driver.end_recovery(device.number)
    }

    /// Whether the device stays when it is not served any more.
    fn stays(&self, device: u32) -> bool {
        if !self.ending.load(Ordering::Acquire) {
            return false;
        }
        let path = device::disk(device);
        let in_use = || in_use::use_of(path.file_name()?.to_str()?);
        let reason = match () {
            () if self.replaced.load(Ordering::Acquire) => Some("another server takes it".to_owned()),
            () if self.settings.keep => Some("it is to be kept".to_owned()),
            () => in_use(),
        };
        if let Some(reason) = &reason {
            tracing::info!("{} waits for the next server: {reason}", path.display());
        }
        reason.is_some()
    }
}
