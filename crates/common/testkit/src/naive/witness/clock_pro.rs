//! CLOCK-Pro (Jiang's dissertation, chapter 3.3), from the text alone: the list is a vector, and every search scans it.

use std::collections::BTreeSet;

use crate::Outcome;

/// A hand other than HAND_hot. "The HAND_cold points to the last resident cold page (i.e. the furthest one to the list
/// head)" (3.3.2) contradicts "the hand will keep moving ... and stops at the next resident cold page" (3.3.3) as soon as
/// a page stays behind a hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// Always at the eligible page that is furthest from the list head.
    Last,
    /// At a page, until the hand itself moves on or the page is no longer eligible.
    Place,
    /// As `Place`; but if HAND_hot passes the page, the hand goes on to the next eligible page.
    Pushed,
}

/// The first pages, which find free memory. "The number of hot pages is also m_h" (3.3.2) contradicts "When there is a
/// page fault, the faulted page must be a cold page" (3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Every page enters cold.
    Cold,
    /// Pages enter hot while there are fewer than m_h.
    Hot,
}

/// A resident cold page that was accessed after its test period. 3.3.3 covers only a page "in its test period"; 3.3.4 says
/// that HAND_cold spares a page "with its reference bit of 1", and not where the page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// It stays at its place, as in CLOCK.
    Stays,
    /// It goes to the list head, without a test period.
    ToHead,
    /// It goes to the list head and has a test period again.
    ToHeadInTest,
}

/// A resident cold page whose test period ends with its reference bit set. It is neither a page found to be "accessed
/// during its test period" by HAND_cold nor one that "passes its test period without a re-access" (3.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessedAtEnd {
    /// It was accessed during its test period: m_c grows.
    Grows,
    /// m_c stays.
    Nothing,
    /// Its test period ended: m_c shrinks.
    Shrinks,
}

/// When the faulted page is looked up in the list. "We first run HAND_cold for a free space. If the cold page is not in
/// the list ..." (3.3.3): the run can take that very page out of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// After HAND_cold has run.
    After,
    /// Before; a page in the list is taken out of it, and then HAND_cold runs.
    Before,
}

/// When HAND_test runs. "Once the number exceeds m ... we remove the cold page pointed by HAND_test" contradicts the order
/// of the description of a page fault, in which HAND_test runs after the page is placed (both 3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRuns {
    /// As soon as HAND_cold has replaced a page.
    AtReplacement,
    /// After the faulted page was placed.
    AfterPlacement,
}

/// Whether a cold page accessed in its test period turns hot whatever the hot pages are. "We turn the cold page into a hot
/// page, move it to the list head, and ask HAND_hot for its actions" (3.3.3); but it can turn hot if "there is still at least
/// one hot page after it (i.e. with a larger recency)" (3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// It turns hot, and then HAND_hot runs.
    ThenHandHot,
    /// HAND_hot runs while there is no room among m_h hot pages. If the hand meets the page before that, the page goes to the
    /// list head as a cold page in its test period.
    HandHotFirst,
}

/// Choices that the text leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// m_c at the start, in pages; limited to memory. "We allow m_c to dynamically adjust" (3.3.4): from which value?
    pub cold_start: usize,
    /// The least m_c: "When it is necessary to generate a free space, we replace a resident cold page" (3.3.1) needs one.
    pub cold_min: usize,
    /// Pages of memory that m_c never takes: "m_h + m_c is the total memory size" (3.3.2) names no least m_h.
    pub hot_min: usize,
    /// Whether m_c changes: it is fixed in 3.3.3 and adaptive in 3.3.4.
    pub adaptive: bool,
    /// Most non-resident cold pages: "at most m" (3.3.2), but "we could ... limit the number" (3.3.1).
    pub non_residents_max: usize,
    /// HAND_cold.
    pub hand_cold: Hand,
    /// HAND_test, "pointing to the last cold page in the test period" (figure 3.1), which "will then move forward and stop
    /// at the next cold page" (3.3.3).
    pub hand_test: Hand,
    /// The first pages.
    pub warm_up: WarmUp,
    /// Pages accessed after their test period.
    pub spared: Spared,
    /// Pages accessed by the end of their test period.
    pub accessed_at_end: AccessedAtEnd,
    /// When the faulted page is looked up.
    pub judged: Judged,
    /// When HAND_test runs.
    pub test_runs: TestRuns,
    /// Whether a hot page that turns cold has a test period: "We grant each cold page a test period once it is accepted into
    /// the list" (3.3.1) does not say whether it is accepted again.
    pub demoted_in_test: bool,
    /// Whether a cold page keeps its reference bit as HAND_cold turns it hot: "turn the cold page into a hot page, move it to
    /// the list head" (3.3.3) does not mention the bit.
    pub promoted_keeps_bit: bool,
    /// Whether the faulting access sets the page's reference bit: the bits "of the accessed pages are set by hardware" (3.3.3).
    pub fault_sets_bit: bool,
    /// Whether HAND_hot stops before it has turned a page cold if m_c, which shrinks with each test period that the hand
    /// ends, allows the hot pages there are: 3.3.3 moves the hand "until it encounters a hot page with its reference bit of
    /// zero", with fixed allocations.
    pub hot_may_stop_early: bool,
    /// When a cold page turns hot.
    pub promotion: Promotion,
    /// Whether m_c, which grew for a faulted page, shrinks again if HAND_hot met that page: its test period ended after the
    /// access, but before the page could turn hot (3.3.4).
    pub met_shrinks: bool,
    /// Whether HAND_hot, if it turned the last hot page cold, goes on over all cold pages and ends their test periods:
    /// "Finally the hand stops at a hot page" (3.3.3) has no answer without hot pages.
    pub sweeps_without_hot: bool,
}

impl Reading {
    /// The first reading, for a memory of `memory` pages.
    pub fn first(memory: usize) -> Reading {
        Reading {
            cold_start: 1,
            cold_min: 1,
            hot_min: 0,
            adaptive: true,
            non_residents_max: memory,
            hand_cold: Hand::Place,
            hand_test: Hand::Last,
            warm_up: WarmUp::Cold,
            spared: Spared::Stays,
            accessed_at_end: AccessedAtEnd::Grows,
            judged: Judged::After,
            test_runs: TestRuns::AfterPlacement,
            demoted_in_test: false,
            promoted_keeps_bit: false,
            fault_sets_bit: false,
            hot_may_stop_early: false,
            promotion: Promotion::ThenHandHot,
            met_shrinks: false,
            sweeps_without_hot: false,
        }
    }
}

/// A page in the list.
#[derive(Clone, Debug)]
struct Page {
    block: u64,
    resident: bool,
    hot: bool,
    in_test: bool,
    bit: bool,
}

/// A memory managed by CLOCK-Pro.
#[derive(Clone, Debug)]
pub struct ClockPro {
    memory: usize,
    reading: Reading,
    /// m_c.
    cold: usize,
    /// Clockwise from the page that HAND_hot points to, the list tail, to the list head.
    list: Vec<Page>,
    /// The page that HAND_cold points to, unless it is a `Hand::Last`.
    hand_cold: Option<u64>,
    /// The page that HAND_test points to, unless it is a `Hand::Last`.
    hand_test: Option<u64>,
}

fn resident_cold(page: &Page) -> bool {
    page.resident && !page.hot
}

fn cold_in_test(page: &Page) -> bool {
    !page.hot && page.in_test
}

impl ClockPro {
    /// An empty memory of `memory` pages.
    pub fn new(memory: usize, reading: Reading) -> ClockPro {
        let most = memory.saturating_sub(reading.hot_min).max(reading.cold_min);
        let cold = reading.cold_start.clamp(reading.cold_min, most);
        ClockPro { memory, reading, cold, list: Vec::new(), hand_cold: None, hand_test: None }
    }

    /// References `block`.
    pub fn access(&mut self, block: u64) -> Outcome {
        let found = self.list.iter_mut().find(|page| page.block == block && page.resident);
        if let Some(page) = found {
            page.bit = true;
            return Outcome { hit: true, evicted: None };
        }
        let taken_out = self.reading.judged == Judged::Before && self.take_out(block);
        let full = self.list.iter().filter(|page| page.resident).count() == self.memory;
        let evicted = full.then(|| self.run_hand_cold());
        let bit = self.reading.fault_sets_bit;
        if taken_out || self.list.iter().any(|page| page.block == block) {
            let hot = self.turn_hot(block, bit);
            if !hot && self.reading.met_shrinks {
                self.shrink();
            }
        } else if !full && self.reading.warm_up == WarmUp::Hot && self.hot() < self.hot_max() {
            self.place(Page { block, resident: true, hot: true, in_test: false, bit });
        } else {
            self.place(Page { block, resident: true, hot: false, in_test: true, bit });
        }
        self.run_hand_test();
        Outcome { hit: false, evicted }
    }

    /// The blocks in the list that are not resident.
    pub fn ghosts(&self) -> BTreeSet<u64> {
        self.list.iter().filter(|page| !page.resident).map(|page| page.block).collect()
    }

    /// m_c.
    pub fn cold(&self) -> usize {
        self.cold
    }

    fn hot(&self) -> usize {
        self.list.iter().filter(|page| page.hot).count()
    }

    /// m_h.
    fn hot_max(&self) -> usize {
        self.memory - self.cold.min(self.memory)
    }

    fn grow(&mut self) {
        let most = self.memory.saturating_sub(self.reading.hot_min).max(self.reading.cold_min);
        if self.reading.adaptive && self.cold < most {
            self.cold += 1;
        }
    }

    fn shrink(&mut self) {
        if self.reading.adaptive && self.cold > self.reading.cold_min {
            self.cold -= 1;
        }
    }

    /// Puts `page` at the list head.
    fn place(&mut self, page: Page) {
        self.list.push(page);
        self.point(self.list.len() - 1);
    }

    /// Points a hand that had no page at page `at`, if it is eligible.
    fn point(&mut self, at: usize) {
        let page = &self.list[at];
        if self.hand_cold.is_none() && resident_cold(page) {
            self.hand_cold = Some(page.block);
        }
        if self.hand_test.is_none() && cold_in_test(page) {
            self.hand_test = Some(page.block);
        }
    }

    /// The block of the first page clockwise of page `at` that `eligible` accepts, not page `at` itself.
    fn next(&self, at: usize, eligible: fn(&Page) -> bool) -> Option<u64> {
        let (before, after) = (&self.list[..at], &self.list[at + 1..]);
        after.iter().chain(before).find(|page| eligible(page)).map(|page| page.block)
    }

    /// Moves HAND_cold on if it points to page `at`.
    fn leave_cold(&mut self, at: usize) {
        if self.hand_cold == Some(self.list[at].block) {
            self.hand_cold = self.next(at, resident_cold);
        }
    }

    /// Moves HAND_test on if it points to page `at`.
    fn leave_test(&mut self, at: usize) {
        if self.hand_test == Some(self.list[at].block) {
            self.hand_test = self.next(at, cold_in_test);
        }
    }

    /// Takes a page out of the list; returns whether it was there.
    fn take_out(&mut self, block: u64) -> bool {
        let found = self.list.iter().position(|page| page.block == block);
        if let Some(at) = found {
            self.leave_cold(at);
            self.leave_test(at);
            self.list.remove(at);
        }
        found.is_some()
    }

    /// Ends the test period of cold page `at`. Returns whether the page left the list.
    fn end_test(&mut self, at: usize) -> bool {
        if !self.list[at].in_test {
            return false;
        }
        self.leave_test(at);
        self.list[at].in_test = false;
        match self.reading.accessed_at_end {
            AccessedAtEnd::Grows if self.list[at].bit => self.grow(),
            AccessedAtEnd::Nothing if self.list[at].bit => {}
            _ => self.shrink(),
        }
        let leaves = !self.list[at].resident;
        if leaves {
            self.list.remove(at);
        }
        leaves
    }

    /// Searches a resident cold page for replacement (3.3.3); returns its block.
    fn run_hand_cold(&mut self) -> u64 {
        loop {
            let at = match self.reading.hand_cold {
                Hand::Last => self.list.iter().position(resident_cold),
                _ => self.list.iter().position(|page| Some(page.block) == self.hand_cold),
            };
            let at = at.expect("a resident cold page");
            self.leave_cold(at);
            if !self.list[at].bit {
                let block = self.list[at].block;
                if self.list[at].in_test {
                    self.list[at].resident = false;
                } else {
                    self.list.remove(at);
                }
                if self.reading.test_runs == TestRuns::AtReplacement {
                    self.run_hand_test();
                }
                return block;
            }
            let promoted = self.list[at].in_test;
            self.list[at].bit = promoted && self.reading.promoted_keeps_bit;
            if promoted {
                self.turn_hot(self.list[at].block, self.list[at].bit);
                continue;
            }
            match self.reading.spared {
                // The only resident cold page is the next one again.
                Spared::Stays => self.point(at),
                Spared::ToHead | Spared::ToHeadInTest => {
                    let page = self.list.remove(at);
                    self.place(Page { in_test: self.reading.spared == Spared::ToHeadInTest, ..page });
                }
            }
        }
    }

    /// Page `block` was accessed in its test period: places it at the list head. Returns whether it turned hot.
    fn turn_hot(&mut self, block: u64, bit: bool) -> bool {
        self.grow();
        let mut hot = true;
        while self.reading.promotion == Promotion::HandHotFirst && hot && self.hot() >= self.hot_max() {
            hot = self.hot() > 0 && self.turn_a_hot_page_cold(Some(block));
        }
        self.take_out(block);
        self.place(Page { block, resident: true, hot, in_test: !hot, bit: bit && hot });
        while self.reading.promotion == Promotion::ThenHandHot && self.hot() > self.hot_max() {
            self.turn_a_hot_page_cold(None);
        }
        hot
    }

    /// Runs HAND_hot until it has turned a hot page cold, and on to the next hot page (3.3.3). Returns whether it did so before
    /// it met `candidate`.
    fn turn_a_hot_page_cold(&mut self, candidate: Option<u64>) -> bool {
        let meets = |model: &ClockPro| Some(model.list[0].block) == candidate;
        loop {
            if meets(self) {
                return false;
            }
            if self.reading.hot_may_stop_early && self.hot() + usize::from(candidate.is_some()) <= self.hot_max() {
                return true;
            }
            if self.list[0].hot && !self.list[0].bit {
                self.list[0].hot = false;
                self.list[0].in_test = self.reading.demoted_in_test;
                self.list.rotate_left(1);
                self.point(self.list.len() - 1);
                if self.reading.sweeps_without_hot && self.hot() == 0 {
                    for _ in 0..self.list.len() {
                        if !meets(self) {
                            self.pass();
                        }
                    }
                }
                break;
            }
            self.pass();
        }
        while self.hot() > 0 && !self.list[0].hot && !meets(self) {
            self.pass();
        }
        true
    }

    /// Moves HAND_hot past the page it points to.
    fn pass(&mut self) {
        if self.list[0].hot {
            self.list[0].bit = false;
            self.list.rotate_left(1);
            return;
        }
        if self.reading.hand_cold == Hand::Pushed {
            self.leave_cold(0);
        }
        if !self.end_test(0) {
            self.list.rotate_left(1);
            self.point(self.list.len() - 1);
        }
    }

    /// Ends test periods until the non-resident pages are within their limit (3.3.3).
    fn run_hand_test(&mut self) {
        while self.ghosts().len() > self.reading.non_residents_max {
            let at = match self.reading.hand_test {
                Hand::Last => self.list.iter().position(cold_in_test),
                _ => self.list.iter().position(|page| Some(page.block) == self.hand_test),
            };
            self.end_test(at.expect("a cold page in its test period"));
        }
    }
}
