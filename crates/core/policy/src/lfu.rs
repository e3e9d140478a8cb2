//! LFU: the block with the fewest references since it was loaded leaves; among equals, the one least recently used.
//!
//! This is in-cache LFU (Breslau et al. 1999): a block that leaves loses its count. All resident blocks are in one
//! list, by count and then by recency, so that a hit moves a block only past those with the same count: O(1).

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Params, Setup, SpecError};
use crate::{Access, Policy, Room, Slot};

/// The blocks with the same number of references: neighbours in the list.
#[derive(Clone, Copy)]
struct Group {
    references: u64,
    /// The most recently used of them, which is the first.
    newest: Slot,
}

/// Least frequently used, with counts that are lost at eviction.
pub struct Lfu {
    links: Links,
    /// Resident slots: the most references first, and among equals the most recently used first.
    order: List,
    /// For each resident slot, its group.
    group: Vec<u32>,
    groups: Vec<Group>,
    /// Unused entries of `groups`.
    free: Vec<u32>,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Lfu {
    /// Takes out the block that leaves next.
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = self.order.back(&self.links).expect("a block is resident");
        self.unlink(victim);
        self.forgotten = Some(victim);
        victim
    }

    /// The slot after `slot`, if it belongs to the same group.
    #[inline(always)]
    fn older(&self, slot: Slot) -> Option<Slot> {
        let group = self.group[slot.index()];
        self.order.after(&self.links, slot).filter(|next| self.group[next.index()] == group)
    }

    /// The group of `slot`, if it has that many references.
    #[inline(always)]
    fn group_with(&self, slot: Option<Slot>, references: u64) -> Option<u32> {
        let group = self.group[slot?.index()];
        (self.groups[group as usize].references == references).then_some(group)
    }

    /// Takes `slot` out of the list and of its group, which ends with its last member.
    #[inline(always)]
    fn unlink(&mut self, slot: Slot) {
        let id = self.group[slot.index()];
        if self.groups[id as usize].newest == slot {
            match self.older(slot) {
                Some(older) => self.groups[id as usize].newest = older,
                None => self.free.push(id),
            }
        }
        self.order.unlink(&mut self.links, slot);
    }

    /// Makes `slot`, which is in no list, the most recently used member of a group.
    #[inline(always)]
    fn join(&mut self, slot: Slot, id: u32) {
        let group = &mut self.groups[id as usize];
        self.order.insert_before(&mut self.links, slot, group.newest);
        group.newest = slot;
        self.group[slot.index()] = id;
    }

    /// Begins a group with `slot`, which is already at its place in the list.
    #[inline(always)]
    fn begin(&mut self, slot: Slot, references: u64) {
        let group = Group { references, newest: slot };
        self.group[slot.index()] = match self.free.pop() {
            Some(id) => {
                self.groups[id as usize] = group;
                id
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
    }
}

impl Configured for Lfu {
    const INFO: Info = Info {
        name: "lfu",
        summary: "evicts the block referenced least often since it was loaded",
        paper: "Mattson, Gecsei, Slutz, Traiger, Evaluation Techniques for Storage Hierarchies, IBM Systems Journal \
                1970; in-cache: Breslau, Cao, Fan, Phillips, Shenker, Web Caching and Zipf-like Distributions, \
                INFOCOM 1999",
        params: &[],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, _params: &Params) -> Result<Lfu, SpecError> {
        let (links, [order]) = Links::new(setup.slots);
        Ok(Lfu {
            links,
            order,
            group: vec![0; setup.slots as usize],
            groups: Vec::with_capacity(setup.capacity.min(setup.slots) as usize),
            free: Vec::new(),
            forgotten: None,
        })
    }
}

impl Policy for Lfu {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let own = self.group[slot.index()];
        let Group { references, newest } = self.groups[own as usize];
        let above = self.order.before(&self.links, newest);
        if let Some(group) = self.group_with(above, references + 1) {
            self.unlink(slot);
            self.join(slot, group);
        } else if newest == slot && self.older(slot).is_none() {
            self.groups[own as usize].references += 1;
        } else {
            self.unlink(slot);
            self.order.insert_before(&mut self.links, slot, self.groups[own as usize].newest);
            self.begin(slot, references + 1);
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        match self.group_with(self.order.back(&self.links), 1) {
            Some(group) => self.join(slot, group),
            None => {
                self.order.push_back(&mut self.links, slot);
                self.begin(slot, 1);
            }
        }
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.order]);
        self.group.resize(room.slots as usize, 0);
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        prefetch(&self.group, slot.index());
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        let resident = self.order.checked(&self.links);
        let mut used = Vec::new();
        for members in resident.chunk_by(|a, b| self.group[a.index()] == self.group[b.index()]) {
            let id = self.group[members[0].index()];
            assert_eq!(self.groups[id as usize].newest, members[0], "a group does not know its first member");
            used.push(id);
        }
        let references: Vec<_> = used.iter().map(|&id| self.groups[id as usize].references).collect();
        assert!(references.is_sorted_by(|a, b| a > b), "the groups are out of order");
        assert!(references.iter().all(|&references| references > 0), "a resident block was never referenced");
        used.extend(&self.free);
        used.sort_unstable();
        assert!(used.into_iter().eq(0..self.groups.len() as u32), "a group is neither in use nor free, or both");
    }
}
