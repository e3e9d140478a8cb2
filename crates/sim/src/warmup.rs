//! How many references warm the cache before any is counted.

use std::fmt;
use std::str::FromStr;

/// The references that warm the cache, as a user writes them: `100k`, or `10%` of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// So many.
    References(usize),
    /// A share of all, from 0 to below 1.
    Share(f64),
}

/// What is wrong with a warm-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmupError {
    /// It is no number and no share.
    Syntax(String),
    /// Nothing is left to count.
    All {
        /// The references that were to warm the cache.
        warmup: usize,
        /// The references that there are.
        length: usize,
    },
}

impl fmt::Display for WarmupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarmupError::Syntax(text) => write!(f, "{text}: expected a number of references, or a share below 100%"),
            WarmupError::All { warmup, length } => write!(f, "{warmup}: only {length} references are replayed"),
        }
    }
}

impl std::error::Error for WarmupError {}

impl FromStr for Warmup {
    type Err = WarmupError;

    fn from_str(text: &str) -> Result<Warmup, WarmupError> {
        let warmup = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..100.0).contains(percent));
                percent.map(|percent| Warmup::Share(percent / 100.0))
            }
            None => nigh_text::count(text).and_then(|count| usize::try_from(count).ok()).map(Warmup::References),
        };
        warmup.ok_or_else(|| WarmupError::Syntax(text.to_owned()))
    }
}

impl Warmup {
    /// How many they are, of `length`.
    pub fn references(self, length: usize) -> Result<usize, WarmupError> {
        let warmup = match self {
            Warmup::References(references) => references,
            Warmup::Share(share) => (length as f64 * share) as usize,
        };
        if warmup < length { Ok(warmup) } else { Err(WarmupError::All { warmup, length }) }
    }
}
