//! Random latencies, the same on every machine for the same seed.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874;

#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.random()
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        1.0 - self.0.random::<f64>()
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        if mean == 0.0 { 0.0 } else { -mean * libm::log(self.unit()) }
    }

    /// Log-normal, given its median and the ratio of the 99th percentile to the median.
    pub(crate) fn log_normal(&mut self, median: f64, p99_ratio: f64) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        let normal = radius * libm::cos(std::f64::consts::TAU * self.unit());
        median * libm::exp(normal * libm::log(p99_ratio) / NORMAL_P99)
    }
}
