//! FIFO as a vector, the block loaded first in front.

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Fifo {
    capacity: usize,
    queue: Vec<u64>,
}

impl Fifo {
    pub(crate) fn new(capacity: usize) -> Fifo {
        Fifo { capacity, queue: Vec::new() }
    }
}

impl Model for Fifo {
    fn access(&mut self, block: u64) -> Outcome {
        if self.queue.contains(&block) {
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.queue.len() == self.capacity).then(|| self.queue.remove(0));
        self.queue.push(block);
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.queue.remove(0)
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
