//! LeCaR: the procedure of the paper's figure 2 with the details of its program.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::dice::Dice;
use crate::naive::{Model, Settings};

#[derive(Clone, Copy)]
struct Page {
    block: u64,
    freq: u64,
    last: u64,
    evicted: u64,
}

pub(crate) struct Lecar {
    capacity: usize,
    history_most: usize,
    rate: f64,
    /// The least recently used page in front.
    cache: Vec<Page>,
    /// H_LRU and H_LFU, the page evicted first in front.
    histories: [Vec<Page>; 2],
    w_lru: f64,
    dice: Dice,
    t: u64,
}

impl Lecar {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Lecar {
        Lecar {
            capacity,
            history_most: capacity / 2,
            rate: settings.float("rate", "0.45"),
            cache: Vec::new(),
            histories: [Vec::new(), Vec::new()],
            w_lru: 0.5,
            dice: Dice(settings.number("seed", "0")),
            t: 0,
        }
    }

    fn update_weight(&mut self, expert: usize, time_in_history: u64) {
        let r = 0.005f64.powf(time_in_history as f64 / self.capacity as f64);
        let mut w = [self.w_lru, 1.0 - self.w_lru];
        w[expert] *= (-self.rate * r).exp();
        self.w_lru = (w[0] / (w[0] + w[1])).clamp(1.0 - 0.99, 0.99);
    }

    fn evict(&mut self, now: u64) -> u64 {
        let rarest =
            (0..self.cache.len()).min_by_key(|&at| (self.cache[at].freq, self.cache[at].last)).expect("a page");
        let random = (self.dice.roll() >> 11) as f64 / 2f64.powi(53);
        let expert = usize::from(random >= self.w_lru);
        let chosen = if expert == 0 { 0 } else { rarest };
        let mut page = self.cache.remove(chosen);
        page.evicted = now;
        if rarest != 0 {
            self.histories[expert].push(page);
        }
        page.block
    }

    fn forget(&mut self) {
        for history in &mut self.histories {
            let excess = history.len().saturating_sub(self.history_most);
            history.drain(..excess);
        }
    }
}

impl Model for Lecar {
    fn access(&mut self, block: u64) -> Outcome {
        self.t += 1;
        if let Some(at) = self.cache.iter().position(|page| page.block == block) {
            let page = self.cache.remove(at);
            self.cache.push(Page { freq: page.freq + 1, last: self.t, ..page });
            return Outcome { hit: true, evicted: None };
        }
        let mut freq = 1;
        for expert in 0..2 {
            if let Some(at) = self.histories[expert].iter().position(|page| page.block == block) {
                let page = self.histories[expert].remove(at);
                freq = page.freq + 1;
                self.update_weight(expert, self.t - page.evicted);
            }
        }
        let evicted = (self.cache.len() == self.capacity).then(|| self.evict(self.t));
        self.cache.push(Page { block, freq, last: self.t, evicted: 0 });
        self.forget();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let block = self.evict(self.t);
        self.forget();
        block
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.capacity = capacity;
        self.history_most = (capacity / 2).min(ghosts / 2);
        self.forget();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.histories.iter().flatten().map(|page| page.block).collect()
    }
}
