//! LFU with dynamic aging: K = F + L, in a table.

use crate::Outcome;
use crate::naive::Model;

struct Entry {
    block: u64,
    f: u64,
    key: u64,
    last: u64,
}

pub(crate) struct LfuDa {
    capacity: usize,
    cache: Vec<Entry>,
    l: u64,
    now: u64,
}

impl LfuDa {
    pub(crate) fn new(capacity: usize) -> LfuDa {
        LfuDa { capacity, cache: Vec::new(), l: 0, now: 0 }
    }

    fn least(&mut self) -> Entry {
        let order = |at: &usize| (self.cache[*at].key, self.cache[*at].last);
        let least = (0..self.cache.len()).min_by_key(order).expect("a block");
        self.cache.remove(least)
    }
}

impl Model for LfuDa {
    fn access(&mut self, block: u64) -> Outcome {
        self.now += 1;
        if let Some(entry) = self.cache.iter_mut().find(|entry| entry.block == block) {
            entry.f += 1;
            entry.key = entry.f + self.l;
            entry.last = self.now;
            return Outcome { hit: true, evicted: None };
        }
        let mut evicted = None;
        if self.cache.len() == self.capacity {
            let victim = self.least();
            self.l = victim.key;
            evicted = Some(victim.block);
        }
        self.cache.push(Entry { block, f: 1, key: 1 + self.l, last: self.now });
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.least().block
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
