//! The assignment of blocks to the shards of a cache: the same in service and in a replay.

use crate::request::Volume;

/// The bytes that belong to one shard as a whole, so that neighbours on the disk stay neighbours in an engine.
pub const EXTENT_BYTES: u64 = 1 << 20;

/// The one of `shards` engines that has the byte at `offset` of `volume`. Extents are scattered, so that no stride of a
/// client uses one shard only.
#[inline]
pub fn shard_of(volume: Volume, offset: u64, shards: u32) -> u32 {
    let extent = (offset / EXTENT_BYTES) ^ u64::from(volume.0).rotate_right(16);
    let scattered = extent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((scattered * u64::from(shards)) >> 32) as u32
}
