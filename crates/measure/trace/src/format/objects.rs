//! The places of objects with 64-bit ids, for the formats of libCacheSim.

use zerocopy::little_endian::U32;

use crate::{Op, Request};

/// The mapping of object ids to places: object `id` is the block `id` of volume 0. Every id must have a place of its
/// own that ends below 2^64 bytes. Ids of 2^k and more, with k = 63 - ⌈log2(block size)⌉, are therefore at `id mod 2^k` in the
/// volume `id / 2^k`; k is 51 for blocks of 4 KiB.
///
/// With recorded sizes, which are below 4 GiB and may change, each object has a room of 4 GiB instead of one block: the object `id` begins
/// at `(id mod 2^32) * 4 GiB` of the volume `id / 2^32`.
#[derive(Clone, Copy)]
pub(crate) struct Objects {
    block_bytes: u32,
    /// k.
    bits: u32,
    /// Bytes between two objects.
    room: u64,
    recorded_sizes: bool,
}

impl Objects {
    /// `block_bytes` is at most [`crate::BLOCK_BYTES_MAX`], so that the volumes fit 32 bits.
    pub(crate) fn new(block_bytes: u32, recorded_sizes: bool) -> Objects {
        let (bits, room) = match recorded_sizes {
            true => (32, 1 << 32),
            false => (63 - block_bytes.next_power_of_two().trailing_zeros(), block_bytes.into()),
        };
        Objects { block_bytes, bits, room, recorded_sizes }
    }

    /// A request for object `id` at `seconds`.
    #[inline]
    pub(crate) fn request(&self, seconds: U32, id: u64, recorded_bytes: u32) -> Request {
        const SECOND_NS: u64 = 1_000_000_000;
        Request {
            time_ns: u64::from(seconds.get()) * SECOND_NS,
            offset: (id & ((1 << self.bits) - 1)) * self.room,
            length: if self.recorded_sizes { recorded_bytes } else { self.block_bytes },
            volume: (id >> self.bits) as u32,
            op: Op::Read,
            ..Request::default()
        }
    }
}
