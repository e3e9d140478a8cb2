//! Recounts every invariant of a [`LruSp`].

use nigh_policy::Slot;

use super::{
    AHEAD, CHARGED, FLUSHED, KEPT, Known, LruSp, MANAGED, NOBODY, PLACEHOLDER, POINTED, REMEMBERED, RESIDENT, TEMPORARY,
};
use crate::access_list::NEVER;
use crate::config::Foresight;
use crate::tenant::{Share, Statistics};

impl LruSp {
    /// # Panics
    /// On a broken invariant.
    pub(super) fn recount(&self) {
        self.utility.iter().for_each(|utility| utility.check());
        let mut listed = self.lru.checked(&self.links);
        let mut kept_count = 0;
        for (tenant, share) in self.shares.iter().enumerate() {
            let kept = share.kept.map_or_else(Vec::new, |list| self.kept_lists[list as usize].checked(&self.links));
            assert_eq!(!kept.is_empty(), self.keeping.contains(&(tenant as u16)), "tenant {tenant} keeps blocks");
            for slot in &kept {
                let Known { owner, flags, .. } = *self.links.own(*slot);
                assert!(owner == tenant as u16 && flags & KEPT != 0, "{slot:?} is not kept for tenant {tenant}");
            }
            kept_count += kept.len();
            listed.extend(kept);
        }
        assert_eq!(self.kept as usize, kept_count, "the number of kept blocks is wrong");
        let count = |wanted: u16| self.links.owns().filter(|known| known.flags & wanted != 0).count();
        assert_eq!(listed.len(), count(RESIDENT), "a resident block is in no list");
        assert_eq!(kept_count, count(KEPT), "a kept block is in no list");
        assert!(!self.plain || self.keeping.is_empty() && self.swept, "there is more to be minded");
        let swept = !self.tasks.sweep.underway && !self.tasks.sweep.wanted;
        assert_eq!(self.swept, swept, "whether there is something to sweep");

        for (tenant, share) in self.shares.iter().enumerate() {
            self.recount_tenant(tenant as u16, share, &listed);
        }
        let is_above = |share: &Share| share.size > share.ceiling;
        for (tenant, share) in self.shares.iter().enumerate() {
            assert_eq!(is_above(share), self.above.contains(&(tenant as u16)), "tenant {tenant} is above its ceiling");
        }
        let present = self.shares.iter().filter(|share| share.size > 0 && !share.gone).count();
        assert_eq!(self.present as usize, present, "the number of tenants with blocks is wrong");

        let Some(managed) = &self.managed else {
            assert_eq!(count(!RESIDENT & !AHEAD & !KEPT), 0, "nobody manages itself");
            return;
        };
        managed.pools.check();
        let pairs = managed.placeholders.checked();
        assert_eq!(pairs.len(), count(PLACEHOLDER), "a placeholder is not known as one");
        for &(ghost, target) in &pairs {
            assert_eq!(self.links.own(ghost).flags & (RESIDENT | PLACEHOLDER), PLACEHOLDER, "{ghost:?} is no ghost");
            let flags = self.links.own(target).flags;
            assert_eq!(flags & (RESIDENT | POINTED), RESIDENT | POINTED, "{target:?} is not resident");
        }
        for slot in (0..self.room.slots).map(Slot) {
            let flags = self.links.own(slot).flags;
            let pointed = pairs.iter().any(|&(_, target)| target == slot);
            assert_eq!(flags & POINTED != 0, pointed, "{slot:?} is pointed to, or not");
            let pooled = managed.pools.pool(slot).is_some();
            assert_eq!(pooled && flags & RESIDENT == 0, flags & REMEMBERED != 0, "{slot:?} is remembered by a policy");
            assert!(flags & RESIDENT == 0 || !pooled || flags & MANAGED != 0, "{slot:?} is in a pool of nobody");
            let (placed, comes) = (flags & MANAGED != 0, managed.places[slot.index()][1] > 0);
            assert!(placed || !comes, "{slot:?} is in a list of nobody");
            assert!(flags & FLUSHED == 0 || self.links.own(slot).owner == NOBODY, "{slot:?} is flushed and owned");
            assert!(placed || flags & TEMPORARY == 0, "{slot:?} is in no pool for a while");
            if placed {
                assert!(pooled || comes, "{slot:?} is in no pool and no list");
                let may_be_both = match self.config.foresight {
                    Foresight::Full => false,
                    Foresight::Fetch => true,
                    Foresight::Prototype => self.is_beyond_hole(slot),
                };
                assert!(may_be_both || !(pooled && comes), "{slot:?} is in both");
            }
        }
        let room = &self.room;
        let ghosts = count(PLACEHOLDER | REMEMBERED);
        assert!(ghosts <= room.ghosts as usize, "{ghosts} ghosts, there is room for {}", room.ghosts);
    }

    /// Whether `slot` occurs after nextHole of its owner's list, or in a list that is over.
    fn is_beyond_hole(&self, slot: Slot) -> bool {
        let prediction = &self.shares[self.links.own(slot).owner as usize].prediction;
        prediction.as_ref().is_none_or(|prefetch| self.position(slot) > prefetch.furthest_hole())
    }

    fn recount_tenant(&self, tenant: u16, share: &Share, listed: &[Slot]) {
        let own: Vec<Slot> = listed.iter().copied().filter(|slot| self.links.own(*slot).owner == tenant).collect();
        assert_eq!(own.len(), share.size as usize, "the size of tenant {tenant} is wrong");
        for slot in own.iter().filter(|_| self.swept) {
            let flags = self.links.own(*slot).flags;
            assert_eq!(flags & MANAGED != 0, share.levels.is_some(), "{slot:?} of tenant {tenant} is managed, or not");
        }
        assert!(!share.gone || share.size > 0 && !self.swept, "a tenant that is gone owns blocks after all");
        assert_eq!(share.gone, self.leaving.contains(&tenant), "tenant {tenant} is gone, or not");
        let ahead = own.iter().filter(|slot| self.links.own(**slot).flags & AHEAD != 0).count() as u64;
        let Statistics { prefetched, used, wasted, .. } = share.statistics;
        assert_eq!(
            prefetched,
            used + wasted + ahead,
            "each block that tenant {tenant} prefetched is used, wasted or there"
        );
        let charged = own.iter().filter(|slot| self.links.own(**slot).flags & CHARGED != 0);
        assert_eq!(
            charged.clone().count(),
            share.allowance.ahead() as usize,
            "the allowance of tenant {tenant} is wrong"
        );
        for slot in charged {
            assert!(self.links.own(*slot).flags & AHEAD != 0, "{slot:?} of tenant {tenant} was used and is charged");
        }
        for (&(list, position), slot) in &share.coming {
            assert!(own.contains(slot), "{slot:?} is not of tenant {tenant}");
            let is_over = list != share.lists || share.prediction.is_none();
            assert!(!is_over || share.gone || self.tasks.left_over.contains(&tenant), "{slot:?} is left over for ever");
            assert_eq!(
                self.position(*slot),
                if is_over { NEVER } else { position },
                "{slot:?} comes at another position"
            );
            let ahead = share.prediction.as_ref().map_or(0, |prefetch| prefetch.ahead());
            assert!(is_over || position >= ahead, "the access to {slot:?} is over");
        }
        let comes = own.iter().filter(|&&slot| self.is_placed(slot)).count();
        assert_eq!(comes, share.coming.len(), "a block that comes is not in the order");
    }
}
