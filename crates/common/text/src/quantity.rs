//! Numbers as a user writes them: sizes in bytes, counts, shares, times.

/// Factor of a letter before `B` or `iB`: this power of 1000 or 1024.
const LETTERS: [&str; 4] = ["k", "m", "g", "t"];

/// A number of bytes such as `64K`, `16GiB`, `16GB` or `4096`. K, M, G and T, alone or followed by `iB`, are powers of 1024;
/// followed by `B`, they are powers of 1000.
pub fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = split(text)?;
    // A lone small `b` is a number of blocks to some who read sizes, so it is none of bytes to anyone.
    if unit.is_empty() || unit == "B" {
        return whole(digits, 1);
    }
    let unit = unit.to_ascii_lowercase();
    let (letter, kilo) = match unit.strip_suffix("ib") {
        Some(letter) => (letter, 1024),
        None => unit.strip_suffix('b').map_or((unit.as_str(), 1024), |letter| (letter, 1000)),
    };
    whole(digits, power(letter, kilo)?)
}

/// The number and unit that [`bytes`] reads as `bytes`: with the largest unit that leaves a whole number, and no unit for none.
pub fn exact(bytes: u64) -> (u64, &'static str) {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or((bytes, ""), |(shift, unit)| (bytes >> shift, unit))
}

/// A count such as `20M`, `1.5k`, `1e6` or `3Mi`. K, M, G and T are powers of 1000; followed by `i`, they are powers of 1024.
pub fn count(text: &str) -> Option<u64> {
    let (digits, unit) = split(text)?;
    if unit.is_empty() {
        return whole(digits, 1);
    }
    let unit = unit.to_ascii_lowercase();
    let (letter, kilo) = unit.strip_suffix('i').map_or((unit.as_str(), 1000), |letter| (letter, 1024));
    whole(digits, power(letter, kilo)?)
}

/// A share from 0 to 1, written as such or in percent.
pub fn share(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse::<f64>().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// A number, and the unit behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let mut end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    // The exponent of `1e6`.
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.trim_start_matches('+');
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            end = text.len();
        }
    }
    let (digits, unit) = text.split_at(end);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.').then_some((digits, unit.trim_start()))
}

fn power(letter: &str, kilo: u64) -> Option<u64> {
    let at = LETTERS.iter().position(|known| *known == letter)?;
    Some(kilo.pow(at as u32 + 1))
}

/// `digits` times `scale`, where that is a whole number.
fn whole(digits: &str, scale: u64) -> Option<u64> {
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let product = digits.parse::<f64>().ok()? * scale as f64;
    (product.fract() == 0.0 && product < 2f64.powi(63)).then_some(product as u64)
}

/// Seconds: a number with its unit, ns, us (or µs), ms, s, m (minutes) or h. At least 0.
pub fn seconds(text: &str) -> Option<f64> {
    let (digits, unit) = split(text)?;
    let value = digits.parse::<f64>().ok()?;
    Some(match unit {
        "ns" => value / 1e9,
        "us" | "µs" => value / 1e6,
        "ms" => value / 1e3,
        "s" => value,
        "m" => value * 60.0,
        "h" => value * 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_sizes_are_read_back() {
        for (size, expected) in [
            (0, (0, "")),
            (1, (1, "")),
            (1023, (1023, "")),
            (1024, (1, "K")),
            (3 << 19, (1536, "K")),
            (5 << 40, (5, "T")),
            (u64::MAX, (u64::MAX, "")),
        ] {
            let (number, unit) = exact(size);
            assert_eq!((number, unit), expected);
            assert_eq!(bytes(&format!("{number}{unit}")), Some(size));
        }
    }

    #[test]
    fn sizes_in_bytes() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512B", 512),
            ("64K", 65_536),
            ("64k", 65_536),
            ("4KiB", 4_096),
            ("4kib", 4_096),
            ("1.5M", 3 << 19),
            ("16GiB", 16 << 30),
            ("16GB", 16_000_000_000),
            ("64MB", 64_000_000),
            ("2kb", 2_000),
            ("3T", 3 << 40),
            ("1e6", 1_000_000),
            ("1.5e3", 1_500),
            (" 8 MiB ", 8 << 20),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for slip in [
            "",
            "K",
            "x",
            "1X",
            "-1G",
            "+1",
            "0.5B",
            "1..2K",
            "1e3K",
            "1e",
            "1e-3",
            "100b",
            "iB",
            "1iB",
            "20000000T",
            "5%",
        ] {
            assert_eq!(bytes(slip), None, "{slip}");
        }
    }

    #[test]
    fn counts() {
        for (text, expected) in [
            ("7", 7),
            ("20M", 20_000_000),
            ("1.5k", 1_500),
            ("1e6", 1_000_000),
            ("3Mi", 3 << 20),
            ("1G", 1_000_000_000),
        ] {
            assert_eq!(count(text), Some(expected), "{text}");
        }
        for slip in ["", "1.5", "x", "-1", "5kib", "5KB", "1kk", "k", "99999999999G", "99999999999999999999"] {
            assert_eq!(count(slip), None, "{slip}");
        }
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("90s", 90.0),
            ("1.5ms", 0.0015),
            ("80us", 80e-6),
            ("80 µs", 80e-6),
            ("250ns", 250e-9),
            ("10m", 600.0),
            ("2h", 7200.0),
            ("0s", 0.0),
        ] {
            let found = seconds(text).unwrap_or_else(|| panic!("{text}"));
            assert!((found - expected).abs() <= expected * 1e-12, "{text}: {found}");
        }
        for slip in ["", "10", "s", "-1s", "1e3s", "5S", "5MS", "2d", "nans", "1..2s", "10min"] {
            assert_eq!(seconds(slip), None, "{slip}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!((share("10%"), share("0.25"), share("101%"), share("nan")), (Some(0.1), Some(0.25), None, None));
    }
}
