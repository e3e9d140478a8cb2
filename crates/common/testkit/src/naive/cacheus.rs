//! CACHEUS: sections 4.2 to 4.5 of the paper with the details of its program.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::dice::Dice;
use crate::naive::{Model, Settings};

#[derive(Clone, Copy)]
struct Page {
    block: u64,
    freq: u64,
    time: u64,
    demoted: bool,
    new: bool,
}

pub(crate) struct Cacheus {
    n: usize,
    /// SR and R, the oldest page in front.
    sr: Vec<Page>,
    r: Vec<Page>,
    size_sr: usize,
    size_r: usize,
    /// The pages evicted by SR-LRU and by CR-LFU, the oldest in front.
    histories: [Vec<Page>; 2],
    history_most: usize,
    w: [f64; 2],
    dice: Dice,
    t: u64,
    // Algorithm 2: the learning rate.
    lambda: f64,
    lambda_before: [f64; 2],
    lambda_reset: f64,
    hits: usize,
    hr: f64,
    unlearned: usize,
    degraded: usize,
}

fn lambda_0(n: usize) -> f64 {
    (2.0 * std::f64::consts::LN_2 / n as f64).sqrt()
}

fn rounded(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

impl Cacheus {
    pub(crate) fn new(n: usize, settings: Settings) -> Cacheus {
        let size_r = ((0.01 * n as f64 + 0.5) as usize).max(1);
        let lambda = lambda_0(n);
        Cacheus {
            n,
            sr: Vec::new(),
            r: Vec::new(),
            size_sr: n - size_r,
            size_r,
            histories: [Vec::new(), Vec::new()],
            history_most: n / 2,
            w: [0.5, 0.5],
            dice: Dice(settings.number("seed", "0")),
            t: 0,
            lambda,
            lambda_before: [lambda, 0.0],
            lambda_reset: lambda.clamp(0.001, 1.0),
            hits: 0,
            hr: 0.0,
            unlearned: 0,
            degraded: 0,
        }
    }

    fn random(&mut self) -> f64 {
        (self.dice.roll() >> 11) as f64 / 2f64.powi(53)
    }

    fn update_learning_rate(&mut self) {
        let hr = rounded(self.hits as f64 / self.n as f64);
        let delta_hr = rounded(hr - self.hr);
        let delta_lr = rounded(self.lambda_before[0]) - rounded(self.lambda_before[1]);
        match (delta_hr * delta_lr).partial_cmp(&0.0).expect("no part is NaN") {
            std::cmp::Ordering::Greater => {
                self.lambda = f64::min(self.lambda + (self.lambda * delta_lr).abs(), 1.0);
                self.unlearned = 0;
                self.degraded = 0;
            }
            std::cmp::Ordering::Less => {
                self.lambda = f64::max(self.lambda - (self.lambda * delta_lr).abs(), 0.001);
                self.unlearned = 0;
                self.degraded = 0;
            }
            std::cmp::Ordering::Equal => {
                if delta_hr == 0.0 && hr <= 0.0 {
                    self.unlearned += 1;
                }
                if delta_hr < 0.0 {
                    self.degraded += 1;
                    self.unlearned += 1;
                }
                if delta_hr <= 0.0 && self.unlearned >= 10 {
                    self.lambda = self.lambda_reset;
                    self.unlearned = 0;
                } else if delta_hr < 0.0 {
                    if self.degraded >= 10 {
                        self.lambda = self.lambda_reset;
                        self.degraded = 0;
                    } else if self.lambda >= 1.0 {
                        self.lambda = 0.9;
                    } else if self.lambda <= 0.001 {
                        self.lambda = 0.005;
                    } else if self.random() < 0.5 {
                        self.lambda = f64::min(self.lambda * 1.25, 1.0);
                    } else {
                        self.lambda = f64::max(self.lambda * 0.75, 0.001);
                    }
                }
            }
        }
        self.lambda_before = [self.lambda, self.lambda_before[0]];
        self.hr = hr;
        self.hits = 0;
    }

    fn demoted(&self) -> usize {
        self.r.iter().filter(|page| page.demoted).count()
    }

    fn new_in_history(&self) -> usize {
        self.histories[0].iter().filter(|page| page.new).count()
    }

    fn demote(&mut self) {
        if !self.sr.is_empty() {
            let page = self.sr.remove(0);
            self.r.push(Page { demoted: true, ..page });
        }
    }

    fn evict(&mut self) -> u64 {
        let all = self.sr.iter().chain(&self.r);
        let lfu = all.min_by_key(|page| (page.freq, u64::MAX - page.time)).expect("a page").block;
        let lru = self.r.first().or(self.sr.first()).expect("a page").block;
        let expert = usize::from(self.random() >= self.w[0]);
        let victim = [lru, lfu][expert];
        let mut page = None;
        for list in [&mut self.sr, &mut self.r] {
            if let Some(at) = list.iter().position(|page| page.block == victim) {
                page = Some(list.remove(at));
            }
        }
        let page = page.expect("it is resident");
        if lru != lfu && self.history_most > 0 {
            if self.histories[expert].len() == self.history_most {
                self.histories[expert].remove(0);
            }
            self.histories[expert].push(Page { demoted: false, ..page });
        }
        victim
    }
}

impl Model for Cacheus {
    fn access(&mut self, block: u64) -> Outcome {
        self.t += 1;
        if self.t.is_multiple_of(self.n as u64) {
            self.update_learning_rate();
        }
        let of_block = |list: &Vec<Page>| list.iter().position(|page| page.block == block);
        if let Some(at) = of_block(&self.sr) {
            let page = self.sr.remove(at);
            self.sr.push(Page { freq: page.freq + 1, time: self.t, ..page });
            self.hits += 1;
            return Outcome { hit: true, evicted: None };
        }
        if let Some(at) = of_block(&self.r) {
            if self.r[at].demoted {
                let by = (self.new_in_history() as f64 / self.demoted() as f64 + 0.5) as usize;
                self.size_sr = (self.size_sr + by.max(1)).min(self.n - 1);
                self.size_r = self.n - self.size_sr;
            }
            let page = self.r.remove(at);
            if self.sr.len() >= self.size_sr {
                self.demote();
            }
            self.sr.push(Page { freq: page.freq + 1, time: self.t, demoted: false, ..page });
            self.hits += 1;
            return Outcome { hit: true, evicted: None };
        }
        let is_full = self.sr.len() + self.r.len() == self.n;
        for expert in 0..2 {
            let Some(at) = of_block(&self.histories[expert]) else { continue };
            let page = self.histories[expert].remove(at);
            if expert == 0 && page.new {
                let by = (self.demoted() as f64 / self.new_in_history().max(1) as f64 + 0.5) as usize;
                self.size_r = (self.size_r + by.max(1)).min(self.n - 1);
                self.size_sr = self.n - self.size_r;
            }
            self.w[expert] *= (-self.lambda).exp();
            let lru = (self.w[0] / (self.w[0] + self.w[1])).clamp(1.0 - 0.99, 0.99);
            self.w = [lru, 1.0 - lru];
            let evicted = is_full.then(|| self.evict());
            self.sr.push(Page { time: self.t, demoted: false, new: false, ..page });
            while self.sr.len() >= self.size_sr && !self.sr.is_empty() {
                self.demote();
            }
            return Outcome { hit: false, evicted };
        }
        let page = Page { block, freq: 1, time: self.t, demoted: false, new: false };
        if !is_full && self.r.is_empty() && self.sr.len() < self.size_sr {
            self.sr.push(page);
            return Outcome { hit: false, evicted: None };
        }
        if !is_full && self.r.len() < self.size_r {
            self.r.push(page);
            return Outcome { hit: false, evicted: None };
        }
        let evicted = is_full.then(|| self.evict());
        self.r.push(Page { new: true, ..page });
        while self.sr.len() >= self.size_sr && !self.sr.is_empty() {
            self.demote();
        }
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.evict()
    }

    fn resize(&mut self, n: usize, ghosts: usize) {
        self.n = n;
        self.size_r = self.size_r.min(n - 1).max(1);
        self.size_sr = n - self.size_r;
        self.lambda_reset = lambda_0(n).clamp(0.001, 1.0);
        self.history_most = (n / 2).min(ghosts / 2);
        for history in &mut self.histories {
            let excess = history.len().saturating_sub(self.history_most);
            history.drain(..excess);
        }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.histories.iter().flatten().map(|page| page.block).collect()
    }
}
