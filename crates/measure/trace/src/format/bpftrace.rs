//! Block requests printed by bpftrace programs with the names of the values: a header of names and then rows, or
//! `name=value` pairs in every line. With `-f json`, lines of type `printf` are read.
//!
//! Names are those of the kernel's block tracepoints and of bpftrace's builtins, in any case:
//!
//! | field | names |
//! |---|---|
//! | time | `nsecs`, `elapsed` (nanoseconds); `time`, `ts`, `timestamp` with a unit, such as `TIME(us)` or `ts_ns` |
//! | operation (needed) | `rwbs`, `op`, `rw`: letters of RWBS or a word |
//! | place (needed) | `sector` (512 bytes), or `offset` in bytes |
//! | length (needed) | `nr_sector`, `nr_sectors` or `sectors`, or `bytes`, `size` or `length` in bytes |
//! | volume | `dev`, as a number or as `major:minor` or `major,minor`; `disk`, `file` or `relation`, a name |
//! | tenant | `pid` |
//!
//! With `file`, requests are those of programs, above the page cache; with `relation`, those of a database to its own cache, in pages of 8 KiB
//! unless a block size is given; otherwise, those of disks. Other names are ignored. If the header names `comm`, a row may have more words than the header, because program
//! names can contain blanks. Events that bpftrace reports as lost are counted. Its other remarks (`Attaching …`, `WARNING: …`) and maps (`@…`) are skipped.

use std::borrow::Cow;

use crate::error::Bad;
use crate::format::blkparse::volume_of;
use crate::input::Input;
use crate::loss::Losses;
use crate::numbering::Numbering;
use crate::rwbs::Rwbs;
use crate::text::{Lines, SECTOR_BYTES, number, op, time_ns};
use crate::units::time_unit_in;
use crate::{Note, Op, Request, Result, Taken};

/// The meaning of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Time { unit_ns: u64 },
    Op,
    Place { unit_bytes: u64 },
    Length { unit_bytes: u64 },
    Device,
    Disk,
    Process,
    Program,
    Ignored,
}

const NEEDED: &str = "names as in nsecs=%llu dev=%d rwbs=%s sector=%llu nr_sector=%u, or a header with these names";

/// Bytes of a page of PostgreSQL, as its packages are built.
pub(crate) const DATABASE_PAGE_BYTES: u32 = 8192;

/// Names of volumes that show where the trace was recorded.
const FILE: &[u8] = b"file";
const RELATION: &[u8] = b"relation";

/// Beginnings of lines that are no requests.
const REMARKS: [&[u8]; 4] = [b"Attaching ", b"Attached ", b"@", b"stdin:"];
const WARNING: &[u8] = b"WARNING: ";

#[derive(Default)]
pub(crate) struct Parser {
    /// The roles of the words of a row; empty without a header.
    header: Vec<Role>,
    disks: Numbering,
    losses: Losses,
}

impl Lines for Parser {
    const SKIPS_HEADER: bool = false;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if REMARKS.iter().any(|text| line.starts_with(text)) {
            return Ok(None);
        }
        if line.starts_with(b"{") {
            if let Some(count) = lost_events(line) {
                self.losses.add(count);
                return Ok(None);
            }
            return match printed(line)? {
                Some(text) => self.printed_line(text.trim_ascii()),
                None => Ok(None),
            };
        }
        if is_loss(line) && self.losses.take(line) || line.starts_with(WARNING) {
            return Ok(None);
        }
        self.printed_line(line)
    }

    fn notes(&self) -> Vec<Note> {
        self.losses.note().into_iter().collect()
    }
}

/// The level of the trace in `input`, which is at its beginning, by the names in its header.
pub(crate) fn taken(input: &mut Input) -> Result<Taken> {
    if input.data().is_empty() {
        input.fill()?;
    }
    let has_place = |word: &[u8]| matches!(role(word), Role::Place { .. });
    let words = |line: &[u8]| -> Vec<Vec<u8>> {
        line.split(|byte| byte.is_ascii_whitespace()).map(<[u8]>::to_ascii_lowercase).collect()
    };
    let mut lines = input.data().split(|byte| *byte == b'\n').map(words);
    let header = lines.find(|words| words.iter().any(|word| has_place(word))).unwrap_or_default();
    let names = |name: &[u8]| header.iter().any(|word| word == name);
    Ok(if names(FILE) {
        Taken::Above
    } else if names(RELATION) {
        Taken::Database
    } else {
        Taken::Below
    })
}

/// Whether a line can be one by which bpftrace reports lost events.
fn is_loss(line: &[u8]) -> bool {
    let begins = |text: &[u8]| line.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    begins(b"lost ") || begins(WARNING)
}

/// The number of events in a JSON line of type `lost_events`.
fn lost_events(line: &[u8]) -> Option<Option<u64>> {
    memchr::memmem::find(line, b"\"lost_events\"")?;
    let behind = |text: &[u8]| line.get(memchr::memmem::find(line, text)? + text.len()..);
    let value = behind(b"\"events\"").and_then(|rest| rest.trim_ascii_start().strip_prefix(b":"));
    let digits = value.map(|value| value.trim_ascii_start().split(|byte| !byte.is_ascii_digit()).next());
    Some(digits.flatten().and_then(number))
}

impl Parser {
    fn printed_line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if line.is_empty() {
            return Ok(None);
        }
        let words = || line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let pairs = || {
            words().filter_map(|word| {
                let at = memchr::memchr(b'=', word)?;
                let value = word.get(at + 1..)?;
                Some((role(word.get(..at)?), value.strip_suffix(b",").unwrap_or(value)))
            })
        };
        if pairs().any(|(role, _)| matches!(role, Role::Place { .. })) {
            return self.request(line, pairs());
        }
        let roles: Vec<Role> = words().map(role).collect();
        if roles.iter().any(|role| matches!(role, Role::Place { .. })) {
            let has = |wanted: fn(&Role) -> bool| roles.iter().any(wanted);
            if !has(|role| *role == Role::Op) || !has(|role| matches!(role, Role::Length { .. })) {
                return Err(Bad::field(line, NEEDED));
            }
            self.header = roles;
            return Ok(None);
        }
        if self.header.is_empty() {
            return Err(Bad::field(line, NEEDED));
        }
        // The excess words belong to the program's name.
        let count = words().count();
        let Some(surplus) = count.checked_sub(self.header.len()) else {
            return Err(Bad::end_of_line("as many words as the header has"));
        };
        let program = self.header.iter().position(|role| *role == Role::Program);
        if surplus > 0 && program.is_none() {
            return Err(Bad::field(line, "as many words as the header has"));
        }
        let roles = std::mem::take(&mut self.header);
        let shift = |at: usize| if program.is_some_and(|program| at > program) { at + surplus } else { at };
        let values = roles.iter().enumerate().filter_map(|(at, role)| Some((*role, words().nth(shift(at))?)));
        let request = self.request(line, values);
        self.header = roles;
        request
    }

    fn request<'a>(
        &mut self,
        line: &[u8],
        values: impl Iterator<Item = (Role, &'a [u8])>,
    ) -> Result<Option<Request>, Bad> {
        let mut request = Request::default();
        let (mut kind, mut place, mut length) = (None, None, None);
        let whole = |value, expected| number(value).ok_or_else(|| Bad::field(value, expected));
        for (role, value) in values {
            match role {
                Role::Time { unit_ns } => {
                    request.time_ns = time_ns(value, unit_ns).ok_or_else(|| Bad::field(value, "a time"))?;
                }
                Role::Op => {
                    let known = Rwbs::strict(value).or_else(|| Some(Rwbs { op: Some(op(value)?), flushes: false }));
                    kind = Some(known.ok_or_else(|| Bad::field(value, "a kind of request (RWBS)"))?);
                }
                // A flush has no place: the kernel reports -1.
                Role::Place { .. } if value == b"-1" => place = Some((0, 1)),
                Role::Place { unit_bytes } => place = Some((whole(value, "the first sector")?, unit_bytes)),
                Role::Length { unit_bytes } => length = Some((whole(value, "a length")?, unit_bytes)),
                Role::Device => request.volume = device(value).ok_or_else(|| Bad::field(value, "a device"))?,
                Role::Disk => request.volume = self.disks.number(value)?,
                Role::Process => {
                    let pid = number(value).and_then(|pid| u32::try_from(pid).ok());
                    request.tenant = pid.ok_or_else(|| Bad::field(value, "a process id"))?;
                }
                Role::Program | Role::Ignored => {}
            }
        }
        let (Some(kind), Some(place), Some(length)) = (kind, place, length) else {
            return Err(Bad::field(line, NEEDED));
        };
        if kind.op == Some(Op::Flush) || length.0 == 0 {
            let flushes = kind.flushes || kind.op == Some(Op::Flush);
            return Ok(flushes.then_some(Request { op: Op::Flush, ..request }));
        }
        kind.request(line, request, place, length)
    }
}

fn role(name: &[u8]) -> Role {
    let lower = name.to_ascii_lowercase();
    let bare: &[u8] = lower.split(|byte| *byte == b'(').next().unwrap_or_default();
    match bare {
        b"nsecs" | b"elapsed" => Role::Time { unit_ns: 1 },
        b"rwbs" | b"op" | b"rw" => Role::Op,
        b"sector" => Role::Place { unit_bytes: SECTOR_BYTES },
        b"offset" => Role::Place { unit_bytes: 1 },
        b"nr_sector" | b"nr_sectors" | b"sectors" => Role::Length { unit_bytes: SECTOR_BYTES },
        b"bytes" | b"size" | b"length" => Role::Length { unit_bytes: 1 },
        b"dev" | b"device" => Role::Device,
        b"disk" | FILE | RELATION => Role::Disk,
        b"pid" => Role::Process,
        b"comm" => Role::Program,
        _ if [&b"time"[..], b"ts", b"timestamp"].iter().any(|time| bare.starts_with(time)) => {
            time_unit_in(name).map_or(Role::Ignored, |unit_ns| Role::Time { unit_ns })
        }
        _ => Role::Ignored,
    }
}

/// The volume of a device: the kernel's number, or `major:minor`.
fn device(word: &[u8]) -> Option<u32> {
    match word.iter().position(|byte| matches!(byte, b':' | b',')) {
        Some(at) => volume_of(word.get(..at)?, word.get(at + 1..)?),
        None => u32::try_from(number(word)?).ok(),
    }
}

/// The text of a JSON line of type `printf`; `None` for other types.
fn printed(line: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Bad> {
    const EXPECTED: &str = "a line of bpftrace's JSON";
    let after = |text: &'static [u8], line: &'_ [u8]| {
        let start = memchr::memmem::find(line, text)? + text.len();
        let value = line.get(start..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        Some(line.len() - value.strip_prefix(b"\"")?.len())
    };
    let string = |name, line| after(name, line).and_then(|at| line.get(at..));
    let kind = string(b"\"type\"", line).ok_or_else(|| Bad::field(line, EXPECTED))?;
    if !kind.starts_with(b"printf\"") {
        return Ok(None);
    }
    let data = string(b"\"data\"", line).ok_or_else(|| Bad::field(line, EXPECTED))?;
    let Some(special) = data.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
        return Err(Bad::field(line, EXPECTED));
    };
    if data.get(special) == Some(&b'"') {
        return Ok(data.get(..special).map(Cow::Borrowed));
    }
    let mut text = Vec::new();
    let mut bytes = data.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return Ok(Some(Cow::Owned(text))),
            b'\\' => text.push(match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(&other) => other,
                None => break,
            }),
            _ => text.push(byte),
        }
    }
    Err(Bad::field(line, EXPECTED))
}
