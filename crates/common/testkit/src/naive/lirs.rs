//! LIRS as described in sections 2.3.1 to 2.3.3 of the dissertation, with S and Q as vectors.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::{Model, Portion, Settings};

pub(crate) struct Lirs {
    capacity: usize,
    l_lirs: usize,
    l_hirs: Portion,
    ghosts_most: usize,
    stack_limit: Option<f64>,
    history: Portion,
    threshold: Option<f64>,
    /// S, the top first. A block's position is its recency: the number of other blocks referenced since.
    s: Vec<u64>,
    /// Resident HIR blocks, the front first.
    q: Vec<u64>,
    lir: BTreeSet<u64>,
    /// Non-resident HIR blocks that are remembered.
    non_resident: BTreeSet<u64>,
    previous: Option<u64>,
}

impl Lirs {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Lirs {
        let mut model = Lirs {
            capacity,
            l_lirs: 0,
            l_hirs: settings.portion("hir", "1%"),
            ghosts_most: usize::MAX,
            stack_limit: settings.factor("stack", "none"),
            history: settings.history("1.5"),
            threshold: settings.factor("threshold", "100%"),
            s: Vec::new(),
            q: Vec::new(),
            lir: BTreeSet::new(),
            non_resident: BTreeSet::new(),
            previous: None,
        };
        model.resize(capacity, usize::MAX);
        model
    }

    /// The largest recency of the LIR blocks.
    fn r_max(&self) -> Option<usize> {
        self.s.iter().rposition(|block| self.lir.contains(block))
    }

    fn in_reach(&self, recency: usize) -> bool {
        match (self.r_max(), self.threshold) {
            (Some(r_max), Some(threshold)) => (recency as f64) < threshold * r_max as f64,
            _ => false,
        }
    }

    /// Stack pruning; blocks down to the threshold are kept if that is beyond R_max.
    fn prune(&mut self) {
        let inside = self.r_max().map_or(0, |r_max| r_max + 1);
        while self.s.len() > inside && !(self.threshold > Some(1.0) && self.in_reach(self.s.len() - 1)) {
            let block = self.s.pop().expect("longer than that");
            self.non_resident.remove(&block);
        }
    }

    /// Turns the LIR block with the largest recency to HIR.
    fn demote(&mut self) {
        let demoted = *self.s.iter().rfind(|other| self.lir.contains(other)).expect("there are LIR blocks");
        self.lir.remove(&demoted);
        self.q.push(demoted);
        if self.threshold.is_none_or(|threshold| threshold <= 1.0) {
            self.s.retain(|&other| other != demoted);
        }
    }

    /// Removes the resident HIR block at the front of Q.
    fn replace(&mut self) -> u64 {
        let victim = self.q.remove(0);
        if self.s.contains(&victim) {
            self.non_resident.insert(victim);
        }
        victim
    }

    /// Removes ghosts beyond the limits of S and of ghosts.
    fn shorten(&mut self) {
        let limit = self.stack_limit.map_or(usize::MAX, |limit| (limit * self.capacity as f64) as usize);
        while !self.non_resident.is_empty() && (self.s.len() > limit || self.non_resident.len() > self.ghosts_most) {
            self.forget_oldest();
        }
    }

    /// Removes the non-resident HIR block closest to the bottom of S.
    fn forget_oldest(&mut self) {
        let at =
            self.s.iter().rposition(|block| self.non_resident.contains(block)).expect("S is longer than the cache");
        let block = self.s.remove(at);
        self.non_resident.remove(&block);
    }
}

impl Model for Lirs {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.lir.contains(&block) || self.q.contains(&block);
        let mut evicted = None;
        if self.previous.replace(block) == Some(block) {
            return Outcome { hit, evicted };
        }
        if !hit && self.lir.len() + self.q.len() == self.capacity {
            evicted = Some(self.replace());
        }
        self.non_resident.remove(&block);

        let irr = self.s.iter().position(|&other| other == block);
        let becomes_lir = self.lir.contains(&block)
            || self.lir.len() < self.l_lirs
            || self.threshold.is_none()
            || irr.is_some_and(|irr| self.in_reach(irr));
        self.s.retain(|&other| other != block);
        self.s.insert(0, block);
        self.q.retain(|&other| other != block);
        if becomes_lir {
            self.lir.insert(block);
            if self.lir.len() > self.l_lirs {
                self.demote();
            }
        } else {
            self.q.push(block);
        }
        self.prune();
        self.shorten();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        if self.q.is_empty() {
            self.demote();
            self.prune();
        }
        let victim = self.replace();
        if self.previous == Some(victim) {
            self.previous = None;
        }
        self.shorten();
        self.prune();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        let least = if matches!(self.l_hirs, Portion::Share(_)) { 2 } else { 1 };
        let l_hirs = self.l_hirs.within(capacity).max(least).min(capacity - 1).max(1);
        (self.capacity, self.l_lirs) = (capacity, capacity - l_hirs);
        // The room of a full S beside LIR blocks.
        let stack = self.stack_limit.map(|limit| (limit * capacity as f64) as usize - self.l_lirs);
        self.ghosts_most = self.history.of(capacity).min(stack.unwrap_or(usize::MAX)).min(ghosts);
        while self.lir.len() > self.l_lirs {
            self.demote();
            self.prune();
        }
        self.shorten();
        self.prune();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.non_resident.clone()
    }
}
