//! A replay at full speed: it checks the policy's invariants once, at the end, and that its two variants, if there are
//! two, behave alike.

use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Spec, Stream, Tenant};

use crate::twins::build;

/// The result of a replay.
pub struct Replayed {
    /// The number of hits.
    pub hits: u64,
    /// The policy at the end, all its invariants recounted.
    pub policy: Box<dyn Policy + Send>,
}

/// Passes `references` to blocks of one volume to `spec`; each is a number below `setup.slots`, which is also its
/// permanent slot.
///
/// # Panics
/// If the policy cannot be created.
pub fn replay(spec: &str, setup: &Setup, references: impl IntoIterator<Item = u32>) -> Replayed {
    let spec: Spec = spec.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut policy = build(&spec, setup).unwrap_or_else(|error| panic!("{error}"));
    let mut resident = vec![false; setup.slots as usize];
    let (mut free, mut hits) = (setup.capacity, 0);
    for (tick, index) in (0..).zip(references) {
        let slot = Slot(index);
        let block = Block { volume: 0, index: index.into() };
        let access = Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick };
        if resident[slot.index()] {
            hits += 1;
            policy.hit(slot, &access);
        } else {
            let victim = if free == 0 { policy.evict(slot, &access) } else { None };
            while policy.take_forgotten().is_some() {}
            if victim.is_some() || free > 0 {
                match victim {
                    Some(victim) => resident[victim.index()] = false,
                    None => free -= 1,
                }
                policy.insert(slot, &access);
                policy.go_on(&access, &|slot| Block { volume: 0, index: slot.0.into() });
                resident[slot.index()] = true;
            }
        }
        while policy.take_forgotten().is_some() {}
    }
    policy.check();
    Replayed { hits, policy }
}
