//! Records of operations between the engine and devices.

use std::ops::Range;

use nigh_policy::Tenant;

use crate::arena::Shared;
use crate::level::Entry;
use crate::request::Volume;
use crate::slots::Key;

/// Whether a request waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A request waits.
    Demand,
    /// No request waits yet.
    Ahead,
    /// No request waits yet; the list of this tenant predicts one.
    Predicted(Tenant),
}

/// An operation that is queued or at its device.
pub(crate) enum Record {
    /// Reads into these frames of consecutive blocks; with `alone`, no other operation may join it. `since` is the time at which it was
    /// passed to its device, in µs, and `passed` the levels that have blocks of it but are doubted, left out or tried, as bits.
    Read { first: Key, frames: Vec<u32>, alone: bool, since: u64, passed: u8 },
    /// Writes consecutive blocks, whose frames are held until the operation has them; with `void`, the device may lose
    /// them although it reports success.
    Write { first: Key, blocks: u64, held: Option<Shared>, void: bool },
    /// Flushes for the requests that wait by the time the first flush of its round starts.
    Flush { volume: Volume },
    /// The discard or zeroes of a request, within one region; `void` as above.
    Range { volume: Volume, request: u32, blocks: Range<u64>, void: bool },
    /// Fetches blocks that a level holds.
    Fetch(Fetch),
    /// Stores blocks in a level.
    Store(Store),
    /// Reads a block that a level passes on to a lower one.
    Carry(Carry),
    /// A fetch that the level's device took too long for. Nothing waits for it any more, but these frames belong to it until it is
    /// over.
    Late { level: usize, frames: Vec<u32> },
}

impl Record {
    /// The volume it belongs to; what moves blocks to levels belongs to none, nor does what is late.
    pub(crate) fn volume(&self) -> Option<Volume> {
        Some(match self {
            Record::Read { first, .. } | Record::Write { first, .. } => first.volume(),
            Record::Flush { volume } | Record::Range { volume, .. } => *volume,
            Record::Fetch(fetch) => fetch.first.volume(),
            Record::Store(_) | Record::Carry(_) | Record::Late { .. } => return None,
        })
    }

    /// The level whose device it is for.
    pub(crate) fn level(&self) -> Option<usize> {
        match self {
            Record::Fetch(Fetch { level, .. }) | Record::Store(Store { level, .. }) => Some(*level),
            Record::Carry(Carry { at: level, .. }) | Record::Late { level, .. } => Some(*level),
            Record::Read { .. } | Record::Write { .. } | Record::Flush { .. } | Record::Range { .. } => None,
        }
    }
}

/// A fetch from a level that is queued or at its device.
pub(crate) struct Fetch {
    pub(crate) level: usize,
    pub(crate) place: u32,
    pub(crate) first: Key,
    pub(crate) frames: Vec<u32>,
    /// The opening of the volume.
    pub(crate) opening: u32,
    /// The checksums of the stored blocks.
    pub(crate) sums: Vec<u64>,
    /// Whether the level forgets them.
    pub(crate) leaves: bool,
}

/// Blocks on their way to a level.
pub(crate) struct Store {
    pub(crate) level: usize,
    pub(crate) place: u32,
    pub(crate) blocks: Vec<(Key, Entry)>,
    pub(crate) frames: Vec<u32>,
    /// Until the operation has them.
    pub(crate) held: Option<Shared>,
    /// Whether the frames belong to the store, and not to blocks.
    pub(crate) carried: bool,
}

/// A block on its way from level `at` to a lower level.
pub(crate) struct Carry {
    pub(crate) at: usize,
    pub(crate) place: u32,
    pub(crate) to: usize,
    /// Its place there.
    pub(crate) target: u32,
    pub(crate) key: Key,
    pub(crate) entry: Entry,
    /// Belongs to it; `NONE` before it is queued.
    pub(crate) frame: u32,
    /// The checksum of the block.
    pub(crate) sum: u64,
}
