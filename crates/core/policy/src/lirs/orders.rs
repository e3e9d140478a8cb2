//! The operations of LIRS on stack S and list Q, and both as logs.

use crate::Slot;
use crate::recency::{self, Order, Places};

// Statuses. A block that is neither resident nor a ghost is HIR, but unknown.
pub(super) const UNKNOWN: u32 = 0;
pub(super) const LIR: u32 = 1;
/// HIR and resident: in Q, and possibly in S.
pub(super) const HIR: u32 = 2;
/// HIR and not resident: in S or its extension.
pub(super) const GHOST: u32 = 3;

// The origin of an HIR block in Q, while it is known.
/// Entered by a reference, together with the top of S.
pub(super) const REFERENCED: u32 = 0;
/// Entered from the bottom of S.
pub(super) const DEMOTED: u32 = 1;

/// The hand of S at the LIR block at the bottom; if there is none, S is empty.
pub(super) const BOTTOM: usize = 0;
/// The hand of S with no ghosts before it except demoted ones, which exist only in the extension.
pub(super) const GHOSTS: usize = 1;
/// The hand of S with no demoted ghost before it; never beyond the bottom.
pub(super) const DEMOTED_GHOSTS: usize = 2;
pub(super) const HANDS: usize = 3;

/// Stack S (from its extension over its bottom to its top), list Q, and the status of each block.
///
/// A place is the position of a block in S. Three places are stored as hands: if the block at a hand leaves or moves to
/// the top, the hand moves to the next block above. The head is the place above the top.
pub trait Orders: Send + 'static {
    /// The most slots there can be.
    const SLOTS_MOST: u32;
    /// The number of places that `live` examines.
    const LOOK: u32;

    /// S and Q of slots `0..slots`, empty. `counting` allows calls of `after`.
    fn new(slots: u32, counting: bool) -> Self;

    /// Makes room for slots `0..slots`, at least as many as before and at most `SLOTS_MOST`.
    fn grow(&mut self, slots: u32);
    /// All slots, known or not.
    fn slots(&self) -> impl Iterator<Item = Slot>;
    /// The status of `slot`.
    fn status(&self, slot: Slot) -> u32;
    /// Changes the status of `slot`.
    fn set_status(&mut self, slot: Slot, status: u32);
    /// Loads the state of `slot` into the processor's cache.
    fn warm(&self, slot: Slot);

    /// Blocks in S and its extension.
    fn stack_len(&self) -> u32;
    /// Whether `slot` is in S or its extension.
    fn stacked(&self, slot: Slot) -> bool;
    /// Puts `slot`, which is not in S, on its top.
    fn push(&mut self, slot: Slot, status: u32);
    /// Moves `slot`, which is in S, to its top.
    fn refresh(&mut self, slot: Slot, status: u32);
    /// Takes `slot` out of S.
    fn leave(&mut self, slot: Slot, status: u32);

    /// The place of `slot`, which is in S.
    fn place(&self, slot: Slot) -> u32;
    /// The slot whose place is or was `place`.
    fn slot(&self, place: u32) -> Slot;
    /// The slot whose place is `place`, if there is one.
    fn at(&self, place: u32) -> Option<Slot>;
    /// Which of the `LOOK` places from `place` on are a slot's, as bits.
    fn live(&self, place: u32) -> u32;
    /// The place `ahead` places above `place`, which is at most `LOOK`.
    fn ahead(&self, place: u32, ahead: u32) -> u32;
    /// Whether `place` is below `other`.
    fn before(&self, place: u32, other: u32) -> bool;
    /// The place above the top.
    fn head(&self) -> u32;
    /// A place below which there is no block.
    fn tail(&self) -> u32;
    /// Declares that there is no block below `place`.
    fn set_tail(&mut self, place: u32);
    /// A stored place.
    fn hand(&self, hand: usize) -> u32;
    /// Stores `place`.
    fn set_hand(&mut self, hand: usize, place: u32);
    /// Blocks in S above `slot`.
    fn after(&self, slot: Slot) -> u32;
    /// S from its bottom to its top, checked.
    fn stack(&self) -> Vec<Slot>;

    /// Blocks in Q.
    fn queue_len(&self) -> u32;
    /// Whether `slot` is in Q.
    fn queued(&self, slot: Slot) -> bool;
    /// The origin of `slot`, which is HIR, in Q.
    fn came(&self, slot: Slot) -> u32;
    /// Adds `slot`, which is not in Q, at its end.
    fn enqueue(&mut self, slot: Slot, came: u32);
    /// Moves `slot`, which is in Q, to its end.
    fn requeue(&mut self, slot: Slot, came: u32);
    /// Takes `slot` out of Q.
    fn leave_queue(&mut self, slot: Slot, came: u32);
    /// Takes the block at the front out of Q.
    fn pop_queue(&mut self) -> Option<Slot>;
    /// Q from its front, checked.
    fn queue(&self) -> Vec<Slot>;
}

/// S and Q as logs: the fast representation.
pub struct Logs {
    places: Places<2>,
    /// S with its top as the latest.
    stack: Order<0, HANDS>,
    /// Q with its end as the latest.
    queue: Order<1, 0>,
}

impl Orders for Logs {
    const SLOTS_MOST: u32 = recency::SLOTS_MOST;
    const LOOK: u32 = recency::LOOK;

    fn new(slots: u32, counting: bool) -> Logs {
        Logs { places: Places::new(slots), stack: Order::new(counting), queue: Order::new(false) }
    }

    fn grow(&mut self, slots: u32) {
        self.places.grow(slots);
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.places.slots()
    }

    #[inline(always)]
    fn status(&self, slot: Slot) -> u32 {
        self.stack.tag(&self.places, slot)
    }

    #[inline(always)]
    fn set_status(&mut self, slot: Slot, status: u32) {
        self.stack.set_tag(&mut self.places, slot, status);
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.places.warm(slot);
    }

    #[inline(always)]
    fn stack_len(&self) -> u32 {
        self.stack.len()
    }

    #[inline(always)]
    fn stacked(&self, slot: Slot) -> bool {
        self.stack.contains(&self.places, slot)
    }

    #[inline(always)]
    fn push(&mut self, slot: Slot, status: u32) {
        self.stack.push(&mut self.places, slot, status);
    }

    #[inline(always)]
    fn refresh(&mut self, slot: Slot, status: u32) {
        self.stack.refresh(&mut self.places, slot, status);
    }

    #[inline(always)]
    fn leave(&mut self, slot: Slot, status: u32) {
        self.stack.leave(&mut self.places, slot, status);
    }

    #[inline(always)]
    fn place(&self, slot: Slot) -> u32 {
        self.stack.place(&self.places, slot)
    }

    #[inline(always)]
    fn slot(&self, place: u32) -> Slot {
        self.stack.slot(place)
    }

    #[inline(always)]
    fn at(&self, place: u32) -> Option<Slot> {
        self.stack.at(&self.places, place)
    }

    #[inline(always)]
    fn live(&self, place: u32) -> u32 {
        self.stack.live(&self.places, place)
    }

    #[inline(always)]
    fn ahead(&self, place: u32, ahead: u32) -> u32 {
        self.stack.ahead(place, ahead)
    }

    #[inline(always)]
    fn before(&self, place: u32, other: u32) -> bool {
        self.stack.before(place, other)
    }

    #[inline(always)]
    fn head(&self) -> u32 {
        self.stack.head()
    }

    #[inline(always)]
    fn tail(&self) -> u32 {
        self.stack.tail()
    }

    #[inline(always)]
    fn set_tail(&mut self, place: u32) {
        self.stack.set_tail(place);
    }

    #[inline(always)]
    fn hand(&self, hand: usize) -> u32 {
        self.stack.hand(hand)
    }

    #[inline(always)]
    fn set_hand(&mut self, hand: usize, place: u32) {
        self.stack.set_hand(hand, place);
    }

    fn after(&self, slot: Slot) -> u32 {
        self.stack.after(&self.places, slot)
    }

    fn stack(&self) -> Vec<Slot> {
        self.stack.checked(&self.places)
    }

    #[inline(always)]
    fn queue_len(&self) -> u32 {
        self.queue.len()
    }

    fn queued(&self, slot: Slot) -> bool {
        self.queue.contains(&self.places, slot)
    }

    #[inline(always)]
    fn came(&self, slot: Slot) -> u32 {
        self.queue.tag(&self.places, slot)
    }

    #[inline(always)]
    fn enqueue(&mut self, slot: Slot, came: u32) {
        self.queue.push(&mut self.places, slot, came);
    }

    #[inline(always)]
    fn requeue(&mut self, slot: Slot, came: u32) {
        self.queue.refresh(&mut self.places, slot, came);
    }

    #[inline(always)]
    fn leave_queue(&mut self, slot: Slot, came: u32) {
        self.queue.leave(&mut self.places, slot, came);
    }

    #[inline(always)]
    fn pop_queue(&mut self) -> Option<Slot> {
        self.queue.pop(&mut self.places)
    }

    fn queue(&self) -> Vec<Slot> {
        self.queue.checked(&self.places)
    }
}
