//! Dirty blocks: how many there are, and which volumes have a reason to write some.
//!
//! 1. An event that may be a reason to write makes a volume due.
//! 2. It is looked at once (`write_back.rs`), and is then in the list of what it waits for: its age, or the next attempt after a failure.
//! 3. A dirty block that leaves the policy waits until enough others have left, so that they are written in long runs.

use std::collections::{BTreeSet, VecDeque};

use crate::request::Volume;
use crate::slots::Key;
use crate::volume::Listed;
use crate::volumes::Volumes;

/// Dirty blocks, and the volumes that have some, by the reason to write them.
pub(crate) struct Cleaner {
    pub(crate) dirty: u32,
    /// The limit of dirty blocks and blocks being filled together: the configured limit, or their number when it was
    /// lowered.
    pub(crate) dirty_most: u32,
    /// Dirty blocks that left the policy and wait for others. Entries can be out of date.
    pub(crate) departed: Vec<Key>,
    /// The newest version of any block's contents.
    pub(crate) version: u64,
    /// Volumes with a possible reason to write dirty blocks.
    pub(crate) due: VecDeque<Volume>,
    /// Volumes with dirty blocks but no reason to write them yet, by the time at which their age makes them due.
    pub(crate) aging: BTreeSet<(u64, Volume)>,
    /// Volumes whose write-back failed, by the time of the next attempt.
    pub(crate) resting: BTreeSet<(u64, Volume)>,
    /// Whether write-back runs because of the number of dirty blocks.
    pub(crate) writing_back: bool,
    /// The last volume of `aging` that was looked at because of that, and the number of those to be looked at.
    pub(crate) looked_at: (u64, Volume),
    pub(crate) looks: usize,
}

impl Cleaner {
    pub(crate) fn new(dirty_most: u32) -> Cleaner {
        Cleaner {
            dirty: 0,
            dirty_most,
            departed: Vec::new(),
            version: 0,
            due: VecDeque::new(),
            aging: BTreeSet::new(),
            resting: BTreeSet::new(),
            writing_back: false,
            looked_at: (0, Volume(0)),
            looks: 0,
        }
    }

    /// An event that may be a reason to write blocks of `volume`.
    pub(crate) fn make_due(&mut self, volumes: &mut Volumes, volume: Volume) {
        let state = volumes.state_mut(volume);
        match state.listed {
            Listed::Due => return,
            // While nothing waited, it left room at its ports.
            Listed::Blocked if state.is_calm && state.is_awaited() => {}
            Listed::Blocked => return,
            Listed::No if state.dirty.is_empty() => return,
            Listed::No => {}
            Listed::Aging(time) => _ = self.aging.remove(&(time, volume)),
            Listed::Resting(time) => _ = self.resting.remove(&(time, volume)),
        }
        state.listed = Listed::Due;
        self.due.push_back(volume);
    }

    /// Puts `volume`, which is in no list, into the list of what it waits for next.
    pub(crate) fn list(&mut self, volumes: &mut Volumes, volume: Volume, listed: Listed) {
        match listed {
            Listed::No => {}
            Listed::Due => self.due.push_back(volume),
            Listed::Aging(time) => _ = self.aging.insert((time, volume)),
            Listed::Resting(time) => _ = self.resting.insert((time, volume)),
            Listed::Blocked => unreachable!("its port lists it"),
        }
        volumes.state_mut(volume).listed = listed;
    }

    /// `volume` is closed: removes it from the lists.
    pub(crate) fn unlist(&mut self, volumes: &mut Volumes, volume: Volume) {
        let listed = std::mem::replace(&mut volumes.state_mut(volume).listed, Listed::No);
        match listed {
            Listed::Aging(time) => _ = self.aging.remove(&(time, volume)),
            Listed::Resting(time) => _ = self.resting.remove(&(time, volume)),
            // An entry in the other lists counts only while `listed` agrees.
            Listed::No | Listed::Due | Listed::Blocked => {}
        }
    }

    /// Something changed that may press volumes that were looked at before.
    pub(crate) fn look_again(&mut self) {
        self.looks = self.aging.len();
    }
}
