//! Medians, and the cost of distance between two reads derived from them.

/// A small read that follows another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) ns: u64,
}

/// The quantile of a share, 0 to 1; 0 if there are no values.
pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let at = ((values.len() - 1) as f64 * share).round() as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The least time and the mean beyond it of an exponential distribution with this median and 90th percentile.
pub(crate) fn exponential(times_us: Vec<f64>) -> (f64, f64) {
    let (middle, late) = (median(times_us.clone()), quantile(times_us, 0.9));
    // In an exponential distribution the median is ln 2 means and the 90th percentile ln 10 means.
    let jitter = (late - middle) / (std::f64::consts::LN_10 - std::f64::consts::LN_2);
    ((middle - std::f64::consts::LN_2 * jitter).max(0.0), jitter)
}

/// The error of the median, as the standard error for values with this spread; large if there are too few of them.
fn median_error(values: &[f64]) -> f64 {
    let middle = median(values.to_vec());
    let spread = median(values.iter().map(|value| (value - middle).abs()).collect());
    // 1.48 times the median deviation is the standard deviation of a normal distribution; the error of the median is
    // 1.25 times that of the mean.
    match values.len() {
        0..8 => f64::INFINITY,
        count => 1.25 * 1.48 * spread / (count as f64).sqrt(),
    }
}

/// Times of reads near the previous one and far from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seek {
    pub(crate) near_ns: f64,
    pub(crate) far_ns: f64,
    error_ns: f64,
}

impl Seek {
    /// Whether distant reads cost more than nearby ones, by more than a tenth and by more than noise can explain.
    pub(crate) fn matters(&self) -> bool {
        self.far_ns - self.near_ns > (self.near_ns / 10.0).max(4.0 * self.error_ns)
    }
}

/// Near is up to 1/500 of the longest distance, far is a third of it or more.
pub(crate) fn seek_of(moves: &[Move]) -> Seek {
    let longest = moves.iter().map(|moved| moved.from.abs_diff(moved.to)).max().unwrap_or(0);
    let times = |range: std::ops::RangeInclusive<u64>| -> Vec<f64> {
        let within = moves.iter().filter(|moved| range.contains(&moved.from.abs_diff(moved.to)));
        within.map(|moved| moved.ns as f64).collect()
    };
    let (near, far) = (times(0..=longest / 500), times(longest / 3..=longest));
    let error_ns = median_error(&near).hypot(median_error(&far));
    Seek { near_ns: median(near), far_ns: median(far), error_ns }
}
