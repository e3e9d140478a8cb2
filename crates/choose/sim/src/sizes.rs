//! Cache sizes as a user writes them: `1%`, `64M`, `32b`, `64M..4G`, `100b..1000b/100b`.

use std::str::FromStr;

/// One size, before the trace is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// A share of the distinct blocks, in percent.
    Percent(f64),
    Blocks(u64),
    Bytes(u64),
}

/// One size or a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    first: Size,
    /// The last size, and the step to it; without a step the sizes double.
    rest: Option<(Size, Option<Size>)>,
}

/// More sizes than this from one range are a slip of the pen.
const SIZES_MOST: usize = 10_000;

impl Size {
    fn unit(self) -> &'static str {
        match self {
            Size::Percent(_) => "%",
            Size::Blocks(_) => "b",
            Size::Bytes(_) => " bytes",
        }
    }

    fn value(self) -> f64 {
        match self {
            Size::Percent(percent) => percent,
            Size::Blocks(count) | Size::Bytes(count) => count as f64,
        }
    }

    fn with(self, value: f64) -> Size {
        match self {
            Size::Percent(_) => Size::Percent(value),
            Size::Blocks(_) => Size::Blocks(value as u64),
            Size::Bytes(_) => Size::Bytes(value as u64),
        }
    }

    /// In blocks, at least 1.
    fn blocks(self, distinct: u64, block_bytes: u32) -> Result<u64, SizeError> {
        match self {
            Size::Percent(percent) => Ok(((distinct as f64 * percent / 100.0).round() as u64).max(1)),
            Size::Blocks(blocks) => Ok(blocks),
            Size::Bytes(bytes) if bytes < u64::from(block_bytes) => Err(SizeError::BelowBlock { bytes, block_bytes }),
            Size::Bytes(bytes) => Ok(bytes / u64::from(block_bytes)),
        }
    }
}

impl Sizes {
    /// Whether this is one size and no range.
    pub fn is_one(self) -> bool {
        self.rest.is_none()
    }

    /// In blocks, at least 1 each, for a trace of `distinct` blocks of `block_bytes`.
    pub fn blocks(self, distinct: u64, block_bytes: u32) -> Result<Vec<u64>, SizeError> {
        let Some((last, step)) = self.rest else {
            return Ok(vec![self.first.blocks(distinct, block_bytes)?]);
        };
        let mut sizes = Vec::new();
        let mut at = self.first.value();
        // A share counted up in steps of 0.1 misses its last by a rounding error.
        while at <= last.value() * (1.0 + 1e-12) {
            if sizes.len() == SIZES_MOST {
                return Err(SizeError::TooMany);
            }
            sizes.push(self.first.with(at).blocks(distinct, block_bytes)?);
            at = step.map_or(2.0 * at, |step| self.first.value() + sizes.len() as f64 * step.value());
        }
        Ok(sizes)
    }
}

/// All of `sizes` in blocks, at least 1 each, ascending and each once, for a trace of `distinct` blocks of `block_bytes`.
pub fn in_blocks(sizes: &[Sizes], distinct: u64, block_bytes: u32) -> Result<Vec<u64>, SizeError> {
    let mut blocks = Vec::new();
    for size in sizes {
        blocks.extend(size.blocks(distinct, block_bytes)?);
    }
    blocks.sort_unstable();
    blocks.dedup();
    Ok(blocks)
}

/// An error in a size.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SizeError {
    /// It is neither a share nor a number of bytes or blocks.
    #[error(
        "'{0}' is not a size: expected a share of the distinct blocks (5%), bytes (64M), blocks (1000b), \
         or a range of these (64M..4G, doubling; 100b..1000b/100b, in steps)"
    )]
    Syntax(String),
    /// It is a number alone.
    #[error("size '{0}' has no unit: say {0}b for blocks, {0}K or {0}M for bytes")]
    NoUnit(String),
    /// It is 0.
    #[error("size '{0}' is 0: a cache holds at least one block")]
    Zero(String),
    /// The ends of a range, or its step, differ in their units.
    #[error("the sizes of the range '{0}' have different units")]
    Units(String),
    /// The range ends before it begins.
    #[error("the range '{0}' ends before it begins")]
    Backwards(String),
    /// The range has too many sizes.
    #[error("a range of more than {SIZES_MOST} sizes")]
    TooMany,
    /// It is less than a block.
    #[error("a cache of {bytes} bytes does not hold a block of {block_bytes} bytes")]
    BelowBlock {
        /// The size.
        bytes: u64,
        /// The bytes in a block.
        block_bytes: u32,
    },
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let text = text.trim();
        let syntax = || SizeError::Syntax(text.to_owned());
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let size = if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok().filter(|percent| percent.is_finite() && *percent >= 0.0);
            Size::Percent(percent.ok_or_else(syntax)?)
        } else if let Some(blocks) = text.strip_suffix('b').filter(digits) {
            Size::Blocks(blocks.parse().map_err(|_| syntax())?)
        } else {
            match text.parse::<f64>() {
                Ok(0.0) => return Err(SizeError::Zero(text.to_owned())),
                Ok(_) => return Err(SizeError::NoUnit(text.to_owned())),
                Err(_) => Size::Bytes(nigh_text::bytes(text).ok_or_else(syntax)?),
            }
        };
        if size.value() == 0.0 { Err(SizeError::Zero(text.to_owned())) } else { Ok(size) }
    }
}

impl FromStr for Sizes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Sizes, SizeError> {
        let Some((first, rest)) = text.split_once("..") else {
            return Ok(Sizes { first: text.parse()?, rest: None });
        };
        let (last, step) = match rest.split_once('/') {
            Some((last, step)) => (last, Some(step.parse::<Size>()?)),
            None => (rest, None),
        };
        let (first, last): (Size, Size) = (first.parse()?, last.parse()?);
        if first.unit() != last.unit() || step.is_some_and(|step| step.unit() != first.unit()) {
            return Err(SizeError::Units(text.to_owned()));
        }
        if last.value() < first.value() {
            return Err(SizeError::Backwards(text.to_owned()));
        }
        Ok(Sizes { first, rest: Some((last, step)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Result<Vec<u64>, SizeError> {
        text.parse::<Sizes>()?.blocks(10_000, 4096)
    }

    #[test]
    fn sizes_and_ranges() {
        assert_eq!(blocks("1%"), Ok(vec![100]));
        assert_eq!(blocks("0.001%"), Ok(vec![1]));
        assert_eq!(blocks("32b"), Ok(vec![32]));
        assert_eq!(blocks("1.5M"), Ok(vec![384]));
        assert_eq!((blocks("8kib"), blocks("8192B")), (Ok(vec![2]), Ok(vec![2])));
        assert_eq!(blocks("64K..1M"), Ok(vec![16, 32, 64, 128, 256]));
        assert_eq!(blocks("100b..400b/100b"), Ok(vec![100, 200, 300, 400]));
        assert_eq!(blocks("0.1%..0.3%/0.1%"), Ok(vec![10, 20, 30]));
        assert_eq!(blocks("1%..1%"), Ok(vec![100]));
    }

    #[test]
    fn slips() {
        assert_eq!(blocks("0b"), Err(SizeError::Zero("0b".into())));
        assert_eq!(blocks("0"), Err(SizeError::Zero("0".into())));
        assert_eq!(blocks("100"), Err(SizeError::NoUnit("100".into())));
        assert_eq!(blocks("1.5b"), Err(SizeError::Syntax("1.5b".into())));
        assert_eq!(blocks("x"), Err(SizeError::Syntax("x".into())));
        assert_eq!(blocks("2kb"), Err(SizeError::BelowBlock { bytes: 2000, block_bytes: 4096 }));
        assert_eq!(blocks(""), Err(SizeError::Syntax("".into())));
        assert_eq!(blocks("100K..5%"), Err(SizeError::Units("100K..5%".into())));
        assert_eq!(blocks("2G..1G"), Err(SizeError::Backwards("2G..1G".into())));
        assert_eq!(blocks("1b..1000000b/1b"), Err(SizeError::TooMany));
        assert_eq!(blocks("1K"), Err(SizeError::BelowBlock { bytes: 1024, block_bytes: 4096 }));
    }
}
