//! The contract between a policy and its host.

use crate::chosen::Chosen;

/// A policy's handle of a known block, resident or ghost: a small dense number that the host hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The position of this slot in a structure of arrays.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A block: `index` counts blocks within `volume`, which is a file, a disk or an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Which file, disk or export.
    pub volume: u32,
    /// Position within the volume, in blocks.
    pub index: u64,
}

/// The party charged for a block: an NBD export, a process, a library handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// The identity of the issuing code or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// Why a block is referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A request waits for the contents.
    Read,
    /// The block is overwritten, whole or in part.
    Write,
    /// The block is fetched ahead; nothing waits for it yet.
    Prefetch,
}

/// One reference to one block.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The referenced block.
    pub block: Block,
    /// The tenant that is charged.
    pub tenant: Tenant,
    /// The code or file that issued it.
    pub stream: Stream,
    /// The reason.
    pub kind: Kind,
    /// The host's reference counter: grows by one with each access, and never decreases.
    pub tick: u64,
}

/// The room of a policy's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many blocks can be resident; at least 1.
    pub capacity: u32,
    /// Slots are numbered `0..slots`. Never decreases.
    pub slots: u32,
    /// How many ghosts the host can hold.
    pub ghosts: u32,
}

/// A replacement policy: a pure state machine that decides which resident block leaves.
///
/// The host owns the mapping of blocks to slots and calls, for each reference:
///
/// * resident: [`hit`](Policy::hit);
/// * otherwise, when every frame is taken: [`evict`](Policy::evict), then [`insert`](Policy::insert) unless that rejects
///   the block;
/// * otherwise: `insert`.
///
/// [`resize`](Policy::resize) makes its cache smaller or larger, and [`shed`](Policy::shed) evicts a block without
/// another one entering.
///
/// The host drains [`take_forgotten`](Policy::take_forgotten) after each of these calls, at the latest before its next
/// call of any but `hit`, because a forgotten slot must not be used again until then. An `evict` that names a victim is
/// followed by the `insert` of the same incoming slot, with only `take_forgotten` in between.
pub trait Policy {
    /// `slot` is resident and was referenced.
    fn hit(&mut self, slot: Slot, access: &Access);

    /// The cache is full and `incoming` (new, or a ghost) needs room: names the resident slot that leaves. The policy
    /// may keep the slot as a ghost; otherwise the slot is forgotten.
    ///
    /// `None` rejects `incoming`: no block leaves, no `insert` follows, and `incoming` stays what it was, a ghost or
    /// unknown.
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot>;

    /// `slot` (new, or a ghost) is resident from now on.
    fn insert(&mut self, slot: Slot, access: &Access);

    /// Goes on with a change that the policy itself has begun, by a few blocks. A host calls this after each `insert`, with the same access; `block` returns
    /// the block of a resident slot.
    #[inline(always)]
    fn go_on(&mut self, _access: &Access, _block: &dyn Fn(Slot) -> Block) {}

    /// The host wants fewer blocks, and nothing is incoming: names the resident slot that leaves, as `evict` would. At
    /// least one block is resident. The host may call this repeatedly, whether or not the cache is full. The policy may
    /// keep the slot as a ghost; otherwise the slot is forgotten. This is not a reference: state that a paper adapts at
    /// references stays as it is.
    fn shed(&mut self) -> Slot;

    /// From now on the host has `room`. Order and ghosts are kept. A parameter given as a share of the cache is a share
    /// of the new capacity, and a count is lowered if it does not fit. Ghosts beyond `room.ghosts` are forgotten, the
    /// oldest first. Takes amortized time in proportion to the change: a host may call it for every block that is added
    /// or removed.
    ///
    /// If more blocks are resident than `room.capacity`, the host calls `shed` until they fit, with only
    /// `take_forgotten` and `resize` in between.
    fn resize(&mut self, room: Room);

    /// The most that `room.slots` may be in a `resize`.
    fn slots_most(&self) -> u32 {
        u32::MAX
    }

    /// `slot` was invalidated or its load failed: it is neither resident nor a ghost from now on.
    /// The host may use the slot again at once; it is not reported as forgotten.
    fn remove(&mut self, slot: Slot);

    /// The next slot that left the cache and that the policy no longer remembers; the host can use it again.
    fn take_forgotten(&mut self) -> Option<Slot>;

    /// Recounts every invariant and panics on a broken one (tests and fuzzing only).
    fn check(&self);

    /// Prefetches the state of `slot` into the processor's cache: the slot will be referenced a few accesses from now.
    #[inline(always)]
    fn warm(&self, _slot: Slot) {}

    /// Prefetches the memory besides the state of `slot` that a reference to it will touch. That reference comes sooner
    /// than after `warm`, which has already loaded the state itself.
    #[inline(always)]
    fn approach(&self, _slot: Slot) {}

    /// For a policy that chooses among others: its choice.
    fn chosen(&self) -> Option<Chosen> {
        None
    }

    /// Reports internal quantities by name, for plots of a policy's state over time.
    fn gauges(&self, _report: &mut dyn FnMut(&'static str, u64)) {}
}
