//! Where a tenant's blocks belong, as its references go through its list: in a pool, or in the order of the list (2.1.3).

use nigh_policy::{Access, Block, Kind, Slot};

use super::{AHEAD, Control, Enter, NOBODY, REMEMBERED, TEMPORARY};
use crate::access_list::NEVER;
use crate::config::Foresight;
use crate::prefetch::Match;

/// How many blocks more a tenant whose lists were wrong may have fetched ahead for an access that came as predicted: that
/// one's, and one further ahead.
const CREDIT: u32 = 2;

impl Control {
    /// Gives `slot`, which `tenant` owns since this reference, its place, and follows the reference.
    pub(super) fn settle(&mut self, slot: Slot, tenant: u16, access: &Access, hit: bool) {
        let levels = self.shares[tenant as usize].levels.as_ref();
        let pool = levels.map(|levels| levels.pool_of_file(access.block.volume));
        if let Some(managed) = &mut self.managed {
            managed.pools.incoming(pool, slot, access);
            self.links.own_mut(slot).flags &= !REMEMBERED;
        }
        if pool.is_none() {
            return;
        }
        self.enter_pool(slot, tenant, access.block.volume, access, Enter::Referenced);
        if access.kind != Kind::Prefetch {
            self.follow(tenant, access, hit);
        }
        self.place(slot, tenant, access.block);
    }

    /// Puts `slot`, which is in its pool, where the list of its owner says.
    pub(crate) fn place(&mut self, slot: Slot, tenant: u16, block: Block) {
        let prediction = self.shares[tenant as usize].prediction.as_ref();
        let position = prediction.map_or(NEVER, |prediction| prediction.prefetch.next(block));
        if position == NEVER {
            return;
        }
        if self.config.foresight == Foresight::Full {
            self.leave_pool(slot);
        }
        self.set_position(slot, tenant, position);
    }

    /// Gives `slot`, which was referenced and is managed already, its place.
    pub(super) fn arrange(&mut self, slot: Slot, owner: u16, access: &Access) {
        let share = &self.shares[owner as usize];
        let position = share.prediction.as_ref().map_or(NEVER, |list| list.prefetch.next(access.block));
        let managed = self.managed();
        managed.last[slot.index()] = access.tick as u32;
        let in_pool = managed.pools.pool(slot).is_some();
        if position != self.position(slot) {
            self.set_position(slot, owner, position);
        }
        if position != NEVER && self.config.foresight == Foresight::Full {
            if in_pool {
                self.leave_pool(slot);
            }
        } else if in_pool && self.links.own(slot).flags & TEMPORARY == 0 {
            self.managed().pools.hit(slot, access);
        } else {
            if in_pool {
                self.leave_pool(slot);
            }
            self.enter_pool(slot, owner, access.block.volume, access, Enter::Referenced);
        }
    }

    /// Matches a reference of `tenant` against its list (2.1.3).
    pub(super) fn follow(&mut self, tenant: u16, access: &Access, hit: bool) {
        let share = &mut self.shares[tenant as usize];
        let Some(prediction) = &mut share.prediction else { return };
        let matched = prediction.prefetch.reference(access.block, hit);
        match matched {
            Match::Advanced { skipped } => {
                share.statistics.predicted += 1;
                share.credit = share.credit.map(|credit| credit.saturating_add(CREDIT));
                share.statistics.skipped += u64::from(skipped.is_some());
                // What was skipped is taken to have happened.
                let slot = skipped.and_then(|position| prediction.coming.get(&position).copied());
                if let (Some(slot), Some(position)) = (slot, skipped) {
                    let block = prediction.prefetch.list().block(position);
                    self.pass_over(slot, tenant, block);
                }
            }
            Match::Again => share.statistics.predicted += 1,
            Match::Unpredicted => share.statistics.unpredicted += 1,
        }
        if let Some(prediction) = &self.shares[tenant as usize].prediction
            && prediction.prefetch.is_over()
        {
            if prediction.prefetch.is_wrong() {
                let share = &mut self.shares[tenant as usize];
                share.statistics.lists_dropped += 1;
                share.credit = Some(0);
            }
            self.drop_list(tenant);
        }
    }

    /// The access to `slot`'s `block` that the list predicted did not happen.
    fn pass_over(&mut self, slot: Slot, tenant: u16, block: Block) {
        let next = self.shares[tenant as usize].prediction.as_ref().map_or(NEVER, |list| list.prefetch.next(block));
        self.set_position(slot, tenant, next);
        if next != NEVER {
            return;
        }
        if self.links.own(slot).flags & AHEAD != 0 {
            self.flush(slot);
            return;
        }
        // It will not be accessed again, and is replaced first.
        self.leave_pool(slot);
        let access = self.moving(block, tenant);
        self.enter_pool(slot, tenant, block.volume, &access, Enter::First);
    }

    /// A false prefetch goes to the end of the LRU list, and its owner has nothing to say about it.
    fn flush(&mut self, slot: Slot) {
        self.disown(slot);
        self.unlink(slot);
        self.lru.push_back(&mut self.links, slot);
        self.links.own_mut(slot).owner = NOBODY;
    }

    /// Forgets the list of `tenant`. Its blocks go to their pools, what was prefetched in vain is flushed.
    pub(crate) fn drop_list(&mut self, tenant: u16) {
        let Some(prediction) = self.shares[tenant as usize].prediction.take() else { return };
        for (&position, &slot) in prediction.coming.iter().rev() {
            self.set_position(slot, tenant, NEVER);
            if self.links.own(slot).flags & AHEAD != 0 {
                self.flush(slot);
                continue;
            }
            if self.config.foresight == Foresight::Full {
                let block = prediction.prefetch.list().block(position);
                let access = self.moving(block, tenant);
                self.enter_pool(slot, tenant, block.volume, &access, Enter::Later);
            }
        }
    }
}
