//! LRU-K: the block whose K-th last reference is longest ago leaves; blocks with fewer known references leave before the
//! others, the least recently used first. `lru-2` has K = 2.
//!
//! Time is counted in references. Deviations and choices:
//! * The Retained Information Period is a number of blocks, not a time since their last reference, so that memory has a
//!   limit; the block evicted longest ago is forgotten first. By default the number of remembered blocks is that of
//!   resident ones, as in ARC.
//! * With K above 2, the Correlated Reference Period is 0: with another one, blocks could have the same K-th last reference, and
//!   the paper does not order these.
//! * The paper names no victim if every block is within its Correlated Reference Period. The periods are then
//!   disregarded.
//! * A cache that becomes smaller chooses its victims as of its last reference.
//!
//! Resident blocks with K known references are in a heap. A hit on one does not touch the heap: the time of its K-th last
//! reference only grows, so the key in the heap is a lower bound, which is updated when it reaches the top.

use crate::heap::Heap;
use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{HISTORY, Values};
use crate::visit::Visit;
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

/// The time of a reference that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Times of a slot's references; correlated references count as one.
#[derive(Clone, Copy)]
struct Times<const EARLIER: usize> {
    /// The last reference, correlated or not: LAST(p).
    last: u64,
    /// The uncorrelated references before the last one: HIST(p,2) to HIST(p,K), of which the last ones can be unknown.
    earlier: [u64; EARLIER],
}

impl<const EARLIER: usize> Times<EARLIER> {
    const NONE: Times<EARLIER> = Times { last: 0, earlier: [UNKNOWN; EARLIER] };

    /// HIST(p,K).
    #[inline(always)]
    fn oldest(&self) -> u64 {
        self.earlier[EARLIER - 1]
    }

    /// HIST(p,i) := HIST(p,i-1), of which the first is `first`.
    #[inline(always)]
    fn shift(&mut self, first: u64) {
        self.earlier.copy_within(..EARLIER - 1, 1);
        self.earlier[0] = first;
    }
}

/// LRU-K with K = 2.
pub type Lru2 = LruK<1>;
/// LRU-K with its default, K = 3.
pub type Lru3 = LruK<2>;

/// LRU-K with K = EARLIER + 1.
pub struct LruK<const EARLIER: usize> {
    links: Links,
    state: Vec<State>,
    times: Vec<Times<EARLIER>>,
    /// The time from HIST(p,1), the first of the latest correlated references, to LAST(p).
    span: Vec<u32>,
    /// Resident slots whose backward K-distance is infinite, the most recently used first.
    few: List,
    /// The other resident slots; keys are at most HIST(p,K).
    many: Heap,
    /// Ghosts, the one evicted last first.
    ghosts: List,
    /// Slots that `evict` temporarily takes out of `many`.
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

impl<const EARLIER: usize> LruK<EARLIER> {
    /// "If eligible for replacement".
    #[inline(always)]
    fn eligible(&self, slot: Slot, now: u64) -> bool {
        now - self.times[slot.index()].last > self.correlated
    }

    /// The eligible slot of `many` with the greatest backward K-distance.
    #[inline]
    fn farthest_eligible(&mut self, now: u64) -> Option<Slot> {
        let mut found = None;
        while let Some((key, slot)) = self.many.least() {
            let oldest = self.times[slot.index()].oldest();
            if key < oldest {
                self.many.raise_least(oldest);
            } else if self.eligible(slot, now) {
                found = Some(slot);
                break;
            } else {
                self.many.remove(slot);
                self.aside.push(slot);
            }
        }
        for slot in self.aside.drain(..) {
            self.many.push(slot, self.times[slot.index()].oldest());
        }
        found
    }

    /// The block that leaves at time `now` becomes a ghost.
    #[inline]
    fn retire(&mut self, now: u64) -> Slot {
        let few = self.few.back(&self.links);
        let victim = few
            .filter(|&slot| self.eligible(slot, now))
            .or_else(|| self.farthest_eligible(now))
            .or(few)
            .or_else(|| Some(self.many.least()?.1))
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
            State::Few => self.few.unlink(&mut self.links, slot),
            State::Many => self.many.remove(slot),
            State::Ghost => self.ghosts.unlink(&mut self.links, slot),
        }
    }
}

/// The parameter of both policies.
const GHOSTS: Param = Param {
    published: Some("those of a time, for instance 200 s"),
    key: "ghosts",
    default: "1",
    values: HISTORY,
    doc: "most evicted blocks that are remembered, as a multiple of the cache size",
};
const PAPER: &str =
    "O'Neil, O'Neil, Weikum, The LRU-K Page Replacement Algorithm for Database Disk Buffering, SIGMOD 1993";

impl<const EARLIER: usize> LruK<EARLIER> {
    fn create(setup: &Setup, params: &Params, correlated: u64) -> Result<LruK<EARLIER>, SpecError> {
        let (links, [few, ghosts]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        let most = setup.capacity.min(setup.slots);
        let history = params.history()?;
        Ok(LruK {
            links,
            state: vec![State::Unknown; slots],
            times: vec![Times::NONE; slots],
            span: vec![0; slots],
            few,
            many: Heap::new(setup.slots, most),
            ghosts,
            aside: Vec::with_capacity(most as usize),
            correlated,
            history,
            ghosts_most: history.of(setup.capacity, 0, setup.ghosts),
            now: 0,
            forgotten: Vec::new(),
        })
    }

    /// Puts a resident slot that is in no list into the one that its known references say.
    #[inline]
    fn place(&mut self, slot: Slot) {
        let oldest = self.times[slot.index()].oldest();
        self.state[slot.index()] = if oldest == UNKNOWN {
            self.few.push_front(&mut self.links, slot);
            State::Few
        } else {
            self.many.push(slot, oldest);
            State::Many
        };
    }
}

impl Configured for LruK<1> {
    const INFO: Info = Info {
        name: "lru-2",
        summary: "evicts the block whose second-to-last reference is longest ago",
        paper: PAPER,
        params: &[
            Param {
                published: Some("a time, for instance 5 s"),
                key: "correlated",
                default: "0",
                values: Values::Whole { least: 0, most: u32::MAX as u64 },
                doc: "the Correlated Reference Period: references to a block within this many references count as one",
            },
            GHOSTS,
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<LruK<1>, SpecError> {
        LruK::create(setup, params, params.number("correlated")?)
    }
}

impl Configured for LruK<2> {
    const INFO: Info = Info {
        name: "lru-k",
        summary: "evicts the block whose K-th last reference is longest ago",
        params: &[
            Param {
                published: None,
                key: "k",
                default: "3",
                values: Values::Whole { least: 2, most: 4 },
                doc: "references that are looked at",
            },
            GHOSTS,
        ],
        ..<LruK<1> as Configured>::INFO
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        <LruK<1> as Configured>::ghosts(params, capacity)
    }

    fn new(setup: &Setup, params: &Params) -> Result<LruK<2>, SpecError> {
        LruK::create(setup, params, 0)
    }

    fn visit<V: Visit>(setup: &Setup, params: &Params, visitor: V) -> Result<V::Out, SpecError> {
        match params.number("k")? {
            2u64 => Ok(visitor.visit(LruK::<1>::create(setup, params, 0)?)),
            3 => Ok(visitor.visit(LruK::<2>::create(setup, params, 0)?)),
            _ => Ok(visitor.visit(LruK::<3>::create(setup, params, 0)?)),
        }
    }
}

impl<const EARLIER: usize> Policy for LruK<EARLIER> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let times = &mut self.times[slot.index()];
        let since = access.tick - times.last;
        if since > self.correlated {
            // "A new, uncorrelated reference": HIST(p,2) := HIST(p,1) + (LAST(p) - HIST(p,1)), which is LAST(p).
            times.shift(times.last);
            if self.correlated > 0 {
                self.span[slot.index()] = 0;
            }
            times.last = access.tick;
            if self.state[slot.index()] == State::Few {
                self.few.unlink(&mut self.links, slot);
                self.place(slot);
            }
        } else {
            times.last = access.tick;
            let span = &mut self.span[slot.index()];
            *span = span.saturating_add(since as u32);
            if self.state[slot.index()] == State::Few {
                self.few.move_to_front(&mut self.links, slot);
            }
        }
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
            // "HIST(p,i) := HIST(p,i-1)".
            times.shift(times.last - u64::from(self.span[slot.index()]));
            self.ghosts.unlink(&mut self.links, slot);
        } else {
            *times = Times::NONE;
        }
        times.last = access.tick;
        self.place(slot);
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
        self.links.grow(room.slots, [&mut self.few, &mut self.ghosts]);
        self.state.resize(slots, State::Unknown);
        self.times.resize(slots, Times::NONE);
        self.span.resize(slots, 0);
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
        prefetch(&self.times, slot.index());
        prefetch(&self.state, slot.index());
    }

    fn check(&self) {
        let few = self.few.checked(&self.links);
        let newest_first = few.is_sorted_by_key(|slot| std::cmp::Reverse(self.times[slot.index()].last));
        assert!(newest_first, "the blocks with few references are out of order");
        let ghosts = self.ghosts.checked(&self.links);
        let many: Vec<_> = self.many.checked().collect();
        for &(key, slot) in &many {
            let times = self.times[slot.index()];
            let oldest_last = times.earlier.is_sorted_by(|newer, older| older < newer);
            let is_possible = key <= times.oldest() && oldest_last && times.earlier[0] < times.last;
            assert!(is_possible, "{slot:?} has impossible times");
        }
        let many: Vec<_> = many.into_iter().map(|(_, slot)| slot).collect();
        for (members, state) in [(few, State::Few), (many, State::Many), (ghosts, State::Ghost)] {
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
        report(if EARLIER == 1 { "once" } else { "few" }, self.few.len().into());
    }
}
