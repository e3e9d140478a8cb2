//! The interface of schemes of levels.

use nigh_policy::Slot;

use crate::Counts;

/// The most levels that a scheme manages.
pub const LEVELS_MAX: usize = 8;

/// A level: 0 is the client's own memory, the highest; the last one is next to the home device.
pub type Level = u8;

/// The level at which a referenced block was found, and the one that caches it from now on: the request Retrieve(b, i, j) of section
/// 5.3.2.1. `None` is L_out: no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieve {
    /// The level that had the block; `None` for a miss.
    pub from: Option<Level>,
    /// The level that caches it now.
    pub to: Option<Level>,
}

/// Moves of a reference besides the retrieval, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The block of a slot goes from a level to the next lower one: Demote(b, i, i + 1).
    Demote(Slot, Level),
    /// The block of a slot leaves the last level, for no other.
    Drop(Slot, Level),
    /// Nothing is known of the block of a slot any more. It is cached at no level.
    Forget(Slot),
}

/// A scheme that decides for all levels.
pub trait Tier {
    /// References the block of `slot`. Blocks that have to move are added to `moves`.
    fn reference(&mut self, slot: Slot, moves: &mut Vec<Move>) -> Retrieve;

    /// Forgets the block of `slot`, whose contents are no longer valid at any level. It is not among the `moves` itself.
    fn remove(&mut self, slot: Slot, moves: &mut Vec<Move>);

    /// The level that caches the block of `slot`.
    fn level(&self, slot: Slot) -> Option<Level>;

    /// Counts since the start.
    fn counts(&self) -> &Counts;

    /// Counts anew, as after a warm-up.
    fn restart(&mut self);

    /// Recounts every invariant.
    ///
    /// # Panics
    /// If one is broken.
    fn check(&self);
}
