//! The output of `biosnoop` (bcc and libbpf-tools): seconds, program, process id, disk, kind of request (`R` or `W`, or
//! RWBS), sector (512 bytes), bytes, optionally a pattern and the milliseconds in the queue (`-P`, `-Q`), and the
//! milliseconds of the request. The header is skipped.
//!
//! A disk is a volume, the process is the tenant. The program's name can contain blanks, so the fields after it are
//! recognized by their form. A request whose disk is missing, as in requests of the kernel, has a volume of its own. Requests
//! without data are flushes if their kind is a flush; otherwise they are skipped.

use crate::error::Bad;
use crate::loss::Losses;
use crate::numbering::Numbering;
use crate::rwbs::Rwbs;
use crate::text::{Lines, SECTOR_BYTES, number, time_ns};
use crate::{Note, Op, Request};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// The most words of a name: the fields after a longer one are not found.
const FIELDS_MOST: usize = 16;
/// Time and the first word of the name.
const NAME_END_LEAST: usize = 2;

#[derive(Default)]
pub(crate) struct Parser {
    disks: Numbering,
    losses: Losses,
}

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.starts_with(b"TIME") || line.starts_with(b"Tracing ") {
            return Ok(None);
        }
        if !line.first().is_some_and(u8::is_ascii_digit) && self.losses.take(line) {
            return Ok(None);
        }
        let fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
        let fields: Vec<&[u8]> = fields.take(FIELDS_MOST).collect();
        let first = fields.first().copied().unwrap_or_default();
        let time_ns = time_ns(first, SECOND_NS).ok_or_else(|| Bad::field(first, "a time in seconds"))?;
        // A process id, a disk, a kind, a sector and bytes; only the disk can be any word.
        let places = fields.windows(5).skip(NAME_END_LEAST);
        let mut found = places.filter_map(|window| {
            let [pid, disk, kind, sector, bytes] = *window else { return None };
            let pid = u32::try_from(number(pid)?).ok()?;
            Some((pid, disk, Rwbs::strict(kind)?, place(sector)?, number(bytes)?))
        });
        let without_disk = || {
            let places = fields.windows(4).skip(NAME_END_LEAST);
            let mut found = places.filter_map(|window| {
                let [pid, kind, sector, bytes] = *window else { return None };
                let pid = u32::try_from(number(pid)?).ok()?;
                Some((pid, &b""[..], Rwbs::strict(kind)?, place(sector)?, number(bytes)?))
            });
            found.next_back()
        };
        let Some((tenant, disk, kind, sector, bytes)) = found.next_back().or_else(without_disk) else {
            return Err(Bad::field(line, "process id, disk, kind of request, sector and bytes"));
        };
        // The last field, behind the bytes.
        let latency = fields.last().filter(|field| field.contains(&b'.'));
        let latency_ns = latency.and_then(|field| crate::text::time_ns(field, MILLISECOND_NS)).unwrap_or(0);
        let request = Request { time_ns, volume: self.disks.number(disk)?, tenant, latency_ns, ..Request::default() };
        match sector {
            Some(sector) => kind.request(line, request, (sector, SECTOR_BYTES), (bytes, 1)),
            None => Ok(kind.flushes.then_some(Request { op: Op::Flush, ..request })),
        }
    }

    fn notes(&self) -> Vec<Note> {
        self.losses.note().into_iter().collect()
    }
}

/// A sector, or `Some(None)` for the mark of a missing one.
fn place(field: &[u8]) -> Option<Option<u64>> {
    match field {
        b"-1" | b"?" => Some(None),
        _ => Some(Some(number(field)?).filter(|&sector| sector != u64::MAX)),
    }
}
