//! Disks in object stores as devices. `nigh-objects` decides what is done; this does it.

#[cfg(feature = "objects")]
mod connect;
#[cfg(feature = "objects")]
mod desk;
#[cfg(feature = "objects")]
mod disk;
#[cfg(feature = "objects")]
mod store;
mod target;
#[cfg(feature = "objects")]
mod worker;

use std::path::PathBuf;

#[cfg(feature = "objects")]
pub use disk::{ObjectDisk, ObjectDiskState};
pub(crate) use target::FORM;
pub use target::{ObjectTarget, Provider};

use crate::device::Device;
use crate::error::OpenError;
use crate::open::Options;

impl ObjectTarget {
    /// Opens the disk.
    #[cfg(feature = "objects")]
    pub(crate) fn open(&self, options: &Options) -> Result<Box<dyn Device>, OpenError> {
        ObjectDisk::connect(self)?.open(options)
    }

    /// The error that this program has no client.
    #[cfg(not(feature = "objects"))]
    pub(crate) fn open(&self, _: &Options) -> Result<Box<dyn Device>, OpenError> {
        let text = "this nigh was built without object stores (feature `objects`)";
        Err(OpenError {
            kind: crate::error::OpenErrorKind::Unsuitable,
            action: "open",
            path: self.to_string().into(),
            source: std::io::Error::new(std::io::ErrorKind::Unsupported, text),
        })
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
