//! The device's features and configuration.

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::request::{RANGE_SECTORS, SECTOR, SEGMENTS};

/// The place of `writeback` in the configuration.
pub(crate) const WRITEBACK_AT: u32 = 32;
/// Bytes of the configuration, as far as it is used.
const CONFIG_BYTES: usize = 60;
/// Bytes of a block of the cache, in sectors, as a power of two.
const PHYSICAL_EXPONENT: u8 = 3;

/// Features of a disk, which may be read-only.
pub(crate) fn features(read_only: bool) -> u64 {
    let always = [
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_CONFIG_WCE,
        VIRTIO_BLK_F_MQ,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let more: &[u32] = if read_only { &[VIRTIO_BLK_F_RO] } else { &[VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES] };
    let bits = always.iter().chain(more).fold(0, |bits, feature| bits | 1 << feature);
    bits | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
}

/// Whether `features` have this one.
pub(crate) fn has(features: u64, feature: u32) -> bool {
    features & 1 << feature != 0
}

/// Features of the protocol. Without INFLIGHT_SHMFD: a guest would go on after a crash of the server, without what was acknowledged.
pub(crate) fn protocol() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

/// The configuration of a disk of `bytes` bytes: `size` bytes of it from `offset`, with zeros where it has none.
pub(crate) fn config(bytes: u64, writeback: bool, queues: u16, offset: u32, size: u32) -> Vec<u8> {
    let mut config = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| config[at..at + value.len()].copy_from_slice(value);
    put(0, &(bytes / SECTOR).to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &(SECTOR as u32).to_le_bytes());
    put(24, &[PHYSICAL_EXPONENT]);
    // The least and the best transfer, in sectors.
    put(26, &(1u16 << PHYSICAL_EXPONENT).to_le_bytes());
    put(WRITEBACK_AT as usize, &[writeback.into()]);
    put(34, &queues.to_le_bytes());
    for at in [36, 48] {
        // Of discards, and of zeroes: the longest range, and how many.
        put(at, &RANGE_SECTORS.to_le_bytes());
        put(at + 4, &1u32.to_le_bytes());
    }
    put(44, &(1u32 << PHYSICAL_EXPONENT).to_le_bytes());
    // Zeroes may give space up.
    put(56, &[1]);
    let (from, to) = (offset as usize, offset as usize + size as usize);
    (from..to).map(|at| config.get(at).copied().unwrap_or(0)).collect()
}
