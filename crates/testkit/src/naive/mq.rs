//! MQ after the paper's pseudocode, a vector for each queue.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::Model;

pub(crate) struct Mq {
    capacity: usize,
    life_time: u64,
    out_most: usize,
    current_time: u64,
    /// Head first.
    queues: Vec<Vec<u64>>,
    out: Vec<u64>,
    reference: BTreeMap<u64, u64>,
    expire_time: BTreeMap<u64, u64>,
}

impl Mq {
    pub(crate) fn new(capacity: usize, queues: usize, life_time: usize, out_most: usize) -> Mq {
        Mq {
            capacity,
            life_time: life_time as u64,
            out_most,
            current_time: 0,
            queues: vec![Vec::new(); queues],
            out: Vec::new(),
            reference: BTreeMap::new(),
            expire_time: BTreeMap::new(),
        }
    }

    fn evict_block(&mut self) -> u64 {
        let lowest = self.queues.iter_mut().find(|queue| !queue.is_empty()).expect("a full cache");
        lowest.remove(0)
    }

    fn add_to_out(&mut self, victim: u64) {
        self.out.push(victim);
        if self.out.len() > self.out_most {
            let dropped = self.out.remove(0);
            self.reference.remove(&dropped);
        }
    }

    fn adjust(&mut self) {
        self.current_time += 1;
        for k in 1..self.queues.len() {
            let Some(&head) = self.queues[k].first() else { continue };
            if self.expire_time[&head] < self.current_time {
                self.queues[k].remove(0);
                self.queues[k - 1].push(head);
                self.expire_time.insert(head, self.current_time + self.life_time);
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
            let victim = self.evict_block();
            self.add_to_out(victim);
            evicted = Some(victim);
        }
        let reference = self.reference.entry(block).or_insert(0);
        *reference += 1;
        let queue_num = (0..self.queues.len()).rev().find(|&k| *reference >= 1 << k).expect("referenced at least once");
        self.queues[queue_num].push(block);
        self.expire_time.insert(block, self.current_time + self.life_time);
        self.adjust();
        Outcome { hit, evicted }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.out.iter().copied().collect()
    }
}
