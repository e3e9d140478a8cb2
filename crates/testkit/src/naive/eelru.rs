//! EELRU on one recency axis, every position counted.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Eelru {
    capacity: usize,
    early: Vec<usize>,
    late: Vec<usize>,
    age: u64,
    /// Resident blocks and ghosts, the most recent first.
    axis: Vec<u64>,
    resident: BTreeSet<u64>,
    /// Ends of regions, with the hits in each.
    hits: Vec<(usize, u64)>,
}

impl Eelru {
    /// `early` and `late` are numbers of points, `reach` the last late point.
    pub(crate) fn new(capacity: usize, early: usize, late: usize, reach: usize, age: usize) -> Eelru {
        let distinct = |points: BTreeSet<usize>| points.into_iter().collect::<Vec<_>>();
        let early = distinct((1..=early).map(|i| capacity * i / (early + 1)).filter(|&e| e > 0).collect());
        let late = (1..=late).map(|i| capacity + (reach - capacity) * i / late);
        let late = distinct(late.filter(|&l| l > capacity).collect());
        let ends = early.iter().chain([&capacity]).chain(&late);
        let hits = ends.map(|&end| (end, 0)).collect();
        Eelru { capacity, early, late, age: age as u64, axis: Vec::new(), resident: BTreeSet::new(), hits }
    }

    /// Counts a reference to the block at `position`, from 1.
    fn count(&mut self, position: usize) {
        if position <= self.hits[0].0 {
            return;
        }
        if let Some((_, hits)) = self.hits.iter_mut().find(|(end, _)| position <= *end) {
            *hits += 1;
        }
        if self.hits.iter().map(|(_, hits)| hits).sum::<u64>() >= self.age {
            self.hits.iter_mut().for_each(|(_, hits)| *hits /= 2);
        }
    }

    /// Hits at positions in `(start, end]`.
    fn hits(&self, start: usize, end: usize) -> u64 {
        self.hits.iter().filter(|(at, _)| start < *at && *at <= end).map(|(_, hits)| hits).sum()
    }

    fn victim(&self) -> u64 {
        let m = self.capacity;
        let mut best = (0.0, None);
        for &e in &self.early {
            for &l in &self.late {
                let chance = (m - e) as f64 / (l - e) as f64;
                let benefit = self.hits(e, l) as f64 * chance - self.hits(e, m) as f64;
                if benefit > best.0 {
                    best = (benefit, Some((e, l)));
                }
            }
        }
        let is_resident = |block: &&u64| self.resident.contains(block);
        let last = self.axis.iter().rposition(|block| self.resident.contains(block)).expect("a full cache");
        match best.1 {
            Some((e, l)) if last < l => *self.axis[e - 1..].iter().find(is_resident).expect("residents beyond e"),
            _ => self.axis[last],
        }
    }
}

impl Model for Eelru {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.resident.contains(&block);
        let full = self.resident.len() == self.capacity;
        let known = self.axis.iter().position(|&other| other == block);
        if let Some(at) = known {
            self.count(at + 1);
        }
        let mut evicted = None;
        if !hit && full {
            let victim = self.victim();
            self.resident.remove(&victim);
            evicted = Some(victim);
        }
        self.axis.retain(|&other| other != block);
        self.axis.insert(0, block);
        self.resident.insert(block);
        let end = self.hits.last().expect("M at the least").0;
        let mut position = 0;
        self.axis.retain(|other| {
            position += 1;
            position <= end || self.resident.contains(other)
        });
        Outcome { hit, evicted }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.axis.iter().copied().filter(|block| !self.resident.contains(block)).collect()
    }
}
