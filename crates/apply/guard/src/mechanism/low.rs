//! cgroup v2: `memory.low`. Memory below this value is reclaimed only when nothing else is left, so a wrong estimate
//! does no harm.

use super::{Change, Grant, Mechanism, Refusal, Setting, check_fit, existing, pages};

/// `memory.low` on the group and on every group above it, up to the group where reclaim starts: a parent's value limits
/// that of its children.
///
/// The group's demand is added to the values of the groups above it, so that it is not taken from its siblings.
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
        // Outermost first: the last write makes it effective at once.
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
