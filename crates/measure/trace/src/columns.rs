//! The user's description of a file: the meaning of the columns of a line, or of the bytes of a record.

use std::str::FromStr;

use crate::error::{Error, unknown_name};
use crate::units::{LENGTH_SETTING, OFFSET_SETTING, Stated, Unit};
use crate::{Op, Result};

/// The meaning and units of the columns of a CSV file, or of the bytes of a fixed binary record.
///
/// It is parsed from settings separated by commas, such as `time=0,offset=lba,length=4,op=2,offset-unit=sectors`:
///
/// * `time`, `offset`, `length`, `op`, `tenant`, `stream`, `volume`, `latency`, `content` (a number, or a digest in
///   any notation): the column, by its number from 0
///   or by its name in the header, in any case. `offset` is required. Without `length` a request is one block, without
///   `op` a read.
/// * `time-unit`, `latency-unit`: `s`, `ms`, `us`, `ns` or `100ns`; latencies are in `ns` if neither this nor the column's
///   name gives a unit.
/// * `offset-unit`, `length-unit`: `bytes`, `kib` of 1,024 bytes, `sectors` of 512 bytes, or `blocks`. Offsets in `keys` are names of
///   objects, texts or numbers: each object is one block, in the order of their first appearance, or if there are lengths, bytes of its own.
/// * `read`, `write`, `trim`, `flush`: additional words for these operations, separated by `|`, such as `read=R|RA`.
/// * `separator`: `comma`, `tab`, `space`, `semicolon` or `bar`, or the character itself except a comma; guessed from
///   the first line if not set.
/// * `record`: the file is binary, and a record has this many bytes. Each column is then given as its first byte and
///   its type, such as `record=24,time=0:u64,offset=8:u64,length=16:u32,op=20:u8,read=0,write=1`. Types are `u8`,
///   `u16`, `u32` and `u64`, and for times also `f32` and `f64`; `be` after a type means big-endian. The words for
///   operations are then numbers.
/// * `header`: the bytes before the first record.
///
/// Units that are not set are detected from the names of the columns or from values, and reported as notes; if they
/// cannot be detected, the file is rejected. No setting can be given twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    columns: [Option<Column>; ROLES],
    pub(crate) stated: Stated,
    pub(crate) words: Vec<(String, Op)>,
    pub(crate) separator: Option<u8>,
    pub(crate) record: Option<Frame>,
}

/// The structure of records in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header_bytes: usize,
    /// At least 1.
    pub(crate) record_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Index(usize),
    Name(String),
    /// Bytes of a record.
    Bytes(Place),
}

/// The place of a number in a record, which contains all of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: usize,
    /// 1, 2, 4 or 8.
    pub(crate) bytes: usize,
    pub(crate) is_float: bool,
    pub(crate) is_big_endian: bool,
}

/// The meaning of a column, as an index into arrays of `ROLES`.
pub(crate) const ROLES: usize = 9;
pub(crate) const ROLE_NAMES: [&str; ROLES] =
    ["time", "offset", "length", "op", "tenant", "stream", "volume", "latency", "content"];
pub(crate) const TIME: usize = 0;
pub(crate) const OFFSET: usize = 1;
pub(crate) const LENGTH: usize = 2;
pub(crate) const OP: usize = 3;
pub(crate) const TENANT: usize = 4;
pub(crate) const STREAM: usize = 5;
pub(crate) const VOLUME: usize = 6;
pub(crate) const LATENCY: usize = 7;
pub(crate) const CONTENT: usize = 8;

/// The longest record and the longest header.
const RECORD_BYTES_MOST: usize = 1 << 16;

const SETTINGS: [&str; 20] = [
    "time",
    "offset",
    "length",
    "op",
    "tenant",
    "stream",
    "volume",
    "latency",
    "content",
    "time-unit",
    "offset-unit",
    "length-unit",
    "latency-unit",
    "read",
    "write",
    "trim",
    "flush",
    "separator",
    "record",
    "header",
];

impl Columns {
    /// Each role's column.
    pub(crate) fn columns(&self) -> &[Option<Column>; ROLES] {
        &self.columns
    }
}

fn wrong(part: &str, expected: &'static str) -> Error {
    Error::Columns { given: part.to_owned(), expected }
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(given: &str) -> Result<Columns> {
        let mut columns = Columns {
            columns: [const { None }; ROLES],
            stated: Stated::default(),
            words: Vec::new(),
            separator: None,
            record: None,
        };
        let mut settings = Vec::new();
        for part in given.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| wrong(part, "setting=value"))?;
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                return Err(wrong(part, "a value after ="));
            }
            if settings.iter().any(|&(other, _, _)| other == key) {
                return Err(wrong(part, "each setting at most once"));
            }
            settings.push((key, value, part));
        }
        let bytes = |name: &str| {
            let found = settings.iter().find(|&&(key, _, _)| key == name);
            found.map(|&(_, value, part)| {
                let bytes = value.parse::<usize>().ok().filter(|bytes| *bytes <= RECORD_BYTES_MOST);
                bytes.ok_or_else(|| wrong(part, "a number of bytes up to 65536"))
            })
        };
        let header = bytes("header").transpose()?;
        columns.record = match bytes("record").transpose()? {
            Some(0) => return Err(wrong(given, "a record of at least one byte")),
            Some(record_bytes) => Some(Frame { header_bytes: header.unwrap_or(0), record_bytes }),
            None if header.is_some() => return Err(wrong(given, "the length of a record, as in record=24")),
            None => None,
        };
        for (key, value, part) in settings {
            columns.set(key, value, part)?;
        }
        match columns.columns.get(OFFSET) {
            Some(Some(_)) => {}
            _ => return Err(wrong(given, "a column for the offset, such as offset=1")),
        }
        let has_op = columns.columns.get(OP).is_some_and(Option::is_some);
        if columns.record.is_some() && has_op && columns.words.is_empty() {
            return Err(wrong(given, "the numbers of the operations, as in read=0,write=1"));
        }
        Ok(columns)
    }
}

impl Columns {
    fn set(&mut self, key: &str, value: &str, part: &str) -> Result<()> {
        let unit = |expected, may_be_keys: bool| {
            let unit = Unit::named(value).filter(|unit| *unit != Unit::Keys || may_be_keys);
            unit.ok_or_else(|| wrong(part, expected))
        };
        let time_unit = || crate::units::time_unit(value).ok_or_else(|| wrong(part, "s, ms, us or ns, or 100ns"));
        let words = |op| value.split('|').map(move |word| (word.trim().to_owned(), op));
        match key {
            "time-unit" => self.stated.time_ns = Some(time_unit()?),
            "latency-unit" => self.stated.latency_ns = Some(time_unit()?),
            "offset-unit" if self.record.is_some() && value == Unit::Keys.name() => {
                return Err(wrong(part, "no keys in binary records, whose offsets are numbers"));
            }
            "offset-unit" => self.stated.offset = Some(unit(OFFSET_SETTING, true)?),
            "length-unit" => self.stated.length = Some(unit(LENGTH_SETTING, false)?),
            "read" => self.words.extend(words(Op::Read)),
            "write" => self.words.extend(words(Op::Write)),
            "trim" => self.words.extend(words(Op::Trim)),
            "flush" => self.words.extend(words(Op::Flush)),
            "record" | "header" => {}
            "separator" if self.record.is_some() => return Err(wrong(part, "no separator of binary records")),
            "separator" => {
                self.separator = Some(match value {
                    "comma" => b',',
                    "tab" | "\\t" => b'\t',
                    "space" => b' ',
                    "semicolon" | ";" => b';',
                    "bar" | "|" => b'|',
                    _ => return Err(wrong(part, "comma, tab, space, semicolon or bar")),
                });
            }
            _ => {
                let role = ROLE_NAMES.iter().position(|&name| name == key);
                let column = role.and_then(|role| self.columns.get_mut(role));
                let column = column.ok_or_else(|| unknown_name("column setting", key, &SETTINGS))?;
                *column = Some(match (self.record, value.parse()) {
                    (Some(frame), _) => Column::Bytes(place(value, role == Some(TIME), frame, part)?),
                    (None, Ok(index)) => Column::Index(index),
                    (None, Err(_)) => Column::Name(value.to_owned()),
                });
            }
        }
        if self.record.is_some() && matches!(key, "read" | "write" | "trim" | "flush") {
            let is_number = value.split('|').all(|word| word.trim().parse::<u64>().is_ok());
            return if is_number { Ok(()) } else { Err(wrong(part, "numbers, as in read=0|2")) };
        }
        Ok(())
    }
}

/// The place that `value`, such as `8:u32`, describes.
fn place(value: &str, may_be_float: bool, frame: Frame, part: &str) -> Result<Place> {
    const EXPECTED: &str = "a byte and a type, as in offset=8:u64: the types are u8, u16, u32 and u64, followed by be for \
                            big-endian, and f32 and f64 for times";
    let (at, kind) = value.split_once(':').ok_or_else(|| wrong(part, EXPECTED))?;
    let at = at.trim().parse::<usize>().map_err(|_| wrong(part, EXPECTED))?;
    let kind = kind.trim();
    let (kind, is_big_endian) = kind.strip_suffix("be").map_or((kind, false), |kind| (kind, true));
    let (bytes, is_float) = match kind {
        "u8" => (1, false),
        "u16" => (2, false),
        "u32" => (4, false),
        "u64" => (8, false),
        "f32" if may_be_float => (4, true),
        "f64" if may_be_float => (8, true),
        _ => return Err(wrong(part, EXPECTED)),
    };
    match at.checked_add(bytes) {
        Some(end) if end <= frame.record_bytes => Ok(Place { at, bytes, is_float, is_big_endian }),
        _ => Err(wrong(part, "a column within the record")),
    }
}
