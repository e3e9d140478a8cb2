//! UBM: sequences and loops are found in the block numbers of files, and share the cache by marginal gain.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::partitions::Partitions;
use crate::naive::{Model, Reference, Settings};

/// Consecutive references.
struct Sequence {
    first: u64,
    last: u64,
    began: u64,
    /// The range that it belongs to.
    range: Option<usize>,
}

/// Pattern detected in a file.
struct Range {
    file: u64,
    start: u64,
    end: u64,
    began: u64,
}

/// The whole cache.
pub(super) struct Ubm {
    threshold: u64,
    partitions: Partitions,
    /// Of each file, the eight that were continued last, the latest first.
    sequences: BTreeMap<u64, Vec<Sequence>>,
    ranges: Vec<Range>,
    clock: u64,
}

impl Ubm {
    pub(super) fn new(capacity: usize, settings: Settings) -> Ubm {
        let threshold = settings.number("threshold", "4");
        let partitions = Partitions::new(capacity, settings.history("1"), false);
        Ubm { threshold, partitions, sequences: BTreeMap::new(), ranges: Vec::new(), clock: 0 }
    }

    /// The range around a block: of those that start before it, the last one, unless it ends before the block.
    fn around(&self, file: u64, index: u64) -> Option<usize> {
        let before =
            (0..self.ranges.len()).filter(|&at| self.ranges[at].file == file && self.ranges[at].start <= index);
        before.max_by_key(|&at| self.ranges[at].start).filter(|&at| index <= self.ranges[at].end)
    }

    /// The group that a reference belongs to.
    fn detect(&mut self, Reference { file, index, block, .. }: Reference) -> Option<usize> {
        let now = self.clock;
        let sequences = self.sequences.entry(file).or_default();
        let continued = sequences.iter().position(|one| one.last == index || one.last + 1 == index);
        let mut sequence = match continued {
            Some(at) => sequences.remove(at),
            None => Sequence { first: index, last: index, began: now, range: None },
        };
        sequence.last = index;
        sequences.truncate(7);
        let group = if index - sequence.first + 1 < self.threshold {
            self.partitions.loop_of(block)
        } else {
            Some(self.assign(file, &mut sequence))
        };
        self.sequences.entry(file).or_default().insert(0, sequence);
        group
    }

    /// The range that a sequence is in.
    fn assign(&mut self, file: u64, sequence: &mut Sequence) -> usize {
        let index = sequence.last;
        let number = match sequence.range {
            None => self.enter(file, sequence.first, sequence.began),
            Some(range) => {
                let is_loop = self.partitions.periods.contains_key(&range);
                let is_within = index <= self.ranges[range].end;
                let meets_another = self.around(file, index).is_some();
                if is_within || !is_loop && !meets_another { range } else { self.enter(file, index, self.clock) }
            }
        };
        self.ranges[number].end = self.ranges[number].end.max(index);
        sequence.range = Some(number);
        number
    }

    /// A sequence began with this block: what starts there has a round, the rest of what contains it becomes a loop of its
    /// own, and otherwise it is new.
    fn enter(&mut self, file: u64, start: u64, began: u64) -> usize {
        let around = self.around(file, start);
        let time = around.map(|at| began.saturating_sub(self.ranges[at].began + start - self.ranges[at].start));
        let time = time.map(|time| time.max(1) as f64);
        if let (Some(range), Some(time)) = (around, time)
            && self.ranges[range].start == start
        {
            self.ranges[range].began = began;
            let mean = self.partitions.periods.get(&range).map_or(time, |period| (period + time) / 2.0);
            self.partitions.periods.insert(range, mean);
            return range;
        }
        let end = around.map_or(start, |at| self.ranges[at].end);
        self.ranges.push(Range { file, start, end, began });
        let number = self.ranges.len() - 1;
        self.partitions.periods.extend(time.map(|time| (number, time)));
        number
    }
}

impl Model for Ubm {
    fn access(&mut self, block: u64) -> Outcome {
        self.reference(Reference::by(0, block))
    }

    fn reference(&mut self, reference: Reference) -> Outcome {
        let outcome = self.partitions.admit(reference.block);
        let group = self.detect(reference);
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
