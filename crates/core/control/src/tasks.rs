//! Pending work of hints that take longer than a call may.

use std::collections::VecDeque;

use nigh_policy::Slot;

/// Temporary priorities of one tenant that are still being applied.
pub(crate) const TEMPORARIES_MOST: usize = 16;

/// The position of a sweep through all resident blocks: first those kept for floors, then the LRU list, the oldest
/// first.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Whether it is under way.
    pub(crate) underway: bool,
    /// Whether another one must follow.
    pub(crate) wanted: bool,
    /// Owners whose kept blocks are still to be visited; those of the last one are being visited.
    pub(crate) keeping: Vec<u16>,
    /// Whether it is in the LRU list.
    pub(crate) in_lru: bool,
    /// The next block.
    pub(crate) next: Option<Slot>,
    /// The most blocks of the LRU list to visit: twice their number at the start, because those referenced meanwhile
    /// are visited again.
    pub(crate) left: u32,
}

/// The way to find the blocks of a range.
#[derive(Clone, Copy)]
pub(crate) enum Search {
    /// One by one from this block on.
    Blocks(u64),
    /// Among all slots from this one on, because the range is larger than their number.
    Slots(u32),
}

/// A temporary priority that is being applied to the blocks of a range.
pub(crate) struct Temporary {
    pub(crate) owner: u16,
    pub(crate) file: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) priority: i32,
    /// The time of the hint: blocks referenced later keep their priority.
    pub(crate) tick: u64,
    pub(crate) search: Search,
}

/// All pending work.
#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) sweep: Sweep,
    /// Owners with blocks of lists that are over, and some that have none any more.
    pub(crate) left_over: Vec<u16>,
    pub(crate) temporary: VecDeque<Temporary>,
    /// Owners whose level 0 may not have their policy yet.
    pub(crate) policies: Vec<u16>,
    /// The number of blocks that steps have looked at.
    pub(crate) visited: u64,
}
