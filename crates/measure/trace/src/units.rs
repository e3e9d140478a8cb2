//! Units that a description of columns does not give: detected from names and values; otherwise the user must give
//! them.

use crate::text::SECTOR_BYTES;
use crate::{Error, Note};

const SECOND_NS: u64 = 1_000_000_000;

/// The most rows that are examined.
pub(crate) const ROWS: usize = 1000;

/// The unit of an offset or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// Of 1,024 bytes, also where a name has KB.
    Kib,
    Sectors,
    Blocks,
    /// Of offsets only: they are names of objects.
    Keys,
}

/// With lengths, each object has this much room: no request is longer.
const KEY_ROOM_BYTES: u64 = 1 << 32;

impl Unit {
    pub(crate) fn named(name: &str) -> Option<Unit> {
        match name {
            "bytes" => Some(Unit::Bytes),
            "kib" => Some(Unit::Kib),
            "sectors" => Some(Unit::Sectors),
            "blocks" => Some(Unit::Blocks),
            "keys" => Some(Unit::Keys),
            _ => None,
        }
    }

    /// The name that `named` finds.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Kib => "kib",
            Unit::Sectors => "sectors",
            Unit::Blocks => "blocks",
            Unit::Keys => "keys",
        }
    }

    /// `has_length` is whether requests have lengths.
    fn bytes(self, block_bytes: u32, has_length: bool) -> u64 {
        match self {
            Unit::Bytes => 1,
            Unit::Kib => 1024,
            Unit::Sectors => SECTOR_BYTES,
            Unit::Keys if has_length => KEY_ROOM_BYTES,
            Unit::Blocks | Unit::Keys => block_bytes.into(),
        }
    }
}

const TIME_UNITS: [(&str, u64); 5] = [("s", SECOND_NS), ("ms", 1_000_000), ("us", 1_000), ("100ns", 100), ("ns", 1)];

/// A unit of time by its name, in nanoseconds.
pub(crate) fn time_unit(name: &str) -> Option<u64> {
    TIME_UNITS.into_iter().find(|(known, _)| *known == name).map(|(_, unit_ns)| unit_ns)
}

/// The name of a unit of time.
pub(crate) fn time_unit_name(unit_ns: u64) -> Option<&'static str> {
    TIME_UNITS.into_iter().find(|(_, known)| *known == unit_ns).map(|(name, _)| name)
}

/// The units given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) time_ns: Option<u64>,
    pub(crate) offset: Option<Unit>,
    pub(crate) length: Option<Unit>,
    /// Of latencies, in nanoseconds.
    pub(crate) latency_ns: Option<u64>,
}

impl Stated {
    /// Adds the units in the names of the columns of times, offsets, lengths and latencies, such as `time_us`, `TIME(ms)`,
    /// `lba` and `nr_sectors`.
    pub(crate) fn or_named(self, [time, offset, length, latency]: [Option<&[u8]>; 4]) -> Stated {
        Stated {
            time_ns: self.time_ns.or_else(|| time.and_then(time_unit_in)),
            offset: self.offset.or_else(|| offset.and_then(unit_in)),
            length: self.length.or_else(|| length.and_then(unit_in)),
            latency_ns: self.latency_ns.or_else(|| latency.and_then(time_unit_in)),
        }
    }
}

/// The words of a column's name, in lower case: `nr_sectors`, `NR SECTORS` and `nrSectors` have the same, and `IOType` has two.
pub(crate) fn words(name: &[u8]) -> Vec<String> {
    let name = String::from_utf8_lossy(name);
    let mut words = Vec::new();
    for part in name.split(|c: char| !c.is_alphanumeric()) {
        // In these, a capital letter begins no word.
        let unit =
            ["KiB", "MiB", "GiB"].into_iter().find(|unit| part.ends_with(unit)).or((part == "kB").then_some("kB"));
        let mut last = ' ';
        words.push(String::new());
        let mut chars = part.strip_suffix(unit.unwrap_or_default()).unwrap_or(part).chars().peekable();
        while let Some(c) = chars.next() {
            let ends_acronym = last.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase());
            if c.is_uppercase() && (last.is_lowercase() || ends_acronym) {
                words.push(String::new());
            }
            last = c;
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        words.extend(unit.map(str::to_ascii_lowercase));
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The unit in the name of a column of times, in nanoseconds.
pub(crate) fn time_unit_in(name: &[u8]) -> Option<u64> {
    match &**words(name).last()? {
        "s" | "sec" | "secs" | "seconds" => Some(SECOND_NS),
        "ms" | "msec" | "msecs" | "milliseconds" => Some(1_000_000),
        "us" | "µs" | "μs" | "usec" | "usecs" | "microseconds" => Some(1_000),
        "ns" | "nsec" | "nsecs" | "nanoseconds" => Some(1),
        _ => None,
    }
}

fn unit_in(name: &[u8]) -> Option<Unit> {
    words(name).iter().find_map(|word| match &**word {
        "lba" | "sector" | "sectors" => Some(Unit::Sectors),
        "byte" | "bytes" => Some(Unit::Bytes),
        "kb" | "kib" | "kbytes" => Some(Unit::Kib),
        _ => None,
    })
}

/// The information about units in one row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) time: Option<Stamp>,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
}

/// The notation of a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    Whole(u64),
    /// With a fraction, after this whole number.
    Fraction(u64),
    /// A date and a time of day.
    Date,
}

/// The units of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// `None` if times are dates.
    pub(crate) time_ns: Option<u64>,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) latency_ns: u64,
}

impl Units {
    /// Of nigh's own columns.
    pub(crate) const OWN: Units = Units { time_ns: Some(1), offset_bytes: 1, length_bytes: 1, latency_ns: 1 };
}

/// A unit that cannot be detected.
#[derive(Debug)]
pub(crate) struct Unknown {
    what: &'static str,
    setting: &'static str,
    example: u64,
    /// The columns, if they were guessed.
    pub(crate) guessed: Option<String>,
}

impl Unknown {
    pub(crate) fn of(self, path: &std::path::Path) -> Error {
        let Unknown { what, setting, example, guessed } = self;
        Error::UnknownUnit { path: path.to_owned(), what, setting, example, guessed }
    }
}

/// The units of columns with the first rows `rows`, and the notes about them.
pub(crate) fn find(stated: Stated, rows: &[Row], block_bytes: u32) -> Result<(Units, Vec<Note>), Unknown> {
    let mut notes = Vec::new();
    let time_ns = time(stated.time_ns, rows, &mut notes)?;
    let (offset, length) = extent(stated, rows, &mut notes)?;
    let has_length = rows.iter().any(|row| row.length.is_some());
    let (offset_bytes, length_bytes) = (offset.bytes(block_bytes, has_length), length.bytes(block_bytes, has_length));
    let latency_ns = stated.latency_ns.unwrap_or(1);
    Ok((Units { time_ns, offset_bytes, length_bytes, latency_ns }, notes))
}

/// Offsets that are taken for bytes because nobody gave their unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offsets {
    has_part_of_sector: bool,
    has_odd_length: bool,
    length_most: u64,
}

/// No request for bytes is so short: these are numbers of blocks.
const BLOCKS_MOST: u64 = 16;

impl Offsets {
    /// Takes the place of one more request in.
    pub fn see(&mut self, offset: u64, length: u64) {
        self.has_part_of_sector |= !offset.is_multiple_of(SECTOR_BYTES);
        self.has_odd_length |= !length.is_multiple_of(SECTOR_BYTES);
        self.length_most = self.length_most.max(length);
    }

    /// A note if they may be numbers of blocks. Disks are read in whole sectors, and files in parts of any offset and length: only
    /// whole lengths at odd offsets are doubtful, and lengths that are all shorter than anything that is read. `setting` gives another
    /// unit.
    pub fn note(&self, setting: &'static str) -> Option<Note> {
        let because = match self.has_odd_length {
            _ if !self.has_part_of_sector => return None,
            false => {
                "that is the default, but they are no whole sectors while all lengths are, as if they were numbers of blocks"
            }
            true if self.length_most <= BLOCKS_MOST => {
                "that is the default, but no request has more than 16 bytes, as if lengths and offsets were numbers of blocks"
            }
            true => return None,
        };
        Some(Note::Unit { what: "offsets", unit: "bytes", because, setting })
    }
}

pub(crate) const OFFSET_SETTING: &str = "offset-unit=bytes, kib, sectors, blocks or keys";
pub(crate) const LENGTH_SETTING: &str = "length-unit=bytes, kib, sectors or blocks";
const TIME_SETTING: &str = "time-unit=s, ms, us or ns";

/// Numbers that are dates from 2001 to 2033 in one of these units are interpreted as dates, if the requests come so
/// fast that the numbers can hardly be the time since a start in a smaller unit: 11 to 23 days in the next smaller unit
/// are the same numbers.
const DATES: std::ops::Range<u64> = 1_000_000_000..2_000_000_000;
const DATE_UNITS: [(u64, &str, &str); 4] = [
    (1, "nanoseconds", "in this unit they are dates"),
    (1_000, "microseconds", "in this unit they are dates"),
    (1_000_000, "milliseconds", "in this unit they are dates"),
    (SECOND_NS, "seconds", "in this unit they are dates"),
];
const DATE_GAP_NS_MOST: u64 = 10_000_000;

/// The unit of Windows' dates, which count from 1601.
pub(crate) const FILETIME_NS: u64 = 100;

/// Whether a number is one of Windows' dates from 2001 to 2033.
fn is_filetime(number: u64) -> bool {
    const SECONDS_1601_TO_1970: u64 = 11_644_473_600;
    (number / (SECOND_NS / FILETIME_NS)).checked_sub(SECONDS_1601_TO_1970).is_some_and(|s| DATES.contains(&s))
}

pub(crate) fn time(stated: Option<u64>, rows: &[Row], notes: &mut Vec<Note>) -> Result<Option<u64>, Unknown> {
    let stamps = || rows.iter().filter_map(|row| row.time);
    if stamps().any(|stamp| matches!(stamp, Stamp::Date)) {
        return Ok(None);
    }
    if let Some(unit_ns) = stated {
        return Ok(Some(unit_ns));
    }
    let numbers = || {
        stamps().map(|stamp| match stamp {
            Stamp::Whole(number) | Stamp::Fraction(number) => number,
            Stamp::Date => 0,
        })
    };
    let has_fraction = stamps().any(|stamp| matches!(stamp, Stamp::Fraction(_)));
    let (Some(least), Some(most)) = (numbers().min(), numbers().max()) else { return Ok(Some(1)) };
    if most == 0 && !has_fraction {
        return Ok(Some(1));
    }
    let mut note = |unit, because| notes.push(Note::Unit { what: "times", unit, because, setting: "time-unit" });
    let gaps = numbers().count().saturating_sub(1).max(1) as u64;
    for (unit_ns, name, because) in DATE_UNITS {
        let dates = |number: u64| DATES.contains(&(number / (SECOND_NS / unit_ns)));
        let gap_ns = ((most - least) / gaps).saturating_mul(unit_ns);
        if dates(least) && dates(most) && (unit_ns == 1 || gap_ns <= DATE_GAP_NS_MOST) {
            note(name, because);
            return Ok(Some(unit_ns));
        }
    }
    if [least, most].into_iter().all(is_filetime) {
        note("units of 100 ns", "in this unit they are dates of Windows");
        return Ok(Some(FILETIME_NS));
    }
    if has_fraction && most < DATES.end {
        note("seconds", "they have fractions");
        return Ok(Some(SECOND_NS));
    }
    let example = numbers().find(|&number| number != 0).unwrap_or(0);
    Err(Unknown { what: "times", setting: TIME_SETTING, example, guessed: None })
}

/// The unit in which all times of `rows` are dates, in nanoseconds, however far apart the requests are.
pub(crate) fn date_unit(rows: &[Row]) -> Option<u64> {
    let mut units = DATE_UNITS.into_iter().map(|(unit_ns, ..)| unit_ns);
    units.find(|unit_ns| {
        rows.iter().filter_map(|row| row.time).all(|stamp| match stamp {
            Stamp::Whole(number) | Stamp::Fraction(number) => DATES.contains(&(number / (SECOND_NS / unit_ns))),
            Stamp::Date => false,
        })
    })
}

/// The units of offsets and lengths.
pub(crate) fn extent(stated: Stated, rows: &[Row], notes: &mut Vec<Note>) -> Result<(Unit, Unit), Unknown> {
    let whole_sectors = |numbers: &mut dyn Iterator<Item = u64>| {
        let mut any = false;
        let all = numbers.filter(|&number| number != 0).all(|number| {
            any = true;
            number.is_multiple_of(SECTOR_BYTES)
        });
        (all, any)
    };
    let offsets = || rows.iter().filter_map(|row| row.offset);
    let lengths = || rows.iter().filter_map(|row| row.length);
    let (aligned_offsets, any_offset) = whole_sectors(&mut offsets());
    let (aligned_lengths, any_length) = whole_sectors(&mut lengths());
    // The number of requests that begin where the previous one ends, with units given by `scale`.
    let adjoining = |end: &dyn Fn(u64, u64) -> Option<u64>| {
        let pairs = rows.iter().zip(rows.iter().skip(1));
        let adjoin = |&(row, next): &(&Row, &Row)| {
            let end = row.length.filter(|&length| length > 0).zip(row.offset).and_then(|(length, at)| end(at, length));
            end.is_some() && end == next.offset
        };
        pairs.filter(adjoin).count()
    };
    let same_unit = adjoining(&|at, length| at.checked_add(length));
    let length_in_bytes = adjoining(&|at, length| at.checked_add(length / SECTOR_BYTES));
    let length_in_sectors = adjoining(&|at, length| at.checked_add(length.checked_mul(SECTOR_BYTES)?));

    let mut found = |what, unit, because, setting| {
        let name = match unit {
            Unit::Sectors => "sectors of 512 bytes",
            unit => unit.name(),
        };
        notes.push(Note::Unit { what, unit: name, because, setting });
        unit
    };
    const ALIGNED: &str = "all of them are multiples of 512";
    const ADJOIN: &str = "only in this unit do requests begin where others end";
    let length = match stated.length {
        Some(unit) => Some(unit),
        None if !any_length => Some(Unit::Bytes),
        None if stated.offset == Some(Unit::Keys) => {
            Some(found("lengths", Unit::Bytes, "offsets are the keys of objects", "length-unit"))
        }
        None if aligned_lengths => Some(found("lengths", Unit::Bytes, ALIGNED, "length-unit")),
        None => None,
    };
    let offset = match (stated.offset, length) {
        (Some(unit), _) => unit,
        _ if !any_offset => Unit::Bytes,
        _ if aligned_offsets => found("offsets", Unit::Bytes, ALIGNED, "offset-unit"),
        (None, Some(Unit::Bytes)) if length_in_bytes > same_unit => {
            found("offsets", Unit::Sectors, ADJOIN, "offset-unit")
        }
        (None, Some(unit)) if same_unit > length_in_bytes => found("offsets", unit, ADJOIN, "offset-unit"),
        _ => {
            let example = offsets().find(|&number| !number.is_multiple_of(SECTOR_BYTES)).unwrap_or(0);
            return Err(Unknown { what: "offsets", setting: OFFSET_SETTING, example, guessed: None });
        }
    };
    let length = match length {
        Some(unit) => unit,
        None if offset == Unit::Bytes && length_in_sectors > same_unit => {
            found("lengths", Unit::Sectors, ADJOIN, "length-unit")
        }
        None if same_unit > length_in_sectors => found("lengths", offset, ADJOIN, "length-unit"),
        None if offset == Unit::Bytes && !aligned_offsets => {
            found("lengths", Unit::Bytes, "offsets are not whole sectors either", "length-unit")
        }
        None => {
            let example = lengths().find(|&number| !number.is_multiple_of(SECTOR_BYTES)).unwrap_or(0);
            return Err(Unknown { what: "lengths", setting: LENGTH_SETTING, example, guessed: None });
        }
    };
    Ok((offset, length))
}
