//! Hyperbolic caching, with priorities as fractions.

use crate::Outcome;
use crate::naive::dice::Dice;
use crate::naive::{Model, Settings};

#[derive(Clone, Copy)]
struct Item {
    block: u64,
    n: u64,
    loaded: u64,
}

pub(crate) struct Hyperbolic {
    capacity: usize,
    sample: usize,
    items: Vec<Item>,
    dice: Dice,
    clock: u64,
}

impl Hyperbolic {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Hyperbolic {
        let (sample, seed) = (settings.number("sample", "64") as usize, settings.number("seed", "0"));
        Hyperbolic { capacity, sample, items: Vec::new(), dice: Dice(seed), clock: 0 }
    }

    fn evict(&mut self, now: u64) -> u64 {
        let all = self.items.len();
        let sample: Vec<usize> = match all <= self.sample {
            true => (0..all).collect(),
            false => (0..self.sample).map(|_| self.dice.side(all)).collect(),
        };
        let time = |at: usize| (now - self.items[at].loaded).max(1);
        let worst = sample.into_iter().reduce(|worst, at| {
            let less = u128::from(self.items[at].n) * u128::from(time(worst))
                < u128::from(self.items[worst].n) * u128::from(time(at));
            if less { at } else { worst }
        });
        self.items.swap_remove(worst.expect("a block")).block
    }
}

impl Model for Hyperbolic {
    fn access(&mut self, block: u64) -> Outcome {
        self.clock += 1;
        if let Some(item) = self.items.iter_mut().find(|item| item.block == block) {
            item.n += 1;
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.items.len() == self.capacity).then(|| self.evict(self.clock));
        self.items.push(Item { block, n: 1, loaded: self.clock });
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict(self.clock)
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
