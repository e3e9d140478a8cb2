//! A wake-up call between threads: an eventfd, and how a thread waits for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
#[cfg(not(loom))]
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// When a wait is tried again that the kernel has no memory for.
#[cfg(not(loom))]
const RETRY: Duration = Duration::from_millis(1);

/// Readable from `raise` until `clear`.
#[derive(Debug)]
pub struct Signal {
    descriptor: OwnedFd,
    /// The kernel's part, for loom.
    #[cfg(loom)]
    raised: (loom::sync::Mutex<bool>, loom::sync::Condvar),
}

impl Signal {
    /// A signal that is not raised. Takes a descriptor.
    pub fn new() -> io::Result<Signal> {
        Ok(Signal {
            descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            #[cfg(loom)]
            raised: Default::default(),
        })
    }

    /// Makes it readable.
    #[cfg(not(loom))]
    pub fn raise(&self) {
        // Fails only where the count is at its maximum, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until it is raised again.
    #[cfg(not(loom))]
    pub fn clear(&self) {
        // Fails where nothing was raised.
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
    }

    /// Waits until it is raised, or one of `others` is readable, or for `timeout`; then clears it.
    #[cfg(not(loom))]
    pub(crate) fn wait_with<'a>(&'a self, others: impl Iterator<Item = BorrowedFd<'a>>, timeout: Option<Duration>) {
        let timeout =
            timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let all = std::iter::once(self.as_fd()).chain(others);
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut all, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOMEM) => std::thread::sleep(RETRY),
            Err(errno) => panic!("poll: {errno}"),
        }
        if !all[0].revents().is_empty() {
            self.clear();
        }
    }
}

#[cfg(loom)]
impl Signal {
    /// Has `wait` go on.
    pub fn raise(&self) {
        *self.raised.0.lock().expect("no error") = true;
        self.raised.1.notify_all();
    }

    /// Has `wait` wait.
    pub fn clear(&self) {
        *self.raised.0.lock().expect("no error") = false;
    }

    /// Waits until it is raised.
    pub(crate) fn wait(&self) {
        let mut raised = self.raised.0.lock().expect("no error");
        while !*raised {
            raised = self.raised.1.wait(raised).expect("no error");
        }
    }

    /// Models have no other descriptors, and no time passes.
    pub(crate) fn wait_with<'a>(&'a self, others: impl Iterator<Item = BorrowedFd<'a>>, timeout: Option<Duration>) {
        assert!(others.count() == 0 && timeout.is_none());
        self.wait();
        self.clear();
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
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
