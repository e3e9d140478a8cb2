//! CSV with a header that names every field of a request.

use std::io::{self, Write};

use super::compressed::Compressed;
use super::{Failure, Sink};
use crate::{Field, Request};

pub(super) struct Csv {
    output: Compressed,
    line: Vec<u8>,
}

impl Csv {
    pub(super) fn new(mut output: Compressed) -> io::Result<Csv> {
        writeln!(output, "{}", Field::ALL.map(Field::name).join(","))?;
        Ok(Csv { output, line: Vec::new() })
    }
}

impl Sink for Csv {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        let Request { time_ns, offset, length, volume, tenant, op, stream, latency_ns, content } = *request;
        let mut number = itoa::Buffer::new();
        self.line.clear();
        self.line.extend_from_slice(number.format(time_ns).as_bytes());
        self.line.push(b',');
        self.line.extend_from_slice(op.name().as_bytes());
        for value in [volume.into(), offset, length.into(), tenant.into(), stream, latency_ns, content] {
            self.line.push(b',');
            self.line.extend_from_slice(number.format(value).as_bytes());
        }
        self.line.push(b'\n');
        self.output.write_all(&self.line)?;
        Ok(1)
    }

    fn checkpoint(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(self: Box<Self>) -> io::Result<Compressed> {
        Ok(self.output)
    }
}
