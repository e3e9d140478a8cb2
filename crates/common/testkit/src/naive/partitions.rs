//! A cache divided by marginal gain, as UBM and PCC do: blocks with a period, and other blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Portion, take};

/// The cache. A block belongs to the group that referenced it last, or to none.
pub(super) struct Partitions {
    capacity: usize,
    history: Portion,
    room: usize,
    keeps_groups: bool,
    /// The most recently used first.
    resident: Vec<u64>,
    /// Evicted blocks, the latest first.
    ghosts: Vec<u64>,
    /// For each known block, its group.
    group: BTreeMap<u64, Option<usize>>,
    /// For each group that is a loop, its period.
    pub(super) periods: BTreeMap<usize, f64>,
    /// For each group, when it referenced a block last.
    used: BTreeMap<usize, u64>,
    clock: u64,
    time: u64,
    references: u64,
    hits: u64,
    ghost_hits: u64,
}

impl Partitions {
    pub(super) fn new(capacity: usize, history: Portion, keeps_groups: bool) -> Partitions {
        Partitions {
            capacity,
            history,
            room: usize::MAX,
            keeps_groups,
            resident: Vec::new(),
            ghosts: Vec::new(),
            group: BTreeMap::new(),
            periods: BTreeMap::new(),
            used: BTreeMap::new(),
            clock: 0,
            time: 0,
            references: 0,
            hits: 0,
            ghost_hits: 0,
        }
    }

    pub(super) fn is_known(&self, block: u64) -> bool {
        self.group.contains_key(&block)
    }

    /// The loop that holds `block` in the cache.
    pub(super) fn loop_of(&self, block: u64) -> Option<usize> {
        let group = self.group.get(&block).copied().flatten()?;
        (self.resident.contains(&block) && self.periods.contains_key(&group)).then_some(group)
    }

    /// Makes room for `block`: returns whether it is resident already, and what left.
    pub(super) fn admit(&mut self, block: u64) -> Outcome {
        let hit = self.resident.contains(&block);
        let evicted = (!hit && self.resident.len() == self.capacity).then(|| self.evict());
        Outcome { hit, evicted }
    }

    /// Puts `block`, which was admitted, into `group`.
    pub(super) fn put(&mut self, block: u64, group: Option<usize>) {
        let was_resident = take(&mut self.resident, block);
        let was_ghost = take(&mut self.ghosts, block);
        self.time += 1;
        if group.is_none() {
            self.references += 1;
            self.hits += u64::from(was_resident);
            self.ghost_hits += u64::from(was_ghost && self.group[&block].is_none());
        }
        if self.time >= 2 * (self.capacity as u64).max(32) {
            self.time /= 2;
            self.references /= 2;
            self.hits /= 2;
            self.ghost_hits /= 2;
        }
        self.resident.insert(0, block);
        self.group.insert(block, group);
        if let Some(group) = group {
            self.used.insert(group, self.clock);
        }
        self.clock += 1;
        self.forget();
    }

    fn forget(&mut self) {
        let most = self.history.of(self.capacity).min(self.room);
        while self.ghosts.len() > most {
            let oldest = self.ghosts.pop().expect("there are ghosts");
            self.group.remove(&oldest);
        }
    }

    fn evict(&mut self) -> u64 {
        let victim = self.victim();
        take(&mut self.resident, victim);
        if self.group[&victim].is_none() || self.keeps_groups {
            self.ghosts.insert(0, victim);
        } else {
            self.group.remove(&victim);
        }
        victim
    }

    fn victim(&self) -> u64 {
        let groups: BTreeSet<usize> = self.resident.iter().filter_map(|block| self.group[block]).collect();
        let sequential = groups.iter().filter(|group| !self.periods.contains_key(group));
        let last = sequential.copied().max_by_key(|group| self.used[group]);
        let slowest = groups.iter().copied().filter(|group| self.periods.contains_key(group));
        let slowest = slowest
            .reduce(|one, other| if self.periods[&other].trunc() > self.periods[&one].trunc() { other } else { one });
        let front = |group: usize| *self.resident.iter().find(|block| self.group[block] == Some(group)).expect("one");
        let mut other = self.resident.iter().copied().filter(|block| self.group[block].is_none());
        match (last, slowest, other.next_back()) {
            (Some(group), ..) | (None, Some(group), None) => front(group),
            (None, Some(group), Some(block)) => {
                if self.gain() < 1.0 / self.periods[&group] {
                    block
                } else {
                    front(group)
                }
            }
            (None, None, block) => block.expect("a block is resident"),
        }
    }

    /// Gain of another buffer for the other blocks, from Belady's curve through two points.
    fn gain(&self) -> f64 {
        let is_other = |block: &&u64| self.group[*block].is_none();
        let buffers = self.resident.iter().filter(is_other).count() as f64;
        let ghosts = self.ghosts.iter().filter(is_other).count() as f64;
        if ghosts == 0.0 {
            return 0.0;
        }
        let all = self.references as f64 + 1.0;
        let missed = (self.references + 1 - self.hits) as f64 / all;
        let missed_by_more = (self.references + 1 - self.hits - self.ghost_hits) as f64 / all;
        let k = (missed / missed_by_more).ln() / ((buffers + ghosts) / buffers).ln();
        let missed_then = missed * (buffers / (buffers + 1.0)).powf(k);
        self.references as f64 / self.time.max(1) as f64 * (missed - missed_then)
    }

    pub(super) fn shed(&mut self) -> u64 {
        let victim = self.evict();
        self.forget();
        victim
    }

    pub(super) fn resize(&mut self, capacity: usize, ghosts: usize) {
        (self.capacity, self.room) = (capacity, ghosts);
        self.forget();
    }

    pub(super) fn ghosts(&self) -> BTreeSet<u64> {
        self.ghosts.iter().copied().collect()
    }
}
