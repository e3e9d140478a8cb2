//! LRFU by the definition of the CRF value, a sum over all past references.

use std::collections::BTreeMap;

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Lrfu {
    capacity: usize,
    lambda: f64,
    correlated_period: u64,
    now: u64,
    /// Times of the references to each resident block since it was loaded.
    references: BTreeMap<u64, Vec<u64>>,
}

impl Lrfu {
    pub(crate) fn new(capacity: usize, lambda: f64, correlated_period: u64) -> Lrfu {
        Lrfu { capacity, lambda, correlated_period, now: 0, references: BTreeMap::new() }
    }

    /// The sum of F(now - t) over the references t, without those whose next follows within the correlated period.
    fn crf(&self, references: &[u64]) -> f64 {
        let counts = |i: usize| references.get(i + 1).is_none_or(|next| next - references[i] > self.correlated_period);
        let weight = |i: usize| 0.5f64.powf(self.lambda * (self.now - references[i]) as f64);
        (0..references.len()).filter(|&i| counts(i)).map(weight).sum()
    }
}

impl Model for Lrfu {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.references.contains_key(&block);
        let mut evicted = None;
        if !hit && self.references.len() == self.capacity {
            evicted = Some(self.shed());
        }
        self.references.entry(block).or_default().push(self.now);
        self.now += 1;
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let value = |references: &Vec<u64>| (self.crf(references), *references.last().expect("referenced when loaded"));
        let values = self.references.iter().map(|(&block, references)| (value(references), block));
        let least = values.min_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.0.1.cmp(&b.0.1)));
        let victim = least.expect("a block").1;
        self.references.remove(&victim);
        victim
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
