//! The LIRS authors' text: the number of each block that is touched, one a line.

use std::io::{self, Write};

use super::output::Output;
use super::{Failure, Sink, block_numbers};
use crate::Request;

pub(super) struct Lirs {
    output: Output,
    block_bytes: u32,
}

impl Lirs {
    pub(super) fn new(output: Output, block_bytes: u32) -> Lirs {
        Lirs { output, block_bytes }
    }
}

impl Sink for Lirs {
    fn push(&mut self, request: &Request) -> Result<(), Failure> {
        for block in block_numbers(request, self.block_bytes)? {
            writeln!(self.output, "{block}")?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<Output> {
        Ok(self.output)
    }
}
