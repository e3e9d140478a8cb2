//! The order in which slots were last referenced, as a log.
//!
//! A reference writes the slot at the end of a ring and its new place into one word of the slot. The entry it had
//! before stays behind, stale: the slot's place is elsewhere. So a reference never touches the slot's neighbours, which
//! a linked list has to fetch from memory one after another, and entries that leave at the old end are read in sequence.
//! When the ring is full its stale entries are squeezed out: O(1) a reference, amortized, O(length) at that reference.
//!
//! Each slot also carries a tag of two bits, its owner's, which is kept while the slot is not in the order.

use crate::Slot;

const TAG: u32 = 3;
const TAG_BITS: u32 = 2;
/// The place of a slot that is not in the order.
const NOWHERE: u32 = u32::MAX >> TAG_BITS;
const LENGTH_MOST: u32 = 1 << 28;

/// An order of slots by their last reference, with `HANDS` places that its owner remembers: 12 to 20 bytes a slot.
pub struct Recency<const HANDS: usize> {
    /// Slots in the order of references, stale entries among them; a power of two.
    ring: Vec<u32>,
    /// For each slot, its place in the ring and its tag.
    words: Vec<u32>,
    /// The place of the next reference.
    head: u32,
    /// No slot's place lies before it.
    tail: u32,
    len: u32,
    /// Places between `tail` and `head`, which stay at the same entries when the ring is squeezed.
    hands: [u32; HANDS],
    /// A Fenwick tree of the places in use, where ranks are asked for; else empty.
    used: Vec<u32>,
}

impl<const HANDS: usize> Recency<HANDS> {
    /// An empty order over slots `0..slots`, of which at most `most` are in it at a time.
    ///
    /// # Panics
    /// If `most` exceeds 2^28.
    pub fn new(slots: u32, most: u32) -> Recency<HANDS> {
        let most = most.min(slots);
        assert!(most <= LENGTH_MOST, "an order of {most} slots is longer than {LENGTH_MOST}");
        let ring = vec![0; (2 * most as usize).next_power_of_two().max(4)];
        let words = vec![NOWHERE << TAG_BITS; slots as usize];
        Recency { ring, words, head: 0, tail: 0, len: 0, hands: [0; HANDS], used: Vec::new() }
    }

    /// Makes [`after`](Recency::after) known, which then costs each reference O(log length). The order must be empty.
    pub fn count_places(&mut self) {
        self.used = vec![0; self.ring.len() + 1];
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

    /// Loads the word of `slot` into the processor's cache.
    #[inline(always)]
    pub fn warm(&self, slot: Slot) {
        std::hint::black_box(self.words[slot.index()]);
    }

    /// The tag of `slot`.
    #[inline(always)]
    pub fn tag(&self, slot: Slot) -> u32 {
        self.words[slot.index()] & TAG
    }

    /// Changes the tag of `slot`.
    #[inline(always)]
    pub fn set_tag(&mut self, slot: Slot, tag: u32) {
        let word = &mut self.words[slot.index()];
        *word = *word & !TAG | tag;
    }

    /// Whether `slot` is in the order.
    #[inline(always)]
    pub fn contains(&self, slot: Slot) -> bool {
        self.place(slot) != NOWHERE
    }

    /// The place of `slot`, which is in the order.
    #[inline(always)]
    pub fn place(&self, slot: Slot) -> u32 {
        self.words[slot.index()] >> TAG_BITS
    }

    /// The slot whose place is `place`, unless its entry is stale.
    #[inline(always)]
    pub fn at(&self, place: u32) -> Option<Slot> {
        let slot = Slot(self.ring[place as usize]);
        (self.place(slot) == place).then_some(slot)
    }

    /// The place of the next reference.
    #[inline(always)]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// A place before which there is no slot's.
    #[inline(always)]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// The place after `place`.
    #[inline(always)]
    pub fn next(&self, place: u32) -> u32 {
        self.wrap(place + 1)
    }

    /// Whether `place` comes before `other`, both from the tail on.
    #[inline(always)]
    pub fn before(&self, place: u32, other: u32) -> bool {
        self.wrap(place.wrapping_sub(self.tail)) < self.wrap(other.wrapping_sub(self.tail))
    }

    /// A place that the owner remembers.
    #[inline(always)]
    pub fn hand(&self, hand: usize) -> u32 {
        self.hands[hand]
    }

    /// Remembers `place`.
    #[inline(always)]
    pub fn set_hand(&mut self, hand: usize, place: u32) {
        self.hands[hand] = place;
    }

    /// Lets go of all places before `place`, where no slot's is. A hand among them goes to `place`.
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
    pub fn push(&mut self, slot: Slot, tag: u32) {
        self.len += 1;
        self.append(slot, tag);
    }

    /// Makes `slot`, which is in the order, the latest.
    #[inline(always)]
    pub fn refresh(&mut self, slot: Slot, tag: u32) {
        if !self.used.is_empty() {
            self.count(self.place(slot), u32::MAX);
        }
        self.append(slot, tag);
    }

    /// Takes `slot` out of the order; it keeps `tag`.
    #[inline(always)]
    pub fn leave(&mut self, slot: Slot, tag: u32) {
        if !self.used.is_empty() {
            self.count(self.place(slot), u32::MAX);
        }
        self.len -= 1;
        self.words[slot.index()] = NOWHERE << TAG_BITS | tag;
    }

    /// Takes out the slot referenced longest ago; it gets the tag 0.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Slot> {
        if self.len == 0 {
            return None;
        }
        let mut place = self.tail;
        let slot = loop {
            let entry = self.at(place);
            place = self.next(place);
            if let Some(slot) = entry {
                break slot;
            }
        };
        self.leave(slot, 0);
        self.set_tail(place);
        Some(slot)
    }

    /// Slots referenced after the last reference to `slot`, which is in the order: O(log length), and only after
    /// [`count_places`](Recency::count_places).
    pub fn after(&self, slot: Slot) -> u32 {
        let place = self.place(slot);
        let upto = |place: u32| {
            let mut at = place as usize + 1;
            let mut sum = 0u32;
            while at > 0 {
                sum = sum.wrapping_add(self.used[at]);
                at &= at - 1;
            }
            sum
        };
        let newest = self.wrap(self.head.wrapping_sub(1));
        let counted = upto(newest).wrapping_sub(upto(place));
        if place <= newest { counted } else { counted.wrapping_add(self.len) }
    }

    /// The slots from the one referenced longest ago to the latest, having checked the order's own invariants.
    ///
    /// # Panics
    /// On a broken one.
    pub fn checked(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut place = self.tail;
        while place != self.head {
            slots.extend(self.at(place));
            place = self.next(place);
        }
        assert_eq!(slots.len(), self.len as usize, "the order's length is wrong");
        let placed = (0..self.words.len() as u32).filter(|&slot| self.contains(Slot(slot))).count();
        assert_eq!(placed, slots.len(), "a slot's place lies outside the order");
        for hand in self.hands {
            assert!(hand == self.head || self.before(hand, self.head), "a hand lies outside the order");
        }
        if !self.used.is_empty() {
            for (later, &slot) in slots.iter().rev().enumerate() {
                assert_eq!(self.after(slot), later as u32, "the count of places is wrong");
            }
        }
        slots
    }

    #[inline(always)]
    fn wrap(&self, place: u32) -> u32 {
        place & (self.ring.len() as u32 - 1)
    }

    #[inline(always)]
    fn append(&mut self, slot: Slot, tag: u32) {
        let place = self.head;
        self.ring[place as usize] = slot.0;
        self.words[slot.index()] = place << TAG_BITS | tag;
        if !self.used.is_empty() {
            self.count(place, 1);
        }
        self.head = self.next(place);
        if self.head == self.tail {
            self.squeeze();
        }
    }

    /// Removes all stale entries. The ring is full, and at most half of its entries are not stale.
    #[cold]
    #[inline(never)]
    fn squeeze(&mut self) {
        let (mut read, mut write) = (self.tail, self.tail);
        let mut hands = [None; HANDS];
        loop {
            for (hand, moved) in self.hands.iter().zip(&mut hands) {
                if *hand == read && moved.is_none() {
                    *moved = Some(write);
                }
            }
            if let Some(slot) = self.at(read) {
                self.ring[write as usize] = slot.0;
                self.words[slot.index()] = write << TAG_BITS | self.tag(slot);
                write = self.next(write);
            }
            read = self.next(read);
            if read == self.tail {
                break;
            }
        }
        self.head = write;
        for (hand, moved) in self.hands.iter_mut().zip(hands) {
            *hand = moved.unwrap_or(write);
        }
        if !self.used.is_empty() {
            self.used.fill(0);
            let mut place = self.tail;
            while place != self.head {
                self.count(place, 1);
                place = self.next(place);
            }
        }
    }

    /// Adds `change`, which wraps, to the use of `place`.
    fn count(&mut self, place: u32, change: u32) {
        let mut at = place as usize + 1;
        while at < self.used.len() {
            self.used[at] = self.used[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }
}
