//! W-TinyLFU with a separate variable for every counter of the sketch. It shares with the policy the hash of a block,
//! and the selection of counters by the hash.

use std::collections::BTreeMap;

use nigh_policy::{Block, w_tinylfu::mix};

use crate::Outcome;
use crate::naive::Model;

struct Sketch {
    lines: u64,
    samples: u64,
    sample: u64,
    size: u64,
    /// By line, row and place in the row.
    counters: BTreeMap<(u64, u64, u64), u64>,
}

impl Sketch {
    fn places(&self, block: u64) -> Vec<(u64, u64, u64)> {
        let hash = mix(Block { volume: 0, index: block });
        let line = (hash % (1 << 32)) % self.lines;
        (0..4).map(|row| (line, row, (hash >> (32 + 5 * row)) % 32)).collect()
    }

    fn add(&mut self, block: u64) {
        for place in self.places(block) {
            let counter = self.counters.entry(place).or_insert(0);
            *counter = (*counter + 1).min(15);
        }
        self.size += 1;
        if self.size == self.sample {
            self.halve();
        }
    }

    fn resize(&mut self, capacity: u64) {
        let mut wanted = 1;
        while wanted < capacity * 4 / 32 {
            wanted *= 2;
        }
        while self.lines < wanted {
            for ((line, row, place), counter) in self.counters.clone() {
                self.counters.insert((line + self.lines, row, place), counter);
            }
            self.lines *= 2;
        }
        while wanted * 4 <= self.lines {
            self.lines /= 2;
            for ((line, row, place), counter) in std::mem::take(&mut self.counters) {
                let both = self.counters.entry((line % self.lines, row, place)).or_insert(0);
                *both = counter.max(*both);
            }
        }
        self.sample = self.samples * capacity;
        while self.size >= self.sample {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.size /= 2;
        self.counters.values_mut().for_each(|counter| *counter /= 2);
    }

    fn estimate(&self, block: u64) -> u64 {
        let counter = |place| self.counters.get(place).copied().unwrap_or(0);
        self.places(block).iter().map(counter).min().expect("four rows")
    }
}

pub(crate) struct WTinyLfu {
    capacity: usize,
    /// Shares in percent.
    shares: [f64; 2],
    window_most: usize,
    protected_most: usize,
    sketch: Sketch,
    /// Each with the most recently used block first.
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
}

impl WTinyLfu {
    /// `window` and `protected` are shares in percent, `sample` is in multiples of the cache size.
    pub(crate) fn new(capacity: usize, window: f64, protected: f64, sample: u64) -> WTinyLfu {
        let mut model = WTinyLfu {
            capacity,
            shares: [window, protected],
            window_most: 0,
            protected_most: 0,
            sketch: Sketch { lines: 1, samples: sample, sample: 0, size: 0, counters: BTreeMap::new() },
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
        };
        model.resize(capacity, 0);
        model
    }

    fn hit(&mut self, block: u64) -> bool {
        let take = |list: &mut Vec<u64>| {
            let at = list.iter().position(|&other| other == block);
            at.map(|at| list.remove(at)).is_some()
        };
        if take(&mut self.window) {
            self.window.insert(0, block);
        } else if take(&mut self.probation) || take(&mut self.protected) {
            self.protected.insert(0, block);
        } else {
            return false;
        }
        if self.protected.len() > self.protected_most {
            self.probation.insert(0, self.protected.pop().expect("too many"));
        }
        true
    }

    fn evict(&mut self) -> u64 {
        if self.window.len() < self.window_most
            && let Some(victim) = self.probation.pop().or_else(|| self.protected.pop())
        {
            return victim;
        }
        let candidate = self.window.pop().expect("a block");
        let Some(&victim) = self.probation.last() else { return candidate };
        if self.sketch.estimate(candidate) <= self.sketch.estimate(victim) {
            return candidate;
        }
        self.probation.pop();
        self.probation.insert(0, candidate);
        victim
    }
}

impl Model for WTinyLfu {
    fn access(&mut self, block: u64) -> Outcome {
        if self.hit(block) {
            self.sketch.add(block);
            return Outcome { hit: true, evicted: None };
        }
        let resident = self.window.len() + self.probation.len() + self.protected.len();
        let evicted = (resident == self.capacity).then(|| self.evict());
        self.sketch.add(block);
        self.window.insert(0, block);
        if self.window.len() > self.window_most {
            self.probation.insert(0, self.window.pop().expect("too many"));
        }
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict()
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        let share = |whole: usize, percent: f64| (whole as f64 * percent / 100.0).round() as usize;
        self.capacity = capacity;
        self.window_most = share(capacity, self.shares[0]).clamp(1, capacity);
        let main = capacity - self.window_most;
        self.protected_most = share(main, self.shares[1]).min(main.saturating_sub(1));
        while self.protected.len() > self.protected_most {
            self.probation.insert(0, self.protected.pop().expect("too many"));
        }
        while self.window.len() > self.window_most {
            self.probation.insert(0, self.window.pop().expect("too many"));
        }
        self.sketch.resize(capacity as u64);
    }
}
