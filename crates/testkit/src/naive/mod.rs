//! Policies as their papers tell them, in the plainest data structures, at whatever cost.
//!
//! They share no code with `nigh-policy`: what the two agree on has been written down twice.

mod arc;
mod car;
mod clock_pro;
mod lirs;
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
    Some(match spec.split(':').next()? {
        "lru" => Box::new(lru::Lru::new(capacity)),
        "lirs" => Box::new(lirs::Lirs::new(spec, capacity)),
        "clock-pro" => Box::new(clock_pro::ClockPro::new(spec, capacity)),
        "arc" => Box::new(arc::Arc::new(capacity)),
        "car" => Box::new(car::Car::new(capacity)),
        _ => return None,
    })
}

/// The value given for `key` in `name:key=value:key=value`.
fn param<'a>(spec: &'a str, key: &str) -> Option<&'a str> {
    spec.split(':').filter_map(|part| part.split_once('=')).find(|(given, _)| *given == key).map(|(_, value)| value)
}

/// A share of `whole` such as `1%`, rounded and at least `least`, or a count.
fn share_or_count(spec: &str, key: &str, default: &str, whole: usize, least: usize) -> usize {
    let value = param(spec, key).unwrap_or(default);
    match value.strip_suffix('%') {
        Some(share) => {
            let share: f64 = share.parse().expect("a share");
            ((whole as f64 * share / 100.0).round() as usize).max(least)
        }
        None => value.parse().expect("a count"),
    }
}

/// A factor such as `1.5` or `150%`, or none.
fn factor(spec: &str, key: &str, default: &str) -> Option<f64> {
    let value = param(spec, key).unwrap_or(default);
    match value.strip_suffix('%') {
        _ if value == "none" => None,
        Some(share) => Some(share.parse::<f64>().expect("a share") / 100.0),
        None => Some(value.parse().expect("a factor")),
    }
}

/// Takes `block` out of `list`; whether it was there.
fn take(list: &mut Vec<u64>, block: u64) -> bool {
    let found = list.iter().position(|&other| other == block);
    found.map(|at| list.remove(at)).is_some()
}
