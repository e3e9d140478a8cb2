//! CAR as in Figure 2 of its paper. The head of each clock, and the least recently used page of each ghost list, is
//! first.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::arc::fit;
use crate::naive::{Model, take};

pub(crate) struct Car {
    c: usize,
    ghosts_most: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
    reference_bits: BTreeSet<u64>,
}

impl Car {
    pub(crate) fn new(c: usize) -> Car {
        let empty = Vec::new;
        Car {
            c,
            ghosts_most: usize::MAX,
            p: 0.0,
            t1: empty(),
            t2: empty(),
            b1: empty(),
            b2: empty(),
            reference_bits: BTreeSet::new(),
        }
    }

    fn replace(&mut self) -> u64 {
        loop {
            if self.t1.len() as f64 >= f64::max(1.0, self.p) || self.t2.is_empty() {
                let head = self.t1.remove(0);
                if !self.reference_bits.remove(&head) {
                    self.b1.push(head);
                    return head;
                }
                self.t2.push(head);
            } else {
                let head = self.t2.remove(0);
                if !self.reference_bits.remove(&head) {
                    self.b2.push(head);
                    return head;
                }
                self.t2.push(head);
            }
        }
    }
}

impl Car {
    fn fit(&mut self) {
        self.b1.reverse();
        self.b2.reverse();
        fit(self.c, self.ghosts_most, [self.t1.len(), self.t2.len()], &mut self.b1, &mut self.b2);
        self.b1.reverse();
        self.b2.reverse();
    }
}

impl Model for Car {
    fn access(&mut self, x: u64) -> Outcome {
        if self.t1.contains(&x) || self.t2.contains(&x) {
            self.reference_bits.insert(x);
            return Outcome { hit: true, evicted: None };
        }
        let in_history = self.b1.contains(&x) || self.b2.contains(&x);
        let mut evicted = None;
        if self.t1.len() + self.t2.len() == self.c {
            evicted = Some(self.replace());
            if !in_history && self.t1.len() + self.b1.len() == self.c {
                self.b1.remove(0);
            } else if !in_history && self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() == 2 * self.c {
                self.b2.remove(0);
            }
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if !in_history {
            self.t1.push(x);
        } else if take(&mut self.b1, x) {
            self.p = f64::min(self.p + f64::max(1.0, b2 / b1), self.c as f64);
            self.t2.push(x);
        } else {
            take(&mut self.b2, x);
            self.p = f64::max(self.p - f64::max(1.0, b1 / b2), 0.0);
            self.t2.push(x);
        }
        self.fit();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.replace();
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
