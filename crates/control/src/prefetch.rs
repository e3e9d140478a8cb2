//! Controlled-aggressive prefetching (2.1): when a tenant that says what it will read fetches the next block it misses.
//!
//! The four rules of 2.1.2, and where they are kept:
//! 1. *Optimal prefetching*: what is fetched is `nextHole`, the next block of the list that is not resident (`hole`).
//! 2. *Optimal replacement*: the resident block that comes last in the list leaves, or one that does not come again
//!    (`LruSp::choose`).
//! 3. *Do no harm*: nothing is fetched unless `freeBlocks` blocks come after it or never.
//! 4. *First opportunity*: the host asks after each reference of the tenant and each completed prefetch.
//!
//! Deviations:
//! * A batch begins as soon as the one before it has ended, not only when the cursor has moved as in 4.3: 2.1.2 says "as
//!   soon as the disk is idle".
//! * It goes on while freeBlocks is at least 4, the bound in 4.3's explanation; its rule for the batch says above 4.
//! * freeBlocks counts free frames as well, so that a cache that is not full can be filled ahead.
//! * With several devices there is a nextHole, a count of outstanding prefetches and a batch for each.
//! * "Too often wrong" is: of the last 64 references of the tenant and accesses that were skipped, less than 16 were
//!   predicted ones.
//! * A tenant whose list was dropped for that is believed as far as what it says comes true: of its later lists, two blocks
//!   are fetched ahead for each access that came as predicted, so that it is further and further ahead. In the paper each list
//!   is believed at first, and who lies again and again has the disk fetch what nobody uses.

use nigh_policy::Block;

use crate::access_list::{AccessList, Stretch};
use crate::directive::Index;

/// References in the list that may be skipped or matched at once (4.3).
const LOOKAHEAD: u32 = 2;
/// Positions of the list that one call looks at for a hole; the next call goes on there.
const WALK_MOST: u32 = 4096;
/// Of 64 events, the matches that keep a list.
const MATCHES_LEAST: u32 = 16;

/// What a reference meant to the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// The next access, or the one after it: `skipped` is the position that was passed over.
    Advanced { skipped: Option<u32> },
    /// The block that the cursor is at, again.
    Again,
    /// Not predicted.
    Unpredicted,
}

/// What is going on at one device.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// No block of this device is missing from the cursor to here.
    hole: u32,
    /// Prefetches of the batch being made.
    issued: u32,
    /// Whether a batch is being made.
    open: bool,
}

/// The prefetch object of a tenant (4.3).
pub(crate) struct Prefetch {
    list: AccessList,
    /// Where the files of the list lie, in ascending order.
    devices: Vec<u32>,
    /// Of each of these devices.
    lanes: Vec<Lane>,
    /// The position after the cursor, which is the access that was made last.
    ahead: u32,
    /// The last 64 events, the latest lowest: a bit is 1 where an access was predicted.
    matches: u64,
    /// Whether an unpredicted reference missed and is not known to be over (2.1.3: no prefetch until it is).
    demand: bool,
}

impl Prefetch {
    /// Follows a list without entries, which is to be extended.
    pub(crate) fn new() -> Prefetch {
        let (list, devices, lanes) = (AccessList::default(), Vec::new(), Vec::new());
        Prefetch { list, devices, ahead: 0, lanes, matches: u64::MAX, demand: false }
    }

    /// The list goes on with `stretch`, which is on `device`. Says no if it has too many blocks then.
    pub(crate) fn extend(&mut self, stretch: Stretch, device: u32) -> bool {
        if let Err(at) = self.devices.binary_search(&device) {
            self.devices.insert(at, device);
            self.lanes.insert(at, Lane::default());
        }
        self.list.push(stretch)
    }

    /// Follows `rest`, a part of what is left of this list, and is as right as this one was.
    pub(crate) fn with_rest(&self, rest: &[Stretch], index: &dyn Index) -> Prefetch {
        let mut next = Prefetch { matches: self.matches, demand: self.demand, ..Prefetch::new() };
        for stretch in rest {
            assert!(next.extend(*stretch, index.device(stretch.file)), "it was in a list before");
        }
        next
    }

    /// Where the files of the list lie.
    pub(crate) fn devices(&self) -> &[u32] {
        &self.devices
    }

    /// The position at which `block` comes next, or `NEVER`.
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

    /// The block that comes at `position` left the cache.
    pub(crate) fn missing(&mut self, position: u32) {
        for lane in &mut self.lanes {
            lane.hole = lane.hole.min(position);
        }
    }

    fn lane(&mut self, device: u32) -> Option<&mut Lane> {
        let at = self.devices.binary_search(&device).ok()?;
        Some(&mut self.lanes[at])
    }

    /// An unpredicted demand read is complete.
    pub(crate) fn demand_finished(&mut self) {
        self.demand = false;
    }

    /// nextHole of `device`, if a batch may go on or, unless one is `underway` there, begin: the position and the block.
    pub(crate) fn hole(&mut self, device: u32, underway: bool, batch: u32, index: &dyn Index) -> Option<(u32, Block)> {
        if self.demand {
            return None;
        }
        let ahead = self.ahead;
        let lane = self.lane(device)?;
        if !lane.open {
            if underway {
                return None;
            }
            (lane.open, lane.issued) = (true, 0);
        }
        if lane.issued >= batch {
            lane.open = false;
            return None;
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

    /// The block at the hole is fetched.
    pub(crate) fn issue(&mut self, device: u32) {
        if let Some(lane) = self.lane(device) {
            lane.issued += 1;
        }
    }

    /// The batch at `device` ends, because of rule 3.
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
