//! Block numbers only: little-endian, of 32 or 64 bits, as written by `tofile` of NumPy. All are reads.

use zerocopy::little_endian::{U32, U64};

use crate::error::Bad;
use crate::records::Records;
use crate::text::{EXTENT, extent};
use crate::{Op, Request};

/// Numbers of 32 bits.
pub(crate) struct Decoder32 {
    pub(crate) block_bytes: u32,
}

/// Numbers of 64 bits.
pub(crate) struct Decoder64 {
    pub(crate) block_bytes: u32,
}

impl Records for Decoder32 {
    type Record = U32;

    #[inline]
    fn decode(&self, record: &U32) -> Result<Option<Request>, Bad> {
        request(record.get().into(), self.block_bytes).map(Some)
    }
}

impl Records for Decoder64 {
    type Record = U64;

    #[inline]
    fn decode(&self, record: &U64) -> Result<Option<Request>, Bad> {
        request(record.get(), self.block_bytes).map(Some)
    }
}

#[inline]
fn request(block: u64, block_bytes: u32) -> Result<Request, Bad> {
    let place = || Bad { found: format!("block {block}"), expected: EXTENT };
    let (offset, length) = extent(block, 1, block_bytes.into()).ok_or_else(place)?;
    Ok(Request { offset, length, op: Op::Read, ..Request::default() })
}

/// Whether a sample from the beginning is likelier to be numbers of 64 bits than of 32: it has numbers below 2^32 of 64 bits.
pub(crate) fn is_wide(sample: &[u8]) -> bool {
    sample.chunks_exact(8).all(|number| number.get(4..) == Some(&[0; 4]))
}

/// Whether a sample from the beginning can consist of such numbers of `bytes` bytes: none is above 2^(8 × `bytes` - 8),
/// and some are not 0. Many other files match too, so the name decides.
pub(crate) fn may_be(sample: &[u8], whole: bool, bytes: usize) -> bool {
    let numbers = sample.chunks_exact(bytes);
    let ends = !whole || numbers.remainder().is_empty();
    ends && numbers.len() > 0
        && numbers.clone().all(|number| number.last() == Some(&0))
        && numbers.clone().any(|number| number.iter().any(|&byte| byte != 0))
}
