//! The text format of MQSim and SSDsim: arrival time in whole nanoseconds, device number, first sector, number of
//! sectors (512 bytes), and 0 for a write or 1 for a read. A device is a volume.

use crate::error::Bad;
use crate::text::{Fields, Lines, SECTOR_BYTES, extent_of};
use crate::{Op, Request};

/// The least average difference of neighbouring whole numbers that is accepted as nanoseconds in detection.
pub(crate) const GAP_NS_MIN: u64 = 1000;

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time_ns = fields.number("an arrival time in nanoseconds")?;
        let volume = fields.number32("a device number")?;
        let sector = fields.number("the number of the first sector")?;
        let sectors = fields.number("a number of sectors")?;
        let op = match fields.expect("0 for a write or 1 for a read")? {
            b"0" => Op::Write,
            b"1" => Op::Read,
            other => return Err(Bad::field(other, "0 for a write or 1 for a read")),
        };
        fields.end("five fields")?;
        let (offset, length) = extent_of(line, sector, sectors, SECTOR_BYTES)?;
        Ok(Some(Request { time_ns, offset, length, volume, op, ..Request::default() }))
    }
}
