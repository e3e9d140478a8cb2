//! LeCaR: LRU or LFU chooses each victim, at random by weights; an expert whose victims are referenced again loses weight.
//!
//! The paper's program has these details, which are kept: a history has half as many blocks as the cache; a block that returns
//! from a history keeps its count of references, and one more; if both experts choose the same block, no history has it; no weight
//! exceeds 0.99. Of blocks with the same number of references, the least recently used one is LFU's choice (the program takes the
//! one with the least number). A block that leaves although none comes in is chosen in the same way.

use crate::experts::{LFU, LRU, Weights};
use crate::heap::Heap;
use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::random::SEED;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::split_mix::SplitMix64;
use crate::values::Values;
use crate::{Access, Policy, Room, Slot};

/// The discount of a regret as old as the cache is large (section 3).
const DISCOUNT: f64 = 0.005;

/// The place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Resident,
    /// In the history of an expert.
    Ghost(u8),
    /// It was a ghost until its reference in progress, and is not resident yet.
    Returning,
}

/// Learning Cache Replacement.
pub struct Lecar {
    links: Links,
    state: Vec<State>,
    /// Resident slots, the most recently used first.
    recency: List,
    /// Resident slots by references and last reference.
    frequency: Heap<(u64, u64)>,
    references: Vec<u64>,
    /// When each ghost left.
    left: Vec<u64>,
    /// The ghosts of each expert, the one evicted last first.
    histories: [List; 2],
    history_most: u32,
    weights: Weights,
    rate: f64,
    capacity: u32,
    random: SplitMix64,
    /// The tick of the last reference.
    now: u64,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl Lecar {
    /// An expert whose victim is referenced again at `tick` loses weight, the more the sooner.
    fn regret(&mut self, slot: Slot, tick: u64) {
        let State::Ghost(expert) = self.state[slot.index()] else { return };
        let expert = usize::from(expert);
        self.histories[expert].unlink(&mut self.links, slot);
        self.state[slot.index()] = State::Returning;
        let age = (tick - self.left[slot.index()]) as f64;
        let regret = DISCOUNT.powf(age / f64::from(self.capacity));
        self.weights.regret(expert, self.rate * regret);
    }

    /// Takes out the block that leaves at time `now`.
    fn retire(&mut self, now: u64) -> Slot {
        let oldest = self.recency.back(&self.links).expect("a block is resident");
        let (_, rarest) = self.frequency.least().expect("a block is resident");
        let chosen = self.weights.choose(&mut self.random);
        let victim = if chosen == LRU { oldest } else { rarest };
        self.recency.unlink(&mut self.links, victim);
        self.frequency.remove(victim);
        if oldest == rarest {
            self.forget(victim);
            return victim;
        }
        self.state[victim.index()] = State::Ghost(chosen as u8);
        self.left[victim.index()] = now;
        self.histories[chosen].push_front(&mut self.links, victim);
        victim
    }

    fn forget(&mut self, slot: Slot) {
        self.state[slot.index()] = State::Unknown;
        self.forgotten.push(slot);
    }

    fn limit_histories(&mut self) {
        for expert in [LRU, LFU] {
            while self.histories[expert].len() > self.history_most {
                let oldest = self.histories[expert].pop_back(&mut self.links).expect("it is not empty");
                self.forget(oldest);
            }
        }
    }
}

impl Configured for Lecar {
    const INFO: Info = Info {
        name: "lecar",
        summary: "evicts as LRU or as LFU, at random by weights that each loses if its victims are referenced again",
        paper: "Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao, Narasimhan, Driving Cache Replacement with ML-based \
                LeCaR, HotStorage 2018",
        params: &[
            Param {
                published: None,
                key: "rate",
                default: "0.45",
                values: Values::Real { least: 0.0, most: 10.0 },
                doc: "the learning rate",
            },
            SEED,
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(_params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(capacity / 2 * 2)
    }

    fn new(setup: &Setup, params: &Params) -> Result<Lecar, SpecError> {
        let (links, [recency, of_lru, of_lfu]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        Ok(Lecar {
            links,
            state: vec![State::Unknown; slots],
            recency,
            frequency: Heap::new(setup.slots, setup.capacity.min(setup.slots)),
            references: vec![0; slots],
            left: vec![0; slots],
            histories: [of_lru, of_lfu],
            history_most: (setup.capacity / 2).min(setup.ghosts / 2),
            weights: Weights::equal(),
            rate: params.real("rate")?,
            capacity: setup.capacity,
            random: SplitMix64::new(params.number("seed")?),
            now: 0,
            forgotten: Vec::new(),
        })
    }
}

impl Policy for Lecar {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.recency.move_to_front(&mut self.links, slot);
        let references = &mut self.references[slot.index()];
        *references += 1;
        let key = (*references, access.tick);
        self.frequency.remove(slot);
        self.frequency.push(slot, key);
        self.now = access.tick;
    }

    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.regret(incoming, access.tick);
        Some(self.retire(access.tick))
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.regret(slot, access.tick);
        let before = if self.state[slot.index()] == State::Returning { self.references[slot.index()] } else { 0 };
        self.references[slot.index()] = before + 1;
        self.state[slot.index()] = State::Resident;
        self.recency.push_front(&mut self.links, slot);
        self.frequency.push(slot, (before + 1, access.tick));
        self.now = access.tick;
        self.limit_histories();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.retire(self.now);
        self.limit_histories();
        victim
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        let [of_lru, of_lfu] = &mut self.histories;
        self.links.grow(room.slots, [&mut self.recency, of_lru, of_lfu]);
        self.state.resize(slots, State::Unknown);
        self.frequency.grow(room.slots);
        self.references.resize(slots, 0);
        self.left.resize(slots, 0);
        self.capacity = room.capacity;
        self.history_most = (room.capacity / 2).min(room.ghosts / 2);
        self.limit_histories();
    }

    fn remove(&mut self, slot: Slot) {
        match std::mem::replace(&mut self.state[slot.index()], State::Unknown) {
            State::Resident => {
                self.recency.unlink(&mut self.links, slot);
                self.frequency.remove(slot);
            }
            State::Ghost(expert) => self.histories[usize::from(expert)].unlink(&mut self.links, slot),
            State::Unknown | State::Returning => {}
        }
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
        let recency = self.recency.checked(&self.links);
        assert_eq!(recency.len(), self.frequency.checked().count(), "a resident block is not in both orders");
        for (key, slot) in self.frequency.checked() {
            assert_eq!(key.0, self.references[slot.index()], "{slot:?} has another key than its references");
        }
        let [of_lru, of_lfu] = &self.histories;
        let lists = [
            (recency, State::Resident),
            (of_lru.checked(&self.links), State::Ghost(0)),
            (of_lfu.checked(&self.links), State::Ghost(1)),
        ];
        for (members, state) in lists {
            assert!(members.iter().all(|slot| self.state[slot.index()] == state), "a slot of {state:?} says otherwise");
            let all = self.state.iter().filter(|&&other| other == state).count();
            assert_eq!(members.len(), all, "a slot says {state:?} and is not there");
        }
        assert!(self.histories.iter().all(|history| history.len() <= self.history_most), "a history is too long");
        self.weights.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("lru_weight", self.weights.lru_thousandths());
    }
}
