//! The pools of tenants' blocks: lists under LRU or MRU, or managed by a policy of the registry; and the hand-over of a
//! pool from one to the other.
//!
//! A pool whose policy changes hands its blocks over one by one, in the order in which they would leave, in as many
//! steps as its host likes ([`Pools::hand_over`]). Meanwhile a referenced block moves at once, new blocks enter the new
//! policy, and the previous one chooses victims as long as it has blocks. Between LRU and MRU nothing moves: the list
//! is the same.

use nigh_policy::{Access, Block, Chosen, Slot, SpecError};

use crate::chains::{Chain, Chains};
use crate::directive::Order;
use crate::local::{Budget, Largest, Local};

/// The end at which a block enters a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enter {
    /// As the most recently used.
    Referenced,
    /// Without a reference, at the end that leaves last.
    Later,
    /// As `Later`, at the position of a sweep, which visits the oldest first: in front of its previous block.
    Swept,
    /// Without a reference, at the end that leaves first.
    First,
}

/// The previous manager of a pool, while it still has blocks.
enum Before {
    /// The list: `count` blocks are to move, starting with `next` and continuing towards the front, or towards the back
    /// under MRU.
    List {
        mru: bool,
        next: Option<Slot>,
        count: u32,
    },
    Policy(Local),
}

/// The blocks of one priority of one tenant.
struct Pool {
    priority: i32,
    /// All blocks, the most recently used first, in either order of eviction.
    list: Chain,
    order: Order,
    /// The policy of the registry that manages it.
    policy: Option<Local>,
    before: Option<Before>,
    /// The block that a sweep put at the back last, and the number of the sweep.
    swept: Option<(u32, Slot)>,
}

/// The pools of all tenants.
pub(crate) struct Pools {
    chains: Chains,
    /// Includes closed ones.
    pools: Vec<Pool>,
    free: Vec<u32>,
    /// By slot, its pool number plus one, or 0: the pool that contains it, or whose policy knows it as a ghost.
    of: Vec<u32>,
    /// By slot, its number in that policy plus one, or 0.
    number: Vec<u32>,
    budget: Budget,
    block_bytes: u32,
    policies: usize,
    /// Pools being handed over, and some that have finished.
    handing: Vec<u32>,
    /// The pool whose policy named a victim for the next block to be inserted, and that block's number.
    exchange: Option<(u32, u32)>,
    /// The pool of the block that was inserted last.
    entered: Option<u32>,
    /// Sweeps so far.
    sweeps: u32,
    /// Slots that policies no longer remember, until the owner of the pools takes them.
    gone: Vec<Slot>,
}

impl Pools {
    /// For slots `0..slots`.
    pub(crate) fn new(slots: u32, block_bytes: u32, budget: Budget) -> Pools {
        let chains = Chains::new(slots);
        let none = || vec![0; slots as usize];
        Pools {
            chains,
            pools: Vec::new(),
            free: Vec::new(),
            of: none(),
            number: none(),
            budget,
            block_bytes,
            policies: 0,
            handing: Vec::new(),
            exchange: None,
            entered: None,
            sweeps: 0,
            gone: Vec::new(),
        }
    }

    /// From now on for slots `0..slots` and within `budget`. Takes time in proportion to the change and to the number
    /// of pools.
    pub(crate) fn resize(&mut self, slots: u32, budget: Budget) {
        if slots as usize > self.of.len() {
            self.chains.grow(slots);
            self.of.resize(slots as usize, 0);
            self.number.resize(slots as usize, 0);
        }
        self.budget = budget;
        for pool in 0..self.pools.len() as u32 {
            self.fit(pool);
        }
    }

    /// A sweep begins.
    pub(crate) fn begin_sweep(&mut self) {
        self.sweeps = self.sweeps.wrapping_add(1);
    }

    /// The most slots that all policies of pools can number.
    pub(crate) fn slots_most(&self) -> u32 {
        let before = |pool: &Pool| match &pool.before {
            Some(Before::Policy(before)) => before.slots_most(),
            _ => u32::MAX,
        };
        let of = |pool: &Pool| pool.policy.as_ref().map_or(u32::MAX, Local::slots_most).min(before(pool));
        self.pools.iter().map(of).min().unwrap_or(u32::MAX)
    }

    /// The number of pools that a policy of the registry manages.
    pub(crate) fn policies(&self) -> usize {
        self.policies
    }

    /// The next slot that no policy remembers any more.
    pub(crate) fn take_gone(&mut self) -> Option<Slot> {
        self.gone.pop()
    }

    pub(crate) fn open(&mut self, priority: i32) -> u32 {
        let pool = self.free.pop().unwrap_or_else(|| {
            let list = Chain::default();
            self.pools.push(Pool { priority, list, order: Order::Lru, policy: None, before: None, swept: None });
            self.pools.len() as u32 - 1
        });
        self.pools[pool as usize].priority = priority;
        pool
    }

    /// Closes an empty pool.
    pub(crate) fn close(&mut self, pool: u32) {
        let own = &mut self.pools[pool as usize];
        assert!(own.list.is_empty() && own.before.is_none(), "a pool that is closed holds no block");
        own.order = Order::Lru;
        if own.policy.take().is_some() {
            self.policies -= 1;
        }
        self.free.push(pool);
    }

    /// The priority of `pool`.
    pub(crate) fn priority(&self, pool: u32) -> i32 {
        self.pools[pool as usize].priority
    }

    pub(crate) fn len(&self, pool: u32) -> u32 {
        self.pools[pool as usize].list.len()
    }

    pub(crate) fn order(&self, pool: u32) -> &Order {
        &self.pools[pool as usize].order
    }

    /// The choice of the policy of `pool`, if it chooses among others.
    pub(crate) fn chosen(&self, pool: u32) -> Option<Chosen> {
        self.pools[pool as usize].policy.as_ref()?.chosen()
    }

    /// The pool of a resident slot or of a ghost.
    pub(crate) fn pool(&self, slot: Slot) -> Option<u32> {
        self.of[slot.index()].checked_sub(1)
    }

    /// `slot` is in no pool, and no policy knows it.
    fn clear(&mut self, slot: Slot) {
        (self.of[slot.index()], self.number[slot.index()]) = (0, 0);
    }

    /// Whether `pool` is still being handed over.
    pub(crate) fn is_handing_over(&self, pool: u32) -> bool {
        self.pools[pool as usize].before.is_some()
    }

    /// Changes the policy of `pool`, which must not be in a hand-over; this starts one.
    pub(crate) fn set_order(&mut self, pool: u32, order: Order, cache: Largest) -> Result<(), SpecError> {
        let policy = match &order {
            Order::Policy(spec) => Some(Local::new(spec, self.block_bytes, cache)?),
            Order::Lru | Order::Mru => None,
        };
        self.policies += usize::from(policy.is_some());
        let own = &mut self.pools[pool as usize];
        assert!(own.before.is_none(), "a pool is handed over to one policy after the other");
        let mru = own.order == Order::Mru;
        let (to_list, count) = (policy.is_none(), own.list.len());
        own.order = order;
        own.before = match std::mem::replace(&mut own.policy, policy) {
            Some(before) => {
                self.policies -= 1;
                Some(Before::Policy(before)).filter(|_| count > 0)
            }
            None if to_list || count == 0 => None,
            None => {
                let next = if mru { own.list.front() } else { own.list.back() };
                Some(Before::List { mru, next, count })
            }
        };
        if own.before.is_some() {
            self.handing.push(pool);
        }
        Ok(())
    }

    /// Whether any pool is being handed over.
    pub(crate) fn are_handing_over(&self) -> bool {
        !self.handing.is_empty()
    }

    /// Moves at most `most` blocks to the new policies of their pools. Returns their number. `access` creates a
    /// pseudo-reference to a block.
    pub(crate) fn hand_over(&mut self, most: u32, access: &dyn Fn(Slot) -> Access) -> u32 {
        let mut moved = 0;
        while moved < most
            && let Some(&pool) = self.handing.last()
        {
            let Some(slot) = self.first_of_before(pool) else {
                self.handing.pop();
                continue;
            };
            moved += 1;
            self.leave_before(pool, slot);
            self.add(pool, slot, &access(slot));
        }
        moved
    }

    /// Of the blocks that the previous manager of `pool` still has, the one that leaves first. It stays in the list, or
    /// becomes at most a ghost of the policy.
    fn first_of_before(&mut self, pool: u32) -> Option<Slot> {
        let Pool { list, policy, before, .. } = &mut self.pools[pool as usize];
        match before.as_mut()? {
            Before::Policy(local) => Some(local.shed()),
            Before::List { mru, next, .. } => {
                let new = policy.as_ref().expect("a list is followed by a policy");
                let mut at = next.expect("there are blocks to move");
                while new.knows(at, self.number[at.index()].wrapping_sub(1)) {
                    let beyond = if *mru { list.after(&self.chains, at) } else { list.before(&self.chains, at) };
                    at = beyond.expect("there are blocks to move");
                }
                *next = Some(at);
                Some(at)
            }
        }
    }

    /// `slot`, which [`first_of_before`](Pools::first_of_before) returned, leaves the previous manager of `pool`,
    /// including its ghosts.
    fn leave_before(&mut self, pool: u32, slot: Slot) {
        match &mut self.pools[pool as usize].before {
            Some(Before::Policy(_)) => {
                self.drain(pool, Some(slot));
                let number = std::mem::take(&mut self.number[slot.index()]).wrapping_sub(1);
                if let Some(Before::Policy(local)) = &mut self.pools[pool as usize].before
                    && local.knows(slot, number)
                {
                    local.forget(number);
                }
                self.of[slot.index()] = pool + 1;
            }
            Some(Before::List { count, .. }) => *count -= 1,
            None => unreachable!("a block of what managed the pool before"),
        }
        self.fit(pool);
    }

    /// Adjusts the room of the policies of `pool` to their blocks. A previous manager without blocks is dropped.
    fn fit(&mut self, pool: u32) {
        let budget = self.budget;
        let own = &mut self.pools[pool as usize];
        if let Some(policy) = &mut own.policy {
            policy.fit(budget);
        }
        if let Some(Before::Policy(before)) = &mut own.before {
            before.fit(budget);
        }
        self.drain(pool, None);
        let own = &mut self.pools[pool as usize];
        let left = match &own.before {
            Some(Before::Policy(local)) => local.len(),
            Some(Before::List { count, .. }) => *count,
            None => return,
        };
        if left == 0 {
            own.before = None;
        }
    }

    /// Collects the slots that the policies of `pool` no longer remember; `kept` stays known in any case. Returns
    /// whether it was forgotten.
    fn drain(&mut self, pool: u32, kept: Option<Slot>) -> bool {
        let Pool { policy, before, .. } = &mut self.pools[pool as usize];
        let before = match before {
            Some(Before::Policy(local)) => Some(local),
            _ => None,
        };
        let mut forgotten = false;
        for local in policy.iter_mut().chain(before) {
            while let Some(slot) = local.take_forgotten() {
                (self.of[slot.index()], self.number[slot.index()]) = (0, 0);
                if Some(slot) == kept {
                    forgotten = true;
                } else {
                    self.gone.push(slot);
                }
            }
        }
        forgotten
    }

    /// Adds `slot`, which is in no pool, to `pool`.
    pub(crate) fn insert(&mut self, pool: u32, slot: Slot, access: &Access, how: Enter) {
        self.entered = Some(pool);
        let Pool { list, order, swept, .. } = &mut self.pools[pool as usize];
        let back = match how {
            Enter::Referenced => false,
            Enter::Later | Enter::Swept => *order == Order::Mru,
            Enter::First => *order != Order::Mru,
        };
        match swept.filter(|(sweep, _)| back && how == Enter::Swept && *sweep == self.sweeps) {
            Some((_, older)) => list.insert_before(&mut self.chains, slot, older),
            None if back => list.push_back(&mut self.chains, slot),
            None => list.push_front(&mut self.chains, slot),
        }
        if back && how == Enter::Swept {
            *swept = Some((self.sweeps, slot));
        }
        if let Some((exchanged, number)) = self.exchange.take() {
            assert_eq!(exchanged, pool, "the block for which a policy named a victim comes to it");
            (self.of[slot.index()], self.number[slot.index()]) = (pool + 1, number + 1);
            let policy = self.pools[pool as usize].policy.as_mut().expect("a policy named a victim");
            policy.insert(slot, Some(number), access, self.budget);
            self.drain(pool, None);
            return;
        }
        if !self.is_ghost_of(slot, pool) {
            self.forget(slot);
        }
        self.add(pool, slot, access);
    }

    /// The policy of the pool of the block that was inserted last goes on with what it has begun.
    pub(crate) fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        let Some(pool) = self.entered.take() else { return };
        if let Some(policy) = &mut self.pools[pool as usize].policy {
            policy.go_on(access, block);
            self.drain(pool, None);
        }
    }

    fn is_ghost_of(&self, slot: Slot, pool: u32) -> bool {
        let policy = self.pools[pool as usize].policy.as_ref();
        self.pool(slot) == Some(pool)
            && policy.is_some_and(|policy| policy.knows(slot, self.number[slot.index()].wrapping_sub(1)))
    }

    /// Reports to the policy of `pool` that `slot`, which is in the list or a ghost of that policy, is resident.
    fn add(&mut self, pool: u32, slot: Slot, access: &Access) {
        let budget = self.budget;
        if let Some(policy) = &mut self.pools[pool as usize].policy {
            policy.widen(budget);
            self.drain(pool, Some(slot));
            let ghost = self.is_ghost_of(slot, pool).then(|| self.number[slot.index()].wrapping_sub(1));
            if let Some(policy) = &mut self.pools[pool as usize].policy {
                self.number[slot.index()] = policy.insert(slot, ghost, access, budget) + 1;
            }
        }
        self.of[slot.index()] = pool + 1;
        self.drain(pool, None);
    }

    /// `slot`, which is in a pool, was referenced and stays in it.
    pub(crate) fn hit(&mut self, slot: Slot, access: &Access) {
        let (pool, number) = (self.of[slot.index()] - 1, self.number[slot.index()].wrapping_sub(1));
        self.step_aside(pool, slot);
        let Pool { list, policy, before, .. } = &mut self.pools[pool as usize];
        list.move_to_front(&mut self.chains, slot);
        if let Some(policy) = policy
            && policy.knows(slot, number)
        {
            policy.hit(number, access);
            self.drain(pool, None);
        } else if before.is_some() && self.is_of_before(pool, slot) {
            self.take_from_before(pool, slot);
            self.add(pool, slot, access);
        }
    }

    /// Whether `slot`, a block of `pool`, has not been handed over yet.
    fn is_of_before(&self, pool: u32, slot: Slot) -> bool {
        let (Pool { policy, before, .. }, number) =
            (&self.pools[pool as usize], self.number[slot.index()].wrapping_sub(1));
        match before {
            Some(Before::Policy(local)) => local.knows(slot, number),
            Some(Before::List { .. }) => !policy.as_ref().is_some_and(|policy| policy.knows(slot, number)),
            None => false,
        }
    }

    fn take_from_before(&mut self, pool: u32, slot: Slot) {
        let number = std::mem::take(&mut self.number[slot.index()]).wrapping_sub(1);
        match &mut self.pools[pool as usize].before {
            Some(Before::Policy(local)) => local.remove(number),
            Some(Before::List { count, .. }) => *count -= 1,
            None => unreachable!("a block of what managed the pool before"),
        }
        self.fit(pool);
    }

    /// Makes `slot` the most recently used of its pool, if that is only a list.
    pub(crate) fn renew(&mut self, slot: Slot) {
        let pool = self.of[slot.index()] - 1;
        let Pool { policy, before, .. } = &self.pools[pool as usize];
        // A block that stays at its place is not passed by a hand-over.
        if policy.is_none() && before.is_none() {
            self.step_aside(pool, slot);
            self.pools[pool as usize].list.move_to_front(&mut self.chains, slot);
        }
    }

    /// `slot` is about to leave its place in the list of `pool`: a hand-over moves past it.
    fn step_aside(&mut self, pool: u32, slot: Slot) {
        let Pool { list, before, swept, .. } = &mut self.pools[pool as usize];
        swept.take_if(|(_, last)| *last == slot);
        if let Some(Before::List { mru, next, .. }) = before
            && *next == Some(slot)
        {
            *next = if *mru { list.after(&self.chains, slot) } else { list.before(&self.chains, slot) };
        }
    }

    fn unlink(&mut self, pool: u32, slot: Slot) {
        self.step_aside(pool, slot);
        self.pools[pool as usize].list.unlink(&mut self.chains, slot);
    }

    /// Takes `slot` out of its pool, which forgets it.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let pool = self.of[slot.index()] - 1;
        self.unlink(pool, slot);
        if self.is_of_before(pool, slot) {
            self.take_from_before(pool, slot);
        } else if let Some(policy) = &mut self.pools[pool as usize].policy {
            policy.remove(self.number[slot.index()].wrapping_sub(1));
            self.fit(pool);
        }
        self.clear(slot);
    }

    /// Makes the policy that knows `slot` as a ghost, if any, forget it.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let Some(pool) = self.pool(slot) else { return };
        let number = std::mem::take(&mut self.number[slot.index()]).wrapping_sub(1);
        self.of[slot.index()] = 0;
        let Pool { policy, before, .. } = &mut self.pools[pool as usize];
        match (policy, before) {
            (Some(policy), _) if policy.knows(slot, number) => policy.forget(number),
            (_, Some(Before::Policy(before))) => before.forget(number),
            _ => unreachable!("only policies of the registry have ghosts"),
        }
        self.drain(pool, None);
    }

    /// Takes out the block that leaves `pool` first; returns also whether its policy remembers it as a ghost.
    /// `incoming`, if given, must be inserted into this pool next.
    pub(crate) fn evict(&mut self, pool: u32, incoming: Option<(Slot, &Access)>) -> (Slot, bool) {
        let budget = self.budget;
        if let Some(slot) = self.first_of_before(pool) {
            self.leave_before(pool, slot);
            self.unlink(pool, slot);
            self.clear(slot);
            return (slot, false);
        }
        // A policy that lent blocks is not full: it sheds one, and gets the incoming block as into free room.
        let is_full = self.pools[pool as usize].policy.as_ref().is_some_and(Local::is_full);
        let exchanged = incoming.filter(|_| is_full).map(|(slot, access)| {
            let ghost = self.is_ghost_of(slot, pool).then(|| self.number[slot.index()].wrapping_sub(1));
            if ghost.is_none() {
                self.forget(slot);
            }
            (slot, ghost, access)
        });
        let Pool { list, order, policy, .. } = &mut self.pools[pool as usize];
        let slot = match (policy, exchanged) {
            (None, _) => {
                let end = if *order == Order::Mru { list.front() } else { list.back() };
                end.expect("the pool holds a block")
            }
            (Some(policy), Some((incoming, ghost, access))) => {
                let (number, slot) = policy.evict(incoming, ghost, access, budget);
                self.exchange = Some((pool, number));
                slot
            }
            (Some(policy), None) => policy.shed(),
        };
        self.unlink(pool, slot);
        let mut forgotten = self.pools[pool as usize].policy.is_none() || self.drain(pool, Some(slot));
        if incoming.is_none() {
            let gone = self.gone.len();
            self.fit(pool);
            // A smaller pool remembers less.
            if let Some(at) = self.gone[gone..].iter().position(|&gone| gone == slot) {
                self.gone.swap_remove(gone + at);
                forgotten = true;
            }
        }
        if forgotten {
            self.clear(slot);
        }
        (slot, !forgotten)
    }

    /// The blocks of `pool` in the order in which they would leave, as far as it is known.
    pub(crate) fn victims(&self, pool: u32) -> impl Iterator<Item = Slot> + '_ {
        let Pool { list, order, .. } = &self.pools[pool as usize];
        let (chains, mru) = (&self.chains, *order == Order::Mru);
        let first = if mru { list.front() } else { list.back() };
        std::iter::successors(
            first,
            move |&slot| if mru { list.after(chains, slot) } else { list.before(chains, slot) },
        )
    }

    pub(crate) fn check(&self) {
        let mut policies = 0;
        for (at, pool) in (0..).zip(&self.pools) {
            let blocks = pool.list.checked(&self.chains);
            for slot in &blocks {
                assert_eq!(self.pool(*slot), Some(at), "{slot:?} is in another pool");
            }
            let known = (0..self.of.len() as u32).map(Slot).filter(|slot| self.pool(*slot) == Some(at));
            let known: Vec<Slot> = known.collect();
            let of = |local: &Local, slots: &[Slot]| {
                slots.iter().filter(|slot| local.knows(**slot, self.number[slot.index()].wrapping_sub(1))).count()
            };
            let (mut counted, mut all) = (0, 0);
            let before = match &pool.before {
                Some(Before::Policy(before)) => Some(before),
                _ => None,
            };
            for local in pool.policy.iter().chain(before) {
                local.check(of(local, &blocks), of(local, &known), self.budget);
                counted += of(local, &blocks);
                all += of(local, &known);
            }
            let listed = blocks.iter().filter(|slot| !self.is_of_before(at, **slot)).count();
            match &pool.before {
                Some(Before::List { count, .. }) => {
                    assert_eq!(*count as usize, blocks.len() - listed, "blocks to be handed over");
                    assert_eq!(counted + *count as usize, blocks.len(), "a block of a policy is not in its pool");
                }
                Some(Before::Policy(_)) if pool.policy.is_none() => {}
                _ if pool.policy.is_some() => assert_eq!(counted, blocks.len(), "a block is in no policy"),
                _ => assert_eq!(all, known.len() - blocks.len(), "a list has no ghosts"),
            }
            assert!(pool.before.is_none() || self.handing.contains(&at), "nobody hands over");
            policies += usize::from(pool.policy.is_some());
        }
        assert_eq!(self.policies, policies, "the number of pools with a policy is wrong");
        assert!(self.exchange.is_none(), "a block that was to be inserted was not");
    }
}

#[cfg(test)]
mod tests {
    use nigh_policy::{Block, Kind, Stream, Tenant};

    use super::*;

    fn access(slot: Slot) -> Access {
        let block = Block { volume: 0, index: slot.0.into() };
        Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: 0 }
    }

    #[test]
    fn a_hand_over_takes_along_what_a_sweep_reaches() {
        let mut pools = Pools::new(8, 4096, Budget { ghosts: 8, capacity: 8 });
        let pool = pools.open(0);
        (0..4).map(Slot).for_each(|slot| pools.insert(pool, slot, &access(slot), Enter::Referenced));
        let cache = Largest { capacity: 8, slots: 8 };
        pools.set_order(pool, Order::Policy("lirs".parse().expect("registered")), cache).expect("possible");
        // The next one to move.
        pools.renew(Slot(0));
        pools.check();
        assert_eq!(pools.hand_over(9, &access), 4);
        assert!(!pools.is_handing_over(pool));
        pools.check();
    }
}
