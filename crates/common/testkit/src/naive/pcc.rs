//! PCC: code is sequential, looping or other, by the votes of its references; its blocks share the cache by marginal gain.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::partitions::Partitions;
use crate::naive::{Model, Reference, Settings};

const OTHER: usize = 0;
const SEQUENTIAL: usize = 1;
const LOOPING: usize = 2;

/// References of a piece of code.
#[derive(Default)]
struct Code {
    number: usize,
    class: usize,
    votes: [u64; 3],
    last: Option<(u64, u64)>,
    period: Option<f64>,
}

/// The whole cache.
pub(super) struct Pcc {
    threshold: u64,
    partitions: Partitions,
    codes: BTreeMap<u64, Code>,
    /// When each block was used last.
    used: BTreeMap<u64, u64>,
    clock: u64,
}

impl Pcc {
    pub(super) fn new(capacity: usize, settings: Settings) -> Pcc {
        let threshold = settings.number("threshold", "4");
        let partitions = Partitions::new(capacity, settings.history("3"), true);
        Pcc { threshold, partitions, codes: BTreeMap::new(), used: BTreeMap::new(), clock: 0 }
    }

    /// The group that a reference belongs to.
    fn classify(&mut self, Reference { code, file, index, block }: Reference) -> Option<usize> {
        let number = self.codes.len();
        let code = self.codes.entry(code).or_insert_with(|| Code { number, ..Code::default() });
        let before = self.used.insert(block, self.clock).filter(|_| self.partitions.is_known(block));
        let is_next = code.last.is_some_and(|(of, last)| of == file && last + 1 == index);
        if code.last != Some((file, index)) {
            let vote = match before {
                _ if !is_next && index > 0 => OTHER,
                None => SEQUENTIAL,
                Some(time) => {
                    let waited = (self.clock - time) as f64;
                    let period = code.period.unwrap_or(waited);
                    code.period = Some(period + (waited - period) / 16.0);
                    LOOPING
                }
            };
            for class in 0..3 {
                let votes = code.votes[class];
                code.votes[class] = if class == vote { self.threshold.min(votes + 1) } else { votes.max(1) - 1 };
            }
            if code.votes[vote] >= self.threshold {
                code.class = vote;
            }
        }
        code.last = Some((file, index));
        match code.class {
            OTHER => return None,
            SEQUENTIAL => self.partitions.periods.remove(&code.number),
            _ => self.partitions.periods.insert(code.number, code.period.expect("it was measured")),
        };
        Some(code.number)
    }
}

impl Model for Pcc {
    fn access(&mut self, block: u64) -> Outcome {
        self.reference(Reference::by(0, block))
    }

    fn reference(&mut self, reference: Reference) -> Outcome {
        let outcome = self.partitions.admit(reference.block);
        let group = self.classify(reference);
        self.partitions.put(reference.block, group);
        self.clock += 1;
        outcome
    }

    fn shed(&mut self) -> u64 {
        self.partitions.shed()
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.partitions.resize(capacity, ghosts);
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.partitions.ghosts()
    }
}
