//! What is under way between the engine and devices.

use std::ops::Range;

use nigh_policy::Tenant;

use crate::arena::Shared;
use crate::level::Entry;
use crate::request::Volume;
use crate::slots::Key;

/// Whether somebody waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Somebody does.
    Demand,
    /// Nobody does yet.
    Ahead,
    /// Nobody does yet; this tenant's list said that it will.
    Predicted(Tenant),
}

/// An operation that is queued or at its device.
pub(crate) enum Record {
    /// Into these frames of consecutive blocks; `alone` if it must not be joined by others.
    Read { first: Key, frames: Vec<u32>, alone: bool },
    /// Of consecutive blocks, whose frames are held until the operation has them.
    Write { first: Key, blocks: u64, held: Option<Shared> },
    /// For the requests that wait by the time the first of its round starts.
    Flush { volume: Volume },
    /// The discard or zeroes of a request, as far as it lies in one region.
    Range { volume: Volume, request: u32, blocks: Range<u64> },
    /// Of blocks that a level holds.
    Fetch(Fetch),
    /// Of blocks that a level is to hold.
    Store(Store),
}

impl Record {
    /// Whose it is; a store is nobody's.
    pub(crate) fn volume(&self) -> Option<Volume> {
        Some(match self {
            Record::Read { first, .. } | Record::Write { first, .. } => first.volume(),
            Record::Flush { volume } | Record::Range { volume, .. } => *volume,
            Record::Fetch(fetch) => fetch.first.volume(),
            Record::Store(_) => return None,
        })
    }
}

/// A fetch from a level that is queued or at its device.
pub(crate) struct Fetch {
    pub(crate) level: usize,
    pub(crate) place: u32,
    pub(crate) first: Key,
    pub(crate) frames: Vec<u32>,
    /// Of which opening of the volume.
    pub(crate) opening: u32,
    /// The checksums of what was stored.
    pub(crate) sums: Vec<u64>,
}

/// Blocks on their way to a level.
pub(crate) struct Store {
    pub(crate) level: usize,
    pub(crate) place: u32,
    pub(crate) blocks: Vec<(Key, Entry)>,
    pub(crate) frames: Vec<u32>,
    /// Until the operation has them.
    pub(crate) held: Option<Shared>,
}
