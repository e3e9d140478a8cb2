//! What the kernel offers to protect a working set: each mechanism returns which files to set to which values, and the journal sets them.
//!
//! None of them uses `memory.min` or kills: both end programs when a demand was estimated too low.

mod freeze;
mod low;
mod squeeze;
mod swappiness;

use std::path::PathBuf;

pub use freeze::Freeze;
pub use low::Low;
pub use squeeze::Squeeze;
pub use swappiness::Swappiness;

use crate::sample::GroupSample;
use crate::tree::{Scope, Tree};

/// Who is to be protected from whom.
#[derive(Debug)]
pub struct Grant<'a> {
    /// Where the groups are.
    pub tree: &'a Tree,
    /// Whose limit they compete for.
    pub scope: &'a Scope,
    /// Whether that is the whole machine, not a group's limit.
    pub is_machine: bool,
    /// The protected group and what it wants to hold.
    pub group: &'a GroupSample,
    /// The least limit of the group and all above it, in bytes.
    pub limit: u64,
    /// The other groups that fault much.
    pub others: &'a [GroupSample],
}

/// One file and how it is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file.
    pub file: PathBuf,
    /// What becomes of its value.
    pub change: Change,
}

/// How a value is changed. An administrator's own value is never taken away: it is raised, added to or lowered further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At least so many bytes.
    AtLeast(u64),
    /// So many bytes more.
    Plus(u64),
    /// At most so many bytes.
    AtMost(u64),
    /// This word.
    Word(&'static str),
}

impl Change {
    /// The new value of a file that held `original`; none where nothing is to be written.
    pub fn of(self, original: &str) -> Option<String> {
        let is_all = original == "max";
        let number: Option<u64> = original.parse().ok();
        let new = match self {
            Change::Word(word) => word.to_owned(),
            Change::AtLeast(_) | Change::Plus(_) if is_all => return None,
            Change::AtMost(bytes) if is_all => bytes.to_string(),
            Change::AtLeast(bytes) => bytes.max(number?).to_string(),
            Change::Plus(bytes) => number?.saturating_add(bytes).to_string(),
            Change::AtMost(bytes) => bytes.min(number?).to_string(),
        };
        (new != original).then_some(new)
    }
}

/// Why a group cannot be protected by a mechanism.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Protected, it could exceed its limit.
    #[error("its demand of {} MiB does not fit in {} MiB", demand >> 20, limit >> 20)]
    DoesNotFit {
        /// Bytes that it wants to hold.
        demand: u64,
        /// The least limit above it, in bytes.
        limit: u64,
    },
    /// The mechanism stops reclaim by a group's limit only.
    #[error("cgroup v1 protects only within the limit of a group, not on the whole machine")]
    NoLimit,
    /// The kernel has no such file.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// No other group may be hindered.
    #[error("no other group may be bounded")]
    NobodyElse,
}

/// A way to protect.
pub trait Mechanism: std::fmt::Debug {
    /// What it is called in logs, flags and metrics.
    fn name(&self) -> &'static str;

    /// What to set so that the group keeps the share `strength` (0 to 1] of its demand, in the order of writing.
    fn settings(&self, grant: &Grant<'_>, strength: f64) -> Result<Vec<Setting>, Refusal>;

    /// Whether a release lowers the strength step by step.
    fn fades(&self) -> bool {
        false
    }
}

/// The largest share of a limit that is ever promised: with more, reclaim finds nothing else.
const CAP: f64 = 0.9;

/// Refuses a demand above the cap.
fn check_fit(grant: &Grant<'_>) -> Result<(), Refusal> {
    let demand = grant.group.demand();
    if demand as f64 > CAP * grant.limit as f64 {
        return Err(Refusal::DoesNotFit { demand, limit: grant.limit });
    }
    Ok(())
}

/// A whole number of pages, as the kernel keeps limits.
fn pages(bytes: f64) -> u64 {
    ((bytes / 4096.0).ceil() as u64).saturating_mul(4096)
}

/// Refuses where the kernel has no such file.
fn existing(file: PathBuf) -> Result<PathBuf, Refusal> {
    if file.exists() { Ok(file) } else { Err(Refusal::Missing(file)) }
}
