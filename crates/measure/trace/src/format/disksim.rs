//! DiskSim's text format: arrival time in milliseconds, device number, first sector, number of sectors (512 bytes), and
//! flags in hexadecimal, of which bit 0 marks a read. A device is a volume.

use crate::error::Bad;
use crate::text::{Fields, Lines, SECTOR_BYTES, extent_of, hexadecimal};
use crate::{Op, Request};

const MILLISECOND_NS: u64 = 1_000_000;
const READ: u64 = 1;

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time_ns = fields.time(MILLISECOND_NS, "an arrival time in milliseconds")?;
        let volume = fields.number32("a device number")?;
        let sector = fields.number("the number of the first sector")?;
        let sectors = fields.number("a number of sectors")?;
        let word = fields.expect("flags")?;
        let flags = hexadecimal(word).ok_or_else(|| Bad::field(word, "flags in hexadecimal"))?;
        fields.end("five fields")?;
        let (offset, length) = extent_of(line, sector, sectors, SECTOR_BYTES)?;
        let op = if flags & READ != 0 { Op::Read } else { Op::Write };
        Ok(Some(Request { time_ns, offset, length, volume, op, ..Request::default() }))
    }
}
