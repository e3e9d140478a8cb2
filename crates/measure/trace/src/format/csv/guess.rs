//! The columns of a CSV file that nobody described: guessed from the names in its header and from values.
//!
//! A guess is a description of columns as users write it, so that the line that is reported confirms it. A column whose
//! values do not fit the role that its name suggests is not used. Without names, the only column of words for operations,
//! the only column of other names, increasing times, and the one or two columns of numbers that remain have a role.

use std::collections::BTreeSet;

use super::{Row, guess_separator, integer, is_comment, is_index, known_op, stamp, unnamed_fields};
use crate::columns::{CONTENT, Columns, LATENCY, LENGTH, OFFSET, OP, ROLE_NAMES, ROLES, STREAM, TENANT, TIME, VOLUME};
use crate::text::{number, plain, time_ns};
use crate::units::{self, Row as Sampled, Stamp, Stated, Unit, time_unit_in, time_unit_name, words};
use crate::{Note, Op};

/// A description of the columns, and the note that reports it.
pub(crate) struct Guess {
    pub(crate) columns: Columns,
    pub(crate) note: Note,
    /// Whether names in a header show place, length and operation.
    pub(crate) is_named: bool,
}

/// The most different words that a column of operations has.
const OP_WORDS_MOST: usize = 16;
/// A rank that a column has only if a better one may exist under another name.
const POOR: usize = 3;
/// The words of names of columns that count in blocks.
const BLOCKS: &[&str] = &["block", "blk", "page", "key", "object", "obj"];
/// The words of names of columns that name objects.
const KEYS: &[&str] = &["key", "object", "obj", "url", "uri"];

/// The columns of the file that begins with `sample`, in whole lines; `None` if they cannot be guessed, and the unit that
/// cannot be if only that is missing.
pub(crate) fn guess(sample: &[u8]) -> Option<Result<Guess, units::Unknown>> {
    let lines = || sample.split(|&byte| byte == b'\n').map(plain).filter(|line| !line.is_empty());
    let mut rows = lines().filter(|line| !is_comment(line)).peekable();
    let first = *rows.peek()?;
    let separator = guess_separator(first);
    let fields = |line| Row { rest: Some(line), separator }.collect::<Vec<&[u8]>>();
    let first = fields(first);
    let is_header = !first.iter().any(|field| integer(field).is_some());
    let skipped = usize::from(is_header);
    let unnamed = if is_header { unnamed_fields(sample) } else { 0 };
    let named = |line| fields(line).split_off(unnamed);
    let table = Table { rows: rows.skip(skipped).take(units::ROWS).map(named).collect(), unnamed, texts: Vec::new() };
    of_table(&table, is_header.then_some(&first[..]))
}

/// The columns of a table, with its header if it has one; otherwise as `guess`.
pub(crate) fn of_table(table: &Table, header: Option<&[&[u8]]>) -> Option<Result<Guess, units::Unknown>> {
    if table.rows.is_empty() {
        return None;
    }
    let roles = header.map_or_else(|| shown_roles(table), |header| Some(named_roles(header, table)))?;
    let (_, offset) = *roles.iter().find(|(role, _)| *role == OFFSET)?;
    let has = |wanted: usize| roles.iter().any(|(role, _)| *role == wanted);
    if ![TIME, LENGTH, OP, VOLUME].into_iter().any(has) {
        return None;
    }
    // Many tables have names of objects.
    let name = header.and_then(|header| header.get(offset)).copied();
    if names_objects(offset, name, table) && ![TIME, OP].into_iter().any(has) {
        return None;
    }
    let is_named = header.is_some() && [LENGTH, OP].into_iter().all(has);
    match describe(table, header, roles) {
        Ok((text, gaps)) => {
            let columns = text.parse().ok()?;
            Some(Ok(Guess { columns, note: Note::Guessed { columns: text, gaps }, is_named }))
        }
        Err(unknown) => Some(Err(unknown)),
    }
}

/// The first rows of the file.
pub(crate) struct Table<'a> {
    pub(crate) rows: Vec<Vec<&'a [u8]>>,
    /// Fields of a row before those in `rows`.
    pub(crate) unnamed: usize,
    /// Columns of texts, in which no number counts.
    pub(crate) texts: Vec<usize>,
}

impl<'a> Table<'a> {
    /// The values of a column that are not empty.
    fn values(&self, column: usize) -> impl Iterator<Item = &'a [u8]> {
        self.rows.iter().filter_map(move |row| row.get(column).copied()).filter(|field| !field.is_empty())
    }

    /// Whether at least half of the rows have a value that fits.
    fn mostly(&self, column: usize, fits: impl Fn(&[u8]) -> bool) -> bool {
        2 * self.values(column).filter(|field| fits(field)).count() >= self.rows.len()
    }

    /// Whether all of the values fit, and there are some.
    fn only(&self, column: usize, fits: impl Fn(&[u8]) -> bool) -> bool {
        self.values(column).next().is_some() && self.values(column).all(fits)
    }
}

/// The roles that the names in `header` suggest and that the values fit, with their columns.
fn named_roles(header: &[&[u8]], table: &Table) -> Vec<(usize, usize)> {
    let mut best: [Option<(usize, usize)>; ROLES] = [None; ROLES];
    for (column, name) in header.iter().enumerate() {
        let Some((role, rank)) = suggested(name).filter(|(role, _)| fits(*role, name, column, table)) else { continue };
        if let Some(known) = best.get_mut(role)
            && known.is_none_or(|(_, other)| rank < other)
        {
            *known = Some((column, rank));
        }
    }
    let found = best.iter().enumerate().filter_map(|(role, best)| Some((role, best.as_ref()?.0)));
    let mut roles: Vec<_> = found.collect();
    roles.sort_unstable_by_key(|(_, column)| *column);
    roles
}

/// The role that a column's name suggests, and how well, the best first.
fn suggested(name: &[u8]) -> Option<(usize, usize)> {
    let words = words(name);
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    // Nothing is measured in these units.
    if any(&["mb", "mib", "gb", "gib"]) {
        return None;
    }
    let rank = if words.len() > 1 { 1 } else { 0 };
    let is_place = any(&[
        "offset", "off", "lba", "slba", "lbn", "pba", "addr", "address", "pos", "position", "sector", "blkno",
        "blockno", "bno", "pageno",
    ]);
    let is_device = any(&["device", "dev"]);
    let is_place = is_place || (any(BLOCKS) && !is_device) || any(KEYS);
    let is_plural = any(&["bytes", "kbytes", "sectors", "blocks", "pages"]) || (rank == 0 && any(&["kb", "kib"]));
    let first_is_count = words.first().is_some_and(|word| matches!(&**word, "num" | "n"));
    let is_size =
        any(&["size", "len", "length", "count", "cnt", "nr", "nbytes", "nblocks", "nsectors", "bcount", "nlb"]);
    if any(&["latency", "lat", "response", "resp", "rt", "elapsed", "duration", "service"]) {
        return Some((LATENCY, rank));
    }
    if is_size || (first_is_count && (is_place || is_plural)) {
        // The size of blocks is not that of requests.
        let is_unit = !any(&["count", "cnt", "nr"]) && any(&["block", "sector", "page", "key"]);
        return Some((LENGTH, if is_unit { POOR } else { rank }));
    }
    if is_place {
        return Some((OFFSET, if any(KEYS) { POOR } else { rank }));
    }
    if is_device || any(&["disk", "volume", "vol", "lun", "drive", "file", "inode", "path", "filename", "asu", "nsid"])
    {
        return Some((VOLUME, rank));
    }
    if is_plural {
        return Some((LENGTH, rank));
    }
    if any(&["time", "timestamp", "ts", "t", "date", "datetime", "when", "clock", "arrival", "start"])
        || (words.len() == 1 && time_unit_in(name).is_some())
    {
        let is_end = any(&["end", "complete", "completed", "completion", "finish", "finished"]);
        return Some((TIME, if is_end { POOR } else { rank }));
    }
    if any(&[
        "op",
        "operation",
        "optype",
        "opcode",
        "cmd",
        "command",
        "type",
        "iotype",
        "action",
        "rw",
        "rwbs",
        "rwflag",
        "direction",
        "dir",
        "verb",
        "method",
        "kind",
        "write",
        "read",
    ]) {
        return Some((OP, rank));
    }
    if any(&[
        "tenant",
        "pid",
        "process",
        "tgid",
        "vm",
        "vmid",
        "client",
        "user",
        "uid",
        "app",
        "container",
        "host",
        "hostname",
    ]) {
        return Some((TENANT, rank));
    }
    if any(&["stream", "pc"]) {
        return Some((STREAM, rank));
    }
    any(&["content", "hash", "digest", "md5", "sha1", "fingerprint"]).then_some((CONTENT, rank))
}

/// Whether a column named so names objects.
fn is_key(name: &[u8]) -> bool {
    words(name).iter().any(|word| KEYS.contains(&&**word))
}

/// Whether the places in a column named so are objects with names that are no numbers.
fn names_objects(column: usize, name: Option<&[u8]>, table: &Table) -> bool {
    let are_numbers = !table.texts.contains(&column) && table.only(column, |field| integer(field).is_some());
    name.is_some_and(is_key) && !are_numbers
}

/// Whether the values of a column fit a role.
fn fits(role: usize, name: &[u8], column: usize, table: &Table) -> bool {
    match role {
        OFFSET if is_key(name) => table.values(column).next().is_some(),
        TIME | OFFSET | LENGTH | LATENCY if table.texts.contains(&column) => false,
        TIME => table.mostly(column, |field| stamp(field).is_some()),
        OFFSET | LENGTH => table.mostly(column, |field| integer(field).is_some()),
        OP => table.mostly(column, |field| known_op(field).is_some()) || op_words(name, column, table).is_some(),
        // Latencies are in no unit that values show.
        LATENCY => time_unit_in(name).is_some() && table.mostly(column, |field| time_ns(field, 1).is_some()),
        _ => table.values(column).next().is_some(),
    }
}

/// The roles of the columns of a file without names.
fn shown_roles(table: &Table) -> Option<Vec<(usize, usize)>> {
    const ROWS_LEAST: usize = 2;
    let width = table.rows.first()?.len();
    if table.rows.len() < ROWS_LEAST || table.rows.iter().any(|row| row.len() != width) {
        return None;
    }
    let (mut roles, mut numbers) = (Vec::new(), Vec::new());
    for column in 0..width {
        let is_new = |role| !roles.iter().any(|(other, _)| *other == role);
        let is_op = table.only(column, |field| known_op(field).is_some());
        if is_op && is_new(OP) {
            roles.push((OP, column));
        } else if is_new(TIME) && numbers.is_empty() && is_clock(column, table) {
            roles.push((TIME, column));
        } else if table.only(column, |field| integer(field).is_some()) {
            numbers.push(column);
        } else if !is_op && is_new(VOLUME) && table.only(column, |field| stamp(field).is_none()) {
            roles.push((VOLUME, column));
        } else {
            return None;
        }
    }
    match *numbers {
        [offset] => roles.push((OFFSET, offset)),
        [offset, length] => roles.extend([(OFFSET, offset), (LENGTH, length)]),
        _ => return None,
    }
    roles.sort_unstable_by_key(|(_, column)| *column);
    // Numbers alone could mean anything.
    roles.iter().any(|(role, _)| *role == OP).then_some(roles)
}

/// Whether a column has dates, or times with fractions that do not go back.
fn is_clock(column: usize, table: &Table) -> bool {
    let stamps: Option<Vec<Stamp>> = table.values(column).map(stamp).collect();
    let Some(stamps) = stamps else { return false };
    let whole = |stamp: &Stamp| match stamp {
        Stamp::Whole(number) | Stamp::Fraction(number) => *number,
        Stamp::Date => 0,
    };
    let are_dates = stamps.iter().all(|stamp| matches!(stamp, Stamp::Date));
    let have_fractions = stamps.iter().any(|stamp| matches!(stamp, Stamp::Fraction(_)));
    let rows: Vec<Sampled> = stamps.iter().map(|time| Sampled { time: Some(*time), ..Sampled::default() }).collect();
    are_dates || ((have_fractions || units::date_unit(&rows).is_some()) && stamps.is_sorted_by_key(whole))
}

/// Settings for words that are no known operations, such as `read=0,write=1`; `None` if they cannot be guessed.
fn op_words(name: &[u8], column: usize, table: &Table) -> Option<String> {
    let values: BTreeSet<&[u8]> = table.values(column).take(units::ROWS).collect();
    if values.len() > OP_WORDS_MOST {
        return None;
    }
    // The kernel's numbers: 0 reads and 1 writes.
    let (mut no, mut yes) = (Vec::new(), Vec::new());
    for value in values {
        let word = str::from_utf8(value).ok()?;
        match &*word.to_ascii_lowercase() {
            "0" | "false" | "f" | "n" | "no" => no.push(word),
            "1" | "true" | "t" | "y" | "yes" => yes.push(word),
            _ => return None,
        }
    }
    let words = words(name);
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let (read, write) = if has("read") && !has("write") { (yes, no) } else { (no, yes) };
    let setting = |op: Op, words: Vec<&str>| (!words.is_empty()).then(|| format!("{}={}", op.name(), words.join("|")));
    let settings: Vec<String> = setting(Op::Read, read).into_iter().chain(setting(Op::Write, write)).collect();
    (!settings.is_empty()).then(|| settings.join(","))
}

/// The description of columns with these roles, and a text for each gap in it.
fn describe(
    table: &Table,
    header: Option<&[&[u8]]>,
    mut roles: Vec<(usize, usize)>,
) -> Result<(String, Vec<String>), units::Unknown> {
    let column = |role: usize| roles.iter().find(|(other, _)| *other == role).map(|(_, column)| *column);
    let name = |column: usize| header.and_then(|header| header.get(column)).copied();
    let [time, offset, length, latency] = [TIME, OFFSET, LENGTH, LATENCY].map(column);
    let field = |row: &Vec<&[u8]>, column: Option<usize>| -> Option<Vec<u8>> { Some(row.get(column?)?.to_vec()) };
    let rows: Vec<Sampled> = table
        .rows
        .iter()
        .map(|row| Sampled {
            time: field(row, time).and_then(|field| stamp(&field)),
            offset: field(row, offset).and_then(|field| integer(&field)),
            length: field(row, length).and_then(|field| integer(&field)),
        })
        .collect();
    let stated = Stated::default().or_named([time, offset, length, latency].map(|column| column.and_then(name)));
    // Objects that are numbers are blocks, unless they have lengths.
    let has_keys = offset.is_some_and(|offset| {
        names_objects(offset, name(offset), table) || (length.is_some() && name(offset).is_some_and(is_key))
    });
    let stated = if has_keys { Stated { offset: Some(Unit::Keys), ..stated } } else { stated };

    let mut gaps = Vec::new();
    let mut settings = Vec::new();
    let is_dated = rows.iter().any(|row| matches!(row.time, Some(Stamp::Date)));
    let time_ns =
        units::time(stated.time_ns, &rows, &mut Vec::new()).ok().flatten().or_else(|| units::date_unit(&rows));
    if let Some(time) = time.filter(|_| !is_dated) {
        match time_ns.and_then(time_unit_name) {
            Some(unit) => settings.push(format!("time-unit={unit}")),
            None => {
                let label = label(time, header, table.unnamed);
                gaps.push(format!("times are left out, because their unit cannot be detected: add time={label},time-unit=s, ms, us or ns"));
                roles.retain(|(role, _)| *role != TIME);
            }
        }
    }
    let mut notes = Vec::new();
    let named_unit = |column: Option<usize>| {
        let words = words(column.and_then(name)?);
        let others = ["blocks", "blkno", "blockno", "bno", "nblocks", "pages", "pageno"];
        words.iter().any(|word| BLOCKS.contains(&&**word) || others.contains(&&**word)).then_some(Unit::Blocks)
    };
    let extent = units::extent(stated, &rows, &mut notes).or_else(|unknown| {
        let named = Stated {
            offset: stated.offset.or_else(|| named_unit(offset)),
            length: stated.length.or_else(|| named_unit(length)),
            ..stated
        };
        units::extent(named, &rows, &mut notes).map_err(|_| unknown)
    });
    let words_of_op = roles.iter().find(|(role, _)| *role == OP).and_then(|(_, column)| {
        let is_known = table.mostly(*column, |field| known_op(field).is_some());
        if is_known { None } else { op_words(name(*column).unwrap_or_default(), *column, table) }
    });
    let labels = roles.iter().map(|(role, column)| {
        format!("{}={}", ROLE_NAMES.get(*role).copied().unwrap_or_default(), label(*column, header, table.unnamed))
    });
    let mut parts: Vec<String> = labels.collect();
    parts.append(&mut settings);
    if let Some(unit) = stated.latency_ns.and_then(time_unit_name) {
        parts.push(format!("latency-unit={unit}"));
    }
    parts.extend(words_of_op);
    match extent {
        Ok((offset, bytes)) => {
            parts.push(format!("offset-unit={}", offset.name()));
            if length.is_some() {
                parts.push(format!("length-unit={}", bytes.name()));
            }
        }
        Err(mut unknown) => {
            unknown.guessed = Some(parts.join(","));
            return Err(unknown);
        }
    }
    let lacks = |role: usize| !roles.iter().any(|(other, _)| *other == role);
    if lacks(OP) {
        gaps.push("no column is one of operations, so all requests are reads".to_owned());
    }
    if lacks(LENGTH) {
        gaps.push("no column is one of lengths, so each request is one block".to_owned());
    }
    let unread = header.unwrap_or_default().iter().enumerate().filter(|(column, name)| {
        !roles.iter().any(|(_, other)| other == column) && time != Some(*column) && !is_index(name, *column)
    });
    let unread: Vec<_> = unread.map(|(_, name)| shown(name)).collect();
    if !unread.is_empty() {
        gaps.push(format!("not read: {}", unread.join(", ")));
    }
    Ok((parts.join(","), gaps))
}

/// A column in a description: its name if that is plain and means no other column, otherwise its number.
fn label(column: usize, header: Option<&[&[u8]]>, unnamed: usize) -> String {
    let plain = |name: &&&[u8]| {
        let is_plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        is_plain && !name.is_empty() && number(name).is_none()
    };
    let name = header.and_then(|header| {
        let name = header.get(column).filter(plain)?;
        header.iter().position(|other| other.eq_ignore_ascii_case(name)).filter(|first| *first == column)?;
        Some(String::from_utf8_lossy(name).into_owned())
    });
    name.unwrap_or_else(|| (column + unnamed).to_string())
}

/// A name without control characters, shortened.
fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 40;
    String::from_utf8_lossy(name).chars().take(SHOWN).flat_map(char::escape_debug).collect()
}
