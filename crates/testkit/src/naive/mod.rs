//! Policies as their papers tell them, in the plainest data structures, at whatever cost.
//!
//! They share no code with `nigh-policy`: what the two agree on has been written down twice.

mod eelru;
mod fbr;
mod lrfu;
mod lru;
mod mq;
mod opt;
mod w_tinylfu;

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
    Some(match spec {
        "lru" => Box::new(lru::Lru::new(capacity)),
        "opt" => Box::new(opt::Opt::new(capacity, references)),
        "lrfu" => Box::new(lrfu::Lrfu::new(capacity, 0.001, 0)),
        "lrfu:lambda=0" => Box::new(lrfu::Lrfu::new(capacity, 0.0, 0)),
        "lrfu:lambda=1" => Box::new(lrfu::Lrfu::new(capacity, 1.0, 0)),
        "lrfu:lambda=0.05:correlated=4" => Box::new(lrfu::Lrfu::new(capacity, 0.05, 4)),
        "fbr" => Box::new(fbr::Fbr::new(capacity, 25.0, 60.0, 32, 100)),
        "fbr:new=0:old=100%:cmax=3:amax=2" => Box::new(fbr::Fbr::new(capacity, 0.0, 100.0, 3, 2)),
        "fbr:new=50%:old=20%:cmax=2:amax=5" => Box::new(fbr::Fbr::new(capacity, 50.0, 20.0, 2, 5)),
        "eelru" => Box::new(eelru::Eelru::new(capacity, 7, 6, (capacity * 5).div_ceil(2), capacity)),
        "eelru:early=3:late=15:reach=500%:age=1000%" => {
            Box::new(eelru::Eelru::new(capacity, 3, 15, capacity * 5, capacity * 10))
        }
        "mq" => Box::new(mq::Mq::new(capacity, 8, capacity * 4, capacity * 4)),
        "mq:queues=3:life=5:out=50%" => Box::new(mq::Mq::new(capacity, 3, 5, capacity.div_ceil(2))),
        "w-tinylfu" => Box::new(w_tinylfu::WTinyLfu::new(capacity, 1.0, 80.0, 10)),
        "w-tinylfu:window=30%:protected=50%:sample=3" => Box::new(w_tinylfu::WTinyLfu::new(capacity, 30.0, 50.0, 3)),
        _ => return None,
    })
}
