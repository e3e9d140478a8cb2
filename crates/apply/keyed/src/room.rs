//! How many values and evicted keys a policy is given room for.

use nigh_policy::{Policy, Spec, ghosts};

use crate::Error;

/// The most evicted keys that a policy remembers with `capacity` values.
pub(crate) fn ghosts_of(spec: &Spec, capacity: u32) -> Result<u32, Error> {
    // A cache of one can be too small for a parameter that is a count.
    if ghosts(spec, 1).or_else(|_| ghosts(spec, capacity))? == u32::MAX {
        return Err(Error::Unlimited { policy: spec.clone() });
    }
    Ok(ghosts(spec, capacity)?)
}

/// An error if `policy` cannot number `capacity` values, `ghosts` evicted keys and one that comes in.
pub(crate) fn check_slots(spec: &Spec, policy: &dyn Policy, capacity: u32, ghosts: u32) -> Result<(), Error> {
    let most = policy.slots_most();
    if capacity.checked_add(ghosts).and_then(|slots| slots.checked_add(1)).is_some_and(|slots| slots <= most) {
        return Ok(());
    }
    Err(Error::TooLarge { policy: spec.clone(), capacity, ghosts, most })
}
