//! How a cache with tenants is to be shared.

use std::fmt;

use crate::directive::Limits;

/// Which tenant gives up a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// LRU-SP (3.2).
    #[default]
    LruSp,
    /// The tenant of the block referenced longest ago, and that block: what tenants say about replacement is not heard.
    Global,
    /// Every tenant has its share: its ceiling, or an equal part of the cache. A tenant that fills it gives up a block of
    /// its own.
    Static,
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Allocation::LruSp => "lru-sp",
            Allocation::Global => "global",
            Allocation::Static => "static",
        })
    }
}

/// What a list of predicted accesses decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foresight {
    /// What to fetch and what to replace: the list first, the tenant's policies where it does not decide (2.1.3).
    #[default]
    Full,
    /// What to fetch only; replacement is the policies' alone. It is how 5.2 adds prefetching to global LRU.
    Fetch,
}

/// How a cache with tenants is to be shared.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which tenant gives up a block.
    pub allocation: Allocation,
    /// What a list of predicted accesses decides.
    pub foresight: Foresight,
    /// The most prefetches of a batch: 2.2's B.
    pub batch: u32,
    /// The least freeBlocks at which a tenant prefetches: 4 in 4.3, 1 in the model of 2.1.2.
    pub free_least: u32,
    /// What a tenant may say.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Config {
        let (allocation, foresight) = (Allocation::default(), Foresight::default());
        Config { allocation, foresight, batch: 16, free_least: 4, limits: Limits::default() }
    }
}

impl Config {
    /// How many ghosts a cache of `capacity` blocks can use: a placeholder for each block, and what the policies of
    /// levels may remember ([`Limits::ghosts`]). A host sizes its index by it.
    pub fn ghosts(&self, capacity: u32) -> u32 {
        let Limits { policies, ghosts, .. } = self.limits;
        let of_policies = if policies > 0 { f64::from(capacity) * f64::from(ghosts) } else { 0.0 };
        match self.allocation {
            Allocation::Global => 0,
            Allocation::LruSp | Allocation::Static => capacity.saturating_add(of_policies.round() as u32),
        }
    }
}
