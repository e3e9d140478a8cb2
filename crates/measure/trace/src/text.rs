//! Shared parts of the text formats: lines, fields and numbers.

use twox_hash::XxHash3_64;

use crate::error::{Bad, Place};
use crate::input::Input;
use crate::records::BATCH;
use crate::skip::{Bounds, Skipped};
use crate::{Note, Op, Request, Requests, Result};

/// Bytes in the sector that disks and most traces count in.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A text format of one request a line.
pub(crate) trait Lines: Send {
    /// Whether a first line without a number is skipped as a header, and so are lines that begin with `#` before the
    /// first request. False for formats whose first line has a meaning.
    const SKIPS_HEADER: bool = true;

    /// The request of a line, which is not empty and has no line end and no surrounding blanks; `None` for a remark.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad>;

    /// Notes about the lines parsed.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }
}

/// The lines before the first request that do not match the format.
#[derive(Default)]
struct Header {
    /// The first line that was skipped as a header, and its error in the format.
    line: Option<(u64, Bad)>,
}

impl Header {
    /// Skips a `line` before the first request as a header, or returns its error.
    #[cold]
    fn take(&mut self, line: &[u8], number: u64, bad: Bad) -> Option<Bad> {
        let line = plain(line);
        if line.starts_with(b"#") {
            return None;
        }
        let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t' | b',' | b';' | b'|'));
        let names = fields.all(|field| !field.iter().find(|byte| **byte != b'"').is_some_and(u8::is_ascii_digit));
        if self.line.is_some() || !names {
            return Some(bad);
        }
        self.line = Some((number, bad));
        None
    }
}

/// Parses lines until the input ends.
pub(crate) struct Text<F> {
    input: Input,
    format: F,
    line: u64,
    found_any: bool,
    /// The limit of requests still to be read.
    left: u64,
    header: Header,
    /// The last line, if it is incomplete.
    cut_short: Option<u64>,
    skipped: Skipped,
    /// Whether the input is within a line that is too long and left out.
    is_in_long_line: bool,
}

impl<F: Lines> Text<F> {
    /// `input` is at the first line.
    pub(crate) fn new(input: Input, format: F, bounds: Bounds) -> Text<F> {
        Text {
            input,
            format,
            line: 0,
            found_any: false,
            left: bounds.limit,
            header: Header::default(),
            cut_short: None,
            skipped: Skipped::new(bounds),
            is_in_long_line: false,
        }
    }
}

impl<F: Lines> Requests for Text<F> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        let most = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
        batch.reserve(most);
        while batch.len() < most {
            if self.is_in_long_line && !self.leave_long_line()? {
                break;
            }
            let data = self.input.data();
            let mut used = 0;
            for newline in memchr::memchr_iter(b'\n', data) {
                let line = data.get(used..newline).unwrap_or_default();
                used = newline + 1;
                self.line += 1;
                match parse(&mut self.format, line) {
                    Ok(request) => batch.extend(request),
                    Err(error) => {
                        let may_be_header = F::SKIPS_HEADER && !self.found_any && batch.is_empty();
                        let error = if may_be_header { self.header.take(line, self.line, error) } else { Some(error) };
                        if let Some(error) = error {
                            let has_requests = self.found_any || !batch.is_empty();
                            let place = Place::Line(self.line);
                            self.skipped.take(error, place, self.input.path(), has_requests)?;
                        }
                    }
                }
                if batch.len() == most {
                    break;
                }
            }
            if used == 0 && !self.input.fill()? {
                let is_long = self.input.is_full();
                let data = self.input.data();
                used = data.len();
                self.line += 1;
                let parsed = match is_long {
                    true => Err(Bad { found: "a longer line".to_owned(), expected: "lines shorter than 4 MiB" }),
                    false => parse(&mut self.format, data),
                };
                match parsed {
                    Ok(request) => batch.extend(request),
                    Err(_) if !is_long && (self.found_any || !batch.is_empty()) => self.cut_short = Some(self.line),
                    Err(error) => {
                        let has_requests = self.found_any || !batch.is_empty();
                        self.skipped.take(error, Place::Line(self.line), self.input.path(), has_requests)?;
                    }
                }
                self.input.consume(used);
                self.is_in_long_line = is_long;
                if is_long {
                    continue;
                }
                break;
            }
            self.input.consume(used);
        }
        self.found_any |= !batch.is_empty();
        self.left -= batch.len() as u64;
        match self.header.line.take() {
            _ if self.found_any => Ok(()),
            Some((line, bad)) => Err(bad.at(self.input.path().to_owned(), Place::Line(line))),
            None => Err(self.skipped.nothing_left(self.input.path())),
        }
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = self.format.notes();
        notes.extend(self.cut_short.map(|line| Note::CutShort { line }));
        notes.extend(self.skipped.note());
        notes
    }
}

impl<F> Text<F> {
    /// Drops the rest of a line that is too long; `false` if the input ends before it.
    fn leave_long_line(&mut self) -> Result<bool> {
        loop {
            let data = self.input.data();
            let end = memchr::memchr(b'\n', data);
            let used = end.map_or(data.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                self.is_in_long_line = false;
                return Ok(true);
            }
            if !self.input.fill()? {
                return Ok(false);
            }
        }
    }
}

/// A line without its end, surrounding blanks, and a byte order mark.
#[inline]
pub(crate) fn plain(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii()
}

#[inline]
fn parse<F: Lines>(format: &mut F, line: &[u8]) -> Result<Option<Request>, Bad> {
    let line = plain(line);
    if line.is_empty() { Ok(None) } else { format.parse(line) }
}

/// The result of parsing the first lines of a sample in a format.
#[derive(Default)]
pub(crate) struct Trial {
    pub(crate) requests: Vec<Request>,
    /// The number of lines that do not match the format.
    pub(crate) bad: usize,
}

impl Trial {
    /// Whether all lines match the format and some are requests.
    pub(crate) fn is_clean(&self) -> bool {
        self.bad == 0 && !self.requests.is_empty()
    }

    /// Whether all lines match the format and none is a request.
    pub(crate) fn is_blank(&self) -> bool {
        self.bad == 0 && self.requests.is_empty()
    }
}

/// Parses the first lines of a sample. `whole` means that the sample ends with the content, not within a line.
pub(crate) fn try_out<F: Lines>(mut format: F, sample: &[u8], whole: bool) -> Trial {
    const ENOUGH: usize = 32;
    let end = if whole { sample.len() } else { memchr::memrchr(b'\n', sample).unwrap_or(0) };
    let mut trial = Trial::default();
    let mut header = Header::default();
    let mut lines = sample.get(..end).unwrap_or_default().split(|&byte| byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        match parse(&mut format, line) {
            Ok(request) => trial.requests.extend(request),
            // The last line may be incomplete.
            Err(_) if lines.peek().is_none() && whole && !trial.requests.is_empty() => {}
            Err(bad) if F::SKIPS_HEADER && trial.requests.is_empty() && trial.bad == 0 => {
                trial.bad += usize::from(header.take(line, 0, bad).is_some());
            }
            Err(_) => trial.bad += 1,
        }
        if trial.requests.len() + trial.bad == ENOUGH {
            break;
        }
    }
    if trial.requests.is_empty() && header.line.is_some() {
        trial.bad += 1;
    }
    trial
}

/// The fields of a line, separated by a comma or by blanks, or both. A field can be in quotes.
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: Some(line) }
    }

    /// The next field, or an error with `expected`.
    #[inline]
    pub(crate) fn expect(&mut self, expected: &'static str) -> Result<&'a [u8], Bad> {
        self.next().ok_or_else(|| Bad::end_of_line(expected))
    }

    /// The next field as a number.
    #[inline]
    pub(crate) fn number(&mut self, expected: &'static str) -> Result<u64, Bad> {
        let field = self.expect(expected)?;
        number(field).ok_or_else(|| Bad::field(field, expected))
    }

    /// The next field as a whole number in any notation.
    #[inline]
    pub(crate) fn whole(&mut self, expected: &'static str) -> Result<u64, Bad> {
        let field = self.expect(expected)?;
        whole(field).ok_or_else(|| Bad::field(field, expected))
    }

    /// The next field as a number below 2^32.
    #[inline]
    pub(crate) fn number32(&mut self, expected: &'static str) -> Result<u32, Bad> {
        let field = self.expect(expected)?;
        number(field).and_then(|value| u32::try_from(value).ok()).ok_or_else(|| Bad::field(field, expected))
    }

    /// The next field as a time in nanoseconds, written in units of `unit_ns`.
    #[inline]
    pub(crate) fn time(&mut self, unit_ns: u64, expected: &'static str) -> Result<u64, Bad> {
        let field = self.expect(expected)?;
        time_ns(field, unit_ns).ok_or_else(|| Bad::field(field, expected))
    }

    /// An error if there is another field.
    #[inline]
    pub(crate) fn end(&mut self, expected: &'static str) -> Result<(), Bad> {
        match self.next() {
            None => Ok(()),
            Some(field) => Err(Bad::field(field, expected)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let quoted = rest.strip_prefix(b"\"").and_then(|inner| inner.split_at_checked(memchr::memchr(b'"', inner)?));
        let (rest, unquoted) = match quoted {
            // The separator comes behind the closing quote.
            Some((field, after)) => (after.get(1..).unwrap_or_default(), Some(field.trim_ascii())),
            None => (rest, None),
        };
        let Some(length) = rest.iter().position(|byte| is_blank(byte) || *byte == b',') else {
            self.rest = None;
            return Some(unquoted.unwrap_or(rest));
        };
        let (field, after) = rest.split_at_checked(length)?;
        let skip = |bytes: &'a [u8]| bytes.iter().position(|byte| !is_blank(byte)).and_then(|at| bytes.get(at..));
        self.rest = match skip(after) {
            Some([b',', after @ ..]) => Some(skip(after).unwrap_or_default()),
            other => other,
        };
        Some(unquoted.unwrap_or(field))
    }
}

/// An unsigned decimal number.
#[inline]
pub(crate) fn number(field: &[u8]) -> Option<u64> {
    let digit = |byte: u8| Some(u64::from(byte.wrapping_sub(b'0'))).filter(|&digit| digit < 10);
    if field.is_empty() {
        return None;
    }
    // 19 digits cannot overflow.
    if field.len() < 20 {
        return field.iter().try_fold(0, |value: u64, &byte| Some(value * 10 + digit(byte)?));
    }
    field.iter().try_fold(0, |value: u64, &byte| value.checked_mul(10)?.checked_add(digit(byte)?))
}

/// An unsigned whole number, decimal, also with a fraction of zeros or an exponent (`4096.0`, `1e+05`), or hexadecimal
/// after `0x`.
#[inline]
pub(crate) fn whole(field: &[u8]) -> Option<u64> {
    number(field).or_else(|| match field {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        _ => whole_decimal(field),
    })
}

/// As `whole`, for numbers with a point or an exponent.
#[cold]
fn whole_decimal(field: &[u8]) -> Option<u64> {
    /// Significant digits to which programs round (`%g`): zeros that follow as many are not known to be zeros.
    const ROUNDED: usize = 6;
    let (mantissa, exponent) = match field.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => {
            let digits = field.get(at + 1..)?;
            (field.get(..at)?, usize::try_from(number(digits.strip_prefix(b"+").unwrap_or(digits))?).ok()?)
        }
        None => (field, 0),
    };
    let point = memchr::memchr(b'.', mantissa).unwrap_or(mantissa.len());
    let (whole, fraction) = (mantissa.get(..point)?, mantissa.get(point + 1..).unwrap_or_default());
    let shifted = fraction.get(..exponent.min(fraction.len()))?;
    let rest = fraction.get(shifted.len()..)?;
    let zeros = u32::try_from(exponent - shifted.len()).ok()?;
    let digits = whole.len() + fraction.len();
    if whole.is_empty() || rest.iter().any(|byte| *byte != b'0') || (zeros > 0 && digits >= ROUNDED) {
        return None;
    }
    number(&[whole, shifted].concat())?.checked_mul(10_u64.checked_pow(zeros)?)
}

/// The identity of contents for which a trace has a number or a digest; 0 for an empty field.
pub(crate) fn digest(field: &[u8]) -> u64 {
    number(field).unwrap_or_else(|| if field.is_empty() { 0 } else { XxHash3_64::oneshot(field).max(1) })
}

/// An unsigned hexadecimal number without prefix.
#[inline]
pub(crate) fn hexadecimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0, |value: u64, &byte| Some(value << 4 | u64::from(char::from(byte).to_digit(16)?)))
}

/// A decimal number of units of `unit_ns`, in nanoseconds, rounded down.
#[inline]
pub(crate) fn time_ns(field: &[u8], unit_ns: u64) -> Option<u64> {
    let Some(point) = memchr::memchr(b'.', field) else {
        return match number(field) {
            Some(whole) => whole.checked_mul(unit_ns),
            None => scientific_ns(field, unit_ns),
        };
    };
    let (whole, fraction) = (field.get(..point)?, field.get(point + 1..)?);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole_ns = if whole.is_empty() { 0 } else { number(whole)? }.checked_mul(unit_ns)?;
    let mut fraction_ns = 0;
    let mut place_ns = unit_ns;
    for &byte in fraction {
        if !byte.is_ascii_digit() {
            return scientific_ns(field, unit_ns);
        }
        place_ns /= 10;
        fraction_ns += place_ns * u64::from(byte - b'0');
    }
    whole_ns.checked_add(fraction_ns)
}

/// As `time_ns`, for numbers with an exponent, within the precision of `f64`.
#[cold]
fn scientific_ns(field: &[u8], unit_ns: u64) -> Option<u64> {
    if !field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    let ns = str::from_utf8(field).ok()?.parse::<f64>().ok()? * unit_ns as f64;
    (ns >= 0.0 && ns < u64::MAX as f64).then_some(ns as u64)
}

/// Offset and length in bytes of `count` units from unit `first` on, if they end below 2^64 and are shorter than 2^32.
#[inline]
pub(crate) fn extent(first: u64, count: u64, unit_bytes: u64) -> Option<(u64, u32)> {
    let offset = first.checked_mul(unit_bytes)?;
    let length = u32::try_from(count.checked_mul(unit_bytes)?).ok()?;
    offset.checked_add(u64::from(length))?;
    Some((offset, length))
}

/// As `extent`, or an error that shows the line.
#[inline]
pub(crate) fn extent_of(line: &[u8], first: u64, count: u64, unit_bytes: u64) -> Result<(u64, u32), Bad> {
    extent(first, count, unit_bytes).ok_or_else(|| Bad::field(line, EXTENT))
}

/// The condition of `extent`.
pub(crate) const EXTENT: &str = "a length below 4 GiB and an end below 2^64 bytes";

/// The operation for a word, in any case, of disks and of caches.
#[inline]
pub(crate) fn op(word: &[u8]) -> Option<Op> {
    const WORDS: [(&[u8], Op); 15] = [
        (b"r", Op::Read),
        (b"w", Op::Write),
        (b"read", Op::Read),
        (b"write", Op::Write),
        (b"trim", Op::Trim),
        (b"discard", Op::Trim),
        (b"unmap", Op::Trim),
        (b"flush", Op::Flush),
        (b"fsync", Op::Flush),
        (b"sync", Op::Flush),
        (b"get", Op::Read),
        (b"set", Op::Write),
        (b"put", Op::Write),
        (b"del", Op::Trim),
        (b"delete", Op::Trim),
    ];
    WORDS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|&(_, op)| op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_separated_by_blanks_or_a_comma() {
        let fields = |line: &'static str| {
            Fields::new(line.as_bytes()).map(|field| str::from_utf8(field).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(fields("1 2\t 3"), ["1", "2", "3"]);
        assert_eq!(fields("1,2 , 3,\t4"), ["1", "2", "3", "4"]);
        assert_eq!(fields("1,,3,"), ["1", "", "3", ""]);
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"0000000000000000000000000007"), Some(7));
        for bad in ["", "18446744073709551616", "-1", "+1", "1 ", "0x1", "1/", "1:"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(hexadecimal(b"fFffFfffffffffff"), Some(u64::MAX));
        assert_eq!(hexadecimal(b"10000000000000000"), None);
    }

    #[test]
    fn times_are_exact_unless_they_have_an_exponent() {
        const SECOND_NS: u64 = 1_000_000_000;
        for (text, ns) in [
            ("12", 12_000_000_000),
            ("0.000000001", 1),
            ("0.1234567899", 123_456_789),
            (".5", 500_000_000),
            ("5.", 5_000_000_000),
            ("18446744073.709551615", u64::MAX),
            ("1e-3", 1_000_000),
            ("2.5E0", 2_500_000_000),
        ] {
            assert_eq!(time_ns(text.as_bytes(), SECOND_NS), Some(ns), "{text}");
        }
        for bad in ["", ".", "18446744073.709551616", "-0.5", "1.x", "nan", "inf", "1e400", "1e99", "1.2.3"] {
            assert_eq!(time_ns(bad.as_bytes(), SECOND_NS), None, "{bad}");
        }
    }
}
