//! Two experts, of which one chooses each victim, at random by weights.

use crate::split_mix::SplitMix64;

/// An expert, by which histories and weights are indexed.
pub(crate) const LRU: usize = 0;
pub(crate) const LFU: usize = 1;

/// The greatest weight of an expert, as in the program of LeCaR and CACHEUS.
const WEIGHT_MOST: f64 = 0.99;

/// The experts' weights; their sum is 1.
pub(crate) struct Weights([f64; 2]);

impl Weights {
    pub(crate) fn equal() -> Weights {
        Weights([0.5; 2])
    }

    /// The expert that chooses the next victim.
    pub(crate) fn choose(&self, random: &mut SplitMix64) -> usize {
        if random.unit() < self.0[LRU] { LRU } else { LFU }
    }

    /// A victim of `expert` is referenced again.
    pub(crate) fn regret(&mut self, expert: usize, loss: f64) {
        self.0[expert] *= (-loss).exp();
        let lru = (self.0[LRU] / (self.0[LRU] + self.0[LFU])).clamp(1.0 - WEIGHT_MOST, WEIGHT_MOST);
        self.0 = [lru, 1.0 - lru];
    }

    /// LRU's weight in thousandths.
    pub(crate) fn lru_thousandths(&self) -> u64 {
        (self.0[LRU] * 1000.0).round() as u64
    }

    pub(crate) fn check(&self) {
        assert!((self.0[LRU] + self.0[LFU] - 1.0).abs() < 1e-9, "the weights are {:?}", self.0);
    }
}
