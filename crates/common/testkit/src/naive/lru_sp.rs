//! LRU-SP (ACFS, 3.2) as vectors, with managers as described in 4.2.1; and its variants without swapping or without
//! placeholders.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;

/// The owner of a block of the model.
pub type Tenant = u32;

/// The manager of one tenant's blocks: 4.2.1's calls. A block is its number.
pub trait Manager {
    /// `new_block`: the tenant's `block` was loaded.
    fn entered(&mut self, block: u64);
    /// `block_accessed`.
    fn referenced(&mut self, block: u64);
    /// `block_gone`, whatever the reason.
    fn left(&mut self, block: u64);
    /// `replace_block`: the tenant's resident block that leaves. `candidate` is the kernel's.
    fn choose(&mut self, candidate: u64) -> u64;
}

/// A cache whose blocks are shared by LRU-SP. Each reference gives the tenant of the block, which never changes.
pub struct LruSp<M> {
    capacity: usize,
    /// The end of the "LRU" list is the last.
    list: Vec<u64>,
    owner: BTreeMap<u64, Tenant>,
    managers: BTreeMap<Tenant, M>,
    /// The evicted block, and the one it points to.
    placeholders: Vec<(u64, u64)>,
    last: BTreeMap<u64, u64>,
    now: u64,
    /// Whether positions are swapped (1).
    pub swapping: bool,
    /// The most placeholders (2); beyond it, the one whose block was referenced longest ago is removed.
    pub placeholders_most: usize,
}

impl<M: Manager> LruSp<M> {
    /// An empty cache, with swapping and as many placeholders as blocks.
    pub fn new(capacity: usize) -> LruSp<M> {
        LruSp {
            capacity,
            list: Vec::new(),
            owner: BTreeMap::new(),
            managers: BTreeMap::new(),
            placeholders: Vec::new(),
            last: BTreeMap::new(),
            now: 0,
            swapping: true,
            placeholders_most: capacity,
        }
    }

    /// `tenant` becomes a manager; it has no blocks yet.
    pub fn manage(&mut self, tenant: Tenant, manager: M) {
        self.managers.insert(tenant, manager);
    }

    /// The manager of `tenant`.
    pub fn manager(&mut self, tenant: Tenant) -> Option<&mut M> {
        self.managers.get_mut(&tenant)
    }

    /// The resident blocks, the end of the "LRU" list last.
    pub fn list(&self) -> &[u64] {
        &self.list
    }

    /// The placeholders: the evicted block, and the one that was kept instead.
    pub fn placeholders(&self) -> &[(u64, u64)] {
        &self.placeholders
    }

    /// `tenant` references its `block`.
    pub fn access(&mut self, tenant: Tenant, block: u64) -> Outcome {
        self.now += 1;
        self.owner.insert(block, tenant);
        self.last.insert(block, self.now);
        if let Some(at) = self.list.iter().position(|&other| other == block) {
            self.list.remove(at);
            self.list.insert(0, block);
            // "if a user process hits on block A, then any placeholder pointing to A is deleted"
            self.placeholders.retain(|&(_, target)| target != block);
            if let Some(manager) = self.managers.get_mut(&tenant) {
                manager.referenced(block);
            }
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.list.len() == self.capacity).then(|| self.replace(Some(block)));
        self.placeholders.retain(|&(ghost, _)| ghost != block);
        self.list.insert(0, block);
        if let Some(manager) = self.managers.get_mut(&tenant) {
            manager.entered(block);
        }
        Outcome { hit: false, evicted }
    }

    /// A block leaves without another one entering: 3.2 without a missing block.
    pub fn shed(&mut self) -> u64 {
        self.replace(None)
    }

    /// From now on there are at most `capacity` blocks and `placeholders` placeholders. Returns the excess blocks.
    pub fn resize(&mut self, capacity: usize, placeholders: usize) -> Vec<u64> {
        (self.capacity, self.placeholders_most) = (capacity, placeholders);
        self.drop_placeholders();
        let over = self.list.len().saturating_sub(capacity);
        (0..over).map(|_| self.shed()).collect()
    }

    fn drop_placeholders(&mut self) {
        while self.placeholders.len() > self.placeholders_most {
            let oldest = (0..self.placeholders.len()).min_by_key(|&at| self.last[&self.placeholders[at].0]);
            self.placeholders.remove(oldest.expect("there is one"));
        }
    }

    fn take(&mut self, victim: u64) {
        self.list.retain(|&block| block != victim);
        if let Some(manager) = self.managers.get_mut(&self.owner[&victim]) {
            manager.left(victim);
        }
    }

    fn replace(&mut self, missing: Option<u64>) -> u64 {
        // (2) "If a user process misses on a block B, and a placeholder for B exists, then the block pointed to by that
        // placeholder is replaced."
        if let Some(&(_, target)) = self.placeholders.iter().find(|&&(ghost, _)| Some(ghost) == missing) {
            self.take(target);
            self.placeholders.retain(|&(ghost, other)| Some(ghost) != missing && other != target);
            return target;
        }
        // "Otherwise, the process that owns the block at the end of the LRU list is chosen to give up a block."
        let candidate = *self.list.last().expect("a cache that gives up a block has one");
        let owner = self.owner[&candidate];
        let Some(manager) = self.managers.get_mut(&owner) else {
            self.take(candidate);
            self.placeholders.retain(|&(_, target)| target != candidate);
            return candidate;
        };
        let victim = manager.choose(candidate);
        if victim == candidate {
            self.take(candidate);
            self.placeholders.retain(|&(_, target)| target != candidate);
            return victim;
        }
        // (1) "the kernel swaps the positions of A and B in the LRU list, then builds a record for B, pointing to A"
        if self.swapping {
            let at = self.list.iter().position(|&block| block == victim).expect("the victim is resident");
            let end = self.list.len() - 1;
            self.list.swap(at, end);
        }
        self.take(victim);
        // "any placeholder pointing to C is changed to point to A"
        for (_, target) in &mut self.placeholders {
            if *target == victim {
                *target = candidate;
            }
        }
        self.placeholders.push((victim, candidate));
        self.drop_placeholders();
        victim
    }
}

/// Priority levels (4.1.1): a list for each, the most recently used first, under LRU or MRU.
#[derive(Default)]
pub struct Levels {
    /// Files with a priority other than 0. `file_of` returns the file of a block.
    priorities: BTreeMap<u32, i32>,
    mru: BTreeMap<i32, bool>,
    lists: BTreeMap<i32, Vec<u64>>,
    /// Blocks whose priority is a temporary one.
    temporary: BTreeSet<u64>,
    file_of: Option<fn(u64) -> u32>,
}

impl Levels {
    /// One level, under LRU.
    pub fn new(file_of: fn(u64) -> u32) -> Levels {
        Levels { file_of: Some(file_of), ..Levels::default() }
    }

    fn file(&self, block: u64) -> u32 {
        self.file_of.map_or(0, |file_of| file_of(block))
    }

    fn long_term(&self, block: u64) -> i32 {
        self.priorities.get(&self.file(block)).copied().unwrap_or(0)
    }

    fn remove(&mut self, block: u64) -> bool {
        self.temporary.remove(&block);
        self.lists.values_mut().any(|list| crate::naive::take(list, block))
    }

    /// "Blocks moving into a list are put at the end that causes them to be replaced later."
    fn move_in(&mut self, priority: i32, block: u64) {
        let mru = self.mru.get(&priority).copied().unwrap_or(false);
        let list = self.lists.entry(priority).or_default();
        list.insert(if mru { list.len() } else { 0 }, block);
    }

    /// `set_policy`.
    pub fn set_policy(&mut self, priority: i32, mru: bool) {
        self.mru.insert(priority, mru);
    }

    /// `set_priority`: blocks with a temporary priority keep it. `order` is the "LRU" list.
    pub fn set_priority(&mut self, file: u32, priority: i32, order: &[u64]) {
        let before = self.priorities.insert(file, priority).unwrap_or(0);
        if before == priority {
            return;
        }
        let own: Vec<u64> = self.lists.values().flatten().copied().collect();
        let moves = |block: &u64| self.file(*block) == file && own.contains(block) && !self.temporary.contains(block);
        let mut moving: Vec<u64> = order.iter().copied().filter(moves).collect();
        if !self.mru.get(&priority).copied().unwrap_or(false) {
            moving.reverse();
        }
        for block in moving {
            self.remove(block);
            self.move_in(priority, block);
        }
    }

    /// `set_temppri` for one block.
    pub fn set_temporary(&mut self, block: u64, priority: i32) {
        if self.remove(block) {
            self.move_in(priority, block);
            self.temporary.insert(block);
        }
    }
}

impl Manager for Levels {
    fn entered(&mut self, block: u64) {
        let priority = self.long_term(block);
        self.lists.entry(priority).or_default().insert(0, block);
    }

    fn referenced(&mut self, block: u64) {
        self.remove(block);
        self.entered(block);
    }

    fn left(&mut self, block: u64) {
        self.remove(block);
    }

    fn choose(&mut self, _candidate: u64) -> u64 {
        let (priority, list) = self.lists.iter().find(|(_, list)| !list.is_empty()).expect("the tenant has a block");
        let mru = self.mru.get(priority).copied().unwrap_or(false);
        *if mru { list.first() } else { list.last() }.expect("the list is not empty")
    }
}
