//! SIEVE, Algorithm 1 of the paper, on a vector whose last entry is the head. "Previous" is towards the head.

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Sieve {
    capacity: usize,
    /// Blocks and whether they were visited, the oldest (the tail) in front.
    queue: Vec<(u64, bool)>,
    /// The block under the hand.
    hand: Option<u64>,
}

impl Sieve {
    pub(crate) fn new(capacity: usize) -> Sieve {
        Sieve { capacity, queue: Vec::new(), hand: None }
    }

    fn evict(&mut self) -> u64 {
        let mut at = match self.hand {
            Some(block) => self.queue.iter().position(|entry| entry.0 == block).expect("the hand is on a block"),
            None => 0,
        };
        while self.queue[at].1 {
            self.queue[at].1 = false;
            at = (at + 1) % self.queue.len();
        }
        self.hand = self.queue.get(at + 1).map(|entry| entry.0);
        self.queue.remove(at).0
    }
}

impl Model for Sieve {
    fn access(&mut self, block: u64) -> Outcome {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.0 == block) {
            entry.1 = true;
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.queue.len() == self.capacity).then(|| self.evict());
        self.queue.push((block, false));
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict()
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
