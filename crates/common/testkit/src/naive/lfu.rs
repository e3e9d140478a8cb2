//! In-cache LFU as a set of counts and times.

use crate::Outcome;
use crate::naive::Model;

struct Resident {
    block: u64,
    references: u64,
    last: u64,
}

pub(crate) struct Lfu {
    capacity: usize,
    cache: Vec<Resident>,
    now: u64,
}

impl Lfu {
    pub(crate) fn new(capacity: usize) -> Lfu {
        Lfu { capacity, cache: Vec::new(), now: 0 }
    }
}

impl Model for Lfu {
    fn access(&mut self, block: u64) -> Outcome {
        self.now += 1;
        if let Some(found) = self.cache.iter_mut().find(|resident| resident.block == block) {
            found.references += 1;
            found.last = self.now;
            return Outcome { hit: true, evicted: None };
        }
        let mut evicted = None;
        if self.cache.len() == self.capacity {
            evicted = Some(self.shed());
        }
        self.cache.push(Resident { block, references: 1, last: self.now });
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let value = |at: &usize| (self.cache[*at].references, self.cache[*at].last);
        let least = (0..self.cache.len()).min_by_key(value).expect("a block");
        self.cache.remove(least).block
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
