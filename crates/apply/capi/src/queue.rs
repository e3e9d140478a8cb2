//! Queues: the ends of asynchronous requests, to be collected by the program.
//!
//! 1. A request takes one of the queue's places ([`Queue::begin`]) and is submitted with a callback that has its [`Ticket`].
//! 2. The callback, on a thread of the host or the one that submitted, puts the end into the queue. With the first one, the eventfd becomes readable.
//! 3. [`nigh_completions`] takes ends out, fills the buffers of reads, and frees the places. With the last one, the eventfd is no longer readable.
//!
//! Only step 3 touches a program's buffer, so a queue that is closed early leaves it alone.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::nigh_host::{HostError, Pinned};
use rustix::event::{EventfdFlags, eventfd};

use crate::NIGH_DURABLE;
use crate::args::{buffer, bytes, flags, owned, place, range, reference};
use crate::disk::nigh_disk;
use crate::error::{Error, entry};
use crate::pin::{nigh_pinned, within_block};

const DEPTH_MOST: usize = 1 << 16;
const FULL: Error = Error::fixed(libc::EAGAIN, c"the queue has as many requests as its depth");

/// A queue of completions.
pub struct nigh_queue(Arc<Queue>);

/// The end of a request.
#[repr(C)]
pub struct nigh_completion {
    /// As given with the request.
    pub user: *mut c_void,
    /// 0 or a negative errno.
    pub result: c_int,
    /// 0.
    pub reserved: u32,
    /// The pin that was asked for, if `result` is 0.
    pub pinned: nigh_pinned,
}

struct Queue {
    state: Mutex<State>,
    /// There is an end.
    ready: Condvar,
    /// **Invariant:** while `state` is not locked, its count is 1 if there are ends, and otherwise 0.
    event: OwnedFd,
    depth: usize,
    forks: u32,
}

struct State {
    ended: VecDeque<Ended>,
    /// Requests that are not collected.
    requests: usize,
    closed: bool,
}

/// A pointer of the program that the library only passes on, or that is its own until the end is collected.
#[derive(Clone, Copy)]
struct Foreign(*mut c_void);

// SAFETY: no thread but that of `nigh_completions` uses it, and nigh.h allows any thread to call that.
unsafe impl Send for Foreign {}

/// The result of a request that succeeds.
enum Brings {
    Nothing,
    /// Bytes for a buffer of this length or more.
    Bytes(Vec<u8>, Foreign),
    Pin(Pinned),
}

struct Ended {
    user: Foreign,
    result: Result<Brings, Error>,
}

/// A request in progress. If it is dropped, as by a panic, its request fails.
struct Ticket {
    queue: Arc<Queue>,
    user: Foreign,
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a request.
    fn begin(self: &Arc<Self>, user: *mut c_void) -> Result<Ticket, Error> {
        if self.forks != nigh_backend::forks() {
            return Err(Error::FORKED);
        }
        let mut state = self.state();
        if state.requests == self.depth {
            return Err(FULL);
        }
        state.requests += 1;
        Ok(Ticket { queue: self.clone(), user: Foreign(user), is_over: false })
    }

    fn put(&self, ended: Ended) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            // `ended`, which may hold a pin, is dropped without the lock.
            return;
        }
        state.ended.push_back(ended);
        if state.ended.len() == 1 {
            // It cannot fail: the count is 0.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
        self.ready.notify_one();
    }

    /// The next end; waits until `until`, or for ever, if there is none and `waits`.
    fn take(&self, waits: bool, until: Option<Instant>) -> Option<Ended> {
        let mut state = self.state();
        while state.ended.is_empty() {
            if !waits {
                return None;
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return None,
                Some(left) => self.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let ended = state.ended.pop_front();
        state.requests -= 1;
        if state.ended.is_empty() {
            // It cannot fail: the count is 1.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        ended
    }
}

impl Ticket {
    /// Puts the end of the request into the queue.
    fn end(mut self, result: Result<Brings, HostError>) {
        self.is_over = true;
        self.queue.put(Ended { user: self.user, result: result.map_err(Error::from) });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over {
            let lost = Error::fixed(libc::EIO, c"a bug in nigh: the request has no end");
            self.queue.put(Ended { user: self.user, result: Err(lost) });
        }
    }
}

/// The disk of a request, and its ticket.
///
/// # Safety
/// Both are null or not closed.
unsafe fn begin<'a>(
    disk: *mut nigh_disk,
    queue: *mut nigh_queue,
    user: *mut c_void,
) -> Result<(&'a nigh_disk, Ticket), Error> {
    // SAFETY: the caller's.
    let (disk, queue) = unsafe { (reference(disk)?, reference(queue)?) };
    disk.check()?;
    Ok((disk, queue.0.begin(user)?))
}

/// Makes a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_queue_new(depth: usize, queue: *mut *mut nigh_queue) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a place for a pointer.
        let queue = unsafe { place(queue) }?;
        if !(1..=DEPTH_MOST).contains(&depth) {
            return Err(Error::invalid(c"a queue has a depth from 1 to 65536"));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event =
            event.map_err(|error| Error::new(error.raw_os_error(), format!("cannot make an eventfd: {error}")))?;
        let state = State { ended: VecDeque::with_capacity(depth), requests: 0, closed: false };
        let (state, ready, forks) = (Mutex::new(state), Condvar::new(), nigh_backend::forks());
        *queue = Box::into_raw(Box::new(nigh_queue(Arc::new(Queue { state, ready, event, depth, forks }))));
        Ok(0)
    })
}

/// Frees a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_queue_close(queue: *mut nigh_queue) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: of nigh_queue_new, and not closed.
        if unsafe { reference(queue) }?.0.forks != nigh_backend::forks() {
            return Err(Error::FORKED);
        }
        // SAFETY: likewise; it is the last call with it.
        let queue = unsafe { owned(queue) }?;
        let mut state = queue.0.state();
        state.closed = true;
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        drop(ended);
        Ok(0)
    })
}

/// Its eventfd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_queue_fd(queue: *mut nigh_queue) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a queue that is not closed.
        let queue = unsafe { reference(queue) }?;
        if queue.0.forks == nigh_backend::forks() { Ok(queue.0.event.as_raw_fd()) } else { Err(Error::FORKED) }
    })
}

/// Reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_read_async(
    disk: *mut nigh_disk,
    queue: *mut nigh_queue,
    offset: u64,
    into: *mut c_void,
    length: usize,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: memory of this length, the library's until the end is collected.
        let into = unsafe { buffer(into.cast(), length) }?;
        let (range, into) = (range(offset, length as u64)?, Foreign(into.as_mut_ptr().cast()));
        // SAFETY: nigh.h: handles that are not closed.
        let (disk, ticket) = unsafe { begin(disk, queue, user) }?;
        disk.session.read_then(range, move |read| ticket.end(read.map(|bytes| Brings::Bytes(bytes, into))));
        Ok(0)
    })
}

/// Writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_write_async(
    disk: *mut nigh_disk,
    queue: *mut nigh_queue,
    offset: u64,
    from: *const c_void,
    length: usize,
    flag: u32,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: bytes of this length.
        let from = unsafe { bytes(from.cast(), length) }?;
        flags(flag, NIGH_DURABLE)?;
        // SAFETY: nigh.h: handles that are not closed.
        let (disk, ticket) = unsafe { begin(disk, queue, user) }?;
        let done = move |written: Result<Vec<u8>, HostError>| ticket.end(written.map(|_| Brings::Nothing));
        disk.session.write_then(offset, from.to_vec(), flag & NIGH_DURABLE != 0, done);
        Ok(0)
    })
}

/// Makes everything stable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_flush_async(disk: *mut nigh_disk, queue: *mut nigh_queue, user: *mut c_void) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: handles that are not closed.
        let (disk, ticket) = unsafe { begin(disk, queue, user) }?;
        disk.session.flush_then(move |flushed| ticket.end(flushed.map(|_| Brings::Nothing)));
        Ok(0)
    })
}

/// Pins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_pin_async(
    disk: *mut nigh_disk,
    queue: *mut nigh_queue,
    offset: u64,
    length: usize,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        let range = within_block(offset, length)?;
        // SAFETY: nigh.h: handles that are not closed.
        let (disk, ticket) = unsafe { begin(disk, queue, user) }?;
        disk.session.pin_then(range, move |pinned| ticket.end(pinned.map(Brings::Pin)));
        Ok(0)
    })
}

/// Collects ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_completions(
    queue: *mut nigh_queue,
    completions: *mut nigh_completion,
    most: usize,
    timeout_ms: c_int,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a queue that is not closed.
        let queue = &unsafe { reference(queue) }?.0;
        if queue.forks != nigh_backend::forks() {
            return Err(Error::FORKED);
        }
        if completions.is_null() || most == 0 {
            return Err(Error::invalid(c"there is no place for a completion"));
        }
        let until = u64::try_from(timeout_ms).ok().map(|limit| Instant::now() + Duration::from_millis(limit));
        let mut count = 0;
        while count < most.min(DEPTH_MOST) {
            let Some(ended) = queue.take(count == 0 && timeout_ms != 0, until) else { break };
            // SAFETY: nigh.h: an array of `most` completions.
            let at = unsafe { place(completions.add(count)) }?;
            // SAFETY: the buffer of a read is the library's until now.
            *at = unsafe { ended.complete(queue.forks) };
            count += 1;
        }
        Ok(count as c_int)
    })
}

impl Ended {
    /// The completion for the program.
    ///
    /// # Safety
    /// The buffer of a read is still the library's.
    unsafe fn complete(self, forks: u32) -> nigh_completion {
        let (mut result, mut pinned) = (0, nigh_pinned::NONE);
        match self.result {
            Ok(Brings::Nothing) => {}
            Ok(Brings::Bytes(bytes, into)) => {
                // SAFETY: the program's buffer has at least as many bytes, and is not part of a vector.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.0.cast(), bytes.len()) };
            }
            Ok(Brings::Pin(held)) => pinned = nigh_pinned::give(held, forks),
            Err(error) => result = -error.code,
        }
        nigh_completion { user: self.user.0, result, reserved: 0, pinned }
    }
}
