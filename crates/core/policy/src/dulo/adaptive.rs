//! DULO without a bank size, which leaves the order to CLOCK where its own saves nothing; beyond the paper.
//!
//! * A bank has an eighth of the paper's size, and a sequence continues across banks: blocks of the last four that are
//!   still in the evicting section join their neighbours and move with them (`Sequences::join`). The evicting section
//!   has the rest of the paper's bank, so that both together are as large as the paper's.
//! * Two caches without data see a sample of the references: one orders its blocks by DULO, the other by CLOCK. Each counts
//!   what its misses would cost: `position` for a block whose predecessor on disk was not loaded just before, and `transfer`
//!   for each block. The costs of the past fade. DULO decides first; once its costs are above CLOCK's, blocks leave the cache
//!   itself in CLOCK's order, until DULO's costs are below [`CLEARLY`] of CLOCK's.
//!
//! A sample consists of runs of [`RUN`] neighbouring blocks, so that it has sequences, too. It is a share of all runs that
//! leaves the two caches with [`SAMPLE`] to twice as many blocks each. A cache of fewer than that samples everything.
//!
//! A reference in the sample is looked up in two hash tables. Invalidations are not sampled. If the size of the cache changes
//! by more than an eighth, the two caches start again, empty.

use std::collections::HashMap;

use super::{Dulo, Shares};
use crate::sample::Share;
use crate::spec::{Configured, Params, Setup, SpecError};
use crate::{Access, Block, Policy, Room, Slot};

/// Blocks of a run.
const RUN: u64 = 32;
/// Least blocks of a sampled cache, if the cache itself has as many.
const SAMPLE: u32 = 16384;
/// A block is read together with the one before it if no more references are between.
const NEAR: u64 = 8;
/// Misses of CLOCK after which costs are compared and fade.
const PERIOD: u64 = 64;
/// DULO decides again if its costs are below this share of CLOCK's.
const CLEARLY: f64 = 0.97;
/// The share of the costs that is left after a period.
const LEFT: f64 = 1.0 - 1.0 / 256.0;

/// A cache without data.
struct Cache {
    dulo: Dulo,
    capacity: u32,
    slots: HashMap<Block, Slot>,
    /// The block of each slot, and the tick at which it was loaded.
    loaded: Vec<(Block, u64)>,
    free: Vec<Slot>,
    misses: u64,
    cost: f64,
}

impl Cache {
    fn new(setup: &Setup, params: &Params, rate: u32, plain: bool) -> Result<Cache, SpecError> {
        let capacity = setup.capacity / rate;
        let shares = Shares::new(setup, params)?;
        let (bank, buffer) = shares.divide(setup.capacity);
        let bank = (bank / rate).max(1);
        let sizes = (bank, (buffer / rate).min(capacity - bank));
        let sampled = Setup { capacity, slots: capacity + 1, ..setup.clone() };
        let mut dulo = Dulo::divided(&sampled, params, shares, sizes)?;
        dulo.sections.plain = plain;
        let nothing = (Block { volume: 0, index: 0 }, 0);
        Ok(Cache {
            dulo,
            capacity,
            slots: HashMap::new(),
            loaded: vec![nothing; capacity as usize + 1],
            free: (0..=capacity).map(Slot).collect(),
            misses: 0,
            cost: 0.0,
        })
    }

    fn access(&mut self, access: &Access) {
        let block = access.block;
        if let Some(&slot) = self.slots.get(&block) {
            self.dulo.hit(slot, access);
            return;
        }
        self.misses += 1;
        let before = block.index.checked_sub(1).and_then(|index| self.slots.get(&Block { index, ..block }));
        let continues = before.is_some_and(|slot| access.tick - self.loaded[slot.index()].1 <= NEAR);
        self.cost += self.dulo.sections.miss_cost(continues);
        let slot = self.free.pop().expect("there is one slot more than blocks");
        if self.slots.len() == self.capacity as usize {
            let victim = self.dulo.evict(slot, access).expect("DULO keeps what comes in");
            self.dulo.take_forgotten();
            self.slots.remove(&self.loaded[victim.index()].0);
            self.free.push(victim);
        }
        self.dulo.insert(slot, access);
        self.slots.insert(block, slot);
        self.loaded[slot.index()] = (block, access.tick);
    }
}

/// DULO on CLOCK with `adapt=1`.
pub(super) struct Adaptive {
    dulo: Dulo,
    params: Params,
    setup: Setup,
    sample: Sample,
}

/// The sampled caches.
struct Sample {
    share: Share,
    dual: Cache,
    clock: Cache,
    /// Whether CLOCK decides.
    plain: bool,
    /// The misses of CLOCK at which costs are compared next.
    next: u64,
}

impl Sample {
    fn new(setup: &Setup, params: &Params) -> Result<Sample, SpecError> {
        let rate = (setup.capacity / SAMPLE).max(1);
        Ok(Sample {
            share: Share::new(1.0 / f64::from(rate)).expect("a rate"),
            dual: Cache::new(setup, params, rate, false)?,
            clock: Cache::new(setup, params, rate, true)?,
            plain: false,
            next: PERIOD,
        })
    }

    fn access(&mut self, access: &Access) {
        if !self.share.takes(Block { index: access.block.index / RUN, ..access.block }) {
            return;
        }
        self.dual.access(access);
        self.clock.access(access);
        if self.clock.misses < self.next {
            return;
        }
        self.next = self.clock.misses + PERIOD;
        let limit = if self.plain { CLEARLY * self.clock.cost } else { self.clock.cost };
        self.plain = self.dual.cost > limit;
        self.dual.cost *= LEFT;
        self.clock.cost *= LEFT;
    }
}

impl Adaptive {
    pub(super) fn new(setup: &Setup, params: &Params) -> Result<Adaptive, SpecError> {
        let dulo = Dulo::new(setup, params)?;
        Ok(Adaptive { dulo, params: params.clone(), setup: setup.clone(), sample: Sample::new(setup, params)? })
    }

    #[inline]
    fn observe(&mut self, access: &Access) {
        self.sample.access(access);
        self.dulo.sections.plain = self.sample.plain;
    }
}

impl Policy for Adaptive {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.observe(access);
        self.dulo.hit(slot, access);
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.dulo.evict(incoming, access)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.observe(access);
        self.dulo.insert(slot, access);
    }

    fn shed(&mut self) -> Slot {
        self.dulo.shed()
    }

    fn resize(&mut self, room: Room) {
        self.dulo.resize(room);
        if room.capacity.abs_diff(self.setup.capacity) > self.setup.capacity / 8 {
            self.setup.capacity = room.capacity;
            self.sample = Sample::new(&self.setup, &self.params).expect("the parameters are valid");
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.dulo.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.dulo.take_forgotten()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.dulo.warm(slot);
    }

    fn check(&self) {
        self.dulo.check();
        for cache in [&self.sample.dual, &self.sample.clock] {
            cache.dulo.check();
            assert!(cache.slots.len() <= cache.capacity as usize, "more blocks in a sampled cache than fit");
            assert!(cache.slots.iter().all(|(block, slot)| cache.loaded[slot.index()].0 == *block), "a slot's block");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.dulo.gauges(report);
        report("clock_decides", self.dulo.sections.plain.into());
    }
}
