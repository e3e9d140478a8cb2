//! Histograms of latencies, to which any thread adds without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling.
const STEPS: usize = 16;
/// The last bucket also has everything above about four minutes.
const BUCKETS: usize = 25 * STEPS;

/// Buckets in an eighth of a doubling.
const PER_EIGHTH: usize = STEPS / 8;

/// A histogram of durations, in µs, with `STEPS` buckets per doubling.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// The number of durations in each bucket.
    counts: Vec<u64>,
    /// Sum of all, in µs.
    pub sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) }
    }
}

/// The bucket of `us`: below `STEPS` one bucket per µs, then `STEPS` per doubling.
fn bucket(us: u64) -> usize {
    if us < STEPS as u64 {
        return us as usize;
    }
    let shift = us.ilog2() - STEPS.ilog2();
    let step = (us >> shift) as usize & (STEPS - 1);
    ((shift as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

/// Durations of `bucket` are below this many µs.
fn end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64 + 1;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + step + 1) as u64) << shift
}

impl Histogram {
    pub(crate) fn add(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        self.buckets[bucket(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Latencies {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Latencies { counts, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

impl Latencies {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The duration that a share of all are below, in µs, at most a sixteenth too much.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil() as u64;
        let mut below = 0;
        let reached = self.counts.iter().position(|count| {
            below += count;
            below >= rank && below > 0
        });
        reached.map_or(0, end)
    }

    /// The end in µs of each bucket that is not empty, and its count.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (end(at), *count)).collect()
    }

    /// The count of each eighth of a doubling, with its end in seconds: a quantile that is interpolated between two ends is at most 9 %
    /// wrong. The last has no end.
    pub fn eighths(&self) -> Vec<(f64, u64)> {
        let last = (self.counts.len() / PER_EIGHTH).saturating_sub(1);
        let ends = |at| if at == last { f64::INFINITY } else { end(PER_EIGHTH * at + PER_EIGHTH - 1) as f64 / 1e6 };
        self.counts.chunks(PER_EIGHTH).enumerate().map(|(at, counts)| (ends(at), counts.iter().sum())).collect()
    }
}

/// Latencies in µs. Quantiles are at most a sixteenth too high.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LatencySummary {
    /// The count.
    pub count: u64,
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The 99.9th percentile.
    pub p999_us: u64,
    /// The end of each non-empty bucket in µs and its count, ascending.
    pub buckets: Vec<(u64, u64)>,
    #[serde(skip)]
    all: Latencies,
}

impl From<Latencies> for LatencySummary {
    fn from(all: Latencies) -> LatencySummary {
        let [p50_us, p99_us, p999_us] = [0.5, 0.99, 0.999].map(|share| all.quantile_us(share));
        LatencySummary { count: all.count(), p50_us, p99_us, p999_us, buckets: all.buckets(), all }
    }
}

impl LatencySummary {
    /// All of them.
    pub fn latencies(&self) -> &Latencies {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_above_it() {
        for us in (0..5000).chain([1 << 20, (1 << 25) + 12345]) {
            let at = bucket(us);
            assert!(us < end(at), "{us}");
            assert!(at == 0 || us >= end(at - 1), "{us}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read().quantile_us(0.5), 0);
        (1..=1000).for_each(|us| histogram.add(Duration::from_micros(us)));
        let read = histogram.read();
        assert_eq!(read.count(), 1000);
        assert!((500..=532).contains(&read.quantile_us(0.5)), "{}", read.quantile_us(0.5));
        assert!((990..=1052).contains(&read.quantile_us(0.99)), "{}", read.quantile_us(0.99));
    }

    #[test]
    fn metrics_8_eighths_of_doublings_end_in_infinity() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.add(Duration::from_micros(us)));
        histogram.add(Duration::from_secs(3600));
        let eighths = histogram.read().eighths();
        assert_eq!(eighths.iter().map(|(_, count)| count).sum::<u64>(), 1001);
        assert_eq!(eighths[..3], [(2e-6, 1), (4e-6, 2), (6e-6, 2)]);
        assert_eq!(eighths.last(), Some(&(f64::INFINITY, 1)));
        let wide = |pair: &[(f64, u64)]| pair[1].0 / pair[0].0;
        assert!(eighths[7..eighths.len() - 1].windows(2).all(|pair| wide(pair) > 1.0 && wide(pair) <= 1.126));
    }
}
