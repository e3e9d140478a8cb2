//! The block table (section 3.2): for each block of a disk, the two times at which it was last in a bank.
//!
//! "Analogous in structure to the multi-level page table", one for each volume: a block's index is split into digits of
//! [`DIGIT_BITS`] bits. The last digit selects an entry in a leaf, each other one an entry in a directory. A node is
//! two cache lines: the latest time of each entry, and the rest of each entry. The deviations:
//!
//! * A volume's table is only as high as the largest index seen so far needs, since the size of a volume is not known.
//! * The memory is limited: if a bank leaves the table larger than its limit, a threshold halfway between the last one
//!   and now is "specified for reclamation", until the table fits.
//!
//! Times are those of the bank clock, which starts at 1; 0 stands for never.

use std::collections::BTreeMap;

use crate::Block;

const DIGIT_BITS: u32 = 4;
const ENTRIES: usize = 1 << DIGIT_BITS;
/// The level of the root of a volume that reaches every index.
const LEVEL_MOST: u32 = u64::BITS / DIGIT_BITS - 1;

/// A directory, or at level 0 a leaf.
struct Node {
    /// The latest time of each block, or of any block below.
    latest: [u32; ENTRIES],
    /// In a directory: the node below. In a leaf: the time before the latest, 0 for none; for blocks recorded since the
    /// clock ticked, the mark they were recorded with.
    rest: [u32; ENTRIES],
}

const EMPTY: Node = Node { latest: [0; ENTRIES], rest: [0; ENTRIES] };

/// The top of a volume's table.
#[derive(Clone, Copy)]
struct Root {
    node: u32,
    level: u32,
    latest: u32,
}

fn nodes_within(bytes: u64) -> usize {
    usize::try_from(bytes / size_of::<Node>() as u64).unwrap_or(usize::MAX)
}

/// The block tables of all volumes.
pub(crate) struct Table {
    nodes: Vec<Node>,
    /// Nodes that are in no table.
    free: Vec<u32>,
    roots: BTreeMap<u32, Root>,
    /// Volumes recorded since the clock ticked.
    volumes: Vec<u32>,
    /// The bank clock.
    clock: u32,
    /// Entries whose latest time is earlier need not be kept.
    threshold: u32,
    nodes_most: usize,
    /// The limit from the next bank on.
    nodes_next: usize,
}

impl Table {
    /// Empty tables, limited to `bytes_most` bytes between two banks.
    pub(crate) fn new(bytes_most: u64) -> Table {
        Table {
            nodes: Vec::new(),
            free: Vec::new(),
            roots: BTreeMap::new(),
            volumes: Vec::new(),
            clock: 0,
            threshold: 0,
            nodes_most: nodes_within(bytes_most),
            nodes_next: nodes_within(bytes_most),
        }
    }

    /// Limits the tables to `bytes_most` bytes between two banks, from the next bank on.
    pub(crate) fn limit(&mut self, bytes_most: u64) {
        self.nodes_next = nodes_within(bytes_most);
    }

    /// Advances the bank clock by one. If it would overflow, it starts again and all times are forgotten.
    pub(crate) fn tick(&mut self) {
        if self.clock == u32::MAX {
            self.nodes.clear();
            self.free.clear();
            self.roots.clear();
            (self.clock, self.threshold) = (0, 0);
        }
        self.clock += 1;
        self.volumes.clear();
    }

    /// Records `block` as accessed now. Returns the time of its access before that, 0 for never. Its entry holds `mark` until
    /// [`current`](Table::current) visits it. If it was recorded since the clock ticked, that is the time returned, and its entry keeps
    /// the mark that it has.
    pub(crate) fn record(&mut self, block: Block, mark: u32) -> u32 {
        let clock = self.clock;
        let known = self.roots.get(&block.volume).copied();
        let mut root = known.unwrap_or_else(|| Root { node: self.add(), level: level_of(block.index), latest: 0 });
        while root.level < level_of(block.index) {
            let node = self.add();
            self.nodes[node as usize].latest[0] = root.latest;
            self.nodes[node as usize].rest[0] = root.node;
            root = Root { node, level: root.level + 1, ..root };
        }
        if root.latest != clock {
            self.volumes.push(block.volume);
            root.latest = clock;
            self.roots.insert(block.volume, root);
        } else if known.is_some_and(|known| known.level != root.level) {
            self.roots.insert(block.volume, root);
        }
        let mut at = root.node as usize;
        for level in (1..=root.level).rev() {
            let entry = digit(block.index, level);
            if self.nodes[at].latest[entry] == 0 {
                self.nodes[at].rest[entry] = self.add();
            }
            // "Each time the block table is looked up in a hierarchical way to record a new access time, the time is
            // also recorded as a timestamp in each directory entry that has been passed."
            self.nodes[at].latest[entry] = clock;
            at = self.nodes[at].rest[entry] as usize;
        }
        let entry = digit(block.index, 0);
        if self.nodes[at].latest[entry] != clock {
            self.nodes[at].rest[entry] = mark;
        }
        std::mem::replace(&mut self.nodes[at].latest[entry], clock)
    }

    /// Passes the blocks recorded since the clock ticked to `visit` in the order of their addresses, with their marks,
    /// which `visit` exchanges for the times that [`record`](Table::record) returned.
    pub(crate) fn current(&mut self, mut visit: impl FnMut(Block, u32) -> u32) {
        self.volumes.sort_unstable();
        for &volume in &self.volumes {
            let root = self.roots[&volume];
            let mut visit = |index, mark| visit(Block { volume, index }, mark);
            walk(&mut self.nodes, root.node, root.level, 0, self.clock, &mut visit);
        }
    }

    /// Removes the entries accessed longest ago until the table is within its limit.
    pub(crate) fn reclaim(&mut self) {
        self.nodes_most = self.nodes_next;
        while self.used() > self.nodes_most {
            // The threshold finally passes the clock, and the table is empty.
            self.threshold += (self.clock - self.threshold) / 2 + 1;
            self.remove_before(self.threshold);
        }
    }

    /// The bank clock.
    pub(crate) fn clock(&self) -> u32 {
        self.clock
    }

    /// Nodes in use.
    pub(crate) fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.nodes.push(EMPTY);
            self.nodes.len() as u32 - 1
        })
    }

    /// "The system will remove a directory once it finds its timestamp is smaller than the threshold, and all the
    /// subdirectories and BTEs under it will be removed."
    fn remove_before(&mut self, threshold: u32) {
        let Table { nodes, free, roots, .. } = self;
        roots.retain(|_, root| {
            if root.latest < threshold {
                remove(nodes, free, root.node, root.level);
            } else {
                sweep(nodes, free, root.node, root.level, threshold);
            }
            root.latest >= threshold
        });
    }

    /// Recounts every invariant.
    ///
    /// # Panics
    /// On a broken one.
    pub(crate) fn check(&self) {
        assert!(self.used() <= self.nodes_most, "the table is larger than its limit");
        let counted: usize = self.roots.values().map(|root| self.checked(root.node, root.level, root.latest)).sum();
        assert_eq!(counted, self.used(), "nodes in use and nodes in a table");
        assert!(self.free.iter().all(|&node| self.nodes[node as usize].latest == [0; ENTRIES]), "a free node is empty");
    }

    /// The nodes of the table below `node`, whose entry has `latest` as the latest time there.
    fn checked(&self, node: u32, level: u32, latest: u32) -> usize {
        let Node { latest: times, rest } = &self.nodes[node as usize];
        assert_eq!(times.iter().max(), Some(&latest), "a directory has the latest time below");
        assert!(latest <= self.clock, "a time to come");
        let entries = || times.iter().zip(rest).filter(|&(&time, _)| time > 0);
        if level == 0 {
            assert!(entries().all(|(&time, &before)| before < time), "the times of a block are in order");
            return 1;
        }
        1 + entries().map(|(&time, &below)| self.checked(below, level - 1, time)).sum::<usize>()
    }
}

/// The level of a root that reaches `index`.
fn level_of(index: u64) -> u32 {
    let bits = u64::BITS - (index | 1).leading_zeros();
    (bits.div_ceil(DIGIT_BITS) - 1).min(LEVEL_MOST)
}

#[inline]
fn digit(index: u64, level: u32) -> usize {
    (index >> (level * DIGIT_BITS)) as usize % ENTRIES
}

/// "The traversal goes into only those directories containing the blocks in the bank." (3.3)
fn walk(nodes: &mut [Node], node: u32, level: u32, index: u64, clock: u32, visit: &mut impl FnMut(u64, u32) -> u32) {
    let Node { latest, .. } = &nodes[node as usize];
    let mut current = (0..ENTRIES).fold(0u32, |found, entry| found | u32::from(latest[entry] == clock) << entry);
    while current != 0 {
        let entry = current.trailing_zeros() as usize;
        current &= current - 1;
        let index = index << DIGIT_BITS | entry as u64;
        let rest = &mut nodes[node as usize].rest[entry];
        if level == 0 {
            *rest = visit(index, *rest);
        } else {
            let below = *rest;
            walk(nodes, below, level - 1, index, clock, visit);
        }
    }
}

/// Removes entries older than `threshold` below `node`, which itself is newer.
fn sweep(nodes: &mut [Node], free: &mut Vec<u32>, node: u32, level: u32, threshold: u32) {
    if level == 0 {
        return;
    }
    for entry in 0..ENTRIES {
        let Node { latest, rest } = &mut nodes[node as usize];
        let (time, below) = (latest[entry], rest[entry]);
        if time >= threshold {
            sweep(nodes, free, below, level - 1, threshold);
        } else if time > 0 {
            latest[entry] = 0;
            remove(nodes, free, below, level - 1);
        }
    }
}

/// Removes `node` and all below it.
fn remove(nodes: &mut [Node], free: &mut Vec<u32>, node: u32, level: u32) {
    let Node { latest, rest } = std::mem::replace(&mut nodes[node as usize], EMPTY);
    free.push(node);
    if level > 0 {
        for (_, below) in latest.into_iter().zip(rest).filter(|&(time, _)| time > 0) {
            remove(nodes, free, below, level - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(volume: u32, index: u64) -> Block {
        Block { volume, index }
    }

    /// Records `blocks` at the next time and returns when they were before and how the traversal finds them.
    fn bank(table: &mut Table, blocks: &[Block]) -> (Vec<u32>, Vec<Block>) {
        table.tick();
        let before: Vec<u32> = (0..).zip(blocks).map(|(mark, &block)| table.record(block, mark)).collect();
        let mut found = Vec::new();
        table.current(|block, mark| {
            assert_eq!(blocks[mark as usize], block);
            found.push(block);
            before[mark as usize]
        });
        table.reclaim();
        table.check();
        (before, found)
    }

    #[test]
    fn both_times_of_every_block_on_every_volume() {
        let mut table = Table::new(1 << 20);
        let blocks =
            [block(7, 3), block(0, u64::MAX), block(7, 4), block(0, 0), block(u32::MAX, 1 << 32), block(7, 300)];
        let mut sorted = blocks;
        sorted.sort();
        assert_eq!(bank(&mut table, &blocks), (vec![0; 6], sorted.to_vec()));
        assert_eq!(bank(&mut table, &blocks[..2]), (vec![1; 2], vec![blocks[1], blocks[0]]));
        assert_eq!(bank(&mut table, &[blocks[0], blocks[5]]).0, [2, 1]);
        // The table of volume 7 grows upwards, and what it had stays.
        assert_eq!(bank(&mut table, &[block(7, 1 << 20), blocks[2]]).0, [0, 1]);
        assert_eq!(bank(&mut table, &blocks[..1]).0, [3]);
    }

    #[test]
    fn a_block_that_is_recorded_twice_has_its_first_mark() {
        let mut table = Table::new(1 << 20);
        table.tick();
        assert_eq!([table.record(block(0, 3), 5), table.record(block(0, 3), 6)], [0, 1]);
        table.current(|_, mark| {
            assert_eq!(mark, 5);
            0
        });
        table.check();
    }

    #[test]
    fn memory_is_reclaimed_by_age() {
        // Room for 8 nodes: a leaf and the directories above it take 3.
        let mut table = Table::new(8 * size_of::<Node>() as u64);
        bank(&mut table, &[block(0, 0x100)]);
        for time in 2..10 {
            assert_eq!(bank(&mut table, &[block(0, 0x100), block(0, 0x10 * time)]).0[0], time as u32 - 1);
            assert!(table.used() <= 8);
        }
        assert_eq!(bank(&mut table, &[block(0, 0x20)]).0, [0], "forgotten");
        assert_eq!(bank(&mut table, &[block(0, 0x90)]).0, [9], "recent enough");
        // More than fits at one time: nothing is left.
        let many: Vec<Block> = (0..9).map(|volume| block(volume, 0)).collect();
        bank(&mut table, &many);
        assert_eq!((table.used(), bank(&mut table, &many[..1]).0), (0, vec![0]));
        assert_eq!((table.used(), bank(&mut table, &many[..1]).0), (1, vec![13]));
    }

    #[test]
    fn the_clock_can_start_again() {
        let mut table = Table::new(1 << 20);
        table.clock = u32::MAX - 1;
        assert_eq!(bank(&mut table, &[block(0, 5)]).0, [0]);
        assert_eq!(bank(&mut table, &[block(0, 5)]).0, [0], "all times are forgotten");
        assert_eq!((table.clock, bank(&mut table, &[block(0, 5)]).0), (1, vec![1]));
    }
}
