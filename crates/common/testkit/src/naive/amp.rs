//! AMP: a partition for each piece of code, with MRU, LRU or LFU by how recent the blocks are that it uses again.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion, Reference, Settings, take};

/// A context: one piece of code.
#[derive(Default)]
struct Context {
    number: i64,
    /// The blocks that it used last, the oldest first, also those that left.
    used: Vec<u64>,
    /// The R of each reference that has one.
    recencies: Vec<f64>,
    /// For each reference, whether it was to a block in `used`.
    known: Vec<bool>,
    target: i64,
}

/// The whole cache.
pub(super) struct Amp {
    capacity: usize,
    history: Portion,
    room: usize,
    contexts: BTreeMap<u64, Context>,
    /// For each resident block, its references since it came.
    resident: BTreeMap<u64, u64>,
    /// Evicted blocks, the latest first.
    ghosts: Vec<u64>,
    drawn: u64,
}

/// The average in which each value weighs 31/32 of the next one.
fn average(first: f64, values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(first, |mean, value| mean + (value - mean) / 32.0)
}

/// The number at this position of SplitMix64 from 0, counted from 1.
fn split_mix(position: u64) -> u64 {
    let mixed = position.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Amp {
    pub(super) fn new(capacity: usize, settings: Settings) -> Amp {
        let (history, room) = (settings.history("1"), usize::MAX);
        let (contexts, resident, ghosts) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Amp { capacity, history, room, contexts, resident, ghosts, drawn: 0 }
    }

    fn resident_of(&self, context: &Context) -> i64 {
        context.used.iter().filter(|block| self.resident.contains_key(block)).count() as i64
    }

    fn ghosts_of(&self, code: u64) -> i64 {
        let used = &self.contexts[&code].used;
        used.iter().filter(|block| self.ghosts.contains(block)).count() as i64
    }

    fn victim(&self) -> u64 {
        let with_blocks = self.contexts.values().filter(|context| self.resident_of(context) > 0);
        let over = |context: &Context| (self.resident_of(context) - context.target, -context.number);
        let context = with_blocks.max_by_key(|context| over(context)).expect("a block is resident");
        let blocks: Vec<u64> = context.used.iter().copied().filter(|block| self.resident.contains_key(block)).collect();
        let known = average(0.0, context.known.iter().map(|&known| f64::from(u8::from(known))));
        let recency = context.recencies.first().map(|&first| average(first, context.recencies.iter().copied()));
        match recency {
            Some(recency) if known >= 0.1 && recency > 0.6 => blocks[0],
            Some(recency) if known >= 0.1 && recency >= 0.4 => {
                *blocks.iter().min_by_key(|block| self.resident[block].min(8)).expect("a block")
            }
            _ => blocks[blocks.len() - 1],
        }
    }

    fn evict(&mut self) -> u64 {
        let victim = self.victim();
        self.resident.remove(&victim);
        self.ghosts.insert(0, victim);
        victim
    }

    fn forget(&mut self) {
        let most = self.history.of(self.capacity).min(self.room);
        while self.ghosts.len() > most {
            let oldest = self.ghosts.pop().expect("there are ghosts");
            self.contexts.values_mut().for_each(|context| {
                take(&mut context.used, oldest);
            });
        }
    }

    /// The partition of `code` grows, because one of its ghosts is hit.
    fn grow(&mut self, code: u64) {
        let all: i64 = self.contexts.values().map(|context| context.target).sum();
        if all == 0 {
            return;
        }
        self.drawn += 1;
        let mut unit = (split_mix(self.drawn) % all as u64) as i64;
        let mut by_number: Vec<(i64, u64)> =
            self.contexts.iter().map(|(&code, context)| (context.number, code)).collect();
        by_number.sort_unstable();
        let mut drawn = by_number.into_iter().filter(|(_, code)| {
            unit -= self.contexts[code].target;
            unit < 0
        });
        let from = drawn.next().expect("a context with a target").1;
        drop(drawn);
        if from != code {
            let step = (self.ghosts_of(from) / self.ghosts_of(code)).max(1).min(self.contexts[&from].target);
            self.contexts.get_mut(&from).expect("known").target -= step;
            self.contexts.get_mut(&code).expect("known").target += step;
        }
    }
}

impl Model for Amp {
    fn access(&mut self, block: u64) -> Outcome {
        self.reference(Reference::by(0, block))
    }

    fn reference(&mut self, Reference { code, block, .. }: Reference) -> Outcome {
        let hit = self.resident.contains_key(&block);
        let evicted = (!hit && self.resident.len() == self.capacity).then(|| self.evict());
        let number = self.contexts.len() as i64;
        let context = self.contexts.entry(code).or_insert_with(|| Context { number, ..Context::default() });
        let older = context.used.iter().position(|&other| other == block);
        context.known.push(older.is_some());
        if let Some(older) = older.filter(|_| context.used.len() > 1) {
            context.recencies.push(older as f64 / (context.used.len() - 1) as f64);
        }
        if self.ghosts.contains(&block) {
            let owner = self.contexts.iter().find(|(_, context)| context.used.contains(&block));
            let owner = *owner.expect("a ghost has a context").0;
            self.grow(owner);
            take(&mut self.ghosts, block);
        }
        let all: i64 = self.contexts.values().map(|context| context.target).sum();
        self.contexts.values_mut().for_each(|context| {
            take(&mut context.used, block);
        });
        let context = self.contexts.get_mut(&code).expect("known");
        context.used.push(block);
        context.target += i64::from(!hit && all < self.capacity as i64);
        *self.resident.entry(block).or_insert(0) += 1;
        self.forget();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.evict();
        self.forget();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        (self.capacity, self.room) = (capacity, ghosts);
        while self.contexts.values().map(|context| context.target).sum::<i64>() / 2 >= capacity as i64 {
            self.contexts.values_mut().for_each(|context| context.target /= 2);
        }
        self.forget();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.ghosts.iter().copied().collect()
    }
}
