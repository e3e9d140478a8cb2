//! MQ according to the paper's pseudocode, a vector for each queue.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion};

pub(crate) struct Mq {
    capacity: usize,
    life: Portion,
    out_share: Portion,
    life_time: u64,
    out_most: usize,
    current_time: u64,
    /// Head first.
    queues: Vec<Vec<u64>>,
    out: Vec<u64>,
    reference: BTreeMap<u64, u64>,
    /// When a block entered its queue; it expires a `life_time` later.
    since: BTreeMap<u64, u64>,
}

impl Mq {
    pub(crate) fn new(capacity: usize, queues: usize, life: Portion, out: Portion) -> Mq {
        let mut model = Mq {
            capacity,
            life,
            out_share: out,
            life_time: 0,
            out_most: 0,
            current_time: 0,
            queues: vec![Vec::new(); queues],
            out: Vec::new(),
            reference: BTreeMap::new(),
            since: BTreeMap::new(),
        };
        model.resize(capacity, usize::MAX);
        model
    }

    fn evict_block(&mut self) -> u64 {
        let lowest = self.queues.iter_mut().find(|queue| !queue.is_empty()).expect("a full cache");
        lowest.remove(0)
    }

    fn add_to_out(&mut self, victim: u64) {
        self.out.push(victim);
        self.limit_out();
    }

    fn limit_out(&mut self) {
        while self.out.len() > self.out_most {
            let dropped = self.out.remove(0);
            self.reference.remove(&dropped);
        }
    }

    fn adjust(&mut self) {
        self.current_time += 1;
        for k in 1..self.queues.len() {
            let Some(&head) = self.queues[k].first() else { continue };
            if self.since[&head] + self.life_time < self.current_time {
                self.queues[k].remove(0);
                self.queues[k - 1].push(head);
                self.since.insert(head, self.current_time);
            }
        }
    }
}

impl Model for Mq {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.queues.iter().any(|queue| queue.contains(&block));
        let resident: usize = self.queues.iter().map(Vec::len).sum();
        let mut evicted = None;
        self.queues.iter_mut().for_each(|queue| queue.retain(|&other| other != block));
        self.out.retain(|&other| other != block);
        if !hit && resident == self.capacity {
            evicted = Some(self.shed());
        }
        let reference = self.reference.entry(block).or_insert(0);
        *reference += 1;
        let queue_num = (0..self.queues.len()).rev().find(|&k| *reference >= 1 << k).expect("referenced at least once");
        self.queues[queue_num].push(block);
        self.since.insert(block, self.current_time);
        self.adjust();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.evict_block();
        self.add_to_out(victim);
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.capacity = capacity;
        self.life_time = self.life.of(capacity).max(1) as u64;
        self.out_most = self.out_share.of(capacity).min(ghosts);
        self.limit_out();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.out.iter().copied().collect()
    }
}
