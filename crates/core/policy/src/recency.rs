//! Orders of slots by their last reference, as logs.
//!
//! A reference writes the slot at the end of a ring and its new place into a word of the slot. The slot's previous
//! entry stays behind as stale, because the slot's place is now elsewhere. A reference therefore touches no neighbour of the
//! slot, which a linked list would fetch from memory one after another, and slots that leave at the old end are read in
//! sequence. That pays if an order is long and mostly read from its old end; for a short one a
//! [`List`](crate::list::List) is better.
//!
//! Orders can share the words of their slots if a slot is in one of them at a time: an entry of such an order counts
//! only while the slot has the order's own tag.
//!
//! When the ring is full, the stale entries are squeezed out, and if few were stale the ring doubles: O(1) a reference,
//! amortized, and O(length) at that reference.

use std::ops::Range;

use crate::Slot;
use crate::prefetch::prefetch;

const TAG: u32 = 3;
const TAG_BITS: u32 = 2;
/// The place of a slot that is not in the order.
const NOWHERE: u32 = u32::MAX >> TAG_BITS;
/// The most slots of an order: its ring has `RING_LEAST` places, or less than six for each slot in the order when it
/// was longest, and so stays shorter than `NOWHERE`.
pub const SLOTS_MOST: u32 = 1 << 27;
const RING_LEAST: usize = 64;
/// The number of entries that [`Order::live`] examines, and the number of places ahead of a moving hand whose words are
/// loaded.
pub const LOOK: u32 = 16;

/// The words of all slots for `N` orders: for each, in 4 bytes, a place and a tag of two bits for the owner's use.
pub struct Places<const N: usize> {
    words: Vec<[u32; N]>,
}

impl<const N: usize> Places<N> {
    /// Words for slots `0..slots`, in no order and with tag 0.
    ///
    /// # Panics
    /// If there are more than [`SLOTS_MOST`] slots.
    pub fn new(slots: u32) -> Places<N> {
        assert!(slots <= SLOTS_MOST, "{slots} slots are more than {SLOTS_MOST}");
        Places { words: vec![[NOWHERE << TAG_BITS; N]; slots as usize] }
    }

    /// Makes room for slots `0..slots`, at least as many as before.
    ///
    /// # Panics
    /// If they are more than [`SLOTS_MOST`].
    pub fn grow(&mut self, slots: u32) {
        assert!(slots <= SLOTS_MOST, "{slots} slots are more than {SLOTS_MOST}");
        self.words.resize(slots as usize, [NOWHERE << TAG_BITS; N]);
    }

    /// All slots, in an order or not.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.words.len() as u32).map(Slot)
    }

    /// Loads the words of `slot` into the processor's cache.
    #[inline(always)]
    pub fn warm(&self, slot: Slot) {
        prefetch(&self.words, slot.index());
    }
}

/// Order number `AT` of those that share a [`Places`], which every operation takes. It stores `HANDS` places for its
/// owner.
///
/// Its ring takes 4 bytes a place: at least 256 bytes, or up to 22 for each slot in the order when it was longest,
/// because a ring never shrinks. The tree of a counting order takes as much again.
pub struct Order<const AT: usize, const HANDS: usize> {
    /// Slots in the order of references, including stale entries; the length is a power of two.
    ring: Vec<u32>,
    /// The place of the next reference.
    head: u32,
    /// No slot's place lies before it.
    tail: u32,
    len: u32,
    /// Places from `tail` to `head`, which stay at the same entries when the ring is squeezed.
    hands: [u32; HANDS],
    /// The bits of a slot's word that show whether an entry is current, apart from the place, and their value.
    told_by: u32,
    own: u32,
    /// A Fenwick tree of the places in use if [`after`](Order::after) is needed; otherwise empty.
    used: Vec<u32>,
}

impl<const AT: usize, const HANDS: usize> Order<AT, HANDS> {
    /// An empty order. With `counting`, [`after`](Order::after) works and each reference costs O(log length).
    pub fn new(counting: bool) -> Order<AT, HANDS> {
        let used = if counting { vec![0; RING_LEAST + 1] } else { Vec::new() };
        Order { ring: vec![0; RING_LEAST], head: 0, tail: 0, len: 0, hands: [0; HANDS], told_by: !TAG, own: 0, used }
    }

    /// An empty order of slots with `tag`. It shares their words with the orders of other tags, so a result that does
    /// not depend on the tag, such as that of [`contains`](Order::contains), applies to any of them.
    pub fn of_tag(tag: u32) -> Order<AT, HANDS> {
        Order { told_by: u32::MAX, own: tag, ..Order::new(false) }
    }

    /// Whether the entry at `place` is current for a slot with this word.
    #[inline(always)]
    fn is_live(&self, word: u32, place: u32) -> bool {
        (word ^ (place << TAG_BITS | self.own)) & self.told_by == 0
    }

    /// Slots in the order.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no slot is in the order.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tag of `slot`.
    #[inline(always)]
    pub fn tag<const N: usize>(&self, places: &Places<N>, slot: Slot) -> u32 {
        places.words[slot.index()][AT] & TAG
    }

    /// Changes the tag of `slot`.
    #[inline(always)]
    pub fn set_tag<const N: usize>(&self, places: &mut Places<N>, slot: Slot, tag: u32) {
        let word = &mut places.words[slot.index()][AT];
        *word = *word & !TAG | tag;
    }

    /// Whether `slot` is in the order.
    #[inline(always)]
    pub fn contains<const N: usize>(&self, places: &Places<N>, slot: Slot) -> bool {
        self.place(places, slot) != NOWHERE
    }

    /// The place of `slot`, which is in the order.
    #[inline(always)]
    pub fn place<const N: usize>(&self, places: &Places<N>, slot: Slot) -> u32 {
        places.words[slot.index()][AT] >> TAG_BITS
    }

    /// The slot whose place is or was `place`.
    #[inline(always)]
    pub fn slot(&self, place: u32) -> Slot {
        Slot(self.ring[place as usize])
    }

    /// The slot whose place is `place`, unless its entry is stale.
    #[inline(always)]
    pub fn at<const N: usize>(&self, places: &Places<N>, place: u32) -> Option<Slot> {
        let slot = self.slot(place);
        self.is_live(places.words[slot.index()][AT], place).then_some(slot)
    }

    /// Which of the [`LOOK`] places from `place` on hold current entries, as bits. Looking at many at once takes no
    /// branch that the processor would have to predict, and waits for memory once.
    #[inline(always)]
    pub fn live<const N: usize>(&self, places: &Places<N>, place: u32) -> u32 {
        let is_live = |slot: u32, at: u32| u32::from(self.is_live(places.words[slot as usize][AT], at));
        let mut live = 0;
        if let Some(entries) = self.ring.get(place as usize..(place + LOOK) as usize) {
            for (ahead, &slot) in (0..).zip(entries) {
                live |= is_live(slot, place + ahead) << ahead;
            }
        } else {
            for ahead in 0..LOOK {
                let at = self.ahead(place, ahead);
                live |= is_live(self.ring[at as usize], at) << ahead;
            }
        }
        live
    }

    /// The first place from `place` on with a current entry, or the head.
    #[inline(always)]
    pub fn next<const N: usize>(&self, places: &Places<N>, mut place: u32) -> u32 {
        while place != self.head && self.at(places, place).is_none() {
            places.warm(self.slot(self.ahead(place, LOOK)));
            place = self.ahead(place, 1);
        }
        place
    }

    /// The place of the next reference.
    #[inline(always)]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// A place before which no entry is current.
    #[inline(always)]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// The place `ahead` places after `place`.
    #[inline(always)]
    pub fn ahead(&self, place: u32, ahead: u32) -> u32 {
        self.wrap(place + ahead)
    }

    /// Whether `place` comes before `other`, both from the tail on.
    #[inline(always)]
    pub fn before(&self, place: u32, other: u32) -> bool {
        self.wrap(place.wrapping_sub(self.tail)) < self.wrap(other.wrapping_sub(self.tail))
    }

    /// A stored place.
    #[inline(always)]
    pub fn hand(&self, hand: usize) -> u32 {
        self.hands[hand]
    }

    /// Stores `place`.
    #[inline(always)]
    pub fn set_hand(&mut self, hand: usize, place: u32) {
        self.hands[hand] = place;
    }

    /// Releases all places before `place`, none of which holds a current entry. A hand among them moves to `place`.
    #[inline(always)]
    pub fn set_tail(&mut self, place: u32) {
        for hand in 0..HANDS {
            if self.before(self.hands[hand], place) {
                self.hands[hand] = place;
            }
        }
        self.tail = place;
    }

    /// Adds `slot`, which is not in the order, as the latest.
    #[inline(always)]
    pub fn push<const N: usize>(&mut self, places: &mut Places<N>, slot: Slot, tag: u32) {
        self.len += 1;
        self.append(places, slot, tag);
    }

    /// Makes `slot`, which is in the order, the latest.
    #[inline(always)]
    pub fn refresh<const N: usize>(&mut self, places: &mut Places<N>, slot: Slot, tag: u32) {
        self.count(self.place(places, slot), u32::MAX);
        self.append(places, slot, tag);
    }

    /// Takes `slot` out of the order; it keeps `tag`.
    #[inline(always)]
    pub fn leave<const N: usize>(&mut self, places: &mut Places<N>, slot: Slot, tag: u32) {
        self.count(self.place(places, slot), u32::MAX);
        self.len -= 1;
        places.words[slot.index()][AT] = NOWHERE << TAG_BITS | tag;
    }

    /// Takes out the slot referenced longest ago; it keeps its tag.
    #[inline(always)]
    pub fn pop<const N: usize>(&mut self, places: &mut Places<N>) -> Option<Slot> {
        if self.len == 0 {
            return None;
        }
        let mut place = self.tail;
        let slot = loop {
            let entry = self.at(places, place);
            places.warm(self.slot(self.ahead(place, LOOK)));
            place = self.ahead(place, 1);
            if let Some(slot) = entry {
                break slot;
            }
        };
        self.leave(places, slot, self.tag(places, slot));
        self.set_tail(place);
        Some(slot)
    }

    /// Slots referenced after the last reference to `slot`, which is in the order: O(log length). The order must be
    /// counting.
    pub fn after<const N: usize>(&self, places: &Places<N>, slot: Slot) -> u32 {
        let upto = |place: u32| {
            let mut at = place as usize + 1;
            let mut sum = 0u32;
            while at > 0 {
                sum = sum.wrapping_add(self.used[at]);
                at &= at - 1;
            }
            sum
        };
        let place = self.place(places, slot);
        let latest = self.wrap(self.head.wrapping_sub(1));
        let counted = upto(latest).wrapping_sub(upto(place));
        if place <= latest { counted } else { counted.wrapping_add(self.len) }
    }

    /// Checks the order's own invariants, and returns the slots from the one referenced longest ago to the latest.
    ///
    /// # Panics
    /// On a broken one.
    pub fn checked<const N: usize>(&self, places: &Places<N>) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut place = self.tail;
        while place != self.head {
            slots.extend(self.at(places, place));
            place = self.ahead(place, 1);
        }
        assert_eq!(slots.len(), self.len as usize, "the order's length is wrong");
        let own =
            |slot: &Slot| self.contains(places, *slot) && (self.tag(places, *slot) ^ self.own) & self.told_by == 0;
        let placed = places.slots().filter(own).count();
        assert_eq!(placed, slots.len(), "a slot's place lies outside the order");
        for hand in self.hands {
            assert!(hand == self.head || self.before(hand, self.head), "a hand lies outside the order");
        }
        if !self.used.is_empty() {
            for (later, &slot) in slots.iter().rev().enumerate() {
                assert_eq!(self.after(places, slot), later as u32, "the count of places is wrong");
            }
        }
        slots
    }

    #[inline(always)]
    fn wrap(&self, place: u32) -> u32 {
        place & (self.ring.len() as u32 - 1)
    }

    #[inline(always)]
    fn append<const N: usize>(&mut self, places: &mut Places<N>, slot: Slot, tag: u32) {
        debug_assert_eq!((tag ^ self.own) & self.told_by & TAG, 0, "an order of one tag gets another");
        let place = self.head;
        self.ring[place as usize] = slot.0;
        places.words[slot.index()][AT] = place << TAG_BITS | tag;
        self.count(place, 1);
        self.head = self.ahead(place, 1);
        if self.head == self.tail {
            self.squeeze(places);
        }
    }

    /// Removes all stale entries from the ring, which is full, and doubles the ring if few were stale.
    #[cold]
    #[inline(never)]
    fn squeeze<const N: usize>(&mut self, places: &mut Places<N>) {
        self.ring.rotate_left(self.tail as usize);
        let mut hands: [(u32, usize); HANDS] =
            std::array::from_fn(|hand| (self.wrap(self.hands[hand].wrapping_sub(self.tail)), hand));
        hands.sort_unstable();
        let (mut read, mut write) = (0, 0);
        for (at, hand) in hands {
            write = self.keep_live(places, read..at, write);
            (read, self.hands[hand]) = (at, write);
        }
        write = self.keep_live(places, read..self.ring.len() as u32, write);
        (self.tail, self.head) = (0, write);
        if 8 * write as usize > 3 * self.ring.len() {
            self.ring.resize(2 * self.ring.len(), 0);
        }
        if !self.used.is_empty() {
            self.used = vec![0; self.ring.len() + 1];
            (0..write).for_each(|place| self.count(place, 1));
        }
    }

    /// Moves the current entries of the ring, from that at the tail on, to the places from `write` on, and returns the
    /// place after them.
    fn keep_live<const N: usize>(&mut self, places: &mut Places<N>, read: Range<u32>, mut write: u32) -> u32 {
        for read in read {
            let slot = self.ring[read as usize];
            let live = self.is_live(places.words[slot as usize][AT], self.wrap(self.tail + read));
            let word = &mut places.words[slot as usize][AT];
            *word = if live { write << TAG_BITS | *word & TAG } else { *word };
            self.ring[write as usize] = slot;
            write += u32::from(live);
        }
        write
    }

    /// Adds `change`, which wraps, to the use count of `place`, if the order is counting.
    #[inline(always)]
    fn count(&mut self, place: u32, change: u32) {
        if !self.used.is_empty() {
            self.add(place, change);
        }
    }

    #[cold]
    fn add(&mut self, place: u32, change: u32) {
        let mut at = place as usize + 1;
        while at < self.used.len() {
            self.used[at] = self.used[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }
}
