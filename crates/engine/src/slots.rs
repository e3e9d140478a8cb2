//! The index: which block has which slot, and the frame of each slot that is resident.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use nigh_policy::{Block, Slot};

use crate::request::Export;

/// No frame, or the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;

/// A block of an export, packed: the export's number above 48 bits of block index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// Blocks are numbered below this.
    pub(crate) const BLOCKS: u64 = 1 << 48;

    #[inline(always)]
    pub(crate) fn new(export: Export, block: u64) -> Key {
        debug_assert!(block < Key::BLOCKS);
        Key(u64::from(export.0) << 48 | block)
    }

    #[inline(always)]
    pub(crate) fn export(self) -> Export {
        Export((self.0 >> 48) as u16)
    }

    /// The block's index within its export.
    #[inline(always)]
    pub(crate) fn index(self) -> u64 {
        self.0 & (Key::BLOCKS - 1)
    }

    #[inline(always)]
    pub(crate) fn block(self) -> Block {
        Block { volume: u32::from(self.export().0), index: self.index() }
    }
}

/// What is known of a slot: 12 bytes.
#[derive(Clone, Copy)]
struct Node {
    /// The key in two halves, so that nodes need no padding. Meaningless in a free slot.
    key: [u32; 2],
    /// The frame of a resident block, `NONE` for a ghost. In a free slot: the next free slot.
    frame: u32,
}

impl Node {
    #[inline(always)]
    fn key(&self) -> Key {
        Key(u64::from(self.key[0]) << 32 | u64::from(self.key[1]))
    }
}

/// The index of all blocks that the policy knows.
pub(crate) struct Slots {
    nodes: Vec<Node>,
    table: HashTable<u32>,
    hasher: RandomState,
    /// The most slots there can be.
    limit: u32,
    /// The first of the chain of free slots among `nodes`.
    free: u32,
}

impl Slots {
    pub(crate) fn new(limit: u32) -> Slots {
        Slots {
            nodes: Vec::with_capacity(limit as usize),
            table: HashTable::with_capacity(limit as usize),
            hasher: RandomState::default(),
            limit,
            free: NONE,
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Slot> {
        let nodes = &self.nodes;
        self.table.find(self.hasher.hash_one(key.0), |&slot| nodes[slot as usize].key() == key).map(|&slot| Slot(slot))
    }

    /// The slot of `key`, made if there is none.
    pub(crate) fn find_or_add(&mut self, key: Key) -> Slot {
        let Slots { nodes, table, hasher, .. } = self;
        let hash = hasher.hash_one(key.0);
        let same = |&slot: &u32| nodes[slot as usize].key() == key;
        match table.entry(hash, same, |&slot| hasher.hash_one(nodes[slot as usize].key().0)) {
            Entry::Occupied(entry) => Slot(*entry.get()),
            Entry::Vacant(entry) => {
                let node = Node { key: [(key.0 >> 32) as u32, key.0 as u32], frame: NONE };
                let slot = self.free;
                let slot = if slot == NONE {
                    assert!(nodes.len() < self.limit as usize, "the policy remembers more ghosts than it may");
                    entry.insert(nodes.len() as u32);
                    nodes.push(node);
                    nodes.len() as u32 - 1
                } else {
                    entry.insert(slot);
                    self.free = nodes[slot as usize].frame;
                    nodes[slot as usize] = node;
                    slot
                };
                Slot(slot)
            }
        }
    }

    /// Forgets the block of `slot`, which is not resident; the slot is free.
    pub(crate) fn remove(&mut self, slot: Slot) {
        assert_eq!(self.nodes[slot.index()].frame, NONE, "a resident block is not forgotten");
        let hash = self.hasher.hash_one(self.key(slot).0);
        let found = self.table.find_entry(hash, |&other| other == slot.0);
        found.expect("a slot in use is in the table").remove();
        self.nodes[slot.index()].frame = self.free;
        self.free = slot.0;
    }

    #[inline(always)]
    pub(crate) fn key(&self, slot: Slot) -> Key {
        self.nodes[slot.index()].key()
    }

    /// The frame of `slot`, `NONE` for a ghost.
    #[inline(always)]
    pub(crate) fn frame(&self, slot: Slot) -> u32 {
        self.nodes[slot.index()].frame
    }

    #[inline(always)]
    pub(crate) fn set_frame(&mut self, slot: Slot, frame: u32) {
        self.nodes[slot.index()].frame = frame;
    }

    /// Every slot in use, by number. Takes time in proportion to all slots.
    pub(crate) fn used(&self) -> Vec<Slot> {
        let mut free = vec![false; self.nodes.len()];
        let mut at = self.free;
        while at != NONE {
            free[at as usize] = true;
            at = self.nodes[at as usize].frame;
        }
        (0..self.nodes.len() as u32).filter(|&slot| !free[slot as usize]).map(Slot).collect()
    }

    /// How many slots are in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.table.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_and_used_again() {
        let mut slots = Slots::new(3);
        let keys = [Key::new(Export(0), 7), Key::new(Export(65535), 7), Key::new(Export(0), Key::BLOCKS - 1)];
        let [a, b, c] = keys.map(|key| slots.find_or_add(key));
        assert_eq!((a, b, c), (Slot(0), Slot(1), Slot(2)));
        assert_eq!(keys.map(|key| slots.find(key)), [Some(a), Some(b), Some(c)]);
        assert_eq!(slots.key(c).block(), Block { volume: 0, index: Key::BLOCKS - 1 });
        slots.remove(b);
        assert_eq!(slots.find(keys[1]), None);
        assert_eq!(slots.used(), [a, c]);
        assert_eq!(slots.find_or_add(Key::new(Export(1), 1)), b);
        assert_eq!(size_of::<Node>(), 12);
    }
}
