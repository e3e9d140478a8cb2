//! Clients that are turned away because there are as many as allowed: all are counted, few are logged.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_host::front::lock;

/// Pause of the log after one was logged.
const SILENCE: Duration = Duration::from_secs(60);

/// Refusals for one reason.
#[derive(Default)]
pub struct Refusals {
    count: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Refusals {
    /// Counts another. Returns their number if that is to be logged.
    pub fn add(&self, now: Instant) -> Option<u64> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = lock(&self.told);
        let silent = told.is_some_and(|told| now.saturating_duration_since(told) < SILENCE);
        (!silent).then(|| {
            *told = Some(now);
            count
        })
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_once() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let told = |seconds| refusals.add(begin + Duration::from_secs(seconds));
        assert_eq!([0, 0, 1, 59].map(told), [Some(1), None, None, None]);
        assert_eq!([60, 61, 119, 500].map(told), [Some(5), None, None, Some(8)]);
        assert_eq!(refusals.count(), 8);
    }
}
