//! EELRU on one recency axis, every position counted.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::{Model, Portion};

pub(crate) struct Eelru {
    capacity: usize,
    ghosts_most: usize,
    /// The number of early points, and of late ones.
    numbers: [usize; 2],
    reach: Portion,
    age: Portion,
    /// Resident blocks and ghosts, the most recent first.
    axis: Vec<u64>,
    resident: BTreeSet<u64>,
    /// Ghosts, the first evicted first.
    ghosts: Vec<u64>,
    /// By point, from the first early one through M to the last late one, the hits between the previous point and it.
    hits: Vec<u64>,
}

impl Eelru {
    pub(crate) fn new(capacity: usize, numbers: [usize; 2], reach: Portion, age: Portion) -> Eelru {
        let hits = vec![0; numbers[0] + 1 + numbers[1]];
        let (axis, resident, ghosts) = (Vec::new(), BTreeSet::new(), Vec::new());
        Eelru { capacity, ghosts_most: usize::MAX, numbers, reach, age, axis, resident, ghosts, hits }
    }

    fn points(&self) -> Vec<usize> {
        let (m, [early, late]) = (self.capacity, self.numbers);
        let reach = self.reach.of(m).max(m);
        let early_points = (1..=early).map(|i| (m * i / (early + 1)).max(1));
        early_points.chain([m]).chain((1..=late).map(|i| m + (reach - m) * i / late)).collect()
    }

    /// Counts a reference to the block at `position`, from 1.
    fn count(&mut self, position: usize) {
        let points = self.points();
        let region = points.iter().position(|&point| position <= point);
        if let Some(region) = region.filter(|&region| region > 0) {
            self.hits[region] += 1;
        }
        self.age();
    }

    fn age(&mut self) {
        while self.hits.iter().sum::<u64>() >= self.age.of(self.capacity).max(1) as u64 {
            self.hits.iter_mut().for_each(|hits| *hits /= 2);
        }
    }

    /// Hits beyond point number `start`, up to point number `end`.
    fn hits(&self, start: usize, end: usize) -> u64 {
        self.hits[start + 1..=end].iter().sum()
    }

    fn victim(&self) -> u64 {
        let (m, points, early) = (self.capacity, self.points(), self.numbers[0]);
        let mut best = (0.0, None);
        for i in 0..early {
            for j in early + 1..points.len() {
                let (e, l) = (points[i], points[j]);
                let chance = if e < m { (m - e) as f64 / (l - e) as f64 } else { 0.0 };
                let benefit = self.hits(i, j) as f64 * chance - self.hits(i, early) as f64;
                if benefit > best.0 {
                    best = (benefit, Some((e, l)));
                }
            }
        }
        let is_resident = |block: &&u64| self.resident.contains(block);
        let last = self.axis.iter().rposition(|block| self.resident.contains(block)).expect("a block");
        let early = |e: usize| self.axis.get(e - 1..).and_then(|older| older.iter().find(is_resident));
        match best.1 {
            Some((e, l)) if last < l => *early(e).unwrap_or(&self.axis[last]),
            _ => self.axis[last],
        }
    }

    fn retire(&mut self) -> u64 {
        let victim = self.victim();
        self.resident.remove(&victim);
        self.ghosts.push(victim);
        victim
    }

    /// Forgets the ghosts beyond the last point, and those beyond the limit.
    fn forget(&mut self) {
        let end = *self.points().last().expect("M at the least");
        let mut position = 0;
        self.axis.retain(|other| {
            position += 1;
            position <= end || self.resident.contains(other)
        });
        self.ghosts.retain(|ghost| self.axis.contains(ghost));
        // In a full cache, at most one resident block is beyond the reach.
        let reach = self.reach.of(self.capacity).max(self.capacity);
        while self.ghosts.len() > self.ghosts_most.min(reach - self.capacity + 1) {
            let first = self.ghosts.remove(0);
            self.axis.retain(|&other| other != first);
        }
    }
}

impl Model for Eelru {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.resident.contains(&block);
        let full = self.resident.len() == self.capacity;
        let known = self.axis.iter().position(|&other| other == block);
        // Misses while a frame is free are not counted.
        if let Some(at) = known.filter(|_| hit || full) {
            self.count(at + 1);
        }
        let evicted = (!hit && full).then(|| self.retire());
        self.axis.retain(|&other| other != block);
        self.axis.insert(0, block);
        self.ghosts.retain(|&other| other != block);
        self.resident.insert(block);
        self.forget();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.retire();
        self.forget();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        (self.capacity, self.ghosts_most) = (capacity, ghosts);
        self.age();
        self.forget();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.ghosts.iter().copied().collect()
    }
}
