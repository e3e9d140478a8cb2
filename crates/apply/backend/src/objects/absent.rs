//! Disks in object stores in a build without their clients: none can be reached.

use std::convert::Infallible;
use std::io;

use super::{ObjectDiskState, ObjectTarget};
use crate::device::Device;
use crate::error::{OpenError, OpenErrorKind};
use crate::open::Options;

/// A disk in an object store: no value of it exists in this build.
#[derive(Clone, Debug)]
pub struct ObjectDisk(Infallible);

impl ObjectDisk {
    /// The error that this build has no client.
    pub fn connect(target: &ObjectTarget) -> Result<ObjectDisk, OpenError> {
        let text =
            "this nigh was built without object stores: cargo install --locked --path crates/cli --features objects";
        let source = io::Error::new(io::ErrorKind::Unsupported, text);
        Err(OpenError { kind: OpenErrorKind::Unsuitable, action: "open", path: target.to_string().into(), source })
    }

    /// Makes the disk.
    pub fn create(&self, _: u64) -> Result<(), OpenError> {
        match self.0 {}
    }

    /// The state that its manifest describes.
    pub fn state(&self) -> Result<ObjectDiskState, OpenError> {
        match self.0 {}
    }

    /// Opens it.
    pub(crate) fn open(&self, _: &Options) -> Result<Box<dyn Device>, OpenError> {
        match self.0 {}
    }
}
