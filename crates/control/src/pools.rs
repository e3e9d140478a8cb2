//! Priority levels (4.1.1): the pools of a tenant's blocks, each with its own policy; the lowest that holds a block loses it.

use std::collections::BTreeMap;

use nigh_policy::list::{Links, List};
use nigh_policy::{Access, Policy, Setup, Slot, Spec, build, registry};

use crate::directive::{Limits, Order, Refusal};

const NONE: u32 = u32::MAX;

/// Whether `spec` gives up a block only when its cache is full. A pool never is: it grows and shrinks with what LRU-SP
/// gives its tenant.
fn is_for_one_size(spec: &Spec) -> bool {
    registry().iter().any(|info| info.name == spec.name() && info.one_size)
}

/// The blocks of one priority of one tenant.
struct Pool {
    priority: i32,
    /// The most recently used first, whatever the order is.
    list: List,
    order: Order,
    /// The policy of the registry that manages it.
    policy: Option<Box<dyn Policy + Send>>,
}

/// The pools of all tenants.
///
/// A pool that a policy of the registry manages is a cache of varying size inside the cache: the policy is asked for a
/// victim before its pool is as large as the whole cache. What it remembers without contents is bounded by its share of
/// the ghosts that [`Limits::policies`] divides.
pub(crate) struct Pools {
    links: Links,
    pools: Vec<Pool>,
    free: Vec<u32>,
    /// By slot, the pool it is in, or whose policy knows it as a ghost.
    of: Vec<u32>,
    /// Of each policy of the registry.
    setup: Setup,
    policies: usize,
    /// The pool whose policy was asked for a victim and is still to be told what came instead.
    asked: Option<u32>,
    /// Slots that policies no longer remember, until the owner of the pools takes them.
    gone: Vec<Slot>,
}

impl Pools {
    /// For slots `0..setup.slots`; the policies of all pools together have `ghosts` ghosts.
    pub(crate) fn new(setup: &Setup, ghosts: u32, limits: &Limits) -> Pools {
        let (links, []) = Links::new(setup.slots);
        let setup = Setup { ghosts: ghosts / limits.policies.max(1) as u32, ..setup.clone() };
        let of = vec![NONE; setup.slots as usize];
        Pools { links, pools: Vec::new(), free: Vec::new(), of, setup, policies: 0, asked: None, gone: Vec::new() }
    }

    /// How many pools a policy of the registry manages.
    pub(crate) fn policies(&self) -> usize {
        self.policies
    }

    /// The next slot that no policy remembers any more.
    pub(crate) fn take_gone(&mut self) -> Option<Slot> {
        self.gone.pop()
    }

    fn open(&mut self, priority: i32) -> u32 {
        let pool = self.free.pop().unwrap_or_else(|| {
            let list = self.links.list();
            self.pools.push(Pool { priority, list, order: Order::Lru, policy: None });
            self.pools.len() as u32 - 1
        });
        self.pools[pool as usize].priority = priority;
        pool
    }

    /// Gives an empty pool back.
    fn close(&mut self, pool: u32) {
        assert!(self.pools[pool as usize].list.is_empty(), "an open pool holds blocks");
        self.set_order(pool, Order::Lru, &|_| unreachable!("the pool is empty")).expect("LRU can always be made");
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

    /// The pool of a resident slot or of a ghost.
    pub(crate) fn pool(&self, slot: Slot) -> Option<u32> {
        Some(self.of[slot.index()]).filter(|&pool| pool != NONE)
    }

    /// Changes the policy of `pool`. A policy of the registry is told of its blocks from the one referenced longest ago
    /// on; the ghosts of the one before are gone.
    pub(crate) fn set_order(
        &mut self,
        pool: u32,
        order: Order,
        access: &dyn Fn(Slot) -> Access,
    ) -> Result<(), Refusal> {
        let mut policy = match &order {
            Order::Policy(spec) if is_for_one_size(spec) => {
                return Err(Refusal::OneSize { policy: spec.name().to_owned() });
            }
            Order::Policy(spec) => Some(build(spec, &self.setup)?),
            Order::Lru | Order::Mru => None,
        };
        if self.asked == Some(pool) {
            self.asked = None;
        }
        let own = &mut self.pools[pool as usize];
        if own.policy.is_some() {
            self.policies -= 1;
            let members: Vec<Slot> = own.list.iter(&self.links).collect();
            members.iter().for_each(|slot| self.of[slot.index()] = NONE);
            for slot in (0..self.of.len() as u32).map(Slot) {
                if self.of[slot.index()] == pool {
                    self.of[slot.index()] = NONE;
                    self.gone.push(slot);
                }
            }
            members.iter().for_each(|slot| self.of[slot.index()] = pool);
        }
        if let Some(policy) = &mut policy {
            self.policies += 1;
            let mut at = own.list.back(&self.links);
            while let Some(slot) = at {
                policy.insert(slot, &access(slot));
                at = own.list.before(&self.links, slot);
            }
        }
        own.order = order;
        own.policy = policy;
        Ok(())
    }

    /// Adds a referenced block as the most recently used.
    pub(crate) fn insert(&mut self, pool: u32, slot: Slot, access: &Access) {
        self.asked.take_if(|asked| *asked == pool);
        self.pools[pool as usize].list.push_front(&mut self.links, slot);
        self.add(pool, slot, access);
    }

    /// Adds a block that comes from elsewhere without a reference, where it leaves later or, if not `later`, first.
    pub(crate) fn move_in(&mut self, pool: u32, slot: Slot, access: &Access, later: bool) {
        let Pool { list, order, .. } = &mut self.pools[pool as usize];
        if (*order == Order::Mru) == later {
            list.push_back(&mut self.links, slot);
        } else {
            list.push_front(&mut self.links, slot);
        }
        self.add(pool, slot, access);
    }

    fn add(&mut self, pool: u32, slot: Slot, access: &Access) {
        self.of[slot.index()] = pool;
        if let Some(policy) = &mut self.pools[pool as usize].policy {
            policy.insert(slot, access);
            self.drain(pool);
        }
    }

    /// `slot`, which is in a pool, was referenced and stays in it.
    pub(crate) fn hit(&mut self, slot: Slot, access: &Access) {
        let pool = self.of[slot.index()];
        let Pool { list, policy, .. } = &mut self.pools[pool as usize];
        list.move_to_front(&mut self.links, slot);
        if let Some(policy) = policy {
            policy.hit(slot, access);
            self.drain(pool);
        }
    }

    /// Takes `slot` out of its pool, which forgets it.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let pool = std::mem::replace(&mut self.of[slot.index()], NONE);
        let Pool { list, policy, .. } = &mut self.pools[pool as usize];
        list.unlink(&mut self.links, slot);
        if let Some(policy) = policy {
            policy.remove(slot);
            self.drain(pool);
        }
    }

    /// Makes the policy that knows `slot` as a ghost forget it.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let pool = std::mem::replace(&mut self.of[slot.index()], NONE);
        self.pools[pool as usize].policy.as_mut().expect("only policies of the registry have ghosts").remove(slot);
        self.drain(pool);
    }

    /// Takes the block out that leaves `pool` first; whether its policy remembers it as a ghost. `incoming` is the slot
    /// that needs room, in whichever pool; the next call is [`answer`](Pools::answer), or `insert` into this pool.
    pub(crate) fn evict(&mut self, pool: u32, incoming: Slot, access: &Access) -> (Slot, bool) {
        let Pool { list, order, policy, .. } = &mut self.pools[pool as usize];
        let Some(policy) = policy else {
            let end = if *order == Order::Mru { list.front(&self.links) } else { list.back(&self.links) };
            let slot = end.expect("the pool holds a block");
            list.unlink(&mut self.links, slot);
            self.of[slot.index()] = NONE;
            return (slot, false);
        };
        let slot = policy.evict(incoming, access).expect("a policy of the registry keeps what comes in");
        list.unlink(&mut self.links, slot);
        self.asked = Some(pool);
        self.drain(pool);
        let before = self.gone.len();
        self.gone.retain(|&gone| gone != slot);
        (slot, before == self.gone.len())
    }

    /// The block for which a policy made room comes into another pool than its own, or into none. So that no call of its
    /// contract is missing, the policy is told that the block came and was invalidated.
    pub(crate) fn answer(&mut self, incoming: Slot, access: &Access) {
        let Some(asked) = self.asked.take() else { return };
        let policy = self.pools[asked as usize].policy.as_mut().expect("only policies of the registry are asked");
        policy.insert(incoming, access);
        policy.remove(incoming);
        if self.of[incoming.index()] == asked {
            self.of[incoming.index()] = NONE;
        }
        self.drain(asked);
    }

    /// `incoming` is about to be inserted into `pool`, or into none: the other pools forget it.
    pub(crate) fn incoming(&mut self, pool: Option<u32>, incoming: Slot, access: &Access) {
        if self.asked != pool {
            self.answer(incoming, access);
        }
        if self.pool(incoming).is_some_and(|before| Some(before) != pool) {
            self.forget(incoming);
        }
    }

    fn drain(&mut self, pool: u32) {
        let Some(policy) = &mut self.pools[pool as usize].policy else { return };
        while let Some(slot) = policy.take_forgotten() {
            self.of[slot.index()] = NONE;
            self.gone.push(slot);
        }
    }

    /// The blocks of `pool` in the order in which they would leave, as far as that is known.
    pub(crate) fn victims(&self, pool: u32) -> impl Iterator<Item = Slot> + '_ {
        let Pool { list, order, .. } = &self.pools[pool as usize];
        let (links, mru) = (&self.links, *order == Order::Mru);
        let first = if mru { list.front(links) } else { list.back(links) };
        std::iter::successors(first, move |&slot| if mru { list.after(links, slot) } else { list.before(links, slot) })
    }

    pub(crate) fn check(&self) {
        for (at, pool) in self.pools.iter().enumerate() {
            for slot in pool.list.checked(&self.links) {
                assert_eq!(self.of[slot.index()], at as u32, "{slot:?} is in another pool");
            }
            if let Some(policy) = &pool.policy {
                policy.check();
            }
        }
    }
}

/// A level: its pool, and what keeps it when it is empty.
struct Level {
    pool: u32,
    /// Files with this priority.
    files: u32,
    /// Whether `set_policy` named it.
    named: bool,
}

/// The levels of one tenant and the priorities of its files: 4.2.1's manager structure.
pub(crate) struct Levels {
    levels: BTreeMap<i32, Level>,
    /// Files with a priority other than 0, by number.
    files: Vec<(u32, i32)>,
}

impl Levels {
    pub(crate) fn new(pools: &mut Pools) -> Levels {
        let ground = Level { pool: pools.open(0), files: 0, named: true };
        Levels { levels: BTreeMap::from([(0, ground)]), files: Vec::new() }
    }

    /// The long-term priority of `file`.
    pub(crate) fn priority(&self, file: u32) -> i32 {
        self.files.binary_search_by_key(&file, |&(file, _)| file).map_or(0, |at| self.files[at].1)
    }

    /// The pool of the long-term priority of `file`.
    pub(crate) fn pool_of_file(&self, file: u32) -> u32 {
        self.levels[&self.priority(file)].pool
    }

    /// Files with a priority other than 0, with their priorities.
    pub(crate) fn files(&self) -> &[(u32, i32)] {
        &self.files
    }

    /// The priorities of levels that have, or had, a policy of their own.
    pub(crate) fn named(&self) -> impl Iterator<Item = i32> + '_ {
        self.levels.iter().filter(|(_, level)| level.named).map(|(&priority, _)| priority)
    }

    pub(crate) fn pool_of_priority(&self, priority: i32) -> Option<u32> {
        self.levels.get(&priority).map(|level| level.pool)
    }

    /// All pools, the lowest priority first.
    pub(crate) fn pools(&self) -> impl Iterator<Item = u32> + '_ {
        self.levels.values().map(|level| level.pool)
    }

    /// Makes sure that there is a level of `priority`.
    pub(crate) fn open(&mut self, priority: i32, limits: &Limits, pools: &mut Pools) -> Result<u32, Refusal> {
        if let Some(level) = self.levels.get(&priority) {
            return Ok(level.pool);
        }
        if self.levels.len() >= limits.levels {
            return Err(Refusal::TooManyLevels { most: limits.levels });
        }
        let pool = pools.open(priority);
        self.levels.insert(priority, Level { pool, files: 0, named: false });
        Ok(pool)
    }

    /// Notes that `set_policy` named the level of `priority`, which is open.
    pub(crate) fn name(&mut self, priority: i32) {
        if let Some(level) = self.levels.get_mut(&priority) {
            level.named = true;
        }
    }

    /// Gives `file` another priority, whose level is open.
    pub(crate) fn set_file(&mut self, file: u32, priority: i32, limits: &Limits) -> Result<(), Refusal> {
        let before = self.priority(file);
        match (self.files.binary_search_by_key(&file, |&(file, _)| file), priority) {
            (Ok(at), 0) => _ = self.files.remove(at),
            (Ok(at), _) => self.files[at].1 = priority,
            (Err(_), 0) => {}
            (Err(_), _) if self.files.len() >= limits.files => {
                return Err(Refusal::TooManyFiles { most: limits.files });
            }
            (Err(at), _) => self.files.insert(at, (file, priority)),
        }
        let mut count = |priority: i32, change: i32| {
            if let Some(level) = self.levels.get_mut(&priority).filter(|_| priority != 0) {
                level.files = level.files.wrapping_add_signed(change);
            }
        };
        count(before, -1);
        count(priority, 1);
        Ok(())
    }

    /// Closes the level of `priority` if nothing needs it.
    pub(crate) fn tidy(&mut self, priority: i32, pools: &mut Pools) {
        let unused = |level: &&Level| level.files == 0 && !level.named && pools.len(level.pool) == 0;
        if let Some(level) = self.levels.get(&priority).filter(unused) {
            pools.close(level.pool);
            self.levels.remove(&priority);
        }
    }

    /// Closes all levels, which are empty.
    pub(crate) fn close(&self, pools: &mut Pools) {
        self.pools().for_each(|pool| pools.close(pool));
    }
}
