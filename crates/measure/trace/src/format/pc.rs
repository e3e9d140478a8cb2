//! CSV of accesses with the identity of the issuing code: `t_us,pid,app,op,file_id,off,len,pc5,pc8,pc16,ra0` and
//! further columns, which are ignored; a header line is skipped. `pcN` is a hash over the N innermost return addresses
//! and `ra0` the innermost one, in hexadecimal.
//!
//! The process is the tenant, the file the volume, and the stream is a column that the user chooses. Operations whose
//! name contains `read` are reads, those with `write` writes, those with `sync` flushes. `mmap` is skipped, because it
//! maps a file without accessing data. A request of length 0 (at the end of a file) is kept.

use crate::error::Bad;
use crate::text::{Lines, extent_of, hexadecimal, number};
use crate::{Op, Request, Stream};

const MICROSECOND_NS: u64 = 1000;

pub(crate) struct Parser {
    stream: Stream,
}

impl Parser {
    pub(crate) fn new(stream: Stream) -> Parser {
        Parser { stream }
    }
}

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"t_us,") {
            return Ok(None);
        }
        let mut fields = line.split(|&byte| byte == b',');
        let mut next = |expected| fields.next().ok_or_else(|| Bad::end_of_line(expected));
        let time = next("a time in microseconds")?;
        let pid = next("a process id")?;
        let _app = next("the name of a program")?;
        let call = next("an operation")?;
        let file = next("the number of a file")?;
        let offset = next("an offset in bytes")?;
        let length = next("a length in bytes")?;
        let codes = [next("the hash pc5")?, next("the hash pc8")?, next("the hash pc16")?, next("the address ra0")?];

        let whole = |field, expected| number(field).ok_or_else(|| Bad::field(field, expected));
        let number32 = |field, expected| {
            number(field).and_then(|value| u32::try_from(value).ok()).ok_or_else(|| Bad::field(field, expected))
        };
        let time_ns = number(time).and_then(|us| us.checked_mul(MICROSECOND_NS));
        let time_ns = time_ns.ok_or_else(|| Bad::field(time, "a time in microseconds"))?;
        let volume = number32(file, "the number of a file")?;
        let (offset, length) =
            extent_of(line, whole(offset, "an offset in bytes")?, whole(length, "a length in bytes")?, 1)?;
        let code = |column: &[u8]| hexadecimal(column).ok_or_else(|| Bad::field(column, "a hexadecimal number"));
        let [pc5, pc8, pc16, ra0] = codes;
        let stream = match self.stream {
            Stream::Pc5 => code(pc5)?,
            Stream::Pc8 => code(pc8)?,
            Stream::Pc16 => code(pc16)?,
            Stream::Ra0 => code(ra0)?,
            Stream::File => volume.into(),
        };
        if call == b"mmap" {
            return Ok(None);
        }
        let op = op(call).ok_or_else(|| Bad::field(call, "a kind of read, write, sync or mmap"))?;
        Ok(Some(Request {
            time_ns,
            offset,
            length,
            volume,
            tenant: number32(pid, "a process id")?,
            op,
            stream,
            latency_ns: 0,
            content: 0,
        }))
    }
}

fn op(call: &[u8]) -> Option<Op> {
    let contains = |part: &[u8]| call.windows(part.len()).any(|window| window == part);
    match call {
        _ if contains(b"read") => Some(Op::Read),
        _ if contains(b"write") => Some(Op::Write),
        _ if contains(b"sync") => Some(Op::Flush),
        _ => None,
    }
}
