//! What the engine keeps for each volume.

use std::collections::VecDeque;
use std::ops::Range;

use crate::counters::Counters;
use crate::dirty::Dirty;
use crate::queue::Queue;
use crate::request::{Fault, WriteMode};
use crate::scheduler::Scheduler;

/// A range of blocks that a discard or zeroes has, or is going to have, for itself.
pub(crate) struct Lock {
    pub(crate) request: u32,
    pub(crate) blocks: Range<u64>,
    /// Whether the operation was given to the queue.
    pub(crate) started: bool,
}

/// A flush that waits for write-back.
pub(crate) struct Flush {
    pub(crate) request: u32,
    /// Every version up to this one must be on the device.
    pub(crate) version: u64,
}

/// An volume that is being closed.
#[derive(Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) token: u64,
    /// Whether dirty blocks are dropped.
    pub(crate) discard: bool,
}

/// One volume.
pub(crate) struct VolumeState {
    /// Size of the device.
    pub(crate) bytes: u64,
    pub(crate) mode: WriteMode,
    pub(crate) counters: Counters,
    pub(crate) dirty: Dirty,
    pub(crate) queue: Queue,
    /// Operations at the device.
    pub(crate) at_device: u32,
    /// Write operations queued or at the device.
    pub(crate) writes: u32,
    /// In the order of their requests.
    pub(crate) locks: Vec<Lock>,
    /// In the order of their versions.
    pub(crate) flushes: VecDeque<Flush>,
    /// Requests whose data the device has and that wait for the next device flush.
    pub(crate) syncs: Vec<u32>,
    /// Whether a device flush is queued or at the device.
    pub(crate) syncing: bool,
    /// Whether an operation that changed the device was completed since the last device flush began.
    pub(crate) unsynced: bool,
    /// The error of a write that nobody was told yet.
    pub(crate) fault: Option<Fault>,
    /// Write-back is not tried before, in µs.
    pub(crate) retry_at: u64,
    pub(crate) closing: Option<Closing>,
}

impl VolumeState {
    pub(crate) fn new(bytes: u64, mode: WriteMode, scheduler: Scheduler) -> VolumeState {
        VolumeState {
            bytes,
            mode,
            counters: Counters::default(),
            dirty: Dirty::default(),
            queue: Queue::new(scheduler),
            at_device: 0,
            writes: 0,
            locks: Vec::new(),
            flushes: VecDeque::new(),
            syncs: Vec::new(),
            syncing: false,
            unsynced: true,
            fault: None,
            retry_at: 0,
            closing: None,
        }
    }

    /// Whether another request has a lock on any of `blocks`.
    pub(crate) fn is_locked(&self, blocks: &Range<u64>, request: u32) -> bool {
        self.locks.iter().any(|lock| lock.request != request && overlap(&lock.blocks, blocks))
    }

    /// Whether the device is not needed any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.at_device == 0 && self.queue.len() == 0
    }
}

pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
