//! VMware's binary traces of SCSI commands (CloudPhysics): little-endian records of 32 bytes in version 1 and of 40 in
//! version 2, without header. Sectors have 512 bytes, times and (in version 2) latencies are in microseconds. Commands that
//! neither move data of the disk nor discard or flush it are skipped.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Bad, Place};
use crate::input::Input;
use crate::records::{Binary, Records};
use crate::skip::Bounds;
use crate::text::{EXTENT, SECTOR_BYTES, extent};
use crate::{Error, Op, Request, Requests, Result};

const MICROSECOND_NS: u64 = 1000;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record1 {
    serial: U32,
    bytes: U32,
    /// Elements of the scatter-gather list.
    elements: U32,
    command: U16,
    /// Version in the upper 8 bits.
    version: U16,
    sector: U64,
    time_us: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record2 {
    command: U16,
    version: U16,
    serial: U32,
    bytes: U32,
    elements: U32,
    sector: U64,
    time_us: U64,
    response_us: U64,
}

struct Decoder1;

impl Records for Decoder1 {
    type Record = Record1;

    fn decode(&self, record: &Record1) -> Result<Option<Request>, Bad> {
        request(1, record.version, record.command, record.sector, record.bytes, record.time_us)
    }
}

struct Decoder2;

impl Records for Decoder2 {
    type Record = Record2;

    fn decode(&self, record: &Record2) -> Result<Option<Request>, Bad> {
        let request = request(2, record.version, record.command, record.sector, record.bytes, record.time_us)?;
        let latency_ns = record.response_us.get().checked_mul(MICROSECOND_NS).unwrap_or(0);
        Ok(request.map(|request| Request { latency_ns, ..request }))
    }
}

fn request(
    expected: u16,
    version: U16,
    command: U16,
    sector: U64,
    bytes: U32,
    time_us: U64,
) -> Result<Option<Request>, Bad> {
    let version = version.get() >> 8;
    if version != expected {
        let expected = if expected == 1 { "a record of version 1" } else { "a record of version 2" };
        return Err(Bad { found: format!("version {version}"), expected });
    }
    let op = match command.get() {
        // READ (6), (10), (16), (12)
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        // WRITE, WRITE AND VERIFY, WRITE SAME
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x41 | 0x93 => Op::Write,
        // UNMAP
        0x42 => Op::Trim,
        // SYNCHRONIZE CACHE (10), (16)
        0x35 | 0x91 => Op::Flush,
        _ => return Ok(None),
    };
    let (sector, bytes, time_us) = (sector.get(), bytes.get(), time_us.get());
    let time_ns = time_us
        .checked_mul(MICROSECOND_NS)
        .ok_or_else(|| Bad { found: format!("the time {time_us} µs"), expected: "a time below 2^64 ns" })?;
    if op == Op::Flush {
        return Ok(Some(Request { time_ns, op, ..Request::default() }));
    }
    let place = || Bad { found: format!("{bytes} bytes at sector {sector}"), expected: EXTENT };
    let first = sector.checked_mul(SECTOR_BYTES).ok_or_else(place)?;
    let (offset, length) = extent(first, bytes.into(), 1).ok_or_else(place)?;
    Ok(Some(Request { time_ns, offset, length, op, ..Request::default() }))
}

/// The version of all records of a sample from the beginning, if it is the same.
fn version(sample: &[u8]) -> Option<u8> {
    let agree = |stride: usize, at: usize, version: u8| {
        let mut records = sample.chunks_exact(stride).peekable();
        records.peek().is_some() && records.all(|record| record.get(at + 1) == Some(&version))
    };
    match () {
        () if agree(size_of::<Record1>(), std::mem::offset_of!(Record1, version), 1) => Some(1),
        () if agree(size_of::<Record2>(), std::mem::offset_of!(Record2, version), 2) => Some(2),
        () => None,
    }
}

/// Whether a sample from the beginning consists of such records.
pub(crate) fn is_like(sample: &[u8]) -> bool {
    version(sample).is_some()
}

/// The first record determines the version.
pub(crate) fn reader(mut input: Input, bounds: Bounds) -> Result<Box<dyn Requests + Send>> {
    let stride = if input.fill_to(size_of::<Record2>())? { size_of::<Record2>() } else { input.data().len() };
    match version(input.data().get(..stride).unwrap_or_default()) {
        Some(1) => Ok(Box::new(Binary::new(input, Decoder1, bounds))),
        Some(_) => Ok(Box::new(Binary::new(input, Decoder2, bounds))),
        None if stride == 0 => Err(Error::Empty { path: input.path().to_owned() }),
        None => Err(Error::Malformed {
            path: input.path().to_owned(),
            place: Place::Byte(0),
            found: format!("{:02x?}", input.data().get(..16.min(stride)).unwrap_or_default()),
            expected: "a record of version 1 or 2".to_owned(),
        }),
    }
}
