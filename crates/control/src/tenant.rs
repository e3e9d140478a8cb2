//! What is known of one tenant.

use std::collections::BTreeMap;

use nigh_policy::Slot;

use crate::levels::Levels;
use crate::prefetch::Prefetch;

/// Counts for one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// References that its list predicted.
    pub predicted: u64,
    /// References while it had a list, which did not predict them.
    pub unpredicted: u64,
    /// Accesses of a list that were passed over.
    pub skipped: u64,
    /// Lists that were dropped because they were too often wrong.
    pub lists_dropped: u64,
    /// Blocks that it prefetched.
    pub prefetched: u64,
    /// Prefetched blocks that were referenced then: over `prefetched`, the accuracy.
    pub used: u64,
    /// Of these, blocks that the tenant came for before they were there.
    pub late: u64,
    /// Prefetched blocks that left without a reference.
    pub wasted: u64,
    /// Decisions against the candidate: a placeholder was made for each.
    pub overruled: u64,
    /// Such decisions that were wrong: the block given up was referenced before the candidate.
    pub mistakes: u64,
}

/// How far the blocks that a tenant had before it managed itself are in its pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// All are.
    Done,
    /// The next sweep puts them there.
    Wanted,
    /// The sweep that is underway does.
    Underway,
}

/// What is known of one tenant, or of one that is gone as long as it has blocks.
pub(crate) struct Share {
    /// Whether the tenant is gone. Its blocks have no owner then.
    pub(crate) gone: bool,
    /// Resident blocks that it owns.
    pub(crate) size: u32,
    /// What it was given.
    pub(crate) floor_said: u32,
    /// As much of that as the cache has room for.
    pub(crate) floor: u32,
    /// `u32::MAX` for none.
    pub(crate) ceiling: u32,
    /// The list of its blocks that reached the end of the LRU list while its floor protected them, by number.
    pub(crate) kept: Option<u32>,
    /// Its priority levels, if it manages itself.
    pub(crate) levels: Option<Box<Levels>>,
    /// The tick at which it began to, with which its older blocks count as referenced.
    pub(crate) since: u64,
    pub(crate) adoption: Adoption,
    pub(crate) prediction: Option<Box<Prefetch>>,
    /// Lists that it had until now.
    pub(crate) lists: u32,
    /// Its resident blocks that come in a list, by the number of that and the position at which they come next. Those of lists
    /// that are over are to go to their pools.
    pub(crate) coming: BTreeMap<(u32, u32), Slot>,
    /// By device, the prefetches that are not complete, of this list and those before: 4.3's pCount.
    pub(crate) outstanding: Vec<(u32, u32)>,
    /// How many more blocks may be fetched ahead for it, once a list of it was dropped as wrong.
    pub(crate) credit: Option<u32>,
    pub(crate) statistics: Statistics,
}

impl Share {
    /// The block of its list that comes last.
    pub(crate) fn last_coming(&self) -> Option<Slot> {
        self.coming.last_key_value().map(|(_, &slot)| slot)
    }

    /// The block at `position` of its list, if it has it.
    pub(crate) fn coming_at(&self, position: u32) -> Option<Slot> {
        self.coming.get(&(self.lists, position)).copied()
    }

    /// A block of a list that is over.
    pub(crate) fn left_over(&self) -> Option<Slot> {
        let end = if self.prediction.is_some() { (self.lists, 0) } else { (u32::MAX, u32::MAX) };
        self.coming.range(..end).next_back().map(|(_, &slot)| slot)
    }
}

impl Default for Share {
    fn default() -> Share {
        Share {
            gone: false,
            size: 0,
            floor_said: 0,
            floor: 0,
            ceiling: u32::MAX,
            kept: None,
            levels: None,
            since: 0,
            adoption: Adoption::Done,
            prediction: None,
            lists: 0,
            coming: BTreeMap::new(),
            outstanding: Vec::new(),
            credit: None,
            statistics: Statistics::default(),
        }
    }
}
