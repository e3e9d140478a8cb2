//! What is left to be done of what was said, because it takes longer than a call may.

use std::collections::VecDeque;

use nigh_policy::Slot;

/// Temporary priorities of one tenant that are still being given.
pub(crate) const TEMPORARIES_MOST: usize = 16;

/// Where a sweep through all resident blocks is: first those kept for floors, then the LRU list, the oldest first.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Whether it is underway.
    pub(crate) underway: bool,
    /// Whether one is to begin when this one is over.
    pub(crate) wanted: bool,
    /// Owners whose kept blocks are still to be visited; the list of the last is.
    pub(crate) keeping: Vec<u16>,
    /// Whether it is in the LRU list.
    pub(crate) in_lru: bool,
    /// The block to be visited next.
    pub(crate) next: Option<Slot>,
    /// Blocks of the LRU list to be visited at most, twice as many as there were: those referenced meanwhile are visited again.
    pub(crate) left: u32,
}

/// How the blocks of a range are found.
#[derive(Clone, Copy)]
pub(crate) enum Search {
    /// One by one from this block on.
    Blocks(u64),
    /// Among all slots from this one on, because the range is longer.
    Slots(u32),
}

/// A temporary priority that is being given to the blocks of a range.
pub(crate) struct Temporary {
    pub(crate) owner: u16,
    pub(crate) file: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) priority: i32,
    /// When it was said: who was referenced later keeps its priority.
    pub(crate) tick: u64,
    pub(crate) search: Search,
}

/// Everything that is left to be done.
#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) sweep: Sweep,
    /// Owners with blocks of lists that are over; also some that had.
    pub(crate) left_over: Vec<u16>,
    pub(crate) temporary: VecDeque<Temporary>,
    /// Blocks that steps looked at, ever.
    pub(crate) visited: u64,
}
