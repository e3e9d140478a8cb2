//! The freezer of either cgroup version.

use super::{Change, Grant, Mechanism, Refusal, Setting};

/// Stops the other faulting groups for a moment, so that the protected group has the disk for itself. The caller thaws
/// them within seconds.
#[derive(Clone, Copy, Debug)]
pub struct Freeze;

impl Mechanism for Freeze {
    fn name(&self) -> &'static str {
        "freeze"
    }

    fn settings(&self, grant: &Grant<'_>, _strength: f64) -> Result<Vec<Setting>, Refusal> {
        // In v1 only groups that have the same name in the freezer's hierarchy can be stopped.
        let files = grant.others.iter().filter_map(|other| grant.tree.freezer(&other.group));
        let settings: Vec<_> = files.map(|(file, word)| Setting { file, change: Change::Word(word) }).collect();
        if settings.is_empty() { Err(Refusal::NobodyElse) } else { Ok(settings) }
    }
}
