//! The sweep: which block the steps visit next, and what they find of its owner.

use nigh_policy::{Access, Block, Kind, Slot, Stream, Tenant};

use super::{KEPT, LruSp};
impl LruSp {
    pub(crate) fn want_sweep(&mut self) {
        self.tasks.sweep.wanted = true;
        (self.swept, self.plain) = (false, false);
    }

    /// `slot` is about to leave its place in the LRU list or among kept blocks: the sweep moves past it.
    #[inline]
    pub(super) fn sweep_beyond(&mut self, slot: Slot) {
        if !self.swept && self.tasks.sweep.next == Some(slot) {
            self.tasks.sweep.next = self.beyond(slot);
        }
    }

    /// The block that a sweep visits after `slot`.
    pub(super) fn beyond(&self, slot: Slot) -> Option<Slot> {
        let known = self.links.own(slot);
        if known.flags & KEPT == 0 {
            return self.lru.before(&self.links, slot);
        }
        let kept = &self.kept_lists[self.kept_list(known.owner)];
        // Blocks of a tenant that has left move to the end of the LRU list in order: the oldest last.
        if self.is_gone(known.owner) { kept.after(&self.links, slot) } else { kept.before(&self.links, slot) }
    }

    /// Whether the tenant of `owner` has left.
    pub(super) fn is_gone(&self, owner: u16) -> bool {
        self.shares.get(owner as usize).is_some_and(|share| share.gone)
    }

    /// The list of kept blocks of `owner`, which has some.
    pub(super) fn kept_list(&self, owner: u16) -> usize {
        self.shares[owner as usize].kept.expect("a kept block is in the list of its owner") as usize
    }

    /// A pseudo-reference of `owner`, for the policies of pools.
    pub(super) fn moving(&self, block: Block) -> Access {
        Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: self.tick }
    }
}
