//! Numbers as a user writes them: counts (`20M`), bytes (`64K`, `4KiB`), shares (`10%`, `0.1`).

/// A count, with K, M or G for powers of 1000 behind it.
pub(crate) fn count(text: &str) -> Option<u64> {
    scaled(text, 1000, "")
}

/// Bytes, with K, M, G or T for powers of 1024 behind the number, followed by `iB` or not.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    scaled(text, 1024, "ib")
}

fn scaled(text: &str, kilo: u64, suffix: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let letter = unit.strip_suffix(suffix).filter(|letter| letter.len() == 1).unwrap_or(unit);
    let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == letter)?;
    let scale = kilo.pow(power as u32);
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let product = digits.parse::<f64>().ok()? * scale as f64;
    (product.fract() == 0.0 && product < 2f64.powi(63)).then_some(product as u64)
}

/// A share from 0 to 1, written as such or in percent.
pub(crate) fn share(text: &str) -> Option<f64> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.trim().parse::<f64>().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!((count("20M"), count("1.5k"), count("7")), (Some(20_000_000), Some(1_500), Some(7)));
        assert_eq!((count("1.5"), count("x"), count(""), count("5kib"), count("-1")), (None, None, None, None, None));
        assert_eq!(
            (bytes("64K"), bytes("4KiB"), bytes("4kib"), bytes("512")),
            (Some(65_536), Some(4_096), Some(4_096), Some(512))
        );
        assert_eq!((bytes("20000000T"), count("99999999999999999999")), (None, None));
        assert_eq!((share("10%"), share("0.25"), share("101%"), share("nan")), (Some(0.1), Some(0.25), None, None));
    }
}
