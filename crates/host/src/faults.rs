//! Operations that devices fail, in the log: one at once, and more of the same device with the next line.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use nigh_engine::{Action, Fault, Operation};

use crate::cache::Cache;
use crate::content;
use crate::sync::lock;

/// The least time between two lines about one device: a device that fails must not fill the log.
const PAUSE: Duration = Duration::from_secs(10);

/// The failures of one device, as far as the log has them.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Logged>);

#[derive(Default)]
struct Logged {
    last: Option<Instant>,
    /// Failures since then.
    since: u64,
}

impl Faults {
    /// Notes a failure. Returns how many are not in the log yet, without this one, if it is to be logged.
    fn note(&self, now: Instant) -> Option<u64> {
        let mut logged = lock(&self.0);
        if logged.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            logged.since += 1;
            return None;
        }
        logged.last = Some(now);
        Some(std::mem::take(&mut logged.since))
    }
}

impl Cache {
    /// A device failed an operation, other than a flush (`flush.rs`).
    pub(crate) fn log_fault(&self, operation: &Operation, fault: Fault) {
        let &Operation { port, offset: from, length, .. } = operation;
        let (to, now) = (from + length, Instant::now());
        if self.contents.is_some() && port == content::PORT {
            // It is memory, and what is missing there is read from below.
            return;
        }
        let verb = match operation.action {
            Action::Read(_) => "read",
            Action::Write(_) => "write",
            Action::Discard => "discard",
            Action::Zeroes { .. } => "zero",
            Action::Flush => return,
        };
        if let Some(level) = self.levels.iter().find(|level| level.port() == port) {
            // A server of a level that is gone is logged once (`nigh_backend::RemoteLevel`).
            if level.link.is_none()
                && let Some(more) = level.faults.note(now)
            {
                let level = level.path().display();
                tracing::warn!(%level, %fault, from, to, more, "the device of the level failed to {verb} these bytes");
            }
            return;
        }
        // Writes of a disk are tried again, and logged when they fail for long (`failing.rs`).
        let device = (!matches!(operation.action, Action::Write(_))).then(|| self.disks.device(port));
        if let Some((device, more)) = device.and_then(|device| device.faults.note(now).map(|more| (device, more))) {
            let disk = self.disks.of_port(port);
            let (disk, from, to) = (disk.name(), device.begin + from, device.begin + to);
            tracing::error!(disk, %fault, from, to, more, "its device failed to {verb} these bytes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_9_failures_in_quick_succession_are_counted_in_one_line() {
        let (faults, begin) = (Faults::default(), Instant::now());
        assert_eq!(faults.note(begin), Some(0));
        assert_eq!([1, 2, 9].map(|second| faults.note(begin + Duration::from_secs(second))), [None; 3]);
        assert_eq!(faults.note(begin + PAUSE), Some(3));
        assert_eq!(faults.note(begin + 3 * PAUSE), Some(0));
    }
}
