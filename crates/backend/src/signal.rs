//! A wake-up call between threads: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// Readable from `raise` until `clear`.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// A signal that is not raised. Takes a descriptor.
    pub fn new() -> io::Result<Signal> {
        Ok(Signal(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn raise(&self) {
        // Fails only where the count is at its maximum, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until it is raised again.
    pub fn clear(&self) {
        // Fails where nothing was raised.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}
