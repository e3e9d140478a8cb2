//! Zipf's law, and the scattering of its ranks over the blocks.
//!
//! W. Hörmann, G. Derflinger: Rejection-inversion to generate variates from monotone discrete distributions,
//! ACM Transactions on Modeling and Computer Simulation 6(3), 1996.
//!
//! Logarithms and exponentials are those of the crate `libm`, because those of the platform differ in the last bit
//! between machines, and a seed must give the same requests on all.

use rand::RngExt;

use super::spec::{Part, SpecError};
use super::{BLOCKS_MOST, Made, Random, References};

/// Ranks `1..=n` with probabilities in proportion to `rank^-alpha`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    n: f64,
    alpha: f64,
    /// H(n + 1/2), the upper end of the interval that is inverted.
    upper: f64,
    /// H(3/2) − h(1), the lower end.
    lower: f64,
    /// Distance of a rank to its inverse within which it is accepted without evaluating H.
    near: f64,
}

impl Zipf {
    /// Ranks `1..=n`, `n` at least 1; `alpha` at least 0, which is uniform.
    pub(super) fn new(n: u64, alpha: f64) -> Zipf {
        let mut zipf = Zipf { n: n as f64, alpha, upper: 0.0, lower: 0.0, near: 0.0 };
        zipf.upper = zipf.integral(zipf.n + 0.5);
        zipf.lower = zipf.integral(1.5) - 1.0;
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.upper + random.random::<f64>() * (self.lower - self.upper);
            let x = self.inverse(area);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.n);
            if rank - x <= self.near || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    /// h(x) = x^-alpha.
    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.alpha * libm::log(x))
    }

    /// H(x), the integral of h from 1 to x: (x^(1-alpha) − 1) / (1 − alpha), or ln x.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let power = (1.0 - self.alpha) * log;
        if power.abs() < 1e-8 { log * (1.0 + power / 2.0) } else { libm::expm1(power) / (1.0 - self.alpha) }
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = area * (1.0 - self.alpha);
        let log = if scaled.abs() < 1e-8 {
            area * (1.0 - scaled / 2.0)
        } else {
            // Rounding can push the far end of the interval below -1, where x is infinite.
            libm::log1p(scaled.max(-1.0)) / (1.0 - self.alpha)
        };
        libm::exp(log)
    }
}

/// A seeded bijection of `0..n` without visible order: multiplications by odd numbers and shifted exclusive ors on the
/// smallest power of two that is at least `n`, applied again to results outside of `0..n`.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); 3],
}

impl Scatter {
    /// A bijection of `0..n`, `n` at least 1.
    pub(super) fn new(n: u64, random: &mut Random) -> Scatter {
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
        let mask = u64::MAX >> (u64::BITS - bits);
        let keys = std::array::from_fn(|_| (random.random::<u64>(), random.random::<u64>() | 1));
        Scatter { n, mask, shift: bits.div_ceil(2), keys }
    }

    pub(super) fn apply(&self, at: u64) -> u64 {
        let mut at = at;
        loop {
            for (add, multiply) in self.keys {
                at = at.wrapping_add(add).wrapping_mul(multiply) & self.mask;
                at ^= at >> self.shift;
            }
            if at < self.n {
                return at;
            }
        }
    }
}

/// `zipf`: independent references to blocks whose popularity follows Zipf's law.
struct ZipfReferences {
    zipf: Zipf,
    scatter: Option<Scatter>,
}

pub(super) fn make(part: &Part, random: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    let zipf = Zipf::new(blocks, part.number("alpha", 0.0, 10.0)?);
    let scatter = part.yes("scatter")?.then(|| Scatter::new(blocks, random));
    Ok(Made { blocks, references: Box::new(ZipfReferences { zipf, scatter }) })
}

impl References for ZipfReferences {
    fn next(&mut self, random: &mut Random) -> Option<u64> {
        let rank = self.zipf.sample(random) - 1;
        Some(self.scatter.as_ref().map_or(rank, |scatter| scatter.apply(rank)))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn scattering_is_a_bijection_and_depends_on_the_seed() {
        for n in [1, 2, 3, 5, 64, 1000, 1025] {
            let scatter = Scatter::new(n, &mut Random::seed_from_u64(n));
            let mut images: Vec<u64> = (0..n).map(|at| scatter.apply(at)).collect();
            images.sort_unstable();
            assert_eq!(images, (0..n).collect::<Vec<_>>());
        }
        let [one, two] = [1, 2].map(|seed| Scatter::new(1000, &mut Random::seed_from_u64(seed)));
        assert!((0..1000).filter(|&at| one.apply(at) == two.apply(at)).count() < 20);
        assert!((0..999).filter(|&at| one.apply(at).abs_diff(one.apply(at + 1)) == 1).count() < 20);
    }

    /// Every rank's frequency, small exponents and large, by Pearson's chi-square.
    #[test]
    fn frequencies_follow_the_law() {
        const N: usize = 50;
        const SAMPLES: usize = 400_000;
        for alpha in [0.0, 0.5, 0.99, 1.0, 1.3, 2.0, 3.0] {
            let zipf = Zipf::new(N as u64, alpha);
            let mut random = Random::seed_from_u64(7);
            let mut counts = [0u32; N];
            for _ in 0..SAMPLES {
                counts[zipf.sample(&mut random) as usize - 1] += 1;
            }
            let weights: Vec<f64> = (1..=N).map(|rank| (rank as f64).powf(-alpha)).collect();
            let whole: f64 = weights.iter().sum();
            // Ranks expected fewer than 10 times are pooled with the rarest that is not.
            let (mut chi, mut classes, mut pooled) = (0.0, 0, (0.0, 0.0));
            for (weight, count) in weights.iter().zip(counts).rev() {
                pooled.0 += weight / whole * SAMPLES as f64;
                pooled.1 += f64::from(count);
                if pooled.0 >= 10.0 {
                    chi += (pooled.1 - pooled.0) * (pooled.1 - pooled.0) / pooled.0;
                    classes += 1;
                    pooled = (0.0, 0.0);
                }
            }
            let degrees = f64::from(classes - 1);
            // Five standard deviations of chi-square above its mean.
            assert!(chi < degrees + 5.0 * (2.0 * degrees).sqrt(), "alpha {alpha}: chi-square {chi:.1} of {degrees}");
        }
    }

    #[test]
    fn extremes_stay_in_range() {
        let mut random = Random::seed_from_u64(3);
        for (n, alpha) in [(1, 0.0), (1, 1.0), (1, 10.0), (2, 10.0), (BLOCKS_MOST, 0.0), (BLOCKS_MOST, 1.0)] {
            let zipf = Zipf::new(n, alpha);
            for _ in 0..10_000 {
                assert!((1..=n).contains(&zipf.sample(&mut random)));
            }
        }
    }
}
