//! Placeholders (3.2): ghosts, each of a block that its owner chose to give up, pointing to the block that it kept instead.

use nigh_policy::Slot;
use nigh_policy::heap::Heap;
use nigh_policy::list::{Links, List};

const NONE: u32 = u32::MAX;

/// Those that point to one block.
struct Group {
    target: Slot,
    ghosts: List,
}

/// The placeholders of a cache.
///
/// When there are more than `most`, the one whose block was referenced longest ago goes. With `most` of at least the
/// cache's capacity this is one that global LRU would have replaced by now as well, so it protects nobody.
pub(crate) struct Placeholders {
    /// By slot, the group of those that point to it, if it is resident, or the group it is in, if it is a ghost.
    group: Vec<u32>,
    groups: Vec<Group>,
    free: Vec<u32>,
    links: Links,
    /// By the last reference to the ghost's block.
    oldest: Heap,
    most: u32,
}

impl Placeholders {
    pub(crate) fn new(slots: u32, most: u32) -> Placeholders {
        let (links, []) = Links::new(slots);
        let group = vec![NONE; slots as usize];
        Placeholders { group, groups: Vec::new(), free: Vec::new(), links, oldest: Heap::new(slots, 0), most }
    }

    pub(crate) fn len(&self) -> u32 {
        self.oldest.len()
    }

    /// The block that `ghost`'s owner kept instead.
    pub(crate) fn target(&self, ghost: Slot) -> Slot {
        self.groups[self.group[ghost.index()] as usize].target
    }

    /// Makes one for `ghost`, last referenced at `tick`, that points to `target`. Gives the one that has to go, which may
    /// be this one; it must be removed.
    pub(crate) fn add(&mut self, ghost: Slot, target: Slot, tick: u64) -> Option<Slot> {
        let id = match self.group[target.index()] {
            NONE => self.open(target),
            id => id,
        };
        self.group[ghost.index()] = id;
        self.groups[id as usize].ghosts.push_back(&mut self.links, ghost);
        self.oldest.push(ghost, tick);
        if self.oldest.len() > self.most { self.oldest.least().map(|(_, slot)| slot) } else { None }
    }

    fn open(&mut self, target: Slot) -> u32 {
        let id = match self.free.pop() {
            Some(id) => {
                self.groups[id as usize].target = target;
                id
            }
            None => {
                let ghosts = self.links.list();
                self.groups.push(Group { target, ghosts });
                self.groups.len() as u32 - 1
            }
        };
        self.group[target.index()] = id;
        id
    }

    /// Deletes the placeholder of `ghost`. Gives its target if nothing points to that any more.
    pub(crate) fn remove(&mut self, ghost: Slot) -> Option<Slot> {
        let id = std::mem::replace(&mut self.group[ghost.index()], NONE);
        let Group { target, ghosts } = &mut self.groups[id as usize];
        ghosts.unlink(&mut self.links, ghost);
        self.oldest.remove(ghost);
        if !ghosts.is_empty() {
            return None;
        }
        self.group[target.index()] = NONE;
        self.free.push(id);
        Some(*target)
    }

    /// Deletes one of the placeholders that point to `target`, and gives its ghost.
    pub(crate) fn pop(&mut self, target: Slot) -> Option<Slot> {
        let id = self.group[target.index()];
        if id == NONE {
            return None;
        }
        let ghost = self.groups[id as usize].ghosts.front(&self.links)?;
        self.remove(ghost);
        Some(ghost)
    }

    /// Changes those that point to `from` to point to `to`.
    pub(crate) fn redirect(&mut self, from: Slot, to: Slot) {
        let id = std::mem::replace(&mut self.group[from.index()], NONE);
        if id == NONE {
            return;
        }
        let other = self.group[to.index()];
        if other == NONE {
            self.groups[id as usize].target = to;
            self.group[to.index()] = id;
            return;
        }
        // The smaller group moves, so that a ghost moves a logarithmic number of times.
        let swap = self.groups[id as usize].ghosts.len() > self.groups[other as usize].ghosts.len();
        let (small, large) = if swap { (other, id) } else { (id, other) };
        while let Some(ghost) = self.groups[small as usize].ghosts.pop_front(&mut self.links) {
            self.group[ghost.index()] = large;
            self.groups[large as usize].ghosts.push_back(&mut self.links, ghost);
        }
        self.groups[large as usize].target = to;
        self.group[to.index()] = large;
        self.free.push(small);
    }

    /// Every ghost and its target, having checked the structure.
    pub(crate) fn checked(&self) -> Vec<(Slot, Slot)> {
        let mut pairs = Vec::new();
        for (id, group) in self.groups.iter().enumerate() {
            let ghosts = group.ghosts.checked(&self.links);
            assert_eq!(ghosts.is_empty(), self.free.contains(&(id as u32)), "a group without placeholders is free");
            for ghost in ghosts {
                assert_eq!(self.group[ghost.index()], id as u32, "{ghost:?} is in another group");
                assert_eq!(self.group[group.target.index()], id as u32, "{:?} has another group", group.target);
                pairs.push((ghost, group.target));
            }
        }
        assert_eq!(self.oldest.checked().count(), pairs.len(), "placeholders by age and by target differ in number");
        assert!(self.oldest.len() <= self.most, "there are more placeholders than there may be");
        pairs
    }
}
