//! Policies as described in their papers, with the plainest data structures, at whatever cost.
//!
//! They share no code with `nigh-policy`, so both were written independently.

mod amp;
mod aoio;
mod arc;
mod cacheus;
mod car;
mod clock;
mod clock_pro;
mod dice;
mod dulo;
mod eelru;
mod fbr;
mod fifo;
mod gclock;
mod hyperbolic;
mod lecar;
mod lfu;
mod lfu_da;
mod linux;
mod lirs;
pub mod lpu;
mod lrfu;
mod lru;
mod lru_k;
pub mod lru_sp;
mod mq;
mod opt;
mod partitions;
mod pcc;
mod random;
mod s3_fifo;
mod sieve;
mod slru;
mod two_q;
mod ubm;
pub mod ulc;
mod w_tinylfu;
pub mod witness;

use std::collections::BTreeSet;

use crate::Outcome;

/// A reference: who makes it, to which block of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The identity of the issuing code.
    pub code: u64,
    /// The file.
    pub file: u64,
    /// The block within the file.
    pub index: u64,
    /// The block's name in this model.
    pub block: u64,
}

impl Reference {
    /// A reference by `code`. The upper half of a block's number is its file.
    pub fn by(code: u64, block: u64) -> Reference {
        Reference { code, file: block >> 32, index: block & u64::from(u32::MAX), block }
    }
}

/// A naive model of a policy: a whole cache, keyed by block.
pub trait Model {
    /// References `block`.
    fn access(&mut self, block: u64) -> Outcome;

    /// References a block in a way that policies for code and files distinguish.
    fn reference(&mut self, reference: Reference) -> Outcome {
        self.access(reference.block)
    }

    /// Takes out the block that leaves if none enters.
    fn shed(&mut self) -> u64;

    /// Sets the room to `capacity` blocks and `ghosts` ghosts. If more blocks are resident, sheds follow.
    fn resize(&mut self, capacity: usize, ghosts: usize);

    /// The blocks remembered without their contents.
    fn ghosts(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }
}

/// The model of the policy `spec`, or `None` if there is none. `references` is the whole reference string, which only
/// offline policies use.
pub fn model(spec: &str, capacity: usize, references: &[u64]) -> Option<Box<dyn Model>> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let settings = Settings(settings);
    Some(match name {
        "fifo" => Box::new(fifo::Fifo::new(capacity)),
        "lru" => Box::new(lru::Lru::new(capacity)),
        "random" => Box::new(random::Random::new(capacity, settings)),
        "lfu" => Box::new(lfu::Lfu::new(capacity)),
        "lfu-da" => Box::new(lfu_da::LfuDa::new(capacity)),
        "lru-k" => Box::new(lru_k::LruK::new(settings.number("k", "3") as usize, capacity, settings)),
        "slru" => Box::new(slru::Slru::new(capacity, settings)),
        "lecar" => Box::new(lecar::Lecar::new(capacity, settings)),
        "cacheus" => Box::new(cacheus::Cacheus::new(capacity, settings)),
        "hyperbolic" => Box::new(hyperbolic::Hyperbolic::new(capacity, settings)),
        "clock" => Box::new(clock::Clock::new(capacity, settings)),
        "gclock" => Box::new(gclock::GClock::new(capacity, settings)),
        "lru-2" => Box::new(lru_k::LruK::new(2, capacity, settings)),
        "2q" => Box::new(two_q::TwoQ::new(capacity, settings)),
        "s3-fifo" => Box::new(s3_fifo::S3Fifo::new(capacity, settings)),
        "sieve" => Box::new(sieve::Sieve::new(capacity)),
        "opt" => Box::new(opt::Opt::new(capacity, references)),
        "lrfu" => {
            Box::new(lrfu::Lrfu::new(capacity, settings.float("lambda", "0.001"), settings.number("correlated", "0")))
        }
        "fbr" => {
            let (new, old) = (settings.share("new", "25%", 100), settings.share("old", "60%", 100));
            Box::new(fbr::Fbr::new(capacity, new, old, settings.number("cmax", "32"), settings.number("amax", "100")))
        }
        "eelru" => {
            let (early, late) = (settings.number("early", "7") as usize, settings.number("late", "6") as usize);
            let (reach, age) = (settings.portion("reach", "250%"), settings.portion("age", "100%"));
            Box::new(eelru::Eelru::new(capacity, [early, late], reach, age))
        }
        "mq" => {
            let (life, out) = (settings.portion("life", "400%"), settings.portion("out", "400%"));
            Box::new(mq::Mq::new(capacity, settings.number("queues", "8") as usize, life, out))
        }
        "w-tinylfu" => {
            let (window, protected) = (settings.share("window", "1%", 100), settings.share("protected", "80%", 100));
            Box::new(w_tinylfu::WTinyLfu::new(capacity, window, protected, settings.number("sample", "10")))
        }
        "arc" => Box::new(arc::Arc::new(capacity)),
        "car" => Box::new(car::Car::new(capacity)),
        "aoio" => Box::new(aoio::Aoio::new(capacity, settings)),
        "amp" => Box::new(amp::Amp::new(capacity, settings)),
        "pcc" => Box::new(pcc::Pcc::new(capacity, settings)),
        "ubm" => Box::new(ubm::Ubm::new(capacity, settings)),
        "linux" => Box::new(linux::Linux::new(capacity, settings)),
        "lirs" => Box::new(lirs::Lirs::new(capacity, settings)),
        "dulo" => match settings.get("base", "clock").to_owned().as_str() {
            "clock" if settings.number("adapt", "0") == 1 => Box::new(dulo::Adaptive::new(capacity, settings)),
            "clock" => Box::new(dulo::Dulo::new(capacity, settings)),
            base => Box::new(dulo::Nominated::new(capacity, settings, |size| {
                model(base, size, references).expect("a base with a model")
            })),
        },
        "clock-pro" => Box::new(clock_pro::ClockPro::new(capacity, settings)),
        _ => return None,
    })
}

/// The model of AOIO with the table of an earlier run that made the references `before`.
pub fn aoio_trained(capacity: usize, before: &[Reference]) -> Box<dyn Model> {
    Box::new(aoio::Aoio::trained(capacity, Settings(""), before))
}

/// The part of a spec after the name: `key=value:key=value`.
struct Settings<'a>(&'a str);

impl Settings<'_> {
    fn get<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        let mut pairs = self.0.split(':').filter_map(|pair| pair.split_once('='));
        pairs.find(|(given, _)| *given == key).map_or(default, |(_, value)| value)
    }

    fn number(&self, key: &str, default: &str) -> u64 {
        self.get(key, default).parse().expect("a number")
    }

    fn float(&self, key: &str, default: &str) -> f64 {
        self.get(key, default).parse().expect("a number")
    }

    /// A share such as `25%`, or a count.
    fn portion(&self, key: &str, default: &str) -> Portion {
        let share = self.get(key, default).ends_with('%');
        if share { Portion::Share(self.share(key, default, 100)) } else { Portion::Count(self.number(key, default)) }
    }

    /// A share of `whole`, such as `25%`, not rounded.
    fn share(&self, key: &str, default: &str, whole: usize) -> f64 {
        let percent: f64 = self.get(key, default).trim_end_matches('%').parse().expect("a percentage");
        whole as f64 * percent / 100.0
    }

    /// The most ghosts: a multiple of the cache size such as `1.5` or `150%`, or `unlimited`.
    fn history(&self, default: &str) -> Portion {
        match self.get("ghosts", default) {
            "unlimited" => Portion::Count(u64::MAX),
            _ => Portion::Share(100.0 * self.factor("ghosts", default).expect("a multiple")),
        }
    }

    /// A factor such as `1.5` or `150%`, or `none`.
    fn factor(&self, key: &str, default: &str) -> Option<f64> {
        let value = self.get(key, default);
        match value.strip_suffix('%') {
            _ if value == "none" => None,
            Some(share) => Some(share.parse::<f64>().expect("a share") / 100.0),
            None => Some(value.parse().expect("a factor")),
        }
    }
}

/// A share of a cache in percent, or a count of blocks.
#[derive(Clone, Copy)]
enum Portion {
    Share(f64),
    Count(u64),
}

impl Portion {
    /// Blocks of a cache, rounded to the nearest.
    fn of(self, capacity: usize) -> usize {
        match self {
            Portion::Share(percent) => (capacity as f64 * percent / 100.0).round() as usize,
            Portion::Count(count) => count as usize,
        }
    }

    /// Blocks of a cache, rounded down.
    fn within(self, capacity: usize) -> usize {
        match self {
            Portion::Share(percent) => (capacity as f64 * percent / 100.0) as usize,
            Portion::Count(count) => count as usize,
        }
    }
}

/// Takes `block` out of `list`; returns whether it was there.
fn take(list: &mut Vec<u64>, block: u64) -> bool {
    let found = list.iter().position(|&other| other == block);
    found.map(|at| list.remove(at)).is_some()
}
