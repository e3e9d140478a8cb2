//! The mail of a queue's thread: requests that are over, and the order to stop.

use std::sync::{Arc, Mutex};

use nigh_backend::Signal;
use nigh_host::front::{Measure, Outlet, Work, lock};
use nigh_service::front::Asked;

/// A request that is over: its chain is to become used.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    pub(crate) head: u16,
    /// Bytes that the guest can read.
    pub(crate) bytes: u32,
    /// The counter of its latency, and its range; none if it failed before anything was asked.
    pub(crate) measure: Option<(Measure, Asked)>,
}

/// Requests and orders that other threads leave for the thread of a queue.
pub(crate) struct Mail {
    state: Mutex<State>,
    /// Wakes the thread.
    pub(crate) wake: Signal,
}

#[derive(Default)]
struct State {
    over: Vec<Over>,
    stopping: bool,
    /// The thread waits for its descriptors.
    asleep: bool,
}

impl Outlet for Mail {
    fn flush(self: Arc<Self>, _: &mut Work) {
        let is_asleep = std::mem::take(&mut lock(&self.state).asleep);
        if is_asleep {
            self.wake.raise();
        }
    }
}

impl Mail {
    /// For a queue with this many slots.
    pub(crate) fn new(slots: usize) -> std::io::Result<Mail> {
        let state = State { over: Vec::with_capacity(slots), ..State::default() };
        Ok(Mail { state: Mutex::new(state), wake: Signal::new()? })
    }

    /// A request is over. The thread gets to know it with `flush`.
    pub(crate) fn push(&self, over: Over) {
        lock(&self.state).over.push(over);
    }

    /// Moves the requests that are over to the end of `to`.
    pub(crate) fn take(&self, to: &mut Vec<Over>) {
        to.append(&mut lock(&self.state).over);
    }

    /// Whether the thread has something to do.
    pub(crate) fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.over.is_empty() && !state.stopping
    }

    /// The thread may wait now; returns false if there is something new.
    pub(crate) fn may_sleep(&self, knows_of_stop: bool) -> bool {
        let mut state = lock(&self.state);
        state.asleep = state.over.is_empty() && (knows_of_stop || !state.stopping);
        state.asleep
    }

    /// The thread is awake.
    pub(crate) fn awake(&self) {
        lock(&self.state).asleep = false;
    }

    /// The thread takes no more requests, and ends when none is in progress.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.wake.raise();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.state).stopping
    }
}
