//! The engine's state of each volume.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use smallvec::SmallVec;

use crate::cost::Cost;
use crate::counters::Counters;
use crate::dirty::Dirty;
use crate::fair::Recent;
use crate::request::{Fault, Port, WriteMode};
use crate::unflushed::Unflushed;
use crate::worth::{Times, Worth};

/// A range of blocks that a discard or zeroes locks, or is going to lock.
pub(crate) struct Lock {
    pub(crate) request: u32,
    pub(crate) blocks: Range<u64>,
    /// Whether its operations were queued.
    pub(crate) started: bool,
    /// The number of its operations that are not complete.
    pub(crate) operations: u32,
}

/// A flush that waits for write-back.
pub(crate) struct Flush {
    pub(crate) request: u32,
    /// Every version up to this one must be on the device.
    pub(crate) version: u64,
}

/// A volume that is being closed.
#[derive(Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) token: u64,
    /// Whether dirty blocks are dropped.
    pub(crate) discard: bool,
    /// Once nothing is waited for, the number of the next slot whose block is to be forgotten.
    pub(crate) forgetting: Option<u32>,
}

/// A region, in blocks.
pub(crate) struct Part {
    /// The blocks of the volume.
    pub(crate) blocks: Range<u64>,
    pub(crate) port: Port,
    /// The first block on the device.
    pub(crate) place: u64,
}

/// A port where a volume has regions.
pub(crate) struct Target {
    pub(crate) port: Port,
    /// Whether an operation that changed the device was completed since the last device flush began.
    pub(crate) unsynced: bool,
    /// Whether a device flush is queued or at the device.
    pub(crate) flushing: bool,
    pub(crate) unflushed: Unflushed,
}

/// Device flushes at all ports that need one, for the same requests.
#[derive(Default)]
pub(crate) struct Round {
    /// The number of those that are not complete.
    pub(crate) operations: u32,
    /// Whether one of them was passed to its device, so that new requests wait for the next round.
    pub(crate) begun: bool,
    pub(crate) requests: Vec<u32>,
    pub(crate) fault: Option<Fault>,
}

/// The flushes of a volume, and faults that the next ones report.
#[derive(Default)]
pub(crate) struct Flushing {
    /// Those that wait for write-back, in the order of their versions.
    pub(crate) flushes: VecDeque<Flush>,
    /// Requests whose data the devices have and that wait for the next round of device flushes.
    pub(crate) syncs: Vec<u32>,
    pub(crate) round: Option<Round>,
    /// The error of a write that has not been reported yet.
    pub(crate) fault: Option<Fault>,
    /// The fault by which data was lost.
    pub(crate) lost: Option<Fault>,
    /// The time until which nothing is written, since a flush failed that no request waited for, in µs.
    pub(crate) pause: u64,
}

/// The requests of a volume that wait in line for their turn.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) reads: VecDeque<u32>,
    pub(crate) writes: VecDeque<u32>,
    /// Whether `Line::waiting` has the volume.
    pub(crate) in_line: bool,
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }
}

/// The list of the engine that holds a volume with dirty blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// None: nothing is dirty, or the dirty blocks wait for an operation or a lock that lists the volume when it is
    /// over.
    No,
    /// `Cleaner::due`.
    Due,
    /// `Cleaner::aging`, until this time.
    Aging(u64),
    /// `Cleaner::resting`, until this time.
    Resting(u64),
    /// `PortState::blocked`: its ports have as many writes as it may give them.
    Blocked,
}

/// A volume with blocks whose last write failed. Times are in µs.
pub(crate) struct Failures {
    /// That of the last one.
    pub(crate) fault: Fault,
    /// Whether the volume fails: one of the blocks could not be written for `WriteBack::patience_us`.
    pub(crate) lasting: bool,
    /// The first failure since the last write that succeeded.
    pub(crate) none_since: Option<u64>,
    /// Whether that was `WriteBack::patience_us` ago, when a write last failed.
    pub(crate) all: bool,
    /// The time before which no block is tried again that no request waits for.
    pub(crate) retry_at: u64,
    /// The number of attempts that may fail before the next pause.
    pub(crate) retries: u32,
    /// The most blocks of an attempt.
    pub(crate) retry_most: usize,
    /// Whether one succeeded since the last pause.
    pub(crate) retried: bool,
}

/// One volume.
pub(crate) struct VolumeState {
    pub(crate) bytes: u64,
    /// The number of its opening, by which levels know its blocks.
    pub(crate) opening: u32,
    pub(crate) mode: WriteMode,
    pub(crate) counters: Counters,
    pub(crate) dirty: Dirty,
    /// In the order of their blocks.
    pub(crate) parts: SmallVec<[Part; 1]>,
    /// Each port, once.
    pub(crate) targets: SmallVec<[Target; 1]>,
    /// Requests in progress.
    pub(crate) requests: u32,
    /// Of these, trims and zeroes.
    pub(crate) ranges: u32,
    pub(crate) turns: Turns,
    /// Blocks being loaded.
    pub(crate) loading: u32,
    /// Of these, blocks that no request waited for.
    pub(crate) prefetching: u32,
    /// Its parts of `Requests::filling` and `Memory::outside`.
    pub(crate) filling: u32,
    pub(crate) outside: u32,
    /// Blocks that its devices wrote.
    pub(crate) recent: Recent,
    /// Operations queued or at devices.
    pub(crate) operations: u32,
    /// In the order of their requests.
    pub(crate) locks: Vec<Lock>,
    /// Whether something ended that a range that is to be locked may wait for.
    pub(crate) unlockable: bool,
    pub(crate) flushing: Flushing,
    /// Blocks whose newest contents were damaged in memory before the device had them.
    pub(crate) damaged: BTreeSet<u64>,
    /// If there are dirty blocks whose last write failed.
    pub(crate) failures: Option<Failures>,
    pub(crate) closing: Option<Closing>,
    pub(crate) listed: Listed,
    /// When it was blocked, nothing waited for its dirty blocks, and there was room at its ports.
    pub(crate) is_calm: bool,
    /// The cost of reads at its devices.
    pub(crate) cost: Cost,
    /// How long reads take at its devices, and what it knows of each level.
    pub(crate) times: Times,
    pub(crate) worths: Vec<Worth>,
}

impl VolumeState {
    pub(crate) fn new(
        mode: WriteMode,
        bytes: u64,
        opening: u32,
        parts: SmallVec<[Part; 1]>,
        levels: usize,
    ) -> VolumeState {
        let mut targets: SmallVec<[Target; 1]> = SmallVec::new();
        for part in &parts {
            if targets.iter().all(|target| target.port != part.port) {
                targets.push(Target {
                    port: part.port,
                    unsynced: true,
                    flushing: false,
                    unflushed: Unflushed::default(),
                });
            }
        }
        VolumeState {
            bytes,
            opening,
            mode,
            counters: Counters::default(),
            dirty: Dirty::default(),
            parts,
            targets,
            requests: 0,
            ranges: 0,
            turns: Turns::default(),
            loading: 0,
            prefetching: 0,
            filling: 0,
            outside: 0,
            recent: Recent::default(),
            operations: 0,
            locks: Vec::new(),
            unlockable: false,
            flushing: Flushing::default(),
            damaged: BTreeSet::new(),
            failures: None,
            closing: None,
            listed: Listed::No,
            is_calm: false,
            cost: Cost::default(),
            times: Times::default(),
            worths: (0..levels).map(|_| Worth::new()).collect(),
        }
    }

    /// Blocks that are dirty or about to be.
    pub(crate) fn changed(&self) -> u32 {
        self.dirty.len() as u32 + self.filling
    }

    /// The newest version that a flush waits for; all of them if the volume is being closed.
    pub(crate) fn awaited(&self) -> u64 {
        match self.closing {
            Some(_) => u64::MAX,
            None => self.flushing.flushes.back().map_or(0, |flush| flush.version),
        }
    }

    /// Whether a request, a flush, a close or a frame waits for its dirty blocks to be written.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.turns.writes.is_empty()
            || !self.flushing.flushes.is_empty()
            || self.closing.is_some()
            || self.dirty.has_urgent()
    }

    /// The number of the region that has `block`.
    #[inline]
    pub(crate) fn part_of(&self, block: u64) -> usize {
        if self.parts.len() == 1 { 0 } else { self.parts.partition_point(|part| part.blocks.end <= block) }
    }

    pub(crate) fn target(&mut self, port: Port) -> &mut Target {
        self.targets.iter_mut().find(|target| target.port == port).expect("a port that the volume has regions at")
    }

    /// The unflushed changes at the port of `block`.
    pub(crate) fn unflushed(&mut self, block: u64) -> &mut Unflushed {
        let port = self.parts[self.part_of(block)].port;
        &mut self.target(port).unflushed
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.targets.iter().any(|target| target.unsynced)
    }

    /// Whether another request has a lock on any of `blocks`.
    pub(crate) fn is_locked(&self, blocks: &Range<u64>, request: u32) -> bool {
        self.locks.iter().any(|lock| lock.request != request && overlap(&lock.blocks, blocks))
    }
}

pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
