//! Policies as their papers tell them, in the plainest data structures, at whatever cost.
//!
//! They share no code with `nigh-policy`: what the two agree on has been written down twice.

mod clock;
mod fifo;
mod gclock;
mod lfu;
mod lru;
mod lru_2;
mod s3_fifo;
mod sieve;
mod two_q;

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
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let settings = Settings(settings);
    Some(match name {
        "fifo" => Box::new(fifo::Fifo::new(capacity)),
        "lru" => Box::new(lru::Lru::new(capacity)),
        "lfu" => Box::new(lfu::Lfu::new(capacity)),
        "clock" => Box::new(clock::Clock::new(capacity, settings)),
        "gclock" => Box::new(gclock::GClock::new(capacity, settings)),
        "lru-2" => Box::new(lru_2::Lru2::new(capacity, settings)),
        "2q" => Box::new(two_q::TwoQ::new(capacity, settings)),
        "s3-fifo" => Box::new(s3_fifo::S3Fifo::new(capacity, settings)),
        "sieve" => Box::new(sieve::Sieve::new(capacity)),
        _ => return None,
    })
}

/// The part of a spec behind the name: `key=value:key=value`.
struct Settings<'a>(&'a str);

impl Settings<'_> {
    fn get<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        let mut pairs = self.0.split(':').filter_map(|pair| pair.split_once('='));
        pairs.find(|(given, _)| *given == key).map_or(default, |(_, value)| value)
    }

    fn number(&self, key: &str, default: &str) -> u64 {
        self.get(key, default).parse().expect("a number")
    }

    /// A share of `whole`, such as `25%`, not rounded.
    fn share(&self, key: &str, default: &str, whole: usize) -> f64 {
        let percent: f64 = self.get(key, default).trim_end_matches('%').parse().expect("a percentage");
        whole as f64 * percent / 100.0
    }
}
