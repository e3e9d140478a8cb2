//! Tenants that arrive and leave. The number of a tenant can be reused at once: its blocks stay with its former owner
//! number until a reference, a decision or a step reaches each of them.

use nigh_policy::{Slot, Tenant};

use super::{Known, LruSp, NOBODY, RESIDENT, TENANTS_MOST, UNKNOWN};
use crate::config::Allocation;
use crate::tenant::{Share, Statistics};

impl LruSp {
    /// The owner number of `tenant`, which is known from now on.
    #[inline(always)]
    pub(crate) fn heard(&mut self, tenant: Tenant) -> u16 {
        match self.owner(tenant) {
            UNKNOWN => self.admit(tenant.0),
            owner => owner,
        }
    }

    #[cold]
    #[inline(never)]
    fn admit(&mut self, tenant: u32) -> u16 {
        assert!(tenant < self.config.limits.tenants.min(TENANTS_MOST), "tenant {tenant} is beyond the limit");
        if self.owners.len() <= tenant as usize {
            self.owners.resize(tenant as usize + 1, UNKNOWN);
        }
        let owner = self.open_share(Share::default());
        self.owners[tenant as usize] = owner;
        if self.config.allocation == Allocation::Static {
            self.manage(owner);
        }
        owner
    }

    fn open_share(&mut self, share: Share) -> u16 {
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

    /// Whether the tenant of `owner` has left.
    pub(super) fn is_gone(&self, owner: u16) -> bool {
        self.shares.get(owner as usize).is_some_and(|share| share.gone)
    }

    /// `slot`, whose tenant has left, has no owner from now on.
    pub(super) fn abandon(&mut self, slot: Slot) {
        self.disown(slot);
        self.links.own_mut(slot).owner = NOBODY;
    }

    /// `tenant` has left: its blocks have no owner, and its hints are forgotten. Its number may be reused.
    pub fn close(&mut self, tenant: Tenant) {
        let owner = self.owner(tenant);
        let Some(share) = self.shares.get_mut(owner as usize) else { return };
        let Statistics { prefetched, used, wasted, .. } = share.statistics;
        let ahead = prefetched - used - wasted;
        let outstanding = std::mem::take(&mut share.outstanding);
        if share.prediction.take().is_some() {
            share.lists += 1;
        }
        (share.floor_said, share.floor, share.ceiling) = (0, 0, u32::MAX);
        share.statistics = Statistics { prefetched: ahead, ..Statistics::default() };
        share.gone = true;
        self.leaving.push(owner);
        self.tasks.temporary.retain(|temporary| temporary.owner != owner);
        if self.shares[owner as usize].size == 0 {
            self.bury(owner);
        } else {
            self.want_sweep();
        }
        let heir = self.open_share(Share { outstanding, ..Share::default() });
        self.owners[tenant.0 as usize] = heir;
        if self.config.allocation == Allocation::Static {
            self.manage(heir);
        }
        self.see_present();
        self.collect();
        self.see_bounds();
    }

    /// `owner`, whose tenant has left, has no blocks any more.
    pub(super) fn bury(&mut self, owner: u16) {
        self.leaving.retain(|&leaving| leaving != owner);
        let share = &mut self.shares[owner as usize];
        let (kept, levels) = (share.kept, share.levels.take());
        *share = Share { kept, ..Share::default() };
        if let (Some(managed), Some(levels)) = (&mut self.managed, levels) {
            levels.close(&mut managed.pools);
        }
        self.free.push(owner);
    }

    pub(crate) fn owner_is(&self, slot: Slot, owner: u16) -> bool {
        let known = self.links.own(slot);
        known.owner == owner && known.flags & RESIDENT != 0
    }
}
