//! A priority queue over slots from which any slot can be taken.

use crate::Slot;

/// Children of a node: their keys share a cache line or two.
const ARITY: usize = 4;

/// A heap with the least key on top. It takes 4 bytes for each possible slot, and 4 bytes and a key for each slot in it. A slot
/// is in it at most once.
pub struct Heap<K = u64> {
    keys: Vec<K>,
    /// The slot of each key.
    slots: Vec<Slot>,
    /// For each slot in the heap, its position.
    places: Vec<u32>,
}

impl<K: Copy + Ord> Heap<K> {
    /// An empty heap of slots `0..slots`, with room for `capacity` of them.
    pub fn new(slots: u32, capacity: u32) -> Heap<K> {
        Heap {
            keys: Vec::with_capacity(capacity as usize),
            slots: Vec::with_capacity(capacity as usize),
            places: vec![0; slots as usize],
        }
    }

    /// Makes room for slots `0..slots`, at least as many as before.
    pub fn grow(&mut self, slots: u32) {
        self.places.resize(slots as usize, 0);
    }

    /// Moves a slot to `key`, or takes it out at `None`. `known` is the key that it has, and is kept.
    #[inline]
    pub fn arrange(&mut self, slot: Slot, known: &mut Option<K>, key: Option<K>) {
        if *known == key {
            return;
        }
        if known.is_some() {
            self.remove(slot);
        }
        if let Some(key) = key {
            self.push(slot, key);
        }
        *known = key;
    }

    /// Slots in the heap.
    #[inline]
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether no slot is in the heap.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The least key and its slot.
    #[inline]
    pub fn least(&self) -> Option<(K, Slot)> {
        Some((*self.keys.first()?, self.slots[0]))
    }

    /// Adds `slot`, which is not in the heap.
    #[inline]
    pub fn push(&mut self, slot: Slot, key: K) {
        self.keys.push(key);
        self.slots.push(slot);
        self.rise(self.keys.len() - 1, key, slot);
    }

    /// Replaces the key of the top slot by another one, which is not less.
    #[inline]
    pub fn raise_least(&mut self, key: K) {
        self.sink(0, key, self.slots[0]);
    }

    /// Takes `slot`, which is in the heap, out.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let at = self.places[slot.index()] as usize;
        let (Some(key), Some(last)) = (self.keys.pop(), self.slots.pop()) else {
            panic!("{slot:?} is not in the heap");
        };
        if at == self.keys.len() {
            return;
        }
        if key < self.keys[at] {
            self.rise(at, key, last);
        } else {
            self.sink(at, key, last);
        }
    }

    /// Checks the heap's order and the position of each slot, and returns the keys and slots in no order.
    ///
    /// # Panics
    /// On a broken order or place.
    pub fn checked(&self) -> impl Iterator<Item = (K, Slot)> {
        assert_eq!(self.keys.len(), self.slots.len(), "keys and slots differ in number");
        for (at, slot) in self.slots.iter().enumerate() {
            assert_eq!(self.places[slot.index()] as usize, at, "{slot:?} is said to be elsewhere");
            assert!(
                at == 0 || self.keys[(at - 1) / ARITY] <= self.keys[at],
                "{slot:?} has a lesser key than its parent"
            );
        }
        self.keys.iter().copied().zip(self.slots.iter().copied())
    }

    #[inline(always)]
    fn place(&mut self, at: usize, key: K, slot: Slot) {
        self.keys[at] = key;
        self.slots[at] = slot;
        self.places[slot.index()] = at as u32;
    }

    /// Fills the gap at `at` with `slot`, after ancestors with greater keys have moved down.
    #[inline]
    fn rise(&mut self, mut at: usize, key: K, slot: Slot) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.keys[parent] <= key {
                break;
            }
            self.place(at, self.keys[parent], self.slots[parent]);
            at = parent;
        }
        self.place(at, key, slot);
    }

    /// Fills the gap at `at` with `slot`, after descendants with lesser keys have moved up.
    #[inline]
    fn sink(&mut self, mut at: usize, key: K, slot: Slot) {
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.keys.len());
            let Some(least) = children.min_by_key(|&child| self.keys[child]).filter(|&child| self.keys[child] < key)
            else {
                break;
            };
            self.place(at, self.keys[least], self.slots[least]);
            at = least;
        }
        self.place(at, key, slot);
    }
}
