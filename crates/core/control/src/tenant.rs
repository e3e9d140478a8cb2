//! The state of one tenant.

use std::collections::BTreeMap;

use nigh_policy::Slot;

use crate::allowance::Allowance;
use crate::directive::Order;
use crate::levels::Levels;
use crate::pace::Pace;
use crate::prefetch::Prefetch;

/// The counters of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// References that its list predicted.
    pub predicted: u64,
    /// References while it had a list that did not predict them.
    pub unpredicted: u64,
    /// Predicted accesses that were skipped.
    pub skipped: u64,
    /// Lists that were dropped because they were too often wrong.
    pub lists_dropped: u64,
    /// Blocks that it prefetched.
    pub prefetched: u64,
    /// Prefetched blocks that were then referenced: divided by `prefetched`, this is the accuracy.
    pub used: u64,
    /// Of these, blocks that the tenant referenced before they were loaded.
    pub late: u64,
    /// Prefetched blocks that left without a reference.
    pub wasted: u64,
    /// Decisions against the candidate: a placeholder was made for each.
    pub overruled: u64,
    /// Such decisions that were wrong: the lost block was referenced before the candidate.
    pub mistakes: u64,
}

impl std::ops::Sub for Statistics {
    type Output = Statistics;

    fn sub(self, earlier: Statistics) -> Statistics {
        Statistics {
            predicted: self.predicted - earlier.predicted,
            unpredicted: self.unpredicted - earlier.unpredicted,
            skipped: self.skipped - earlier.skipped,
            lists_dropped: self.lists_dropped - earlier.lists_dropped,
            prefetched: self.prefetched - earlier.prefetched,
            used: self.used - earlier.used,
            late: self.late - earlier.late,
            wasted: self.wasted - earlier.wasted,
            overruled: self.overruled - earlier.overruled,
            mistakes: self.mistakes - earlier.mistakes,
        }
    }
}

/// The progress of moving the blocks that a tenant had before it was a manager into its pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// Complete.
    Done,
    /// The next sweep moves them.
    Wanted,
    /// The sweep under way moves them.
    Underway,
}

/// The state of a tenant, or of one that has left while it still has blocks.
pub(crate) struct Share {
    /// Whether the tenant has left. Its blocks then have no owner.
    pub(crate) gone: bool,
    /// Resident blocks that it owns.
    pub(crate) size: u32,
    /// Its configured floor.
    pub(crate) floor_said: u32,
    /// The part of that for which the cache has room.
    pub(crate) floor: u32,
    /// Its ceiling; `u32::MAX` for none.
    pub(crate) ceiling: u32,
    /// The number of the list of its blocks that reached the end of the LRU list while its floor protected them.
    pub(crate) kept: Option<u32>,
    /// Its policy, if that is not the one of the cache.
    pub(crate) policy: Option<Order>,
    /// Its priority levels, if it is a manager.
    pub(crate) levels: Option<Box<Levels>>,
    /// The tick at which it became one, which counts as the reference of its older blocks.
    pub(crate) since: u64,
    pub(crate) adoption: Adoption,
    pub(crate) prediction: Option<Box<Prefetch>>,
    /// The number of its lists so far.
    pub(crate) lists: u32,
    /// Its resident blocks that occur in a list, by the number of that list and their next position. Those of lists
    /// that are over are to move to their pools.
    pub(crate) coming: BTreeMap<(u32, u32), Slot>,
    /// By device, the incomplete prefetches of this and previous lists: 4.3's pCount.
    pub(crate) outstanding: Vec<(u32, u32)>,
    /// The remaining prefetches allowed to it, once a list of it was dropped as wrong.
    pub(crate) credit: Option<u32>,
    /// The size of its batches, by device, where they adapt.
    pub(crate) paces: Vec<(u32, Pace)>,
    /// The prefetches allowed to all its lists together.
    pub(crate) allowance: Allowance,
    pub(crate) statistics: Statistics,
}

impl Share {
    /// Whether it is of a tenant that has blocks.
    pub(crate) fn is_present(&self) -> bool {
        self.size > 0 && !self.gone
    }

    /// The block of its list that occurs last.
    pub(crate) fn last_coming(&self) -> Option<Slot> {
        self.coming.last_key_value().map(|(_, &slot)| slot)
    }

    /// The size of its batches on `device`, once it prefetched from there.
    pub(crate) fn pace(&self, device: u32) -> Option<&Pace> {
        self.paces.iter().find(|(other, _)| *other == device).map(|(_, pace)| pace)
    }

    /// The block at `position` of its list, if the tenant has it.
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
            policy: None,
            levels: None,
            since: 0,
            adoption: Adoption::Done,
            prediction: None,
            lists: 0,
            coming: BTreeMap::new(),
            outstanding: Vec::new(),
            credit: None,
            paces: Vec::new(),
            allowance: Allowance::default(),
            statistics: Statistics::default(),
        }
    }
}
