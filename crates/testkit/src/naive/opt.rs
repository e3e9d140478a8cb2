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

    fn next(&self, block: u64) -> usize {
        let later = &self.references[self.now + 1..];
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
                let next: Vec<usize> = self.resident.iter().map(|&other| self.next(other)).collect();
                let farthest = *next.iter().max().expect("a full cache");
                let first = next.iter().position(|&next| next == farthest).expect("the maximum is in there");
                evicted = Some(self.resident.remove(first));
            }
            None => {}
        }
        self.resident.push(block);
        self.now += 1;
        Outcome { hit: found.is_some(), evicted }
    }
}
