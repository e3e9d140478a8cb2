//! The measurements of one tick of the groups that compete in one scope.

use std::sync::Arc;

/// A memory cgroup: its path below the hierarchy's root, such as `app.slice/db.service`; the root is empty.
pub type Group = Arc<str>;

/// One tick's measurements of a scope.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds since the previous sample.
    pub elapsed_s: f64,
    /// The share of the machine's processor time that was not idle, 0 to 1.
    pub machine_cpu: f64,
    /// The share of the time in which all runnable tasks waited for I/O, 0 to 1.
    pub io_full: f64,
    /// The groups that compete.
    pub groups: Vec<GroupSample>,
}

/// One group's part of a [`Sample`].
#[derive(Clone, Debug)]
pub struct GroupSample {
    /// The group.
    pub group: Group,
    /// Major page faults since the previous sample, at most as many as pages returned that had been reclaimed, where the
    /// kernel counts these.
    pub faults: u64,
    /// The share of the pages that returned which are pages of files, 0 to 1: the others are from swap. `None` where the kernel does not
    /// count these, and if none returned.
    pub of_files: Option<f64>,
    /// Seconds of processor time of its processes in user mode since the previous sample.
    pub user_s: f64,
    /// Seconds for which its threads were ready and waited for a processor, where the kernel counts them.
    pub waiting_s: f64,
    /// Resident bytes; 0, and not measured, if there were no faults.
    pub resident: u64,
    /// Bytes in swap; 0, and not measured, if there were no faults.
    pub swapped: u64,
    /// Whether it may be protected.
    pub eligible: bool,
}

impl GroupSample {
    /// The share of a sample of `elapsed_s` in which the group computed in user mode or only waited for a processor, 0 to 1: in the rest
    /// it was blocked, or the kernel worked for it.
    pub(crate) fn ready(&self, elapsed_s: f64) -> f64 {
        ((self.user_s + self.waiting_s) / elapsed_s).min(1.0)
    }

    /// The demand of the group: the memory allocation demand (MAD) of the dissertation, section 4.3.1.
    pub fn demand(&self) -> u64 {
        self.resident.saturating_add(self.swapped)
    }
}
