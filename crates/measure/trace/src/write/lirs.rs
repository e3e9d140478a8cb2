//! The LIRS authors' text format: the number of each accessed block, one a line.
//!
//! A number times the block size is less than 2^64. The upper 12 of its bits are the volume, which leaves 40 for a
//! block of 4 KiB: readers support only one volume, but blocks of several volumes do not coincide.

use std::io::{self, Write};

use super::compressed::Compressed;
use super::{Failure, Numbering, Sink};
use crate::Request;

const VOLUME_BITS: u32 = 12;

pub(super) struct Lirs {
    output: Compressed,
    numbering: Numbering,
}

impl Lirs {
    pub(super) fn new(output: Compressed, block_bytes: u32) -> Lirs {
        let bits = 64 - block_bytes.next_power_of_two().trailing_zeros();
        Lirs { output, numbering: Numbering { block_bytes, block_bits: bits - VOLUME_BITS, bits } }
    }
}

impl Sink for Lirs {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        let mut lines = 0;
        for block in self.numbering.blocks(request)? {
            self.output.write_all(itoa::Buffer::new().format(block).as_bytes())?;
            self.output.write_all(b"\n")?;
            lines += 1;
        }
        Ok(lines)
    }

    fn finish(self: Box<Self>) -> io::Result<Compressed> {
        Ok(self.output)
    }
}
