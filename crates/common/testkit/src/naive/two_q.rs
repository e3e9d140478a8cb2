//! 2Q, the full version of the paper, on three vectors with the head in front.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::{Model, Settings};

pub(crate) struct TwoQ {
    capacity: usize,
    kin: f64,
    kout: f64,
    /// Shares of the cache in percent.
    shares: [f64; 2],
    a1in: Vec<u64>,
    a1out: Vec<u64>,
    am: Vec<u64>,
}

impl TwoQ {
    pub(crate) fn new(capacity: usize, settings: Settings) -> TwoQ {
        let shares = [settings.share("in", "25%", 100), settings.share("out", "50%", 100)];
        let mut model =
            TwoQ { capacity, kin: 0.0, kout: 0.0, shares, a1in: Vec::new(), a1out: Vec::new(), am: Vec::new() };
        model.resize(capacity, usize::MAX);
        model
    }

    /// The procedure `reclaimfor`: the block that leaves, if there is no free page slot.
    fn reclaim(&mut self) -> Option<u64> {
        if self.a1in.len() + self.am.len() < self.capacity {
            return None;
        }
        Some(self.shed())
    }
}

impl Model for TwoQ {
    fn access(&mut self, block: u64) -> Outcome {
        if let Some(at) = self.am.iter().position(|&x| x == block) {
            self.am[..=at].rotate_right(1);
            return Outcome { hit: true, evicted: None };
        }
        if self.a1in.contains(&block) {
            return Outcome { hit: true, evicted: None };
        }
        let remembered = self.a1out.iter().position(|&x| x == block).map(|at| self.a1out.remove(at));
        let evicted = self.reclaim();
        let queue = if remembered.is_some() { &mut self.am } else { &mut self.a1in };
        queue.insert(0, block);
        Outcome { hit: false, evicted }
    }

    /// The part of `reclaimfor` that frees a page slot. If Am is empty, the slot comes from A1in.
    fn shed(&mut self) -> u64 {
        if self.a1in.len() as f64 <= self.kin
            && let Some(y) = self.am.pop()
        {
            return y;
        }
        let y = self.a1in.pop().expect("a block");
        self.a1out.insert(0, y);
        if self.a1out.len() as f64 > self.kout {
            self.a1out.pop();
        }
        y
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        let [kin, kout] = self.shares.map(|share| capacity as f64 * share / 100.0);
        self.capacity = capacity;
        self.kin = kin.min(capacity as f64 - 1.0);
        self.kout = kout.min(ghosts as f64);
        while self.a1out.len() as f64 > self.kout {
            self.a1out.pop();
        }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.a1out.iter().copied().collect()
    }
}
