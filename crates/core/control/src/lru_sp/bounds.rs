//! The sizes of tenants: floors, ceilings, equal shares, and the size of the cache.

use nigh_policy::Room;

use super::LruSp;
use crate::config::Allocation;
use crate::local::Budget;
use crate::tenant::Share;
use crate::utility::Bounds;

impl LruSp {
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
        let has_shares = self.config.allocation.has_shares();
        self.plain = !has_shares && !bounded && self.keeping.is_empty() && self.swept;
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
        self.present = self.shares.iter().filter(|share| share.is_present()).count() as u32;
        self.settle_shares();
    }

    /// The tenants with blocks, and their bounds.
    pub(super) fn present_bounds(&self) -> Vec<(u16, Bounds)> {
        let present = (0..).zip(&self.shares).filter(|(_, share)| share.is_present());
        let bounds = |share: &Share| Bounds {
            floor: (share.floor_said > 0).then_some(share.floor),
            ceiling: (share.ceiling < u32::MAX).then_some(share.ceiling),
        };
        present.map(|(owner, share)| (owner, bounds(share))).collect()
    }

    pub(super) fn settle_shares(&mut self) {
        if self.utility.is_some() {
            let present = self.present_bounds();
            let capacity = self.room.capacity;
            self.utility.iter_mut().for_each(|utility| utility.settle(&present, capacity));
        }
    }

    /// The blocks of each tenant if all have as many, `owner` included.
    pub(super) fn equal_part(&self, owner: u16) -> u32 {
        let newcomer = u32::from(self.shares.get(owner as usize).is_none_or(|share| share.size == 0));
        (self.room.capacity / (self.present + newcomer).max(1)).max(1)
    }

    /// The most blocks that `owner` may have, if that is limited.
    pub(super) fn most(&self, owner: u16) -> Option<u32> {
        let share = self.shares.get(owner as usize);
        let ceiling = share.map_or(u32::MAX, |share| share.ceiling);
        match self.config.allocation {
            Allocation::Utility => {
                let share = self.utility.as_ref().and_then(|utility| utility.share(owner));
                Some(share.unwrap_or_else(|| self.equal_part(owner)).min(ceiling))
            }
            _ if ceiling < u32::MAX => Some(ceiling),
            Allocation::Static => Some(self.equal_part(owner)),
            Allocation::LruSp | Allocation::Global => None,
        }
    }

    /// The room for ghosts of policies of pools.
    pub(super) fn budget(&self) -> Budget {
        let Room { capacity, ghosts, .. } = self.room;
        Budget { ghosts: ghosts.saturating_sub(capacity), capacity }
    }

    /// `owner`, whose tenant has left, has no blocks any more.
    pub(crate) fn bury(&mut self, owner: u16) {
        self.leaving.retain(|&leaving| leaving != owner);
        self.utility.iter_mut().for_each(|utility| utility.forget(owner));
        let share = &mut self.shares[owner as usize];
        let (kept, levels) = (share.kept, share.levels.take());
        *share = Share { kept, ..Share::default() };
        if let (Some(managed), Some(levels)) = (&mut self.managed, levels) {
            levels.close(&mut managed.pools);
        }
        self.free.push(owner);
    }
}
