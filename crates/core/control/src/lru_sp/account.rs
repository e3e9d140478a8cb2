//! Tenants that arrive and leave. The number of a tenant can be reused at once: its blocks stay with its former owner
//! number until a reference, a decision or a step reaches each of them.

use nigh_policy::Slot;

use super::{Known, LruSp, NOBODY, RESIDENT, TENANTS_MOST, UNKNOWN};
use crate::tenant::Share;

impl LruSp {
    #[cold]
    #[inline(never)]
    pub(super) fn admit(&mut self, tenant: u32) -> u16 {
        assert!(tenant < self.config.limits.tenants.min(TENANTS_MOST), "tenant {tenant} is beyond the limit");
        if self.owners.len() <= tenant as usize {
            self.owners.resize(tenant as usize + 1, UNKNOWN);
        }
        let owner = self.open_share(Share::default());
        self.owners[tenant as usize] = owner;
        self.begin(owner);
        owner
    }

    /// `owner` has arrived.
    pub(super) fn begin(&mut self, owner: u16) {
        if self.config.allocation.has_shares() {
            self.manage(owner);
        }
        self.want_policy(owner);
    }

    pub(super) fn open_share(&mut self, share: Share) -> u16 {
        if self.free.is_empty() && self.shares.len() as u32 == TENANTS_MOST {
            self.evacuate();
        }
        let Some(owner) = self.free.pop() else {
            self.shares.push(share);
            return (self.shares.len() - 1) as u16;
        };
        let kept = self.shares[owner as usize].kept;
        self.shares[owner as usize] = Share { kept, ..share };
        owner
    }

    /// Completes at once the remaining work for tenants that have left. More than sixty thousand of them left blocks
    /// behind since the last sweep, and all numbers are in use.
    #[cold]
    fn evacuate(&mut self) {
        for slot in (0..self.room.slots).map(Slot) {
            let Known { owner, flags } = *self.links.own(slot);
            if flags & RESIDENT != 0 && self.is_gone(owner) {
                self.abandon(slot);
            }
        }
    }

    /// `slot`, whose tenant has left, has no owner from now on.
    pub(super) fn abandon(&mut self, slot: Slot) {
        self.disown(slot);
        self.links.own_mut(slot).owner = NOBODY;
    }

    pub(crate) fn owner_is(&self, slot: Slot, owner: u16) -> bool {
        let known = self.links.own(slot);
        known.owner == owner && known.flags & RESIDENT != 0
    }
}
