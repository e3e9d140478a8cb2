//! Jobs on a file by io_uring.
//!
//! The ring does flushes and what goes one way, past the page cache or through it; a pool of threads does the rest:
//! tails that need both ways, discards and zeros.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};
use nigh_engine::{Action, Fault};

use crate::device::{Completion, Job};
use crate::open::OpenFile;
use crate::perform::SLICES_MAX;
use crate::pool::Pool;

/// The one registered file.
const FILE: types::Fixed = types::Fixed(0);
/// The user data of the watch over the pool's signal; flights have their number.
const POOL: u64 = u64::MAX;
/// Threads of the kernel for operations that wait, of all rings of a thread together: the flights of 32 full rings. By
/// default, there are four for each processor.
const WORKERS_MAX: u32 = 4096;
/// Threads for what the ring does not do.
const POOL_THREADS: usize = 2;
/// Completions that are taken at a time: few, so that what follows from them is at the device while the others are
/// looked after.
const REAP_MAX: usize = 8;
/// How often a job is tried again that the kernel has no resources for.
const TRIES_MAX: u32 = 1000;
/// When a submission is tried again that the kernel has no resources for.
const RETRY: Duration = Duration::from_millis(1);

/// A job that the kernel works on, or a free place for one.
struct Flight {
    job: Option<Job>,
    /// The memory of the job's frames, in order; the first `at` are done.
    slices: Vec<libc::iovec>,
    at: usize,
    /// Place of slice `at`, in bytes.
    offset: u64,
    tries: u32,
}

/// The ring and what is in flight.
pub(crate) struct Uring {
    ring: IoUring,
    file: Arc<OpenFile>,
    /// **Invariant:** a flight that the kernel knows keeps its job, and so its frames and slices, until its completion.
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Jobs for which no flight is free.
    waiting: VecDeque<Job>,
    pool: Pool,
    /// Whether the ring watches the pool's signal.
    watching: bool,
    /// Whether the last submission left entries behind.
    stuck: bool,
}

// SAFETY: the slices point into frames that the flight's job holds, and a job may go to another thread.
unsafe impl Send for Flight {}

impl Uring {
    /// Fails where the system has no io_uring, or does not allow it.
    pub(crate) fn new(file: &Arc<OpenFile>, depth: u32) -> io::Result<Uring> {
        // One entry per flight and one to watch the pool.
        let entries = (depth + 1).next_power_of_two();
        let ring = match IoUring::builder().dontfork().setup_coop_taskrun().build(entries) {
            // Linux before 5.19.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            ring => ring?,
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Another file of the same thread that does not respond must not use up the workers. Linux before 5.15 cannot.
        let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
        ring.submitter().register_files(&[file.way().as_raw_fd()])?;
        let flight = |_| Flight { job: None, slices: Vec::new(), at: 0, offset: 0, tries: 0 };
        Ok(Uring {
            ring,
            file: file.clone(),
            flights: (0..depth).map(flight).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            // From the start, since later there may be no descriptors and threads.
            pool: Pool::of_file(file, POOL_THREADS)?,
            watching: false,
            stuck: false,
        })
    }

    pub(crate) fn submit(&mut self, job: Job) {
        let one_way = match job.operation.action {
            Action::Read(_) | Action::Write(_) => {
                job.bytes > 0 && (self.file.direct.is_none() || self.file.direct_bytes(&job.range()) == job.bytes)
            }
            Action::Flush => true,
            Action::Discard | Action::Zeroes { .. } => false,
        };
        if one_way {
            self.waiting.push_back(job);
        } else {
            self.pool.submit(job);
        }
    }

    /// Starts what can be started and appends what is complete.
    pub(crate) fn poll(&mut self, done: &mut Vec<Completion>) {
        let before = done.len();
        loop {
            self.reap(done);
            self.watch(done);
            while !self.waiting.is_empty() && !self.free.is_empty() {
                let (job, place) = (self.waiting.pop_front().expect("not empty"), self.free.pop().expect("not empty"));
                self.start(place, job);
            }
            if self.ring.submission().is_empty() {
                return;
            }
            self.enter(0).expect("io_uring_enter takes what it should");
            if self.stuck || done.len() > before {
                return;
            }
        }
    }

    /// Collects what the pool has done, and has the ring watch for more.
    fn watch(&mut self, done: &mut Vec<Completion>) {
        if !self.watching {
            self.pool.poll(done);
            let watch = opcode::PollAdd::new(types::Fd(self.pool.signal().as_raw_fd()), libc::POLLIN as u32);
            self.watching = true;
            self.push(watch.build().user_data(POOL));
        }
    }

    /// When to retry operations for which the kernel had no resources.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.stuck.then(|| Instant::now() + RETRY)
    }

    /// Readable when something is complete.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which `self` keeps open.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Gives the entries to the kernel and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        self.stuck = false;
        while want > 0 || !self.ring.submission().is_empty() {
            match self.ring.submitter().submit_and_wait(want) {
                Ok(_) if want > 0 => break,
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                        self.stuck = true;
                        break;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        // SAFETY: the memory of a flight's entry is kept until its completion (the invariant of `flights`), and the
        // watch has none; the files are open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there are as many entries as flights, and one more");
    }

    fn start(&mut self, place: u32, mut job: Job) {
        let flight = &mut self.flights[place as usize];
        flight.slices.clear();
        flight.at = 0;
        flight.offset = job.operation.offset;
        flight.tries = 0;
        let mut left = job.bytes as usize;
        let mut add = |start: *mut u8, bytes: usize| {
            let bytes = bytes.min(left);
            left -= bytes;
            match flight.slices.last_mut() {
                _ if bytes == 0 => {}
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == start.cast() => last.iov_len += bytes,
                _ => flight.slices.push(libc::iovec { iov_base: start.cast(), iov_len: bytes }),
            }
        };
        match &mut job.operation.action {
            Action::Read(frames) => frames.slices_mut().for_each(|slice| add(slice.as_mut_ptr(), slice.len())),
            // The kernel only reads them.
            Action::Write(frames) => frames.slices().for_each(|slice| add(slice.as_ptr().cast_mut(), slice.len())),
            _ => {}
        }
        flight.job = Some(job);
        self.launch(place);
    }

    /// Asks the kernel for what the flight at `place` has still to do.
    fn launch(&mut self, place: u32) {
        let flight = &self.flights[place as usize];
        let slices = &flight.slices[flight.at..];
        let (base, count) = (slices.as_ptr(), slices.len().min(SLICES_MAX) as u32);
        let (offset, alone) = (flight.offset, (slices.len() == 1).then(|| slices[0]));
        let entry = match (&flight.job.as_ref().expect("a job in flight").operation.action, alone) {
            (Action::Read(_), Some(slice)) => {
                opcode::Read::new(FILE, slice.iov_base.cast(), slice.iov_len as u32).offset(offset).build()
            }
            (Action::Read(_), None) => opcode::Readv::new(FILE, base, count).offset(offset).build(),
            (Action::Write(_), Some(slice)) => {
                opcode::Write::new(FILE, slice.iov_base.cast(), slice.iov_len as u32).offset(offset).build()
            }
            (Action::Write(_), None) => opcode::Writev::new(FILE, base, count).offset(offset).build(),
            _ => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.push(entry.user_data(u64::from(place)));
    }

    /// Takes completions of the kernel, at most `REAP_MAX`.
    fn reap(&mut self, done: &mut Vec<Completion>) {
        for _ in 0..REAP_MAX {
            let next = self.ring.completion().next();
            let Some(entry) = next else { return };
            if entry.user_data() == POOL {
                self.watching = false;
                continue;
            }
            let place = entry.user_data() as u32;
            let flight = &mut self.flights[place as usize];
            let result = match entry.result() {
                negative if negative < 0 => match -negative {
                    errno @ (libc::EINTR | libc::EAGAIN) => {
                        flight.tries += 1;
                        (flight.tries > TRIES_MAX).then_some(Err(Fault(errno)))
                    }
                    errno => Some(Err(Fault(errno))),
                },
                bytes => flight.advance(bytes as usize),
            };
            match result {
                None => self.launch(place),
                Some(result) => {
                    self.free.push(place);
                    done.push(flight.job.take().expect("a job in flight").finish(result));
                }
            }
        }
    }
}

impl Flight {
    /// `bytes` more are done: what the job's result is, if that was all.
    fn advance(&mut self, mut bytes: usize) -> Option<Result<(), Fault>> {
        if self.at == self.slices.len() {
            return Some(Ok(()));
        }
        if bytes == 0 {
            // The file became shorter.
            return Some(Err(Fault(libc::EIO)));
        }
        self.offset += bytes as u64;
        while let Some(slice) = self.slices.get_mut(self.at)
            && bytes > 0
        {
            let part = bytes.min(slice.iov_len);
            slice.iov_base = slice.iov_base.wrapping_byte_add(part);
            slice.iov_len -= part;
            bytes -= part;
            self.at += usize::from(slice.iov_len == 0);
        }
        (self.at == self.slices.len()).then_some(Ok(()))
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.free.len() < self.flights.len() {
            if self.enter(1).is_err() {
                // The kernel may use the frames for ever.
                std::mem::forget(std::mem::take(&mut self.flights));
                return;
            }
            self.reap(&mut done);
        }
    }
}
