//! LRU-K, the procedure of the paper's section 2.1.3, on a table of history control blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion, Settings};

/// A history control block; times begin at 1, and 0 is "none known".
#[derive(Clone, Default)]
struct History {
    /// HIST(p,1) to HIST(p,K).
    hist: Vec<u64>,
    last: u64,
}

pub(crate) struct LruK {
    k: usize,
    capacity: usize,
    correlated: u64,
    history: Portion,
    /// The most blocks retained.
    retained_most: usize,
    buffer: Vec<u64>,
    control: BTreeMap<u64, History>,
    /// Blocks with history that are not in the buffer, the one evicted first in front.
    retained: Vec<u64>,
    t: u64,
}

impl LruK {
    pub(crate) fn new(k: usize, capacity: usize, settings: Settings) -> LruK {
        let history = settings.history("1");
        LruK {
            k,
            capacity,
            correlated: settings.number("correlated", "0"),
            history,
            retained_most: history.of(capacity),
            buffer: Vec::new(),
            control: BTreeMap::new(),
            retained: Vec::new(),
            t: 0,
        }
    }

    fn retire(&mut self) -> u64 {
        let victim = self.victim();
        self.buffer.retain(|&q| q != victim);
        self.retained.push(victim);
        victim
    }

    fn purge(&mut self) {
        while self.retained.len() > self.retained_most {
            let purged = self.retained.remove(0);
            self.control.remove(&purged);
        }
    }

    /// The page with the greatest backward K-distance among the eligible ones, or among all if none is eligible; of
    /// those with an infinite distance, the least recently used.
    fn victim(&self) -> u64 {
        let all = self.buffer.iter().copied();
        let eligible: Vec<u64> = all.clone().filter(|q| self.t - self.control[q].last > self.correlated).collect();
        let candidates = if eligible.is_empty() { all.collect() } else { eligible };
        let order = |q: &u64| match &self.control[q] {
            History { hist, last } if hist[self.k - 1] == 0 => (0, *last),
            History { hist, .. } => (hist[self.k - 1], 0),
        };
        candidates.into_iter().min_by_key(order).expect("a full buffer")
    }
}

impl Model for LruK {
    fn access(&mut self, p: u64) -> Outcome {
        self.t += 1;
        let t = self.t;
        if self.buffer.contains(&p) {
            let History { hist, last } = self.control.get_mut(&p).expect("buffered pages have history");
            if t - *last > self.correlated {
                let correl_period_of_refd_page = *last - hist[0];
                for i in (1..self.k).rev() {
                    hist[i] = if hist[i - 1] == 0 { 0 } else { hist[i - 1] + correl_period_of_refd_page };
                }
                hist[0] = t;
            }
            *last = t;
            return Outcome { hit: true, evicted: None };
        }
        let known = self.retained.contains(&p);
        self.retained.retain(|&q| q != p);
        let mut evicted = None;
        if self.buffer.len() == self.capacity {
            evicted = Some(self.retire());
        }
        self.purge();
        let mut hist = if known { self.control[&p].hist.clone() } else { vec![0; self.k] };
        hist.rotate_right(1);
        hist[0] = t;
        self.control.insert(p, History { hist, last: t });
        self.buffer.push(p);
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.retire();
        self.purge();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.capacity = capacity;
        self.retained_most = self.history.of(capacity).min(ghosts);
        self.purge();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.retained.iter().copied().collect()
    }
}
