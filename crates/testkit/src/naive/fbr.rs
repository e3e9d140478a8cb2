//! FBR on one LRU stack, the sections told by position.

use std::collections::BTreeMap;

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Fbr {
    capacity: usize,
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
        let share = |percent: f64| (capacity as f64 * percent / 100.0).round() as usize;
        let old = share(old).clamp(1, capacity);
        let new = share(new).min(capacity - old);
        Fbr { capacity, new, old, c_max, a_max, stack: Vec::new(), count: BTreeMap::new() }
    }

    fn evict(&mut self) -> u64 {
        let old = &self.stack[self.capacity - self.old..];
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
}
