//! GCLOCK as an array of frames with their counters, and a hand.

use crate::Outcome;
use crate::naive::{Model, Settings};

pub(crate) struct GClock {
    capacity: usize,
    first: u64,
    most: u64,
    blocks: Vec<u64>,
    counts: Vec<u64>,
    hand: usize,
}

impl GClock {
    pub(crate) fn new(capacity: usize, settings: Settings) -> GClock {
        let (first, most) = (settings.number("first", "1"), settings.number("max", "5"));
        GClock { capacity, first, most, blocks: Vec::new(), counts: Vec::new(), hand: 0 }
    }
}

impl Model for GClock {
    fn access(&mut self, block: u64) -> Outcome {
        if let Some(frame) = self.blocks.iter().position(|&other| other == block) {
            self.counts[frame] = self.most.min(self.counts[frame] + 1);
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.blocks.len() == self.capacity).then(|| self.shed());
        // Just behind the hand.
        self.blocks.insert(self.hand, block);
        self.counts.insert(self.hand, self.first);
        self.hand = (self.hand + 1) % self.blocks.len();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        while self.counts[self.hand] > 0 {
            self.counts[self.hand] -= 1;
            self.hand = (self.hand + 1) % self.blocks.len();
        }
        self.counts.remove(self.hand);
        let evicted = self.blocks.remove(self.hand);
        self.hand %= self.blocks.len().max(1);
        evicted
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
