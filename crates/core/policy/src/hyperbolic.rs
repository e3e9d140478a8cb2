//! Hyperbolic caching: of a random sample of blocks, the one with the fewest references for the time since it was loaded leaves.
//!
//! Time is counted in references. All blocks have the same cost and size, so the priority is n / t, the references to a block by
//! the time since it was loaded. The sample is drawn with replacement, 64 blocks by default; a cache of no more blocks than that
//! looks at all of them. Deviation: a new block has no initial priority from those that were evicted.

use crate::pool::Pool;
use crate::prefetch::prefetch;
use crate::random::SEED;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::split_mix::SplitMix64;
use crate::values::Values;
use crate::{Access, Policy, Room, Slot};

/// The history of a resident block.
#[derive(Clone, Copy, Default)]
struct Use {
    references: u64,
    loaded: u64,
}

/// Hyperbolic caching.
pub struct Hyperbolic {
    resident: Pool,
    uses: Vec<Use>,
    sample: u32,
    random: SplitMix64,
    /// The tick of the last reference.
    now: u64,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Hyperbolic {
    /// Takes out the block of a sample that has the least priority at time `now`, the first of equals.
    fn pop(&mut self, now: u64) -> Slot {
        let blocks = self.resident.len();
        let mut least: Option<(Slot, Use)> = None;
        for at in 0..self.sample.min(blocks) {
            let slot = self.resident.at(if blocks > self.sample { self.random.below(blocks) } else { at });
            let own = self.uses[slot.index()];
            if least.is_none_or(|(_, other)| has_less(own, other, now)) {
                least = Some((slot, own));
            }
        }
        let (victim, _) = least.expect("a block is resident");
        self.resident.remove(victim);
        self.forgotten = Some(victim);
        victim
    }
}

/// Whether the priority of `one` is less than that of `other`: n / t, compared without rounding.
#[inline]
fn has_less(one: Use, other: Use, now: u64) -> bool {
    let age = |own: Use| u128::from((now - own.loaded).max(1));
    u128::from(one.references) * age(other) < u128::from(other.references) * age(one)
}

impl Configured for Hyperbolic {
    const INFO: Info = Info {
        name: "hyperbolic",
        summary: "evicts, of a sample, the block with the fewest references for the time since it was loaded",
        paper: "Blankstein, Sen, Freedman, Hyperbolic Caching: Flexible Caching for Web Applications, USENIX ATC 2017",
        params: &[
            Param {
                published: None,
                key: "sample",
                default: "64",
                values: Values::Whole { least: 1, most: 4096 },
                doc: "blocks that are compared for an eviction",
            },
            SEED,
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Hyperbolic, SpecError> {
        Ok(Hyperbolic {
            resident: Pool::new(setup.slots, setup.capacity.min(setup.slots)),
            uses: vec![Use::default(); setup.slots as usize],
            sample: params.number("sample")?,
            random: SplitMix64::new(params.number("seed")?),
            now: 0,
            forgotten: None,
        })
    }
}

impl Policy for Hyperbolic {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.uses[slot.index()].references += 1;
        self.now = access.tick;
    }

    fn evict(&mut self, _incoming: Slot, access: &Access) -> Option<Slot> {
        Some(self.pop(access.tick))
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.uses[slot.index()] = Use { references: 1, loaded: access.tick };
        self.resident.push(slot);
        self.now = access.tick;
    }

    fn shed(&mut self) -> Slot {
        self.pop(self.now)
    }

    fn resize(&mut self, room: Room) {
        self.resident.grow(room.slots);
        self.uses.resize(room.slots as usize, Use::default());
    }

    fn remove(&mut self, slot: Slot) {
        self.resident.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.uses, slot.index());
    }

    fn check(&self) {
        self.resident.check();
    }
}
