//! The mail of a thread that serves a queue of requests: those that are over, and the order to stop.

use std::io;
use std::sync::{Arc, Mutex};

use nigh_backend::Signal;
use nigh_host::front::{Outlet, Work, lock};

/// Requests and orders that other threads leave for the thread of a queue.
pub struct Mail<T> {
    state: Mutex<State<T>>,
    /// Wakes the thread.
    pub wake: Signal,
}

struct State<T> {
    over: Vec<T>,
    stopping: bool,
    /// The thread waits for its descriptors.
    asleep: bool,
}

impl<T: Send + 'static> Outlet for Mail<T> {
    fn flush(self: Arc<Self>, _: &mut Work) {
        let is_asleep = std::mem::take(&mut lock(&self.state).asleep);
        if is_asleep {
            self.wake.raise();
        }
    }
}

impl<T> Mail<T> {
    /// For a queue with this many requests at most. Takes a descriptor.
    pub fn new(requests: usize) -> io::Result<Mail<T>> {
        let state = State { over: Vec::with_capacity(requests), stopping: false, asleep: false };
        Ok(Mail { state: Mutex::new(state), wake: Signal::new()? })
    }

    /// A request is over. The thread gets to know it with `flush`.
    pub fn push(&self, over: T) {
        lock(&self.state).over.push(over);
    }

    /// Moves the requests that are over to the end of `to`.
    pub fn take(&self, to: &mut Vec<T>) {
        to.append(&mut lock(&self.state).over);
    }

    /// Whether the thread has nothing to do.
    pub fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.over.is_empty() && !state.stopping
    }

    /// The thread may wait now; returns false if there is something new.
    pub fn may_sleep(&self, knows_of_stop: bool) -> bool {
        let mut state = lock(&self.state);
        state.asleep = state.over.is_empty() && (knows_of_stop || !state.stopping);
        state.asleep
    }

    /// The thread is awake.
    pub fn awake(&self) {
        lock(&self.state).asleep = false;
    }

    /// The thread takes no more requests, and ends when none is in progress.
    pub fn stop(&self) {
        lock(&self.state).stopping = true;
        self.wake.raise();
    }

    /// Whether it is to stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.state).stopping
    }
}
