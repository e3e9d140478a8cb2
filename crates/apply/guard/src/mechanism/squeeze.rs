//! cgroup v2: `memory.high` of the others.

use super::{Change, Grant, Mechanism, Refusal, Setting, check_fit, existing, pages};
use crate::sample::GroupSample;

/// Limited pressure on the other faulting groups: together they may hold the memory that the protected group leaves
/// them, each in proportion to its demand, and none less than a quarter of that.
///
/// v1 has no counterpart: its hard limit kills when swap is full, and its soft limit does nothing below the limit of a
/// parent.
#[derive(Clone, Copy, Debug)]
pub struct Squeeze;

impl Mechanism for Squeeze {
    fn name(&self) -> &'static str {
        "squeeze"
    }

    fn settings(&self, grant: &Grant<'_>, _strength: f64) -> Result<Vec<Setting>, Refusal> {
        check_fit(grant)?;
        let sum = |of: fn(&GroupSample) -> u64| grant.others.iter().map(of).fold(0, u64::saturating_add);
        let (held, wanted) = (sum(|other| other.resident), sum(GroupSample::demand));
        if wanted == 0 {
            return Err(Refusal::NobodyElse);
        }
        let all = grant.tree.held(&grant.scope.group).unwrap_or(grant.limit);
        let bystanders = all.saturating_sub(held).saturating_sub(grant.group.resident);
        let left = grant.limit.saturating_sub(grant.group.demand()).saturating_sub(bystanders);
        let share = (left as f64 / wanted as f64).clamp(0.25, 1.0);
        let each = grant.others.iter().map(|other| {
            let file = existing(grant.tree.file(&other.group, "memory.high"))?;
            Ok(Setting { file, change: Change::AtMost(pages(other.demand() as f64 * share)) })
        });
        each.collect()
    }
}
