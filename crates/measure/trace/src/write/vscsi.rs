//! VMware's binary traces of SCSI commands, version 1: one disk, sectors of 512 bytes, times in microseconds.

use std::io::{self, Write};

use super::compressed::Compressed;
use super::{Failure, Sink};
use crate::{Op, Request};

pub(super) const MICROSECOND_NS: u64 = 1000;
const SECTOR_BYTES: u64 = 512;
const RECORD_BYTES: usize = 32;

/// Version 1, in the upper 8 bits.
const VERSION: u16 = 1 << 8;

/// READ (10), WRITE (10), UNMAP, SYNCHRONIZE CACHE (10).
const fn command(op: Op) -> u16 {
    match op {
        Op::Read => 0x28,
        Op::Write => 0x2a,
        Op::Trim => 0x42,
        Op::Flush => 0x35,
    }
}

pub(super) struct Vscsi {
    output: Compressed,
    volume: Option<u32>,
    serial: u32,
}

impl Vscsi {
    pub(super) fn new(output: Compressed) -> Vscsi {
        Vscsi { output, volume: None, serial: 0 }
    }
}

impl Sink for Vscsi {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        if *self.volume.get_or_insert(request.volume) != request.volume {
            return Err(Failure::Unrepresentable("more than one volume"));
        }
        if !request.offset.is_multiple_of(SECTOR_BYTES) {
            return Err(Failure::Unrepresentable("an offset that is not a multiple of 512 bytes"));
        }
        let scatter_gather_elements = 1u32;
        let mut record = [0; RECORD_BYTES];
        record[0..4].copy_from_slice(&self.serial.to_le_bytes());
        record[4..8].copy_from_slice(&request.length.to_le_bytes());
        record[8..12].copy_from_slice(&scatter_gather_elements.to_le_bytes());
        record[12..14].copy_from_slice(&command(request.op).to_le_bytes());
        record[14..16].copy_from_slice(&VERSION.to_le_bytes());
        record[16..24].copy_from_slice(&(request.offset / SECTOR_BYTES).to_le_bytes());
        record[24..32].copy_from_slice(&(request.time_ns / MICROSECOND_NS).to_le_bytes());
        self.output.write_all(&record)?;
        self.serial = self.serial.wrapping_add(1);
        Ok(1)
    }

    fn finish(self: Box<Self>) -> io::Result<Compressed> {
        Ok(self.output)
    }
}
