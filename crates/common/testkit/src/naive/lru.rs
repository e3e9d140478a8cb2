//! LRU as a vector, the most recently used block first.

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Lru {
    capacity: usize,
    stack: Vec<u64>,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Lru {
        Lru { capacity, stack: Vec::new() }
    }
}

impl Model for Lru {
    fn access(&mut self, block: u64) -> Outcome {
        let found = self.stack.iter().position(|&other| other == block);
        let mut evicted = None;
        match found {
            Some(at) => {
                self.stack.remove(at);
            }
            None if self.stack.len() == self.capacity => evicted = self.stack.pop(),
            None => {}
        }
        self.stack.insert(0, block);
        Outcome { hit: found.is_some(), evicted }
    }

    fn shed(&mut self) -> u64 {
        self.stack.pop().expect("a block")
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
