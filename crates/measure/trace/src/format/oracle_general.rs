//! libCacheSim's oracleGeneral: records of 24 bytes without header. Operations are not recorded: all are reads.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::objects::Objects;
use crate::Request;
use crate::error::Bad;
use crate::records::Records;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Record {
    seconds: U32,
    object: U64,
    bytes: U32,
    /// The number of the next request for the object, counted from 1 for the first of the trace, or -1.
    next: I64,
}

pub(crate) struct Decoder {
    pub(crate) objects: Objects,
}

impl Records for Decoder {
    type Record = Record;

    #[inline]
    fn decode(&self, record: &Record) -> Result<Option<Request>, Bad> {
        Ok(Some(self.objects.request(record.seconds, record.object.get(), record.bytes.get())))
    }
}

/// Whether, in a sample from the beginning, time never decreases, sizes are below 1 GiB, and next requests are later
/// ones or none.
pub(crate) fn is_like(sample: &[u8]) -> bool {
    const SIZE_MAX: u32 = 1 << 30;
    let Ok((records, _)) = <[Record]>::ref_from_prefix_with_elems(sample, sample.len() / size_of::<Record>()) else {
        return false;
    };
    let later = |(index, record): (usize, &Record)| {
        let next = record.next.get();
        next == -1 || usize::try_from(next).is_ok_and(|next| next > index)
    };
    !records.is_empty()
        && records.is_sorted_by_key(|record| record.seconds.get())
        && records.iter().all(|record| record.bytes.get() < SIZE_MAX)
        && records.iter().enumerate().all(later)
}
