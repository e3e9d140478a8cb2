//! CSV of the Storage Performance Council, as in the UMass repository: application storage unit (ASU), logical block
//! address (512 bytes), size in bytes, opcode `R` or `W`, timestamp in seconds, and optional fields that are ignored.
//! An ASU is a volume.

use crate::Request;
use crate::error::Bad;
use crate::text::{EXTENT, Fields, Lines, SECTOR_BYTES, extent_of, op};

const SECOND_NS: u64 = 1_000_000_000;

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let volume = fields.number32("the number of an ASU")?;
        let sector = fields.whole("a logical block address")?;
        let bytes = fields.whole("a size in bytes")?;
        let opcode = fields.expect("R or W")?;
        let op = op(opcode).ok_or_else(|| Bad::field(opcode, "R or W"))?;
        let time_ns = fields.time(SECOND_NS, "a time in seconds")?;
        let first = sector.checked_mul(SECTOR_BYTES).ok_or_else(|| Bad::field(line, EXTENT))?;
        let (offset, length) = extent_of(line, first, bytes, 1)?;
        Ok(Some(Request { time_ns, offset, length, volume, op, ..Request::default() }))
    }
}
