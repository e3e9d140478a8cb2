//! The requests to block devices that no safe interface has.

#![allow(unsafe_code)]

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// BLKDISCARD, `_IO(0x12, 119)`: discards a range, given as offset and length in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards `length` bytes at `offset` of a block device.
pub(crate) fn discard(device: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    // SAFETY: BLKDISCARD reads two u64 behind its argument, and writes nothing.
    unsafe {
        let request = Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]);
        ioctl(device, request)
    }
}
