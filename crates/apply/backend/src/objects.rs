//! Disks in object stores as devices. `nigh-objects` decides what is done; this does it.

#[cfg(not(feature = "objects"))]
mod absent;
#[cfg(feature = "objects")]
mod connect;
#[cfg(feature = "objects")]
mod desk;
#[cfg(feature = "objects")]
mod disk;
#[cfg(feature = "objects")]
mod owner;
#[cfg(feature = "objects")]
mod store;
mod target;
#[cfg(feature = "objects")]
mod worker;

use std::path::PathBuf;

#[cfg(not(feature = "objects"))]
pub use absent::ObjectDisk;
#[cfg(feature = "objects")]
pub use disk::ObjectDisk;
pub(crate) use target::FORM;
pub use target::{ObjectTarget, Provider};

use crate::device::Device;
use crate::error::OpenError;
use crate::open::Options;

/// A disk as its manifest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectDiskState {
    /// The size of the disk in bytes.
    pub bytes: u64,
    /// How many of its parts have an object.
    pub objects: usize,
    /// How many parts there are.
    pub parts: usize,
    /// How often it was opened for writing.
    pub epoch: u32,
    /// The last manifest that changed the contents.
    pub changed: u64,
}

impl ObjectTarget {
    /// Opens the disk.
    pub(crate) fn open(&self, options: &Options) -> Result<Box<dyn Device>, OpenError> {
        ObjectDisk::connect(self)?.open(options)
    }

    /// The error if there is no disk, or no access to it. Returns its size in bytes.
    pub(crate) fn check(&self) -> Result<u64, OpenError> {
        Ok(ObjectDisk::connect(self)?.state()?.bytes)
    }

    /// Files with credentials, and files or folders with certificates, that it reads.
    pub fn files(&self) -> Vec<PathBuf> {
        #[cfg(feature = "objects")]
        return connect::files(self.provider);
        #[cfg(not(feature = "objects"))]
        Vec::new()
    }

    /// Most file descriptors that it takes: connections, and those of its thread.
    pub(crate) fn descriptors(&self) -> usize {
        #[cfg(feature = "objects")]
        return 2 * worker::REQUESTS + 8;
        #[cfg(not(feature = "objects"))]
        0
    }
}
