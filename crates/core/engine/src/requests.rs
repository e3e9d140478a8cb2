//! Requests in progress.
//!
//! 1. A request gets a number (`enter`). A read or write may wait in line for frames (`shares.rs`).
//! 2. It goes on from [`Step`] to [`Step`], as its blocks are loaded, filled, merged or written.
//! 3. At the end its number is free again, and its reply waits for the host.

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use crate::arena::Shared;
use crate::request::{Fault, Reply, Request, Volume};

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A read or write waits for frames or for the dirty limit.
    Queued,
    /// A read waits for a lock of its range.
    Parked,
    /// A read waits for loads, or is being started.
    Reading,
    /// The host is filling the frames of a write.
    Filling,
    /// A filled write waits for a lock of its range.
    Filled,
    /// A write waits for the contents of blocks that it overwrites in part.
    Merging,
    /// A write waits for the device.
    Storing,
    /// A discard or zeroes waits for its lock or for the device.
    Locked,
    /// A flush waits for write-back.
    Draining,
    /// A flush, or a request with FUA, waits for a device flush.
    Syncing,
}

/// A request in progress.
pub(crate) struct Active {
    pub(crate) request: Request,
    pub(crate) step: Step,
    /// The bytes that are read or written now: those of the request, or an edge of a zeroes.
    pub(crate) part: Range<u64>,
    /// Edges of a zeroes that are still to be written.
    pub(crate) edges: SmallVec<[Range<u64>; 2]>,
    /// The frame of each block of `part`; `NONE` if a write passed it to the cache.
    pub(crate) frames: Vec<u32>,
    /// The blocks that a read has so far.
    pub(crate) held: Option<Shared>,
    /// Blocks of `part` that wait for a load; one more while a read is being started.
    pub(crate) loading: u32,
    /// Blocks that wait to be written to the device.
    pub(crate) storing: u32,
    pub(crate) fault: Option<Fault>,
}

/// The requests in progress, and their replies.
///
/// **Invariant:** a number is either free or in use; `filling` and `prefetching` are the sums of those of all volumes.
#[derive(Default)]
pub(crate) struct Requests {
    /// By number.
    pub(crate) all: Vec<Option<Active>>,
    pub(crate) free: Vec<u32>,
    /// Requests at `Step::Parked` or `Step::Filled`.
    pub(crate) parked: Vec<u32>,
    /// Volumes with locks.
    pub(crate) locked: Vec<Volume>,
    pub(crate) replies: VecDeque<Reply>,
    /// Whether a reference of the request that is being submitted was a miss.
    pub(crate) missed: bool,
    /// Blocks of writes that are being filled or wait to be installed.
    pub(crate) filling: u32,
    /// Blocks that are being loaded and that no request waits for.
    pub(crate) prefetching: u32,
}

impl Requests {
    /// A number for `active`.
    pub(crate) fn add(&mut self, active: Active) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.all[id as usize] = Some(active);
        id
    }

    /// The request is over: its number is free.
    pub(crate) fn remove(&mut self, id: u32) -> Active {
        let active = self.all[id as usize].take().expect("a request in progress");
        self.free.push(id);
        active
    }

    pub(crate) fn active(&mut self, id: u32) -> &mut Active {
        self.all[id as usize].as_mut().expect("a request in progress")
    }
}
