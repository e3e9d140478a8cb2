//! The number of blocks in memory, and the next policy.
//!
//! 1. `goal` is set by a change of size, `next` by a change of policy.
//! 2. Each step (`change.rs`) brings `capacity` closer to the goal, and gives the index room for the ghosts of both policies.

use nigh_policy::{Room, Spec};

use crate::config::Marks;
use crate::decider::Successor;
use crate::error::ConfigError;
use crate::slots::Slots;

/// The number of blocks in memory, and the change of it or of the policy that is being carried out.
pub(crate) struct Size {
    pub(crate) capacity: u32,
    /// The target of the capacity.
    pub(crate) goal: u32,
    /// The limits of dirty blocks for `capacity`.
    pub(crate) marks: Marks,
    /// The next policy, which decides as soon as there is room for its ghosts.
    pub(crate) next: Option<Successor>,
    /// The number of ghosts that the policy has room for, and that of its predecessor while there is one.
    pub(crate) ghosts: u32,
    pub(crate) ghosts_before: u32,
    /// Whether `step` may have something to do.
    pub(crate) stepping: bool,
}

impl Size {
    pub(crate) fn new(capacity: u32, ghosts: u32, marks: Marks) -> Size {
        Size { capacity, goal: capacity, marks, next: None, ghosts, ghosts_before: 0, stepping: false }
    }

    pub(crate) fn room(&self, slots: &Slots) -> Room {
        Room { capacity: self.capacity, slots: slots.numbers(), ghosts: self.ghosts }
    }

    /// Makes room in the index for the largest possible number of blocks and ghosts.
    pub(crate) fn set_slots(&mut self, slots: &mut Slots) {
        slots.set_limit(Slots::most(self.capacity, self.ghosts.max(self.ghosts_before)));
    }

    /// Slots of the index with `capacity` blocks and this many ghosts, or as many as it has.
    pub(crate) fn numbers(&self, slots: &Slots, capacity: u32, ghosts: u32) -> u32 {
        slots.numbers_for(Slots::most(capacity, ghosts.max(self.ghosts)))
    }

    /// Checks that a policy that numbers `most` slots can number those of the index with `capacity` blocks and this
    /// many ghosts.
    pub(crate) fn check_slots(
        &self,
        slots: &Slots,
        policy: &Spec,
        capacity: u32,
        ghosts: u32,
        most: u32,
    ) -> Result<(), ConfigError> {
        match self.numbers(slots, capacity, ghosts) {
            slots if slots > most => Err(ConfigError::Slots { policy: Box::new(policy.clone()), slots, most }),
            _ => Ok(()),
        }
    }
}
