//! S3-FIFO, Algorithm 1 of the paper, on vectors whose first entry is the tail; an eviction frees exactly one frame.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion, Settings};

pub(crate) struct S3Fifo {
    capacity: usize,
    small_share: usize,
    ghost_share: usize,
    portions: [Portion; 2],
    /// As libCacheSim.
    warms_m: bool,
    has_evicted: bool,
    s: Vec<u64>,
    m: Vec<u64>,
    g: Vec<u64>,
    freq: BTreeMap<u64, u8>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize, settings: Settings) -> S3Fifo {
        let portions = [settings.portion("small", "10%"), settings.history("0.9")];
        let (s, m, g) = (vec![], vec![], vec![]);
        let warms_m = settings.get("warmup", "small") == "main";
        let (small_share, ghost_share, has_evicted, freq) = (0, 0, false, BTreeMap::new());
        let mut model = S3Fifo { capacity, small_share, ghost_share, portions, warms_m, has_evicted, s, m, g, freq };
        model.resize(capacity, usize::MAX);
        model
    }

    /// S3FIFO_evict, S3FIFO_evict_small and S3FIFO_evict_main of libCacheSim.
    fn evict_as_libcachesim(&mut self) -> u64 {
        self.has_evicted = true;
        if self.m.len() <= self.capacity - self.small_share {
            while !self.s.is_empty() {
                let t = self.s.remove(0);
                if self.freq[&t] < 2 {
                    self.g.push(t);
                    if self.g.len() > self.ghost_share {
                        self.g.remove(0);
                    }
                    return t;
                }
                self.freq.insert(t, 0);
                self.m.push(t);
            }
        }
        self.evict_m().unwrap_or_else(|| {
            let t = self.s.remove(0);
            self.g.push(t);
            if self.g.len() > self.ghost_share {
                self.g.remove(0);
            }
            t
        })
    }

    fn evict(&mut self) -> u64 {
        if self.warms_m {
            return self.evict_as_libcachesim();
        }
        if self.s.len() < self.small_share
            && let Some(evicted) = self.evict_m()
        {
            return evicted;
        }
        while !self.s.is_empty() {
            let t = self.s.remove(0);
            if self.freq[&t] > 1 {
                let room = if self.m.len() + self.small_share >= self.capacity { self.evict_m() } else { None };
                self.freq.insert(t, 0);
                self.m.push(t);
                if let Some(evicted) = room {
                    return evicted;
                }
            } else {
                self.g.push(t);
                if self.g.len() > self.ghost_share {
                    self.g.remove(0);
                }
                return t;
            }
        }
        self.evict_m().expect("all blocks are in M")
    }

    fn evict_m(&mut self) -> Option<u64> {
        while !self.m.is_empty() {
            let t = self.m.remove(0);
            match self.freq[&t] {
                0 => return Some(t),
                freq => self.freq.insert(t, freq - 1),
            };
            self.m.push(t);
        }
        None
    }
}

impl Model for S3Fifo {
    fn access(&mut self, block: u64) -> Outcome {
        if self.s.contains(&block) || self.m.contains(&block) {
            let freq = self.freq.get_mut(&block).expect("resident blocks have a counter");
            *freq = 3.min(*freq + 1);
            return Outcome { hit: true, evicted: None };
        }
        let ghost = self.g.contains(&block);
        self.g.retain(|&x| x != block);
        let evicted = (self.s.len() + self.m.len() == self.capacity).then(|| self.evict());
        let warms = self.warms_m && !self.has_evicted && self.s.len() >= self.small_share;
        if ghost || warms {
            self.m.push(block);
        } else {
            self.s.push(block);
        }
        self.freq.insert(block, 0);
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict()
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        let [small, ghost] = self.portions;
        self.capacity = capacity;
        let of = if self.warms_m { Portion::within } else { Portion::of };
        self.small_share = of(small, capacity).clamp(1, capacity);
        self.ghost_share = of(ghost, capacity).min(ghosts);
        while self.g.len() > self.ghost_share {
            self.g.remove(0);
        }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.g.iter().copied().collect()
    }
}
