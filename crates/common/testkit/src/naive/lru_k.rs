//! LRU-K without correlated references: the whole history of each known page.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion, Settings};

pub(crate) struct LruK {
    capacity: usize,
    k: usize,
    share: Portion,
    retained_most: usize,
    buffer: BTreeSet<u64>,
    /// The times of the references to each known page, from 1 on, the latest first.
    history: BTreeMap<u64, Vec<u64>>,
    /// Known pages that are not in the buffer, the one evicted first in front.
    retained: Vec<u64>,
    t: u64,
}

impl LruK {
    pub(crate) fn new(capacity: usize, settings: Settings) -> LruK {
        let share = settings.history("1");
        LruK {
            capacity,
            k: settings.number("k", "3") as usize,
            share,
            retained_most: share.of(capacity),
            buffer: BTreeSet::new(),
            history: BTreeMap::new(),
            retained: Vec::new(),
            t: 0,
        }
    }

    fn retire(&mut self) -> u64 {
        // b_t(p,K) is infinite without a K-th last reference; then the time of the last one decides.
        let order = |page: &&u64| {
            let times = &self.history[*page];
            times.get(self.k - 1).map_or((0, times[0]), |kth| (1, *kth))
        };
        let victim = *self.buffer.iter().min_by_key(order).expect("a page");
        self.buffer.remove(&victim);
        self.retained.push(victim);
        victim
    }

    fn purge(&mut self) {
        while self.retained.len() > self.retained_most {
            let purged = self.retained.remove(0);
            self.history.remove(&purged);
        }
    }
}

impl Model for LruK {
    fn access(&mut self, page: u64) -> Outcome {
        self.t += 1;
        let hit = self.buffer.contains(&page);
        let mut evicted = None;
        if !hit {
            self.retained.retain(|&other| other != page);
            evicted = (self.buffer.len() == self.capacity).then(|| self.retire());
            self.buffer.insert(page);
        }
        self.history.entry(page).or_default().insert(0, self.t);
        self.purge();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.retire();
        self.purge();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.capacity = capacity;
        self.retained_most = self.share.of(capacity).min(ghosts);
        self.purge();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.retained.iter().copied().collect()
    }
}
