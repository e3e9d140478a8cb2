//! The choice of the group to protect: the thrashing one that needs the least.

use crate::sample::{Group, GroupSample};

/// The least memory-hungry of `candidates`: the one with the smallest difference between its demand and its resident
/// memory (section 4.4), which today is its memory in swap. Groups that may not be protected, and those with a demand
/// of more than the share `fit` of `limit` bytes, are no candidates. `last` is chosen only if there is no other.
pub fn choose<'a>(
    candidates: impl Iterator<Item = &'a GroupSample>,
    fit: Option<f64>,
    limit: u64,
    last: Option<&Group>,
) -> Option<Group> {
    candidates
        .filter(|seen| seen.eligible && fit.is_none_or(|share| seen.demand() as f64 <= share * limit as f64))
        .min_by_key(|seen| (last == Some(&seen.group), seen.swapped, seen.group.clone()))
        .map(|seen| seen.group.clone())
}
