//! LRU-SP (3.2): the list of all resident blocks, and the effect of a reference on it. The decision which block leaves
//! is in `lru_sp/decide.rs`.
//!
//! A tenant is oblivious until its first hint. After that it is a manager: its blocks are in its pools (`pools.rs`),
//! and those that its list predicts are in the order of the list. References of oblivious tenants to their own blocks
//! touch only the LRU list and four more bytes. With another policy than LRU (`lru_sp/assign.rs`), a tenant is a manager from the
//! start.
//!
//! Deviations:
//! * 3.2 replaces the block that a placeholder points to; 4.2.1 makes it the candidate that the tenant may overrule.
//!   This is 3.2.
//! * For a prefetch the rule of 4.2.1 applies. That a block is fetched before another is referenced does not show which
//!   of them is referenced first, so no decision was wrong, and replacing the other block would do harm (rule 3); but
//!   the owner pays.
//! * When that block is replaced, other placeholders that point to it are deleted. 3.2 does not define this case.
//! * A block that a second tenant references has no owner until it leaves. A block of a tenant that has left is owned
//!   by the next tenant that references it.
//! * A false prefetch that the list has passed moves to the end of the LRU list without an owner, so that it is
//!   replaced next; 3.2 flushes it at once, which would leave a frame empty.
//! * Floors and ceilings are not in the paper. A tenant at its ceiling loses a block of its own choice on its own
//!   misses; one above it does so on the miss of any tenant. A block that reaches the end while its owner has no more
//!   than its floor is set aside (`Share::kept`) until the owner has more, so that a decision stays O(1) whatever the
//!   floors are.
//! * A hint about all blocks of a tenant reaches them in steps (`lru_sp/step.rs`). A block that no step has reached is
//!   treated as before: it is in no pool and leaves at the end of the LRU list, or it keeps its level.
//! * A cache that becomes smaller chooses victims as on the miss of a tenant without blocks.

mod account;
mod assign;
mod book;
mod bounds;
mod change;
mod check;
mod decide;
mod follow;
mod step;
mod sweep;

use nigh_policy::list::{Links, List};
use nigh_policy::{Access, Block, Chosen, Kind, Policy, Room, Setup, Slot, Spec, Tenant};

use crate::config::{Allocation, Config};
use crate::directive::Order;
use crate::local::Largest;
use crate::placeholders::Placeholders;
use crate::pools::Pools;
use crate::tasks::Tasks;
use crate::tenant::{Share, Statistics};
use crate::utility::Utility;

/// The owner of blocks whose tenant has left.
const NOBODY: u16 = u16::MAX;
/// The owner of blocks that more than one tenant references.
const SHARED: u16 = u16::MAX - 1;
/// The owner number of a tenant without any references or hints yet.
const UNKNOWN: u16 = u16::MAX - 2;
/// Tenants are numbered below this, and so are owners.
pub(crate) const TENANTS_MOST: u32 = UNKNOWN as u32;

/// In `Known::flags`: the block is resident.
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
/// It is `AHEAD`, and counts for the allowance of its owner.
const CHARGED: u16 = 256;
/// It was `CHARGED`, and flushed before it was used. It has no owner.
const FLUSHED: u16 = 512;
/// It is among the kept blocks of its owner instead of in the LRU list.
const KEPT: u16 = 128;

/// The state of a slot that every reference needs.
#[derive(Clone, Copy, Default)]
struct Known {
    /// By number in `LruSp::shares`, or `NOBODY` or `SHARED`.
    owner: u16,
    flags: u16,
}

/// The state that exists once a tenant is a manager. Its memory is initially zero, so that allocating it takes no time.
pub(crate) struct Managed {
    pub(crate) pools: Pools,
    pub(crate) placeholders: Placeholders,
    /// By slot, the list of its owner in which it occurs, and its next position there plus one, or 0.
    places: Vec<[u32; 2]>,
    /// By slot of a managed block, the low half of the tick of its last reference. Blocks that a tenant has at its
    /// first hint count as referenced then.
    last: Vec<u32>,
}

/// The resident blocks of tenants: decides which tenant loses which block, and applies hints.
///
/// It is a [`Policy`]: a host uses it like any other, with [`Access::tenant`] below [`Limits::tenants`]. Placeholders
/// are ghosts to the host. Hints come through [`apply`](LruSp::apply); [`step`](LruSp::step) does the part that takes
/// longer than a call may.
///
/// [`Limits::tenants`]: crate::Limits::tenants
pub struct LruSp {
    links: Links<Known>,
    /// Resident blocks except the kept ones, the most recently used first, with 3.2's modifications.
    lru: List,
    /// Blocks kept for the floors of owners: a list for each owner that ever kept one. The oldest is last.
    kept_lists: Vec<List>,
    /// Blocks in these lists.
    kept: u32,
    /// Tenants that own a block.
    present: u32,
    /// Owners with kept blocks.
    keeping: Vec<u16>,
    /// Owners above their ceiling.
    above: Vec<u16>,
    /// By tenant, its number in `shares`.
    owners: Vec<u16>,
    /// By owner: a tenant that has left still owns blocks until a sweep has passed, and a new tenant with its number is
    /// another owner.
    pub(crate) shares: Vec<Share>,
    /// Unused owner numbers.
    free: Vec<u16>,
    /// Owners whose tenant has left.
    leaving: Vec<u16>,
    pub(crate) managed: Option<Box<Managed>>,
    /// Slots that the host has not taken back yet.
    forgotten: Vec<Slot>,
    /// With [`Allocation::Utility`]: the shares.
    utility: Option<Box<Utility>>,
    /// Whether a decision needs to look only at the list and the owners that are managers.
    plain: bool,
    /// Whether no sweep is under way or requested.
    swept: bool,
    pub(crate) tasks: Tasks,
    /// The policy of tenants without one of their own, and the most slots that it can number.
    policy: Order,
    policy_slots_most: u32,
    /// For policies that are created, which then can grow with the cache.
    pub(crate) largest: Largest,
    pub(crate) tick: u64,
    pub(crate) room: Room,
    pub(crate) block_bytes: u32,
    pub(crate) config: Config,
}

impl LruSp {
    /// For the cache described by `setup`. `setup.ghosts` limits the placeholders and the ghosts of policies of the
    /// registry; [`Config::ghosts`] is the number they can use. With fewer ghosts than blocks, LRU-SP protects tenants
    /// less from the wrong decisions of others.
    pub fn new(setup: &Setup, config: Config) -> LruSp {
        let (links, [lru]) = Links::with_own(setup.slots);
        LruSp {
            links,
            lru,
            kept_lists: Vec::new(),
            kept: 0,
            present: 0,
            keeping: Vec::new(),
            above: Vec::new(),
            owners: Vec::new(),
            shares: Vec::new(),
            free: Vec::new(),
            leaving: Vec::new(),
            managed: None,
            forgotten: Vec::new(),
            utility: (config.allocation == Allocation::Utility).then(|| Box::new(Utility::new(setup.block_bytes))),
            plain: !config.allocation.has_shares(),
            swept: true,
            tasks: Tasks::default(),
            policy: Order::Lru,
            policy_slots_most: u32::MAX,
            largest: Largest { capacity: setup.capacity, slots: setup.slots },
            tick: 0,
            room: Room { capacity: setup.capacity, slots: setup.slots, ghosts: setup.ghosts },
            block_bytes: setup.block_bytes,
            config,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every tenant with references or hints so far, including those that have left.
    pub fn tenants(&self) -> impl Iterator<Item = Tenant> + '_ {
        let heard = (0..).zip(&self.owners).filter(|(_, owner)| **owner != UNKNOWN);
        heard.map(|(tenant, _)| Tenant(tenant))
    }

    /// Resident blocks of `tenant`.
    pub fn size(&self, tenant: Tenant) -> u32 {
        self.share(tenant).map_or(0, |share| share.size)
    }

    /// Blocks that `tenant` may have in a full cache, if the allocation gives it a share.
    pub fn share_of(&self, tenant: Tenant) -> Option<u32> {
        let owner = self.owner(tenant);
        self.config.allocation.has_shares().then(|| self.most(owner)).flatten()
    }

    /// Counts for `tenant`.
    pub fn statistics(&self, tenant: Tenant) -> Statistics {
        self.share(tenant).map_or_else(Statistics::default, |share| share.statistics)
    }

    /// The number of `tenant` in `shares`, or `UNKNOWN`.
    #[inline(always)]
    pub(crate) fn owner(&self, tenant: Tenant) -> u16 {
        self.owners.get(tenant.0 as usize).copied().unwrap_or(UNKNOWN)
    }

    pub(crate) fn share(&self, tenant: Tenant) -> Option<&Share> {
        self.shares.get(self.owner(tenant) as usize)
    }

    /// The policy that chooses among the blocks of `tenant` in level 0, and whether another policy has chosen it; `None` under MRU.
    pub fn in_charge(&self, tenant: Tenant) -> Option<(Spec, bool)> {
        let owner = self.owner(tenant);
        let order = self.ground(tenant).map_or_else(|| self.policy_of(owner), |(pools, ground)| pools.order(ground));
        match order {
            Order::Lru => Some(("lru".parse().expect("registered"), false)),
            Order::Mru => None,
            Order::Policy(spec) => {
                let chosen = self.chosen(tenant).and_then(|of| of.in_charge().cloned());
                Some(chosen.map_or_else(|| (spec.clone(), false), |chosen| (chosen, true)))
            }
        }
    }

    /// The choice of the policy of `tenant` in level 0, if it chooses among others.
    pub fn chosen(&self, tenant: Tenant) -> Option<Chosen> {
        let (pools, ground) = self.ground(tenant)?;
        pools.chosen(ground)
    }

    /// The pool of level 0 of `tenant`, if it has pools.
    fn ground(&self, tenant: Tenant) -> Option<(&Pools, u32)> {
        let ground = self.share(tenant)?.levels.as_ref()?.ground();
        Some((&self.managed.as_ref()?.pools, ground))
    }

    pub(crate) fn share_mut(&mut self, tenant: Tenant) -> Option<&mut Share> {
        let owner = self.owner(tenant);
        self.shares.get_mut(owner as usize)
    }

    fn resident(&self) -> u32 {
        self.lru.len() + self.kept
    }

    /// Free frames.
    pub(crate) fn free_frames(&self) -> u32 {
        self.room.capacity.saturating_sub(self.resident())
    }

    #[cold]
    #[inline(never)]
    fn hit_slowly(&mut self, slot: Slot, access: &Access) {
        self.tick = access.tick;
        let tenant = self.heard(access.tenant);
        let demand = access.kind != Kind::Prefetch;
        if demand && self.utility.is_some() {
            self.note_utility(tenant, access);
        }
        self.release(slot);
        self.unlink(slot);
        self.lru.push_front(&mut self.links, slot);
        let mut owner = self.links.own(slot).owner;
        if self.is_gone(owner) {
            self.abandon(slot);
            owner = NOBODY;
        }
        if demand && owner == NOBODY {
            self.own(slot, tenant);
            let known = self.links.own_mut(slot);
            if known.flags & FLUSHED != 0 {
                known.flags &= !FLUSHED;
                self.shares[tenant as usize].allowance.used_late(self.config.terms());
            }
            self.adopt(slot, tenant, access, true);
            self.collect();
            return;
        }
        if demand && owner != tenant && owner != SHARED && !self.config.allocation.has_shares() {
            self.disown(slot);
            self.links.own_mut(slot).owner = SHARED;
        }
        if demand && self.links.own(slot).flags & AHEAD != 0 {
            let known = self.links.own_mut(slot);
            let is_charged = known.flags & CHARGED != 0;
            known.flags &= !(AHEAD | CHARGED);
            if let Some(share) = self.shares.get_mut(owner as usize) {
                share.statistics.used += 1;
                if is_charged {
                    share.allowance.used(self.config.terms());
                }
            }
        }
        if demand {
            self.follow(tenant, access, true);
        }
        let Known { owner, flags } = *self.links.own(slot);
        if flags & MANAGED != 0 || self.shares.get(owner as usize).is_some_and(|share| share.levels.is_some()) {
            self.arrange(slot, owner, access);
        }
        self.collect();
    }

    #[cold]
    #[inline(never)]
    fn insert_slowly(&mut self, slot: Slot, access: &Access) {
        self.tick = access.tick;
        let tenant = self.heard(access.tenant);
        if self.links.own(slot).flags & PLACEHOLDER != 0 {
            self.delete_placeholder(slot);
        }
        self.own(slot, tenant);
        self.lru.push_front(&mut self.links, slot);
        let known = self.links.own_mut(slot);
        known.flags |= RESIDENT;
        if access.kind == Kind::Prefetch {
            known.flags |= AHEAD;
            let share = &mut self.shares[tenant as usize];
            share.statistics.prefetched += 1;
            // Read-ahead fetches for tenants without a list: its guesses are not theirs.
            if share.prediction.is_some() && share.allowance.has_any(self.config.terms()) {
                known.flags |= CHARGED;
                share.allowance.fetch();
            }
        }
        self.adopt(slot, tenant, access, false);
        if access.kind != Kind::Prefetch && self.utility.is_some() {
            self.note_utility(tenant, access);
        }
        self.collect();
    }

    /// Notes a demand reference of `owner`, and divides the memory anew when it is time.
    #[cold]
    #[inline(never)]
    fn note_utility(&mut self, owner: u16, access: &Access) {
        let Some(mut utility) = self.utility.take() else { return };
        let capacity = self.room.capacity;
        let sizes = (capacity, self.equal_part(owner));
        if utility.reference(owner, access, sizes, || self.in_charge(access.tenant)) {
            utility.divide(&self.present_bounds(), capacity);
        }
        self.utility = Some(utility);
    }

    /// The owner number of `tenant`, which is known from now on.
    #[inline(always)]
    pub(crate) fn heard(&mut self, tenant: Tenant) -> u16 {
        match self.owner(tenant) {
            UNKNOWN => self.admit(tenant.0),
            owner => owner,
        }
    }
}

impl Policy for LruSp {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let known = self.links.own(slot);
        if known.flags == RESIDENT && self.swept && known.owner == self.owner(access.tenant) {
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
                self.shrink(owner, RESIDENT);
                self.forgotten.push(end);
                return Some(end);
            }
        }
        Some(self.evict_slowly(incoming, access))
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let owner = self.owner(access.tenant);
        let known = self.links.own_mut(slot);
        if let Some(share) = self.shares.get(owner as usize)
            && share.levels.is_none()
            && known.flags == 0
            && access.kind != Kind::Prefetch
        {
            *known = Known { owner: 0, flags: RESIDENT };
            self.own(slot, owner);
            self.lru.push_front(&mut self.links, slot);
        } else {
            self.insert_slowly(slot, access);
        }
    }

    fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        if let Some(managed) = &mut self.managed {
            managed.pools.go_on(access, block);
            self.collect();
        }
    }

    fn shed(&mut self) -> Slot {
        let victim = self.decide(None);
        self.collect();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.fit(room);
    }

    fn slots_most(&self) -> u32 {
        self.managed.as_ref().map_or(u32::MAX, |managed| managed.pools.slots_most()).min(self.policy_slots_most)
    }

    fn remove(&mut self, slot: Slot) {
        let flags = self.links.own(slot).flags;
        if flags & RESIDENT != 0 {
            self.disown(slot);
            self.unlink(slot);
            self.release(slot);
        } else if flags & PLACEHOLDER != 0 {
            self.delete_placeholder(slot);
        }
        if flags & REMEMBERED != 0
            && let Some(managed) = &mut self.managed
        {
            managed.pools.forget(slot);
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
        report("visited", self.tasks.visited);
    }
}
