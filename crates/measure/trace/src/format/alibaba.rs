//! CSV of the Alibaba block traces of 2020 (github.com/alibaba/block-traces): number of the disk, `R` or `W`, offset and
//! length in bytes, time in microseconds. A disk is a volume.

use crate::Request;
use crate::error::Bad;
use crate::text::{Fields, Lines, extent_of, op};

const MICROSECOND_NS: u64 = 1000;

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let volume = fields.number32("the number of a disk")?;
        let word = fields.expect("R or W")?;
        let op = op(word).ok_or_else(|| Bad::field(word, "R or W"))?;
        let first = fields.whole("an offset in bytes")?;
        let count = fields.whole("a length in bytes")?;
        let time_ns = fields.time(MICROSECOND_NS, "a time in microseconds")?;
        fields.end("five fields")?;
        let (offset, length) = extent_of(line, first, count, 1)?;
        Ok(Some(Request { time_ns, offset, length, volume, op, ..Request::default() }))
    }
}
