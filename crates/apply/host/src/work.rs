//! Work that results from calls of engines, and the waiters for it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use nigh_engine::{Damage, Fault, LeftOut, Operation, Outcome, Shared, Volume};

/// The most ranges of a disk that are named because they cannot be written.
pub(crate) const RANGES_NAMED: usize = 8;

/// A waiter for an engine's reply.
pub trait Waiter: Send + Sync {
    /// The engine of `shard` replied to the piece of `range`; 0..0 for a flush. Called without the shard's lock, by a
    /// thread that must not wait for anything: the work that results from the reply is added to `work`.
    ///
    /// A write gets two replies: first its frames, [`Outcome::Fill`], then its completion.
    fn deliver(self: Arc<Self>, shard: u32, range: Range<u64>, outcome: Outcome, work: &mut Work);
}

/// The outlet through which replies leave the host.
pub trait Outlet: Send + Sync {
    /// Sends the delivered replies. Called once for many replies, without any lock, by a thread that must not wait.
    fn flush(self: Arc<Self>, work: &mut Work);
}

/// A waiter, and its piece.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) waiter: Arc<dyn Waiter>,
    pub(crate) range: Range<u64>,
}

/// Work that resulted from calls of engines and is still to be done, without their locks.
#[derive(Default)]
pub struct Work {
    pub(crate) operations: Vec<(u32, Operation)>,
    pub(crate) encodings: Vec<Encoding>,
    pub(crate) replies: Vec<(u32, Waiting, Outcome)>,
    pub(crate) polls: BTreeSet<u32>,
    pub(crate) outlets: Vec<Arc<dyn Outlet>>,
    pub(crate) reports: Vec<Report>,
    /// The numbers of levels that are too slow for a shard, or are no longer.
    pub(crate) late: Vec<(usize, bool)>,
    /// Levels that a shard leaves out for a volume, or uses again.
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) damages: Vec<Damage>,
}

/// Blocks to be encoded.
pub(crate) struct Encoding {
    pub(crate) shard: u32,
    pub(crate) operation: Operation,
    /// For each block, the group that shares memory with its disk; `None` if the disk is gone.
    pub(crate) domains: Vec<Option<u32>>,
}

/// A disk with blocks that could not be written for long in a shard, with the fault, or all of whose blocks are written
/// again.
pub(crate) struct Report {
    pub(crate) shard: u32,
    pub(crate) volume: Volume,
    pub(crate) failing: Option<Fault>,
    /// The first of these blocks.
    pub(crate) failed: Vec<Range<u64>>,
}

impl Work {
    /// Returns frames of `shard`.
    pub fn release(&mut self, shard: u32, data: Shared) {
        if data.release() {
            self.polls.insert(shard);
        }
    }

    /// `outlet` has replies to send.
    pub fn flush(&mut self, outlet: &Arc<impl Outlet + 'static>) {
        let at = Arc::as_ptr(outlet);
        if !self.outlets.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), at)) {
            self.outlets.push(outlet.clone());
        }
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.operations.is_empty()
            && self.encodings.is_empty()
            && self.replies.is_empty()
            && self.polls.is_empty()
            && self.outlets.is_empty()
            && self.reports.is_empty()
            && self.late.is_empty()
            && self.left_out.is_empty()
            && self.damages.is_empty()
    }
}

/// The result of submitting a request.
pub struct Submitted {
    /// The shard that has it.
    pub shard: u32,
    /// The token of its waiter, if there is one: always for a write.
    pub token: usize,
    /// The reply; `None` if it comes later.
    pub outcome: Option<Outcome>,
}
