//! The log of requests that fio writes (`--write_iolog`) and replays (`--read_iolog`), versions 2 and 3. The first line
//! contains the version. Each further line is an action: in version 3 a time, then a file's name, the action, and for
//! accesses offset and length in bytes.
//!
//! `read`, `write` and `trim` are requests; `sync` and `datasync` are flushes; `add`, `open` and `close` are skipped.
//! Times are microseconds, as fio 3.33 writes and replays them. Version 2 has only the times of `wait` actions, whose
//! offset is the milliseconds since the beginning. fio's HOWTO has microseconds since the previous `wait`, but fio
//! 3.33 replays a log with `wait 1000` and `wait 2000` in 2 s. A file is a volume.

use crate::error::Bad;
use crate::numbering::Numbering;
use crate::text::{Fields, Lines, extent_of};
use crate::{Op, Request};

const MICROSECOND_NS: u64 = 1_000;
const MILLISECOND_NS: u64 = 1_000_000;

#[derive(Default)]
pub(crate) struct Parser {
    version: Option<Version>,
    files: Numbering,
    /// The time of the last action.
    time_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Lines for Parser {
    const SKIPS_HEADER: bool = false;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if self.version.is_none() {
            self.version = Some(match line {
                b"fio version 2 iolog" => Version::Two,
                b"fio version 3 iolog" => Version::Three,
                _ => return Err(Bad::field(line, "the line 'fio version 2 iolog' or 'fio version 3 iolog'")),
            });
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        if self.version == Some(Version::Three) {
            self.time_ns = fields.time(MICROSECOND_NS, "a time in microseconds")?;
        }
        let file = fields.expect("the name of a file")?;
        let action = fields.expect("an action")?;
        let op = match action {
            b"add" | b"open" | b"close" => return Ok(None),
            b"wait" if self.version == Some(Version::Two) => {
                self.time_ns = self.time_ns.max(fields.time(MILLISECOND_NS, "a time in milliseconds")?);
                return Ok(None);
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" => Op::Flush,
            _ => return Err(Bad::field(action, "an action, such as read, write, sync or trim")),
        };
        let request = Request { time_ns: self.time_ns, op, volume: self.files.number(file)?, ..Request::default() };
        if op == Op::Flush {
            return Ok(Some(request));
        }
        let first = fields.number("an offset in bytes")?;
        let count = fields.number("a length in bytes")?;
        fields.end("nothing after the length")?;
        let (offset, length) = extent_of(line, first, count, 1)?;
        Ok(Some(Request { offset, length, ..request }))
    }
}
