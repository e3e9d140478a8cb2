//! OPT: looks for the next reference to every resident block in the reference string itself.

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Opt {
    capacity: usize,
    references: Vec<u64>,
    now: usize,
    /// The least recently used block first.
    resident: Vec<u64>,
}

impl Opt {
    pub(crate) fn new(capacity: usize, references: &[u64]) -> Opt {
        Opt { capacity, references: references.to_vec(), now: 0, resident: Vec::new() }
    }

    /// Evicts the block referenced farthest in the future, which begins at `from`.
    fn farthest(&mut self, from: usize) -> u64 {
        let next: Vec<usize> = self.resident.iter().map(|&other| self.next(other, from)).collect();
        let farthest = *next.iter().max().expect("a block");
        let first = next.iter().position(|&next| next == farthest).expect("the maximum is in there");
        self.resident.remove(first)
    }

    fn next(&self, block: u64, from: usize) -> usize {
        let later = &self.references[from..];
        later.iter().position(|&other| other == block).unwrap_or(usize::MAX)
    }
}

impl Model for Opt {
    fn access(&mut self, block: u64) -> Outcome {
        assert_eq!(block, self.references[self.now]);
        let found = self.resident.iter().position(|&other| other == block);
        let mut evicted = None;
        match found {
            Some(at) => {
                self.resident.remove(at);
            }
            None if self.resident.len() == self.capacity => {
                evicted = Some(self.farthest(self.now + 1));
            }
            None => {}
        }
        self.resident.push(block);
        self.now += 1;
        Outcome { hit: found.is_some(), evicted }
    }

    fn shed(&mut self) -> u64 {
        self.farthest(self.now)
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
