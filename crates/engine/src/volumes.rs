//! Open volumes, and which of them are being closed or fail.

use std::collections::BTreeSet;

use crate::request::Volume;
use crate::volume::VolumeState;

/// The open volumes.
#[derive(Default)]
pub(crate) struct Volumes {
    /// By number of the volume.
    all: Vec<Option<Box<VolumeState>>>,
    /// Volumes that are being closed.
    pub(crate) closing: Vec<Volume>,
    /// No volume is closed to be forgotten.
    pub(crate) ending: bool,
    /// Volumes that fail.
    pub(crate) failing: Vec<Volume>,
    /// Volumes that began to fail, or no longer do.
    pub(crate) reports: BTreeSet<Volume>,
}

impl Volumes {
    pub(crate) fn get(&self, volume: Volume) -> Option<&VolumeState> {
        self.all.get(volume.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, volume: Volume) -> Option<&mut VolumeState> {
        self.all.get_mut(volume.0 as usize)?.as_deref_mut()
    }

    /// The state of an open volume.
    pub(crate) fn state(&self, volume: Volume) -> &VolumeState {
        self.get(volume).expect("an open volume")
    }

    /// As `state`.
    pub(crate) fn state_mut(&mut self, volume: Volume) -> &mut VolumeState {
        self.get_mut(volume).expect("an open volume")
    }

    /// The open volumes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &VolumeState> {
        self.all.iter().flatten().map(|state| &**state)
    }

    /// The open volumes, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (Volume, &VolumeState)> {
        (0..).map(Volume).zip(&self.all).filter_map(|(volume, state)| Some((volume, state.as_deref()?)))
    }

    /// The numbers of volumes are below this.
    pub(crate) fn numbers(&self) -> usize {
        self.all.len()
    }

    /// Adds `volume`, which is not open.
    pub(crate) fn add(&mut self, volume: Volume, state: VolumeState) {
        let at = volume.0 as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(Box::new(state));
    }

    /// Removes an open volume.
    pub(crate) fn take(&mut self, volume: Volume) -> VolumeState {
        *self.all[volume.0 as usize].take().expect("an open volume")
    }
}
