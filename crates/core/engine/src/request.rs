//! The input and output of the engine: requests and replies, device operations and their completions.

use std::fmt;
use std::ops::Range;

use nigh_policy::{Stream, Tenant};
use twox_hash::XxHash3_64;

use crate::arena::{Exclusive, Shared};

/// A disk that is served: a key space of its own. The host chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u32);

/// A queue to one device, or to one place on it. The host chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// The place of a part of a volume. A volume is its regions, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The port of the device.
    pub port: Port,
    /// The start of the region on the device, in bytes; a multiple of the block size.
    pub offset: u64,
    /// Its length in bytes: whole blocks, at least one, except for a volume's last region.
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
    /// Later: at a flush, at the limits on dirty blocks, or at the limit of its age.
    Back,
    /// Before the acknowledgement.
    Through,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The bytes of the range.
    Read,
    /// New bytes for the range.
    Write,
    /// Makes every acknowledged write stable. Has no range.
    Flush,
    /// The contents of the range are no longer needed. Blocks that are only partly in the range are left unchanged.
    Trim,
    /// Makes the range read as zeros.
    Zeroes {
        /// The space of the range stays allocated.
        keep: bool,
        /// Only if this is faster on the device than a write.
        fast: bool,
    },
    /// The range will be read soon.
    Prefetch,
}

impl Op {
    /// Whether it is a trim or zeroes.
    pub(crate) fn is_range(self) -> bool {
        matches!(self, Op::Trim | Op::Zeroes { .. })
    }
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The disk.
    pub volume: Volume,
    /// The tenant that is charged for the blocks. In a cache with tenants its number is below the limit.
    pub tenant: Tenant,
    /// The operation.
    pub op: Op,
    /// The start of the range, in bytes.
    pub offset: u64,
    /// The length of the range, in bytes.
    pub length: u64,
    /// For write, zeroes and trim: must be on stable storage before the acknowledgement.
    pub fua: bool,
    /// The code or file that issued it, if known; policies may use it.
    pub stream: Stream,
    /// Returned with each reply.
    pub token: u64,
}

/// How far [`Engine::warm`](crate::Engine::warm) came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// A block of the range, or its end.
    Block {
        /// The first block that was not considered.
        next: u64,
        /// How many of those before are being loaded because of it.
        loading: u32,
    },
    /// No memory is free, or the volume is not open.
    Full,
}

/// The result of submitting a request.
#[derive(Debug)]
pub struct Submitted {
    /// The reply, if there is one at once; otherwise it comes from `Engine::next_reply`.
    pub reply: Option<Reply>,
    /// Whether a block of the range was not resident when it was referenced: a miss to the policy. For a read that
    /// waits for frames, whether a block is absent now. Writes reference their blocks when they are
    /// committed.
    pub missed: bool,
}

/// A message of the engine about a request.
#[derive(Debug)]
pub struct Reply {
    /// The request's token.
    pub token: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a request.
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

/// The frames of a write, to be filled by the host and returned with `Engine::commit` or `Engine::abort`.
#[must_use = "the request waits until this is committed or aborted"]
#[derive(Debug)]
pub struct Fill {
    pub(crate) request: u32,
    /// Whether the frames have their checksums.
    pub(crate) sealed: bool,
    /// The destination of the bytes of the request. It holds arbitrary old bytes, not necessarily of the same volume,
    /// and must be overwritten completely.
    pub frames: Exclusive,
}

impl Fill {
    /// Computes the checksums of the frames, with `Config::verify`. The host calls it once the frames are filled, without
    /// the engine's lock; otherwise [`Engine::commit`](crate::Engine::commit) does it.
    pub fn seal(&mut self) {
        if !std::mem::replace(&mut self.sealed, true) {
            self.frames.seal();
        }
    }
}

/// The number of a device error, as in the operating system's `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device reports: {}", std::io::Error::from_raw_os_error(*.0))]
pub struct Fault(pub i32);

impl Fault {
    /// ESHUTDOWN: no device failed, but the volume was closed before the request could begin.
    pub const SHUT_DOWN: Fault = Fault(108);

    /// ENOTCONN: the device of a shared level cannot be reached at the moment. It still has its blocks, unless the host reports otherwise
    /// ([`Engine::empty_places`](crate::Engine::empty_places)).
    pub const AWAY: Fault = Fault(107);

    /// EIO: no device failed, but contents were damaged in memory.
    pub const DAMAGED: Fault = Fault(5);
}

/// Why the engine rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The limit of requests in progress is reached: try again after the next reply.
    #[error("too many requests in progress")]
    Busy,
    /// No such volume is open, or it is being closed.
    #[error("no such volume")]
    NoVolume,
    /// The range is empty or passes the end of the volume.
    #[error("the range is empty or passes the end")]
    OutOfRange,
    /// The range is longer than `Limits::request_bytes`: the host must split it.
    #[error("the request is too long")]
    TooLong,
}

/// A block that was damaged in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The volume of the block.
    pub volume: Volume,
    /// The index of the block in the volume.
    pub block: u64,
    /// Whether its contents were newer than those on the device, so that they are lost.
    pub lost: bool,
}

/// Result of `Operation::verify`.
#[derive(Default)]
pub(crate) struct Damages {
    /// The frames of the operation.
    pub(crate) frames: Vec<u32>,
    /// Positions of damaged ones.
    pub(crate) at: Vec<usize>,
}

/// An operation for the device of a port, returned with `Engine::complete`.
#[must_use = "blocks stay in flight until this is completed"]
pub struct Operation {
    pub(crate) id: u64,
    /// The port.
    pub port: Port,
    /// The start on the device, in bytes; a multiple of the block size.
    pub offset: u64,
    /// The length in bytes: whole blocks, unless a volume ends in mid-block. 0 for a flush.
    pub length: u64,
    /// The action.
    pub action: Action,
    /// Whether a shared level forgets what is read.
    pub leaves: bool,
    /// How long ago the blocks that are stored in a shared level were referenced, in µs, one for each; empty for other operations.
    pub ages_us: Vec<u64>,
    /// The volumes of blocks that are stored in a level, one for each block; empty for other operations.
    pub volumes: Vec<Volume>,
    /// For blocks of a level: the bytes that their checksums begin with, one for each block.
    pub(crate) seeds: Vec<u64>,
    /// The checksums, after `seal`.
    pub(crate) sums: Vec<u64>,
    pub(crate) sealed: bool,
    /// After `verify`.
    pub(crate) damages: Damages,
}

impl Operation {
    /// `bytes` of the device.
    pub(crate) fn new(id: u64, port: Port, bytes: Range<u64>, action: Action, seeds: Vec<u64>) -> Operation {
        let (offset, length) = (bytes.start, bytes.end - bytes.start);
        let (sums, damages) = (Vec::new(), Damages::default());
        let (volumes, ages_us) = (Vec::new(), Vec::new());
        let (leaves, sealed) = (false, false);
        Operation { id, port, offset, length, action, leaves, ages_us, volumes, seeds, sums, sealed, damages }
    }

    /// Computes the checksums of blocks that go to a level or came from one, and with `Config::verify` of all blocks that
    /// were read. The host calls it once the device has finished, without the engine's lock; otherwise
    /// [`Engine::complete`](crate::Engine::complete) does it.
    pub fn seal(&mut self) {
        if std::mem::replace(&mut self.sealed, true) {
            return;
        }
        let sum = |(seed, bytes): (&u64, &[u8])| XxHash3_64::oneshot_with_seed(*seed, bytes);
        match &mut self.action {
            Action::Read(frames) => {
                frames.seal();
                self.sums = self.seeds.iter().zip(frames.slices_mut().map(|slice| &*slice)).map(sum).collect();
            }
            Action::Write(frames) => self.sums = self.seeds.iter().zip(frames.slices()).map(sum).collect(),
            Action::Flush | Action::Discard | Action::Zeroes { .. } => {}
        }
    }

    /// Whether the frames that it writes are as they were when their checksums were computed. If not, the device must not
    /// do it: the host passes it to [`Engine::complete`](crate::Engine::complete) with [`Fault::DAMAGED`] instead. True
    /// for other operations, and without `Config::verify`. Called without the engine's lock.
    pub fn verify(&mut self) -> bool {
        let Action::Write(held) = &self.action else { return true };
        let at = held.damaged();
        if at.is_empty() {
            return true;
        }
        let frames = held.frames().to_vec();
        self.damages = Damages { frames, at };
        false
    }
}

/// The action of a device.
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

/// The state of a block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Absent, or not loaded yet.
    Absent,
    /// Present and equal to the device's contents.
    Clean,
    /// Present and newer than the device's contents.
    Dirty,
}
