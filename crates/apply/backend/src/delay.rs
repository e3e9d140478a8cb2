//! A wrapper that makes a device as slow as another one.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use nigh_engine::Fault;

use crate::device::{Completion, Device, Geometry, Job};
use crate::latency::Paced;
use crate::modelled::{Clocked, request};

/// The source of a job's duration.
pub(crate) enum Pace {
    Latency(Paced),
    Model(Box<Clocked>),
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
    pace: Pace,
    held: BinaryHeap<Reverse<Held>>,
    taken: u64,
    failed: Vec<Completion>,
}

impl Delayed {
    /// `inner`, slowed down.
    pub(crate) fn new(pace: Pace, inner: Box<dyn Device>) -> Delayed {
        Delayed { inner, pace, held: BinaryHeap::new(), taken: 0, failed: Vec::new() }
    }
}

impl Device for Delayed {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.inner.geometry()
    }

    fn submit(&mut self, job: Job) {
        let now = Instant::now();
        let due = match &mut self.pace {
            Pace::Latency(paced) => paced.due(now, &job),
            Pace::Model(clocked) => match clocked.due(now, request(&job)) {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "the target has grown beyond the device that it is to behave like");
                    return self.failed.push(job.finish(Err(Fault(libc::EIO))));
                }
            },
        };
        self.taken += 1;
        self.held.push(Reverse(Held { due, order: self.taken, job }));
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.failed);
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

    fn is_restless(&self) -> bool {
        self.inner.is_restless()
    }
}
