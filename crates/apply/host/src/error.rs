//! Errors.

use std::path::PathBuf;

use nigh_backend::OpenError;
use nigh_control::Refusal;
use nigh_control::sidecar::SidecarError;
use nigh_engine::{ConfigError, Fault};

use crate::extent::FileExtent;
use crate::settings::{BLOCK, DISKS_MAX, FILES_MAX, LEVELS_MAX, PIN_MOST, TARGETS_MAX, TENANT_NAME_MAX};

/// An assertion of a shard's engine failed: the shard is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} of the cache failed an assertion and is out of use")]
pub struct Poisoned {
    /// Which shard.
    pub shard: u32,
}

/// Why a request is not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The engine rejects it.
    #[error(transparent)]
    Refused(#[from] nigh_engine::Refusal),
    /// The engine has stopped.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a request of a program fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is no disk of this name.
    #[error("there is no disk {0}")]
    NoDisk(String),
    /// The disk was removed, or the host shut down.
    #[error("the disk is closed")]
    Closed,
    /// The disk is read-only.
    #[error("the disk is read-only")]
    ReadOnly,
    /// A callback called an operation that waits.
    #[error("a callback must not wait")]
    InCallback,
    /// The range passes the end of the disk.
    #[error("the range passes the end of the disk")]
    OutOfRange,
    /// The process is a child of the one that started the host, whose threads do not run in it.
    #[error("the cache belongs to the process that forked this one")]
    Forked,
    /// The range cannot be pinned.
    #[error("a pin has 1 byte to {} KiB, within one MiB of the disk, and whole blocks if it is to be changed", PIN_MOST >> 10)]
    PinRange,
    /// The session has as many blocks pinned as it can.
    #[error("the session has as many blocks pinned as it can")]
    TooManyPins,
    /// Another change of the same blocks is not committed yet.
    #[error("the blocks are being changed")]
    BeingChanged,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Fault),
    /// The device failed a flush, and data that is no longer in memory may be lost; or memory damaged data that was not
    /// written yet.
    #[error("its device failed a flush and may have lost data, or memory damaged data before it was written ({0})")]
    Lost(Fault),
    /// The device did not complete what it was to do within the time that the host had to end.
    #[error("its device did not complete in time")]
    Late,
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a level cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// Its file is not usable.
    #[error("level {0}")]
    File(#[from] nigh_backend::LevelError),
    /// Its file cannot be opened as a device.
    #[error("level: {0}")]
    Open(#[from] OpenError),
    /// It is memory.
    #[error("a level is a file, not memory")]
    Memory,
    /// A disk uses the file as a target.
    #[error("level {path}: it is the target of disk {name}: choose another file", path = path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The disk.
        name: String,
    },
    /// It was given twice.
    #[error("level {path}: given twice", path = .0.display())]
    Twice(PathBuf),
    /// A server of a level on other hosts cannot be used.
    #[error("level {0}")]
    Server(#[source] std::io::Error),
    /// It is smaller than a block for each shard.
    #[error("level {path}: it has less than a block of {BLOCK} bytes for each shard", path = path.display())]
    Small {
        /// Its server.
        path: PathBuf,
    },
    /// There are more levels than possible.
    #[error("at most {LEVELS_MAX} levels are possible, encoded blocks included")]
    Many,
    /// There is not enough memory for its index.
    #[error("level {path}: its index needs {index} MiB, but only {left} MiB of the machine's memory are left: choose a smaller size", path = path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// The memory of the index, in MiB.
        index: u64,
        /// The memory left, in MiB.
        left: u64,
    },
}

/// Why a host does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A disk cannot be opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A level cannot be used.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The list of blocks that were in memory cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Warm {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file for this list holds something else, which is not replaced.
    #[error("{path} is no list of blocks: choose another file, or remove this one", path = .0.display())]
    NoWarm(PathBuf),
    /// The machine has less memory.
    #[error("{asked} MiB of memory requested, but the machine has only {there} MiB")]
    Memory {
        /// The memory requested, in MiB.
        asked: u64,
        /// The memory of the machine, in MiB.
        there: u64,
    },
    /// The configuration of the cache is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system cannot provide a thread or descriptor.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Why a disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another disk has its name.
    #[error("disk {0} already exists")]
    Duplicate(String),
    /// There are already as many disks as possible.
    #[error("at most {DISKS_MAX} disks are possible")]
    TooMany,
    /// It has too many targets.
    #[error("disk {0}: at most {TARGETS_MAX} targets are possible")]
    Targets(String),
    /// It cannot have a write log.
    #[error("disk {name}: it cannot have a write log: {reason}")]
    WriteLog {
        /// The disk.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// One of its targets cannot be opened.
    #[error("disk {name}: {source}")]
    Open {
        /// The disk.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// The size of one of its targets is unknown, is 0, or leaves the next one in the middle of a block.
    #[error("disk {name}: {reason}")]
    Size {
        /// The disk.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The engines reject it.
    #[error("disk {name}: {source}")]
    Config {
        /// The disk.
        name: String,
        /// Why.
        source: Box<ConfigError>,
    },
    /// One of its targets is a level.
    #[error("disk {name}: {path} is a level of this cache: choose another target", path = path.display())]
    Level {
        /// The disk.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A disk in an object store would be written twice: the last to open it ends the other.
    #[error("disks {} and {} are both {place}: a disk in an object store has one writer; open one of them with read-only", .disks[0], .disks[1])]
    OneWriter {
        /// The disks; the same one if two of its targets are the same.
        disks: [String; 2],
        /// The disk in the object store.
        place: String,
    },
    /// A file that is written is a target of two disks, or twice of one: each would have blocks that the other does not know.
    #[error("{} {}: a file that is written is one target: let clients share an export, or open both with read-only", both(.disks), path.display())]
    OneFile {
        /// The disks; the same one if two of its targets are the same.
        disks: [String; 2],
        /// The file.
        path: PathBuf,
    },
    /// It has a tenant, a floor, a ceiling or a policy in a cache without tenants.
    #[error("disk {0}: a tenant, a floor, a ceiling or a policy of its own needs an allocation, such as lru-sp")]
    NoTenants(String),
    /// The name of its tenant is empty, too long, or contains control characters.
    #[error("disk {0}: the name of a tenant must have from 1 to {TENANT_NAME_MAX} bytes and no control characters")]
    TenantName(String),
    /// Disks of one tenant give different floors, ceilings or policies.
    #[error("disks {} and {} of tenant {tenant} give different values of {what}: give it for one disk only", .disks[0], .disks[1])]
    Disagree {
        /// The tenant.
        tenant: String,
        /// Two of its disks.
        disks: [String; 2],
        /// The name of the setting.
        what: &'static str,
    },
    /// The engines reject its floor, ceiling or policy.
    #[error("disk {name}: {source}")]
    Tenant {
        /// The disk.
        name: String,
        /// Why.
        source: Refusal,
    },
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

fn both([one, other]: &[String; 2]) -> String {
    if one == other { format!("two targets of disk {one} are") } else { format!("disks {one} and {other} are both") }
}

/// Why a change of a running host is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no disk of this name.
    #[error("there is no disk {0}")]
    NoDisk(String),
    /// It was opened read-only.
    #[error("disk {0} was opened read-only: to change that, remove it and add it again")]
    OpenedReadOnly(String),
    /// The change would replace its targets.
    #[error("the targets of disk {0} cannot change while it is open: remove it and add it again")]
    Targets(String),
    /// The change would replace its write log.
    #[error("the write log of disk {0} cannot change while it is open: drain it, remove the disk and add it again")]
    WriteLog(String),
    /// It has no write log.
    #[error("disk {0} has no write log")]
    NoWriteLog(String),
    /// Its write log cannot become empty.
    #[error("disk {name}: its target fails writes; {records} writes of {bytes} bytes are in its write log only")]
    Undrained {
        /// The disk.
        name: String,
        /// Writes in the log.
        records: u64,
        /// Bytes of the log that they take.
        bytes: u64,
    },
    /// Not everything was written before the end of the freeze, or a target failed.
    #[error("disk {0} is not frozen: its targets did not have everything in time, or failed a flush")]
    Unfrozen(String),
    /// It is open for reading only.
    #[error("disk {0} is not frozen: it is open for reading only, so others change its target, if anybody does")]
    OpenForReading(String),
    /// It is frozen no more.
    #[error(
        "disk {0} is not frozen, or is no more: its writes go on when the time is over, or if a target fails a flush, and what is copied after that may be inconsistent"
    )]
    Thawed(String),
    /// A disk cannot be opened, or not with these settings.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The change would let it share memory with other disks.
    #[error("with whom disk {0} shares memory cannot change while it is open: remove it and add it again")]
    Shares(String),
    /// The change would replace its tenant.
    #[error("the tenant of disk {name}, {tenant}, cannot change while it is open: remove it and add it again")]
    Moves {
        /// The disk.
        name: String,
        /// Its tenant.
        tenant: String,
    },
    /// The machine has less memory.
    #[error("{asked} MiB of memory requested, but the machine has only {there} MiB")]
    Memory {
        /// The memory requested, in MiB.
        asked: u64,
        /// The memory of the machine, in MiB.
        there: u64,
    },
    /// The memory is smaller than a block.
    #[error("expected at least {BLOCK} bytes of memory")]
    MemoryMin,
    /// More memory than address space was reserved for.
    #[error("{asked} MiB of memory requested, but the cache was started with a limit of {most} MiB")]
    MemoryMax {
        /// The memory requested, in MiB.
        asked: u64,
        /// The limit, in MiB.
        most: u64,
    },
    /// The configuration of the cache is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Dirty blocks cannot be written: the disk stays open.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// Data of the disk was lost, everything else is written: the disk stays open.
    #[error("disk {name}: {cause}; everything else is written: to give up what is lost, remove the disk with discard", cause = HostError::Lost(*.fault))]
    Lost {
        /// The disk.
        name: String,
        /// The fault of the flush, or [`Fault::DAMAGED`].
        fault: Fault,
    },
    /// The change would replace levels.
    #[error(
        "levels and the encoding of blocks (content) can only change with a restart; of a level on other hosts, the list of servers can change"
    )]
    Levels,
    /// Settings of tenants that are for the start.
    #[error("allocation, batches and prefetch window of a cache change with a restart")]
    Tenants,
    /// A hint is rejected.
    #[error("disk {name}: {source}")]
    Hint {
        /// The disk.
        name: String,
        /// Why.
        source: Box<HintError>,
    },
    /// The disk is being removed, or adapted to another size.
    #[error("disk {0} is being changed, and its device has not completed that: try again later")]
    Busy(String),
    /// The host is shutting down.
    #[error("the cache is shutting down")]
    Stopping,
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// A disk with dirty blocks that could not be written, or whose device has not confirmed that all is stable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disk {name}: not everything is written ({}): {cause}", unwritten(*bytes, *staged))]
pub struct Unwritten {
    /// Its name.
    pub name: String,
    /// Its data that the device has not received, in bytes.
    pub bytes: u64,
    /// Its data that the device has received and not made stable, in bytes, as far as that is known: of disks in object stores and
    /// exports of NBD servers.
    pub staged: u64,
    /// The last error.
    pub cause: HostError,
}

fn unwritten(bytes: u64, staged: u64) -> String {
    match (bytes, staged) {
        (0, 0) => "its device has not confirmed that all is stable".to_owned(),
        (bytes, 0) => format!("{bytes} bytes in memory"),
        (0, staged) => format!("{staged} bytes that are not stable yet"),
        (bytes, staged) => format!("{bytes} bytes in memory, and {staged} bytes that are not stable yet"),
    }
}

/// Why a hint is rejected.
#[derive(Debug, thiserror::Error)]
pub enum HintError {
    /// The cache has no tenants.
    #[error("hints need an allocation, such as lru-sp")]
    NoTenants,
    /// The disk does not have the file.
    #[error("there is no file {0}")]
    NoFile(u32),
    /// The extent of a file is not on the disk, or is not aligned.
    #[error("file {}, offset {}: expected extents that begin at multiples of {BLOCK} and lie on the disk, and file numbers below {FILES_MAX}", .0.file, .0.offset)]
    BadExtent(FileExtent),
    /// Parts of files overlap.
    #[error("extents overlap")]
    Overlap,
    /// It exceeds a limit, or is impossible.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The text is not a sidecar.
    #[error(transparent)]
    Form(#[from] SidecarError),
    /// It refers to a later time or another tenant.
    #[error("hints take effect at once: leave out 'tenant', 'request' and 'time_ns'")]
    NotNow,
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

impl HintError {
    pub(crate) fn of(self, name: &str) -> ChangeError {
        ChangeError::Hint { name: name.to_owned(), source: Box::new(self) }
    }
}
