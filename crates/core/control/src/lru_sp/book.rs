//! Bookkeeping of blocks: their owners, the pools and lists they are in, and the placeholders that point to them.

use nigh_policy::{Access, Block, Slot};

use super::{AHEAD, CHARGED, KEPT, Known, LruSp, MANAGED, Managed, PLACEHOLDER, POINTED, REMEMBERED, TEMPORARY};
use crate::access_list::NEVER;
use crate::levels::Levels;
use crate::placeholders::Placeholders;
use crate::pools::{Enter, Pools};
use crate::tenant::{Adoption, Share};

impl LruSp {
    pub(crate) fn managed(&mut self) -> &mut Managed {
        let (room, budget, block_bytes) = (self.room, self.budget(), self.block_bytes);
        self.managed.get_or_insert_with(|| {
            Box::new(Managed {
                pools: Pools::new(room.slots, block_bytes, budget),
                placeholders: Placeholders::new(room.slots, room.ghosts.min(room.capacity)),
                places: vec![[0; 2]; room.slots as usize],
                last: vec![0; room.slots as usize],
            })
        })
    }

    /// Gives `owner` priority levels. A sweep will put its present blocks into priority 0.
    pub(crate) fn manage(&mut self, owner: u16) {
        if self.shares[owner as usize].levels.is_some() {
            return;
        }
        let levels = Levels::new(&mut self.managed().pools);
        let tick = self.tick;
        let share = &mut self.shares[owner as usize];
        share.levels = Some(Box::new(levels));
        share.since = tick;
        if share.size > 0 {
            share.adoption = Adoption::Wanted;
            self.want_sweep();
        }
    }

    /// `tenant` has one more block, `slot`.
    #[inline(always)]
    pub(super) fn own(&mut self, slot: Slot, owner: u16) {
        self.links.own_mut(slot).owner = owner;
        let share = &mut self.shares[owner as usize];
        share.size += 1;
        if share.size == 1 || share.size - 1 == share.ceiling {
            self.see_size(owner);
        }
    }

    /// `owner` has one block less, which had `flags`.
    #[inline(always)]
    pub(super) fn shrink(&mut self, owner: u16, flags: u16) {
        if let Some(share) = self.shares.get_mut(owner as usize) {
            share.size -= 1;
            share.statistics.wasted += u64::from(flags & AHEAD != 0);
            if flags & CHARGED != 0 {
                share.allowance.unused();
            }
            if share.size == 0 || share.size == share.ceiling {
                self.see_size(owner);
            }
        }
    }

    /// Takes `slot` from its owner: updates pools, list and size.
    pub(super) fn disown(&mut self, slot: Slot) {
        let Known { owner, flags, .. } = *self.links.own(slot);
        if flags & MANAGED != 0 {
            self.leave_pool(slot);
            self.leave_list(slot, owner);
            self.links.own_mut(slot).flags &= !MANAGED;
        }
        self.links.own_mut(slot).flags &= !(AHEAD | CHARGED);
        self.shrink(owner, flags);
    }

    /// Takes `slot` out of the LRU list, or out of the kept blocks of its owner.
    pub(super) fn unlink(&mut self, slot: Slot) {
        self.sweep_beyond(slot);
        let Known { owner, flags, .. } = *self.links.own(slot);
        if flags & KEPT == 0 {
            self.lru.unlink(&mut self.links, slot);
            return;
        }
        self.links.own_mut(slot).flags &= !KEPT;
        self.kept -= 1;
        let list = self.kept_list(owner);
        let kept = &mut self.kept_lists[list];
        kept.unlink(&mut self.links, slot);
        if kept.is_empty() {
            self.keeping.retain(|&keeping| keeping != owner);
            self.see_bounds();
        }
    }

    /// Puts `slot` into the pool of its owner for `file`.
    pub(super) fn enter_pool(&mut self, slot: Slot, owner: u16, file: u32, access: &Access, how: Enter) {
        let (Some(managed), Some(levels)) = (&mut self.managed, &self.shares[owner as usize].levels) else { return };
        if how == Enter::Referenced {
            managed.last[slot.index()] = access.tick as u32;
        }
        managed.pools.insert(levels.pool_of_file(file), slot, access, how);
        let flags = &mut self.links.own_mut(slot).flags;
        *flags = *flags & !REMEMBERED | MANAGED;
    }

    /// Records that `slot` was referenced at `tick`.
    pub(super) fn note_reference(&mut self, slot: Slot, tick: u64) {
        if let Some(managed) = &mut self.managed {
            managed.last[slot.index()] = tick as u32;
        }
    }

    /// The tick of the last reference to `slot`, which is managed.
    pub(super) fn last_reference(&self, slot: Slot) -> u64 {
        let last = self.managed.as_ref().map_or(0, |managed| managed.last[slot.index()]);
        self.tick.wrapping_sub(u64::from((self.tick as u32).wrapping_sub(last)))
    }

    /// Takes `slot` out of its pool, if it is in one.
    pub(crate) fn leave_pool(&mut self, slot: Slot) {
        let Some(managed) = self.managed.as_mut().filter(|_| self.links.own(slot).flags & MANAGED != 0) else {
            return;
        };
        if let Some(pool) = managed.pools.pool(slot) {
            managed.pools.remove(slot);
            self.has_left(slot, pool);
        }
    }

    /// `slot` left `pool`. If that was the last block of a level that nothing else needs, the level is closed.
    pub(super) fn has_left(&mut self, slot: Slot, pool: u32) {
        let Known { owner, flags, .. } = self.links.own_mut(slot);
        *flags &= !TEMPORARY;
        if let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[*owner as usize].levels)
            && managed.pools.len(pool) == 0
        {
            levels.tidy(managed.pools.priority(pool), &mut managed.pools);
        }
    }

    /// Moves `slot` to the pool of a temporary priority, unless there are too many levels.
    pub(super) fn set_temporary(&mut self, slot: Slot, owner: u16, priority: i32, access: &Access) {
        let limits = self.config.limits;
        // The level may have been closed with its last block.
        self.leave_pool(slot);
        let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[owner as usize].levels) else {
            return;
        };
        let (pool, flags) = match levels.open(priority, &limits, &mut managed.pools) {
            Ok(pool) => (pool, TEMPORARY | MANAGED),
            Err(_) => (levels.pool_of_file(access.block.volume), MANAGED),
        };
        managed.pools.insert(pool, slot, access, Enter::Later);
        let known = self.links.own_mut(slot);
        known.flags = known.flags & !REMEMBERED | flags;
    }

    /// Whether `slot` was prefetched for `owner` and not referenced by it since.
    pub(crate) fn is_ahead(&self, slot: Slot, owner: u16) -> bool {
        let known = self.links.own(slot);
        known.owner == owner && known.flags & AHEAD != 0
    }

    /// The next position of `slot` in its owner's current list.
    pub(crate) fn position(&self, slot: Slot) -> u32 {
        let share = self.shares.get(self.links.own(slot).owner as usize);
        let list = share.filter(|share| share.prediction.is_some()).map(|share| share.lists);
        self.managed
            .as_ref()
            .map(|managed| managed.places[slot.index()])
            .filter(|&[of, _]| Some(of) == list)
            .and_then(|[_, position]| position.checked_sub(1))
            .unwrap_or(NEVER)
    }

    /// Whether `slot` is in the order of a list of its owner, current or over.
    pub(super) fn is_placed(&self, slot: Slot) -> bool {
        self.managed.as_ref().is_some_and(|managed| managed.places[slot.index()][1] > 0)
    }

    /// Whether `slot` is in the order of a list and in no pool.
    pub(super) fn is_in_list_only(&self, slot: Slot) -> bool {
        self.is_placed(slot) && self.managed.as_ref().is_none_or(|managed| managed.pools.pool(slot).is_none())
    }

    /// Records that `slot` of `owner` occurs next at `position` of its list.
    pub(super) fn set_position(&mut self, slot: Slot, owner: u16, position: u32) {
        let (Some(managed), Some(share)) = (&mut self.managed, self.shares.get_mut(owner as usize)) else { return };
        // `NEVER` plus one is 0.
        let place = [share.lists, position.wrapping_add(1)];
        let [list, before] = std::mem::replace(&mut managed.places[slot.index()], place);
        if before > 0 {
            share.coming.remove(&(list, before - 1));
        }
        if position != NEVER {
            share.coming.insert((share.lists, position), slot);
        }
    }

    /// `slot` is about to leave `owner`.
    pub(super) fn leave_list(&mut self, slot: Slot, owner: u16) {
        if self.is_placed(slot) {
            let position = self.position(slot);
            self.set_position(slot, owner, NEVER);
            if position != NEVER
                && let Some(prefetch) = &mut self.shares[owner as usize].prediction
            {
                prefetch.missing(position);
            }
        }
    }

    /// The next position of `block` of `owner` in its list, whether or not the list influences replacement.
    pub(super) fn next_in_list(&self, owner: u16, block: Block) -> u32 {
        self.shares[owner as usize].prediction.as_ref().map_or(NEVER, |prefetch| prefetch.next(block))
    }

    /// Deletes the placeholders that point to `slot`.
    pub(super) fn release(&mut self, slot: Slot) {
        if self.links.own(slot).flags & POINTED == 0 {
            return;
        }
        self.links.own_mut(slot).flags &= !POINTED;
        while let Some(ghost) = self.managed.as_mut().and_then(|managed| managed.placeholders.pop(slot)) {
            self.links.own_mut(ghost).flags &= !PLACEHOLDER;
            self.forget_unknown(ghost);
        }
    }

    /// Returns `slot` to the host if it is unknown now.
    pub(super) fn forget_unknown(&mut self, slot: Slot) {
        if self.links.own(slot).flags == 0 {
            self.forgotten.push(slot);
        }
    }

    /// Deletes the placeholder of `ghost`.
    pub(super) fn delete_placeholder(&mut self, ghost: Slot) {
        self.links.own_mut(ghost).flags &= !PLACEHOLDER;
        if let Some(target) = self.managed.as_mut().and_then(|managed| managed.placeholders.remove(ghost)) {
            self.links.own_mut(target).flags &= !POINTED;
        }
    }

    /// Collects the slots that the policies of pools no longer remember.
    pub(crate) fn collect(&mut self) {
        self.collect_but(None);
    }

    /// As `collect`, but does not return `incoming`, which is about to be inserted.
    pub(super) fn collect_but(&mut self, incoming: Option<Slot>) {
        let Some(managed) = &mut self.managed else { return };
        while let Some(slot) = managed.pools.take_gone() {
            let known = self.links.own_mut(slot);
            if known.flags & REMEMBERED == 0 {
                // It returned, or its host forgot it, before it was looked at.
                continue;
            }
            known.flags &= !REMEMBERED;
            if known.flags == 0 && Some(slot) != incoming {
                self.forgotten.push(slot);
            }
        }
    }

    /// Whether `owner`'s floor protects it from losing a block to `tenant`.
    pub(super) fn is_protected(&self, owner: u16, tenant: u16) -> bool {
        let within = |share: &Share| share.size <= share.floor;
        owner != tenant && self.shares.get(owner as usize).is_some_and(within)
    }
}
