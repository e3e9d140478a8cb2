//! CSV of the MSR Cambridge traces: timestamp (Windows filetime, 100 ns), host name, disk number, `Read` or `Write`,
//! offset and size in bytes, and response time (100 ns; may be missing from all lines), the latency. A header line is skipped, and so
//! is a number of the line in front of all lines.
//! Times are counted from the first request (`clock.rs`), because dates since 1601 do not fit in 63 bits of nanoseconds.
//! Each disk of each host is a volume, numbered in order of first appearance.

use std::collections::HashMap;

use crate::Request;
use crate::error::Bad;
use crate::text::{Fields, Lines, extent_of, op};
use crate::units::FILETIME_NS;

const RESPONSE: &str = "a response time";

#[derive(Default)]
pub(crate) struct Parser {
    /// Keyed by host and disk, with a comma between.
    volumes: HashMap<Vec<u8>, u32>,
    /// The key and the number of the last request's volume.
    last: (Vec<u8>, u32),
    key: Vec<u8>,
    /// Whether lines have a response time; known after the first line. A later line without it is incomplete.
    has_response: Option<bool>,
    /// Whether lines have a number in front; known after the first line.
    is_numbered: Option<bool>,
}

/// Whether the operation of a line is one field later than usual.
fn is_numbered(line: &[u8]) -> bool {
    let kind = |at: usize| Fields::new(line).nth(at).and_then(op);
    kind(3).is_none() && kind(4).is_some()
}

impl Parser {
    fn volume(&mut self, host: &[u8], disk: &[u8]) -> Result<u32, Bad> {
        self.key.clear();
        self.key.extend_from_slice(host);
        self.key.push(b',');
        self.key.extend_from_slice(disk);
        if self.key != self.last.0 {
            let next = u32::try_from(self.volumes.len()).map_err(|_| Bad::field(host, "fewer than 2^32 volumes"))?;
            let volume = *self.volumes.entry(self.key.clone()).or_insert(next);
            self.last = (self.key.clone(), volume);
        }
        Ok(self.last.1)
    }
}

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let is_name = |field: &[u8]| field.eq_ignore_ascii_case(b"timestamp");
        let is_second = || self.is_numbered.is_none() && Fields::new(line).nth(1).is_some_and(is_name);
        if line.get(..9).is_some_and(is_name) || is_second() {
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        if *self.is_numbered.get_or_insert_with(|| is_numbered(line)) {
            fields.next();
        }
        let time_ns = fields.time(FILETIME_NS, "a timestamp in units of 100 ns")?;
        let host = fields.expect("a host name")?;
        let disk = fields.expect("a disk number")?;
        let kind = fields.expect("Read or Write")?;
        let op = op(kind).ok_or_else(|| Bad::field(kind, "Read or Write"))?;
        let first = fields.whole("an offset in bytes")?;
        let count = fields.whole("a size in bytes")?;
        let response = fields.next();
        let response_ns = |field| crate::text::time_ns(field, FILETIME_NS).ok_or_else(|| Bad::field(field, RESPONSE));
        match (response, *self.has_response.get_or_insert(response.is_some())) {
            (None, true) => return Err(Bad::end_of_line(RESPONSE)),
            (Some(b""), true) => return Err(Bad::field(b"", RESPONSE)),
            (Some(response), false) => return Err(Bad::field(response, "six fields, as in the lines before")),
            _ => fields.end("at most seven fields")?,
        }
        let (offset, length) = extent_of(line, first, count, 1)?;
        let latency_ns = response.map_or(Ok(0), response_ns)?;
        let volume = self.volume(host, disk)?;
        Ok(Some(Request { time_ns, offset, length, volume, op, latency_ns, ..Request::default() }))
    }
}
