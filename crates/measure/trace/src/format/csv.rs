//! CSV with columns described by [`Columns`], or named in nigh's own way, or guessed.
//!
//! nigh's own names are the fields of a [`Request`]: `time_ns`, `offset`, `length`, `op`, `tenant`, `stream`, `volume`,
//! `latency_ns`, `content`, in any order; `offset` and `length` are required. The time can also be `time_us`, `time_ms` or
//! `time_s`. A `time` or `timestamp` without a unit is accepted if it is a date, or if its values show the unit
//! (`units.rs`); otherwise it is an error. The further columns of recordings, and the index that other programs put in front,
//! are ignored; rows of recordings that are no requests are left out, as in Parquet.
//!
//! The columns of other files without a description are guessed (`csv/guess.rs`), and a note reports the guess.
//!
//! If columns are described, missing units are detected from the header or the first rows; if that fails, the file is
//! rejected. Times can be dates in ISO 8601. Operations can be RWBS codes of blktrace (`RA`, `WS`). Lines that begin with `#`
//! before the first row are skipped.
//!
//! A header is detected: the first line is one if columns are named, or if the column of the offset does not contain a
//! number. Fields can be quoted. Numbers are decimal, or hexadecimal after `0x`; times can have a fraction. Rows may have one
//! field more than the header, in front: the numbers of the rows, as R writes them.
//!
//! Offsets can be keys of objects, texts or numbers (`offset-unit=keys`). A header is then detected by the columns of times, operations
//! and lengths.
//!
//! If columns are described, tenants, streams and volumes can be numbers or names. A number below half of the field's
//! range (2^31 for tenants and volumes, 2^63 for streams) is used as it is; every other text gets a number from there
//! up, in order of first appearance, so that no two coincide. Without a description they are numbers of the field's
//! whole range, so that files written by nigh keep their values. An empty field is 0.

pub(crate) mod guess;

use std::collections::HashMap;

use crate::columns::{Column, Columns, LATENCY, LENGTH, OFFSET, OP, ROLE_NAMES, ROLES, TIME};
use crate::error::Bad;
use crate::format::parquet::{FAULT, LEFT_OUT, LEFT_OUT_CALLS, RECORDED_FIELDS};
use crate::input::Input;
use crate::rwbs::Rwbs;
use crate::skip::Bounds;
use crate::text::{EXTENT, Lines, Text, digest, number, op, plain, time_ns, whole as integer};
use crate::time::iso_ns;
use crate::units::{self, Offsets, Row as Sampled, Stamp, Stated, Unit, Units};
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
pub(crate) const OPERATION: &str =
    "an operation, such as read or write, or one that the columns name, as in read=0,write=1";
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
    let found = match columns {
        Some(_) => Parser::new(columns, block_bytes, input.data()),
        None => Parser::undescribed(block_bytes, input.data()),
    };
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
    /// Fields of a row before those that the header names.
    unnamed: usize,
    /// Rows of recordings that are no requests.
    left_out: u64,
    tenants: Names,
    streams: Names,
    volumes: Names,
    /// The numbers of objects, if offsets are keys.
    keys: Option<Names>,
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
            units: Units::OWN,
            notes: Vec::new(),
            is_time_open: false,
            block_bytes,
            layout: None,
            unnamed: 0,
            left_out: 0,
            tenants: Names::new(base(Names::BASE_32)),
            streams: Names::new(base(Names::BASE_64)),
            volumes: Names::new(base(Names::BASE_32)),
            keys: columns.and_then(Names::of_keys),
            columns: columns.cloned(),
        };
        let sample = whole_lines(sample);
        parser.unnamed = unnamed_fields(sample);
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
        if columns.is_none() {
            let mut offsets = Offsets::default();
            rows.iter().for_each(|row| offsets.see(row.offset.unwrap_or(0), row.length.unwrap_or(0)));
            parser.notes.extend(offsets.note("offset-unit"));
        }
        Ok(parser)
    }

    /// A parser of the file that begins with `sample` and is not described: its columns have nigh's own names, or are
    /// guessed.
    pub(crate) fn undescribed(block_bytes: u32, sample: &[u8]) -> Result<Parser, units::Unknown> {
        match guess::guess(whole_lines(sample)).filter(|_| !is_own(sample)) {
            Some(guess) => {
                let guess = guess?;
                let parser = Parser::new(Some(&guess.columns), block_bytes, sample)?;
                Ok(Parser { notes: [vec![guess.note], parser.notes].concat(), ..parser })
            }
            None => Parser::new(None, block_bytes, sample),
        }
    }

    /// Whether a line before the first row, without surrounding blanks, is neither a row nor a header.
    fn is_skipped(&self, line: &[u8]) -> bool {
        line.is_empty() || is_comment(line) || self.columns.is_some() && line.starts_with(ATTACHING)
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
                    if is_index(field, column) || RECORDED_FIELDS.iter().any(|name| is_name(field, name)) {
                        continue;
                    }
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
                    wanted.push((column + self.unnamed, role));
                }
            }
            Some(columns) => {
                for (role, column) in columns.columns().iter().enumerate() {
                    match column {
                        Some(Column::Index(index)) => wanted.push((*index, role)),
                        Some(Column::Name(name)) => {
                            let missing = || Bad::field(line, "a header with the named columns");
                            wanted.push((find(name).ok_or_else(missing)? + self.unnamed, role));
                        }
                        Some(Column::Bytes(_)) => {
                            return Err(Bad::field(line, "binary records, because the columns have types"));
                        }
                        None => {}
                    }
                }
                let unnamed = self.unnamed;
                let is_named = columns.columns().iter().flatten().any(|column| matches!(column, Column::Name(_)));
                let field = |role| {
                    let column = wanted.iter().find(|&&(_, other)| other == role);
                    column.and_then(|&(index, _)| row().nth(index.checked_sub(unnamed)?))
                };
                let offset = field(OFFSET);
                let lacks = |role, fits: &dyn Fn(&[u8]) -> bool| {
                    field(role).is_some_and(|field: &[u8]| !field.is_empty() && !fits(field))
                };
                let is_number = |field: &[u8]| integer(field).is_some();
                is_header = is_named
                    || match &self.keys {
                        None => lacks(OFFSET, &is_number),
                        // The name of a column could be a key.
                        Some(_) => {
                            lacks(LENGTH, &is_number)
                                || lacks(OP, &|field| self.op(field).is_some())
                                || lacks(TIME, &|field| stamp(field).is_some())
                        }
                    };
                if is_header {
                    stated = stated.or_named([field(TIME), offset, field(LENGTH), field(LATENCY)]);
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
            Some(word) => match self.op(word) {
                Some(op) => op,
                None if LEFT_OUT.iter().any(|name| name.as_bytes() == word) => {
                    self.left_out += 1;
                    return Ok(None);
                }
                None => return Err(Bad::field(word, OPERATION)),
            },
        };
        let time_ns = match time {
            None => 0,
            Some(field) => self.time(field).ok_or_else(|| Bad::field(field, "a time"))?,
        };
        let (offset, length) = if op == Op::Flush {
            (0, 0)
        } else {
            let whole = |field, expected| integer(field).ok_or_else(|| Bad::field(field, expected));
            let offset = match &mut self.keys {
                Some(keys) => keys.key(offset.unwrap_or_default())?,
                None => whole(offset.unwrap_or_default(), "an offset")?,
            };
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
                Some(b"") => 0,
                Some(field) => self.latency(field).ok_or_else(|| Bad::field(field, "a latency"))?,
            },
            content: content.map_or(0, digest),
        }))
    }

    fn notes(&self) -> Vec<Note> {
        let left_out = (self.left_out > 0).then_some(Note::LeftOut { count: self.left_out, what: LEFT_OUT_CALLS });
        self.notes.iter().cloned().chain(left_out).collect()
    }
}

impl Parser {
    fn op(&self, word: &[u8]) -> Option<Op> {
        let words = self.columns.iter().flat_map(|columns| &columns.words);
        let mut named = words.filter(|(name, _)| name.as_bytes() == word);
        match named.next() {
            Some(&(_, op)) => Some(op),
            None if word == FAULT.as_bytes() => Some(Op::Read),
            None => known_op(word),
        }
    }

    fn time(&self, field: &[u8]) -> Option<u64> {
        match self.units.time_ns {
            Some(unit_ns) => with_point(field, |field| time_ns(field, unit_ns)),
            None => iso_ns(field),
        }
    }

    fn latency(&self, field: &[u8]) -> Option<u64> {
        with_point(field, |field| time_ns(field, self.units.latency_ns))
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
    with_point(field, |field| time_ns(field, 1)).map(Stamp::Fraction)
}

/// The result of `parse` for a number that may have a comma for its point.
fn with_point<T>(field: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    parse(field).or_else(|| {
        let at = memchr::memchr(b',', field)?;
        parse(&[field.get(..at)?, b".", field.get(at + 1..)?].concat())
    })
}

/// The operation for a word or an RWBS code.
pub(crate) fn known_op(word: &[u8]) -> Option<Op> {
    op(word).or_else(|| {
        let Rwbs { op, flushes } = Rwbs::strict(word)?;
        op.or(flushes.then_some(Op::Flush))
    })
}

/// A sample without its last line, which may be incomplete, unless it is the only one.
pub(crate) fn whole_lines(sample: &[u8]) -> &[u8] {
    memchr::memrchr(b'\n', sample).and_then(|end| sample.get(..end)).unwrap_or(sample)
}

/// Whether a line before the first row is a remark.
fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"#")
}

/// Whether a column named so numbers the rows.
fn is_index(name: &[u8], column: usize) -> bool {
    const NAMES: [&str; 5] = ["", "index", "Unnamed: 0", "rownames", "row"];
    column == 0 && NAMES.iter().any(|index| is_name(name, index))
}

/// 1 if the rows have one field more than the header, and it is the number of the row; otherwise 0.
fn unnamed_fields(sample: &[u8]) -> usize {
    const ROWS: usize = 32;
    let mut lines = sample.split(|&byte| byte == b'\n').map(plain).filter(|line| !line.is_empty() && !is_comment(line));
    let Some(header) = lines.next() else { return 0 };
    let row = |line| Row { rest: Some(line), separator: guess_separator(header) };
    let names = row(header).count();
    if row(header).any(|field| integer(field).is_some()) {
        return 0;
    }
    let first = lines.clone().next().and_then(|line| number(row(line).next()?));
    let are_numbered = lines.clone().take(ROWS).enumerate().all(|(at, line)| {
        let number = row(line).next().and_then(number);
        row(line).count() == names + 1
            && number.is_some()
            && number == first.and_then(|first| first.checked_add(at as u64))
    });
    usize::from(first.is_some() && are_numbered)
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

/// The separator that occurs most outside of quotes; of several, the first of tab, comma, semicolon and bar.
fn guess_separator(line: &[u8]) -> u8 {
    let mut counts = [(b'\t', 0_usize), (b',', 0), (b';', 0), (b'|', 0)];
    let mut is_quoted = false;
    for byte in line {
        is_quoted ^= *byte == b'"';
        for (separator, count) in &mut counts {
            *count += usize::from(*separator == *byte && !is_quoted);
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max().filter(|most| *most > 0);
    let found = counts.iter().find(|(_, count)| Some(*count) == most);
    found.map_or(b' ', |(separator, _)| *separator)
}

/// Whether the first line of a file has nigh's own names and no others.
pub(crate) fn is_own(sample: &[u8]) -> bool {
    let mut lines = sample.split(|&byte| byte == b'\n').map(plain).filter(|line| !line.is_empty() && !is_comment(line));
    let first = lines.next().unwrap_or_default();
    let known = |(column, field): (usize, &[u8])| {
        is_index(field, column)
            || RECORDED_FIELDS.iter().chain(&REQUEST_FIELDS).chain(&OPEN_TIME_FIELDS).any(|name| is_name(field, name))
            || TIME_FIELDS.iter().any(|(name, _)| is_name(field, name))
    };
    names_request(first) && Row { rest: Some(first), separator: guess_separator(first) }.enumerate().all(known)
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

/// Numbers for values that can be numbers or names.
pub(crate) struct Names {
    /// Numbers below this are used as they are, names are numbered from here; `None` if there are no names.
    base: Option<u64>,
    known: HashMap<Vec<u8>, u64>,
}

impl Names {
    /// For tenants and volumes of described files.
    pub(crate) const BASE_32: u64 = 1 << 31;
    /// For streams of described files.
    pub(crate) const BASE_64: u64 = 1 << 63;

    pub(crate) fn new(base: Option<u64>) -> Names {
        Names { base, known: HashMap::new() }
    }

    /// For offsets of described files, if they are keys: numbers are names, too.
    pub(crate) fn of_keys(columns: &Columns) -> Option<Names> {
        (columns.stated.offset == Some(Unit::Keys)).then(|| Names::new(Some(0)))
    }

    /// The number of an object.
    pub(crate) fn key(&mut self, field: &[u8]) -> Result<u64, Bad> {
        if field.is_empty() { Err(Bad::field(field, "the key of an object")) } else { self.number(Some(field)) }
    }

    pub(crate) fn number(&mut self, field: Option<&[u8]>) -> Result<u64, Bad> {
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
