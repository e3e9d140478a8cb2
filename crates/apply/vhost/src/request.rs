//! A request: a chain of descriptors of the guest, which is not trusted.
//!
//! 1. The bytes that the device reads come before those that it writes. They are split among descriptors as the driver likes.
//! 2. The first 16 bytes are the header. The rest is the data that the guest writes, or the range of a discard or of zeroes.
//! 3. The last byte that the device writes is the status. The bytes before it are the data that the guest reads.
//!
//! The memory of all descriptors is there: copies from and to it do not fail.

use std::ops::Range;

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use crate::memory::Memory;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;
/// Bytes of a name that GET_ID returns.
pub(crate) const ID_BYTES: usize = 20;
/// Sectors of a discard or of zeroes.
pub(crate) const RANGE_SECTORS: u32 = 65_536;
/// Segments of data that a driver may use, beside the header and the status.
pub(crate) const SEGMENTS: u32 = 254;
/// Descriptors of a chain: more than drivers use, whatever they think of `SEGMENTS`.
const DESCRIPTORS_MAX: usize = 1026;
/// Bytes of a request's header, and of a range.
const HEADER: usize = 16;

/// Memory of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) at: GuestAddress,
    pub(crate) bytes: usize,
}

/// The operation of a request, and its bytes of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(Range<u64>),
    Write(Range<u64>),
    Flush,
    Id,
    Discard(Range<u64>),
    Zeroes {
        range: Range<u64>,
        /// Its space may be given up.
        unmap: bool,
    },
    /// It does not make sense.
    Invalid,
    /// The device does not know it.
    Unsupported,
}

/// A request whose status the guest gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// The place of its status.
    pub(crate) status: GuestAddress,
    /// Bytes that the guest reads, without the status.
    pub(crate) writable: u32,
}

/// A chain that is not a request: its header or status is missing, it has no end, or it is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads `chain`; `segments` become those of its data.
pub(crate) fn read(
    mut chain: DescriptorChain<&Memory>,
    memory: &Memory,
    segments: &mut Vec<Segment>,
) -> Result<Request, Malformed> {
    segments.clear();
    let (mut readable, mut is_last) = (None, false);
    for descriptor in chain.by_ref() {
        is_last = !descriptor.has_next();
        let bytes = descriptor.len() as usize;
        match readable {
            None if descriptor.is_write_only() => readable = Some(segments.len()),
            Some(_) if !descriptor.is_write_only() => return Err(Malformed),
            _ => {}
        }
        if bytes == 0 {
            continue;
        }
        if segments.len() == DESCRIPTORS_MAX || !memory.check_range(descriptor.addr(), bytes, Permissions::ReadWrite) {
            return Err(Malformed);
        }
        segments.push(Segment { at: descriptor.addr(), bytes });
    }
    let readable = readable.filter(|_| is_last).ok_or(Malformed)?;
    let last = segments[readable..].last().ok_or(Malformed)?;
    let status = GuestAddress(last.at.0 + (last.bytes - 1) as u64);
    let at = segments.len() - 1;
    segments[at].bytes -= 1;
    if segments[at].bytes == 0 {
        segments.pop();
    }
    let header = take(segments, memory, readable).ok_or(Malformed)?;
    // One segment less if the header had all of it.
    let (header, readable) = header;
    let writable: u64 = segments[readable..].iter().map(|segment| segment.bytes as u64).sum();
    // The chain has fewer than 2^32 bytes.
    let writable = writable as u32;
    let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let sector = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
    let operation = match kind {
        VIRTIO_BLK_T_IN => {
            segments.drain(..readable);
            sectors(sector, writable.into()).map_or(Operation::Invalid, Operation::Read)
        }
        VIRTIO_BLK_T_OUT => {
            segments.truncate(readable);
            let bytes = segments.iter().map(|segment| segment.bytes as u64).sum();
            sectors(sector, bytes).map_or(Operation::Invalid, Operation::Write)
        }
        VIRTIO_BLK_T_FLUSH => {
            segments.clear();
            Operation::Flush
        }
        VIRTIO_BLK_T_GET_ID => {
            segments.drain(..readable);
            Operation::Id
        }
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
            segments.truncate(readable);
            range(segments, memory, kind == VIRTIO_BLK_T_WRITE_ZEROES)
        }
        _ => Operation::Unsupported,
    };
    Ok(Request { operation, status, writable })
}

/// Takes a header from the beginning of `segments`, of which the first `readable` are for the device to read. Returns it, and how many of those
/// are left.
fn take(segments: &mut Vec<Segment>, memory: &Memory, readable: usize) -> Option<([u8; HEADER], usize)> {
    let (mut header, mut got, mut used) = ([0; HEADER], 0, 0);
    for segment in &mut segments[..readable] {
        let part = segment.bytes.min(HEADER - got);
        memory.read_slice(&mut header[got..got + part], segment.at).ok()?;
        got += part;
        if part < segment.bytes {
            segment.at.0 += part as u64;
            segment.bytes -= part;
            break;
        }
        used += 1;
        if got == HEADER {
            break;
        }
    }
    segments.drain(..used);
    (got == HEADER).then_some((header, readable - used))
}

/// The bytes of whole sectors.
fn sectors(sector: u64, bytes: u64) -> Option<Range<u64>> {
    let start = sector.checked_mul(SECTOR)?;
    bytes.is_multiple_of(SECTOR).then_some(())?;
    Some(start..start.checked_add(bytes)?)
}

/// A discard or zeroes of the one range that `segments` hold.
fn range(segments: &mut Vec<Segment>, memory: &Memory, zeroes: bool) -> Operation {
    let readable = segments.len();
    let Some((range, _)) = take(segments, memory, readable).filter(|_| segments.is_empty()) else {
        return Operation::Invalid;
    };
    let sector = u64::from_le_bytes(range[..8].try_into().expect("8 bytes"));
    let [count, flags] = [8, 12].map(|at| u32::from_le_bytes(range[at..at + 4].try_into().expect("4 bytes")));
    let known = if zeroes { VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP } else { 0 };
    if flags & !known != 0 {
        return Operation::Unsupported;
    }
    let range = sectors(sector, u64::from(count) * SECTOR).filter(|_| count <= RANGE_SECTORS);
    match range {
        None => Operation::Invalid,
        Some(range) if zeroes => Operation::Zeroes { range, unmap: flags != 0 },
        Some(range) => Operation::Discard(range),
    }
}

/// A position in segments.
pub(crate) struct Cursor<'a> {
    memory: &'a Memory,
    segments: &'a [Segment],
    /// Bytes of the first segment that are passed.
    passed: usize,
}

impl<'a> Cursor<'a> {
    /// The position after `skip` bytes.
    pub(crate) fn new(memory: &'a Memory, mut segments: &'a [Segment], skip: u64) -> Cursor<'a> {
        let mut passed = skip as usize;
        while let Some((first, rest)) = segments.split_first()
            && passed >= first.bytes
        {
            passed -= first.bytes;
            segments = rest;
        }
        Cursor { memory, segments, passed }
    }

    /// Memory of the next bytes, up to `most`, in one segment.
    fn step(&mut self, most: usize) -> Option<(GuestAddress, usize)> {
        let (first, rest) = self.segments.split_first()?;
        let (at, bytes) = (GuestAddress(first.at.0 + self.passed as u64), most.min(first.bytes - self.passed));
        self.passed += bytes;
        if self.passed == first.bytes {
            (self.segments, self.passed) = (rest, 0);
        }
        Some((at, bytes))
    }

    /// Copies `bytes` to the guest. Returns false if it has no such memory.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some((at, length)) = self.step(bytes.len()) else { return false };
            let (now, later) = bytes.split_at(length);
            if self.memory.write_slice(now, at).is_err() {
                return false;
            }
            bytes = later;
        }
        true
    }

    /// Copies from the guest until `bytes` is full. Returns false if it has no such memory.
    pub(crate) fn read(&mut self, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            let Some((at, length)) = self.step(bytes.len()) else { return false };
            let (now, later) = bytes.split_at_mut(length);
            if self.memory.read_slice(now, at).is_err() {
                return false;
            }
            bytes = later;
        }
        true
    }
}
