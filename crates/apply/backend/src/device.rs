//! The interface of a device to its driver.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use nigh_engine::{Action, Fault, Operation};

use crate::log_state::WriteLogState;
use crate::stamp::Stamp;

/// Bytes above which work for each byte takes long.
const LONG: u64 = 64 << 10;

/// An operation on its way through a device. It owns the frames until its [`Completion`] gives them back.
#[must_use = "the operation is lost"]
pub struct Job {
    /// Which engine the operation came from: a number of the host's.
    pub sender: u32,
    /// The operation to execute.
    pub operation: Operation,
    /// How much of a read or write is transferred, from its beginning: at most `operation.length` bytes.
    pub bytes: u64,
    /// The result that is reported after it.
    pub verdict: Result<(), Fault>,
}

impl Job {
    /// All of `operation`.
    pub fn new(sender: u32, operation: Operation) -> Job {
        Job { sender, bytes: operation.length, operation, verdict: Ok(()) }
    }

    /// The bytes of a read or write that are transferred, as a range of the device.
    pub fn range(&self) -> Range<u64> {
        self.operation.offset..self.operation.offset + self.bytes
    }

    /// The completion of a job with this `result`.
    pub fn finish(self, result: Result<(), Fault>) -> Completion {
        Completion { sender: self.sender, operation: self.operation, result: result.and(self.verdict), zeros: 0 }
    }

    /// The completion of a read of a hole.
    pub(crate) fn finish_hole(self) -> Completion {
        Completion { zeros: self.bytes, ..self.finish(Ok(())) }
    }
}

/// An operation that the device has done, or failed to do.
#[must_use = "the engine waits for the operation"]
#[derive(Debug)]
pub struct Completion {
    /// As in [`Job`].
    pub sender: u32,
    pub(crate) operation: Operation,
    result: Result<(), Fault>,
    /// Of a read, how many bytes at the beginning still have to become zeros.
    zeros: u64,
}

impl Completion {
    /// Whether the remaining work, here and for the reader, takes too long for a thread that others need.
    pub fn is_long(&self) -> bool {
        matches!(self.operation.action, Action::Read(_)) && self.operation.length >= LONG
    }

    /// Does what is left to do for every byte, zeros of a hole and checksums; best without an engine's lock. Returns the sender,
    /// the operation, and with it its frames, and whether all of it was done.
    pub fn settle(mut self) -> (u32, Operation, Result<(), Fault>) {
        if self.result.is_ok() {
            if let Action::Read(frames) = &mut self.operation.action {
                let mut left = self.zeros as usize;
                for slice in frames.slices_mut() {
                    let part = slice.len().min(left);
                    slice[..part].fill(0);
                    left -= part;
                }
            }
            self.operation.seal();
        }
        (self.sender, self.operation, self.result)
    }
}

/// A range of a device of which all or nothing has storage behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its place, in bytes.
    pub range: Range<u64>,
    /// Nothing is stored: the range reads as zeros.
    pub hole: bool,
}

/// Queries that any thread may send to a device, beside its operations. A device that does not respond is an error
/// after a few seconds.
pub trait Geometry: Send + Sync {
    /// Its present size in bytes. Cheap enough to be polled, so that a change is noticed.
    fn size(&self) -> io::Result<u64>;

    /// The extents of `range` in order and without gaps, at most `most` of them: the rest of the range can be asked
    /// for again. The last one may go on beyond the range.
    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>>;

    /// Whether the device itself does again, before anything else, what it may have lost when a flush failed.
    fn replays(&self) -> bool {
        false
    }

    /// Whether somebody else has taken the device over for good: all changes and flushes fail from then on.
    fn is_taken_over(&self) -> bool {
        false
    }

    /// How much of what it has received is not stable yet, in bytes, if the device itself keeps that until a flush.
    fn staged(&self) -> u64 {
        0
    }

    /// Why it does not do what it is asked at present, in words; none if it does, as far as that is known.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// The state of its write log, if it has one.
    fn write_log(&self) -> Option<WriteLogState> {
        None
    }

    /// Begins to write its write log to its own target. The receiver gets a message when all that was in the log is written; an error if there is
    /// no log.
    fn drain(&self) -> io::Result<Receiver<()>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Identity of its contents, which changes with them, also while nobody serves it; none if a change may not show.
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        Ok(None)
    }
}

/// A device. One thread uses it at a time.
///
/// Operations are given with `submit` and come back from `poll`, in any order. Nothing is refused: what the device
/// cannot take on at once waits in it, and the hosts' engines limit how much that is. A device that is dropped waits
/// for what was started.
pub trait Device: Send {
    /// Its size and extents.
    fn geometry(&self) -> Arc<dyn Geometry>;

    /// Takes a job on. It may be started at the next `poll` only.
    fn submit(&mut self, job: Job);

    /// Starts what can be started and appends what is complete. Does not wait.
    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>);

    /// When `poll` has something to do although [`Device::signal`] is not readable.
    fn deadline(&self) -> Option<Instant>;

    /// Becomes readable when `poll` has something to do. `None` if the deadline suffices.
    fn signal(&self) -> Option<BorrowedFd<'_>>;

    /// Whether there may be something to do without any operation, too: `poll`, the deadline and the signal count always.
    fn is_restless(&self) -> bool {
        false
    }
}
