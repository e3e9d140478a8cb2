//! FBR on one LRU stack; the sections are ranges of positions.

use std::collections::BTreeMap;

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Fbr {
    capacity: usize,
    /// The new and the old section, in percent of the cache.
    shares: [f64; 2],
    /// Blocks in the new section.
    new: usize,
    /// Blocks in the old section.
    old: usize,
    c_max: u64,
    a_max: u64,
    /// The most recently used block first.
    stack: Vec<u64>,
    count: BTreeMap<u64, u64>,
}

impl Fbr {
    /// `new` and `old` are shares of the cache in percent.
    pub(crate) fn new(capacity: usize, new: f64, old: f64, c_max: u64, a_max: u64) -> Fbr {
        let (shares, stack, count) = ([new, old], Vec::new(), BTreeMap::new());
        let mut model = Fbr { capacity, shares, new: 0, old: 0, c_max, a_max, stack, count };
        model.resize(capacity, 0);
        model
    }

    fn evict(&mut self) -> u64 {
        let Some(old) = self.stack.get(self.capacity - self.old..).filter(|old| !old.is_empty()) else {
            let victim = self.stack.pop().expect("a block");
            self.count.remove(&victim);
            return victim;
        };
        let least = old.iter().map(|block| self.count[block]).min().expect("an old section");
        let victim = match least <= self.c_max {
            true => *old.iter().rev().find(|block| self.count[block] == least).expect("the minimum is in there"),
            false => *old.last().expect("an old section"),
        };
        self.stack.retain(|&block| block != victim);
        self.count.remove(&victim);
        victim
    }
}

impl Model for Fbr {
    fn access(&mut self, block: u64) -> Outcome {
        let found = self.stack.iter().position(|&other| other == block);
        let mut evicted = None;
        if let Some(at) = found {
            self.stack.remove(at);
            if at >= self.new {
                *self.count.get_mut(&block).expect("a resident block has a count") += 1;
            }
        } else {
            if self.stack.len() == self.capacity {
                evicted = Some(self.evict());
            }
            self.count.insert(block, 1);
        }
        self.stack.insert(0, block);
        let sum: u64 = self.count.values().sum();
        if sum as f64 / self.count.len() as f64 > self.a_max as f64 {
            self.count.values_mut().for_each(|count| *count = count.div_ceil(2));
        }
        Outcome { hit: found.is_some(), evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict()
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        let share = |percent: f64| (capacity as f64 * percent / 100.0).round() as usize;
        self.capacity = capacity;
        self.old = share(self.shares[1]).clamp(1, capacity);
        self.new = share(self.shares[0]).min(capacity - self.old);
    }
}
