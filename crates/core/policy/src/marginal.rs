//! A cache divided by marginal gain, which UBM introduced and PCC took over: groups of sequential and looping blocks
//! beside all other blocks, in LRU order.
//!
//! The marginal gain of a partition is the number of extra hits per unit of time that one more buffer brings. The
//! partition with the least gain loses the next block. Time is counted in references.
//!
//! * Sequential: 0. The group that was used last loses its most recently used block.
//! * Looping: 1 / period of the loop with the longest period, which loses its most recently used block.
//! * Other: from a curve of the miss ratio over the number n of buffers, `c * n^-k` (Belady's lifetime function). Two
//!   points determine it: the measured miss ratio with n buffers, and that with n and the ghosts. The gain is the
//!   difference between n and n + 1 buffers, times the references per unit of time.
//!
//! The hits and misses of the curve count half as much after as many references as the cache has blocks.

use crate::heap::Heap;
use crate::list::{Links, List};
use crate::spec::{Portion, Setup};
use crate::{Room, Slot};

/// The longest period that orders loops.
const PERIOD_MOST: u64 = (1 << 28) - 1;

/// Bits of a key below the period.
const ORDER_BITS: u32 = 36;

/// The least number of references after which counts are halved.
const WINDOW_LEAST: u64 = 32;

/// Place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Place {
    #[default]
    None,
    Other,
    Group(u32),
    Ghost {
        /// Whether it left the partition of other blocks.
        of_other: bool,
    },
}

/// Blocks with one period.
struct Group {
    /// In references; infinite if sequential.
    period: f64,
    /// The tick of the last reference.
    used: u64,
    /// Its resident blocks, the most recently used first.
    blocks: List,
    /// Its key in the heap, if it has blocks.
    key: Option<u64>,
}

/// Counts of the partition of other blocks.
#[derive(Default)]
struct Counts {
    /// All references, also to other partitions.
    time: u64,
    references: u64,
    hits: u64,
    ghost_hits: u64,
}

/// The blocks of a cache, by partition.
pub(crate) struct Partitions {
    links: Links<Place>,
    /// The most recently used first.
    other: List,
    /// Blocks that left, the latest first.
    ghosts: List,
    /// Ghosts that left `other`.
    ghosts_of_other: u32,
    groups: Vec<Group>,
    /// Groups with blocks; the one with the least gain on top.
    order: Heap,
    counts: Counts,
    /// Whether blocks of groups become ghosts when they leave.
    keeps_groups: bool,
    capacity: u32,
    history: Portion,
    ghosts_most: u32,
    forgotten: Vec<Slot>,
}

impl Partitions {
    /// An empty cache with at most `groups` groups.
    pub(crate) fn new(setup: &Setup, history: Portion, groups: u32, keeps_groups: bool) -> Partitions {
        let (links, [other, ghosts]) = Links::with_own(setup.slots);
        Partitions {
            links,
            other,
            ghosts,
            ghosts_of_other: 0,
            groups: Vec::new(),
            order: Heap::new(groups, 0),
            counts: Counts::default(),
            keeps_groups,
            capacity: setup.capacity,
            history,
            ghosts_most: history.of(setup.capacity, 0, setup.ghosts),
            forgotten: Vec::new(),
        }
    }

    /// One more group, sequential and empty.
    pub(crate) fn add_group(&mut self) -> u32 {
        let blocks = self.links.list();
        self.groups.push(Group { period: f64::INFINITY, used: 0, blocks, key: None });
        self.groups.len() as u32 - 1
    }

    /// Place of `slot`.
    #[inline]
    pub(crate) fn place(&self, slot: Slot) -> Place {
        *self.links.own(slot)
    }

    /// The period of `group`, infinite if it is sequential.
    #[inline]
    pub(crate) fn period(&self, group: u32) -> f64 {
        self.groups[group as usize].period
    }

    /// Sets the period of `group`, infinite if it is sequential.
    #[inline]
    pub(crate) fn set_period(&mut self, group: u32, period: f64) {
        self.groups[group as usize].period = period;
        self.arrange(group);
    }

    /// Moves the blocks of `group` to group `to`, in the same order and before its blocks.
    pub(crate) fn merge(&mut self, group: u32, to: u32) {
        while let Some(slot) = self.groups[group as usize].blocks.pop_back(&mut self.links) {
            *self.links.own_mut(slot) = Place::Group(to);
            self.groups[to as usize].blocks.push_front(&mut self.links, slot);
        }
        self.arrange(group);
        self.arrange(to);
    }

    /// Makes `slot` resident, and the most recently used block of `group`, or of the other blocks if there is none.
    pub(crate) fn reference(&mut self, slot: Slot, group: Option<u32>, tick: u64) {
        let before = self.place(slot);
        self.counts.time += 1;
        if group.is_none() {
            self.counts.references += 1;
            self.counts.hits += u64::from(matches!(before, Place::Other | Place::Group(_)));
            self.counts.ghost_hits += u64::from(before == Place::Ghost { of_other: true });
        }
        if self.counts.time >= 2 * u64::from(self.capacity).max(WINDOW_LEAST) {
            let Counts { time, references, hits, ghost_hits } = &mut self.counts;
            [time, references, hits, ghost_hits].into_iter().for_each(|count| *count /= 2);
        }
        self.unlink(slot);
        match group {
            Some(group) => {
                let to = &mut self.groups[group as usize];
                to.blocks.push_front(&mut self.links, slot);
                to.used = tick;
                *self.links.own_mut(slot) = Place::Group(group);
                self.arrange(group);
            }
            None => {
                self.other.push_front(&mut self.links, slot);
                *self.links.own_mut(slot) = Place::Other;
            }
        }
        if let Place::Group(before) = before
            && Some(before) != group
        {
            self.arrange(before);
        }
    }

    /// Takes the block with the least gain out of the cache. Too many ghosts may follow from this.
    pub(crate) fn pop(&mut self) -> Slot {
        let group = self.order.least().map(|(_, Slot(group))| group);
        let of_group = group.filter(|&group| self.other.is_empty() || self.gain() >= 1.0 / self.period(group));
        let slot = match of_group {
            Some(group) => {
                let slot = self.groups[group as usize].blocks.pop_front(&mut self.links);
                self.arrange(group);
                slot
            }
            None => self.other.pop_back(&mut self.links),
        };
        let slot = slot.expect("a block is resident");
        let of_other = of_group.is_none();
        if of_other || self.keeps_groups {
            *self.links.own_mut(slot) = Place::Ghost { of_other };
            self.ghosts.push_front(&mut self.links, slot);
            self.ghosts_of_other += u32::from(of_other);
        } else {
            *self.links.own_mut(slot) = Place::None;
            self.forgotten.push(slot);
        }
        slot
    }

    /// Forgets the oldest ghosts beyond their limit.
    pub(crate) fn limit_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_most {
            let oldest = self.ghosts.back(&self.links).expect("there are ghosts");
            self.remove(oldest);
            self.forgotten.push(oldest);
        }
    }

    /// Makes `slot` unknown.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let before = self.place(slot);
        self.unlink(slot);
        *self.links.own_mut(slot) = Place::None;
        if let Place::Group(group) = before {
            self.arrange(group);
        }
    }

    pub(crate) fn resize(&mut self, room: Room) {
        let groups = self.groups.iter_mut().map(|group| &mut group.blocks);
        self.links.grow(room.slots, [&mut self.other, &mut self.ghosts].into_iter().chain(groups));
        self.capacity = room.capacity;
        self.ghosts_most = self.history.of(room.capacity, 0, room.ghosts);
        self.limit_ghosts();
    }

    #[inline]
    pub(crate) fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    pub(crate) fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    #[inline(always)]
    pub(crate) fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    /// Reports the sizes of the partitions.
    pub(crate) fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        let of = |looping: bool| {
            let groups = self.groups.iter().filter(|group| group.period.is_finite() == looping);
            groups.map(|group| u64::from(group.blocks.len())).sum()
        };
        report("sequential", of(false));
        report("looping", of(true));
        report("other", self.other.len().into());
    }

    /// Takes `slot` out of its list.
    fn unlink(&mut self, slot: Slot) {
        match self.place(slot) {
            Place::None => {}
            Place::Other => self.other.unlink(&mut self.links, slot),
            Place::Group(group) => self.groups[group as usize].blocks.unlink(&mut self.links, slot),
            Place::Ghost { of_other } => {
                self.ghosts.unlink(&mut self.links, slot);
                self.ghosts_of_other -= u32::from(of_other);
            }
        }
    }

    /// The gain of one more buffer for other blocks, of which there are some.
    fn gain(&self) -> f64 {
        if self.ghosts_of_other == 0 {
            return 0.0;
        }
        let Counts { time, references, hits, ghost_hits } = self.counts;
        let (buffers, ghosts) = (f64::from(self.other.len()), f64::from(self.ghosts_of_other));
        // One miss more, so that neither ratio is 0.
        let ratio = |hits: u64| (references - hits + 1) as f64 / (references + 1) as f64;
        let (misses, misses_with_ghosts) = (ratio(hits), ratio(hits + ghost_hits));
        let exponent = (misses / misses_with_ghosts).ln() / ((buffers + ghosts) / buffers).ln();
        let with_one_more = misses * (buffers / (buffers + 1.0)).powf(exponent);
        references as f64 / time.max(1) as f64 * (misses - with_one_more)
    }

    /// Moves `group` to its place in the order of eviction, after its blocks or its period changed.
    fn arrange(&mut self, group: u32) {
        let key = self.key(group);
        self.order.arrange(Slot(group), &mut self.groups[group as usize].key, key);
    }

    /// The place of `group` in the order of eviction: first sequential ones, the last used first; then by period.
    fn key(&self, group: u32) -> Option<u64> {
        let Group { period, used, blocks, .. } = &self.groups[group as usize];
        let most = (1 << ORDER_BITS) - 1;
        (!blocks.is_empty()).then(|| match period.is_finite() {
            true => (1 + PERIOD_MOST - (*period as u64).min(PERIOD_MOST)) << ORDER_BITS | u64::from(group),
            false => most - (used & most),
        })
    }

    /// Checks that every list, count and key agrees with the others.
    ///
    /// # Panics
    /// If one does not.
    pub(crate) fn check(&self) {
        let mut listed = 0;
        let mut expect = |slots: Vec<Slot>, is_right: &dyn Fn(Place) -> bool| {
            assert!(
                slots.iter().all(|&slot| is_right(self.place(slot))),
                "a block is in the list of another partition"
            );
            listed += slots.len();
        };
        expect(self.other.checked(&self.links), &|place| place == Place::Other);
        expect(self.ghosts.checked(&self.links), &|place| matches!(place, Place::Ghost { .. }));
        for (number, group) in self.groups.iter().enumerate() {
            expect(group.blocks.checked(&self.links), &|place| place == Place::Group(number as u32));
            assert_eq!(group.key, self.key(number as u32), "the order of group {number} is old");
        }
        assert_eq!(listed, self.links.owns().filter(|&&place| place != Place::None).count(), "a block in no list");
        let of_other = self.links.owns().filter(|&&place| place == Place::Ghost { of_other: true }).count();
        assert_eq!(self.ghosts_of_other as usize, of_other, "ghosts are counted wrongly");
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
        let mut keys: Vec<u64> = self.order.checked().map(|(key, _)| key).collect();
        let mut expected: Vec<u64> = self.groups.iter().filter_map(|group| group.key).collect();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected, "a group that is not in the order, or twice");
        assert!(self.forgotten.iter().all(|&slot| self.place(slot) == Place::None), "a known block is forgotten");
        let Counts { references, hits, ghost_hits, .. } = self.counts;
        assert!(hits + ghost_hits <= references, "more hits than references");
    }
}
