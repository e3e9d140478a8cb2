//! The decision which block leaves: which tenant loses one (3.2), and which of its blocks (2.1.3, 4.1.1).

use nigh_policy::{Access, Kind, Slot};

use super::{AHEAD, CHARGED, KEPT, Known, LruSp, MANAGED, NOBODY, PLACEHOLDER, POINTED, REMEMBERED, UNKNOWN};
use crate::config::{Allocation, Foresight};

/// The block that needs room, and the reference that missed it. `None` if the cache becomes smaller.
type Incoming<'a> = Option<(Slot, &'a Access)>;

impl LruSp {
    #[cold]
    #[inline(never)]
    pub(super) fn evict_slowly(&mut self, incoming: Slot, access: &Access) -> Slot {
        self.tick = access.tick;
        let victim = self.decide(Some((incoming, access)));
        self.collect_but(Some(incoming));
        victim
    }

    pub(super) fn decide(&mut self, incoming: Incoming<'_>) -> Slot {
        let tenant = incoming.map_or(UNKNOWN, |(_, access)| self.owner(access.tenant));
        let mut mistaken = None;
        if let Some((slot, access)) = incoming
            && self.links.own(slot).flags & PLACEHOLDER != 0
        {
            let target = self.managed().placeholders.target(slot);
            let Known { owner, flags, .. } = *self.links.own(target);
            self.delete_placeholder(slot);
            let gives = !self.is_protected(owner, tenant);
            if access.kind != Kind::Prefetch || flags & MANAGED == 0 {
                if let Some(share) = self.shares.get_mut(owner as usize) {
                    share.statistics.mistakes += 1;
                }
                if gives {
                    // (2): the block that the placeholder points to is replaced.
                    return self.replace(target);
                }
            }
            mistaken = Some(target).filter(|_| gives);
        }
        if let Some(&above) = self.above.first()
            && let Some(victim) = self.evict_own(above, incoming)
        {
            return victim;
        }
        let own = self.shares.get(tenant as usize).map_or(0, |share| share.size);
        if incoming.is_some()
            && own > 0
            && self.most(tenant).is_some_and(|most| own >= most)
            && let Some(victim) = self.evict_own(tenant, incoming)
        {
            return victim;
        }
        let candidate = mistaken.unwrap_or_else(|| self.candidate(tenant));
        let owner = self.links.own(candidate).owner;
        if self.config.allocation.has_shares()
            && owner != NOBODY
            && let Some(victim) = self.furthest_above().and_then(|owner| self.evict_own(owner, incoming))
        {
            return victim;
        }
        if self.config.allocation == Allocation::Global
            || self.links.own(candidate).flags & MANAGED == 0
            || self.is_gone(owner)
        {
            return self.replace(candidate);
        }
        let victim = self.choose(owner, incoming).expect("the candidate is a block to choose");
        if victim == candidate {
            self.unlink(victim);
        } else {
            self.swap(candidate, victim);
            self.shares[owner as usize].statistics.overruled += 1;
        }
        self.depart(victim);
        victim
    }

    /// Of tenants with shares, the one that loses a block because its share has become smaller; a tenant that
    /// has left comes first.
    fn furthest_above(&self) -> Option<u16> {
        if let Some(&leaving) = self.leaving.last() {
            return Some(leaving);
        }
        let owners = (0..self.shares.len() as u16).filter(|&owner| self.shares[owner as usize].size > 0);
        let above =
            |&owner: &u16| i64::from(self.shares[owner as usize].size) - i64::from(self.most(owner).unwrap_or(0));
        owners.max_by_key(above)
    }

    /// The block at the end of the LRU list, except those protected by floors. If every block is protected, the oldest
    /// of the kept blocks.
    fn candidate(&mut self, tenant: u16) -> Slot {
        let gives = self.keeping.iter().find(|&&owner| !self.is_protected(owner, tenant)).copied();
        if let Some(owner) = gives {
            return self.oldest_kept(owner);
        }
        loop {
            let Some(end) = self.lru.back(&self.links) else {
                let owner = *self.keeping.first().expect("a cache that gives up a block has one");
                return self.oldest_kept(owner);
            };
            let owner = self.links.own(end).owner;
            if !self.is_protected(owner, tenant) {
                return end;
            }
            self.keep(end, owner);
        }
    }

    fn oldest_kept(&self, owner: u16) -> Slot {
        let kept = &self.kept_lists[self.kept_list(owner)];
        kept.back(&self.links).expect("who keeps blocks has one")
    }

    /// Sets `slot` aside for the floor of `owner`.
    fn keep(&mut self, slot: Slot, owner: u16) {
        self.note_unvisited(slot);
        self.sweep_beyond(slot);
        self.lru.unlink(&mut self.links, slot);
        self.links.own_mut(slot).flags |= KEPT;
        self.kept += 1;
        let list = match self.shares[owner as usize].kept {
            Some(list) => list,
            None => {
                self.kept_lists.push(self.links.list());
                *self.shares[owner as usize].kept.insert(self.kept_lists.len() as u32 - 1)
            }
        };
        let kept = &mut self.kept_lists[list as usize];
        if kept.is_empty() {
            self.keeping.push(owner);
            self.plain = false;
        }
        kept.push_front(&mut self.links, slot);
    }

    /// The block that `owner` chooses to lose, if it is a manager and any of its blocks is in its pools or its list. It
    /// is taken out of these.
    ///
    /// 2.1.3: of blocks that do not occur in the list any more, the one chosen by the tenant's policies; if there are
    /// none, the block that occurs last. Under [`Foresight::Prototype`] (4.3), the pools also contain blocks that occur
    /// after nextHole.
    fn choose(&mut self, owner: u16, incoming: Incoming<'_>) -> Option<Slot> {
        let share = self.shares.get(owner as usize)?;
        let (managed, levels) = (self.managed.as_mut()?, share.levels.as_ref()?);
        let (slot, pool) = match levels.pools().find(|&pool| managed.pools.len(pool) > 0) {
            Some(pool) => {
                // With a list, it is not known before the reference has advanced it whether a pool gets the block.
                let is_ours = self.owners.get(incoming.map_or(u32::MAX, |(_, access)| access.tenant.0) as usize)
                    == Some(&owner)
                    && (share.prediction.is_none() || self.config.foresight == Foresight::Fetch);
                let comes = |&(_, access): &(Slot, &Access)| levels.pool_of_file(access.block.volume) == pool;
                let (slot, remembered) = managed.pools.evict(pool, incoming.filter(|_| is_ours).filter(comes));
                self.links.own_mut(slot).flags |= if remembered { REMEMBERED } else { 0 };
                (slot, Some(pool))
            }
            None => (share.last_coming()?, None),
        };
        if let Some(pool) = pool {
            self.has_left(slot, pool);
        }
        self.leave_list(slot, owner);
        let known = self.links.own_mut(slot);
        let flags = known.flags;
        known.flags &= !(MANAGED | AHEAD | CHARGED);
        self.shrink(owner, flags);
        Some(slot)
    }

    /// A tenant loses a block of its own choice, whichever blocks the others have.
    fn evict_own(&mut self, owner: u16, incoming: Incoming<'_>) -> Option<Slot> {
        let victim = self.choose(owner, incoming)?;
        self.unlink(victim);
        self.depart(victim);
        Some(victim)
    }

    /// Replaces `victim` without a decision of its owner.
    fn replace(&mut self, victim: Slot) -> Slot {
        self.disown(victim);
        self.unlink(victim);
        self.depart(victim);
        victim
    }

    /// `victim`, which is in no list and no pool any more, is not resident.
    fn depart(&mut self, victim: Slot) {
        self.release(victim);
        self.links.own_mut(victim).flags &= PLACEHOLDER | REMEMBERED;
        self.forget_unknown(victim);
    }

    /// (1): swaps the `candidate` at the end with the `victim` that its owner chose instead, which leaves, and creates
    /// the placeholder. Placeholders that pointed to the victim then point to the candidate.
    fn swap(&mut self, candidate: Slot, victim: Slot) {
        self.note_unvisited(candidate);
        self.unlink(candidate);
        let Known { owner, flags } = *self.links.own(victim);
        if flags & KEPT == 0 {
            self.lru.insert_before(&mut self.links, candidate, victim);
        } else {
            let list = self.kept_list(owner);
            self.kept_lists[list].insert_before(&mut self.links, candidate, victim);
            self.links.own_mut(candidate).flags |= KEPT;
            self.kept += 1;
        }
        self.unlink(victim);
        let last = self.last_reference(victim);
        let managed = self.managed();
        managed.placeholders.redirect(victim, candidate);
        let over = managed.placeholders.add(victim, candidate, last);
        self.links.own_mut(victim).flags = self.links.own(victim).flags & !POINTED | PLACEHOLDER;
        self.links.own_mut(candidate).flags |= POINTED;
        if let Some(over) = over {
            self.delete_placeholder(over);
            if over != victim {
                self.forget_unknown(over);
            }
        }
    }
}
