//! How fast the clients of a disk may ask, as token buckets that all of them share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// What was not used of a rate is kept for so long.
const BURST: Duration = Duration::from_millis(100);

/// Rates of requests and of bytes.
pub(crate) struct Throttle {
    /// Whether there is any: spares the lock.
    on: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    requests: Bucket,
    bytes: Bucket,
    /// How often the rates were changed.
    changes: u64,
}

/// A bucket as the time at which everything taken from it so far is paid for.
struct Bucket {
    /// Per second; 0 for no limit.
    rate: u64,
    paid: Instant,
}

impl Bucket {
    /// Takes `amount`, and says when it is paid for.
    fn take(&mut self, amount: u64, now: Instant) -> Instant {
        if self.rate == 0 {
            return now;
        }
        let cost = Duration::from_secs_f64(amount as f64 / self.rate as f64);
        let full = now.checked_sub(BURST).unwrap_or(now);
        self.paid = self.paid.max(full) + cost;
        self.paid
    }
}

impl Throttle {
    /// So many requests and bytes a second; 0 for no limit.
    pub(crate) fn new(requests: u64, bytes: u64) -> Throttle {
        let paid = Instant::now();
        let [requests, bytes] = [requests, bytes].map(|rate| Bucket { rate, paid });
        let on = AtomicBool::new(requests.rate > 0 || bytes.rate > 0);
        Throttle { on, state: Mutex::new(State { requests, bytes, changes: 0 }), changed: Condvar::new() }
    }

    /// Changes the rates. Who waits goes on.
    pub(crate) fn set(&self, requests: u64, bytes: u64) {
        let mut state = lock(&self.state);
        let paid = Instant::now();
        state.requests = Bucket { rate: requests, paid };
        state.bytes = Bucket { rate: bytes, paid };
        state.changes += 1;
        self.on.store(requests > 0 || bytes > 0, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether there is any limit.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Waits until a request of so many bytes is within the rates, or they change.
    pub(crate) fn wait(&self, bytes: u64) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let paid = state.requests.take(1, now).max(state.bytes.take(bytes, now));
        let changes = state.changes;
        while state.changes == changes
            && let Some(left) = paid.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            (state, _) = self.changed.wait_timeout(state, left).expect("nobody panics with a lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut bucket = Bucket { rate: 100, paid: start - Duration::from_secs(1) };
        // Ten are kept of the time that nothing was asked for, and then it is one every 10 ms.
        for _ in 0..10 {
            assert!(bucket.take(1, start) <= start);
        }
        assert_eq!(bucket.take(1, start), start + Duration::from_millis(10));
        assert_eq!(bucket.take(5, start), start + Duration::from_millis(60));
        let later = start + Duration::from_millis(50);
        assert_eq!(bucket.take(1, later), start + Duration::from_millis(70));
        bucket.rate = 0;
        assert_eq!(bucket.take(1 << 40, later), later);
    }

    #[test]
    fn who_waits_goes_on_when_the_rates_change() {
        let throttle = Throttle::new(0, 1);
        assert!(throttle.is_on());
        std::thread::scope(|scope| {
            // A day, unless somebody changes it.
            let waits = scope.spawn(|| throttle.wait(86400));
            while !waits.is_finished() {
                throttle.set(0, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(!throttle.is_on());
    }
}
