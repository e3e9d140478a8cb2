//! The sizes of tenants: floors, ceilings, equal shares, and the size of the cache.

use nigh_policy::{Room, Tenant};

use super::LruSp;
use crate::config::Allocation;
use crate::directive::Refusal;
use crate::local::Budget;
use crate::tenant::Share;

impl LruSp {
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

    /// Updates whether any floor, ceiling or static share must be observed, and the effective floors.
    pub(super) fn see_bounds(&mut self) {
        // A cache that is too small for all floors keeps a part of each, and a block for others.
        let said: u64 = self.shares.iter().map(|share| u64::from(share.floor_said)).sum();
        let most = u64::from(self.room.capacity.saturating_sub(1));
        let mut bounded = false;
        self.above.clear();
        for (owner, share) in (0..).zip(&mut self.shares) {
            let floor = u64::from(share.floor_said);
            share.floor = if said <= most { share.floor_said } else { (floor * most / said) as u32 };
            bounded |= share.floor > 0 || share.ceiling < u32::MAX;
            if share.size > share.ceiling {
                self.above.push(owner);
            }
        }
        let is_static = self.config.allocation == Allocation::Static;
        self.plain = !is_static && !bounded && self.keeping.is_empty() && self.swept;
    }

    /// `owner` has lost its last block or got its first; or it has reached its ceiling from above, or exceeded it.
    #[cold]
    #[inline(never)]
    pub(super) fn see_size(&mut self, owner: u16) {
        self.see_present();
        let Share { size, ceiling, gone, .. } = self.shares[owner as usize];
        self.above.retain(|&above| above != owner);
        if size > ceiling {
            self.above.push(owner);
        }
        if gone && size == 0 {
            self.bury(owner);
        }
    }

    pub(super) fn see_present(&mut self) {
        self.present = self.shares.iter().filter(|share| share.size > 0 && !share.gone).count() as u32;
    }

    /// The most blocks that `owner` may have, if that is limited.
    pub(super) fn most(&self, owner: u16) -> Option<u32> {
        let share = self.shares.get(owner as usize);
        let ceiling = share.map_or(u32::MAX, |share| share.ceiling);
        match self.config.allocation {
            _ if ceiling < u32::MAX => Some(ceiling),
            Allocation::Static => {
                let newcomer = u32::from(share.is_none_or(|share| share.size == 0));
                Some((self.room.capacity / (self.present + newcomer).max(1)).max(1))
            }
            Allocation::LruSp | Allocation::Global => None,
        }
    }

    /// The room for ghosts of policies of pools.
    pub(super) fn budget(&self) -> Budget {
        let Room { capacity, ghosts, .. } = self.room;
        Budget { ghosts: ghosts.saturating_sub(capacity), capacity }
    }

    /// From now on the host has `room`.
    pub(super) fn fit(&mut self, room: Room) {
        if room.slots > self.room.slots {
            let lists = std::iter::once(&mut self.lru).chain(&mut self.kept_lists);
            self.links.grow(room.slots, lists);
        }
        self.room = room;
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
        self.collect();
    }
}
