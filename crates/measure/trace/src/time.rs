//! Dates and times of day, as text.

use crate::text::{number, time_ns};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
/// A day, in seconds.
pub(crate) const DAY_S: u64 = 24 * HOUR_S;

/// A time in ISO 8601 and RFC 3339, `2020-01-31T12:00:00.5+01:00`, in nanoseconds since 1970 in UTC. A blank can
/// replace the `T` and a comma the point; without a time zone it is UTC.
pub(crate) fn iso_ns(field: &[u8]) -> Option<u64> {
    let (date, rest) = field.split_at_checked(10)?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else { return None };
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = *date else { return None };
    let days = days_since_1970(number(&[y0, y1, y2, y3])?, number(&[m0, m1])?, number(&[d0, d1])?)?;
    let zone_at = rest.iter().position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-'));
    let (time, zone) = zone_at.map_or(Some((rest, &b""[..])), |at| rest.split_at_checked(at))?;
    let local_ns = clock_ns(time)?.checked_add(days.checked_mul(DAY_S)?.checked_mul(SECOND_NS)?)?;
    match zone {
        [] | [b'Z' | b'z'] => Some(local_ns),
        [sign, zone @ ..] => {
            let (hours, minutes) = match *zone {
                [h0, h1] => ([h0, h1], [b'0', b'0']),
                [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => ([h0, h1], [m0, m1]),
                _ => return None,
            };
            let east_ns = (number(&hours)? * HOUR_S + number(&minutes)? * MINUTE_S) * SECOND_NS;
            if *sign == b'+' { local_ns.checked_sub(east_ns) } else { local_ns.checked_add(east_ns) }
        }
    }
}

/// A time of day, `12:00:00` with or without a fraction after a point or a comma, in nanoseconds since midnight.
pub(crate) fn clock_ns(field: &[u8]) -> Option<u64> {
    let (clock, fraction) = field.split_at_checked(8)?;
    let [h0, h1, b':', m0, m1, b':', s0, s1] = *clock else { return None };
    let (hours, minutes, seconds) = (number(&[h0, h1])?, number(&[m0, m1])?, number(&[s0, s1])?);
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let fraction_ns = match fraction {
        [] => 0,
        [b'.' | b',', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            time_ns(&[b".", digits].concat(), SECOND_NS)?
        }
        _ => return None,
    };
    Some((hours * HOUR_S + minutes * MINUTE_S + seconds) * SECOND_NS + fraction_ns)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar that is not before.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let month = usize::try_from(month).ok()?.checked_sub(1)?;
    let leap_day = u64::from(month == 1 && is_leap(year));
    if year < 1970 || !(1..=DAYS.get(month)? + leap_day).contains(&day) {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let months = DAYS.iter().take(month).sum::<u64>() + u64::from(month > 1 && is_leap(year));
    Some(years + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, ns) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01 00:00:01.000000001", 1_000_000_001),
            ("2000-03-01T00:00:00Z", 951_868_800 * SECOND_NS),
            ("2020-02-29T23:59:59,5Z", 1_583_020_799 * SECOND_NS + SECOND_NS / 2),
            ("2026-11-22T21:54:03+01:00", 1_795_380_843 * SECOND_NS),
            ("2026-11-22T21:54:03-0130", 1_795_389_843 * SECOND_NS),
            ("2026-11-22T21:54:03+00", 1_795_384_443 * SECOND_NS),
        ] {
            assert_eq!(iso_ns(text.as_bytes()), Some(ns), "{text}");
        }
        for text in [
            "",
            "2020-01-31",
            "2021-02-29T00:00:00",
            "1969-12-31T23:59:59Z",
            "2020-13-01T00:00:00",
            "2020-01-01T24:00:00",
            "2020-01-01T00:00:00.",
            "2020-01-01T00:00:00.x",
            "2020-01-01T00:00:00+1",
            "1970-01-01T00:00:00+01:00",
            "9999-01-01T00:00:00Z",
        ] {
            assert_eq!(iso_ns(text.as_bytes()), None, "{text}");
        }
    }
}
