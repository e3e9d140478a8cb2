//! cgroup v1: `memory.swappiness`.

use super::{Change, Grant, Mechanism, Refusal, Setting, check_fit, existing};

/// `memory.swappiness` 0: reclaim by the limit of a group above never swaps out memory of this group. It is therefore rejected
/// if the group could fill the limit, because the kernel would then kill it. Pages of files are reclaimed as before, so it is also rejected
/// for a group that loses mostly these.
#[derive(Clone, Copy, Debug)]
pub struct Swappiness;

/// The largest share of pages of files, among those that a group lost and read again.
const OF_FILES_MOST: f64 = 0.5;

impl Mechanism for Swappiness {
    fn name(&self) -> &'static str {
        "swappiness"
    }

    fn settings(&self, grant: &Grant<'_>, _strength: f64) -> Result<Vec<Setting>, Refusal> {
        if grant.is_machine {
            return Err(Refusal::NoLimit);
        }
        if let Some(share) = grant.group.of_files.filter(|share| *share > OF_FILES_MOST) {
            return Err(Refusal::PagesOfFiles(share));
        }
        check_fit(grant)?;
        let file = existing(grant.tree.file(&grant.group.group, "memory.swappiness"))?;
        Ok(vec![Setting { file, change: Change::Word("0") }])
    }
}
