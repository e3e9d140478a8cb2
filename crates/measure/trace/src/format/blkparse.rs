//! The default output of `blkparse`, one event a line: device `major,minor`, CPU, sequence number, seconds, process id,
//! action, kind of request (RWBS); events of requests continue with `sector + sectors` (512 bytes) and the process name
//! in brackets.
//!
//! The events of one action are read as requests (see [`Action`]): by default, the first of queued, issued and completed ones
//! that occurs at the beginning. Other events are skipped, and so are commands without sectors and lines that do
//! not begin with a digit, which are the summary at the end; the skips in it are lost events. Of the RWBS letters (`rwbs.rs`), `D` is a trim, otherwise
//! `W` a write, otherwise `R` a read; `F` alone, or without sectors, is a flush; `ZA` is a write. Events of other kinds
//! (`N`, other `Z`) are skipped. The device is the volume, numbered major × 2^20 + minor as in Linux; the process is
//! the tenant.

use std::str::FromStr;

use crate::error::{Bad, unknown_name};
use crate::input::Input;
use crate::loss::Losses;
use crate::rwbs::Rwbs;
use crate::skip::Bounds;
use crate::text::{Fields, Lines, SECTOR_BYTES, Text, extent_of, number, try_out};
use crate::{Error, Note, Op, Request, Requests, Result};

const SECOND_NS: u64 = 1_000_000_000;
const MINOR_BITS: u32 = 20;
const MAJOR_BITS: u32 = 12;

/// The events that are read as requests. Each request causes one event of each action, unless it is merged with or
/// split into others on the way; a completion carries no process of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// `Q`, queued: the request as issued, before the block layer merges.
    #[default]
    Queue,
    /// `D`, issued to the driver: the request that reaches the device.
    Issue,
    /// `C`, completed.
    Complete,
}

impl Action {
    /// Every action that can be read as requests.
    pub const ALL: [Action; 3] = [Action::Queue, Action::Issue, Action::Complete];

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Action::Queue => "queue",
            Action::Issue => "issue",
            Action::Complete => "complete",
        }
    }

    fn letter(self) -> &'static [u8] {
        match self {
            Action::Queue => b"Q",
            Action::Issue => b"D",
            Action::Complete => b"C",
        }
    }
}

impl FromStr for Action {
    type Err = Error;

    fn from_str(given: &str) -> Result<Action, Error> {
        let found = Self::ALL.into_iter().find(|action| action.name() == given || action.letter() == given.as_bytes());
        found.ok_or_else(|| unknown_name("action", given, &Self::ALL.map(Action::name)))
    }
}

pub(crate) struct Parser {
    action: Action,
    losses: Losses,
}

impl Parser {
    pub(crate) fn new(action: Action) -> Parser {
        Parser { action, losses: Losses::default() }
    }
}

/// The size of the sample that shows which events there are.
const SAMPLE_BYTES: usize = 64 << 10;

/// The requests of `input`, which is at its beginning.
pub(crate) fn reader(mut input: Input, action: Option<Action>, bounds: Bounds) -> Result<Box<dyn Requests + Send>> {
    let whole = !input.fill_to(SAMPLE_BYTES)?;
    let occurs = |action: &Action| !try_out(Parser::new(*action), input.data(), whole).requests.is_empty();
    let action = action.or_else(|| Action::ALL.into_iter().find(occurs)).unwrap_or_default();
    Ok(Box::new(Text::new(input, Parser::new(action), bounds)))
}

/// The events that a line of the summary counts as lost: `Skips: 2 forward (5 -  11.6%)` are 5.
fn skips(line: &[u8]) -> Option<u64> {
    let counts = line.strip_prefix(b"Skips: ")?;
    let (_, count) = counts.split_at_checked(memchr::memchr(b'(', counts)? + 1)?;
    number(count.split(|byte| *byte == b' ').next()?)
}

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        if !line.first().is_some_and(u8::is_ascii_digit) {
            self.losses.add(Some(skips(line).unwrap_or(0)));
            return Ok(None);
        }
        let mut fields = Fields::new(line);
        let major = device_part(&mut fields, MAJOR_BITS, "a major device number")?;
        let minor = device_part(&mut fields, MINOR_BITS, "a minor device number")?;
        fields.number("a CPU")?;
        fields.number("a sequence number")?;
        let time_ns = fields.time(SECOND_NS, "a time in seconds")?;
        let tenant = fields.number32("a process id")?;
        let action = fields.expect("an action")?;
        if action != self.action.letter() {
            return Ok(None);
        }
        let kind = fields.expect("a kind of request (RWBS)")?;
        let volume = major << MINOR_BITS | minor;
        let request = Request { time_ns, volume, tenant, ..Request::default() };
        let kind = Rwbs::new(kind);
        let flush = kind.flushes.then_some(Request { op: Op::Flush, ..request });
        let Some(op) = kind.op else { return Ok(flush) };
        let Some(sector) = fields.next().filter(|field| !field.starts_with(b"[")) else { return Ok(flush) };
        let sector = number(sector).ok_or_else(|| Bad::field(sector, "the number of the first sector"))?;
        let plus = fields.expect("+")?;
        // Bytes of a command follow its length.
        if plus.starts_with(b"(") {
            return Ok(None);
        }
        if plus != b"+" {
            return Err(Bad::field(plus, "+"));
        }
        let sectors = fields.number("a number of sectors")?;
        let (offset, length) = extent_of(line, sector, sectors, SECTOR_BYTES)?;
        Ok(Some(Request { offset, length, op, ..request }))
    }

    fn notes(&self) -> Vec<Note> {
        self.losses.note().into_iter().collect()
    }
}

fn device_part(fields: &mut Fields, bits: u32, expected: &'static str) -> Result<u32, Bad> {
    let value = fields.number32(expected)?;
    if value >> bits == 0 { Ok(value) } else { Err(Bad::field(value.to_string().as_bytes(), expected)) }
}

/// The volume of a device whose `major` and `minor` numbers are these words.
pub(crate) fn volume_of(major: &[u8], minor: &[u8]) -> Option<u32> {
    let part = |word: &[u8], bits: u32| number(word).filter(|number| number >> bits == 0);
    let number = part(major, MAJOR_BITS)? << MINOR_BITS | part(minor, MINOR_BITS)?;
    u32::try_from(number).ok()
}
