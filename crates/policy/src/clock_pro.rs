//! CLOCK-Pro: the principle of LIRS at the cost of CLOCK, where a hit sets one bit.
//!
//! The list, its three hands and their moves are those of sections 3.3.2 to 3.3.4 of the dissertation. Where its text
//! leaves a choice (on the trace cpp each of them is worth up to 2 points at some size):
//!
//! * While the cache has room, pages become hot until there are m_h of them, as blocks become LIR in LIRS (2.3.3).
//! * m_c starts at its least, 1 page, and stays within 1..m-1.
//! * A cold page turns hot if "there is still at least one hot page after it (i.e. with a larger recency)" (3.3.1). So
//!   HAND_hot moves first, and where it meets the page itself before the hot pages are few enough, because those with a
//!   larger recency have all been re-accessed, the page stays cold and a new test period begins. m_c is incremented for
//!   the access; where the page was not resident it is decremented again, as for any test period that HAND_hot ends.
//!   (Turning each such page hot costs up to 1.5 points on references with strong locality; not decrementing costs up to
//!   11 points on the loop cs.)
//! * A hot page that turns cold has no test period. HAND_hot passes it, so it is at the list head then.
//! * A cold page found accessed after its test period moves to the head, where a new period begins: no test period was
//!   in force, so m_c does not change.
//! * A test period that HAND_hot or HAND_test ends decrements m_c, but if the reference bit tells that the page was
//!   accessed in it, increments m_c.
//! * HAND_cold and HAND_test "point to the last" page of their kind, or to one behind it: where HAND_hot passes them it
//!   takes them along. A hand that finds no page of its kind up to the list head waits for what comes there, and does
//!   not go round: these hands take at most one step for each page that comes to the head.
//! * Before a cold page turns hot, HAND_hot turns as many hot pages cold as it takes to have less than m_h = m - m_c: one
//!   in the fixed case of 3.3.2, none while there are fewer, and several where m_c was incremented since. A change of
//!   m_c alone moves no page. So there are at most m minus the least m_c hot pages, but not at all times m_h of them.
//! * HAND_hot "stops at a hot page" (3.3.3), but where that page then leaves its place, because it was removed, or is
//!   the cold page that the hand met and that goes to the head, the hand rests on the next page, which may be cold. Its
//!   next run begins there, so the page stays in its test period until then.
//! * "If the number of cold pages is larger than the threshold" (3.3.3) is read as the sentence about "the number of
//!   non-resident cold pages" before it: more ghosts than m, or than the host has room for. HAND_test then runs until
//!   there are no more than that, after the faulted page was taken from the list or placed there.
//! * Repeated references to a page within one turn of a hand are one, for there is one bit.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

// The state of a slot: one of four, and flags.
const UNKNOWN: u8 = 0;
const HOT: u8 = 1;
/// Cold and resident.
const COLD: u8 = 2;
/// Cold and not resident, in its test period.
const GHOST: u8 = 3;
const STATUS: u8 = 3;
/// In its test period.
const TEST: u8 = 4;
/// The reference bit.
const REFERENCED: u8 = 8;

const NONE: u32 = u32::MAX;

/// CLOCK-Pro.
pub struct ClockPro {
    states: Vec<u8>,
    links: Links,
    /// The list as a circle in which hands move from front to back; its tail is at HAND_hot and its head before it.
    clock: List,
    /// Slots to be handed back.
    forgotten: List,
    /// The list tail.
    hand_hot: u32,
    /// From the tail on, no resident cold page lies before it; `NONE` where it has reached the list head and found all.
    hand_cold: u32,
    /// The same for pages in their test period.
    hand_test: u32,
    /// m.
    capacity: u32,
    /// m_c, and its bounds.
    cold_target: u32,
    cold_least: u32,
    cold_most: u32,
    hot: u32,
    cold: u32,
    ghosts: u32,
    ghosts_most: u32,
    /// Whether a page left to make room for the page to be inserted.
    full: bool,
}

impl Configured for ClockPro {
    const INFO: Info = Info {
        name: "clock-pro",
        summary: "LIRS approximated by a clock with three hands, whose share of cold pages adapts",
        paper: "Jiang, Chen and Zhang, CLOCK-Pro, USENIX 2005; Jiang, dissertation, College of William and Mary 2004, \
                chapter 3",
        params: &[Param {
            key: "cold",
            default: "adaptive",
            doc: "m_c: share of the cache or count of blocks for resident cold pages, or adaptive",
        }],
        offline: false,
        spatial: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<ClockPro, SpecError> {
        let most = (setup.capacity - 1).max(1);
        let (cold_least, cold_most) = if params.is("cold", "adaptive") {
            (1, most)
        } else {
            let fixed = params.blocks("cold", setup.capacity, 1, most)?;
            (fixed, fixed)
        };
        let (links, [clock, forgotten]) = Links::new(setup.slots);
        Ok(ClockPro {
            states: vec![UNKNOWN; setup.slots as usize],
            links,
            clock,
            forgotten,
            hand_hot: NONE,
            hand_cold: NONE,
            hand_test: NONE,
            capacity: setup.capacity,
            cold_target: cold_least,
            cold_least,
            cold_most,
            hot: 0,
            cold: 0,
            ghosts: 0,
            // "Another at most m non-resident cold pages also have their history access information cached" (3.3.2).
            ghosts_most: setup.capacity.min(setup.ghosts),
            full: false,
        })
    }
}

impl ClockPro {
    #[inline(always)]
    fn status(&self, slot: Slot) -> u8 {
        self.states[slot.index()] & STATUS
    }

    #[inline(always)]
    fn is(&self, slot: Slot, flag: u8) -> bool {
        self.states[slot.index()] & flag != 0
    }

    #[inline(always)]
    fn clear(&mut self, slot: Slot, flag: u8) {
        self.states[slot.index()] &= !flag;
    }

    /// The page after `slot` in the direction of the hands.
    #[inline(always)]
    fn after(&self, slot: Slot) -> Slot {
        let next = self.clock.after(&self.links, slot).or_else(|| self.clock.front(&self.links));
        next.expect("the clock holds a page")
    }

    /// Where a hand goes from `slot`: nowhere from the list head, so that it finds what comes there next without
    /// going round.
    #[inline(always)]
    fn towards_head(&self, slot: Slot) -> u32 {
        let next = self.after(slot).0;
        if next == self.hand_hot { NONE } else { next }
    }

    /// Puts `slot` at the list head.
    #[inline]
    fn put_at_head(&mut self, slot: Slot) {
        if self.clock.is_empty() {
            self.clock.push_back(&mut self.links, slot);
            self.hand_hot = slot.0;
        } else {
            self.clock.insert_before(&mut self.links, slot, Slot(self.hand_hot));
        }
        for hand in [&mut self.hand_cold, &mut self.hand_test] {
            if *hand == NONE {
                *hand = slot.0;
            }
        }
    }

    /// Takes `slot` out of the list.
    #[inline]
    fn unlink(&mut self, slot: Slot) {
        let next = self.towards_head(slot);
        for hand in [&mut self.hand_cold, &mut self.hand_test] {
            if *hand == slot.0 {
                *hand = next;
            }
        }
        if self.hand_hot == slot.0 {
            self.hand_hot = next;
        }
        self.clock.unlink(&mut self.links, slot);
    }

    /// Removes the non-resident page `slot` from the list. The incoming page is on its way in and not forgotten.
    fn drop_ghost(&mut self, slot: Slot, incoming: Slot) {
        self.ghosts -= 1;
        self.unlink(slot);
        self.states[slot.index()] = UNKNOWN;
        if slot != incoming {
            self.forgotten.push_back(&mut self.links, slot);
        }
    }

    /// "If a cold page is accessed during its test period, we increment m_c by 1. If a cold page passes its test period
    /// without a re-access, we decrement m_c by 1." (3.3.4)
    #[inline]
    fn adapt(&mut self, accessed: bool) {
        let target = if accessed { self.cold_target + 1 } else { self.cold_target - 1 };
        self.cold_target = target.clamp(self.cold_least, self.cold_most);
    }

    /// Ends the test period of the cold page `slot`, if it is in one, and "removes the cold page out of the list if it
    /// is non-resident" (3.3.3).
    fn end_test(&mut self, slot: Slot, incoming: Slot) {
        if self.is(slot, TEST) {
            self.clear(slot, TEST);
            self.adapt(self.is(slot, REFERENCED));
        }
        if self.status(slot) == GHOST {
            self.drop_ghost(slot, incoming);
        }
    }

    /// Moves HAND_hot over `slot`, which it points to: from the list tail to its head.
    #[inline]
    fn pass(&mut self, slot: Slot) {
        let next = self.after(slot).0;
        self.hand_hot = next;
        for hand in [&mut self.hand_cold, &mut self.hand_test] {
            if *hand == slot.0 {
                *hand = next;
            } else if *hand == NONE {
                *hand = slot.0;
            }
        }
    }

    /// HAND_hot sweeps over the cold page `slot`: "it will terminate its test period".
    fn sweep(&mut self, slot: Slot, incoming: Slot) {
        self.end_test(slot, incoming);
        if self.status(slot) != UNKNOWN {
            self.pass(slot);
        }
    }

    /// Runs HAND_hot until a hot page turned cold, and on to the next hot page (3.3.3). Returns whether one did before
    /// the hand met `candidate`.
    fn run_hot(&mut self, candidate: Slot, incoming: Slot) -> bool {
        loop {
            let slot = Slot(self.hand_hot);
            if slot == candidate {
                return false;
            }
            if self.status(slot) != HOT {
                self.sweep(slot, incoming);
                continue;
            }
            // "If the bit is set, [...] we spare this page, reset its reference bit and keep it as a hot page."
            let spared = self.is(slot, REFERENCED);
            self.clear(slot, REFERENCED);
            self.pass(slot);
            if !spared {
                self.states[slot.index()] = COLD;
                self.hot -= 1;
                self.cold += 1;
                break;
            }
        }
        while self.hot > 0 {
            let slot = Slot(self.hand_hot);
            if self.status(slot) == HOT || slot == candidate {
                break;
            }
            self.sweep(slot, incoming);
        }
        true
    }

    /// Makes room among the hot pages for the cold page `candidate`, accessed in its test period. Returns whether it
    /// can turn hot.
    fn can_turn_hot(&mut self, candidate: Slot, incoming: Slot) -> bool {
        self.adapt(true);
        while self.hot >= self.capacity - self.cold_target {
            if self.hot == 0 || !self.run_hot(candidate, incoming) {
                return false;
            }
        }
        true
    }

    /// HAND_cold found the reference bit of the resident cold page `slot` set: to the head with it.
    fn turn_or_renew(&mut self, slot: Slot, incoming: Slot) {
        self.clear(slot, REFERENCED);
        // "If its bit is set and it is in its test period, we turn the cold page into a hot page."
        if self.is(slot, TEST) && self.can_turn_hot(slot, incoming) {
            self.states[slot.index()] = HOT;
            self.cold -= 1;
            self.hot += 1;
        } else {
            self.states[slot.index()] = COLD | TEST;
        }
        self.unlink(slot);
        self.put_at_head(slot);
    }

    /// Runs HAND_test: ends the test period of the page it points to.
    fn run_test(&mut self, incoming: Slot) {
        let slot = Slot(self.hand_test);
        self.hand_test = self.towards_head(slot);
        if self.status(slot) != HOT {
            self.end_test(slot, incoming);
        }
    }
}

impl Policy for ClockPro {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.states[slot.index()] |= REFERENCED;
    }

    /// Runs HAND_cold (3.3.3).
    fn evict(&mut self, incoming: Slot, _access: &Access) -> Slot {
        self.full = true;
        loop {
            let slot = Slot(self.hand_cold);
            if self.status(slot) != COLD {
                self.hand_cold = self.towards_head(slot);
                continue;
            }
            if self.is(slot, REFERENCED) {
                self.turn_or_renew(slot, incoming);
                continue;
            }
            self.cold -= 1;
            self.hand_cold = self.towards_head(slot);
            if self.is(slot, TEST) {
                // "The replaced cold page will remain in the list as non-resident cold page until it runs out of its
                // test period."
                self.states[slot.index()] = GHOST | TEST;
                self.ghosts += 1;
            } else {
                self.unlink(slot);
                self.states[slot.index()] = UNKNOWN;
                self.forgotten.push_back(&mut self.links, slot);
            }
            return slot;
        }
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        let warm = std::mem::take(&mut self.full);
        let hot = if self.status(slot) == GHOST {
            // "If the cold page is in the list, the faulted page turns into a hot page and is placed on the head of the
            // list. We run HAND_hot."
            let hot = self.can_turn_hot(slot, slot);
            if !hot {
                // HAND_hot ended its test period before it was loaded.
                self.adapt(false);
            }
            self.ghosts -= 1;
            self.unlink(slot);
            hot
        } else {
            !warm && self.hot < self.capacity - self.cold_target
        };
        // "The page is still categorized as a cold page and is placed at the list head. It also initiates its test
        // period."
        self.states[slot.index()] = if hot { HOT } else { COLD | TEST };
        if hot {
            self.hot += 1;
        } else {
            self.cold += 1;
        }
        self.put_at_head(slot);
        while self.ghosts > self.ghosts_most {
            self.run_test(slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        match self.status(slot) {
            HOT => self.hot -= 1,
            COLD => self.cold -= 1,
            _ => self.ghosts -= 1,
        }
        self.unlink(slot);
        self.states[slot.index()] = UNKNOWN;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.links)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.states, slot.index());
    }

    fn check(&self) {
        let clock = self.clock.checked(&self.links);
        let forgotten = self.forgotten.checked(&self.links);
        let count = |status| clock.iter().filter(|&&slot| self.status(slot) == status).count() as u32;
        assert_eq!([HOT, COLD, GHOST].map(count), [self.hot, self.cold, self.ghosts], "hot, cold and ghost pages");
        assert_eq!(count(UNKNOWN), 0, "an unknown page in the list");
        assert_eq!(self.states.iter().filter(|&&state| state != UNKNOWN).count(), clock.len(), "pages in the list");
        assert!(forgotten.iter().all(|&slot| self.states[slot.index()] == UNKNOWN), "a known page is forgotten");
        assert!(self.hot + self.cold <= self.capacity, "too many resident pages");
        assert!(self.hot <= self.capacity - self.cold_least, "too many hot pages");
        assert!(self.ghosts <= self.ghosts_most, "too many ghosts");
        assert!((self.cold_least..=self.cold_most).contains(&self.cold_target), "m_c is out of its bounds");
        for &slot in &clock {
            match self.status(slot) {
                HOT => assert!(!self.is(slot, TEST), "a hot page is in its test period"),
                GHOST => assert_eq!(self.states[slot.index()], GHOST | TEST, "a ghost is in its test period"),
                _ => {}
            }
        }
        if clock.is_empty() {
            assert_eq!([self.hand_hot, self.hand_cold, self.hand_test], [NONE; 3], "the hands of an empty list");
            return;
        }
        let tail = clock.iter().position(|slot| slot.0 == self.hand_hot).expect("HAND_hot points into the list");
        let from_tail = || clock[tail..].iter().chain(&clock[..tail]);
        let check_hand = |hand: u32, found: &dyn Fn(Slot) -> bool, what: &str| {
            assert!(hand == NONE || clock.contains(&Slot(hand)), "the hand for {what} points into the list");
            let mut missed = from_tail().take_while(|slot| slot.0 != hand);
            assert!(missed.all(|&slot| !found(slot)), "a hand missed {what}");
        };
        check_hand(self.hand_cold, &|slot| self.status(slot) == COLD, "a resident cold page");
        check_hand(self.hand_test, &|slot| self.is(slot, TEST), "a page in its test period");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("cold_target", self.cold_target.into());
        report("cold_resident", self.cold.into());
        report("hot", self.hot.into());
        report("ghosts", self.ghosts.into());
    }
}
