//! Linux's page cache on vectors, each with the most recent page in front, after the functions of mm/vmscan.c, mm/swap.c
//! and mm/workingset.c. A reclaim is planned as a list of steps, one for each page scanned.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Settings, take};

pub(crate) struct Linux {
    capacity: usize,
    inactive: Vec<u64>,
    active: Vec<u64>,
    page_referenced: BTreeSet<u64>,
    nonresident_age: usize,
    /// The value of `nonresident_age` in each shadow entry, in the order of eviction.
    shadows: Vec<(u64, usize)>,
    shadows_most: usize,
    remembers: bool,
    /// Whether a refault activated since the last reclaim.
    refaulted: bool,
    /// How many pages the last reclaim may still free.
    nr_to_free: usize,
    /// The page of the last read of each volume.
    previous: BTreeMap<u64, u64>,
}

impl Linux {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Linux {
        let remembers = settings.number("refault", "1") == 1;
        Linux {
            capacity,
            inactive: Vec::new(),
            active: Vec::new(),
            page_referenced: BTreeSet::new(),
            nonresident_age: 0,
            shadows: Vec::new(),
            shadows_most: if remembers { capacity } else { 0 },
            remembers,
            refaulted: false,
            nr_to_free: 0,
            previous: BTreeMap::new(),
        }
    }

    fn try_to_free_pages(&mut self) {
        let refaulted = std::mem::take(&mut self.refaulted);
        let mut nr_inactive = self.inactive.len();
        let mut nr_reclaimed = 0;
        for shift in [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0] {
            // These caches are far below a gibibyte, where the inactive list is low if it is the shorter one.
            let may_deactivate = refaulted || nr_inactive < self.active.len();
            let mut scans = [nr_inactive / (1 << shift), self.active.len() / (1 << shift)];
            if !may_deactivate {
                scans[1] = 0;
            }
            let mut here = 0;
            while here < 32 && scans.iter().sum::<usize>() > 0 {
                for _ in 0..32 {
                    if scans[0] > 0 {
                        scans[0] -= 1;
                        nr_inactive -= 1;
                        here += 1;
                    }
                }
                for _ in 0..32 {
                    if scans[1] > 0 {
                        scans[1] -= 1;
                        nr_inactive += 1;
                        let tail = self.active.pop().expect("a page");
                        self.inactive.insert(0, tail);
                    }
                }
            }
            nr_reclaimed += here;
            if nr_reclaimed >= 32 {
                break;
            }
        }
        self.nr_to_free = nr_reclaimed;
    }

    fn continues(&mut self, block: u64) -> bool {
        self.previous.insert(block >> 32, block) == Some(block)
    }

    fn forget(&mut self) {
        while self.shadows.len() > self.shadows_most {
            self.shadows.remove(0);
        }
    }

    fn reclaim_page(&mut self) -> u64 {
        if self.nr_to_free == 0 || self.inactive.is_empty() {
            self.try_to_free_pages();
        }
        self.nr_to_free = self.nr_to_free.saturating_sub(1);
        // Only active pages, and none of them was moved: the oldest is taken.
        let page = self.inactive.pop().or_else(|| self.active.pop()).expect("a page");
        self.page_referenced.remove(&page);
        self.shadows.push((page, self.nonresident_age));
        self.nonresident_age += 1;
        page
    }
}

impl Model for Linux {
    fn access(&mut self, block: u64) -> Outcome {
        if self.inactive.contains(&block) || self.active.contains(&block) {
            let accessed_twice = !self.continues(block) && !self.page_referenced.insert(block);
            if accessed_twice && take(&mut self.inactive, block) {
                self.active.insert(0, block);
                self.page_referenced.remove(&block);
                self.nonresident_age += 1;
            }
            return Outcome { hit: true, evicted: None };
        }
        let full = self.inactive.len() + self.active.len() == self.capacity;
        let evicted = full.then(|| self.reclaim_page());
        let shadow = self.shadows.iter().position(|&(page, _)| page == block).map(|at| self.shadows.remove(at).1);
        let distance = shadow.map(|eviction| self.nonresident_age - eviction);
        if distance.is_some_and(|distance| distance <= self.active.len()) {
            self.active.insert(0, block);
            self.nonresident_age += 1;
            self.refaulted = true;
        } else {
            self.inactive.insert(0, block);
        }
        if !self.continues(block) {
            self.page_referenced.insert(block);
        }
        self.forget();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let page = self.reclaim_page();
        self.forget();
        page
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.capacity = capacity;
        self.shadows_most = if self.remembers { capacity.min(ghosts) } else { 0 };
        self.forget();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.shadows.iter().map(|&(page, _)| page).collect()
    }
}
