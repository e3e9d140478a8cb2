//! The cache beside a map and a policy that is driven directly (`nigh_testkit::host`): after each step, the same keys are resident.

use std::collections::{BTreeMap, BTreeSet};

use nigh_keyed::{Cache, Spec};
use nigh_policy::ghosts;
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::runs;
use nigh_testkit::workload::mixed;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::{Distinct, policies};

const KEYS: u64 = 60;

/// Weights by key, and a policy that is driven directly.
struct Naive {
    spec: Spec,
    host: Host,
    weights: BTreeMap<u64, u64>,
    limit: u64,
    capacity: u32,
    /// The room for ghosts is for this capacity.
    planned: u32,
    weighs: bool,
    full: bool,
}

impl Naive {
    fn new(spec: &Spec, limit: u64, weighs: bool) -> Naive {
        let capacity = if weighs { 1 } else { limit as u32 };
        let planned = limit as u32;
        let slots = Slots::Reused { ghosts: ghosts(spec, planned).unwrap() };
        let host = Host::new(&spec.to_string(), capacity, 0, slots, None);
        Naive { spec: spec.clone(), host, weights: BTreeMap::new(), limit, capacity, planned, weighs, full: false }
    }

    fn sum(&self) -> u64 {
        self.weights.values().sum()
    }

    fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity as u32;
        if !self.weighs {
            self.planned = self.capacity;
        } else if self.capacity > self.planned {
            self.planned = self.capacity.max(2 * self.planned);
        }
        self.host.resize(self.capacity, ghosts(&self.spec, self.planned).unwrap());
    }

    fn shed(&mut self) {
        let key = self.host.shed();
        self.weights.remove(&key).unwrap();
    }

    /// One value less.
    fn shrink(&mut self) {
        self.set_capacity((self.weights.len() as u64 - 1).max(1));
        self.shed();
    }

    /// Returns whether it was a hit.
    fn refer(&mut self, key: u64, weight: u64) -> bool {
        if self.weights.contains_key(&key) {
            return self.host.access(key).hit;
        }
        if weight > self.limit {
            return false;
        }
        let count = self.weights.len() as u64;
        if self.weighs && count > 0 && self.sum() + weight > self.limit {
            self.full = true;
            while self.weights.len() > 1 && self.sum() - self.sum() / self.weights.len() as u64 + weight > self.limit {
                self.shrink();
            }
            if u64::from(self.capacity) != self.weights.len() as u64 {
                self.set_capacity(self.weights.len() as u64);
            }
        } else if self.weighs && count > 0 && count == u64::from(self.capacity) {
            let more = (self.limit - self.sum()) * count / self.sum();
            let grain = if count < 16 { 1 } else { (count / 16).max(2) };
            if !self.full || more >= grain {
                self.set_capacity(count + more.clamp(1, count));
            }
        }
        let outcome = self.host.access(key);
        assert!(!outcome.hit);
        if let Some(evicted) = outcome.evicted {
            self.weights.remove(&evicted).unwrap();
        }
        if self.host.resident().contains(&key) {
            self.weights.insert(key, weight);
        }
        while self.sum() > self.limit {
            self.shrink();
        }
        false
    }

    fn resize(&mut self, limit: u64) {
        (self.limit, self.full) = (limit, false);
        if !self.weighs {
            self.set_capacity(limit);
        } else if self.sum() > limit {
            let fits = self.weights.len() as u64 * limit / self.sum();
            self.set_capacity(fits.max(1).min(self.capacity.into()));
        }
        while self.weights.len() > self.capacity as usize {
            self.shed();
        }
        while self.sum() > limit {
            self.shrink();
        }
    }
}

fn compare(spec: &Spec, seed: u64, weigh: Option<fn(u64) -> u64>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut limit = random.random_range(1..40);
    let mut cache: Cache<u64, u64, Distinct> = match weigh {
        Some(_) => Cache::with_weights_and_hasher(spec.clone(), limit, Distinct::default()).unwrap(),
        None => Cache::with_hasher(spec.clone(), limit as u32, Distinct::default()).unwrap(),
    };
    let mut naive = Naive::new(spec, limit, weigh.is_some());
    let (mut hits, mut misses) = (0, 0);
    for (step, key) in mixed(seed, KEYS, 600).into_iter().enumerate() {
        match random.random_range(0..40) {
            0 => {
                limit = random.random_range(1..80);
                let before: BTreeSet<u64> = cache.iter().map(|(key, _)| *key).collect();
                let evicted: BTreeSet<u64> = cache.resize(limit).unwrap().into_iter().map(|(key, _)| key).collect();
                naive.resize(limit);
                let after: BTreeSet<u64> = naive.weights.keys().copied().collect();
                assert_eq!(evicted, &before - &after, "{spec}, seed {seed}, step {step}");
            }
            1 => {
                let pair = cache.remove(&key);
                assert_eq!(pair.is_some(), naive.weights.remove(&key).is_some());
                if pair.is_some() {
                    naive.host.remove(key);
                }
            }
            2 => assert_eq!(
                cache.pop().is_some(),
                !naive.weights.is_empty() && {
                    naive.shed();
                    true
                }
            ),
            _ => {
                let weight = weigh.map_or(1, |weigh| weigh(key));
                let hit = cache.get(&key).is_some();
                assert_eq!(hit, naive.refer(key, weight), "{spec}, seed {seed}, step {step}");
                if hit {
                    hits += 1
                } else {
                    misses += 1
                }
                if !hit {
                    let inserted = cache.insert_weighted(key, key, weight);
                    assert_eq!(inserted.is_kept(), naive.weights.contains_key(&key));
                }
            }
        }
        let resident: BTreeMap<u64, u64> =
            cache.iter().map(|(key, _)| (*key, weigh.map_or(1, |weigh| weigh(*key)))).collect();
        assert_eq!(resident, naive.weights, "{spec}, seed {seed}, step {step}");
        assert_eq!((cache.weight(), cache.limit()), (naive.sum(), limit), "{spec}, seed {seed}, step {step}");
        cache.check();
    }
    assert_eq!((cache.counts().hits, cache.counts().misses), (hits, misses));
}

fn compare_all(weigh: Option<fn(u64) -> u64>) {
    for info in policies() {
        for seed in 0..runs(8, 400) {
            compare(&info.name.parse().unwrap(), seed, weigh);
        }
    }
}

#[test]
fn values_of_one_weight() {
    compare_all(None);
}

#[test]
fn values_of_weight_one_in_a_cache_with_weights() {
    compare_all(Some(|_| 1));
}

#[test]
fn values_of_uneven_weights() {
    compare_all(Some(|key| 1 + key % 7));
}

#[test]
fn few_heavy_values() {
    compare_all(Some(|key| if key % 9 == 0 { 30 } else { 1 }));
}
