//! CSV with a header that names every field of a request.

use std::io::{self, Write};

use super::output::Output;
use super::{Failure, Sink};
use crate::{Field, Request};

pub(super) struct Csv {
    output: Output,
}

impl Csv {
    pub(super) fn new(mut output: Output) -> io::Result<Csv> {
        writeln!(output, "{}", Field::ALL.map(Field::name).join(","))?;
        Ok(Csv { output })
    }
}

impl Sink for Csv {
    fn push(&mut self, request: &Request) -> Result<(), Failure> {
        let Request { time_ns, offset, length, volume, tenant, op, stream } = *request;
        writeln!(self.output, "{time_ns},{},{volume},{offset},{length},{tenant},{stream}", op.name())?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<Output> {
        Ok(self.output)
    }
}
