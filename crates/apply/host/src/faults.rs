//! Failures of one device, as far as the log has them: one at once, and more with the next line.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// The least time between two lines about one device: a device that fails must not fill the log.
const PAUSE: Duration = Duration::from_secs(10);

/// The failures.
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
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        let mut logged = lock(&self.0);
        if logged.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            logged.since += 1;
            return None;
        }
        logged.last = Some(now);
        Some(std::mem::take(&mut logged.since))
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
