//! CSV of Tencent's cloud block storage traces of 2018 (SNIA; Zhang et al., "OSCA", ATC 2020): time in seconds since 1970,
//! first sector, number of sectors (512 bytes), 0 for a read or 1 for a write, and the number of the volume.

use crate::error::Bad;
use crate::text::{Fields, Lines, SECTOR_BYTES, extent_of};
use crate::{Op, Request};

const SECOND_NS: u64 = 1_000_000_000;

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time_ns = fields.time(SECOND_NS, "a time in seconds")?;
        let sector = fields.whole("the number of the first sector")?;
        let sectors = fields.whole("a number of sectors")?;
        let op = match fields.expect("0 for a read or 1 for a write")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => return Err(Bad::field(other, "0 for a read or 1 for a write")),
        };
        let volume = fields.number32("the number of a volume")?;
        fields.end("five fields")?;
        let (offset, length) = extent_of(line, sector, sectors, SECTOR_BYTES)?;
        Ok(Some(Request { time_ns, offset, length, volume, op, ..Request::default() }))
    }
}

/// Whether requests of a sample are from the years 2001 to 2033, which shows that lines of five numbers are Tencent's.
pub(crate) fn is_like(requests: &[Request]) -> bool {
    const DATES: std::ops::Range<u64> = 1_000_000_000..2_000_000_000;
    requests.iter().all(|request| DATES.contains(&(request.time_ns / SECOND_NS)))
}
