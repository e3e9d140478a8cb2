//! Changes of bounds, of policies and of the size of the cache, and tenants that leave.

use nigh_policy::{Room, Tenant};

use super::{LruSp, UNKNOWN};
use crate::directive::{Order, Refusal};
use crate::tenant::{Share, Statistics};

impl LruSp {
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
        self.begin(heir);
        self.see_present();
        self.collect();
        self.see_bounds();
    }

    /// The floor and the ceiling of `tenant`; a ceiling of 0 means no limit.
    pub fn bounds(&self, tenant: Tenant) -> (u32, u32) {
        let ceiling = |share: &Share| if share.ceiling == u32::MAX { 0 } else { share.ceiling };
        self.share(tenant).map_or((0, 0), |share| (share.floor_said, ceiling(share)))
    }

    /// Changes the floor of `tenant`, the least blocks that it keeps, and its ceiling, the most blocks that it may have
    /// in a full cache; a ceiling of 0 means no limit. Blocks above a new ceiling leave on the misses of any tenant.
    /// Takes time in proportion to the number of tenants.
    pub fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        let others: u64 = self.shares.iter().map(|share| u64::from(share.floor_said)).sum();
        let before = self.shares[owner as usize].floor_said;
        let floors = others - u64::from(before) + u64::from(floor);
        if (ceiling > 0 && floor > ceiling) || (floor > before && floors >= u64::from(self.room.capacity)) {
            return Err(Refusal::BadBounds);
        }
        if ceiling > 0 {
            // A tenant with a ceiling must be able to choose a block of its own.
            self.manage(owner);
        }
        let share = &mut self.shares[owner as usize];
        (share.floor_said, share.ceiling) = (floor, if ceiling > 0 { ceiling } else { u32::MAX });
        self.see_bounds();
        Ok(())
    }

    /// From now on `policy` is that of the cache, for tenants without one of their own; initially that is LRU, as in the paper.
    /// Blocks of present tenants move to it by [`step`](LruSp::step).
    pub fn set_policy(&mut self, policy: Order) -> Result<(), Refusal> {
        self.policy_slots_most = self.try_out(&policy, 0)?;
        self.policy = policy;
        let owners: Vec<u16> = self.owners.iter().copied().filter(|&owner| owner != UNKNOWN).collect();
        owners.into_iter().for_each(|owner| self.want_policy(owner));
        Ok(())
    }

    /// From now on `policy` is that of `tenant`; `None` for the policy of the cache. Its blocks move to it by [`step`](LruSp::step).
    pub fn set_policy_of(&mut self, tenant: Tenant, policy: Option<Order>) -> Result<(), Refusal> {
        let owner = self.known_tenant(tenant)?;
        policy.iter().try_for_each(|policy| self.try_out(policy, 0).map(drop))?;
        self.shares[owner as usize].policy = policy;
        self.want_policy(owner);
        Ok(())
    }

    /// The cache grows to `slots` slots: policies that are created from now on can number as many.
    pub fn expect_slots(&mut self, slots: u32) {
        self.largest = self.largest.with(0, slots);
    }

    /// From now on the host has `room`, and until the next [`resize`](nigh_policy::Policy::resize) at least as many ghosts as before: for a change
    /// of policy, during which both have some.
    pub fn succeed_in(&mut self, room: Room) {
        self.fit(Room { ghosts: room.ghosts.max(self.room.ghosts), ..room });
    }

    /// From now on the host has `room`.
    pub(crate) fn fit(&mut self, room: Room) {
        if room.slots > self.room.slots {
            let lists = std::iter::once(&mut self.lru).chain(&mut self.kept_lists);
            self.links.grow(room.slots, lists);
        }
        self.room = room;
        self.largest = self.largest.with(room.capacity, room.slots);
        let budget = self.budget();
        if let Some(managed) = &mut self.managed {
            managed.places.resize(room.slots as usize, [0; 2]);
            managed.last.resize(room.slots as usize, 0);
            managed.pools.resize(room.slots, budget);
        }
        let most = room.ghosts.min(room.capacity);
        while let Some(over) = self.managed.as_mut().and_then(|managed| managed.placeholders.resize(room.slots, most)) {
            self.delete_placeholder(over);
            self.forget_unknown(over);
        }
        self.see_bounds();
        self.settle_shares();
        self.collect();
    }
}
