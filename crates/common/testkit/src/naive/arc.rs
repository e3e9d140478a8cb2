//! ARC as in Figure 4 of its paper, with the most recently used block of each list first.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::{Model, take};

pub(crate) struct Arc {
    c: usize,
    ghosts_most: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl Arc {
    pub(crate) fn new(c: usize) -> Arc {
        Arc { c, ghosts_most: usize::MAX, p: 0.0, t1: Vec::new(), t2: Vec::new(), b1: Vec::new(), b2: Vec::new() }
    }

    fn replace(&mut self, x_in_b2: bool) -> Option<u64> {
        let t1 = self.t1.len() as f64;
        let victim;
        if t1 >= 1.0 && ((x_in_b2 && t1 == self.p) || t1 > self.p) {
            victim = self.t1.pop()?;
            self.b1.insert(0, victim);
        } else {
            victim = self.t2.pop()?;
            self.b2.insert(0, victim);
        }
        Some(victim)
    }
}

/// Trims the ghosts to the directory of a cache of `c` and to the limit of a host: the last of each list is the oldest.
pub(super) fn fit(c: usize, ghosts_most: usize, [t1, t2]: [usize; 2], b1: &mut Vec<u64>, b2: &mut Vec<u64>) {
    b1.truncate(c.saturating_sub(t1));
    b2.truncate((2 * c).saturating_sub(t1 + t2 + b1.len()));
    while b1.len() + b2.len() > ghosts_most {
        if b1.len() >= b2.len() {
            b1.pop()
        } else {
            b2.pop()
        };
    }
}

impl Arc {
    fn fit(&mut self) {
        fit(self.c, self.ghosts_most, [self.t1.len(), self.t2.len()], &mut self.b1, &mut self.b2);
    }
}

impl Model for Arc {
    fn access(&mut self, x: u64) -> Outcome {
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.insert(0, x);
            return Outcome { hit: true, evicted: None };
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        // If a frame is free, nothing is replaced.
        let full = self.t1.len() + self.t2.len() == self.c;
        let mut evicted = None;
        if self.b1.contains(&x) {
            self.p = f64::min(self.c as f64, self.p + f64::max(b2 / b1, 1.0));
            evicted = if full { self.replace(false) } else { None };
            take(&mut self.b1, x);
            self.t2.insert(0, x);
        } else if self.b2.contains(&x) {
            self.p = f64::max(0.0, self.p - f64::max(b1 / b2, 1.0));
            evicted = if full { self.replace(true) } else { None };
            take(&mut self.b2, x);
            self.t2.insert(0, x);
        } else {
            let l1 = self.t1.len() + self.b1.len();
            let l2 = self.t2.len() + self.b2.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop();
                    evicted = if full { self.replace(false) } else { None };
                } else {
                    evicted = self.t1.pop();
                }
            } else if l1 < self.c && l1 + l2 >= self.c {
                if l1 + l2 == 2 * self.c {
                    self.b2.pop();
                }
                evicted = if full { self.replace(false) } else { None };
            }
            self.t1.insert(0, x);
        }
        self.fit();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = match self.t2.is_empty() {
            true => {
                let victim = self.t1.pop().expect("a block");
                self.b1.insert(0, victim);
                victim
            }
            false => self.replace(false).expect("a block"),
        };
        self.fit();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.p = f64::min(self.p * capacity as f64 / self.c as f64, capacity as f64);
        (self.c, self.ghosts_most) = (capacity, ghosts);
        self.fit();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.b1.iter().chain(&self.b2).copied().collect()
    }
}
