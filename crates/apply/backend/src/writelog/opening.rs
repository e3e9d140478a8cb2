//! Opening a disk with its write log.
//!
//! 1. The log's file is made if it does not exist, and both devices are opened and locked.
//! 2. Recovery reads the log, and refuses one that belongs to another disk.
//! 3. The blocks that recovery names are written and flushed. Then the marker beside the disk's file is, and only then the log is used.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nigh_engine::{Action, Fault, Operation, OwnFrames};
use nigh_writelog::{BLOCK, GROUP_BLOCKS_MAX, Id, OpenError as LogError, Owner, RING_OFFSET, Settings};
use rustix::event::epoll;
use rustix::fs::{FallocateFlags, fallocate};
use slab::Slab;

use crate::device::{Device, Job};
use crate::error::{OpenError, OpenErrorKind};
use crate::log_state::WriteLogState;
use crate::open::Options;
use crate::signal::Signal;
use crate::target::Target;
use crate::writelog::marker::{self, Marker};
use crate::writelog::settings::WriteLogSettings;
use crate::writelog::state::Common;
use crate::writelog::{COPY_BLOCKS, Logged, OWN};

/// A log's device while it is opened: one operation at a time.
struct Waiting {
    device: Box<dyn Device>,
    memory: OwnFrames,
    signal: Signal,
}

impl Waiting {
    fn perform(&mut self, range: std::ops::Range<u64>, action: Action) -> io::Result<()> {
        self.device.submit(Job::new(0, Operation::own(OWN, range, action)));
        let mut done = Vec::new();
        loop {
            self.device.poll(Instant::now(), &mut done);
            if let Some(completion) = done.pop() {
                let (_, _, result) = completion.settle();
                return result.map_err(|Fault(errno)| io::Error::from_raw_os_error(errno));
            }
            let timeout = self.device.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.signal.wait_with(self.device.signal().into_iter(), timeout);
        }
    }

    /// Reads whole blocks.
    fn read(&mut self, mut place: u64, out: &mut [u8]) -> io::Result<()> {
        for out in out.chunks_mut((GROUP_BLOCKS_MAX * BLOCK) as usize) {
            let frames = self.memory.take(out.len()).expect("memory for a group");
            let exclusive = self.memory.exclusive(&frames, out.len());
            self.perform(place..place + out.len() as u64, Action::Read(exclusive))?;
            self.memory.shared(&frames, out.len()).copy_to(out);
            self.memory.give(frames);
            place += out.len() as u64;
        }
        Ok(())
    }

    fn write(&mut self, mut place: u64, data: &[u8]) -> io::Result<()> {
        for data in data.chunks((GROUP_BLOCKS_MAX * BLOCK) as usize) {
            let frames = self.memory.take(data.len()).expect("memory for a group");
            self.memory.exclusive(&frames, data.len()).copy_from(data);
            let shared = self.memory.shared(&frames, data.len());
            self.perform(place..place + data.len() as u64, Action::Write(shared))?;
            self.memory.give(frames);
            place += data.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.perform(0..0, Action::Flush)
    }
}

/// Random bytes that no client can guess.
fn new_id() -> Id {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    (half() << 64 | half()).to_be_bytes()
}

/// Makes the file at `path`, unless there is one that is not empty.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > 0 {
        return Ok(());
    }
    file.set_len(bytes)?;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        allocated => allocated?,
    }
    file.sync_all()
}

/// Opens the disk `target` with a log.
pub(crate) fn open(
    target: &Target,
    settings: &WriteLogSettings,
    options: &Options,
) -> Result<Box<dyn Device>, OpenError> {
    let home = target.open(&Options { has_log: true, ..options.clone() })?;
    let log_path = settings.target.path();
    let shown = || log_path.map_or_else(|| settings.target.to_string().into(), Path::to_path_buf);
    let failed = |kind, source| OpenError { kind, action: "use the write log", path: shown(), source };
    let system = |source: io::Error| failed(OpenErrorKind::System, source);
    let refused = |text: String| failed(OpenErrorKind::Unsuitable, io::Error::other(text));
    if options.read_only {
        return Err(refused("a disk with a write log is not read-only".to_owned()));
    }
    if !u64::from(options.block_bytes).is_multiple_of(BLOCK) {
        return Err(refused(format!("blocks of {} bytes do not fit its own, of {BLOCK}", options.block_bytes)));
    }
    let geometry = home.geometry();
    let disk_bytes = loop {
        match geometry.size() {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            size => break size.map_err(system)?,
        }
    };
    let marker = target.path().and_then(marker::path_for);
    let known = marker.as_deref().map(marker::read).transpose().map_err(system)?;
    let is_new = |path: &Path| std::fs::metadata(path).map_or(true, |file| file.is_file() && file.len() == 0);
    let lost = || {
        let marker = marker.as_deref().map_or_else(String::new, |marker| marker.display().to_string());
        refused(format!(
            "it is new, but {target} has a write log: its newest writes may be there. To do without them for good, delete {marker}"
        ))
    };
    if known.as_ref().is_some_and(Option::is_some) && log_path.is_some_and(is_new) {
        return Err(lost());
    }
    log_path.map_or(Ok(()), |path| make(path, settings.bytes)).map_err(system)?;
    let of_log = Options { read_only: false, unlocked: false, has_log: true, ..options.clone() };
    let device = settings.target.open(&of_log)?;
    let bytes = device.geometry().size().map_err(system)?;
    let memory = OwnFrames::new(GROUP_BLOCKS_MAX as u32 + 2, BLOCK as u32);
    let memory = memory.ok_or_else(|| system(ErrorKind::OutOfMemory.into()))?;
    let mut waiting = Waiting { device, memory, signal: Signal::new().map_err(system)? };
    let mut first = vec![0; RING_OFFSET as usize];
    if bytes < WriteLogSettings::LEAST {
        return Err(refused(format!("it has {bytes} bytes, and a log at least {}", WriteLogSettings::LEAST)));
    }
    waiting.read(0, &mut first).map_err(system)?;
    let owner = match &known {
        None => Owner::Unknown,
        Some(None) => Owner::Nobody(new_id()),
        Some(Some((id, _))) => Owner::Log(*id),
    };
    if first.iter().all(|byte| *byte == 0) {
        if let Owner::Log(_) = owner {
            return Err(lost());
        }
        let made = nigh_writelog::format(new_id(), bytes, disk_bytes).expect("it has the least size");
        waiting.write(0, &made).and_then(|()| waiting.flush()).map_err(system)?;
    }
    let begin = Instant::now();
    let read = |place: u64, out: &mut [u8]| waiting.read(place, out);
    let opened =
        nigh_writelog::open(Settings::default(), bytes, disk_bytes, owner, 0, read).map_err(|error| match error {
            LogError::Read(error) => system(error),
            LogError::OtherLog => {
                let its = known.as_ref().and_then(|known| known.as_ref()).map_or("another one", |(_, log)| log);
                refused(format!("it is not the log of {target}, which is {its}"))
            }
            LogError::OtherDisk => {
                refused(format!("it holds writes of another disk than {target}: give each disk its own log"))
            }
            other => refused(other.to_string()),
        })?;
    for phase in &opened.phases {
        for (place, bytes) in phase {
            waiting.write(*place, bytes).map_err(system)?;
        }
        waiting.flush().map_err(system)?;
    }
    let id = opened.log.id();
    let marker = marker.map(|path| Marker::make(path, id, &settings.to_string())).transpose().map_err(system)?;
    if opened.groups > 0 {
        let used = opened.log.statistics(0);
        let (disk, log) = (&options.name, &settings.target);
        tracing::info!(disk, %log, records = used.records, "its write log has writes that its target does not have: they go there now");
    }
    let Waiting { device, memory, signal } = waiting;
    let watch = watch(&signal, [&*home, &*device]).map_err(system)?;
    let state = WriteLogState { target: settings.target.to_string(), ..WriteLogState::default() };
    let common = Common {
        name: options.name.clone(),
        settings: settings.clone(),
        home: geometry,
        signal,
        state: Mutex::new(state),
        drains: Mutex::default(),
    };
    let copy_memory = OwnFrames::new(COPY_BLOCKS, BLOCK as u32);
    let copy_memory = copy_memory.ok_or_else(|| system(ErrorKind::OutOfMemory.into()))?;
    let mut logged = Logged {
        home,
        device,
        log: opened.log,
        begin,
        common: Arc::new(common),
        watch,
        marker,
        changes: Slab::new(),
        ways: Slab::new(),
        reads: Slab::new(),
        copies: Slab::new(),
        commit_memory: memory,
        copy_memory,
        committing: None,
        held: None,
        drains: Vec::new(),
        done: VecDeque::new(),
        is_failing: false,
        listed: None,
    };
    logged.publish(begin);
    Ok(Box::new(logged))
}

/// Readable when the signal is raised or a device has something to do.
fn watch(signal: &Signal, devices: [&dyn Device; 2]) -> io::Result<std::os::fd::OwnedFd> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&watch, signal, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    for fd in devices.iter().filter_map(|device| device.signal()) {
        epoll::add(&watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(watch)
}
