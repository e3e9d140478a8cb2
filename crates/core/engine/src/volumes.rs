//! Volumes: a volume is open, then closed in steps (`closing`), and in between it may fail for a while (`failing`).

use std::collections::BTreeSet;
use std::ops::Range;

use smallvec::SmallVec;

use crate::level::Entry;
use crate::request::{Port, Volume};
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
    /// Volumes whose writes wait, and the time until which they do, in µs.
    pub(crate) frozen: Vec<(Volume, u64)>,
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

    /// Whether writes of `volume` wait.
    pub(crate) fn is_frozen(&self, volume: Volume) -> bool {
        self.frozen.iter().any(|&(other, _)| other == volume)
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

    /// Blocks of `volume` need not be written any more. If none is left whose write failed, the volume does not fail, and
    /// failures that come later do not continue those that were.
    pub(crate) fn note_unwanted(&mut self, volume: Volume) {
        let state = self.state_mut(volume);
        if state.dirty.failed_len() == 0 && state.failures.take().is_some_and(|failures| failures.lasting) {
            self.failing.retain(|&other| other != volume);
            self.reports.insert(volume);
        }
    }

    /// The device wrote blocks of `volume`; `again` if it failed to do so before.
    pub(crate) fn note_written(&mut self, volume: Volume, again: bool) {
        if let Some(failures) = &mut self.state_mut(volume).failures {
            (failures.none_since, failures.all) = (None, false);
            if again {
                failures.retried = true;
                failures.retry_most = failures.retry_most.saturating_mul(2);
            }
        }
        self.note_unwanted(volume);
    }

    /// Whether a block of `blocks` is lost, so that its device has older contents.
    pub(crate) fn has_lost(&self, volume: Volume, blocks: Range<u64>) -> bool {
        let state = self.state(volume);
        !state.damaged.is_empty() && state.damaged.range(blocks).next().is_some()
    }

    /// `blocks` of `volume` have new contents: none of them is lost any more.
    pub(crate) fn replace_lost(&mut self, volume: Volume, blocks: Range<u64>) {
        let damaged = &mut self.state_mut(volume).damaged;
        if !damaged.is_empty() {
            damaged.retain(|block| !blocks.contains(block));
        }
    }

    /// The port of `blocks` of `volume`, which are in one region, and their bytes on its device, up to the end of the volume.
    pub(crate) fn home(&self, shift: u32, volume: Volume, blocks: Range<u64>) -> (Port, Range<u64>) {
        let state = self.state(volume);
        let part = &state.parts[state.part_of(blocks.start)];
        debug_assert!(blocks.end <= part.blocks.end, "an operation lies in one region");
        let length = (blocks.end << shift).min(state.bytes) - (blocks.start << shift);
        let start = (part.place + blocks.start - part.blocks.start) << shift;
        (part.port, start..start + length)
    }
}
