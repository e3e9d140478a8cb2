//! Which reads are checked for damage in memory, and the damage that was found.

use std::collections::VecDeque;

use crate::request::Damage;
use crate::slots::Key;
use crate::volumes::Volumes;

/// The most reports that wait for the host; further ones are only counted.
const REPORTS: usize = 256;

/// Checks of blocks in memory.
#[derive(Default)]
pub(crate) struct Checks {
    /// Reads since the last one that was checked.
    pub(crate) unchecked: u32,
    /// Damage that the host does not know yet.
    pub(crate) damages: VecDeque<Damage>,
}

impl Checks {
    /// A block was damaged in memory; `lost` if the device has older contents.
    pub(crate) fn report(&mut self, volumes: &mut Volumes, key: Key, lost: bool) {
        // It may have been closed while a level stored the block.
        let Some(state) = volumes.get_mut(key.volume()) else { return };
        state.counters.damaged += 1;
        if self.damages.len() < REPORTS {
            self.damages.push_back(Damage { volume: key.volume(), block: key.index(), lost });
        }
    }
}
