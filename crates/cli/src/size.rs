//! Numbers of bytes, times and shares as people read them.

use nigh_service::CurvePoint;

/// `bytes` in the largest unit that leaves at least 1, such as `1.5 GiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    let mut unit = units.next().expect("there is a first unit");
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if value.fract() == 0.0 || value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// A time in the unit that suits it; a dash for none.
pub(crate) fn human_time(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 1000.0 => format!("{us:.0} µs"),
        Some(us) if us < 1e6 => format!("{:.1} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
    }
}

/// A span of time in its two largest units.
pub(crate) fn human_span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A share in percent; `-` for none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1}", 100.0 * share))
}

/// A hit ratio and its error, in percent.
pub(crate) fn curve_cell(point: &CurvePoint) -> String {
    match (point.hit_ratio, point.error) {
        (Some(ratio), Some(error)) => format!("{:.1} ±{:.1}", 100.0 * ratio, 100.0 * error),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(human_bytes(512), "512 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(64 << 20), "64 MiB");
    }

    #[test]
    fn times_read_well() {
        for (us, text) in [(None, "-"), (Some(999.0), "999 µs"), (Some(7_149.0), "7.1 ms"), (Some(2.5e6), "2.5 s")] {
            assert_eq!(human_time(us), text);
        }
        for (seconds, text) in [(59, "59 s"), (61, "1 min 1 s"), (7200, "2 h 0 min"), (90_000, "1 d 1 h")] {
            assert_eq!(human_span(seconds), text);
        }
    }
}
