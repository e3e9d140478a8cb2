//! LRU-2: the block whose second-to-last reference is longest ago leaves; blocks with one known reference leave before
//! the others, the least recently used first.
//!
//! Time is counted in references. Deviations and choices:
//! * The Retained Information Period is a number of blocks, not a time since their last reference, so that memory has a
//!   limit; the block evicted longest ago is forgotten first. By default the number of remembered blocks is that of
//!   resident ones, as in ARC.
//! * The paper names no victim if every block is within its Correlated Reference Period. The periods are then
//!   disregarded.
//! * A cache that becomes smaller chooses its victims as of its last reference.
//!
//! Resident blocks with two known references are in a heap. A hit on one does not touch the heap: the time of its
//! second-to-last reference only grows, so the key in the heap is a lower bound, which is updated when it reaches the
//! top.

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
    /// Resident with one known reference: in `once`.
    Once,
    /// Resident with two: in `twice`.
    Twice,
    Ghost,
}

/// Times of a slot's references; correlated references count as one.
#[derive(Clone, Copy)]
struct Times {
    /// The last reference, correlated or not: LAST(p).
    last: u64,
    /// The second-to-last uncorrelated reference: HIST(p,2), if the slot is in `twice`.
    second: u64,
}

/// LRU-K with K = 2.
pub struct Lru2 {
    links: Links,
    state: Vec<State>,
    times: Vec<Times>,
    /// The time from HIST(p,1), the first of the latest correlated references, to LAST(p).
    span: Vec<u32>,
    /// Resident slots whose backward 2-distance is infinite, the most recently used first.
    once: List,
    /// The other resident slots; keys are at most `Times::second`.
    twice: Heap,
    /// Ghosts, the one evicted last first.
    ghosts: List,
    /// Slots that `evict` temporarily takes out of `twice`.
    aside: Vec<Slot>,
    /// The Correlated Reference Period.
    correlated: u64,
    history: Portion,
    ghosts_most: u32,
    /// The tick of the last reference.
    now: u64,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl Lru2 {
    /// "If eligible for replacement".
    #[inline(always)]
    fn eligible(&self, slot: Slot, now: u64) -> bool {
        now - self.times[slot.index()].last > self.correlated
    }

    /// The eligible slot of `twice` with the greatest backward 2-distance.
    #[inline]
    fn farthest_eligible(&mut self, now: u64) -> Option<Slot> {
        let mut found = None;
        while let Some((key, slot)) = self.twice.least() {
            let second = self.times[slot.index()].second;
            if key < second {
                self.twice.raise_least(second);
            } else if self.eligible(slot, now) {
                found = Some(slot);
                break;
            } else {
                self.twice.remove(slot);
                self.aside.push(slot);
            }
        }
        for slot in self.aside.drain(..) {
            self.twice.push(slot, self.times[slot.index()].second);
        }
        found
    }

    /// The block that leaves at time `now` becomes a ghost.
    #[inline]
    fn retire(&mut self, now: u64) -> Slot {
        let once = self.once.back(&self.links);
        let victim = once
            .filter(|&slot| self.eligible(slot, now))
            .or_else(|| self.farthest_eligible(now))
            .or(once)
            .or_else(|| Some(self.twice.least()?.1))
            .expect("a block is resident");
        self.unlink(victim);
        self.state[victim.index()] = State::Ghost;
        self.ghosts.push_front(&mut self.links, victim);
        victim
    }

    /// Forgets the blocks evicted longest ago if there are too many ghosts.
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
            State::Once => self.once.unlink(&mut self.links, slot),
            State::Twice => self.twice.remove(slot),
            State::Ghost => self.ghosts.unlink(&mut self.links, slot),
        }
    }
}

impl Configured for Lru2 {
    const INFO: Info = Info {
        name: "lru-2",
        summary: "evicts the block whose second-to-last reference is longest ago",
        paper: "O'Neil, O'Neil, Weikum, The LRU-K Page Replacement Algorithm for Database Disk Buffering, SIGMOD 1993",
        params: &[
            Param {
                published: Some("a time, for instance 5 s"),
                key: "correlated",
                default: "0",
                values: Values::Whole { least: 0, most: u32::MAX as u64 },
                doc: "the Correlated Reference Period: references to a block within this many references count as one",
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

    fn new(setup: &Setup, params: &Params) -> Result<Lru2, SpecError> {
        let (links, [once, ghosts]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        let most = setup.capacity.min(setup.slots);
        let history = params.history()?;
        Ok(Lru2 {
            links,
            state: vec![State::Unknown; slots],
            times: vec![Times { last: 0, second: 0 }; slots],
            span: vec![0; slots],
            once,
            twice: Heap::new(setup.slots, most),
            ghosts,
            aside: Vec::with_capacity(most as usize),
            correlated: params.number("correlated")?,
            history,
            ghosts_most: history.of(setup.capacity, 0, setup.ghosts),
            now: 0,
            forgotten: Vec::new(),
        })
    }
}

impl Policy for Lru2 {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let times = &mut self.times[slot.index()];
        let since = access.tick - times.last;
        if since > self.correlated {
            // "A new, uncorrelated reference": HIST(p,2) := HIST(p,1) + (LAST(p) - HIST(p,1)), which is LAST(p).
            times.second = times.last;
            if self.correlated > 0 {
                self.span[slot.index()] = 0;
            }
            if self.state[slot.index()] == State::Once {
                self.once.unlink(&mut self.links, slot);
                self.twice.push(slot, times.second);
                self.state[slot.index()] = State::Twice;
            }
        } else {
            let span = &mut self.span[slot.index()];
            *span = span.saturating_add(since as u32);
            if self.state[slot.index()] == State::Once {
                self.once.move_to_front(&mut self.links, slot);
            }
        }
        times.last = access.tick;
        self.now = access.tick;
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, access: &Access) -> Option<Slot> {
        Some(self.retire(access.tick))
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let times = &mut self.times[slot.index()];
        if self.state[slot.index()] == State::Ghost {
            // "HIST(p,2) := HIST(p,1)".
            times.second = times.last - u64::from(self.span[slot.index()]);
            self.ghosts.unlink(&mut self.links, slot);
            self.twice.push(slot, times.second);
            self.state[slot.index()] = State::Twice;
        } else {
            self.once.push_front(&mut self.links, slot);
            self.state[slot.index()] = State::Once;
        }
        times.last = access.tick;
        self.now = access.tick;
        self.span[slot.index()] = 0;
        self.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.retire(self.now);
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        self.links.grow(room.slots, [&mut self.once, &mut self.ghosts]);
        self.state.resize(slots, State::Unknown);
        self.times.resize(slots, Times { last: 0, second: 0 });
        self.span.resize(slots, 0);
        self.twice.grow(room.slots);
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
        prefetch(&self.times, slot.index());
        prefetch(&self.state, slot.index());
    }

    fn check(&self) {
        let once = self.once.checked(&self.links);
        let newest_first = once.is_sorted_by_key(|slot| std::cmp::Reverse(self.times[slot.index()].last));
        assert!(newest_first, "the blocks referenced once are out of order");
        let ghosts = self.ghosts.checked(&self.links);
        let twice: Vec<_> = self.twice.checked().collect();
        for &(key, slot) in &twice {
            let Times { last, second } = self.times[slot.index()];
            assert!(key <= second && second < last, "{slot:?} has impossible times");
        }
        let twice: Vec<_> = twice.into_iter().map(|(_, slot)| slot).collect();
        for (members, state) in [(once, State::Once), (twice, State::Twice), (ghosts, State::Ghost)] {
            assert!(members.iter().all(|slot| self.state[slot.index()] == state), "a slot of {state:?} says otherwise");
            let all = self.state.iter().filter(|&&other| other == state).count();
            assert_eq!(members.len(), all, "a slot says {state:?} and is not there");
        }
        let unknown = |slot: &Slot| self.state[slot.index()] == State::Unknown;
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
        assert!(self.aside.is_empty(), "a slot was set aside and not put back");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("once", self.once.len().into());
    }
}
