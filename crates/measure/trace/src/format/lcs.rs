//! libCacheSim's lcs: a header with the version, then records, all little-endian.
//!
//! The header begins and ends with the same magic number; it is 8192 bytes long, and was 1024 in the first releases.
//! Version 1 has the records of oracleGeneral, 2 adds operation and tenant, 3 a 64-bit size and a time to live, and 4
//! to 8 append 1, 2, 4, 8 and 16 feature fields of 4 bytes, which are ignored. A deletion of an object is a trim, any
//! other change of an object a write.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::objects::Objects;
use super::oracle_general;
use crate::error::{Bad, Place};
use crate::input::Input;
use crate::records::{Binary, Records};
use crate::skip::Bounds;
use crate::{Error, Op, Request, Requests, Result};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const HEADER_BYTES: [usize; 2] = [8192, 1024];

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record2 {
    seconds: U32,
    object: U64,
    bytes: U32,
    /// Operation in the lowest 8 bits, tenant in the others.
    op_and_tenant: U32,
    next: I64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record3 {
    seconds: U32,
    object: U64,
    bytes: I64,
    /// As in version 2.
    op_and_tenant: U32,
    ttl_seconds: U32,
    next: I64,
}

struct Decoder2 {
    objects: Objects,
}

impl Records for Decoder2 {
    type Record = Record2;

    fn decode(&self, record: &Record2) -> Result<Option<Request>, Bad> {
        let request = self.objects.request(record.seconds, record.object.get(), record.bytes.get());
        with_op_and_tenant(request, record.op_and_tenant).map(Some)
    }
}

struct Decoder3 {
    objects: Objects,
    features: usize,
}

impl Records for Decoder3 {
    type Record = Record3;

    fn stride(&self) -> usize {
        size_of::<Record3>() + self.features * size_of::<u32>()
    }

    fn decode(&self, record: &Record3) -> Result<Option<Request>, Bad> {
        let bytes = record.bytes.get();
        let bytes = u32::try_from(bytes)
            .map_err(|_| Bad { found: format!("a size of {bytes} bytes"), expected: "a size below 4 GiB" })?;
        let request = self.objects.request(record.seconds, record.object.get(), bytes);
        with_op_and_tenant(request, record.op_and_tenant).map(Some)
    }
}

fn with_op_and_tenant(request: Request, op_and_tenant: U32) -> Result<Request, Bad> {
    const OP_BITS: u32 = 8;
    let op = match op_and_tenant.get() & ((1 << OP_BITS) - 1) {
        // none, get, gets, read, and the mark of a format without operations
        0 | 1 | 2 | 12 | 255 => Op::Read,
        // set, add, cas, replace, append, prepend, incr, decr, write, update
        3..=8 | 10 | 11 | 13 | 14 => Op::Write,
        // delete
        9 => Op::Trim,
        other => return Err(Bad { found: format!("operation {other}"), expected: "0 to 14, or 255" }),
    };
    Ok(Request { op, tenant: op_and_tenant.get() >> OP_BITS, ..request })
}

/// Whether a sample from the beginning starts with the header's magic number.
pub(crate) fn is_like(sample: &[u8]) -> bool {
    sample.starts_with(&MAGIC)
}

pub(crate) fn reader(mut input: Input, objects: Objects, bounds: Bounds) -> Result<Box<dyn Requests + Send>> {
    let malformed = |input: &Input, at: usize, found: &[u8], expected: &str| Error::Malformed {
        path: input.path().to_owned(),
        place: Place::Byte(at as u64),
        found: format!("{found:02x?}"),
        expected: expected.to_owned(),
    };
    for bytes in HEADER_BYTES {
        input.fill_to(bytes)?;
    }
    let data = input.data();
    let word = |at: usize| data.get(at..at + MAGIC.len()).unwrap_or_default();
    if word(0) != MAGIC {
        return Err(malformed(&input, 0, word(0), "the magic number of lcs"));
    }
    let ends_here = |&bytes: &usize| word(bytes - MAGIC.len()) == MAGIC;
    let Some(header_bytes) = HEADER_BYTES.into_iter().find(ends_here) else {
        let at = HEADER_BYTES[0] - MAGIC.len();
        return Err(malformed(&input, at, word(at), "the magic number at the end of the header"));
    };
    let version = word(MAGIC.len()).to_owned();
    input.consume(header_bytes);
    let features = match version.as_slice() {
        [1, 0, 0, 0, 0, 0, 0, 0] => {
            return Ok(Box::new(Binary::new(input, oracle_general::Decoder { objects }, bounds)));
        }
        [2, 0, 0, 0, 0, 0, 0, 0] => return Ok(Box::new(Binary::new(input, Decoder2 { objects }, bounds))),
        [3, 0, 0, 0, 0, 0, 0, 0] => 0,
        [more @ 4..=8, 0, 0, 0, 0, 0, 0, 0] => 1 << (more - 4),
        other => return Err(malformed(&input, MAGIC.len(), other, "a version from 1 to 8")),
    };
    Ok(Box::new(Binary::new(input, Decoder3 { objects, features }, bounds)))
}
