//! Slots in an array, from which any can be taken, for policies that choose at random.

use crate::Slot;

/// An array of slots, each in it once at most. The last one takes the place of one that is taken out, so the order depends on
/// what entered and left, and not on the numbers of slots.
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// For each slot in the array, its position.
    places: Vec<u32>,
}

impl Pool {
    /// An empty array for slots `0..slots`, with room for `capacity` of them.
    pub(crate) fn new(slots: u32, capacity: u32) -> Pool {
        Pool { slots: Vec::with_capacity(capacity as usize), places: vec![0; slots as usize] }
    }

    /// Makes room for slots `0..slots`, at least as many as before.
    pub(crate) fn grow(&mut self, slots: u32) {
        self.places.resize(slots as usize, 0);
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(crate) fn at(&self, position: u32) -> Slot {
        self.slots[position as usize]
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        self.places[slot.index()] = self.len();
        self.slots.push(slot);
    }

    /// Takes `slot`, which is in the array, out.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot) {
        let position = self.places[slot.index()];
        self.slots.swap_remove(position as usize);
        if let Some(moved) = self.slots.get(position as usize) {
            self.places[moved.index()] = position;
        }
    }

    /// Checks the positions.
    ///
    /// # Panics
    /// On a wrong one.
    pub(crate) fn check(&self) {
        for (position, slot) in self.slots.iter().enumerate() {
            assert_eq!(self.places[slot.index()] as usize, position, "{slot:?} is said to be elsewhere");
        }
    }
}
