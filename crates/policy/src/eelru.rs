//! EELRU: LRU, until too many of the blocks that it evicted come back; then blocks leave early, to let others stay long.
//!
//! The LRU axis holds resident blocks and ghosts by recency. M is the size of the cache, e < M an early eviction point,
//! l > M a late one. Of references to positions (e, l], LRU hits those up to M. Early eviction, which keeps M - e blocks
//! evenly out of the l - e there, hits all of them with a chance of (M - e) / (l - e).
//!
//! Choices that the paper leaves open:
//! * The candidates for e divide M evenly, those for l the axis beyond M. By default they are 7 and 6, up to 2.5 M.
//! * Hits are counted by the region between two neighbouring points, and recent ones count more: all counts are halved
//!   whenever their sum reaches `age`. What misses while a frame is free is not counted.
//! * If the block at position e is not resident, the next less recent one that is resident leaves.
//! * Without room for all its ghosts the axis forgets the one evicted first, and what is less recent moves up.

use crate::list::{Links, List};
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

/// Candidates for e, and for l, at most.
const POINTS_MOST: usize = 15;
/// Those that end at each e, at M and at each l, and the one beyond.
const REGIONS_MOST: usize = 2 * POINTS_MOST + 2;
/// In `Eelru::region`, a bit: not resident.
const GHOST: u8 = 0x80;
/// In `Eelru::region`: unknown.
const NONE: u8 = 0xff;

/// An early and a late eviction point, weighed against LRU.
#[derive(Clone, Copy)]
struct Pair {
    /// The region that ends at e.
    early: usize,
    /// The region that ends at l.
    late: usize,
    /// (M - e) / (l - e).
    chance: f64,
}

/// Early eviction LRU.
pub struct Eelru {
    axis: Links,
    /// The axis by region, each with the most recent slot first. Ghosts are in all regions but the last.
    regions: Vec<List>,
    residency: Links,
    /// By region, its resident slots, the most recent first.
    resident: Vec<List>,
    /// Ghosts, the first evicted first.
    history: List,
    /// Slots that the host has not taken back yet.
    forgotten: List,
    /// By slot, its region, with `GHOST`; or `NONE`.
    region: Vec<u8>,
    /// By region, positions in it. The last region has no end.
    width: Vec<u32>,
    /// By region, references counted. Those in the first and the last region tell nothing.
    hits: Vec<u64>,
    hits_sum: u64,
    /// What `hits_sum` must not reach.
    age: u64,
    /// The region that ends at M.
    memory: usize,
    pairs: Vec<Pair>,
    /// The pair that is best now; `None` for LRU.
    chosen: Option<Pair>,
    /// Whether `hits` has changed since `chosen` was.
    stale: bool,
    ghosts_most: u32,
}

impl Eelru {
    fn is_ghost(&self, slot: Slot) -> bool {
        let region = self.region[slot.index()];
        region != NONE && region & GHOST != 0
    }

    /// Takes `slot` off the axis and returns the region it was in.
    fn leave(&mut self, slot: Slot) -> usize {
        let region = (self.region[slot.index()] & !GHOST) as usize;
        self.regions[region].unlink(&mut self.axis, slot);
        if self.is_ghost(slot) {
            self.history.unlink(&mut self.residency, slot);
        } else {
            self.resident[region].unlink(&mut self.residency, slot);
        }
        self.region[slot.index()] = NONE;
        region
    }

    fn forget(&mut self, slot: Slot) {
        self.region[slot.index()] = NONE;
        self.forgotten.push_back(&mut self.residency, slot);
    }

    /// Puts `slot` on top of the axis. Each region passes on what it has no room for, up to where one is missing.
    fn enter(&mut self, slot: Slot) {
        self.region[slot.index()] = 0;
        self.regions[0].push_front(&mut self.axis, slot);
        self.resident[0].push_front(&mut self.residency, slot);
        for region in 0..self.width.len() {
            if self.regions[region].len() <= self.width[region] {
                return;
            }
            let next = region + 1;
            let passed = self.regions[region].pop_back(&mut self.axis).expect("the region is not empty");
            if !self.is_ghost(passed) {
                self.resident[region].unlink(&mut self.residency, passed);
                self.resident[next].push_front(&mut self.residency, passed);
            } else if next == self.width.len() {
                self.history.unlink(&mut self.residency, passed);
                self.forget(passed);
                return;
            }
            self.region[passed.index()] += 1;
            self.regions[next].push_front(&mut self.axis, passed);
        }
    }

    /// Moves up what is less recent than a slot that left `region`.
    fn close(&mut self, region: usize) {
        for region in region..self.width.len() {
            let next = region + 1;
            let Some(moved) = self.regions[next].pop_front(&mut self.axis) else { return };
            self.regions[region].push_back(&mut self.axis, moved);
            if !self.is_ghost(moved) {
                self.resident[next].unlink(&mut self.residency, moved);
                self.resident[region].push_back(&mut self.residency, moved);
            }
            self.region[moved.index()] -= 1;
        }
    }

    fn count(&mut self, slot: Slot) {
        let region = (self.region[slot.index()] & !GHOST) as usize;
        if region == 0 || region == self.width.len() {
            return;
        }
        self.stale = true;
        self.hits[region] += 1;
        self.hits_sum += 1;
        if self.hits_sum >= self.age {
            self.hits.iter_mut().for_each(|hits| *hits /= 2);
            self.hits_sum = self.hits.iter().sum();
        }
    }

    /// The cost/benefit analysis: the pair with the most expected hits more than LRU, if any has more.
    fn choose(&mut self) {
        let mut hits_up_to = [0; REGIONS_MOST];
        let mut sum = 0;
        for (up_to, hits) in hits_up_to.iter_mut().zip(&self.hits) {
            sum += hits;
            *up_to = sum;
        }
        let mut most = 0.0;
        self.chosen = None;
        for &pair in &self.pairs {
            let total = hits_up_to[pair.late] - hits_up_to[pair.early];
            let lru = hits_up_to[self.memory] - hits_up_to[pair.early];
            let benefit = total as f64 * pair.chance - lru as f64;
            if benefit > most {
                most = benefit;
                self.chosen = Some(pair);
            }
        }
        self.stale = false;
    }

    fn least_recent(&self) -> Slot {
        let last = self.resident.iter().rev().find_map(|resident| resident.back(&self.residency));
        last.expect("a full cache holds a block")
    }

    /// The resident slot at position e or the next less recent one.
    fn at_early_point(&self, early: usize) -> Slot {
        let at = self.regions[early].back(&self.axis).filter(|&slot| !self.is_ghost(slot));
        let after = || self.resident[early + 1..].iter().find_map(|resident| resident.front(&self.residency));
        at.or_else(after).expect("a full cache holds more blocks than e")
    }
}

impl Configured for Eelru {
    const INFO: Info = Info {
        name: "eelru",
        summary: "evicts some blocks early while blocks evicted lately are missed more than those kept are used",
        paper: "Smaragdakis, Kaplan, Wilson, EELRU: Simple and Effective Adaptive Page Replacement, SIGMETRICS 1999",
        params: &[
            Param { key: "early", default: "7", doc: "candidates for the early eviction point, from 0 (LRU) to 15" },
            Param { key: "late", default: "6", doc: "candidates for the late eviction point, from 0 (LRU) to 15" },
            Param {
                key: "reach",
                default: "250%",
                doc: "the latest eviction point, as a share of the cache or a count of blocks, from the cache's size",
            },
            Param {
                key: "age",
                default: "100%",
                doc: "references counted, as a share of the cache or a count, until the counts are halved, from 1",
            },
        ],
        offline: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Eelru, SpecError> {
        let capacity = u64::from(setup.capacity);
        let (early, late) =
            (params.number("early", 0, POINTS_MOST)? as u64, params.number("late", 0, POINTS_MOST)? as u64);
        let reach = u64::from(params.blocks("reach", setup.capacity, setup.capacity, u32::MAX)?);
        let mut points: Vec<u64> = (1..=early).map(|i| capacity * i / (early + 1)).filter(|&e| e > 0).collect();
        points.push(capacity);
        points.extend((1..=late).map(|i| capacity + (reach - capacity) * i / late));
        points.dedup();
        let memory = points.binary_search(&capacity).expect("M is one of the points");
        let pair = |early: usize, late: usize| {
            let (e, l) = (points[early], points[late]);
            Pair { early, late, chance: (capacity - e) as f64 / (l - e) as f64 }
        };
        let pairs = (0..memory).flat_map(|early| (memory + 1..points.len()).map(move |late| (early, late)));
        let starts = std::iter::once(&0).chain(&points);
        let regions = points.len() + 1;
        let (axis, mut axis_lists) = list_vec::<REGIONS_MOST>(setup.slots);
        let (residency, mut residency_lists) = list_vec::<{ REGIONS_MOST + 2 }>(setup.slots);
        let mut list = || residency_lists.pop().expect("two lists beside the regions");
        let (history, forgotten) = (list(), list());
        axis_lists.truncate(regions);
        residency_lists.truncate(regions);
        Ok(Eelru {
            axis,
            regions: axis_lists,
            residency,
            resident: residency_lists,
            history,
            forgotten,
            region: vec![NONE; setup.slots as usize],
            width: points.iter().zip(starts).map(|(end, start)| (end - start) as u32).collect(),
            hits: vec![0; regions],
            hits_sum: 0,
            age: u64::from(params.blocks("age", setup.capacity, 1, u32::MAX)?),
            memory,
            pairs: pairs.map(|(early, late)| pair(early, late)).collect(),
            chosen: None,
            stale: false,
            ghosts_most: setup.ghosts,
        })
    }
}

fn list_vec<const N: usize>(slots: u32) -> (Links, Vec<List>) {
    let (links, lists) = Links::new::<N>(slots);
    (links, Vec::from(lists))
}

impl Policy for Eelru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.count(slot);
        self.leave(slot);
        self.enter(slot);
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, _access: &Access) -> Slot {
        if self.is_ghost(incoming) {
            self.count(incoming);
        }
        if self.stale {
            self.choose();
        }
        let least_recent = self.least_recent();
        // What has passed the late point has had its time; only then does a block that has not leave at e.
        let victim = match self.chosen {
            Some(pair) if self.region[least_recent.index()] as usize <= pair.late => self.at_early_point(pair.early),
            _ => least_recent,
        };
        let region = self.region[victim.index()] as usize;
        if region == self.width.len() {
            self.leave(victim);
            self.forget(victim);
        } else {
            self.resident[region].unlink(&mut self.residency, victim);
            self.history.push_back(&mut self.residency, victim);
            self.region[victim.index()] |= GHOST;
        }
        victim
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.is_ghost(slot) {
            self.leave(slot);
        }
        self.enter(slot);
        while self.history.len() > self.ghosts_most {
            let first = self.history.front(&self.residency).expect("the history is not empty");
            let region = self.leave(first);
            self.close(region);
            self.forget(first);
        }
    }

    fn remove(&mut self, slot: Slot) {
        let region = self.leave(slot);
        self.close(region);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.residency)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.axis.warm(slot);
        self.residency.warm(slot);
        std::hint::black_box(self.region[slot.index()]);
    }

    fn check(&self) {
        let mut above_full = true;
        let mut known = 0;
        let mut ghosts = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let slots = region.checked(&self.axis);
            assert!(above_full || slots.is_empty(), "region {number} is not empty, but one above it is not full");
            if let Some(&width) = self.width.get(number) {
                assert!(slots.len() <= width as usize, "region {number} is too long");
                above_full &= slots.len() == width as usize;
            }
            for slot in &slots {
                assert_eq!((self.region[slot.index()] & !GHOST) as usize, number, "{slot:?} is in another region");
            }
            known += slots.len();
            let resident: Vec<Slot> = slots.into_iter().filter(|&slot| !self.is_ghost(slot)).collect();
            assert_eq!(self.resident[number].checked(&self.residency), resident, "residents of region {number}");
            ghosts += region.len() as usize - resident.len();
        }
        let last = self.width.len();
        assert_eq!(self.regions[last].len(), self.resident[last].len(), "a ghost is beyond the last late point");
        let history = self.history.checked(&self.residency);
        assert!(history.iter().all(|&slot| self.is_ghost(slot)), "the history holds a slot that is not a ghost");
        assert_eq!(history.len(), ghosts, "a ghost is not in the history");
        assert!(ghosts <= self.ghosts_most as usize, "too many ghosts");
        assert_eq!(known, self.region.iter().filter(|&&region| region != NONE).count(), "a known slot is off the axis");
        assert_eq!(self.hits_sum, self.hits.iter().sum::<u64>(), "the sum of hits is wrong");
        assert!(self.hits_sum < self.age, "the hits were not halved");
        assert_eq!((self.hits[0], self.hits[last]), (0, 0), "hits were counted that tell nothing");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        let end = |region: usize| self.width[..=region].iter().map(|&width| u64::from(width)).sum();
        report("early_point", self.chosen.map_or(0, |pair| end(pair.early)));
        report("late_point", self.chosen.map_or(0, |pair| end(pair.late)));
        report("ghosts", u64::from(self.history.len()));
    }
}
