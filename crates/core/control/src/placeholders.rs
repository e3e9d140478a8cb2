//! Placeholders (3.2): ghosts of blocks that their owners chose to lose, each pointing to the block that was kept
//! instead.

use nigh_policy::Slot;
use nigh_policy::heap::Heap;

use crate::chains::{Chain, Chains};

/// The placeholders that point to one block.
struct Group {
    target: Slot,
    ghosts: Chain,
}

/// The placeholders of a cache.
///
/// When there are more than `most`, the one whose block was referenced longest ago is removed. If `most` is at least
/// the cache's capacity, global LRU would have replaced that block by now as well, so the placeholder protects nothing.
pub(crate) struct Placeholders {
    /// By slot, its group number plus one, or 0: for a resident slot the group of placeholders that point to it, for a
    /// ghost the group that contains it.
    group: Vec<u32>,
    groups: Vec<Group>,
    free: Vec<u32>,
    chains: Chains,
    /// By the last reference to the ghost's block.
    oldest: Heap,
    most: u32,
}

impl Placeholders {
    pub(crate) fn new(slots: u32, most: u32) -> Placeholders {
        let (group, chains) = (vec![0; slots as usize], Chains::new(slots));
        Placeholders { group, groups: Vec::new(), free: Vec::new(), chains, oldest: Heap::new(slots, 0), most }
    }

    /// From now on for slots `0..slots`, with at most `most` placeholders. Returns one that exceeds the limit, if any;
    /// the caller must remove it and then call this again.
    pub(crate) fn resize(&mut self, slots: u32, most: u32) -> Option<Slot> {
        self.group.resize(slots as usize, 0);
        self.chains.grow(slots);
        self.oldest.grow(slots);
        self.most = most;
        self.over()
    }

    fn over(&self) -> Option<Slot> {
        if self.oldest.len() > self.most { self.oldest.least().map(|(_, slot)| slot) } else { None }
    }

    pub(crate) fn len(&self) -> u32 {
        self.oldest.len()
    }

    fn group(&self, slot: Slot) -> Option<u32> {
        self.group[slot.index()].checked_sub(1)
    }

    /// Takes `slot` out of its group, or removes the group of `slot`.
    fn take_group(&mut self, slot: Slot) -> Option<u32> {
        std::mem::take(&mut self.group[slot.index()]).checked_sub(1)
    }

    fn set_group(&mut self, slot: Slot, id: u32) {
        self.group[slot.index()] = id + 1;
    }

    /// The block that `ghost`'s owner kept instead.
    pub(crate) fn target(&self, ghost: Slot) -> Slot {
        let id = self.group(ghost).expect("a placeholder is in a group");
        self.groups[id as usize].target
    }

    /// Creates a placeholder for `ghost`, last referenced at `tick`, that points to `target`. Returns the one that
    /// exceeds the limit, which may be this one; the caller must remove it.
    pub(crate) fn add(&mut self, ghost: Slot, target: Slot, tick: u64) -> Option<Slot> {
        let id = self.group(target).unwrap_or_else(|| self.open(target));
        self.set_group(ghost, id);
        self.groups[id as usize].ghosts.push_back(&mut self.chains, ghost);
        self.oldest.push(ghost, tick);
        self.over()
    }

    fn open(&mut self, target: Slot) -> u32 {
        let id = match self.free.pop() {
            Some(id) => {
                self.groups[id as usize].target = target;
                id
            }
            None => {
                self.groups.push(Group { target, ghosts: Chain::default() });
                self.groups.len() as u32 - 1
            }
        };
        self.set_group(target, id);
        id
    }

    /// Deletes the placeholder of `ghost`. Returns its target if no other placeholder points to it.
    pub(crate) fn remove(&mut self, ghost: Slot) -> Option<Slot> {
        let id = self.take_group(ghost).expect("a placeholder is in a group");
        let Group { target, ghosts } = &mut self.groups[id as usize];
        ghosts.unlink(&mut self.chains, ghost);
        self.oldest.remove(ghost);
        if !ghosts.is_empty() {
            return None;
        }
        self.group[target.index()] = 0;
        self.free.push(id);
        Some(*target)
    }

    /// Deletes one of the placeholders that point to `target`, and returns its ghost.
    pub(crate) fn pop(&mut self, target: Slot) -> Option<Slot> {
        let ghost = self.groups[self.group(target)? as usize].ghosts.front()?;
        self.remove(ghost);
        Some(ghost)
    }

    /// Redirects the placeholders that point to `from` to `to`.
    pub(crate) fn redirect(&mut self, from: Slot, to: Slot) {
        let Some(id) = self.take_group(from) else { return };
        let Some(other) = self.group(to) else {
            self.groups[id as usize].target = to;
            self.set_group(to, id);
            return;
        };
        // The smaller group moves, so that a ghost moves a logarithmic number of times.
        let swap = self.groups[id as usize].ghosts.len() > self.groups[other as usize].ghosts.len();
        let (small, large) = if swap { (other, id) } else { (id, other) };
        while let Some(ghost) = self.groups[small as usize].ghosts.front() {
            self.groups[small as usize].ghosts.unlink(&mut self.chains, ghost);
            self.groups[large as usize].ghosts.push_back(&mut self.chains, ghost);
            self.set_group(ghost, large);
        }
        self.groups[large as usize].target = to;
        self.set_group(to, large);
        self.free.push(small);
    }

    /// Checks the structure, and returns every ghost with its target.
    pub(crate) fn checked(&self) -> Vec<(Slot, Slot)> {
        let mut pairs = Vec::new();
        for (id, group) in (0..).zip(&self.groups) {
            let ghosts = group.ghosts.checked(&self.chains);
            assert_eq!(ghosts.is_empty(), self.free.contains(&id), "a group without placeholders is free");
            for ghost in ghosts {
                assert_eq!(self.group(ghost), Some(id), "{ghost:?} is in another group");
                assert_eq!(self.group(group.target), Some(id), "{:?} has another group", group.target);
                pairs.push((ghost, group.target));
            }
        }
        assert_eq!(self.oldest.checked().count(), pairs.len(), "placeholders by age and by target differ in number");
        assert!(self.oldest.len() <= self.most, "there are more placeholders than there may be");
        pairs
    }
}
