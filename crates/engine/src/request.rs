//! What goes into the engine and what comes out: requests and replies, device operations and their completions.

use std::fmt;

use nigh_policy::{Stream, Tenant};
use twox_hash::XxHash3_64;

use crate::arena::{Exclusive, Shared};

/// A disk that is served: a key space of its own. The host chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u32);

/// A queue to one device, or to one place on it. The host chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// Where a part of a volume lies. A volume is its regions, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The port of the device.
    pub port: Port,
    /// Where the region begins on the device, in bytes; a multiple of the block size.
    pub offset: u64,
    /// Its length in bytes; a multiple of the block size, except for a volume's last region.
    pub bytes: u64,
}

impl Region {
    /// The first `bytes` bytes of the device at `port`.
    pub fn whole(port: Port, bytes: u64) -> Region {
        Region { port, offset: 0, bytes }
    }
}

/// When the write of an acknowledged request reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Later: at a flush, at the dirty limits, or when its age is up.
    Back,
    /// Before the acknowledgement.
    Through,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The bytes of the range.
    Read,
    /// New bytes for the range.
    Write,
    /// Everything acknowledged before is to be on stable storage. Has no range.
    Flush,
    /// The contents of the range are no longer needed. Blocks that the range covers only in part are left as they are.
    Trim,
    /// The range is to read as zeros.
    Zeroes {
        /// The space of the range stays allocated.
        keep: bool,
        /// Only if the device does it faster than a write would.
        fast: bool,
    },
    /// The range will be read soon.
    Prefetch,
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which disk.
    pub volume: Volume,
    /// Who is charged for the blocks. In a cache with tenants it is below the limit of their number.
    pub tenant: Tenant,
    /// What is asked for.
    pub op: Op,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// How long the range is, in bytes.
    pub length: u64,
    /// For write, zeroes and trim: to be on stable storage before the acknowledgement.
    pub fua: bool,
    /// Which code or file issued it, where known; policies may use it.
    pub stream: Stream,
    /// Comes back with each reply.
    pub token: u64,
}

/// What became of a request that was submitted.
#[derive(Debug)]
pub struct Submitted {
    /// The reply, if it came at once; else it comes from `Engine::next_reply`.
    pub reply: Option<Reply>,
    /// Whether a block of the range was not resident when it was referenced: a miss to the policy. Of a read that waits for
    /// frames, whether a block is absent now. Writes reference their blocks when they are committed.
    pub missed: bool,
}

/// What the engine says about a request.
#[derive(Debug)]
pub struct Reply {
    /// The request's token.
    pub token: u64,
    /// What happened.
    pub outcome: Outcome,
}

/// What happened to a request.
#[derive(Debug)]
pub enum Outcome {
    /// A read is complete: its bytes, to be copied out without the engine's lock.
    Data(Shared),
    /// A write has its frames: the host fills them, without the engine's lock, and calls `Engine::commit`.
    Fill(Fill),
    /// The request is complete.
    Done,
    /// The request failed on the device.
    Failed(Fault),
}

/// The frames of a write, to be filled by the host and given back with `Engine::commit` or `Engine::abort`.
#[must_use = "the request waits until this is committed or aborted"]
#[derive(Debug)]
pub struct Fill {
    pub(crate) request: u32,
    /// Where the bytes of the request go. They hold arbitrary old bytes, not necessarily of the same volume, until they
    /// are overwritten: all of them must be.
    pub frames: Exclusive,
}

/// The number of an error of the device, as of the operating system's `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device reports: {}", std::io::Error::from_raw_os_error(*.0))]
pub struct Fault(pub i32);

impl Fault {
    /// ESHUTDOWN: no device failed, but the volume was closed before the request could begin.
    pub const SHUT_DOWN: Fault = Fault(108);
}

/// Why the engine does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many requests as allowed are in progress: to be tried again after the next reply.
    #[error("too many requests in progress")]
    Busy,
    /// No such volume is open, or it is being closed.
    #[error("no such volume")]
    NoVolume,
    /// The range is empty or passes the end of the volume.
    #[error("the range is empty or passes the end")]
    OutOfRange,
    /// The range is longer than `Limits::request_bytes`: to be split by the host.
    #[error("the request is too long")]
    TooLong,
}

/// One operation for the device of a port, given back with `Engine::complete`.
#[must_use = "blocks stay in flight until this is completed"]
pub struct Operation {
    pub(crate) id: u64,
    /// Where it goes.
    pub port: Port,
    /// Where it begins on the device, in bytes; a multiple of the block size.
    pub offset: u64,
    /// How long it is, in bytes: whole blocks, except where a volume ends in mid-block. 0 for a flush.
    pub length: u64,
    /// What to do.
    pub action: Action,
    /// Where blocks of a level are read or written: what their checksums begin with, one for each block.
    pub(crate) seeds: Vec<u64>,
    /// The checksums, after `seal`.
    pub(crate) sums: Vec<u64>,
}

impl Operation {
    /// Computes the checksums of blocks that go to a level or came from one; nothing for other operations. The host calls it
    /// once the device is done, without the engine's lock; else [`Engine::complete`](crate::Engine::complete) does it.
    pub fn seal(&mut self) {
        if self.sums.len() == self.seeds.len() {
            return;
        }
        let sum = |(seed, bytes): (&u64, &[u8])| XxHash3_64::oneshot_with_seed(*seed, bytes);
        self.sums = match &mut self.action {
            Action::Read(frames) => self.seeds.iter().zip(frames.slices_mut().map(|slice| &*slice)).map(sum).collect(),
            Action::Write(frames) => self.seeds.iter().zip(frames.slices()).map(sum).collect(),
            Action::Flush | Action::Discard | Action::Zeroes { .. } => unreachable!("they have no contents"),
        };
    }
}

/// What a device is to do.
pub enum Action {
    /// Read into these frames.
    Read(Exclusive),
    /// Write these frames.
    Write(Shared),
    /// Make every completed operation stable.
    Flush,
    /// Discard the range.
    Discard,
    /// Make the range read as zeros.
    Zeroes {
        /// As in `Op::Zeroes`.
        keep: bool,
        /// As in `Op::Zeroes`.
        fast: bool,
    },
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Read(_) => "read",
            Action::Write(_) => "write",
            Action::Flush => "flush",
            Action::Discard => "discard",
            Action::Zeroes { .. } => "zeroes",
        };
        write!(f, "{action} #{} at port {} at {}+{}", self.id, self.port.0, self.offset, self.length)
    }
}

/// What the cache has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Nothing, or not yet.
    Absent,
    /// Its contents, as they are on the device.
    Clean,
    /// Its contents, which the device does not have yet.
    Dirty,
}
