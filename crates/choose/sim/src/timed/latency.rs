//! How long requests took.

/// Each doubling of times has this many buckets: quantiles are right within 1.6 %.
const STEPS: u64 = 64;

/// The latencies of requests, from the time at which they were issued or due to the last reply, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// By bucket.
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
}

/// Times below `STEPS` have a bucket each; then each doubling has `STEPS`.
fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEPS.ilog2();
    (u64::from(shift + 1) * STEPS + ((ns >> shift) & (STEPS - 1))) as usize
}

/// The longest time in `bucket`.
fn longest(bucket: usize) -> u64 {
    let (doubling, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match doubling.checked_sub(1) {
        None => step,
        Some(shift) => ((u128::from(STEPS + step + 1) << shift) - 1) as u64,
    }
}

impl Latencies {
    pub(super) fn add(&mut self, ns: u64) {
        let at = bucket(ns);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.sum_ns += other.sum_ns;
    }

    /// How many requests there were.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The mean in ns; `None` if there were none.
    pub fn mean(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum_ns as f64 / self.total as f64)
    }

    /// The time in ns that a `share` of the requests, 0 to 1, did not exceed; `None` if there were none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        at.map(longest)
    }

    /// The same in µs.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        self.quantile(share).map(|ns| ns as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_two_hundredths() {
        assert_eq!(Latencies::default().quantile(0.5), None);
        let mut latencies = Latencies::default();
        (0..100_000u64).for_each(|at| latencies.add(at * 1_000));
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (found, right) = (latencies.quantile(share).unwrap() as f64, share * 1e8);
            assert!(found >= 0.999 * right && found <= 1.017 * right, "{share}: {found} is not {right}");
        }
        let mut hits = Latencies::default();
        (0..99).for_each(|_| hits.add(0));
        hits.add(5_000_000);
        assert_eq!((hits.quantile(0.5), hits.quantile(0.99)), (Some(0), Some(0)));
        assert!(hits.quantile(0.995).unwrap() >= 5_000_000);
        assert!((latencies.mean().unwrap() - 49_999_500.0).abs() < 1.0);
        latencies.merge(&hits);
        assert_eq!((latencies.count(), latencies.quantile(1.0)), (100_100, Some(longest(bucket(99_999_000)))));
        for ns in [0, 1, 63, 64, 65, 127, 128, 1 << 40, u64::MAX] {
            assert!(longest(bucket(ns)) >= ns, "{ns}");
            assert!(bucket(ns) == 0 || longest(bucket(ns) - 1) < ns, "{ns}");
        }
    }
}
