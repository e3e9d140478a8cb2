//! The kernel's means to protect a working set: each mechanism returns the files to set and their values, and the
//! journal sets them.
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

/// The group to be protected, and its rivals.
#[derive(Debug)]
pub struct Grant<'a> {
    /// The tree of groups.
    pub tree: &'a Tree,
    /// The group whose limit they compete for.
    pub scope: &'a Scope,
    /// Whether that is the whole machine, not a group's limit.
    pub is_machine: bool,
    /// The protected group and its demand.
    pub group: &'a GroupSample,
    /// The lowest limit of the group and all above it, in bytes.
    pub limit: u64,
    /// The other groups that fault much.
    pub others: &'a [GroupSample],
}

/// A file and its change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file.
    pub file: PathBuf,
    /// The change of its value.
    pub change: Change,
}

/// The change of a value. An administrator's own value is never withdrawn: it is raised, increased or lowered further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At least this many bytes.
    AtLeast(u64),
    /// This many additional bytes.
    Plus(u64),
    /// At most this many bytes.
    AtMost(u64),
    /// This word.
    Word(&'static str),
}

impl Change {
    /// The new value of a file with the value `original`; `None` if nothing has to be written.
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
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A protected group of this size could exceed the limit.
    #[error("its demand of {} MiB does not fit in {} MiB", demand >> 20, limit >> 20)]
    DoesNotFit {
        /// Its demand in bytes.
        demand: u64,
        /// The lowest limit above it, in bytes.
        limit: u64,
    },
    /// The mechanism affects only reclaim by a group's limit.
    #[error("cgroup v1 protects only within the limit of a group, not on the whole machine")]
    NoLimit,
    /// The mechanism does not affect pages of files, and of the pages that the group lost and read again, this share are such.
    #[error("it protects only memory in swap, and {:.0} % of the pages that this group lost are pages of files", 100.0 * .0)]
    PagesOfFiles(f64),
    /// The kernel has no such file.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// No other group may be limited.
    #[error("no other group may be limited")]
    NobodyElse,
}

/// A mechanism of protection.
pub trait Mechanism: std::fmt::Debug {
    /// Its name in logs, flags and metrics.
    fn name(&self) -> &'static str;

    /// The settings with which the group keeps the share `strength` (0 to 1] of its demand, in the order of writing.
    fn settings(&self, grant: &Grant<'_>, strength: f64) -> Result<Vec<Setting>, Refusal>;

    /// Whether a release lowers the strength step by step.
    fn fades(&self) -> bool {
        false
    }
}

/// The largest share of a limit that is ever protected: beyond it, reclaim finds nothing else.
const CAP: f64 = 0.9;

/// Rejects a demand above the cap.
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

/// An error if the kernel has no such file.
fn existing(file: PathBuf) -> Result<PathBuf, Refusal> {
    if file.exists() { Ok(file) } else { Err(Refusal::Missing(file)) }
}
