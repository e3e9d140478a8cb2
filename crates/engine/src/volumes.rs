//! Open volumes, and which of them are being closed or fail.

use crate::request::Volume;
use crate::volume::VolumeState;

/// The open volumes.
#[derive(Default)]
pub(crate) struct Volumes {
    /// By number of the volume.
    pub(crate) all: Vec<Option<Box<VolumeState>>>,
    /// Volumes that are being closed.
    pub(crate) closing: Vec<Volume>,
    /// No volume is closed to be forgotten.
    pub(crate) ending: bool,
    /// Volumes that fail.
    pub(crate) failing: Vec<Volume>,
    /// Volumes that began to fail, or no longer do.
    pub(crate) reports: std::collections::BTreeSet<Volume>,
}
