//! S3-FIFO, Algorithm 1 of the paper, on vectors whose first entry is the tail; an eviction frees exactly one frame.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Settings};

pub(crate) struct S3Fifo {
    capacity: usize,
    small_share: usize,
    ghost_share: usize,
    s: Vec<u64>,
    m: Vec<u64>,
    g: Vec<u64>,
    freq: BTreeMap<u64, u8>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize, settings: Settings) -> S3Fifo {
        let small_share = (settings.share("small", "10%", capacity).round() as usize).max(1);
        let ghost_share = settings.share("ghost", "90%", capacity).round() as usize;
        S3Fifo { capacity, small_share, ghost_share, s: vec![], m: vec![], g: vec![], freq: BTreeMap::new() }
    }

    fn evict(&mut self) -> u64 {
        if self.s.len() < self.small_share {
            return self.evict_m().expect("M is not empty");
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
        if ghost {
            self.m.push(block);
        } else {
            self.s.push(block);
        }
        self.freq.insert(block, 0);
        Outcome { hit: false, evicted }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.g.iter().copied().collect()
    }
}
