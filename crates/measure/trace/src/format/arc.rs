//! The text format of the ARC paper's traces (`.lis`): first block, number of blocks, an ignored field, and the
//! request's number; in blocks of 512 bytes. The format does not distinguish reads and writes: all are reads.

use crate::error::Bad;
use crate::text::{Fields, Lines, extent_of};
use crate::{Op, Request};

/// The unit of its numbers.
pub(crate) const BLOCK_BYTES: u32 = 512;

pub(crate) struct Parser {
    /// Whether the ignored field must be 0, as in all published traces: four numbers alone are not characteristic.
    pub(crate) ignored_is_zero: bool,
}

impl Lines for Parser {
    #[inline]
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let first = fields.number("the number of the first block")?;
        let count = fields.number("a number of blocks")?;
        let ignored = fields.number("an ignored number")?;
        fields.number("the number of the request")?;
        fields.end("four fields")?;
        if self.ignored_is_zero && ignored != 0 {
            return Err(Bad::field(line, "0 in the third field"));
        }
        let (offset, length) = extent_of(line, first, count, BLOCK_BYTES.into())?;
        Ok(Some(Request { offset, length, op: Op::Read, ..Request::default() }))
    }
}
