//! Policies as their papers tell them, in the plainest data structures, at whatever cost.
//!
//! They share no code with `nigh-policy`: what the two agree on has been written down twice.

mod lru;

use std::collections::BTreeSet;

use crate::Outcome;

/// A naive model of a policy: a whole cache, keyed by block.
pub trait Model {
    /// References `block`.
    fn access(&mut self, block: u64) -> Outcome;

    /// The blocks remembered without their contents.
    fn ghosts(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }
}

/// The model of the policy `spec`, or `None` where there is none. `references` is the whole reference string, which
/// only offline policies look at.
pub fn model(spec: &str, capacity: usize, references: &[u64]) -> Option<Box<dyn Model>> {
    let _ = references;
    Some(match spec {
        "lru" => Box::new(lru::Lru::new(capacity)),
        _ => return None,
    })
}
