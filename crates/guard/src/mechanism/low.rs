//! cgroup v2: `memory.low`. What is below it is reclaimed only when nothing else is left, so a wrong estimate does no harm.

use super::{Change, Grant, Mechanism, Refusal, Setting, check_fit, existing, pages};

/// `memory.low` on the group and on every group above it, up to where reclaim starts: a parent's value bounds its children's.
///
/// The groups above get the group's demand on top of what they have, so that it is not taken from its siblings.
#[derive(Clone, Copy, Debug)]
pub struct Low;

impl Mechanism for Low {
    fn name(&self) -> &'static str {
        "low"
    }

    fn settings(&self, grant: &Grant<'_>, strength: f64) -> Result<Vec<Setting>, Refusal> {
        check_fit(grant)?;
        let bytes = pages(grant.group.demand() as f64 * strength);
        let file = |group: &str| existing(grant.tree.file(group, "memory.low"));
        let mut settings = Vec::new();
        // Outermost first: the last one makes it effective at once.
        for above in grant.tree.between(&grant.group.group, &grant.scope.group).into_iter().rev() {
            settings.push(Setting { file: file(above)?, change: Change::Plus(bytes) });
        }
        settings.push(Setting { file: file(&grant.group.group)?, change: Change::AtLeast(bytes) });
        Ok(settings)
    }

    fn fades(&self) -> bool {
        true
    }
}
