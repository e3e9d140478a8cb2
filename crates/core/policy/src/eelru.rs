//! EELRU: LRU, until too many of the evicted blocks are referenced again; then some blocks are evicted early so that
//! others stay longer.
//!
//! The LRU axis holds resident blocks and ghosts by recency. M is the size of the cache, e < M an early eviction point,
//! l > M a late one. Of references to positions (e, l], LRU hits those up to M. Early eviction keeps M - e blocks,
//! spread evenly over these l - e positions, and so hits each of them with probability (M - e) / (l - e).
//!
//! Choices that the paper leaves open:
//! * The candidates for e divide M evenly, rounded down but at least 1; those for l divide the axis beyond M. By
//!   default there are 7 and 6, up to 2.5 M. In a small cache some coincide.
//! * Hits are counted by the region between two neighbouring points, and recent ones weigh more: all counts are halved
//!   whenever their sum reaches `age`. Misses while a frame is free are not counted.
//! * If the block at position e is not resident, the next less recent resident block leaves.
//! * If the host has no room for all ghosts, the axis forgets the one evicted first, and less recent blocks move up.
//! * If the cache becomes smaller or larger, the points move along the axis, and the regions between them keep their
//!   counts. Ghosts beyond the last point are then forgotten.
//! * If a block must leave a cache that is not full, and no block is as old as position e, the least recent one leaves.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{SHARE_MOST, Values, multiple};
use crate::{Access, Policy, Room, Slot};

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
    /// The links of `axis`.
    recency: Links,
    /// The LRU axis, resident slots and ghosts, the most recent first. Ghosts are in all regions but the last.
    axis: List,
    /// The links of `resident`, `history` and `forgotten`.
    residency: Links,
    /// Resident slots, the most recent first.
    resident: List,
    /// Ghosts, the first evicted first.
    history: List,
    /// Slots that the host has not taken back yet.
    forgotten: List,
    /// By slot, its region, with `GHOST`; or `NONE`.
    region: Vec<u8>,
    /// The points, in order: e, then M, then l. Region i ends at position `ends[i]`; the last region has no end. A region is
    /// empty where two points are the same.
    ends: Vec<u32>,
    /// By region, the slot at the position where it ends, if the axis is that long.
    last: Vec<Slot>,
    /// By region, the first resident slot beyond it.
    beyond: Vec<Option<Slot>>,
    /// By region, references counted. The first and the last region are not used.
    hits: Vec<u64>,
    hits_sum: u64,
    /// The limit of `hits_sum`, which stays below it.
    age: u64,
    /// The region that ends at M.
    memory: usize,
    pairs: Vec<Pair>,
    /// The share of the cache that the points reach, and `age`.
    portions: [Portion; 2],
    /// The pair with the most expected hits; `None` for LRU.
    chosen: Option<Pair>,
    /// Whether `hits` has changed since `chosen` was computed.
    stale: bool,
    ghosts_most: u32,
}

impl Eelru {
    fn is_ghost(&self, slot: Slot) -> bool {
        let region = self.region[slot.index()];
        region != NONE && region & GHOST != 0
    }

    fn region(&self, slot: Slot) -> usize {
        (self.region[slot.index()] & !GHOST) as usize
    }

    /// Takes `slot` out of the residents or ghosts; its place on the axis stays.
    fn leave_residency(&mut self, slot: Slot) {
        if self.is_ghost(slot) {
            self.history.unlink(&mut self.residency, slot);
            return;
        }
        let after = self.resident.after(&self.residency, slot);
        for beyond in &mut self.beyond[..(self.region[slot.index()] as usize)] {
            if *beyond == Some(slot) {
                *beyond = after;
            }
        }
        self.resident.unlink(&mut self.residency, slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.region[slot.index()] = NONE;
        self.forgotten.push_back(&mut self.residency, slot);
    }

    /// The slot at the end of `region` moves one position down.
    fn pass(&mut self, region: usize) {
        let passed = self.last[region];
        self.last[region] = self.axis.before(&self.recency, passed).expect("a slot entered in front of it");
        self.region[passed.index()] += 1;
        if !self.is_ghost(passed) {
            self.beyond[region] = Some(passed);
        } else if region + 1 == self.ends.len() {
            self.axis.unlink(&mut self.recency, passed);
            self.history.unlink(&mut self.residency, passed);
            self.forget(passed);
        }
    }

    /// Puts `slot`, known before or not, on top of the axis.
    fn touch(&mut self, slot: Slot) {
        if self.region[slot.index()] == NONE {
            self.axis.push_front(&mut self.recency, slot);
            let len = self.axis.len();
            for region in 0..self.ends.len() {
                if len > self.ends[region] {
                    self.pass(region);
                } else if len == self.ends[region] {
                    self.last[region] = self.axis.back(&self.recency).expect("the axis is not empty");
                } else {
                    break;
                }
            }
        } else {
            self.leave_residency(slot);
            let region = self.region(slot);
            let before = self.axis.before(&self.recency, slot);
            if let Some(before) = before {
                let own = self.last[region..].iter_mut().take_while(|last| **last == slot);
                own.for_each(|last| *last = before);
            }
            self.axis.move_to_front(&mut self.recency, slot);
            for above in 0..region {
                self.pass(above);
            }
        }
        self.region[slot.index()] = 0;
        self.resident.push_front(&mut self.residency, slot);
    }

    /// Takes `slot` off the axis; less recent slots move up.
    fn leave(&mut self, slot: Slot) {
        self.leave_residency(slot);
        for region in self.region(slot)..self.ends.len() {
            if self.axis.len() < self.ends[region] {
                break;
            }
            let Some(moved) = self.axis.after(&self.recency, self.last[region]) else { break };
            self.last[region] = moved;
            self.region[moved.index()] -= 1;
            if !self.is_ghost(moved) {
                self.beyond[region] = self.resident.after(&self.residency, moved);
            }
        }
        self.axis.unlink(&mut self.recency, slot);
        self.region[slot.index()] = NONE;
    }

    fn count(&mut self, slot: Slot) {
        let region = self.region(slot);
        if region == 0 || region == self.ends.len() {
            return;
        }
        self.stale = true;
        self.hits[region] += 1;
        self.hits_sum += 1;
        if self.hits_sum >= self.age {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.hits.iter_mut().for_each(|hits| *hits /= 2);
        self.hits_sum = self.hits.iter().sum();
    }

    /// The block that leaves becomes a ghost, unless it is beyond the last point.
    #[inline]
    fn retire(&mut self) -> Slot {
        if self.stale {
            self.choose();
        }
        let least_recent = self.resident.back(&self.residency).expect("a block is resident");
        // Blocks beyond the late point leave first; only if there are none, a block leaves early.
        let victim = match self.chosen {
            Some(pair) if self.region(least_recent) <= pair.late => {
                self.at_early_point(pair.early).unwrap_or(least_recent)
            }
            _ => least_recent,
        };
        if self.region(victim) == self.ends.len() {
            self.leave(victim);
            self.forget(victim);
        } else {
            self.leave_residency(victim);
            self.history.push_back(&mut self.residency, victim);
            self.region[victim.index()] |= GHOST;
        }
        victim
    }

    /// Moves the points to their positions in a cache of `capacity` blocks.
    fn place_points(&mut self, capacity: u32) {
        let [reach, age] = self.portions;
        let m = u64::from(capacity);
        let beyond = u64::from(reach.of(capacity, capacity, u32::MAX)) - m;
        let (early, late) = (self.memory as u64, (self.ends.len() - self.memory - 1) as u64);
        for region in 0..self.ends.len() {
            let i = region as u64;
            let point =
                if i < early { (m * (i + 1) / (early + 1)).max(1) } else { m + beyond * (i - early) / late.max(1) };
            self.move_end(region, point as u32);
        }
        for pair in &mut self.pairs {
            let (e, l) = (self.ends[pair.early], self.ends[pair.late]);
            // If e is M, early eviction keeps nothing.
            pair.chance = if e < capacity { f64::from(capacity - e) / f64::from(l - e) } else { 0.0 };
        }
        self.age = age.of(capacity, 1, u32::MAX).into();
        while self.hits_sum >= self.age {
            self.halve();
        }
        self.stale = true;
    }

    /// Moves the end of `region`, and nothing else, to position `end`. Takes a step for each position between.
    fn move_end(&mut self, region: usize, end: u32) {
        let before = std::mem::replace(&mut self.ends[region], end);
        let len = self.axis.len();
        if before < end {
            for position in before + 1..=end.min(len) {
                let slot = match position {
                    1 => self.axis.front(&self.recency),
                    _ => self.axis.after(&self.recency, self.last[region]),
                };
                let slot = slot.expect("the axis is that long");
                self.last[region] = slot;
                self.region[slot.index()] -= 1;
                if !self.is_ghost(slot) {
                    self.beyond[region] = self.resident.after(&self.residency, slot);
                }
            }
            return;
        }
        if len < end {
            return;
        }
        let mut slot = if len < before {
            self.axis.back(&self.recency).expect("the axis is not empty")
        } else {
            self.last[region]
        };
        for _ in end..before.min(len) {
            let above = self.axis.before(&self.recency, slot).expect("an end is at position 1 or beyond");
            self.region[slot.index()] += 1;
            if !self.is_ghost(slot) {
                self.beyond[region] = Some(slot);
            } else if region + 1 == self.ends.len() {
                self.axis.unlink(&mut self.recency, slot);
                self.history.unlink(&mut self.residency, slot);
                self.forget(slot);
            }
            slot = above;
        }
        self.last[region] = slot;
    }

    fn limit_ghosts(&mut self) {
        while self.history.len() > self.ghosts_most {
            let first = self.history.front(&self.residency).expect("the history is not empty");
            self.leave(first);
            self.forget(first);
        }
    }

    /// The cost/benefit analysis: the pair with the most expected hits beyond those of LRU, if any.
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

    /// The resident slot at the early point or the next less recent one.
    fn at_early_point(&self, early: usize) -> Option<Slot> {
        if self.axis.len() < self.ends[early] {
            return None;
        }
        let last = self.last[early];
        if self.is_ghost(last) { self.beyond[early] } else { Some(last) }
    }
}

/// The most ghosts of a full cache: at most one resident block is beyond the last late point.
fn ghosts_within(reach: Portion, capacity: u32) -> u32 {
    (reach.of(capacity, capacity, u32::MAX) - capacity).saturating_add(1)
}

impl Configured for Eelru {
    const INFO: Info = Info {
        name: "eelru",
        summary: "evicts some blocks early while misses of recently evicted blocks outnumber hits of the oldest ones",
        paper: "Smaragdakis, Kaplan, Wilson, EELRU: Simple and Effective Adaptive Page Replacement, SIGMETRICS 1999",
        params: &[
            Param {
                published: None,
                key: "early",
                default: "7",
                values: Values::Whole { least: 0, most: POINTS_MOST as u64 },
                doc: "candidates for the early eviction point; 0 is LRU",
            },
            Param {
                published: None,
                key: "late",
                default: "6",
                values: Values::Whole { least: 0, most: POINTS_MOST as u64 },
                doc: "candidates for the late eviction point; 0 is LRU",
            },
            Param {
                published: None,
                key: "reach",
                default: "250%",
                values: Values::Portion {
                    share_least: 100.0,
                    share_most: SHARE_MOST,
                    count_least: 1,
                    count_most: "4294967295, and from the size of the cache",
                },
                doc: "the latest eviction point, as a share of the cache or a count of blocks",
            },
            Param {
                published: None,
                key: "age",
                default: "100%",
                values: multiple(1),
                doc: "counted references after which the counts are halved, as a share of the cache or a count",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(ghosts_within(params.portion("reach", capacity, u32::MAX)?, capacity))
    }

    fn new(setup: &Setup, params: &Params) -> Result<Eelru, SpecError> {
        let memory: usize = params.number("early")?;
        let points = memory + 1 + params.number::<usize>("late")?;
        let portions = [params.portion("reach", setup.capacity, u32::MAX)?, params.portion("age", 1, u32::MAX)?];
        let pairs = (0..memory).flat_map(|early| (memory + 1..points).map(move |late| (early, late)));
        let (recency, [axis]) = Links::new(setup.slots);
        let (residency, [resident, history, forgotten]) = Links::new(setup.slots);
        let mut policy = Eelru {
            recency,
            axis,
            residency,
            resident,
            history,
            forgotten,
            region: vec![NONE; setup.slots as usize],
            last: vec![Slot(0); points],
            beyond: vec![None; points],
            hits: vec![0; points + 1],
            hits_sum: 0,
            age: 1,
            memory,
            pairs: pairs.map(|(early, late)| Pair { early, late, chance: 0.0 }).collect(),
            portions,
            ends: vec![0; points],
            chosen: None,
            stale: false,
            ghosts_most: ghosts_within(portions[0], setup.capacity).min(setup.ghosts),
        };
        policy.place_points(setup.capacity);
        Ok(policy)
    }
}

impl Policy for Eelru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.count(slot);
        self.touch(slot);
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, _access: &Access) -> Option<Slot> {
        if self.is_ghost(incoming) {
            self.count(incoming);
        }
        Some(self.retire())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.touch(slot);
        self.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.retire();
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.recency.grow(room.slots, [&mut self.axis]);
        self.residency.grow(room.slots, [&mut self.resident, &mut self.history, &mut self.forgotten]);
        self.region.resize(room.slots as usize, NONE);
        self.ghosts_most = ghosts_within(self.portions[0], room.capacity).min(room.ghosts);
        self.place_points(room.capacity);
        self.limit_ghosts();
    }

    fn remove(&mut self, slot: Slot) {
        self.leave(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.residency)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.recency.warm(slot);
        self.residency.warm(slot);
        prefetch(&self.region, slot.index());
    }

    fn check(&self) {
        let axis = self.axis.checked(&self.recency);
        for (at, &slot) in axis.iter().enumerate() {
            let region = self.ends.iter().filter(|&&end| at >= end as usize).count();
            assert_eq!(self.region(slot), region, "{slot:?} at position {} is in another region", at + 1);
        }
        for (region, &end) in self.ends.iter().enumerate() {
            if let Some(&last) = axis.get(end as usize - 1) {
                assert_eq!(self.last[region], last, "the end of region {region}");
            }
            let mut beyond = axis.iter().skip(end as usize).copied();
            assert_eq!(self.beyond[region], beyond.find(|&slot| !self.is_ghost(slot)), "beyond region {region}");
        }
        let known = self.region.iter().filter(|&&region| region != NONE).count();
        assert_eq!(axis.len(), known, "a known slot is off the axis");
        let (ghosts, resident): (Vec<_>, Vec<_>) = axis.into_iter().partition(|&slot| self.is_ghost(slot));
        assert_eq!(self.resident.checked(&self.residency), resident, "the residents or their order");
        let mut history = self.history.checked(&self.residency);
        assert!(history.len() <= self.ghosts_most as usize, "too many ghosts");
        assert!(history.iter().all(|&slot| self.region(slot) < self.ends.len()), "a ghost beyond the last late point");
        history.sort_unstable();
        assert!(ghosts.iter().all(|slot| history.binary_search(slot).is_ok()), "a ghost is not in the history");
        assert_eq!(history.len(), ghosts.len(), "the history holds what is not a ghost");
        for slot in self.forgotten.checked(&self.residency) {
            assert_eq!(self.region[slot.index()], NONE, "{slot:?} is forgotten");
        }
        assert_eq!(self.hits_sum, self.hits.iter().sum::<u64>(), "the sum of hits is wrong");
        assert!(self.hits_sum < self.age, "the hits were not halved");
        assert_eq!((self.hits[0], self.hits[self.ends.len()]), (0, 0), "hits were counted that tell nothing");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        let end = |region: usize| u64::from(self.ends[region]);
        report("early_point", self.chosen.map_or(0, |pair| end(pair.early)));
        report("late_point", self.chosen.map_or(0, |pair| end(pair.late)));
        report("ghosts", u64::from(self.history.len()));
    }
}
