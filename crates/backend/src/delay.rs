//! A wrapper that makes a device as slow as another one: latency, rate, and the arm of a disk.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_engine::Action;

use crate::device::{Completion, Device, Geometry, Job};

/// How slow a device is. Seek, rotation and transfer of one operation follow those of the operation before, in the
/// order of submission; `fixed` and `jitter` are spent by each operation for itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Of each operation.
    pub fixed: Duration,
    /// Up to so much more, at random.
    pub jitter: Duration,
    /// Time to move the arm, to the next place and across the whole device; between them it grows with the square root
    /// of the distance. A read or write that begins where the one before ended has neither seek nor rotation.
    pub seek: Option<(Duration, Duration)>,
    /// Mean time until the place comes by: half a turn.
    pub rotation: Duration,
    /// Transfer of reads and writes, in bytes per second.
    pub rate: Option<u64>,
}

/// A job and when it starts on the wrapped device.
struct Held {
    due: Instant,
    /// Decides between equal times.
    order: u64,
    job: Job,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

/// The device. Jobs wait in it and then go to the wrapped one; those that still wait when it is dropped never start.
pub(crate) struct Delayed {
    inner: Box<dyn Device>,
    latency: Latency,
    /// Size of the device, for the distance.
    size: u64,
    held: BinaryHeap<Reverse<Held>>,
    taken: u64,
    /// When arm and channel are free.
    free_at: Instant,
    /// Where the arm is, in bytes.
    arm: u64,
    random: fastrand::Rng,
}

impl Delayed {
    /// `inner` of `size` bytes, slowed down.
    pub(crate) fn new(latency: Latency, inner: Box<dyn Device>, size: u64) -> Delayed {
        Delayed {
            inner,
            latency,
            size: size.max(1),
            held: BinaryHeap::new(),
            taken: 0,
            free_at: Instant::now(),
            arm: 0,
            random: fastrand::Rng::with_seed(1),
        }
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }

    /// How long `job` has arm and channel for itself.
    fn busy(&mut self, job: &Job) -> Duration {
        if !matches!(job.operation.action, Action::Read(_) | Action::Write(_)) {
            return Duration::ZERO;
        }
        let range = job.range();
        let distance = range.start.abs_diff(self.arm);
        self.arm = range.end;
        let mut busy =
            self.latency.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(job.bytes as f64 / rate as f64));
        if distance > 0 {
            if let Some((least, most)) = self.latency.seek {
                busy +=
                    least + most.saturating_sub(least).mul_f64((distance as f64 / self.size as f64).sqrt().min(1.0));
            }
            busy += self.up_to(2 * self.latency.rotation);
        }
        busy
    }
}

impl Device for Delayed {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.inner.geometry()
    }

    fn submit(&mut self, job: Job) {
        self.free_at = self.free_at.max(Instant::now()) + self.busy(&job);
        let due = self.free_at + self.latency.fixed + self.up_to(self.latency.jitter);
        self.taken += 1;
        self.held.push(Reverse(Held { due, order: self.taken, job }));
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        while self.held.peek().is_some_and(|Reverse(held)| held.due <= now) {
            let Reverse(held) = self.held.pop().expect("peeked");
            self.inner.submit(held.job);
        }
        self.inner.poll(now, done);
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.held.peek().map(|Reverse(held)| held.due);
        due.into_iter().chain(self.inner.deadline()).min()
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.inner.signal()
    }
}
