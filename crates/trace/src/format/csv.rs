//! CSV with columns described by [`Columns`]. Without a description, the header must name the fields of a [`Request`]:
//! `time_ns`, `offset`, `length`, `op`, `tenant`, `stream`, `volume`, `latency_ns`, `content`, in any order; `offset` and `length` are required.
//! The time can also be `time_us`, `time_ms` or `time_s`. A `time` or `timestamp` without a unit is accepted if it is a
//! date, or if its values show the unit (`units.rs`); otherwise it is an error, and so are columns with other names.
//!
//! If columns are described, missing units are detected from the header or the first rows; if that fails, the file is
//! rejected. Times can be dates in ISO 8601. Operations can be RWBS codes of blktrace (`RA`, `WS`).
//!
//! A header is detected: the first line is one if columns are named, or if the column of the offset does not contain a
//! number. Fields can be quoted. Numbers are decimal, or hexadecimal after `0x`; times can have a fraction.
//!
//! If columns are described, tenants, streams and volumes can be numbers or names. A number below half of the field's
//! range (2^31 for tenants and volumes, 2^63 for streams) is used as it is; every other text gets a number from there
//! up, in order of first appearance, so that no two coincide. Without a description they are numbers of the field's
//! whole range, so that files written by nigh keep their values. An empty field is 0.

use std::collections::HashMap;

use crate::columns::{Column, Columns, LENGTH, OFFSET, ROLE_NAMES, ROLES, TIME};
use crate::error::Bad;
use crate::input::Input;
use crate::rwbs::Rwbs;
use crate::skip::Bounds;
use crate::text::{EXTENT, Lines, Text, digest, hexadecimal, number, op, plain, time_ns};
use crate::time::iso_ns;
use crate::units::{self, Row as Sampled, Stamp, Stated, Unit, Units};
use crate::{Note, Op, Request, Requests, Result};

const REQUEST_FIELDS: [&str; ROLES] =
    ["time_ns", "offset", "length", "op", "tenant", "stream", "volume", "latency_ns", "content"];
const REQUIRED_FIELDS: [&str; 2] = ["offset", "length"];
/// The names of a column of times, by unit in nanoseconds.
const TIME_FIELDS: [(&str, u64); 4] =
    [("time_ns", 1), ("time_us", 1000), ("time_ms", 1_000_000), ("time_s", 1_000_000_000)];
/// The names of a column of times whose unit follows from the values.
const OPEN_TIME_FIELDS: [&str; 2] = ["time", "timestamp"];
const OPEN_TIME: &str = "a time column with its unit (time_ns, time_us, time_ms or time_s), or a description of the columns, as in \
                         --columns time=0,time-unit=us,offset=1,length=2";
/// The line that `bpftrace` prints before a program's own lines.
const ATTACHING: &[u8] = b"Attaching ";

/// The size of the sample from which missing settings are detected.
const SAMPLE_BYTES: usize = 64 << 10;

/// The requests of `input`, which is at its beginning.
pub(crate) fn reader(
    mut input: Input,
    columns: Option<&Columns>,
    block_bytes: u32,
    bounds: Bounds,
) -> Result<Box<dyn Requests + Send>> {
    input.fill_to(SAMPLE_BYTES)?;
    let found = Parser::new(columns, block_bytes, input.data());
    let parser = found.map_err(|unknown| unknown.of(input.path()))?;
    Ok(Box::new(Text::new(input, parser, bounds)))
}

pub(crate) struct Parser {
    /// `None` for a file whose header names the fields of a request.
    columns: Option<Columns>,
    units: Units,
    notes: Vec<Note>,
    /// Whether neither the header nor the values show the unit of the times, in a file without a description.
    is_time_open: bool,
    block_bytes: u32,
    layout: Option<Layout>,
    tenants: Names,
    streams: Names,
    volumes: Names,
}

/// The places of the columns, known after the first line.
struct Layout {
    separator: u8,
    /// Column and role, in ascending order.
    wanted: Vec<(usize, usize)>,
    /// The units given in the header.
    stated: Stated,
}

/// The fields of a row by role; `None` where there is no such column.
type Values<'a> = [Option<&'a [u8]>; ROLES];

impl Parser {
    /// A parser of the file that begins with `sample`, from which missing units are detected.
    pub(crate) fn new(columns: Option<&Columns>, block_bytes: u32, sample: &[u8]) -> Result<Parser, units::Unknown> {
        let base = |base| columns.map(|_| base);
        let mut parser = Parser {
            units: Units { time_ns: Some(1), offset_bytes: 1, length_bytes: 1 },
            notes: Vec::new(),
            is_time_open: false,
            block_bytes,
            layout: None,
            tenants: Names::new(base(1 << 31)),
            streams: Names::new(base(1 << 63)),
            volumes: Names::new(base(1 << 31)),
            columns: columns.cloned(),
        };
        // The last line may be incomplete.
        let sample = memchr::memrchr(b'\n', sample).and_then(|end| sample.get(..end)).unwrap_or(sample);
        let lines = || sample.split(|&byte| byte == b'\n').map(plain).filter(|line| !parser.is_skipped(line));
        // An error in the first line is reported when it is parsed.
        let Some(Ok((layout, is_header))) = lines().next().map(|line| parser.layout(line)) else { return Ok(parser) };
        let rows = lines().skip(usize::from(is_header)).take(units::ROWS);
        let rows: Vec<Sampled> = rows.filter_map(|line| layout.sampled(line)).collect();
        let mut stated = layout.stated;
        if columns.is_none() {
            stated = Stated { offset: Some(Unit::Bytes), length: Some(Unit::Bytes), ..stated };
        }
        match units::find(stated, &rows, block_bytes) {
            Ok((units, notes)) => (parser.units, parser.notes) = (units, notes),
            Err(_) if columns.is_none() => parser.is_time_open = true,
            Err(unknown) => return Err(unknown),
        }
        Ok(parser)
    }

    /// Whether a line, without surrounding blanks, is not a row.
    fn is_skipped(&self, line: &[u8]) -> bool {
        line.is_empty() || self.columns.is_some() && line.starts_with(ATTACHING)
    }

    /// The layout given by the first line, and whether this line is a header.
    fn layout(&self, line: &[u8]) -> Result<(Layout, bool), Bad> {
        let separator = self.columns.as_ref().and_then(|columns| columns.separator);
        let separator = separator.unwrap_or_else(|| guess_separator(line));
        let row = || Row { rest: Some(line), separator };
        let find = |name: &str| row().position(|field| is_name(field, name));
        let mut wanted = Vec::with_capacity(ROLES);
        let mut stated = self.columns.as_ref().map_or_else(Stated::default, |columns| columns.stated);
        let mut is_header = true;
        match &self.columns {
            None => {
                if !names_request(line) {
                    return Err(Bad::field(
                        line,
                        "a header with offset and length, or --columns with a description of the columns",
                    ));
                }
                for (column, field) in row().enumerate() {
                    let role = match TIME_FIELDS.iter().find(|(name, _)| is_name(field, name)) {
                        Some(&(_, unit_ns)) => {
                            stated.time_ns = Some(unit_ns);
                            TIME
                        }
                        None if OPEN_TIME_FIELDS.iter().any(|name| is_name(field, name)) => {
                            if self.is_time_open {
                                return Err(Bad::field(field, OPEN_TIME));
                            }
                            TIME
                        }
                        None => role(field)?,
                    };
                    if wanted.iter().any(|&(_, other)| other == role) {
                        return Err(Bad::field(field, "one column for each field of a request"));
                    }
                    wanted.push((column, role));
                }
            }
            Some(columns) => {
                for (role, column) in columns.columns().iter().enumerate() {
                    match column {
                        Some(Column::Index(index)) => wanted.push((*index, role)),
                        Some(Column::Name(name)) => {
                            let missing = || Bad::field(line, "a header with the named columns");
                            wanted.push((find(name).ok_or_else(missing)?, role));
                        }
                        Some(Column::Bytes(_)) => {
                            return Err(Bad::field(line, "binary records, because the columns have types"));
                        }
                        None => {}
                    }
                }
                let is_named = columns.columns().iter().flatten().any(|column| matches!(column, Column::Name(_)));
                let field = |role| {
                    let column = wanted.iter().find(|&&(_, other)| other == role);
                    column.and_then(|&(index, _)| row().nth(index))
                };
                let offset = field(OFFSET);
                is_header = is_named || offset.is_some_and(|field| !field.is_empty() && integer(field).is_none());
                if is_header {
                    stated = stated.or_named(field(TIME), offset, field(LENGTH));
                }
            }
        }
        wanted.sort_unstable();
        Ok((Layout { separator, wanted, stated }, is_header))
    }
}

impl Lines for Parser {
    const SKIPS_HEADER: bool = false;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let layout = match &self.layout {
            Some(layout) => layout,
            None if self.is_skipped(line) => return Ok(None),
            None => {
                let (layout, is_header) = self.layout(line)?;
                let layout = &*self.layout.insert(layout);
                if is_header {
                    return Ok(None);
                }
                layout
            }
        };
        let [time, offset, length, word, tenant, stream, volume, latency, content] = layout.values(line)?;
        let op = match word {
            None => Op::Read,
            Some(word) => self.op(word).ok_or_else(|| Bad::field(word, "an operation, such as read or write"))?,
        };
        let time_ns = match time {
            None => 0,
            Some(field) => self.time(field).ok_or_else(|| Bad::field(field, "a time"))?,
        };
        let (offset, length) = if op == Op::Flush {
            (0, 0)
        } else {
            let whole = |field, expected| integer(field).ok_or_else(|| Bad::field(field, expected));
            let offset = whole(offset.unwrap_or_default(), "an offset")?;
            let length = length.map(|field| whole(field, "a length")).transpose()?;
            self.extent(offset, length).ok_or_else(|| Bad::field(line, EXTENT))?
        };
        // The names' numbers are below 2^32 as long as there are fewer than 2^31 names.
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Bad::field(line, "numbers or names below 2^32"));
        Ok(Some(Request {
            time_ns,
            offset,
            length,
            op,
            tenant: narrow(self.tenants.number(tenant)?)?,
            volume: narrow(self.volumes.number(volume)?)?,
            stream: self.streams.number(stream)?,
            latency_ns: match latency {
                None => 0,
                Some(field) => integer(field).ok_or_else(|| Bad::field(field, "a latency in whole nanoseconds"))?,
            },
            content: content.map_or(0, digest),
        }))
    }

    fn notes(&self) -> Vec<Note> {
        self.notes.clone()
    }
}

impl Parser {
    fn op(&self, word: &[u8]) -> Option<Op> {
        let words = self.columns.iter().flat_map(|columns| &columns.words);
        let mut named = words.filter(|(name, _)| name.as_bytes() == word);
        match named.next() {
            Some(&(_, op)) => Some(op),
            None => op(word).or_else(|| {
                let Rwbs { op, flushes } = Rwbs::strict(word)?;
                op.or(flushes.then_some(Op::Flush))
            }),
        }
    }

    fn time(&self, field: &[u8]) -> Option<u64> {
        match self.units.time_ns {
            Some(unit_ns) => time_ns(field, unit_ns),
            None => iso_ns(field),
        }
    }

    fn extent(&self, offset: u64, length: Option<u64>) -> Option<(u64, u32)> {
        let offset = offset.checked_mul(self.units.offset_bytes)?;
        let length = match length {
            Some(length) => u32::try_from(length.checked_mul(self.units.length_bytes)?).ok()?,
            None => self.block_bytes,
        };
        offset.checked_add(length.into())?;
        Some((offset, length))
    }
}

impl Layout {
    fn values<'a>(&self, line: &'a [u8]) -> Result<Values<'a>, Bad> {
        let mut values = [None; ROLES];
        let mut row = Row { rest: Some(line), separator: self.separator };
        let mut next = 0;
        let mut field = None;
        for &(column, role) in &self.wanted {
            if column >= next {
                field = row.nth(column - next);
                next = column + 1;
            }
            let name = ROLE_NAMES.get(role).copied().unwrap_or_default();
            let field = field.ok_or_else(|| Bad::end_of_line(name))?;
            if let Some(value) = values.get_mut(role) {
                *value = Some(field);
            }
        }
        Ok(values)
    }

    /// The information about units in a row; `None` for a line that is not a row.
    fn sampled(&self, line: &[u8]) -> Option<Sampled> {
        let [time, offset, length, ..] = self.values(line).ok()?;
        Some(Sampled { time: time.and_then(stamp), offset: offset.and_then(integer), length: length.and_then(integer) })
    }
}

/// The notation of a time.
fn stamp(field: &[u8]) -> Option<Stamp> {
    if let Some(number) = number(field) {
        return Some(Stamp::Whole(number));
    }
    if iso_ns(field).is_some() {
        return Some(Stamp::Date);
    }
    time_ns(field, 1).map(Stamp::Fraction)
}

/// The fields of a line, without the blanks and quotes around them.
struct Row<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Row<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        // A quoted field ends at its quote, so that a separator within does not count.
        let unquoted = rest.strip_prefix(b"\"").and_then(|inner| Some((inner, memchr::memchr(b'"', inner)?)));
        let (field, after) = match unquoted {
            Some((inner, end)) => (inner.get(..end)?, inner.get(end + 1..)?),
            None => rest.split_at(memchr::memchr(self.separator, rest).unwrap_or(rest.len())),
        };
        self.rest = memchr::memchr(self.separator, after).and_then(|at| after.get(at + 1..));
        if self.separator == b' ' {
            self.rest = self.rest.map(<[u8]>::trim_ascii_start);
        }
        Some(field.trim_ascii())
    }
}

fn guess_separator(line: &[u8]) -> u8 {
    [b'\t', b',', b';', b'|'].into_iter().find(|byte| line.contains(byte)).unwrap_or(b' ')
}

/// Whether a line names the fields that are required without a description.
pub(crate) fn names_request(line: &[u8]) -> bool {
    let has = |name| Row { rest: Some(line), separator: guess_separator(line) }.any(|field| is_name(field, name));
    REQUIRED_FIELDS.into_iter().all(has)
}

/// The role of a column other than the time that a header calls `field`.
fn role(field: &[u8]) -> Result<usize, Bad> {
    let role = REQUEST_FIELDS.iter().position(|name| is_name(field, name));
    role.ok_or_else(|| {
        let expected = "a field of a request: time_ns, op, volume, offset, length, tenant, stream, latency_ns or content; or a description of the \
                        columns, as in --columns offset=0,length=1";
        Bad::field(field, expected)
    })
}

fn is_name(field: &[u8], name: &str) -> bool {
    field.eq_ignore_ascii_case(name.as_bytes())
}

/// A number, decimal or hexadecimal after `0x`.
fn integer(field: &[u8]) -> Option<u64> {
    match field {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        _ => number(field),
    }
}

/// Numbers for values that can be numbers or names.
struct Names {
    /// Numbers below this are used as they are, names are numbered from here; `None` if there are no names.
    base: Option<u64>,
    known: HashMap<Vec<u8>, u64>,
}

impl Names {
    fn new(base: Option<u64>) -> Names {
        Names { base, known: HashMap::new() }
    }

    fn number(&mut self, field: Option<&[u8]>) -> Result<u64, Bad> {
        let Some(field) = field.filter(|field| !field.is_empty()) else { return Ok(0) };
        let number = integer(field);
        let Some(base) = self.base else { return number.ok_or_else(|| Bad::field(field, "a number")) };
        if let Some(number) = number.filter(|&number| number < base) {
            return Ok(number);
        }
        Ok(match self.known.get(field) {
            Some(&number) => number,
            None => {
                let number = base + self.known.len() as u64;
                self.known.insert(field.to_owned(), number);
                number
            }
        })
    }
}
