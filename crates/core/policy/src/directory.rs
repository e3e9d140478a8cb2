//! The cache directory of ARC and CAR: T1 and T2, which are resident, their ghosts B1 and B2, and the target p.
//!
//! Both papers define these parts alike: how p adapts to a hit in B1 or B2, and which entries "cache directory
//! replacement" forgets. If the host has room for fewer ghosts than the papers' c, the longer of B1 and B2 forgets its
//! least recently used page.
//!
//! When the cache becomes smaller or larger, p keeps its share of it. If the directory is then longer than c allows, B1
//! forgets its least recently used pages until |T1| + |B1| <= c, and then B2 until the directory holds 2c.

use crate::recency::{Order, Places, SLOTS_MOST};
use crate::spec::{Setup, SpecError};
use crate::{Room, Slot};

// The lists, by the tags of their slots.
/// Resident, seen once recently.
pub(crate) const T1: u32 = 0;
/// Resident, seen at least twice recently.
pub(crate) const T2: u32 = 1;
/// Evicted from T1.
pub(crate) const B1: u32 = 2;
/// Evicted from T2.
pub(crate) const B2: u32 = 3;

/// The four lists and the target.
pub(crate) struct Directory {
    places: Places<1>,
    /// By tag. The slot pushed last is at the end.
    lists: [Order<0, 0>; 4],
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
    /// The target size of T1.
    p: f64,
    /// c.
    capacity: u32,
    ghosts_most: u32,
}

impl Directory {
    /// An empty directory for `policy`.
    pub(crate) fn new(policy: &'static str, setup: &Setup) -> Result<Directory, SpecError> {
        if setup.slots > SLOTS_MOST {
            return Err(SpecError::TooLarge { policy, slots: setup.slots, most: SLOTS_MOST });
        }
        Ok(Directory {
            places: Places::new(setup.slots),
            lists: [T1, T2, B1, B2].map(Order::of_tag),
            forgotten: Vec::new(),
            p: 0.0,
            capacity: setup.capacity,
            ghosts_most: setup.ghosts,
        })
    }

    /// c.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The target size of T1.
    #[inline(always)]
    pub(crate) fn p(&self) -> f64 {
        self.p
    }

    /// Slots in `list`.
    #[inline(always)]
    pub(crate) fn len(&self, list: u32) -> u32 {
        self.lists[list as usize].len()
    }

    /// The list that `slot` is in.
    #[inline(always)]
    fn list(&self, slot: Slot) -> Option<u32> {
        // The lists share the slots' words.
        let any = &self.lists[0];
        any.contains(&self.places, slot).then(|| any.tag(&self.places, slot))
    }

    /// Puts `slot`, which is in no list, at the end of `list`.
    #[inline(always)]
    pub(crate) fn push(&mut self, slot: Slot, list: u32) {
        self.lists[list as usize].push(&mut self.places, slot, list);
    }

    /// Takes out the first of `list`.
    #[inline(always)]
    pub(crate) fn pop(&mut self, list: u32) -> Option<Slot> {
        self.lists[list as usize].pop(&mut self.places)
    }

    /// Takes `slot` out of its list.
    #[inline(always)]
    pub(crate) fn leave(&mut self, slot: Slot) {
        if let Some(list) = self.list(slot) {
            self.lists[list as usize].leave(&mut self.places, slot, list);
        }
    }

    /// Adapts p to a hit in B1 or B2 and takes the block out of that list. Returns the list, if any.
    #[inline]
    pub(crate) fn recall(&mut self, slot: Slot) -> Option<u32> {
        let list = self.list(slot).filter(|&list| list == B1 || list == B2)?;
        let (b1, b2) = (f64::from(self.len(B1)), f64::from(self.len(B2)));
        if list == B1 {
            self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
        } else {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
        }
        self.leave(slot);
        Some(list)
    }

    /// Returns `slot`, which is in no list, to the host.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.forgotten.push(slot);
    }

    fn forget_first(&mut self, list: u32) {
        let first = self.pop(list);
        self.forgotten.extend(first);
    }

    /// Makes room for a block that is in no list.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        if self.len(T1) + self.len(B1) >= self.capacity {
            self.forget_first(B1);
        } else if self.known() >= self.capacity.saturating_mul(2) {
            self.forget_first(B2);
        }
    }

    /// Forgets ghosts beyond the limits of both papers and of the host.
    pub(crate) fn shorten(&mut self) {
        while self.len(T1) + self.len(B1) > self.capacity && self.len(B1) > 0 {
            self.forget_first(B1);
        }
        while self.known() > self.capacity.saturating_mul(2) && self.len(B2) > 0 {
            self.forget_first(B2);
        }
        while self.len(B1) + self.len(B2) > self.ghosts_most {
            self.limit_ghosts();
        }
    }

    /// The host has `room` from now on.
    pub(crate) fn resize(&mut self, room: Room) {
        self.places.grow(room.slots);
        let capacity = f64::from(room.capacity);
        self.p = (self.p * capacity / f64::from(self.capacity)).min(capacity);
        self.capacity = room.capacity;
        self.ghosts_most = room.ghosts;
        self.shorten();
    }

    /// |T1| + |T2| + |B1| + |B2|.
    #[inline]
    fn known(&self) -> u32 {
        self.lists.iter().map(Order::len).sum()
    }

    /// Forgets ghosts beyond the host's room for them.
    #[inline]
    pub(crate) fn limit_ghosts(&mut self) {
        if self.len(B1) + self.len(B2) > self.ghosts_most {
            self.forget_first(if self.len(B1) >= self.len(B2) { B1 } else { B2 });
        }
    }

    /// The next slot that the host can use again.
    #[inline(always)]
    pub(crate) fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    /// Loads the state of `slot` into the processor's cache.
    #[inline(always)]
    pub(crate) fn warm(&self, slot: Slot) {
        self.places.warm(slot);
    }

    /// Panics on a broken invariant. Returns the resident slots.
    pub(crate) fn check(&self) -> Vec<Slot> {
        let lists = self.lists.each_ref().map(|list| list.checked(&self.places));
        let known: usize = lists.iter().map(Vec::len).sum();
        assert_eq!(self.places.slots().filter(|&slot| self.list(slot).is_some()).count(), known, "a page in no list");
        assert!(self.forgotten.iter().all(|&slot| self.list(slot).is_none()), "a known page is forgotten");
        // Until the host has taken out the blocks that a smaller cache cannot hold, T1 and T2 alone can exceed c.
        assert!(self.len(B1) == 0 || self.len(T1) + self.len(B1) <= self.capacity, "|T1| + |B1| <= c");
        let most = 2 * u64::from(self.capacity);
        assert!(self.len(B2) == 0 || known as u64 <= most, "|T1| + |T2| + |B1| + |B2| <= 2c");
        assert!(self.len(B1) + self.len(B2) <= self.ghosts_most, "too many ghosts");
        assert!((0.0..=f64::from(self.capacity)).contains(&self.p), "0 <= p <= c");
        let [t1, t2, ..] = lists;
        [t1, t2].concat()
    }

    pub(crate) fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("p", self.p as u64);
        report("t1", self.len(T1).into());
        report("t2", self.len(T2).into());
        report("ghosts", (self.len(B1) + self.len(B2)).into());
    }
}
