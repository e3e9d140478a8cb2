//! Unified level-aware caching (ULC) as decider: it decides for memory and for all levels (`nigh-tier`). `placement.rs` has the
//! blocks follow. Numbers of sections are those of S. Jiang's dissertation (2004).

use std::collections::VecDeque;

use nigh_control::Index;
use nigh_policy::{Access, Policy, Room, Setup, Slot, Spec};
use nigh_tier::{Move, Tier, Ulc};

use crate::config::Config;
use crate::decider::{Decider, Successor, checked, ghosts_of};
use crate::error::ConfigError;

/// Names of the gauges, by level.
const BLOCKS: [&str; 3] = ["memory", "level 1", "level 2"];
const DEMOTIONS: [&str; 3] = ["demotions to level 1", "demotions to level 2", ""];

/// The blocks that ULC keeps at a level of `places`. The others receive blocks before those that make room for them have left.
fn kept(places: u32) -> u32 {
    places - (places / 64).clamp(1, 1024).min(places - 1)
}

/// As [`Decider::ghosts`]: the blocks that only lower levels have, and those that no level has.
pub(crate) fn ghosts(spec: &Spec, levels: &[u32], capacity: u32) -> Result<u32, ConfigError> {
    let below: u64 = levels.iter().map(|&places| u64::from(kept(places))).sum();
    let all = u32::try_from(below + u64::from(capacity)).unwrap_or(u32::MAX);
    let below = u32::try_from(below).unwrap_or(u32::MAX);
    checked(below.saturating_add(ghosts_of(spec, all)?), capacity)
}

pub(crate) struct Unified {
    ulc: Ulc,
    spec: Spec,
    /// Places of the levels below memory.
    levels: Vec<u32>,
    /// Which of them are switched off.
    off: Vec<bool>,
    /// Of the last reference.
    moves: Vec<Move>,
    /// Moves from levels below memory, to be carried out.
    orders: VecDeque<Move>,
    forgotten: Vec<Slot>,
    /// It was referenced when it asked for room, and is inserted next.
    incoming: Option<Slot>,
}

impl Unified {
    pub(crate) fn new(config: &Config, setup: &Setup) -> Result<Unified, ConfigError> {
        let (spec, levels) = (config.policy.clone(), config.levels.clone());
        let mut capacities = vec![setup.capacity];
        capacities.extend(levels.iter().map(|&places| kept(places)));
        let mut unified = Unified {
            ulc: Ulc::new(setup.slots, &capacities),
            off: vec![false; levels.len()],
            spec,
            levels,
            moves: Vec::new(),
            orders: VecDeque::new(),
            forgotten: Vec::new(),
            incoming: None,
        };
        unified.limit(setup.capacity);
        Ok(unified)
    }

    /// Limits the stack for `capacity` blocks in memory.
    fn limit(&mut self, capacity: u32) {
        let below: u32 = self.levels.iter().map(|&places| kept(places)).sum();
        let all = ghosts(&self.spec, &self.levels, capacity).expect("it was asked before");
        self.ulc.limit_ghosts(all - below, &mut self.moves);
        self.settle();
    }

    /// Passes on what has to be done about the last moves. Returns the block that left memory.
    fn settle(&mut self) -> Option<Slot> {
        let mut left = None;
        for step in self.moves.drain(..) {
            match step {
                Move::Demote(slot, 0) | Move::Drop(slot, 0) => left = Some(slot),
                Move::Demote(..) | Move::Drop(..) => self.orders.push_back(step),
                Move::Forget(slot) => self.forgotten.push(slot),
            }
        }
        left
    }
}

impl Policy for Unified {
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.ulc.reference(slot, &mut self.moves);
        self.settle();
    }

    fn evict(&mut self, incoming: Slot, _access: &Access) -> Option<Slot> {
        let belongs = self.ulc.reference(incoming, &mut self.moves).to;
        let left = self.settle();
        self.incoming = left.is_some().then_some(incoming);
        assert_eq!(left.is_some(), belongs == Some(0), "memory is full");
        left
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.incoming.take() == Some(slot) {
            return;
        }
        let belongs = self.ulc.reference(slot, &mut self.moves).to;
        assert_eq!((belongs, self.settle()), (Some(0), None), "there is room in memory");
    }

    fn shed(&mut self) -> Slot {
        self.ulc.shed(0, &mut self.moves);
        self.settle().expect("a block leaves memory")
    }

    fn resize(&mut self, room: Room) {
        self.ulc.grow(room.slots);
        self.ulc.bound(0, room.capacity);
        self.limit(room.capacity);
    }

    fn remove(&mut self, slot: Slot) {
        self.ulc.remove(slot, &mut self.moves);
        self.settle();
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    fn check(&self) {
        self.ulc.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("known", self.ulc.known().into());
        for (level, name) in (0..).zip(&BLOCKS[..=self.levels.len()]) {
            report(name, self.ulc.blocks(level).into());
        }
        for (name, &demotions) in DEMOTIONS.iter().zip(&self.ulc.counts().demotions[..self.levels.len()]) {
            report(name, demotions);
        }
    }
}

impl Decider for Unified {
    fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError> {
        ghosts(&self.spec, &self.levels, capacity)
    }

    fn succeed(&mut self, next: Successor, _slots: u32) -> Result<(), Successor> {
        Err(next)
    }

    fn is_pending(&self) -> bool {
        (0..).zip(&self.off).any(|(at, &off)| off && self.ulc.blocks(at + 1) > 1)
    }

    /// Empties levels that are switched off: what is believed to be there would otherwise be looked for in vain.
    fn step(&mut self, most: u32, _tick: u64, _index: &dyn Index) -> bool {
        for at in 0..self.off.len() {
            let level = at as u8 + 1;
            for _ in 0..most {
                if self.off[at] && self.ulc.blocks(level) > 1 {
                    self.ulc.shed(level, &mut self.moves);
                }
            }
        }
        self.settle();
        self.is_pending()
    }

    fn level(&self, slot: Slot) -> Option<usize> {
        self.ulc.level(slot).map(usize::from)
    }

    fn next_order(&mut self) -> Option<Slot> {
        self.orders.pop_front().map(|step| match step {
            Move::Demote(slot, _) | Move::Drop(slot, _) | Move::Forget(slot) => slot,
        })
    }

    fn lose(&mut self, slot: Slot, level: usize) {
        self.ulc.lose(slot, level as u8, &mut self.moves);
        self.settle();
    }

    fn lose_level(&mut self, level: usize) {
        self.off[level - 1] = true;
        self.ulc.bound(level as u8, 1);
    }

    fn restore(&mut self, slot: Slot, level: usize) -> bool {
        self.ulc.restore(slot, level as u8)
    }
}
