//! LRU-K: the block whose K-th last reference is longest ago leaves; blocks with fewer known references leave before the others,
//! the least recently used first.
//!
//! Time is counted in references. [`lru_2`](crate::lru_2) is the same with K = 2, and has the Correlated Reference Period, which
//! is 0 here. As there, the number of remembered blocks has a limit, and the one evicted longest ago is forgotten first.

use crate::heap::Heap;
use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{HISTORY, Values};
use crate::{Access, Policy, Room, Slot};

/// The state of a slot, and its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    /// Resident with fewer than K known references: in `few`.
    Few,
    /// Resident with K: in `many`.
    Many,
    Ghost,
}

/// LRU-K.
pub struct LruK {
    links: Links,
    state: Vec<State>,
    /// HIST(p,1) to HIST(p,K) of each slot: the last K references, each a tick and one, 0 if there is none.
    times: Vec<u64>,
    k: usize,
    /// Resident slots with an infinite backward K-distance, the most recently used first.
    few: List,
    /// The other resident slots. A key is at most HIST(p,K), which only grows: it is raised when it reaches the top.
    many: Heap,
    /// Ghosts, the one evicted last first.
    ghosts: List,
    history: Portion,
    ghosts_most: u32,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl LruK {
    /// HIST(p,K).
    #[inline(always)]
    fn oldest(&self, slot: Slot) -> u64 {
        self.times[(slot.index() + 1) * self.k - 1]
    }

    /// Adds a reference at `tick`.
    #[inline(always)]
    fn note(&mut self, slot: Slot, tick: u64) {
        let times = &mut self.times[slot.index() * self.k..][..self.k];
        times.copy_within(..self.k - 1, 1);
        times[0] = tick + 1;
    }

    fn retire(&mut self) -> Slot {
        let victim = self.few.back(&self.links).unwrap_or_else(|| {
            loop {
                let (key, slot) = self.many.least().expect("a block is resident");
                let oldest = self.oldest(slot);
                if key == oldest {
                    break slot;
                }
                self.many.raise_least(oldest);
            }
        });
        self.unlink(victim);
        self.state[victim.index()] = State::Ghost;
        self.ghosts.push_front(&mut self.links, victim);
        victim
    }

    #[inline]
    fn limit_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_most {
            let oldest = self.ghosts.pop_back(&mut self.links).expect("there are ghosts");
            self.state[oldest.index()] = State::Unknown;
            self.forgotten.push(oldest);
        }
    }

    #[inline]
    fn unlink(&mut self, slot: Slot) {
        match std::mem::replace(&mut self.state[slot.index()], State::Unknown) {
            State::Unknown => unreachable!("only known slots leave"),
            State::Few => self.few.unlink(&mut self.links, slot),
            State::Many => self.many.remove(slot),
            State::Ghost => self.ghosts.unlink(&mut self.links, slot),
        }
    }

    /// Puts a resident slot that is in no list where its references say.
    #[inline]
    fn place(&mut self, slot: Slot) {
        let oldest = self.oldest(slot);
        self.state[slot.index()] = if oldest > 0 {
            self.many.push(slot, oldest);
            State::Many
        } else {
            self.few.push_front(&mut self.links, slot);
            State::Few
        };
    }
}

impl Configured for LruK {
    const INFO: Info = Info {
        name: "lru-k",
        summary: "evicts the block whose K-th last reference is longest ago",
        paper: "O'Neil, O'Neil, Weikum, The LRU-K Page Replacement Algorithm for Database Disk Buffering, SIGMOD 1993",
        params: &[
            Param {
                published: None,
                key: "k",
                default: "3",
                values: Values::Whole { least: 1, most: 8 },
                doc: "references that are looked at",
            },
            Param {
                published: Some("those of a time, for instance 200 s"),
                key: "ghosts",
                default: "1",
                values: HISTORY,
                doc: "most evicted blocks that are remembered, as a multiple of the cache size",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<LruK, SpecError> {
        let (links, [few, ghosts]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        let k: usize = params.number("k")?;
        let history = params.history()?;
        Ok(LruK {
            links,
            state: vec![State::Unknown; slots],
            times: vec![0; slots * k],
            k,
            few,
            many: Heap::new(setup.slots, setup.capacity.min(setup.slots)),
            ghosts,
            history,
            ghosts_most: history.of(setup.capacity, 0, setup.ghosts),
            forgotten: Vec::new(),
        })
    }
}

impl Policy for LruK {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.note(slot, access.tick);
        if self.state[slot.index()] == State::Few {
            self.few.unlink(&mut self.links, slot);
            self.place(slot);
        }
    }

    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.retire())
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        if self.state[slot.index()] == State::Ghost {
            self.ghosts.unlink(&mut self.links, slot);
        } else {
            self.times[slot.index() * self.k..][..self.k].fill(0);
        }
        self.note(slot, access.tick);
        self.place(slot);
        self.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.retire();
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        self.links.grow(room.slots, [&mut self.few, &mut self.ghosts]);
        self.state.resize(slots, State::Unknown);
        self.times.resize(slots * self.k, 0);
        self.many.grow(room.slots);
        self.ghosts_most = self.history.of(room.capacity, 0, room.ghosts);
        self.limit_ghosts();
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.state, slot.index());
        prefetch(&self.times, slot.index() * self.k);
    }

    fn check(&self) {
        let few = self.few.checked(&self.links);
        let newest_first = few.is_sorted_by_key(|slot| std::cmp::Reverse(self.times[slot.index() * self.k]));
        assert!(newest_first, "the blocks with few references are out of order");
        let many: Vec<(u64, Slot)> = self.many.checked().collect();
        assert!(many.iter().all(|&(key, slot)| 0 < key && key <= self.oldest(slot)), "a key is too large");
        let many: Vec<Slot> = many.into_iter().map(|(_, slot)| slot).collect();
        let ghosts = self.ghosts.checked(&self.links);
        for (members, state) in [(few, State::Few), (many, State::Many), (ghosts, State::Ghost)] {
            assert!(members.iter().all(|slot| self.state[slot.index()] == state), "a slot of {state:?} says otherwise");
            let all = self.state.iter().filter(|&&other| other == state).count();
            assert_eq!(members.len(), all, "a slot says {state:?} and is not there");
        }
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("few", self.few.len().into());
    }
}
