//! Auto: the policy that chooses among policies by what each would hit.
//!
//! No paper specifies it. It stands on miniature simulations (Waldspurger et al., ATC 2017) and on a rule that was measured for it (docs/auto.md).
//!
//! 1. A reference goes to the policy in charge, which decides what leaves.
//! 2. If its block is in the sample, it also goes to each candidate's *shadow*: the candidate with a cache of the sample's share of the blocks, without
//!    contents. A cache of up to 2,047 blocks has whole shadows, and larger ones a half, a quarter and so on of their blocks, so that a shadow has 1,024 to 2,047.
//! 3. The rule (`auto/choice.rs`) decides by the shadows' hits which candidate takes charge. Nothing changes before the cache is full.
//! 4. The successor grows from an empty cache to its room a part at each sampled reference, because allocating all at once would take too long.
//! 5. Then it takes over: blocks that come, and those that are referenced again, are its own. The others follow a few at each miss, in the order in which the
//!    predecessor would evict them.
//!
//! Candidates share the slots of the host, so each has ghosts for at most one and a half times the cache, as LIRS has by default. MQ alone has four times:
//! that would take 3 % of the memory for a cache of 4 KiB blocks.
//!
//! Blocks are sampled one by one; with a candidate that uses neighbours, in extents of 32 blocks, and shadows have four times as many.

mod choice;

use crate::chosen::{Candidate, Chosen};
use crate::recency::SLOTS_MOST;
use crate::shadow::{Sample, Shadow};
use crate::spec::{Configured, Info, Param, Params, Setup, Spec, SpecError};
use crate::values::Values;
use crate::{Access, Block, Kind, Policy, Room, Slot, Stream, Succession, build, build_to_grow, ghosts};

use choice::Choice;

/// A successor's room grows by this many blocks, and their part of the slots, at a time. Slots alone would not do: a replay has more of them than a server.
const GROWTH: u32 = 1024;

/// A predecessor hands over this many blocks or ghosts at a time.
const STEP: u32 = 16;

/// A policy that grows until it can take over.
struct Growing {
    candidate: usize,
    policy: Box<dyn Policy + Send>,
    /// Its blocks and slots so far.
    blocks: u32,
    slots: u32,
}

/// Of the references of this many shadow sizes, older ones count half.
const RECENT: u64 = 64;

/// Sampled references and the hits of each shadow, of which older ones count less.
#[derive(Default)]
struct Recent {
    references: u64,
    hits: Vec<u64>,
}

impl Recent {
    fn note(&mut self, hits: u32, most: u64) {
        self.references += 1;
        for (at, count) in self.hits.iter_mut().enumerate() {
            *count += u64::from(hits >> at & 1);
        }
        if self.references >= most {
            self.references /= 2;
            self.hits.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

/// The policy in charge, and the shadows that it is chosen by.
pub struct Auto {
    policy: Succession,
    growing: Option<Growing>,
    candidates: Vec<Spec>,
    shadows: Vec<Shadow>,
    choice: Choice,
    recent: Recent,
    sample: Sample,
    /// Whether the cache was full once.
    full: bool,
    changes: u64,
    room: Room,
    setup: Setup,
}

impl Auto {
    #[inline(always)]
    fn note(&mut self, access: &Access, hit: bool) {
        if self.sample.takes(access.block) {
            self.sampled(access, hit);
        }
    }

    #[cold]
    #[inline(never)]
    fn sampled(&mut self, access: &Access, hit: bool) {
        let mut hits = 0;
        for (at, shadow) in self.shadows.iter_mut().enumerate() {
            hits |= u32::from(shadow.reference(access)) << at;
        }
        if !self.full {
            return;
        }
        self.recent.note(hits, RECENT * u64::from(self.sample.of(self.room.capacity).max(1)));
        let due = self.choice.note(hits, hit);
        if self.growing.is_some() {
            self.grow();
        } else if let Some(candidate) = due.filter(|_| !self.policy.is_pending()) {
            let Room { capacity, slots, ghosts } = self.room;
            let setup = Setup { capacity, slots, ghosts, ..self.setup.clone() };
            let policy = build_to_grow(&self.candidates[candidate], 1, &setup).expect("its shadow was built");
            self.growing = Some(Growing { candidate, policy, blocks: 0, slots: 1 });
            self.grow();
        }
    }

    /// Grows the successor by a step; after the last one, it takes over.
    fn grow(&mut self) {
        let Growing { candidate, mut policy, blocks, slots: before } = self.growing.take().expect("something grows");
        let Room { capacity, slots, ghosts } = self.room;
        let blocks = blocks.saturating_add(GROWTH).min(capacity);
        let part = |count: u32| (u64::from(count) * u64::from(blocks) / u64::from(capacity)) as u32;
        let slots = part(slots).max(before);
        policy.resize(Room { capacity: blocks, slots, ghosts: part(ghosts) });
        if blocks < capacity {
            self.growing = Some(Growing { candidate, policy, blocks, slots });
            return;
        }
        self.policy.succeed(policy, self.room);
        self.choice.put_in_charge(candidate);
        self.changes += 1;
    }

    /// Fits the sample and the shadows to the room.
    fn fit(&mut self) {
        let sample = self.sample.resize(self.room.capacity);
        let before = std::mem::replace(&mut self.sample, sample);
        let (capacity, ghosts) = shadow_room(sample, self.room.capacity);
        for shadow in &mut self.shadows {
            if sample.bits > before.bits {
                shadow.retain(|block| sample.takes(block));
            }
            shadow.resize(capacity, ghosts);
        }
        match sample.bits == before.bits {
            true => self.choice.resize(capacity),
            false => self.choice.rescale(capacity, 1 << before.bits, 1 << sample.bits),
        }
    }
}

/// The most ghosts of any candidate.
pub(crate) fn ghosts_most(capacity: u32) -> u32 {
    capacity.saturating_add(capacity.div_ceil(2))
}

/// Blocks and ghosts of a shadow in a cache of `capacity` blocks. The host's room for ghosts is not asked: a replay has less if the trace has few blocks.
fn shadow_room(sample: Sample, capacity: u32) -> (u32, u32) {
    (sample.of(capacity).max(1), sample.of(ghosts_most(capacity)))
}

impl Configured for Auto {
    const INFO: Info = Info {
        name: "auto",
        summary: "puts the policy in charge that hits most in miniature simulations of several, if its lead pays for the change",
        paper: "Waldspurger et al., Cache Modeling and Optimization using Miniature Simulations, USENIX ATC 2017 (simulations only)",
        params: &[
            Param {
                published: None,
                key: "candidates",
                default: "lirs+s3-fifo+w-tinylfu+mq",
                values: Values::Policies,
                doc: "the policies to choose among; the first begins",
            },
            Param {
                published: None,
                key: "shadow",
                default: "1024",
                values: Values::Whole { least: 64, most: 1 << 20 },
                doc: "blocks that a simulation of a candidate has at least, if the cache has so many",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        let all = params
            .policies("candidates")?
            .iter()
            .map(|spec| ghosts(spec, capacity))
            .collect::<Result<Vec<u32>, _>>()?;
        Ok(all.into_iter().max().unwrap_or(0).min(ghosts_most(capacity)))
    }

    fn new(setup: &Setup, params: &Params) -> Result<Auto, SpecError> {
        let candidates = params.policies("candidates")?;
        if setup.slots > SLOTS_MOST {
            return Err(SpecError::TooLarge { policy: Auto::INFO.name, slots: setup.slots, most: SLOTS_MOST });
        }
        let Setup { capacity, slots, .. } = *setup;
        let room = Room { capacity, slots, ghosts: setup.ghosts.min(ghosts_most(capacity)) };
        let setup = &Setup { ghosts: room.ghosts, ..setup.clone() };
        let extents = candidates.iter().any(|spec| spec.info().spatial);
        let sample = Sample::new(capacity, params.number("shadow")?, extents);
        let (size, ghosts) = shadow_room(sample, capacity);
        let shadows =
            candidates.iter().map(|spec| Shadow::new(spec, size, ghosts, setup)).collect::<Result<Vec<_>, _>>()?;
        Ok(Auto {
            policy: Succession::new(build(&candidates[0], setup)?, room),
            growing: None,
            choice: Choice::new(candidates.len(), size),
            recent: Recent { references: 0, hits: vec![0; candidates.len()] },
            candidates,
            shadows,
            sample,
            full: false,
            changes: 0,
            room,
            setup: setup.clone(),
        })
    }
}

impl Policy for Auto {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.policy.hit(slot, access);
        self.note(access, true);
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.full = true;
        self.policy.evict(incoming, access)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.policy.insert(slot, access);
        self.note(access, false);
    }

    #[inline]
    fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        if self.policy.is_pending() {
            let mut reference = |slot| Access { block: block(slot), stream: Stream(0), kind: Kind::Read, ..*access };
            self.policy.step(STEP, &mut reference);
            drop(self.policy.take_retired());
        }
    }

    fn shed(&mut self) -> Slot {
        // A tenant's part can be full although it has no block to exchange.
        self.full = true;
        self.policy.shed()
    }

    fn resize(&mut self, room: Room) {
        self.room = Room { ghosts: room.ghosts.min(ghosts_most(room.capacity)), ..room };
        self.policy.resize(self.room);
        self.fit();
    }

    fn slots_most(&self) -> u32 {
        let growing = self.growing.as_ref().map_or(SLOTS_MOST, |growing| growing.policy.slots_most());
        growing.min(self.policy.slots_most()).min(SLOTS_MOST)
    }

    fn remove(&mut self, slot: Slot) {
        self.policy.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.policy.take_forgotten()
    }

    fn check(&self) {
        self.policy.check();
        self.shadows.iter().for_each(Shadow::check);
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.policy.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.policy.approach(slot);
    }

    fn chosen(&self) -> Option<Chosen> {
        let of = |(at, (policy, &hits)): (usize, (&Spec, &u64))| Candidate {
            policy: policy.clone(),
            in_charge: at == self.choice.in_charge(),
            references: self.recent.references,
            hits,
        };
        let candidates = self.candidates.iter().zip(&self.recent.hits).enumerate().map(of).collect();
        Some(Chosen { changes: self.changes, candidates })
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("changes", self.changes);
        report("in_charge", self.choice.in_charge() as u64);
        report("floor", self.choice.floor() as u64);
        for (at, spec) in self.candidates.iter().enumerate() {
            report(spec.info().name, self.choice.behind(at) as u64);
        }
    }
}
