//! Sizes, times and rates as a user writes them.

use std::time::Duration;

use crate::error::TargetError;

/// A size in bytes.
pub(crate) fn size(text: &str) -> Result<u64, TargetError> {
    let bytes = nigh_text::bytes(text).filter(|bytes| (1..1 << 63).contains(bytes));
    bytes.ok_or_else(|| TargetError::Value { text: text.to_owned(), what: "a size, such as `1G` or `512M`" })
}

/// A time of at most an hour.
pub(crate) fn time(text: &str) -> Result<Duration, TargetError> {
    // Minutes are rejected: a delay of `5m` is `5ms` with a letter missing.
    let seconds = nigh_text::seconds(text).filter(|&seconds| seconds <= 3600.0 && text.ends_with('s'));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| TargetError::Value { text: text.to_owned(), what: "a time, such as `5ms` or `80us`" })
}

/// Bytes per second: a size and `/s`.
pub(crate) fn rate(text: &str) -> Result<u64, TargetError> {
    let bytes = text.strip_suffix("/s").and_then(|text| size(text).ok());
    bytes.ok_or_else(|| TargetError::Value { text: text.to_owned(), what: "a rate, such as `100M/s`" })
}

/// `bytes` with the largest unit that leaves a whole number.
pub(crate) fn show_size(bytes: u64) -> String {
    let (number, unit) = nigh_text::exact(bytes);
    format!("{number}{}", if unit.is_empty() { "B" } else { unit })
}

/// `time` in the unit that suits it.
pub(crate) fn show_time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        1e6.. => format!("{}s", us / 1e6),
        1e3.. => format!("{}ms", us / 1e3),
        _ => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_the_same() {
        for text in ["1G", "512M", "4K", "513B", "3T"] {
            assert_eq!(show_size(size(text).expect(text)), text);
        }
        for text in ["5ms", "0us", "80us", "1.5ms", "2s"] {
            assert_eq!(show_time(time(text).expect(text)), text);
        }
        assert_eq!(rate("1.5K/s"), Ok(1536));
        for text in ["", "G", "0", "1X", "-1G", "0.5B", "1..2K", "0K", "1e3K"] {
            assert!(size(text).is_err(), "{text}");
        }
        for text in ["5", "ms", "5m", "2h", "99999s"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(rate("100M").is_err() && rate("M/s").is_err());
    }
}
