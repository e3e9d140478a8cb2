//! What can go wrong.

use std::path::PathBuf;

use nigh_backend::OpenError;
use nigh_control::Refusal;
#[cfg(feature = "sidecar")]
use nigh_control::sidecar::SidecarError;
use nigh_engine::{ConfigError, Fault};

use crate::extent::FileExtent;
use crate::settings::{BLOCK, DISKS_MAX, FILES_MAX, LEVELS_MAX, TARGETS_MAX, TENANT_NAME_MAX};

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
    /// The engine does not take it.
    #[error(transparent)]
    Refused(#[from] nigh_engine::Refusal),
    /// There is no engine any more.
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
    /// The disk cannot be written.
    #[error("the disk is read-only")]
    ReadOnly,
    /// A callback asked for what would make it wait.
    #[error("a callback must not wait")]
    InCallback,
    /// The range passes the end of the disk.
    #[error("the range passes the end of the disk")]
    OutOfRange,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Fault),
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a level cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// Its file cannot be one.
    #[error("level {0}")]
    File(#[from] nigh_backend::LevelError),
    /// Its file cannot be opened as a device.
    #[error("level: {0}")]
    Open(#[from] OpenError),
    /// It is memory.
    #[error("a level is a file, not memory")]
    Memory,
    /// A disk has its blocks there.
    #[error("level {path}: it is the target of disk {name}: choose another file", path = path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The disk.
        name: String,
    },
    /// It is two levels.
    #[error("level {path}: it was given twice", path = .0.display())]
    Twice(PathBuf),
    /// There are more than there can be.
    #[error("there cannot be more than {LEVELS_MAX} levels")]
    Many,
    /// There is not enough memory for its index.
    #[error("level {path}: its index takes {index} MiB, and {left} MiB of the machine's memory are left for it: choose a smaller size", path = path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// In MiB.
        index: u64,
        /// In MiB.
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
    /// There is less memory in the machine.
    #[error("{asked} MiB of memory were asked for, and the machine has {there} MiB")]
    Memory {
        /// In MiB.
        asked: u64,
        /// In MiB.
        there: u64,
    },
    /// The cache cannot be set up so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system gives no thread or descriptor.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Why a disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another has its name.
    #[error("there is a disk {0} already")]
    Duplicate(String),
    /// There are as many as there can be.
    #[error("there cannot be more than {DISKS_MAX} disks")]
    TooMany,
    /// It has more targets than it can have.
    #[error("disk {0}: it cannot have more than {TARGETS_MAX} targets")]
    Targets(String),
    /// One of its targets cannot be opened.
    #[error("disk {name}: {source}")]
    Open {
        /// The disk.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// The size of one of its targets is not known, is 0, or leaves the next one in the middle of a block.
    #[error("disk {name}: {reason}")]
    Size {
        /// The disk.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The engines cannot open it.
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
    /// It has a tenant, a floor or a ceiling in a cache without tenants.
    #[error("disk {0}: a floor or ceiling takes an allocation, such as lru-sp, and so does a tenant")]
    NoTenants(String),
    /// Its tenant has no name, or a longer or odder one than it can have.
    #[error("disk {0}: the name of a tenant has from 1 to {TENANT_NAME_MAX} bytes, and no control characters")]
    TenantName(String),
    /// Disks of one tenant give different floors or ceilings.
    #[error("disks {} and {} of tenant {tenant} give different values of {what}: give it once", .disks[0], .disks[1])]
    Disagree {
        /// The tenant.
        tenant: String,
        /// Two of its disks.
        disks: [String; 2],
        /// Of what.
        what: &'static str,
    },
    /// It cannot have so much of the cache.
    #[error("disk {name}: {source}")]
    Bounds {
        /// The disk.
        name: String,
        /// Why.
        source: Refusal,
    },
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a running host cannot be changed so.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no disk of this name.
    #[error("there is no disk {0}")]
    NoDisk(String),
    /// It was opened for reading.
    #[error("disk {0} was opened for reading only: remove it and add it again")]
    OpenedReadOnly(String),
    /// It would get other targets.
    #[error("disk {0} keeps its targets while it is open: remove it and add it again")]
    Targets(String),
    /// A disk cannot be opened, or not so.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It would get another tenant.
    #[error("disk {name} stays with tenant {tenant} while it is open: remove it and add it again")]
    Moves {
        /// The disk.
        name: String,
        /// Its tenant.
        tenant: String,
    },
    /// There is less memory in the machine.
    #[error("{asked} MiB of memory were asked for, and the machine has {there} MiB")]
    Memory {
        /// In MiB.
        asked: u64,
        /// In MiB.
        there: u64,
    },
    /// Not even one block would fit.
    #[error("less than {BLOCK} bytes of memory were asked for")]
    MemoryMin,
    /// More memory than address space was reserved for.
    #[error("{asked} MiB of memory were asked for, and the cache was started for at most {most} MiB")]
    MemoryMax {
        /// In MiB.
        asked: u64,
        /// In MiB.
        most: u64,
    },
    /// The cache cannot be set up so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Dirty blocks cannot be written: the disk stays.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// Tenants share the cache.
    #[error("a cache with tenants keeps its allocation and its batches, and has no policy but what they say")]
    Tenants,
    /// A hint is not taken.
    #[error("disk {name}: {source}")]
    Hint {
        /// For which disk.
        name: String,
        /// Why.
        source: Box<HintError>,
    },
    /// The host is shutting down.
    #[error("the cache is shutting down")]
    Stopping,
    /// An assertion of the engine failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// A disk with dirty blocks that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disk {name}: not everything is written: {cause}")]
pub struct Unwritten {
    /// Its name.
    pub name: String,
    /// What failed last.
    pub cause: HostError,
}

/// Why a hint is not taken.
#[derive(Debug, thiserror::Error)]
pub enum HintError {
    /// The cache has no tenants.
    #[error("hints are not taken without an allocation, such as lru-sp")]
    NoTenants,
    /// It is about a file that the disk does not have.
    #[error("there is no file {0}")]
    NoFile(u32),
    /// A part of a file has no place on the disk.
    #[error("file {}, offset {}: extents begin at multiples of {BLOCK} and lie on the disk; files are below {FILES_MAX}", .0.file, .0.offset)]
    BadExtent(FileExtent),
    /// Parts of files overlap.
    #[error("extents overlap")]
    Overlap,
    /// It goes beyond a limit, or is not possible.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The text is not a sidecar.
    #[cfg(feature = "sidecar")]
    #[error(transparent)]
    Form(#[from] SidecarError),
    /// It is about a later time or another tenant.
    #[cfg(feature = "sidecar")]
    #[error("hints take effect at once: without 'tenant', 'request' and 'time_ns'")]
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
