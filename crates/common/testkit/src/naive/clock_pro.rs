//! CLOCK-Pro as described in sections 3.3.2 to 3.3.4 of the dissertation, with the list as a vector from its tail to
//! its head. HAND_hot is at the tail by definition; the other hands are found anew each time by the kind of page they
//! point to.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::naive::{Model, Portion, Settings};

struct Page {
    block: u64,
    hot: bool,
    resident: bool,
    in_test: bool,
    referenced: bool,
}

pub(crate) struct ClockPro {
    m: usize,
    m_c: usize,
    /// m_c, if it is fixed.
    fixed: Option<Portion>,
    history: Portion,
    non_resident_most: usize,
    /// Whether m_c grows for a faulted page that HAND_hot meets.
    grows_for_overtaken: bool,
    list: Vec<Page>,
}

impl ClockPro {
    pub(crate) fn new(m: usize, settings: Settings) -> ClockPro {
        let fixed = (settings.get("cold", "adaptive") != "adaptive").then(|| settings.portion("cold", ""));
        let history = settings.history("2");
        let mut model = ClockPro {
            m,
            m_c: settings.portion("start", "1%").of(m),
            fixed,
            history,
            non_resident_most: usize::MAX,
            grows_for_overtaken: settings.get("overtaken", "up") == "up",
            list: Vec::new(),
        };
        model.resize(m, usize::MAX);
        model
    }

    fn count(&self, of: impl Fn(&Page) -> bool) -> usize {
        self.list.iter().filter(|page| of(page)).count()
    }

    fn find(&self, block: u64) -> Option<usize> {
        self.list.iter().position(|page| page.block == block)
    }

    fn change_m_c(&mut self, by: isize) {
        if self.fixed.is_none() {
            self.m_c = self.m_c.saturating_add_signed(by).min(self.m - 1).max(1);
        }
    }

    /// The test period of the page at `at` ends; a non-resident page leaves the list. Returns whether it stayed.
    fn terminate_test(&mut self, at: usize) -> bool {
        let page = &mut self.list[at];
        let (was_in_test, referenced) = (page.in_test, page.referenced);
        page.in_test = false;
        if was_in_test {
            self.change_m_c(if referenced { 1 } else { -1 });
        }
        let stays = self.list[at].resident;
        if !stays {
            self.list.remove(at);
        }
        stays
    }

    fn hand_hot_passes(&mut self) {
        let page = self.list.remove(0);
        self.list.push(page);
    }

    /// Moves HAND_hot until a hot page has turned cold and on to the next hot page, never past `candidate`.
    fn run_hand_hot(&mut self, candidate: u64) -> bool {
        let mut turned = false;
        while self.list[0].block != candidate {
            if !self.list[0].hot {
                if self.terminate_test(0) {
                    self.hand_hot_passes();
                }
                if turned && self.count(|page| page.hot) == 0 {
                    break;
                }
            } else if turned {
                break;
            } else {
                let page = &mut self.list[0];
                turned = !page.referenced;
                page.hot = page.referenced;
                page.referenced = false;
                self.hand_hot_passes();
                if turned && self.count(|page| page.hot) == 0 {
                    break;
                }
            }
        }
        turned
    }

    /// A page was accessed in its test period: returns whether it turns hot.
    fn competes(&mut self, candidate: u64) -> bool {
        self.change_m_c(1);
        loop {
            let hot = self.count(|page| page.hot);
            if hot < self.m - self.m_c {
                return true;
            }
            if hot == 0 || !self.run_hand_hot(candidate) {
                return false;
            }
        }
    }

    fn run_hand_test(&mut self) {
        while self.count(|page| !page.resident) > self.non_resident_most {
            let hand_test = self.list.iter().position(|page| page.in_test).expect("a page in its test period");
            self.terminate_test(hand_test);
        }
    }

    fn run_hand_cold(&mut self) -> u64 {
        loop {
            let Some(at) = self.list.iter().position(|page| page.resident && !page.hot) else {
                self.run_hand_hot(u64::MAX);
                continue;
            };
            let block = self.list[at].block;
            if self.list[at].referenced {
                self.list[at].referenced = false;
                let hot = self.list[at].in_test && self.competes(block);
                let at = self.find(block).expect("it stays in the list");
                self.list.remove(at);
                self.list.push(Page { block, hot, resident: true, in_test: !hot, referenced: false });
                continue;
            }
            if self.list[at].in_test {
                self.list[at].resident = false;
            } else {
                self.list.remove(at);
            }
            return block;
        }
    }
}

impl Model for ClockPro {
    fn access(&mut self, block: u64) -> Outcome {
        if let Some(at) = self.find(block)
            && self.list[at].resident
        {
            self.list[at].referenced = true;
            return Outcome { hit: true, evicted: None };
        }
        let full = self.count(|page| page.resident) == self.m;
        let evicted = full.then(|| self.run_hand_cold());
        let hot = match self.find(block) {
            Some(_) => {
                let hot = self.competes(block);
                if !hot && !self.grows_for_overtaken {
                    self.change_m_c(-1);
                }
                let at = self.find(block).expect("no hand moves past the candidate");
                self.list.remove(at);
                hot
            }
            None => !full && self.count(|page| page.hot) < self.m - self.m_c,
        };
        self.list.push(Page { block, hot, resident: true, in_test: !hot, referenced: false });
        self.run_hand_test();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.run_hand_cold();
        self.run_hand_test();
        victim
    }

    fn resize(&mut self, m: usize, ghosts: usize) {
        self.m = m;
        self.m_c = self.fixed.map_or(self.m_c, |fixed| fixed.of(m)).min(m - 1).max(1);
        self.non_resident_most = self.history.of(m).min(ghosts);
        self.run_hand_test();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.list.iter().filter(|page| !page.resident).map(|page| page.block).collect()
    }
}
