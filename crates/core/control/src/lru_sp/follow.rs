//! The place of a tenant's blocks while its references advance through its list: in a pool, or in the order of the list
//! (2.1.3).
//!
//! Deviations from 4.3 under [`Foresight::Prototype`], where the text is silent:
//! * With several devices, each has a nextHole. "After nextHole" means after all of them.
//! * nextHole moves back if a block before it leaves the cache after all, as when another tenant needs the room. The blocks
//!   that it passed stay out of the pools until they are referenced or occur later in the list.

use nigh_policy::{Access, Block, Kind, Slot};

use super::{AHEAD, CHARGED, FLUSHED, LruSp, MANAGED, NOBODY, REMEMBERED, TEMPORARY};
use crate::access_list::NEVER;
use crate::config::Foresight;
use crate::pools::Enter;
use crate::prefetch::{Match, Prefetch};

/// For a tenant with wrong lists, the additional prefetches allowed after each correctly predicted access: one for that
/// access, and one to get further ahead.
const CREDIT: u32 = 2;

/// Blocks of a finished list that move to their pools in the call in which it ends.
const DROP_FIRST: u32 = 64;

impl LruSp {
    /// Puts `slot`, which `tenant` owns since this reference, in its place, and follows the reference.
    pub(super) fn adopt(&mut self, slot: Slot, tenant: u16, access: &Access, hit: bool) {
        let share = &self.shares[tenant as usize];
        if share.levels.is_none() {
            self.forget_in_pools(slot);
            return;
        }
        let (file, demand) = (access.block.volume, access.kind != Kind::Prefetch);
        if share.prediction.is_none() || self.config.foresight == Foresight::Fetch {
            self.enter_pool(slot, tenant, file, access, Enter::Referenced);
            if demand {
                self.follow(tenant, access, hit);
            }
            self.set_position(slot, tenant, self.next_in_list(tenant, access.block));
            return;
        }
        if demand {
            self.follow(tenant, access, hit);
        }
        let position = self.next_in_list(tenant, access.block);
        if self.is_decided_by_list(tenant, position) {
            self.forget_in_pools(slot);
            self.note_reference(slot, access.tick);
            self.place(slot, tenant, position, access.block);
        } else {
            self.enter_pool(slot, tenant, file, access, Enter::Referenced);
            self.set_position(slot, tenant, position);
        }
    }

    /// Whether a block of `owner` that occurs next at `position` of its list is in no pool, because the list alone
    /// decides about it.
    fn is_decided_by_list(&self, owner: u16, position: u32) -> bool {
        position != NEVER
            && match self.config.foresight {
                Foresight::Full => true,
                Foresight::Fetch => false,
                Foresight::Prototype => {
                    let prediction = &self.shares[owner as usize].prediction;
                    prediction.as_ref().is_some_and(|prefetch| position <= prefetch.furthest_hole())
                }
            }
    }

    /// 4.3: nextHole of `owner` has moved from `before` on. The blocks that it passed are no longer among those that
    /// the policies choose from.
    pub(crate) fn pass_hole(&mut self, owner: u16, before: u32) {
        if self.config.foresight != Foresight::Prototype {
            return;
        }
        let share = &self.shares[owner as usize];
        let Some(prediction) = &share.prediction else { return };
        let (list, hole) = (share.lists, prediction.furthest_hole());
        if before < hole {
            let passed: Vec<Slot> = share.coming.range((list, before)..=(list, hole)).map(|(_, &slot)| slot).collect();
            passed.into_iter().for_each(|slot| self.leave_pool(slot));
            self.collect();
        }
    }

    /// 4.3: `slot` with `block` occurs next at a later position than before, or in another list. If that is beyond
    /// nextHole, the policies choose from it again.
    fn return_to_pool(&mut self, slot: Slot, owner: u16, position: u32, block: Block) {
        let is_pooled = self.managed.as_ref().is_none_or(|managed| managed.pools.pool(slot).is_some());
        if self.config.foresight == Foresight::Prototype && !is_pooled && !self.is_decided_by_list(owner, position) {
            self.enter_pool(slot, owner, block.volume, &self.moving(block), Enter::Later);
        }
    }

    /// From now on no policy knows `slot` as a ghost.
    fn forget_in_pools(&mut self, slot: Slot) {
        if let Some(managed) = &mut self.managed {
            managed.pools.forget(slot);
            self.links.own_mut(slot).flags &= !REMEMBERED;
        }
    }

    /// Puts `slot` with `block` at `position` in the order of its owner's list. It is in its pool or nowhere.
    pub(super) fn place(&mut self, slot: Slot, owner: u16, position: u32, block: Block) {
        if self.is_decided_by_list(owner, position) {
            self.leave_pool(slot);
        }
        self.set_position(slot, owner, position);
        self.links.own_mut(slot).flags |= MANAGED;
        self.return_to_pool(slot, owner, position, block);
    }

    /// The list of `owner` was extended: `slot` with `block` gets its place in it, if it belongs to `owner` and has
    /// none.
    pub(crate) fn foresee(&mut self, slot: Slot, owner: u16, block: Block) {
        if !self.owner_is(slot, owner) || self.position(slot) != NEVER {
            return;
        }
        let (flags, position) = (self.links.own(slot).flags, self.next_in_list(owner, block));
        // A slot that no sweep has reached gets its place from the sweep.
        if flags & MANAGED != 0 && position != NEVER {
            self.place(slot, owner, position, block);
        }
    }

    /// Puts `slot`, which was referenced, in its place.
    pub(super) fn arrange(&mut self, slot: Slot, owner: u16, access: &Access) {
        let position = self.next_in_list(owner, access.block);
        let managed = self.managed();
        let pool = managed.pools.pool(slot);
        self.note_reference(slot, access.tick);
        self.set_position(slot, owner, position);
        if self.is_decided_by_list(owner, position) {
            self.place(slot, owner, position, access.block);
            return;
        }
        let levels = self.shares[owner as usize].levels.as_ref().expect("the owner manages itself");
        let own = Some(levels.pool_of_file(access.block.volume));
        if pool == own && self.links.own(slot).flags & TEMPORARY == 0 {
            self.managed().pools.hit(slot, access);
        } else {
            self.leave_pool(slot);
            self.enter_pool(slot, owner, access.block.volume, access, Enter::Referenced);
        }
    }

    /// Matches a reference of `tenant` against its list (2.1.3).
    pub(super) fn follow(&mut self, tenant: u16, access: &Access, hit: bool) {
        let share = &mut self.shares[tenant as usize];
        let Some(prediction) = &mut share.prediction else { return };
        let matched = prediction.reference(access.block, hit);
        match matched {
            Match::Advanced { skipped } => {
                share.statistics.predicted += 1;
                share.credit = share.credit.map(|credit| credit.saturating_add(CREDIT));
                if !hit {
                    share.allowance.missed(self.config.terms());
                }
                share.statistics.skipped += u64::from(skipped.is_some());
                // Skipped accesses count as done.
                if let Some(position) = skipped {
                    let block = prediction.list().block(position);
                    if let Some(slot) = share.coming_at(position) {
                        self.pass_over(slot, tenant, block);
                    }
                }
            }
            Match::Again => share.statistics.predicted += 1,
            Match::Unpredicted => share.statistics.unpredicted += 1,
        }
        if let Some(prediction) = &self.shares[tenant as usize].prediction
            && prediction.is_over()
        {
            if prediction.is_wrong() {
                let share = &mut self.shares[tenant as usize];
                share.statistics.lists_dropped += 1;
                share.credit = Some(0);
            }
            self.set_list(tenant, None);
        }
    }

    /// The access to `slot`'s `block` that the list predicted did not happen.
    fn pass_over(&mut self, slot: Slot, tenant: u16, block: Block) {
        let next = self.next_in_list(tenant, block);
        if next != NEVER {
            self.place(slot, tenant, next, block);
            return;
        }
        self.set_position(slot, tenant, NEVER);
        if self.links.own(slot).flags & AHEAD != 0 {
            self.flush(slot);
            return;
        }
        // It will not be accessed again, and is replaced first.
        self.leave_pool(slot);
        let access = self.moving(block);
        self.enter_pool(slot, tenant, block.volume, &access, Enter::First);
    }

    /// A false prefetch moves to the end of the LRU list, and its owner cannot overrule that.
    fn flush(&mut self, slot: Slot) {
        let is_charged = self.links.own(slot).flags & CHARGED != 0;
        self.disown(slot);
        self.unlink(slot);
        self.lru.push_back(&mut self.links, slot);
        let known = self.links.own_mut(slot);
        known.owner = NOBODY;
        known.flags |= if is_charged { FLUSHED } else { 0 };
    }

    /// From now on `next` is the list of `tenant`. The blocks of the previous one get their places in it, or move to
    /// their pools, and prefetches that it does not predict are flushed: a few of them now, the others in steps.
    pub(crate) fn set_list(&mut self, tenant: u16, next: Option<Box<Prefetch>>) {
        let share = &mut self.shares[tenant as usize];
        let Some(prediction) = std::mem::replace(&mut share.prediction, next) else { return };
        let list = share.lists;
        share.lists += 1;
        for _ in 0..DROP_FIRST {
            let coming = self.shares[tenant as usize].coming.range(..(list + 1, 0)).next_back();
            let Some((&(of, position), &slot)) = coming else { return };
            if of != list {
                break;
            }
            self.leave_over(slot, tenant, prediction.list().block(position));
        }
        if !self.tasks.left_over.contains(&tenant) {
            self.tasks.left_over.push(tenant);
        }
    }

    /// The list that contained `slot` with `block` is over.
    pub(super) fn leave_over(&mut self, slot: Slot, owner: u16, block: Block) {
        let position = self.next_in_list(owner, block);
        if position != NEVER {
            self.place(slot, owner, position, block);
            return;
        }
        self.set_position(slot, owner, NEVER);
        if self.links.own(slot).flags & AHEAD != 0 {
            self.flush(slot);
        } else if self.managed().pools.pool(slot).is_none() {
            self.enter_pool(slot, owner, block.volume, &self.moving(block), Enter::Later);
        }
    }
}
