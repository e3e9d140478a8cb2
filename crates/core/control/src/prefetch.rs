//! Controlled-aggressive prefetching (2.1): when a tenant with a list fetches the next block that it will miss.
//!
//! The four rules of 2.1.2, and where they are implemented:
//! 1. *Optimal prefetching*: the block to fetch is `nextHole`, the next block of the list that is not resident
//!    (`hole`).
//! 2. *Optimal replacement*: the resident block that occurs last in the list leaves, or one that does not occur again
//!    (`LruSp::choose`).
//! 3. *Do no harm*: nothing is fetched unless `freeBlocks` blocks occur after it or never.
//! 4. *First opportunity*: the host checks after each reference of the tenant and each completed prefetch.
//!
//! Deviations:
//! * A batch starts as soon as the previous one has ended, not only when the cursor has moved as in 4.3: 2.1.2 says "as
//!   soon as the disk is idle".
//! * It continues while freeBlocks is at least 4, the limit in 4.3's explanation; its rule for the batch says above 4.
//! * freeBlocks includes free frames, so that a cache that is not full can be filled ahead.
//! * With several devices, each has a nextHole, a count of outstanding prefetches and a batch.
//! * "Too often wrong" means: of the last 64 events (references of the tenant and skipped accesses), fewer than 16 were
//!   predicted references.
//! * After such a list was dropped, later lists of the tenant are limited: they allow two prefetches for each correctly
//!   predicted access, so that the tenant can get further and further ahead. In the paper each list starts without a
//!   limit, so a tenant with many wrong lists makes the disk fetch unused blocks again and again.

use nigh_policy::Block;

use crate::access_list::{AccessList, Stretch};
use crate::directive::Index;

/// Accesses of the list that one reference may skip or match (4.3).
const LOOKAHEAD: u32 = 2;
/// Positions of the list that one call searches for a hole; the next call continues there.
const WALK_MOST: u32 = 4096;
/// The least number of matches in 64 events that keeps a list.
const MATCHES_LEAST: u32 = 16;

/// The relation of a reference to the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// The next access, or the one after it: `skipped` is the position that was passed over.
    Advanced { skipped: Option<u32> },
    /// The block at the cursor, referenced again.
    Again,
    /// Not predicted.
    Unpredicted,
}

/// The state of one device.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// No block of this device is missing from the cursor to here.
    hole: u32,
    /// Prefetches of the current batch.
    issued: u32,
    /// Whether a batch is being built.
    open: bool,
}

/// The prefetch object of a tenant (4.3).
pub(crate) struct Prefetch {
    list: AccessList,
    /// The devices of the files in the list, in ascending order.
    devices: Vec<u32>,
    /// The state of each of these devices.
    lanes: Vec<Lane>,
    /// The position after the cursor, which is the last access made.
    ahead: u32,
    /// The last 64 events, the latest in the lowest bit: a bit is 1 if an access was predicted.
    matches: u64,
    /// Whether an unpredicted reference missed and may still be in progress (2.1.3: no prefetch until it is over).
    demand: bool,
}

impl Prefetch {
    /// Follows an empty list, which is to be extended.
    pub(crate) fn new() -> Prefetch {
        let (list, devices, lanes) = (AccessList::default(), Vec::new(), Vec::new());
        Prefetch { list, devices, ahead: 0, lanes, matches: u64::MAX, demand: false }
    }

    /// Appends `stretch`, which is on `device`, to the list. Returns false if it would have too many blocks.
    pub(crate) fn extend(&mut self, stretch: Stretch, device: u32) -> bool {
        if let Err(at) = self.devices.binary_search(&device) {
            self.devices.insert(at, device);
            self.lanes.insert(at, Lane::default());
        }
        self.list.push(stretch)
    }

    /// Continues with `rest`, a part of the rest of this list, and keeps the history of matches.
    pub(crate) fn with_rest(&self, rest: &[Stretch], index: &dyn Index) -> Prefetch {
        let mut next = Prefetch { matches: self.matches, demand: self.demand, ..Prefetch::new() };
        for stretch in rest {
            assert!(next.extend(*stretch, index.device(stretch.file)), "it was in a list before");
        }
        next
    }

    /// The devices of the files in the list.
    pub(crate) fn devices(&self) -> &[u32] {
        &self.devices
    }

    /// The next position of `block`, or `NEVER`.
    pub(crate) fn next(&self, block: Block) -> u32 {
        self.list.next(block, self.ahead)
    }

    /// Whether all accesses are over, or the list was too often wrong.
    pub(crate) fn is_over(&self) -> bool {
        self.ahead == self.list.length() || self.is_wrong()
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.matches.count_ones() < MATCHES_LEAST
    }

    /// The tenant referenced `block`.
    pub(crate) fn reference(&mut self, block: Block, hit: bool) -> Match {
        self.demand = false;
        let is = |position: u32| position < self.list.length() && self.list.block(position) == block;
        let from = self.ahead;
        if is(from) {
            self.advance(from + 1);
            return Match::Advanced { skipped: None };
        }
        if from > 0 && is(from - 1) {
            return Match::Again;
        }
        if (1..LOOKAHEAD).any(|skip| is(from + skip)) {
            self.matches <<= 1;
            self.advance(from + LOOKAHEAD);
            return Match::Advanced { skipped: Some(from) };
        }
        self.matches <<= 1;
        self.demand = !hit;
        Match::Unpredicted
    }

    fn advance(&mut self, ahead: u32) {
        self.matches = self.matches << 1 | 1;
        self.ahead = ahead;
        self.list.pass(ahead);
    }

    /// The block at `position` left the cache.
    pub(crate) fn missing(&mut self, position: u32) {
        for lane in &mut self.lanes {
            lane.hole = lane.hole.min(position);
        }
    }

    fn lane(&mut self, device: u32) -> Option<&mut Lane> {
        let at = self.devices.binary_search(&device).ok()?;
        Some(&mut self.lanes[at])
    }

    /// A demand read that was not predicted is complete.
    pub(crate) fn demand_finished(&mut self) {
        self.demand = false;
    }

    /// nextHole of `device`, if a batch may continue, or start unless one is `underway` there: the position and the
    /// block.
    pub(crate) fn hole(&mut self, device: u32, underway: bool, batch: u32, index: &dyn Index) -> Option<(u32, Block)> {
        if self.demand {
            return None;
        }
        let ahead = self.ahead;
        let lane = self.lane(device)?;
        // The host need not have asked on when the last block of a batch was issued.
        lane.open &= lane.issued < batch;
        if !lane.open {
            if underway {
                return None;
            }
            (lane.open, lane.issued) = (true, 0);
        }
        let mut at = lane.hole.max(ahead);
        let limit = at.saturating_add(WALK_MOST);
        let mut found = None;
        while at < self.list.length() && at < limit {
            let rest = self.list.rest(at);
            let blocks = (rest.end - rest.first) as u32;
            if index.device(rest.file) != device {
                at += blocks;
                continue;
            }
            let mut candidates = (rest.first..rest.end).take((limit - at) as usize);
            let missing = candidates.position(|first| {
                let block = Block { volume: rest.file, index: first };
                index.resident(block).is_none()
            });
            match missing {
                Some(ahead) => {
                    at += ahead as u32;
                    found = Some((at, Block { volume: rest.file, index: rest.first + ahead as u64 }));
                    break;
                }
                None => at = at.saturating_add(blocks).min(limit),
            }
        }
        let lane = self.lane(device)?;
        lane.hole = at;
        lane.open = found.is_some();
        found
    }

    /// The greatest nextHole of all devices: no block of the list up to here may leave before the others.
    pub(crate) fn furthest_hole(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.hole).max().unwrap_or(0)
    }

    /// The block at the hole is being fetched.
    pub(crate) fn issue(&mut self, device: u32) {
        if let Some(lane) = self.lane(device) {
            lane.issued += 1;
        }
    }

    /// The batch at `device` ends because of rule 3.
    pub(crate) fn end_batch(&mut self, device: u32) {
        if let Some(lane) = self.lane(device) {
            lane.open = false;
        }
    }

    pub(crate) fn list(&self) -> &AccessList {
        &self.list
    }

    /// The position after the cursor.
    pub(crate) fn ahead(&self) -> u32 {
        self.ahead
    }
}
