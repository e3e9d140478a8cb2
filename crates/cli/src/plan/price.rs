//! The price of memory, and amounts.

use anyhow::Context;

/// A price of memory.
#[derive(Clone, Debug)]
pub(super) struct Price {
    /// As it was given.
    pub(super) text: String,
    amount: f64,
    bytes: u64,
}

impl Price {
    pub(super) fn of(&self, bytes: u64) -> f64 {
        self.amount * bytes as f64 / self.bytes as f64
    }

    /// The price that `flag` has.
    pub(super) fn parse(flag: &str, text: &str) -> anyhow::Result<Price> {
        let parsed = text.split_once('/').and_then(|(amount, unit)| {
            let amount = amount.trim().parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0)?;
            let unit = unit.trim();
            unit.starts_with(|first: char| first.is_ascii_alphabetic()).then_some(())?;
            Some((amount, nigh_text::bytes(&format!("1{unit}"))?))
        });
        let (amount, bytes) =
            parsed.with_context(|| format!("{flag} {text}: expected an amount by a unit of memory, such as 3/GiB"))?;
        Ok(Price { text: text.to_owned(), amount, bytes })
    }
}

/// An amount of money, as it is printed.
pub(super) fn amount(cost: f64) -> String {
    if cost >= 100.0 { format!("{cost:.0}") } else { format!("{cost:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices() {
        assert_eq!(Price::parse("--cost", "3/GiB").unwrap().of(16 << 30), 48.0);
        assert_eq!(Price::parse("--cost", "0.5/M").unwrap().of(1 << 19), 0.25);
        for slip in ["3", "/GiB", "3/", "-1/G", "x/G", "3/parsec", "nan/G", "3/16G"] {
            assert!(Price::parse("--cost", slip).is_err(), "{slip}");
        }
    }
}
