//! How many references warm the cache before any is counted.

use std::str::FromStr;

/// The references that warm the cache, as a user writes them: `100k`, or `10%` of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// A number of references.
    References(usize),
    /// A share of all, from 0 to below 1.
    Share(f64),
}

/// An error in a warm-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WarmupError {
    /// It is no number and no share.
    #[error("{0}: expected a number of references, or a share below 100%")]
    Syntax(String),
    /// Nothing is left to count.
    #[error("{warmup}: only {length} references are replayed")]
    All {
        /// The references that were to warm the cache.
        warmup: usize,
        /// The references that there are.
        length: usize,
    },
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn references(text: &str, length: usize) -> Result<usize, WarmupError> {
        text.parse::<Warmup>()?.references(length)
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(references("0", 10), Ok(0));
        assert_eq!(references("1k", 2_000), Ok(1_000));
        assert_eq!(references("10%", 2_005), Ok(200));
        assert_eq!(references("99.9%", 1), Ok(0));
    }

    #[test]
    fn slips() {
        for slip in ["", "x", "-1", "100%", "-1%", "nan%", "%"] {
            assert_eq!(references(slip, 10), Err(WarmupError::Syntax(slip.to_owned())));
        }
        assert_eq!(references("10", 10), Err(WarmupError::All { warmup: 10, length: 10 }));
        assert_eq!(references("0", 0), Err(WarmupError::All { warmup: 0, length: 0 }));
    }
}
