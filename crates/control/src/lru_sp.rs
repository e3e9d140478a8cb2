//! LRU-SP (3.2): the list of all resident blocks, who gives up one, and which.
//!
//! A tenant is oblivious until it says something; then its blocks are in its pools (`pools.rs`), and those that its list
//! says will be read again are in the order of the list. References of oblivious tenants to their own blocks touch the
//! LRU list and eight bytes more, nothing else.
//!
//! Deviations:
//! * 3.2 replaces the block that a placeholder points to; 4.2.1 makes it the candidate that the tenant may overrule.
//!   This is 3.2.
//! * For a prefetch it is 4.2.1's way. That a block is fetched before another is referenced does not tell which of them is
//!   referenced first, so nobody was wrong, and to replace the other would do harm (rule 3); but the owner pays.
//! * When that block is replaced, other placeholders that point to it are deleted. 3.2 does not say what becomes of them.
//! * A block that a second tenant references is owned by nobody until it leaves. A block of a tenant that is gone is
//!   owned by whoever references it next.
//! * A false prefetch that the list has passed goes to the end of the LRU list without an owner, so that it is the next
//!   to be replaced; 3.2 flushes it at once, which would leave a frame empty.
//! * Floors and ceilings are not the paper's. A tenant at its ceiling gives up a block of its own choice, and one above it
//!   does whoever misses. A block that reaches the end while its owner has no more than its floor is
//!   set aside (`Share::kept`) until the owner has more, so that a decision stays O(1) whatever the floors.

mod check;
mod follow;

use nigh_policy::list::{Links, List};
use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Stream, Tenant};

use crate::access_list::NEVER;
use crate::config::{Allocation, Config, Foresight};
use crate::placeholders::Placeholders;
use crate::pools::{Levels, Pools};
use crate::tenant::{Share, Statistics};

/// The owner of blocks whose tenant is gone.
const NOBODY: u16 = u16::MAX;
/// The owner of blocks that more than one tenant references.
const SHARED: u16 = u16::MAX - 1;
/// Tenants are numbered below this.
pub(crate) const TENANTS_MOST: u32 = SHARED as u32;

/// In `Known::flags`. The block is resident.
const RESIDENT: u16 = 1;
/// It is in the pools or the list of its owner.
const MANAGED: u16 = 2;
/// Placeholders point to it.
const POINTED: u16 = 4;
/// It is a ghost with a placeholder.
const PLACEHOLDER: u16 = 8;
/// The policy of a pool remembers it as a ghost.
const REMEMBERED: u16 = 16;
/// Its pool is not that of its file, until it is referenced.
const TEMPORARY: u16 = 32;
/// It was prefetched and not yet referenced.
const AHEAD: u16 = 64;
/// It is among the kept blocks of its owner instead of in the LRU list.
const KEPT: u16 = 128;

/// What every reference needs to know of a slot.
#[derive(Clone, Copy, Default)]
struct Known {
    owner: u16,
    flags: u16,
}

/// What exists once a tenant manages itself.
pub(crate) struct Managed {
    pub(crate) pools: Pools,
    pub(crate) placeholders: Placeholders,
    /// By slot, where it comes next in the list of its owner, or `NEVER`.
    pub(crate) position: Vec<u32>,
    /// By slot of a managed block, the low half of the tick of its last reference. Blocks that a tenant has when it first
    /// says something count as referenced then.
    last: Vec<u32>,
}

/// Resident blocks of tenants: who gives up which, and what tenants said about it.
///
/// It is a [`Policy`]: a host uses it as any other, with [`Access::tenant`] below [`Limits::tenants`]. Placeholders are
/// ghosts to the host. What tenants say comes through [`apply`](Control::apply).
///
/// [`Limits::tenants`]: crate::Limits::tenants
pub struct Control {
    links: Links<Known>,
    /// Resident blocks but those kept, the most recently used first, with 3.2's modifications.
    lru: List,
    /// Blocks kept for the floors of all tenants.
    kept: u32,
    /// Tenants that own a block.
    present: u32,
    /// Tenants with kept blocks.
    keeping: Vec<u16>,
    /// Tenants above their ceiling.
    above: Vec<u16>,
    /// By number.
    pub(crate) shares: Vec<Share>,
    pub(crate) managed: Option<Box<Managed>>,
    /// Slots that the host has not taken back yet.
    forgotten: Vec<Slot>,
    /// Whether a decision has to look at nothing but the list and owners that manage themselves.
    plain: bool,
    pub(crate) tick: u64,
    pub(crate) setup: Setup,
    pub(crate) config: Config,
}

impl Control {
    /// For the cache described by `setup`. `setup.ghosts` bounds the placeholders and what policies of the registry
    /// remember; with fewer ghosts than blocks LRU-SP protects tenants from foolish ones less than it could.
    pub fn new(setup: &Setup, config: Config) -> Control {
        let (links, [lru]) = Links::with_own(setup.slots);
        Control {
            links,
            lru,
            kept: 0,
            present: 0,
            keeping: Vec::new(),
            above: Vec::new(),
            shares: Vec::new(),
            managed: None,
            forgotten: Vec::new(),
            plain: config.allocation != Allocation::Static,
            tick: 0,
            setup: setup.clone(),
            config,
        }
    }

    /// Every tenant that was heard of, those that are gone included.
    pub fn tenants(&self) -> impl Iterator<Item = Tenant> + use<> {
        (0..self.shares.len() as u32).map(Tenant)
    }

    /// Resident blocks of `tenant`.
    pub fn size(&self, tenant: Tenant) -> u32 {
        self.shares.get(tenant.0 as usize).map_or(0, |share| share.size)
    }

    /// Counts for `tenant`.
    pub fn statistics(&self, tenant: Tenant) -> Statistics {
        self.shares.get(tenant.0 as usize).map_or_else(Statistics::default, |share| share.statistics)
    }

    /// Frames that no block has.
    pub(crate) fn free_frames(&self) -> u32 {
        self.setup.capacity.saturating_sub(self.lru.len() + self.kept)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn admit(&mut self, tenant: u32) {
        assert!(tenant < self.config.limits.tenants.min(TENANTS_MOST), "tenant {tenant} is beyond the limit");
        self.shares.resize_with(tenant as usize + 1, Share::default);
        if self.config.allocation == Allocation::Static {
            (0..=tenant).for_each(|tenant| self.manage(tenant as u16));
        }
    }

    /// Looks again at whether any floor, ceiling or static share is to be minded.
    pub(crate) fn see_bounds(&mut self) {
        let bounded = self.shares.iter().any(|share| share.floor > 0 || share.ceiling < u32::MAX);
        let is_above = |share: &Share| share.size > share.ceiling;
        self.above = (0..).zip(&self.shares).filter(|(_, share)| is_above(share)).map(|(tenant, _)| tenant).collect();
        self.plain = self.config.allocation != Allocation::Static && !bounded && self.keeping.is_empty();
    }

    pub(crate) fn managed(&mut self) -> &mut Managed {
        let (setup, config) = (&self.setup, &self.config);
        self.managed.get_or_insert_with(|| {
            let placeholders = setup.ghosts.min(setup.capacity);
            Box::new(Managed {
                pools: Pools::new(setup, setup.ghosts - placeholders, &config.limits),
                placeholders: Placeholders::new(setup.slots, placeholders),
                position: vec![NEVER; setup.slots as usize],
                last: vec![0; setup.slots as usize],
            })
        })
    }

    /// Every resident slot of `tenant`, the most recently used first.
    pub(crate) fn blocks_of(&self, tenant: u16) -> Vec<Slot> {
        let kept = self.shares.get(tenant as usize).and_then(|share| share.kept.as_ref());
        let kept = kept.into_iter().flat_map(|kept| kept.iter(&self.links));
        let all = self.lru.iter(&self.links).chain(kept);
        all.filter(|slot| self.links.own(*slot).owner == tenant).collect()
    }

    /// Gives `tenant` priority levels, its blocks all at priority 0.
    pub(crate) fn manage(&mut self, tenant: u16) {
        if self.shares[tenant as usize].levels.is_some() {
            return;
        }
        let levels = Levels::new(&mut self.managed().pools);
        self.shares[tenant as usize].levels = Some(Box::new(levels));
        for slot in self.blocks_of(tenant).into_iter().rev() {
            let access = self.moving(Block { volume: 0, index: 0 }, tenant);
            self.enter_pool(slot, tenant, 0, &access, Enter::Referenced);
        }
    }

    /// A reference that is none, for the policies of pools.
    pub(crate) fn moving(&self, block: Block, tenant: u16) -> Access {
        Access { block, tenant: Tenant(tenant.into()), stream: Stream(0), kind: Kind::Read, tick: self.tick }
    }

    /// Puts `slot` into the pool of its owner for `file`.
    pub(crate) fn enter_pool(&mut self, slot: Slot, tenant: u16, file: u32, access: &Access, how: Enter) {
        let (Some(managed), Some(levels)) = (&mut self.managed, &self.shares[tenant as usize].levels) else { return };
        let pool = levels.pool_of_file(file);
        match how {
            Enter::Referenced => {
                managed.last[slot.index()] = access.tick as u32;
                managed.pools.insert(pool, slot, access);
            }
            Enter::Later => managed.pools.move_in(pool, slot, access, true),
            Enter::First => managed.pools.move_in(pool, slot, access, false),
        }
        self.links.own_mut(slot).flags |= MANAGED;
    }

    /// Takes `slot` out of whichever pool it is in, if it is in one.
    pub(crate) fn leave_pool(&mut self, slot: Slot) {
        let Some(managed) = self.managed.as_mut().filter(|_| self.links.own(slot).flags & MANAGED != 0) else {
            return;
        };
        if let Some(pool) = managed.pools.pool(slot) {
            managed.pools.remove(slot);
            self.end_temporary(slot, pool);
        }
    }

    /// `slot` left `pool`; if it was there for a while only, that is over.
    fn end_temporary(&mut self, slot: Slot, pool: u32) {
        let Known { owner, flags, .. } = self.links.own_mut(slot);
        if *flags & TEMPORARY == 0 {
            return;
        }
        *flags &= !TEMPORARY;
        if let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[*owner as usize].levels) {
            levels.tidy(managed.pools.priority(pool), &mut managed.pools);
        }
    }

    /// Moves `slot` to the pool of a temporary priority; that level is open.
    pub(crate) fn set_temporary(&mut self, slot: Slot, tenant: u16, priority: i32, access: &Access) {
        self.leave_pool(slot);
        let (Some(managed), Some(levels)) = (&mut self.managed, &self.shares[tenant as usize].levels) else { return };
        if let Some(pool) = levels.pool_of_priority(priority) {
            managed.pools.move_in(pool, slot, access, true);
        }
        self.links.own_mut(slot).flags |= TEMPORARY;
    }

    pub(crate) fn owner_is(&self, slot: Slot, tenant: u16) -> bool {
        let Known { owner, flags, .. } = *self.links.own(slot);
        owner == tenant && flags & RESIDENT != 0
    }

    /// Whether `slot` was prefetched for `tenant`, which has not referenced it.
    pub(crate) fn is_ahead(&self, slot: Slot, tenant: Tenant) -> bool {
        let Known { owner, flags, .. } = *self.links.own(slot);
        u32::from(owner) == tenant.0 && flags & AHEAD != 0
    }

    pub(crate) fn is_temporary(&self, slot: Slot) -> bool {
        self.links.own(slot).flags & TEMPORARY != 0
    }

    /// Where `slot` comes next in its owner's list.
    pub(crate) fn position(&self, slot: Slot) -> u32 {
        self.managed.as_ref().map_or(NEVER, |managed| managed.position[slot.index()])
    }

    /// Notes that `slot` of `tenant` comes next at `position`.
    pub(crate) fn set_position(&mut self, slot: Slot, tenant: u16, position: u32) {
        let Some(managed) = &mut self.managed else { return };
        let before = std::mem::replace(&mut managed.position[slot.index()], position);
        if let Some(prediction) = self.shares.get_mut(tenant as usize).and_then(|share| share.prediction.as_mut()) {
            if before != NEVER {
                prediction.coming.remove(&before);
            }
            if position != NEVER {
                prediction.coming.insert(position, slot);
            }
        }
    }

    /// Takes `slot` from its owner: out of pools, list and size.
    fn disown(&mut self, slot: Slot) {
        let Known { owner, flags, .. } = *self.links.own(slot);
        if flags & MANAGED != 0 {
            self.leave_pool(slot);
            self.leave_list(slot, owner);
            self.links.own_mut(slot).flags &= !MANAGED;
        }
        self.shrink(owner, flags & AHEAD != 0);
        self.links.own_mut(slot).flags &= !AHEAD;
    }

    fn leave_list(&mut self, slot: Slot, owner: u16) {
        let position = self.position(slot);
        if position != NEVER {
            self.set_position(slot, owner, NEVER);
            if let Some(prediction) = &mut self.shares[owner as usize].prediction {
                prediction.prefetch.missing(position);
            }
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Known { owner, flags, .. } = *self.links.own(slot);
        if flags & KEPT == 0 {
            self.lru.unlink(&mut self.links, slot);
            return;
        }
        self.links.own_mut(slot).flags &= !KEPT;
        self.kept -= 1;
        let kept = self.shares[owner as usize].kept.as_mut().expect("a kept block is in the list of its owner");
        kept.unlink(&mut self.links, slot);
        if kept.is_empty() {
            self.keeping.retain(|&keeping| keeping != owner);
            self.see_bounds();
        }
    }

    /// Deletes the placeholders that point to `slot`.
    fn release(&mut self, slot: Slot) {
        if self.links.own(slot).flags & POINTED == 0 {
            return;
        }
        self.links.own_mut(slot).flags &= !POINTED;
        while let Some(ghost) = self.managed.as_mut().and_then(|managed| managed.placeholders.pop(slot)) {
            self.lose_placeholder(ghost);
        }
    }

    fn lose_placeholder(&mut self, ghost: Slot) {
        self.links.own_mut(ghost).flags &= !PLACEHOLDER;
        if self.links.own_mut(ghost).flags == 0 {
            self.forgotten.push(ghost);
        }
    }

    /// Deletes the placeholder of `ghost`.
    fn delete_placeholder(&mut self, ghost: Slot) {
        self.links.own_mut(ghost).flags &= !PLACEHOLDER;
        if let Some(target) = self.managed.as_mut().and_then(|managed| managed.placeholders.remove(ghost)) {
            self.links.own_mut(target).flags &= !POINTED;
        }
    }

    /// `victim`, which is in no list and no pool any more, is not resident.
    fn depart(&mut self, victim: Slot) {
        self.release(victim);
        let known = self.links.own_mut(victim);
        known.flags &= PLACEHOLDER | REMEMBERED;
        if known.flags == 0 {
            self.forgotten.push(victim);
        }
    }

    /// Replaces `victim` without a decision of its owner.
    fn replace(&mut self, victim: Slot) -> Slot {
        self.disown(victim);
        self.unlink(victim);
        self.depart(victim);
        victim
    }

    /// Whether `owner`'s floor protects it from giving up a block for `tenant`.
    fn is_protected(&self, owner: u16, tenant: u32) -> bool {
        u32::from(owner) != tenant && self.shares.get(owner as usize).is_some_and(|share| share.size <= share.floor)
    }

    /// The block at the end of the LRU list, but for floors.
    fn candidate(&mut self, tenant: u32) -> Slot {
        let gives = self.keeping.iter().find(|&&owner| !self.is_protected(owner, tenant));
        let kept = gives.and_then(|&owner| self.shares[owner as usize].kept.as_ref());
        if let Some(oldest) = kept.and_then(|kept| kept.back(&self.links)) {
            return oldest;
        }
        loop {
            let end = self.lru.back(&self.links).expect("floors leave a block of a full cache to give up");
            let owner = self.links.own(end).owner;
            if self.plain || !self.is_protected(owner, tenant) {
                return end;
            }
            self.lru.unlink(&mut self.links, end);
            self.links.own_mut(end).flags |= KEPT;
            self.kept += 1;
            let kept = self.shares[owner as usize].kept.get_or_insert_with(|| self.links.list());
            if kept.is_empty() {
                self.keeping.push(owner);
            }
            kept.push_front(&mut self.links, end);
        }
    }

    /// The block that `owner`, which manages itself and has one, gives up. It is out of its pools and its list.
    ///
    /// 2.1.3: those that do not come in the list any more, by the tenant's policies; when there are none the one that
    /// comes last.
    fn choose(&mut self, owner: u16, incoming: Slot, access: &Access) -> Slot {
        let share = &mut self.shares[owner as usize];
        let (Some(managed), Some(levels)) = (&mut self.managed, &share.levels) else {
            unreachable!("a tenant with pools manages itself")
        };
        let lowest = levels.pools().find(|&pool| managed.pools.len(pool) > 0);
        let slot = match lowest {
            Some(pool) => {
                let (slot, remembered) = managed.pools.evict(pool, incoming, access);
                self.links.own_mut(slot).flags |= if remembered { REMEMBERED } else { 0 };
                self.end_temporary(slot, pool);
                slot
            }
            None => {
                let coming = share.prediction.as_ref().and_then(|prediction| prediction.coming.last_key_value());
                *coming.expect("a block that is in no pool comes in the list").1
            }
        };
        if u32::from(owner) != access.tenant.0 {
            self.answer(incoming, access);
        }
        self.leave_list(slot, owner);
        let known = self.links.own_mut(slot);
        let ahead = known.flags & AHEAD != 0;
        known.flags &= !(MANAGED | AHEAD);
        self.shrink(owner, ahead);
        slot
    }

    /// The policy of a pool that gave up a block for `incoming` hears what became of that.
    fn answer(&mut self, incoming: Slot, access: &Access) {
        if let Some(managed) = &mut self.managed {
            managed.pools.answer(incoming, access);
            if managed.pools.pool(incoming).is_none() {
                self.links.own_mut(incoming).flags &= !REMEMBERED;
            }
        }
    }

    /// `owner` has one block less, which was `wasted` if it was prefetched in vain.
    #[inline(always)]
    fn shrink(&mut self, owner: u16, wasted: bool) {
        if let Some(share) = self.shares.get_mut(owner as usize) {
            share.size -= 1;
            share.statistics.wasted += u64::from(wasted);
            if share.size == 0 || share.size == share.ceiling {
                self.see_size(owner);
            }
        }
    }

    /// `owner` has no block any more, or its first; or it came to its ceiling from above, or above it.
    #[cold]
    #[inline(never)]
    fn see_size(&mut self, owner: u16) {
        self.present = self.shares.iter().filter(|share| share.size > 0).count() as u32;
        let Share { size, ceiling, .. } = self.shares[owner as usize];
        self.above.retain(|&above| above != owner);
        if size > ceiling {
            self.above.push(owner);
        }
    }

    /// A tenant gives up a block of its own choice, whichever blocks the others have.
    fn give_up(&mut self, owner: u16, incoming: Slot, access: &Access) -> Slot {
        let victim = self.choose(owner, incoming, access);
        self.unlink(victim);
        self.depart(victim);
        victim
    }

    /// The most blocks that `tenant` may have, where that is bounded.
    fn most(&self, tenant: u32) -> Option<u32> {
        let ceiling = self.shares.get(tenant as usize).map_or(u32::MAX, |share| share.ceiling);
        match self.config.allocation {
            _ if ceiling < u32::MAX => Some(ceiling),
            Allocation::Static => {
                let newcomer = u32::from(self.size(Tenant(tenant)) == 0);
                Some((self.setup.capacity / (self.present + newcomer).max(1)).max(1))
            }
            Allocation::LruSp | Allocation::Global => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn evict_slowly(&mut self, incoming: Slot, access: &Access) -> Slot {
        self.tick = access.tick;
        let victim = self.decide(incoming, access);
        self.collect();
        victim
    }

    fn decide(&mut self, incoming: Slot, access: &Access) -> Slot {
        let tenant = access.tenant.0;
        let mut mistaken = None;
        if self.links.own(incoming).flags & PLACEHOLDER != 0 {
            let target = self.managed().placeholders.target(incoming);
            let Known { owner, flags, .. } = *self.links.own(target);
            self.delete_placeholder(incoming);
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
        if let Some(&above) = self.above.first() {
            return self.give_up(above, incoming, access);
        }
        let own = self.size(access.tenant);
        if self.most(tenant).is_some_and(|most| own >= most) && own > 0 {
            return self.give_up(tenant as u16, incoming, access);
        }
        let candidate = mistaken.unwrap_or_else(|| self.candidate(tenant));
        let owner = self.links.own(candidate).owner;
        if self.config.allocation == Allocation::Static && owner != NOBODY {
            // Shares have become smaller, or a ceiling is below them: who is furthest above gives up a block.
            let owners = (0..self.shares.len()).filter(|&owner| self.shares[owner].size > 0);
            let above =
                |&owner: &usize| i64::from(self.shares[owner].size) - i64::from(self.most(owner as u32).unwrap_or(0));
            let owner = owners.max_by_key(above).expect("blocks of a full cache have owners");
            return self.give_up(owner as u16, incoming, access);
        }
        if self.config.allocation == Allocation::Global || self.links.own(candidate).flags & MANAGED == 0 {
            return self.replace(candidate);
        }
        let victim = self.choose(owner, incoming, access);
        if victim == candidate {
            self.unlink(victim);
        } else {
            self.swap(candidate, victim);
            self.shares[owner as usize].statistics.overruled += 1;
        }
        self.depart(victim);
        victim
    }

    /// (1): swaps the `candidate` at the end with the `victim` that its owner chose instead, which leaves, and builds the
    /// placeholder. Those that pointed to the victim point to the candidate then.
    fn swap(&mut self, candidate: Slot, victim: Slot) {
        self.unlink(candidate);
        let owner = self.links.own(victim).owner;
        if self.links.own(victim).flags & KEPT == 0 {
            self.lru.insert_before(&mut self.links, candidate, victim);
        } else {
            let kept = self.shares[owner as usize].kept.as_mut().expect("a kept block is in the list of its owner");
            kept.insert_before(&mut self.links, candidate, victim);
            self.links.own_mut(candidate).flags |= KEPT;
            self.kept += 1;
        }
        self.unlink(victim);
        let now = self.tick;
        let managed = self.managed();
        let last = now.wrapping_sub(u64::from((now as u32).wrapping_sub(managed.last[victim.index()])));
        managed.placeholders.redirect(victim, candidate);
        let over = managed.placeholders.add(victim, candidate, last);
        self.links.own_mut(victim).flags = self.links.own(victim).flags & !POINTED | PLACEHOLDER;
        self.links.own_mut(candidate).flags |= POINTED;
        if let Some(over) = over {
            self.delete_placeholder(over);
            if over != victim && self.links.own_mut(over).flags == 0 {
                self.forgotten.push(over);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn hit_slowly(&mut self, slot: Slot, access: &Access) {
        self.tick = access.tick;
        let tenant = access.tenant.0;
        if tenant as usize >= self.shares.len() {
            self.admit(tenant);
        }
        let tenant = tenant as u16;
        let demand = access.kind != Kind::Prefetch;
        self.release(slot);
        self.unlink(slot);
        self.lru.push_front(&mut self.links, slot);
        let owner = self.links.own(slot).owner;
        if demand && owner == NOBODY {
            self.own(slot, tenant);
            self.settle(slot, tenant, access, true);
            self.collect();
            return;
        }
        if demand && owner != tenant && owner != SHARED && self.config.allocation != Allocation::Static {
            self.disown(slot);
            self.links.own_mut(slot).owner = SHARED;
        }
        if demand && self.links.own(slot).flags & AHEAD != 0 {
            self.links.own_mut(slot).flags &= !AHEAD;
            if let Some(share) = self.shares.get_mut(owner as usize) {
                share.statistics.used += 1;
            }
        }
        if demand {
            self.follow(tenant, access, true);
        }
        let owner = self.links.own(slot).owner;
        if self.links.own(slot).flags & MANAGED != 0 {
            self.arrange(slot, owner, access);
        }
        self.collect();
    }

    #[inline(always)]
    fn own(&mut self, slot: Slot, tenant: u16) {
        self.links.own_mut(slot).owner = tenant;
        let share = &mut self.shares[tenant as usize];
        share.size += 1;
        if share.size == 1 || share.size - 1 == share.ceiling {
            self.see_size(tenant);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_slowly(&mut self, slot: Slot, access: &Access) {
        self.tick = access.tick;
        let tenant = access.tenant.0;
        if tenant as usize >= self.shares.len() {
            self.admit(tenant);
        }
        let tenant = tenant as u16;
        if self.links.own(slot).flags & PLACEHOLDER != 0 {
            self.delete_placeholder(slot);
        }
        self.own(slot, tenant);
        self.lru.push_front(&mut self.links, slot);
        let known = self.links.own_mut(slot);
        known.flags |= RESIDENT;
        if access.kind == Kind::Prefetch {
            known.flags |= AHEAD;
            self.shares[tenant as usize].statistics.prefetched += 1;
        }
        self.settle(slot, tenant, access, false);
        self.collect();
    }

    /// Takes what the policies of pools no longer remember.
    pub(crate) fn collect(&mut self) {
        let Some(managed) = &mut self.managed else { return };
        while let Some(slot) = managed.pools.take_gone() {
            let known = self.links.own_mut(slot);
            known.flags &= !REMEMBERED;
            if known.flags == 0 {
                self.forgotten.push(slot);
            }
        }
    }

    /// `tenant` is gone: its blocks have no owner, what it said is forgotten. Its number may be used again.
    pub fn close(&mut self, tenant: Tenant) {
        self.let_go(tenant);
        if let Some(share) = self.shares.get_mut(tenant.0 as usize) {
            share.statistics = Statistics::default();
        }
    }

    /// As `close`, but its counts stay.
    pub(crate) fn let_go(&mut self, tenant: Tenant) {
        if tenant.0 as usize >= self.shares.len() {
            return;
        }
        let owner = tenant.0 as u16;
        self.shares[owner as usize].prediction = None;
        // From the end of the LRU list: those a floor kept are the oldest.
        for slot in self.blocks_of(owner) {
            let behind = self.links.own(slot).flags & KEPT != 0 || self.config.allocation == Allocation::Static;
            if let Some(managed) = &mut self.managed {
                managed.position[slot.index()] = NEVER;
            }
            self.disown(slot);
            if behind {
                self.unlink(slot);
                self.lru.push_back(&mut self.links, slot);
            }
            self.links.own_mut(slot).owner = NOBODY;
        }
        let share = &mut self.shares[owner as usize];
        let (levels, kept, outstanding) =
            (share.levels.take(), share.kept.take(), std::mem::take(&mut share.outstanding));
        *share = Share { kept, outstanding, statistics: share.statistics, ..Share::default() };
        if let (Some(managed), Some(levels)) = (&mut self.managed, levels) {
            levels.close(&mut managed.pools);
        }
        if self.config.allocation == Allocation::Static {
            self.manage(owner);
        }
        self.collect();
        self.see_bounds();
    }
}

/// Where a block enters a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enter {
    /// As the most recently used.
    Referenced,
    /// Without a reference, at the end from which it leaves later.
    Later,
    /// Without a reference, at the end from which it leaves first.
    First,
}

impl Policy for Control {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let known = self.links.own(slot);
        if u32::from(known.owner) == access.tenant.0 && known.flags == RESIDENT {
            self.lru.move_to_front(&mut self.links, slot);
        } else {
            self.hit_slowly(slot, access);
        }
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        if self.plain && self.links.own_mut(incoming).flags == 0 {
            let end = self.lru.back(&self.links).expect("a full cache holds a block");
            let known = self.links.own_mut(end);
            if known.flags == RESIDENT {
                known.flags = 0;
                let owner = known.owner;
                self.lru.unlink(&mut self.links, end);
                self.shrink(owner, false);
                self.forgotten.push(end);
                return Some(end);
            }
        }
        Some(self.evict_slowly(incoming, access))
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let known = self.links.own_mut(slot);
        if let Some(share) = self.shares.get(access.tenant.0 as usize)
            && share.levels.is_none()
            && known.flags == 0
            && access.kind != Kind::Prefetch
        {
            *known = Known { owner: 0, flags: RESIDENT };
            self.own(slot, access.tenant.0 as u16);
            self.lru.push_front(&mut self.links, slot);
        } else {
            self.insert_slowly(slot, access);
        }
    }

    fn remove(&mut self, slot: Slot) {
        let flags = self.links.own(slot).flags;
        if flags & RESIDENT != 0 {
            self.disown(slot);
            self.unlink(slot);
            self.release(slot);
        } else {
            if flags & PLACEHOLDER != 0 {
                self.delete_placeholder(slot);
            }
            if flags & REMEMBERED != 0
                && let Some(managed) = &mut self.managed
            {
                managed.pools.forget(slot);
            }
        }
        *self.links.own_mut(slot) = Known::default();
        self.collect();
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        self.recount();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("placeholders", self.managed.as_ref().map_or(0, |managed| managed.placeholders.len().into()));
        report("tenants", self.present.into());
    }
}
