//! CACHEUS: a scan-resistant LRU or a churn-resistant LFU chooses each victim, at random by weights; an expert whose victims are
//! referenced again loses weight, at a rate that follows the hit ratio.
//!
//! SR-LRU has two lists. New blocks enter R, and a block that is referenced again moves to SR, whose oldest block is demoted to
//! R. References to demoted blocks make SR larger, and returns of new blocks from the history make R larger. CR-LFU chooses
//! the most recently used of the blocks with the fewest references.
//!
//! The paper's program has these details, which are kept: each history has half as many blocks as the cache; a block that returns keeps its
//! count of references; if both experts choose the same block, no history has it; no weight exceeds 0.99; ratios and rates are compared
//! after they are rounded to thousandths; the first blocks enter SR until it is full, and R after that. Weights are in double precision.
//!
//! Choices: if R is empty, SR-LRU takes the oldest block of SR. A block that leaves although none comes in is chosen in the same way. A
//! change of the cache's size keeps the size of R as far as it fits, and changes that of SR.

use crate::experts::{LFU, LRU, Weights};
use crate::heap::Heap;
use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::random::SEED;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::split_mix::SplitMix64;
use crate::{Access, Policy, Room, Slot};

/// R's first share of the cache.
const R_SHARE: f64 = 0.01;
/// The range of the learning rate.
const RATE: [f64; 2] = [0.001, 1.0];
/// After so many periods without improvement, the learning rate begins again.
const PATIENCE: u32 = 10;

/// The place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Sr,
    R,
    /// In the history of an expert.
    Ghost(u8),
    /// It was a ghost until its reference in progress, and is not resident yet.
    Returning,
}

/// CACHEUS.
pub struct Cacheus {
    links: Links,
    state: Vec<State>,
    /// Most recently used first.
    sr: List,
    /// In the order in which they entered it, the last one first.
    r: List,
    sr_limit: u32,
    r_limit: u32,
    /// Of slots in R, whether they came from SR.
    is_demoted: Vec<bool>,
    /// Slots in R that came from SR.
    demoted: u32,
    /// Whether a slot entered a full cache for the first time.
    is_new: Vec<bool>,
    /// New slots in the history of SR-LRU.
    new: u32,
    /// Resident slots by references, and the last of them first.
    frequency: Heap<(u64, u64)>,
    references: Vec<u64>,
    /// The ghosts of each expert, the one evicted last first.
    histories: [List; 2],
    history_most: u32,
    weights: Weights,
    rate: Rate,
    capacity: u32,
    random: SplitMix64,
    /// References until now.
    now: u64,
    /// Whether `evict` made room for the reference in progress.
    has_made_room: bool,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

/// The learning rate and what it is adapted by: a hill climb on the hit ratio of periods as long as the cache.
#[derive(Debug)]
struct Rate {
    now: f64,
    /// At the ends of the last period and the one before.
    last: f64,
    before: f64,
    first: f64,
    /// Hits in this period.
    hits: u32,
    hit_ratio: f64,
    without_hits: u32,
    worse: u32,
}

impl Rate {
    fn new(capacity: u32) -> Rate {
        let now = first_rate(capacity);
        let first = now.clamp(RATE[0], RATE[1]);
        Rate { now, last: now, before: 0.0, first, hits: 0, hit_ratio: 0.0, without_hits: 0, worse: 0 }
    }

    /// Ends a period of `length` references.
    fn adapt(&mut self, length: u32, random: &mut SplitMix64) {
        let ratio = thousandths(f64::from(self.hits) / f64::from(length));
        let change = thousandths(ratio - self.hit_ratio);
        let step = thousandths(self.last) - thousandths(self.before);
        let gain = step * change;
        if gain != 0.0 {
            // The same direction again if the hit ratio followed the rate, and the other one if not.
            let by = (self.now * step).abs();
            self.now = if gain > 0.0 { (self.now + by).min(RATE[1]) } else { (self.now - by).max(RATE[0]) };
            (self.without_hits, self.worse) = (0, 0);
        } else if change <= 0.0 {
            self.without_hits += u32::from(change < 0.0 || ratio <= 0.0);
            self.worse += u32::from(change < 0.0);
            if self.without_hits >= PATIENCE {
                self.now = self.first;
                self.without_hits = 0;
            } else if change < 0.0 && self.worse >= PATIENCE {
                self.now = self.first;
                self.worse = 0;
            } else if change < 0.0 {
                self.jump(random);
            }
        }
        (self.before, self.last, self.hit_ratio, self.hits) = (self.last, self.now, ratio, 0);
    }

    /// A step in a random direction, or away from an end of the range.
    fn jump(&mut self, random: &mut SplitMix64) {
        self.now = if self.now >= RATE[1] {
            0.9
        } else if self.now <= RATE[0] {
            0.005
        } else if random.unit() < 0.5 {
            (self.now * 1.25).min(RATE[1])
        } else {
            (self.now * 0.75).max(RATE[0])
        };
    }
}

/// The best rate for a game of as many rounds as the cache has blocks, if nothing is known.
fn first_rate(capacity: u32) -> f64 {
    (2.0 * std::f64::consts::LN_2 / f64::from(capacity)).sqrt()
}

fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

impl Cacheus {
    /// A reference begins.
    fn begin(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(u64::from(self.capacity)) {
            self.rate.adapt(self.capacity, &mut self.random);
        }
    }

    fn key(&self, slot: Slot) -> (u64, u64) {
        (self.references[slot.index()], u64::MAX - self.now)
    }

    /// Ends the life of `slot` as a ghost, if it is one: its expert loses weight, and R grows if it should have kept a new block.
    fn regret(&mut self, slot: Slot) {
        let State::Ghost(expert) = self.state[slot.index()] else { return };
        let expert = usize::from(expert);
        self.histories[expert].unlink(&mut self.links, slot);
        self.state[slot.index()] = State::Returning;
        if expert == LRU && self.is_new[slot.index()] {
            self.new -= 1;
            let by = (f64::from(self.demoted) / f64::from(self.new.max(1)) + 0.5) as u32;
            self.r_limit = (self.r_limit + by.max(1)).min(self.capacity - 1);
            self.sr_limit = self.capacity - self.r_limit;
        }
        self.is_new[slot.index()] = false;
        self.weights.regret(expert, self.rate.now);
    }

    /// Takes out the block that leaves.
    fn retire(&mut self) -> Slot {
        let oldest = self.r.back(&self.links).or_else(|| self.sr.back(&self.links)).expect("a block is resident");
        let (_, rarest) = self.frequency.least().expect("a block is resident");
        let chosen = self.weights.choose(&mut self.random);
        let victim = if chosen == LRU { oldest } else { rarest };
        self.take_out(victim);
        if oldest == rarest || self.history_most == 0 {
            self.forget(victim);
            return victim;
        }
        if self.histories[chosen].len() >= self.history_most {
            self.forget_oldest(chosen);
        }
        self.state[victim.index()] = State::Ghost(chosen as u8);
        self.new += u32::from(chosen == LRU && self.is_new[victim.index()]);
        self.histories[chosen].push_front(&mut self.links, victim);
        victim
    }

    /// Takes a resident slot out of the cache's lists.
    fn take_out(&mut self, slot: Slot) {
        if self.state[slot.index()] == State::Sr {
            self.sr.unlink(&mut self.links, slot);
        } else {
            self.r.unlink(&mut self.links, slot);
            self.demoted -= u32::from(std::mem::take(&mut self.is_demoted[slot.index()]));
        }
        self.frequency.remove(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.state[slot.index()] = State::Unknown;
        self.forgotten.push(slot);
    }

    fn forget_oldest(&mut self, expert: usize) {
        let oldest = self.histories[expert].pop_back(&mut self.links).expect("it is not empty");
        self.new -= u32::from(expert == LRU && self.is_new[oldest.index()]);
        self.forget(oldest);
    }

    fn enter_sr(&mut self, slot: Slot) {
        self.state[slot.index()] = State::Sr;
        self.sr.push_front(&mut self.links, slot);
    }

    fn enter_r(&mut self, slot: Slot) {
        self.state[slot.index()] = State::R;
        self.r.push_front(&mut self.links, slot);
    }

    /// Moves SR's oldest block to R, if there is one.
    fn demote(&mut self) -> bool {
        let Some(oldest) = self.sr.pop_back(&mut self.links) else { return false };
        self.is_demoted[oldest.index()] = true;
        self.demoted += 1;
        self.enter_r(oldest);
        true
    }

    /// Leaves room for a block in SR.
    fn limit_sr(&mut self) {
        while self.sr.len() >= self.sr_limit && self.demote() {}
    }
}

impl Configured for Cacheus {
    const INFO: Info = Info {
        name: "cacheus",
        summary: "evicts as a scan-resistant LRU or as an LFU, at random by weights that each loses if its victims are referenced again",
        paper: "Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan, Learning Cache Replacement with CACHEUS, FAST 2021",
        params: &[SEED],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(_params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(capacity / 2 * 2)
    }

    fn new(setup: &Setup, params: &Params) -> Result<Cacheus, SpecError> {
        let (links, [sr, r, of_lru, of_lfu]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        let r_limit = ((R_SHARE * f64::from(setup.capacity) + 0.5) as u32).max(1);
        Ok(Cacheus {
            links,
            state: vec![State::Unknown; slots],
            sr,
            r,
            sr_limit: setup.capacity - r_limit,
            r_limit,
            is_demoted: vec![false; slots],
            demoted: 0,
            is_new: vec![false; slots],
            new: 0,
            frequency: Heap::new(setup.slots, setup.capacity.min(setup.slots)),
            references: vec![0; slots],
            histories: [of_lru, of_lfu],
            history_most: (setup.capacity / 2).min(setup.ghosts / 2),
            weights: Weights::equal(),
            rate: Rate::new(setup.capacity),
            capacity: setup.capacity,
            random: SplitMix64::new(params.number("seed")?),
            now: 0,
            has_made_room: false,
            forgotten: Vec::new(),
        })
    }
}

impl Policy for Cacheus {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.begin();
        self.references[slot.index()] += 1;
        self.frequency.remove(slot);
        self.frequency.push(slot, self.key(slot));
        if self.state[slot.index()] == State::Sr {
            self.sr.move_to_front(&mut self.links, slot);
        } else {
            if self.is_demoted[slot.index()] {
                // SR was too small to keep it.
                let by = (f64::from(self.new) / f64::from(self.demoted.max(1)) + 0.5) as u32;
                self.sr_limit = (self.sr_limit + by.max(1)).min(self.capacity - 1);
                self.r_limit = self.capacity - self.sr_limit;
                self.is_demoted[slot.index()] = false;
                self.demoted -= 1;
            }
            self.r.unlink(&mut self.links, slot);
            if self.sr.len() >= self.sr_limit {
                self.demote();
            }
            self.enter_sr(slot);
        }
        self.rate.hits += 1;
    }

    fn evict(&mut self, incoming: Slot, _access: &Access) -> Option<Slot> {
        self.begin();
        self.has_made_room = true;
        self.regret(incoming);
        Some(self.retire())
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        let was_full = std::mem::take(&mut self.has_made_room);
        if !was_full {
            self.begin();
            self.regret(slot);
        }
        if self.state[slot.index()] == State::Returning {
            self.enter_sr(slot);
            self.limit_sr();
        } else {
            self.references[slot.index()] = 1;
            self.is_new[slot.index()] = false;
            if !was_full && self.r.is_empty() && self.sr.len() < self.sr_limit {
                self.enter_sr(slot);
            } else if !was_full && self.r.len() < self.r_limit {
                self.enter_r(slot);
            } else {
                self.is_new[slot.index()] = true;
                self.enter_r(slot);
                self.limit_sr();
            }
        }
        self.frequency.push(slot, self.key(slot));
    }

    fn shed(&mut self) -> Slot {
        self.retire()
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        let [of_lru, of_lfu] = &mut self.histories;
        self.links.grow(room.slots, [&mut self.sr, &mut self.r, of_lru, of_lfu]);
        self.state.resize(slots, State::Unknown);
        self.is_demoted.resize(slots, false);
        self.is_new.resize(slots, false);
        self.frequency.grow(room.slots);
        self.references.resize(slots, 0);
        self.capacity = room.capacity;
        self.r_limit = self.r_limit.min(room.capacity - 1).max(1);
        self.sr_limit = room.capacity - self.r_limit;
        self.rate.first = first_rate(room.capacity).clamp(RATE[0], RATE[1]);
        self.history_most = (room.capacity / 2).min(room.ghosts / 2);
        for expert in [LRU, LFU] {
            while self.histories[expert].len() > self.history_most {
                self.forget_oldest(expert);
            }
        }
    }

    fn remove(&mut self, slot: Slot) {
        match self.state[slot.index()] {
            State::Sr | State::R => self.take_out(slot),
            State::Ghost(expert) => {
                self.histories[usize::from(expert)].unlink(&mut self.links, slot);
                self.new -= u32::from(usize::from(expert) == LRU && self.is_new[slot.index()]);
            }
            State::Unknown | State::Returning => {}
        }
        self.state[slot.index()] = State::Unknown;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        prefetch(&self.state, slot.index());
        prefetch(&self.references, slot.index());
    }

    fn check(&self) {
        let [of_lru, of_lfu] = &self.histories;
        let lists = [
            (self.sr.checked(&self.links), State::Sr),
            (self.r.checked(&self.links), State::R),
            (of_lru.checked(&self.links), State::Ghost(0)),
            (of_lfu.checked(&self.links), State::Ghost(1)),
        ];
        for (members, state) in &lists {
            assert!(
                members.iter().all(|slot| self.state[slot.index()] == *state),
                "a slot of {state:?} says otherwise"
            );
            let all = self.state.iter().filter(|&other| other == state).count();
            assert_eq!(members.len(), all, "a slot says {state:?} and is not there");
        }
        let [(sr, _), (r, _), (ghosts, _), _] = &lists;
        assert_eq!(sr.len() + r.len(), self.frequency.checked().count(), "a resident block is not in both orders");
        for (key, slot) in self.frequency.checked() {
            assert_eq!(key.0, self.references[slot.index()], "{slot:?} has another key than its references");
        }
        let marked = |slots: &[Slot], marks: &[bool]| slots.iter().filter(|slot| marks[slot.index()]).count();
        assert_eq!(marked(r, &self.is_demoted), self.demoted as usize, "demoted blocks are not counted right");
        assert_eq!(marked(sr, &self.is_demoted), 0, "a block of SR is demoted");
        assert_eq!(marked(ghosts, &self.is_new), self.new as usize, "new blocks are not counted right");
        assert_eq!(self.sr_limit + self.r_limit, self.capacity, "the limits are not those of the cache");
        assert!(self.histories.iter().all(|history| history.len() <= self.history_most), "a history is too long");
        self.weights.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("lru_weight", self.weights.lru_thousandths());
        report("r", u64::from(self.r_limit));
    }
}
