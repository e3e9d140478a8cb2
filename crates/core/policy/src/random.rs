//! RANDOM: any resident block leaves, each with the same probability.

use crate::pool::Pool;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::split_mix::SplitMix64;
use crate::values::Values;
use crate::{Access, Policy, Room, Slot};

/// The parameter of policies that choose at random.
pub(crate) const SEED: Param = Param {
    published: None,
    key: "seed",
    default: "0",
    values: Values::Whole { least: 0, most: u32::MAX as u64 },
    doc: "seed of the random choices",
};

/// Random replacement.
pub struct Random {
    resident: Pool,
    random: SplitMix64,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Random {
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = self.resident.at(self.random.below(self.resident.len()));
        self.resident.remove(victim);
        self.forgotten = Some(victim);
        victim
    }
}

impl Configured for Random {
    const INFO: Info = Info {
        name: "random",
        summary: "evicts a block chosen at random",
        paper: "Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems Journal 1966",
        params: &[SEED],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Random, SpecError> {
        Ok(Random {
            resident: Pool::new(setup.slots, setup.capacity.min(setup.slots)),
            random: SplitMix64::new(params.number("seed")?),
            forgotten: None,
        })
    }
}

impl Policy for Random {
    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.resident.push(slot);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.resident.grow(room.slots);
    }

    fn remove(&mut self, slot: Slot) {
        self.resident.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    fn check(&self) {
        self.resident.check();
    }
}
