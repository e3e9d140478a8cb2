//! What is known of one tenant.

use std::collections::BTreeMap;

use nigh_policy::Slot;
use nigh_policy::list::List;

use crate::pools::Levels;
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

/// The list of a tenant, and which blocks it has of it.
pub(crate) struct Prediction {
    pub(crate) prefetch: Prefetch,
    /// The resident blocks of the tenant that come in the list, by the position at which they come next.
    pub(crate) coming: BTreeMap<u32, Slot>,
}

/// What is known of one tenant.
pub(crate) struct Share {
    /// Resident blocks that it owns.
    pub(crate) size: u32,
    pub(crate) floor: u32,
    /// `u32::MAX` for none.
    pub(crate) ceiling: u32,
    /// Its blocks that reached the end of the LRU list while its floor protected them, the oldest last.
    pub(crate) kept: Option<List>,
    /// Its priority levels, if it manages itself.
    pub(crate) levels: Option<Box<Levels>>,
    pub(crate) prediction: Option<Box<Prediction>>,
    /// By device, the prefetches that are not complete, of this list and those before: 4.3's pCount.
    pub(crate) outstanding: Vec<u32>,
    /// How many more blocks may be fetched ahead for it, once a list of it was dropped as wrong.
    pub(crate) credit: Option<u32>,
    pub(crate) statistics: Statistics,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            size: 0,
            floor: 0,
            ceiling: u32::MAX,
            kept: None,
            levels: None,
            prediction: None,
            outstanding: Vec::new(),
            credit: None,
            statistics: Statistics::default(),
        }
    }
}
