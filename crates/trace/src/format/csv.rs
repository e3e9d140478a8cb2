//! CSV whose columns the user describes by [`Columns`]; without a description, a file whose header names the fields
//! of a [`Request`]: `time_ns`, `offset`, `length`, `op`, `tenant`, `stream`, `volume`, in any order, of which `offset`
//! and `length` must be there. The time may also be `time_us`, `time_ms` or `time_s`; a `time` without a unit and
//! columns of other names are errors, since nothing tells what they mean.
//!
//! A header is recognized by itself: the first line is one if columns are named, or if there is no number where the
//! offset belongs. Fields may be quoted. Numbers are decimal, or hexadecimal after `0x`; times may have a fraction.
//!
//! Where columns are described, tenants, streams and volumes may be numbers or names. A number below half of the field's range (2^31 for tenants and
//! volumes, 2^63 for streams) stands for itself; every other text is numbered from there up in order of first
//! appearance; so no two are taken for one. Without a description they are numbers of the field's whole range, so that
//! what nigh wrote is read as it was. An empty field is 0.

use std::collections::HashMap;
use std::str::FromStr;

use crate::error::{Bad, Error, unknown_name};
use crate::text::{EXTENT, Lines, SECTOR_BYTES, hexadecimal, number, op, time_ns};
use crate::{Op, Request};

/// Which column of a CSV file is what, and in which units.
///
/// It is parsed from settings with commas between, such as `time=0,offset=lba,length=4,op=2,offset-unit=sectors`:
///
/// * `time`, `offset`, `length`, `op`, `tenant`, `stream`, `volume`: the column, by its number from 0 or by its name in
///   the header, in any case. `offset` must be there. Without `length` a request is one block, without `op` a read.
/// * `time-unit`: `s` (if not set), `ms`, `us` or `ns`.
/// * `offset-unit`, `length-unit`: `bytes` (if not set), `sectors` of 512 bytes, or `blocks`.
/// * `read`, `write`: the words for these operations, besides the usual ones.
/// * `separator`: `comma`, `tab`, `space`, `semicolon` or `bar`, or the character itself but for a comma;
///   guessed from the first line if not set.
///
/// No setting is given twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    columns: [Option<Column>; ROLES],
    time_unit_ns: u64,
    offset_unit: Unit,
    length_unit: Unit,
    read: Option<String>,
    write: Option<String>,
    separator: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Index(usize),
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Sectors,
    Blocks,
}

impl Unit {
    fn bytes(self, block_bytes: u32) -> u64 {
        match self {
            Unit::Bytes => 1,
            Unit::Sectors => SECTOR_BYTES,
            Unit::Blocks => block_bytes.into(),
        }
    }
}

/// What a column can be, as an index into arrays of `ROLES`.
const ROLES: usize = 7;
const ROLE_NAMES: [&str; ROLES] = ["time", "offset", "length", "op", "tenant", "stream", "volume"];
const OFFSET: usize = 1;
const REQUEST_FIELDS: [&str; ROLES] = ["time_ns", "offset", "length", "op", "tenant", "stream", "volume"];
const REQUIRED_FIELDS: [&str; 2] = ["offset", "length"];
const TIME: usize = 0;
/// The names of a column of times, by unit in nanoseconds.
const TIME_FIELDS: [(&str, u64); 4] =
    [("time_ns", 1), ("time_us", 1000), ("time_ms", 1_000_000), ("time_s", 1_000_000_000)];

const SETTINGS: [&str; 13] = [
    "time",
    "offset",
    "length",
    "op",
    "tenant",
    "stream",
    "volume",
    "time-unit",
    "offset-unit",
    "length-unit",
    "read",
    "write",
    "separator",
];

impl FromStr for Columns {
    type Err = Error;

    fn from_str(given: &str) -> Result<Columns, Error> {
        let wrong = |part: &str, expected| Error::Columns { given: part.to_owned(), expected };
        let mut columns = Columns {
            columns: [const { None }; ROLES],
            time_unit_ns: 1_000_000_000,
            offset_unit: Unit::Bytes,
            length_unit: Unit::Bytes,
            read: None,
            write: None,
            separator: None,
        };
        let mut keys = Vec::new();
        for part in given.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| wrong(part, "setting=value"))?;
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                return Err(wrong(part, "a value after the ="));
            }
            if keys.contains(&key) {
                return Err(wrong(part, "each setting once"));
            }
            keys.push(key);
            let unit = || match value {
                "bytes" => Ok(Unit::Bytes),
                "sectors" => Ok(Unit::Sectors),
                "blocks" => Ok(Unit::Blocks),
                _ => Err(wrong(part, "bytes, sectors or blocks")),
            };
            match key {
                "time-unit" => {
                    columns.time_unit_ns = match value {
                        "s" => 1_000_000_000,
                        "ms" => 1_000_000,
                        "us" => 1000,
                        "ns" => 1,
                        _ => return Err(wrong(part, "s, ms, us or ns")),
                    }
                }
                "offset-unit" => columns.offset_unit = unit()?,
                "length-unit" => columns.length_unit = unit()?,
                "read" => columns.read = Some(value.to_owned()),
                "write" => columns.write = Some(value.to_owned()),
                "separator" => {
                    columns.separator = Some(match value {
                        "comma" => b',',
                        "tab" | "\\t" => b'\t',
                        "space" => b' ',
                        "semicolon" | ";" => b';',
                        "bar" | "|" => b'|',
                        _ => return Err(wrong(part, "comma, tab, space, semicolon or bar")),
                    })
                }
                _ => {
                    let role = ROLE_NAMES.iter().position(|&name| name == key);
                    let column = role.and_then(|role| columns.columns.get_mut(role));
                    let column = column.ok_or_else(|| unknown_name("column setting", key, &SETTINGS))?;
                    *column = Some(match value.parse() {
                        Ok(index) => Column::Index(index),
                        Err(_) => Column::Name(value.to_owned()),
                    });
                }
            }
        }
        match columns.columns.get(OFFSET) {
            Some(Some(_)) => Ok(columns),
            _ => Err(wrong(given, "a column for the offset, such as offset=1")),
        }
    }
}

pub(crate) struct Parser {
    /// `None` for a file whose header names the fields of a request.
    columns: Option<Columns>,
    offset_unit: u64,
    length_unit: u64,
    block_bytes: u32,
    layout: Option<Layout>,
    tenants: Names,
    streams: Names,
    volumes: Names,
}

/// Where the columns are, known since the first line.
struct Layout {
    separator: u8,
    /// Column and role, in ascending order.
    wanted: Vec<(usize, usize)>,
    time_unit_ns: u64,
}

/// The fields of a row by role; `None` where there is no such column.
type Values<'a> = [Option<&'a [u8]>; ROLES];

impl Parser {
    pub(crate) fn new(columns: Option<Columns>, block_bytes: u32) -> Parser {
        let unit = |unit: fn(&Columns) -> Unit| columns.as_ref().map_or(Unit::Bytes, unit).bytes(block_bytes);
        Parser {
            offset_unit: unit(|columns| columns.offset_unit),
            length_unit: unit(|columns| columns.length_unit),
            block_bytes,
            layout: None,
            tenants: Names::new(columns.is_some().then_some(1 << 31)),
            streams: Names::new(columns.is_some().then_some(1 << 63)),
            volumes: Names::new(columns.is_some().then_some(1 << 31)),
            columns,
        }
    }

    /// The layout that the first line tells, and whether this line is a header.
    fn layout(&self, line: &[u8]) -> Result<(Layout, bool), Bad> {
        let separator = self.columns.as_ref().and_then(|columns| columns.separator);
        let separator = separator.unwrap_or_else(|| guess_separator(line));
        let find = |name: &str| Row { rest: Some(line), separator }.position(|field| is_name(field, name));
        let mut wanted = Vec::with_capacity(ROLES);
        let mut time_unit_ns = self.columns.as_ref().map_or(1, |columns| columns.time_unit_ns);
        let mut is_header = true;
        match &self.columns {
            None => {
                if !names_request(line) {
                    return Err(Bad::field(line, "a header with offset and length, or a description of the columns"));
                }
                let fields = Row { rest: Some(line), separator };
                for (column, field) in fields.enumerate() {
                    let role = match TIME_FIELDS.iter().find(|(name, _)| is_name(field, name)) {
                        Some(&(_, unit_ns)) => {
                            time_unit_ns = unit_ns;
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
                for (role, column) in columns.columns.iter().enumerate() {
                    match column {
                        Some(Column::Index(index)) => wanted.push((*index, role)),
                        Some(Column::Name(name)) => {
                            let missing = || Bad::field(line, "a header with the named columns");
                            wanted.push((find(name).ok_or_else(missing)?, role));
                        }
                        None => {}
                    }
                }
                let is_named = columns.columns.iter().flatten().any(|column| matches!(column, Column::Name(_)));
                let offset = wanted.iter().find(|&&(_, role)| role == OFFSET);
                let offset = offset.and_then(|&(index, _)| Row { rest: Some(line), separator }.nth(index));
                is_header = is_named || offset.is_some_and(|field| !field.is_empty() && integer(field).is_none());
            }
        }
        wanted.sort_unstable();
        Ok((Layout { separator, wanted, time_unit_ns }, is_header))
    }
}

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let layout = match &self.layout {
            Some(layout) => layout,
            None => {
                let (layout, is_header) = self.layout(line)?;
                let layout = &*self.layout.insert(layout);
                if is_header {
                    return Ok(None);
                }
                layout
            }
        };
        let [time, offset, length, word, tenant, stream, volume] = layout.values(line)?;
        let time_unit_ns = layout.time_unit_ns;
        let op = match word {
            None => Op::Read,
            Some(word) => self.op(word).ok_or_else(|| Bad::field(word, "an operation, such as read or write"))?,
        };
        let time_ns = match time {
            None => 0,
            Some(field) => time_ns(field, time_unit_ns).ok_or_else(|| Bad::field(field, "a time"))?,
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
        }))
    }
}

impl Parser {
    fn op(&self, word: &[u8]) -> Option<Op> {
        let is = |name: &Option<String>| name.as_ref().is_some_and(|name| name.as_bytes() == word);
        match &self.columns {
            Some(columns) if is(&columns.read) => Some(Op::Read),
            Some(columns) if is(&columns.write) => Some(Op::Write),
            _ => op(word),
        }
    }

    fn extent(&self, offset: u64, length: Option<u64>) -> Option<(u64, u32)> {
        let offset = offset.checked_mul(self.offset_unit)?;
        let length = match length {
            Some(length) => u32::try_from(length.checked_mul(self.length_unit)?).ok()?,
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

/// Whether a line names the fields that a file without a description must have.
pub(crate) fn names_request(line: &[u8]) -> bool {
    let has = |name| Row { rest: Some(line), separator: guess_separator(line) }.any(|field| is_name(field, name));
    REQUIRED_FIELDS.into_iter().all(has)
}

/// The role of a column other than the time that a header calls `field`.
fn role(field: &[u8]) -> Result<usize, Bad> {
    let role = REQUEST_FIELDS.iter().position(|name| is_name(field, name));
    role.ok_or_else(|| {
        let expected = if is_name(field, "time") || is_name(field, "timestamp") {
            "a time with its unit, time_ns, time_us, time_ms or time_s, or the columns described, as in \
             --columns time=0,time-unit=us,offset=1,length=2"
        } else {
            "a field of a request: time_ns, op, volume, offset, length, tenant or stream; or the columns described, \
             as in --columns offset=0,length=1"
        };
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

/// Numbers for what may be a number or a name.
struct Names {
    /// Numbers below stand for themselves, names are numbered from here; `None` if there are no names.
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
