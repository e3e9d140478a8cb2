//! The rates of a disk, as token buckets that all its users share.
//!
//! Requests proceed in the order in which they arrived. A request pays when it proceeds; one that only waits owes
//! nothing, so that a client that disconnects meanwhile leaves no debt to the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// The time for which unused parts of a rate accumulate.
const BURST: Duration = Duration::from_millis(100);
/// How often a waiting thread checks whether its client has disconnected.
const GLANCE: Duration = Duration::from_millis(100);

/// Rates of requests and of bytes.
pub(crate) struct Throttle {
    /// Whether there is any limit; avoids the lock.
    on: AtomicBool,
    state: Mutex<State>,
}

struct State {
    buckets: Buckets,
    /// In the order of arrival.
    queue: VecDeque<Waiting>,
    /// The time at which the first request has paid, and the state of the buckets without it.
    turn: Option<(Instant, Buckets)>,
    tickets: u64,
}

/// A request that is waiting for the rates.
struct Waiting {
    /// Ascending in the queue.
    ticket: u64,
    bytes: u64,
    waker: Waker,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[derive(Clone, Copy)]
struct Buckets {
    requests: Bucket,
    bytes: Bucket,
}

/// A bucket, represented by the time at which everything taken from it so far is paid for.
#[derive(Clone, Copy)]
struct Bucket {
    /// Per second; 0 for no limit.
    rate: u64,
    paid: Instant,
}

impl Bucket {
    /// Takes `amount`, and returns the time at which it is paid for.
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

impl Buckets {
    fn new(requests: u64, bytes: u64) -> Buckets {
        let paid = Instant::now();
        let [requests, bytes] = [requests, bytes].map(|rate| Bucket { rate, paid });
        Buckets { requests, bytes }
    }
}

impl State {
    /// Queues a request; returns its ticket.
    fn queue(&mut self, bytes: u64, waker: Waker) -> u64 {
        self.tickets += 1;
        self.queue.push_back(Waiting { ticket: self.tickets, bytes, waker });
        self.tickets
    }

    /// Releases the requests whose time has come. The new first one is woken too, so that it waits for its own time.
    fn advance(&mut self, now: Instant) {
        while let Some(first) = self.queue.front() {
            let (paid, _) = *self.turn.get_or_insert_with(|| {
                first.waker.wake_by_ref();
                let before = self.buckets;
                let Buckets { requests, bytes } = &mut self.buckets;
                (requests.take(1, now).max(bytes.take(first.bytes, now)), before)
            });
            if paid > now {
                return;
            }
            first.waker.wake_by_ref();
            self.queue.pop_front();
            self.turn = None;
        }
    }

    /// The time for which the request of `ticket` can only wait; `None` if it may proceed.
    fn left(&self, ticket: u64, now: Instant) -> Option<Duration> {
        match self.queue.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()? {
            0 => self.turn.map(|(paid, _)| paid.saturating_duration_since(now)),
            _ => Some(Duration::MAX),
        }
    }

    /// Removes the request of `ticket`, which will not be made.
    fn leave(&mut self, ticket: u64, now: Instant) {
        let Ok(at) = self.queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) else { return };
        self.queue.remove(at);
        if at == 0
            && let Some((_, before)) = self.turn.take()
        {
            self.buckets = before;
            self.advance(now);
        }
    }
}

impl Throttle {
    /// Limits of requests and bytes a second; 0 for no limit.
    pub(crate) fn new(requests: u64, bytes: u64) -> Throttle {
        let state = State { buckets: Buckets::new(requests, bytes), queue: VecDeque::new(), turn: None, tickets: 0 };
        Throttle { on: AtomicBool::new(requests > 0 || bytes > 0), state: Mutex::new(state) }
    }

    /// Changes the rates. Waiting requests check them again.
    pub(crate) fn set(&self, requests: u64, bytes: u64) {
        let mut state = lock(&self.state);
        state.buckets = Buckets::new(requests, bytes);
        state.turn = None;
        self.on.store(requests > 0 || bytes > 0, Ordering::Relaxed);
        state.queue.drain(..).for_each(|waiting| waiting.waker.wake());
    }

    /// Whether any rate is limited.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Parks the thread until a request of this many bytes is within the rates, or they change.
    pub(crate) fn park(&self, bytes: u64) {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        self.wait(bytes, &waker, |left| {
            std::thread::park_timeout(left);
            true
        });
    }

    /// Waits until a request of this many bytes is within the rates, or they change. `rest` returns after the given
    /// time, when `waker` is woken, or sooner. If it returns false, the request leaves the queue, and this function
    /// returns false.
    pub(crate) fn wait(&self, bytes: u64, waker: &Waker, mut rest: impl FnMut(Duration) -> bool) -> bool {
        let mut state = lock(&self.state);
        let ticket = state.queue(bytes, waker.clone());
        loop {
            let now = Instant::now();
            state.advance(now);
            let Some(left) = state.left(ticket, now) else { return true };
            drop(state);
            let stays = rest(left.min(GLANCE));
            state = lock(&self.state);
            if !stays {
                state.leave(ticket, Instant::now());
                return false;
            }
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
        // Ten accumulate while there are no requests; then there is one every 10 ms.
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
    fn turns_come_in_order_and_who_leaves_owes_nothing() {
        let throttle = Throttle::new(0, 1000);
        let mut state = lock(&throttle.state);
        let start = Instant::now() + Duration::from_secs(10);
        let at = |ms| start + Duration::from_millis(ms);
        let ask = |state: &mut State, bytes| state.queue(bytes, Waker::noop().clone());
        let [first, day, small, last] = [100, 86_400_000, 300, 50].map(|bytes| ask(&mut state, bytes));
        let waiting = |state: &State| state.queue.iter().map(|waiting| waiting.ticket).collect::<Vec<_>>();
        state.advance(start);
        assert_eq!(waiting(&state), [day, small, last], "what is kept is enough for the first");
        assert_eq!((state.left(first, start), state.left(small, start)), (None, Some(Duration::MAX)));
        state.advance(at(2000));
        state.leave(day, at(2000));
        // No more accumulates in these two seconds than in any others.
        assert_eq!(state.left(small, at(2000)), Some(Duration::from_millis(200)));
        state.advance(at(2199));
        assert_eq!(waiting(&state), [small, last]);
        state.advance(at(2200));
        assert_eq!(waiting(&state), [last]);
        // A request that leaves the queue does not affect those before it.
        let behind = ask(&mut state, 1 << 40);
        state.leave(behind, at(2200));
        assert_eq!(state.left(last, at(2200)), Some(Duration::from_millis(50)));
        state.advance(at(2250));
        assert!(state.queue.is_empty() && state.turn.is_none());
    }

    #[test]
    fn who_waits_goes_on_when_the_rates_change() {
        let throttle = Throttle::new(0, 1);
        assert!(throttle.is_on());
        std::thread::scope(|scope| {
            // Waits a day unless the rates change.
            let waits = scope.spawn(|| throttle.park(86400));
            while !waits.is_finished() {
                throttle.set(0, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(!throttle.is_on());
    }

    #[test]
    fn who_waits_goes_on_when_the_one_before_it_leaves() {
        let throttle = &Throttle::new(0, 1000);
        let left = AtomicBool::new(false);
        let queued = |count| {
            while lock(&throttle.state).queue.len() < count {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let leaves = scope.spawn(|| throttle.wait(86_400_000, Waker::noop(), |_| !left.load(Ordering::Relaxed)));
            queued(1);
            // It waits for a tenth of a second at most.
            let waits = scope.spawn(move || {
                let waker = Arc::new(Unpark(std::thread::current())).into();
                let mut rests = 0;
                throttle.wait(1, &waker, |left| {
                    rests += 1;
                    std::thread::park_timeout(left);
                    rests <= 200
                })
            });
            queued(2);
            left.store(true, Ordering::Relaxed);
            assert!(!leaves.join().unwrap() && waits.join().unwrap());
        });
    }
}
