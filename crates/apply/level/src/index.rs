//! Which slot has which block: a table of fixed size for all clients.
//!
//! The blocks of a namespace's epoch are a *set*. When the epoch is over, the namespace gets another set, and nobody finds blocks of the old one any more;
//! they leave one by one.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};
use nigh_tier::Client;

/// No slot, and no set.
const NONE: u32 = u32::MAX;

/// The number of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set(u32);

impl Set {
    /// That of a namespace which is closed: it has no blocks.
    pub(crate) const NONE: Set = Set(NONE);
}

#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    set: Set,
    /// The next slot of those whose blocks have the same hash.
    next: u32,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry { block: 0, set: Set::NONE, next: NONE }
    }
}

struct Blocks {
    list: List,
    owner: Owner,
}

/// Whose the blocks of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) client: Client,
    /// None if their epoch is over.
    pub(crate) namespace: Option<u32>,
}

pub(crate) struct Index {
    /// By hash: the first slot. Their number is a power of two, from half to all of the slots.
    first: Vec<u32>,
    hash: RandomState,
    links: Links<Entry>,
    sets: Vec<Blocks>,
    /// Sets without blocks that nobody has.
    unused: Vec<Set>,
    /// Sets whose epoch is over.
    over: VecDeque<Set>,
}

impl Index {
    pub(crate) fn new(slots: u32) -> Index {
        let (links, []) = Links::with_own(slots);
        Index {
            first: vec![NONE; (slots / 2 + 1).next_power_of_two() as usize],
            hash: RandomState::new(),
            links,
            sets: Vec::new(),
            unused: Vec::new(),
            over: VecDeque::new(),
        }
    }

    /// An empty set for `namespace`.
    pub(crate) fn set(&mut self, client: Client, namespace: u32) -> Set {
        let owner = Owner { client, namespace: Some(namespace) };
        if let Some(set) = self.unused.pop()
            && let Some(blocks) = self.sets.get_mut(set.0 as usize)
        {
            blocks.owner = owner;
            return set;
        }
        self.sets.push(Blocks { list: self.links.list(), owner });
        Set(self.sets.len() as u32 - 1)
    }

    /// The namespace of `set` does not have it any more.
    pub(crate) fn end(&mut self, set: Set) {
        let Some(blocks) = self.sets.get_mut(set.0 as usize) else { return };
        blocks.owner.namespace = None;
        if blocks.list.is_empty() {
            self.unused.push(set);
        } else {
            self.over.push_back(set);
        }
    }

    /// Takes a block out whose epoch is over.
    pub(crate) fn take_over(&mut self) -> Option<Slot> {
        loop {
            let set = *self.over.front()?;
            let slot = self.sets.get(set.0 as usize).and_then(|blocks| blocks.list.front(&self.links));
            if let Some(slot) = slot {
                self.remove(slot);
                return Some(slot);
            }
            self.unused.extend(self.over.pop_front());
        }
    }

    pub(crate) fn owner(&self, set: Set) -> Option<Owner> {
        Some(self.sets.get(set.0 as usize)?.owner)
    }

    /// The number of blocks of `set`.
    pub(crate) fn count(&self, set: Set) -> u32 {
        self.sets.get(set.0 as usize).map_or(0, |blocks| blocks.list.len())
    }

    pub(crate) fn find(&self, set: Set, block: u64) -> Option<Slot> {
        let mut at = self.first.get(self.bucket(set, block)).copied().filter(|&at| at != NONE);
        while let Some(slot) = at {
            let entry = self.links.own(Slot(slot));
            if (entry.set, entry.block) == (set, block) {
                return Some(Slot(slot));
            }
            at = Some(entry.next).filter(|&next| next != NONE);
        }
        None
    }

    /// `slot`, which has none so far, has `block` of `set`, which is in no slot.
    pub(crate) fn insert(&mut self, set: Set, block: u64, slot: Slot) {
        let bucket = self.bucket(set, block);
        if let Some(blocks) = self.sets.get_mut(set.0 as usize)
            && let Some(first) = self.first.get_mut(bucket)
        {
            let next = std::mem::replace(first, slot.0);
            *self.links.own_mut(slot) = Entry { block, set, next };
            blocks.list.push_front(&mut self.links, slot);
        }
    }

    /// Takes the block of `slot` out, if there is one.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Entry { block, set, next } = std::mem::take(self.links.own_mut(slot));
        let Some(blocks) = self.sets.get_mut(set.0 as usize) else { return };
        blocks.list.unlink(&mut self.links, slot);
        let bucket = self.bucket(set, block);
        let Some(first) = self.first.get_mut(bucket) else { return };
        if *first == slot.0 {
            *first = next;
            return;
        }
        let mut before = Slot(*first);
        loop {
            let entry = self.links.own_mut(before);
            if entry.next == slot.0 {
                entry.next = next;
                return;
            }
            before = Slot(entry.next);
        }
    }

    /// Whose block `slot` has, and which one.
    pub(crate) fn of(&self, slot: Slot) -> Option<(Owner, u64)> {
        let Entry { block, set, .. } = *self.links.own(slot);
        Some((self.owner(set)?, block))
    }

    fn bucket(&self, set: Set, block: u64) -> usize {
        self.hash.hash_one((set, block)) as usize & (self.first.len() - 1)
    }

    /// Recounts, and returns the slots with blocks, by set.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(crate) fn check(&self) -> Vec<Vec<Slot>> {
        let slots: Vec<Vec<Slot>> = self.sets.iter().map(|blocks| blocks.list.checked(&self.links)).collect();
        for (number, slots) in (0..).zip(&slots) {
            for &slot in slots {
                let Entry { block, set, .. } = *self.links.own(slot);
                assert_eq!((set, self.find(set, block)), (Set(number), Some(slot)), "a block is not found");
            }
        }
        let has_some = self.links.owns().filter(|entry| entry.set != Set::NONE).count();
        assert_eq!(slots.iter().map(Vec::len).sum::<usize>(), has_some, "a block is in no set");
        let mut free: Vec<u32> = self.unused.iter().chain(&self.over).map(|set| set.0).collect();
        free.sort_unstable();
        assert!(free.is_sorted_by(|one, next| one < next), "a set is free twice");
        let is_over = |number: &u32| self.sets.get(*number as usize).is_some_and(|set| set.owner.namespace.is_none());
        assert!(free.iter().all(is_over), "a set that is free has an owner");
        assert!(self.unused.iter().all(|&set| self.count(set) == 0), "a set that is free has blocks");
        slots
    }
}
