//! The configuration of a cache with tenants.

use std::fmt;

use nigh_policy::Spec;
use serde::Deserialize;

use crate::allowance::Terms;
use crate::directive::{Limits, Order, Refusal};

/// The rule by which a tenant is chosen to lose a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// LRU-SP (3.2).
    #[default]
    LruSp,
    /// Global LRU: the block referenced longest ago leaves, and hints about replacement are ignored.
    Global,
    /// Every tenant has a share: its ceiling, or an equal part of the cache. A tenant that fills its share loses a
    /// block of its own.
    Static,
    /// As with static shares, but these follow the tenants' curves: memory goes where it saves most misses.
    Utility,
}

impl Allocation {
    /// Whether every tenant has a share of the cache.
    pub(crate) fn has_shares(self) -> bool {
        matches!(self, Allocation::Static | Allocation::Utility)
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Allocation::LruSp => "lru-sp",
            Allocation::Global => "global",
            Allocation::Static => "static",
            Allocation::Utility => "utility",
        })
    }
}

/// The name of a cache in which `allocation` chooses the tenant that loses a block, and `policy` which block: `lru-sp`, or
/// `lru-sp/lirs`.
pub fn among_tenants(allocation: Allocation, policy: &Spec) -> String {
    match Order::from(policy.clone()) {
        Order::Lru => allocation.to_string(),
        other => format!("{allocation}/{other}"),
    }
}

/// The effects of a list of predicted accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foresight {
    /// Prefetching and replacement: the list decides first, and the tenant's policies if it does not decide (2.1.3).
    #[default]
    Full,
    /// Prefetching and replacement, by the choice of the paper's prototype (4.3): the tenant's policies choose among the
    /// blocks that occur after the next missing block of the list, or not at all.
    Prototype,
    /// Prefetching only; the policies alone decide about replacement. In this way 5.2 adds prefetching to global LRU.
    Fetch,
}

/// The configuration of a cache with tenants.
#[derive(Clone, Debug)]
pub struct Config {
    /// The rule by which a tenant is chosen to lose a block.
    pub allocation: Allocation,
    /// The effects of a list of predicted accesses.
    pub foresight: Foresight,
    /// The most prefetches of a batch: 2.2's B.
    pub batch: u32,
    /// Whether a tenant's batches have one block on devices where large ones do not save time for each block. Off by
    /// default, as in the paper.
    pub adapt_batch: bool,
    /// The least freeBlocks at which a tenant prefetches: 4 in 4.3, 1 in the model of 2.1.2.
    pub free_least: u32,
    /// The window of the prefetch allowance, in blocks: a tenant may have two batches fetched that it has not used, and
    /// as many blocks more as it used, up to this number. 0 switches the allowance off, as in the paper.
    pub window: u32,
    /// The limits of hints.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Config {
        let (allocation, foresight) = (Allocation::default(), Foresight::default());
        Config {
            allocation,
            foresight,
            batch: 16,
            adapt_batch: false,
            free_least: 4,
            window: Config::WINDOW,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Default of the window of the prefetch allowance.
    pub const WINDOW: u32 = 4096;

    /// The limits of the prefetch allowances.
    pub(crate) fn terms(&self) -> Terms {
        Terms { batch: self.batch, window: self.window }
    }

    /// The number of ghosts that a cache of `capacity` blocks can use: a placeholder for each block, and the ghosts of
    /// the policies of levels: [`Limits::ghosts`], or what `policy`, that of all tenants, can use. A host sizes its index by it.
    pub fn ghosts(&self, policy: &Order, capacity: u32) -> Result<u32, Refusal> {
        let Limits { policies, ghosts, .. } = self.limits;
        let limit = if policies > 0 { f64::from(capacity) * f64::from(ghosts) } else { 0.0 };
        let own = match policy {
            Order::Policy(spec) => ghosts_of(spec, capacity)?,
            Order::Lru | Order::Mru => 0,
        };
        Ok(match self.allocation {
            Allocation::Global => 0,
            Allocation::LruSp | Allocation::Static | Allocation::Utility => {
                capacity.saturating_add(own.max(limit.round() as u32))
            }
        })
    }
}

/// The number of ghosts that `policy` can use in a cache of `capacity` blocks.
pub(crate) fn ghosts_of(policy: &Spec, capacity: u32) -> Result<u32, Refusal> {
    match nigh_policy::ghosts(policy, capacity)? {
        u32::MAX => Err(Refusal::Unlimited { policy: policy.clone() }),
        ghosts => Ok(ghosts),
    }
}
