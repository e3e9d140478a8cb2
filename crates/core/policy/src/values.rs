//! The valid values of a parameter: checked when a policy is specified, and shown by `nigh policies`.

use std::fmt;
use std::ops::RangeInclusive;

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// A whole number.
    Whole {
        /// The least.
        least: u64,
        /// The greatest.
        most: u64,
    },
    /// A number.
    Real {
        /// The least.
        least: f64,
        /// The greatest.
        most: f64,
    },
    /// A share in percent such as `1%`, or a count of blocks such as `32`.
    Portion {
        /// The least share, in percent.
        share_least: f64,
        /// The greatest share, in percent.
        share_most: f64,
        /// The least count.
        count_least: u32,
        /// The greatest count, in words: it depends on the size of the cache.
        count_most: &'static str,
    },
    /// A share of the cache in percent such as `10%`, bytes such as `8M`, or a count of blocks such as `32`; above 0 each.
    Size,
    /// A share in percent such as `2%`, or bytes such as `8M`.
    Bytes,
    /// A time such as `8.5ms` or `100us`.
    Time {
        /// The least, in milliseconds.
        least_ms: f64,
        /// The greatest, in milliseconds.
        most_ms: f64,
    },
    /// A factor such as `1.5`, or the same as a share, `150%`.
    Factor {
        /// The least.
        least: f64,
        /// The greatest.
        most: f64,
    },
    /// Policies for one cache with their defaults, joined by `+`.
    Policies,
    /// One of these words.
    Words(&'static [&'static str]),
    /// This word, or one of the values.
    Or(&'static str, &'static Values),
}

/// The greatest share of the cache for a history, or for a time in references, in percent: a thousand caches.
pub(crate) const SHARE_MOST: f64 = 100_000.0;

/// The most evicted blocks that a policy remembers, as a multiple of the cache size.
pub(crate) const HISTORY: Values = Values::Or("unlimited", &Values::Factor { least: 0.0, most: 1000.0 });

/// A switch: 0 for no, 1 for yes.
pub(crate) const FLAG: Values = Values::Whole { least: 0, most: 1 };

/// A part of the cache, with limits in blocks.
pub(crate) const fn part(count_least: u32, count_most: &'static str) -> Values {
    Values::Portion { share_least: 0.0, share_most: 100.0, count_least, count_most }
}

/// A history, or a time in references, relative to the size of the cache; at least `count_least` blocks or references.
pub(crate) const fn multiple(count_least: u32) -> Values {
    Values::Portion { share_least: 0.0, share_most: SHARE_MOST, count_least, count_most: "4294967295" }
}

/// The number of a share in percent, without its sign.
pub(crate) fn percent(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.trim().parse().ok()
}

/// The factor of a text such as `1.5` or `150%`.
pub(crate) fn factor(text: &str) -> Option<f64> {
    percent(text).map(|percent| percent / 100.0).or_else(|| text.parse().ok())
}

/// The milliseconds of a text such as `8.5ms` or `100us`.
pub(crate) fn milliseconds(text: &str) -> Option<f64> {
    let (number, per_ms) = match text.strip_suffix("us") {
        Some(number) => (number, 1000.0),
        None => (text.strip_suffix("ms")?, 1.0),
    };
    Some(number.trim().parse::<f64>().ok()? / per_ms)
}

/// A count of blocks.
pub(crate) fn blocks(text: &str) -> Option<u32> {
    nigh_text::count(text).and_then(|count| count.try_into().ok())
}

impl Values {
    /// Whether `text` is valid, as far as that does not depend on the size of the cache.
    pub(crate) fn accept(&self, text: &str) -> bool {
        let is_share = |range: RangeInclusive<f64>| percent(text).is_some_and(|share| range.contains(&share));
        match *self {
            Values::Whole { least, most } => {
                nigh_text::count(text).is_some_and(|count| (least..=most).contains(&count))
            }
            Values::Real { least, most } => text.parse().is_ok_and(|number| (least..=most).contains(&number)),
            Values::Portion { share_least, share_most, count_least, .. } => {
                is_share(share_least..=share_most) || blocks(text).is_some_and(|count| count >= count_least)
            }
            Values::Size => {
                is_share(f64::MIN_POSITIVE..=100.0)
                    || blocks(text).is_some_and(|count| count > 0)
                    || nigh_text::bytes(text).is_some_and(|bytes| bytes > 0)
            }
            Values::Bytes => is_share(0.0..=100.0) || nigh_text::bytes(text).is_some(),
            Values::Time { least_ms, most_ms } => {
                milliseconds(text).is_some_and(|time| (least_ms..=most_ms).contains(&time))
            }
            Values::Factor { least, most } => factor(text).is_some_and(|factor| (least..=most).contains(&factor)),
            // The registry knows the names.
            Values::Policies => true,
            Values::Words(words) => words.contains(&text),
            Values::Or(word, values) => text == word || values.accept(text),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Values::Whole { least, most } => write!(f, "a whole number from {least} to {most}"),
            Values::Real { least, most } => write!(f, "a number from {least} to {most}"),
            Values::Portion { share_least, share_most, count_least, count_most } => {
                write!(f, "a share from {share_least}% to {share_most}%, or blocks from {count_least} to {count_most}")
            }
            Values::Size => write!(f, "a share above 0% and up to 100%, bytes such as 8M, or blocks from 1"),
            Values::Bytes => write!(f, "a share from 0% to 100%, or bytes such as 8M"),
            Values::Time { least_ms, most_ms } => {
                write!(f, "a time from {least_ms}ms to {most_ms}ms such as 8.5ms or 100us")
            }
            Values::Factor { least, most } => write!(f, "a factor from {least} to {most} such as 1.5 or 150%"),
            Values::Policies => write!(f, "names of policies joined by + such as lirs+mq, without auto and opt"),
            Values::Words(words) => write!(f, "{}", words.join(", ")),
            Values::Or(word, values) => write!(f, "{word}, or {values}"),
        }
    }
}
