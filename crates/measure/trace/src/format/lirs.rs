//! The LIRS authors' text format: one block number a line. A line with `*` marks a point in the trace and is skipped.

use crate::error::Bad;
use crate::text::{EXTENT, Lines, extent, number};
use crate::{Op, Request};

pub(crate) struct Parser {
    block_bytes: u32,
}

impl Parser {
    pub(crate) fn new(block_bytes: u32) -> Parser {
        Parser { block_bytes }
    }
}

impl Lines for Parser {
    #[inline]
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let Some(block) = number(line) else {
            return if line.contains(&b'*') {
                Ok(None)
            } else {
                Err(Bad::field(line, "a block number, or * for a marker"))
            };
        };
        let (offset, length) = extent(block, 1, self.block_bytes.into()).ok_or_else(|| Bad::field(line, EXTENT))?;
        Ok(Some(Request { offset, length, op: Op::Read, ..Request::default() }))
    }
}
