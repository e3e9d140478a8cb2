//! A policy of the registry that manages a pool. It numbers the blocks of its pool itself, so that it costs memory only
//! for these and their ghosts. Its capacity is the number of its blocks, or up to 1/128 and at least one block more:
//! tenants take blocks from each other in turn, and a policy that is made smaller and larger each time forgets which
//! blocks are worth keeping. LIRS, for instance, takes the next new block for one with a short re-use distance whenever
//! it grows.

use nigh_policy::{Access, Block, Chosen, Policy, Room, Setup, Slot, Spec, SpecError, build_to_grow};

/// The local number of no slot.
const FREE: u32 = u32::MAX;
/// The number of local numbers at the start.
const SLOTS_FIRST: u32 = 8;

/// The room for ghosts of policies: each policy has a share in proportion to its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Ghosts of all policies of a cache.
    pub(crate) ghosts: u32,
    /// Blocks of the cache.
    pub(crate) capacity: u32,
}

impl Budget {
    fn of(self, blocks: u32) -> u32 {
        let ghosts = u64::from(self.ghosts) * u64::from(blocks) / u64::from(self.capacity.max(1));
        ghosts.min(u64::from(self.ghosts)) as u32
    }
}

/// The largest size of a cache: so far, or once a growth that has begun is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Largest {
    pub(crate) capacity: u32,
    pub(crate) slots: u32,
}

impl Largest {
    /// With room for `capacity` blocks and `slots` slots.
    pub(crate) fn with(self, capacity: u32, slots: u32) -> Largest {
        Largest { capacity: self.capacity.max(capacity), slots: self.slots.max(slots) }
    }
}

/// A policy and the slots of its blocks and ghosts.
pub(crate) struct Local {
    policy: Box<dyn Policy + Send>,
    /// By local number, the host's slot.
    slots: Vec<u32>,
    free: Vec<u32>,
    blocks: u32,
    room: Room,
}

impl Local {
    /// An instance without blocks, which can have all slots of the cache.
    pub(crate) fn new(spec: &Spec, block_bytes: u32, cache: Largest) -> Result<Local, SpecError> {
        let Largest { capacity, slots } = cache;
        let most = Setup { capacity, slots, ghosts: 0, block_bytes, future: None, patterns: None };
        let policy = build_to_grow(spec, SLOTS_FIRST, &most)?;
        let room = Room { capacity: 1, slots: SLOTS_FIRST, ghosts: 0 };
        Ok(Local { policy, slots: Vec::new(), free: Vec::new(), blocks: 0, room })
    }

    /// The most slots that the policy can number.
    pub(crate) fn slots_most(&self) -> u32 {
        self.policy.slots_most()
    }

    /// Its choice, if it chooses among others.
    pub(crate) fn chosen(&self) -> Option<Chosen> {
        self.policy.chosen()
    }

    /// Blocks that are resident.
    pub(crate) fn len(&self) -> u32 {
        self.blocks
    }

    /// Whether `slot`, whose local number is `number` if it has one, is a block or a ghost of this policy.
    pub(crate) fn knows(&self, slot: Slot, number: u32) -> bool {
        self.slots.get(number as usize) == Some(&slot.0)
    }

    /// The next slot that the policy no longer remembers.
    pub(crate) fn take_forgotten(&mut self) -> Option<Slot> {
        let number = self.policy.take_forgotten()?;
        Some(self.release(number.0))
    }

    fn release(&mut self, number: u32) -> Slot {
        self.free.push(number);
        Slot(std::mem::replace(&mut self.slots[number as usize], FREE))
    }

    fn number(&mut self, slot: Slot) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(FREE);
            self.slots.len() as u32 - 1
        });
        self.slots[number as usize] = slot.0;
        number
    }

    /// Whether it has as many blocks as its capacity.
    pub(crate) fn is_full(&self) -> bool {
        self.blocks >= self.room.capacity
    }

    /// The most by which its capacity exceeds its blocks. The resident HIR blocks of LIRS are 1 %, at least 2.
    fn slack(&self) -> u32 {
        (self.blocks / 128).max(1)
    }

    /// Adjusts the room to the number of blocks. The caller must then take the slots that are forgotten because of it.
    pub(crate) fn fit(&mut self, budget: Budget) {
        let slots = match self.slots.len() as u32 > self.room.slots {
            true => (self.slots.len() as u32).next_power_of_two().min(self.policy.slots_most()),
            false => self.room.slots,
        };
        let capacity = self.room.capacity.clamp(self.blocks.max(1), self.blocks + self.slack());
        let room = Room { capacity, slots, ghosts: budget.of(self.blocks) };
        if room != self.room {
            self.room = room;
            self.policy.resize(room);
        }
    }

    /// Makes room for one more block. The caller must take the slots that are forgotten because of it before the
    /// `insert`.
    pub(crate) fn widen(&mut self, budget: Budget) {
        self.blocks += 1;
        self.fit(budget);
    }

    /// Inserts `slot`, for which there is room: a ghost with the local number `ghost`, or a new slot. Returns its local
    /// number.
    pub(crate) fn insert(&mut self, slot: Slot, ghost: Option<u32>, access: &Access, budget: Budget) -> u32 {
        let number = ghost.unwrap_or_else(|| self.number(slot));
        self.fit(budget);
        self.policy.insert(Slot(number), access);
        number
    }

    /// The policy goes on with what it has begun. The caller must take the slots that are forgotten because of it.
    pub(crate) fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        self.policy.go_on(access, &|number| block(Slot(self.slots[number.index()])));
    }

    /// The block with the local number `number` was referenced.
    pub(crate) fn hit(&mut self, number: u32, access: &Access) {
        self.policy.hit(Slot(number), access);
    }

    /// `incoming` replaces a block of a full policy, which leaves. Returns the local number with which `incoming` must be inserted next,
    /// and the block.
    pub(crate) fn evict(&mut self, incoming: Slot, ghost: Option<u32>, access: &Access, budget: Budget) -> (u32, Slot) {
        let number = ghost.unwrap_or_else(|| self.number(incoming));
        self.fit(budget);
        let victim = self.policy.evict(Slot(number), access).expect("a policy of the registry keeps what comes in");
        (number, Slot(self.slots[victim.index()]))
    }

    /// Takes out the block that leaves first.
    pub(crate) fn shed(&mut self) -> Slot {
        let victim = self.policy.shed();
        self.blocks -= 1;
        Slot(self.slots[victim.index()])
    }

    /// Takes out the block with the local number `number`.
    pub(crate) fn remove(&mut self, number: u32) {
        self.blocks -= 1;
        self.forget(number);
    }

    /// Takes out the ghost with the local number `number`.
    pub(crate) fn forget(&mut self, number: u32) {
        self.policy.remove(Slot(number));
        self.release(number);
    }

    /// Recounts the invariants; `blocks` are resident, `known` are resident or ghosts.
    pub(crate) fn check(&self, blocks: usize, known: usize, budget: Budget) {
        assert_eq!(self.blocks as usize, blocks, "the number of a policy's blocks is wrong");
        let capacities = self.blocks.max(1)..=self.blocks + self.slack();
        assert!(capacities.contains(&self.room.capacity), "the capacity is not that of the blocks");
        let used = self.slots.iter().filter(|&&slot| slot != FREE).count();
        assert_eq!(used, known, "a local number belongs to nothing");
        assert!(known - blocks <= budget.of(self.blocks) as usize, "a policy remembers more ghosts than it may");
        assert_eq!(used + self.free.len(), self.slots.len(), "a local number is lost");
        self.policy.check();
    }
}
