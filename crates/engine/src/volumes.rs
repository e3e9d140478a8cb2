//! Open volumes, and which of them are being closed or fail.

use std::collections::BTreeSet;
use std::ops::Range;

use smallvec::SmallVec;

use crate::level::Entry;
use crate::request::Volume;
use crate::slots::Key;
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

    pub(crate) fn entry(&self, key: Key) -> Entry {
        let state = self.state(key.volume());
        Entry::new(state.opening, key.index())
    }

    /// Whether `entry` is of the present opening of `volume`.
    pub(crate) fn is_opening(&self, volume: Volume, entry: Entry) -> bool {
        let state = self.get(volume);
        state.is_some_and(|state| state.opening == entry.opening())
    }

    /// The dirty blocks of failing volumes that their devices fail to write.
    pub(crate) fn stuck(&self) -> u32 {
        let states = self.failing.iter().filter_map(|volume| self.get(*volume));
        states.map(|state| state.dirty.failed_len() as u32).sum()
    }

    /// A volume whose blocks are to be forgotten, and the slot to continue with.
    pub(crate) fn forgetting(&self) -> Option<(Volume, u32)> {
        if self.ending {
            return None;
        }
        self.closing.iter().find_map(|&volume| {
            let closing = self.get(volume)?.closing?;
            closing.forgetting.map(|from| (volume, from))
        })
    }

    /// The pieces of `blocks` of `volume`, each in one region.
    pub(crate) fn pieces(&self, volume: Volume, blocks: &Range<u64>) -> SmallVec<[Range<u64>; 1]> {
        let state = self.state(volume);
        let parts = state.parts[state.part_of(blocks.start)..].iter().map(|part| &part.blocks);
        let parts = parts.take_while(|part| part.start < blocks.end);
        parts.map(|part| part.start.max(blocks.start)..part.end.min(blocks.end)).collect()
    }
}
