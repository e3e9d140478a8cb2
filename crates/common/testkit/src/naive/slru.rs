//! Segmented LRU: two lists, the oldest block in front.

use crate::Outcome;
use crate::naive::{Model, Portion, Settings, take};

pub(crate) struct Slru {
    capacity: usize,
    share: Portion,
    probation: Vec<u64>,
    protected: Vec<u64>,
}

impl Slru {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Slru {
        let share = settings.portion("protected", "80%");
        Slru { capacity, share, probation: Vec::new(), protected: Vec::new() }
    }

    fn settle(&mut self) {
        while self.protected.len() > self.share.of(self.capacity).min(self.capacity) {
            self.probation.push(self.protected.remove(0));
        }
    }
}

impl Model for Slru {
    fn access(&mut self, block: u64) -> Outcome {
        if take(&mut self.protected, block) || take(&mut self.probation, block) {
            self.protected.push(block);
            self.settle();
            return Outcome { hit: true, evicted: None };
        }
        let full = self.probation.len() + self.protected.len() == self.capacity;
        let evicted = full.then(|| self.shed());
        self.probation.push(block);
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        if self.probation.is_empty() { self.protected.remove(0) } else { self.probation.remove(0) }
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
        self.settle();
    }
}
