//! A device of the program's own.
//!
//! 1. Each operation becomes a [`CustomRequest`], which owns its frames, and one of the device's threads calls [`CustomDevice::perform`] with it.
//! 2. The device may do it there and then, or keep it and finish it later, on any thread.
//! 3. A request that is dropped, also by a panic, fails with EIO. One that is never dropped nor finished holds up its disk, but no other.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use nigh_engine::{Action, Fault};

use crate::device::{Completion, Device, Extent, Geometry, Job};
use crate::pool::{Outbox, Pool};

/// Storage that a program provides, of which a disk is made.
///
/// Requests that are in progress at the same time never change the same bytes. A flush covers the requests that were finished when it began.
pub trait CustomDevice: Send + Sync + 'static {
    /// The present size in bytes. Returns at once; any thread calls it.
    fn size(&self) -> io::Result<u64>;

    /// Does `request`, and finishes it, or keeps it to finish it later. It may block: as many calls are in progress as the device has
    /// threads ([`Custom::new`]).
    fn perform(&self, request: CustomRequest);
}

/// A device of the program's own as the target of a disk.
#[derive(Clone)]
pub struct Custom {
    name: String,
    threads: usize,
    device: Arc<dyn CustomDevice>,
}

impl Custom {
    /// `device`, which is called by this many threads at a time, at least one, and is called `name` in messages.
    pub fn new(name: impl Into<String>, threads: usize, device: Arc<dyn CustomDevice>) -> Custom {
        Custom { name: name.into(), threads: threads.max(1), device }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its present size in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        self.device.size()
    }

    /// Starts its threads.
    pub(crate) fn open(&self) -> io::Result<Box<dyn Device>> {
        let (device, name) = (self.device.clone(), self.name.clone());
        let begin = move |job: Job, outbox: &Outbox| {
            let request = CustomRequest { job: Some(job), outbox: outbox.clone() };
            if catch_unwind(AssertUnwindSafe(|| device.perform(request))).is_err() {
                tracing::error!(device = name, "it panicked in a request, which fails");
            }
        };
        let pool = Pool::new(self.threads, begin)?;
        Ok(Box::new(CustomQueue { pool, geometry: Arc::new(self.clone()) }))
    }
}

/// The same device.
impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.name)
    }
}

impl Geometry for Custom {
    fn size(&self) -> io::Result<u64> {
        self.device.size()
    }

    fn extents(&self, range: Range<u64>, _most: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { range, hole: false }])
    }
}

/// A request to a device of the program's own.
#[must_use = "the request fails"]
pub struct CustomRequest {
    /// `None` once it is finished.
    job: Option<Job>,
    outbox: Outbox,
}

/// The action of a [`CustomRequest`].
#[derive(Debug)]
pub enum CustomAction<'a> {
    /// Fills the slices with the range's bytes, in this order.
    Read(Vec<IoSliceMut<'a>>),
    /// Writes the slices to the range, in this order.
    Write(Vec<IoSlice<'a>>),
    /// Makes all that was written stable.
    Flush,
    /// The contents of the range are no longer needed. The device may ignore it.
    Discard,
    /// Makes the range read as zeros.
    Zero,
}

impl CustomRequest {
    fn job(&self) -> &Job {
        self.job.as_ref().expect("it is not finished")
    }

    /// The bytes of the device: whole blocks of 4096 bytes, except at its end; empty for a flush.
    pub fn range(&self) -> Range<u64> {
        self.job().range()
    }

    /// The action, with the memory that it reads into or writes from: a slice for each block.
    pub fn action(&mut self) -> CustomAction<'_> {
        let job = self.job.as_mut().expect("it is not finished");
        let mut left = job.bytes as usize;
        let mut part = |length: usize| {
            let now = length.min(left);
            left -= now;
            now
        };
        match &mut job.operation.action {
            Action::Read(frames) => {
                let slices = frames.slices_mut().map(|slice| {
                    let now = part(slice.len());
                    IoSliceMut::new(&mut slice[..now])
                });
                CustomAction::Read(slices.collect())
            }
            Action::Write(frames) => {
                CustomAction::Write(frames.slices().map(|slice| IoSlice::new(&slice[..part(slice.len())])).collect())
            }
            Action::Flush => CustomAction::Flush,
            Action::Discard => CustomAction::Discard,
            Action::Zeroes { .. } => CustomAction::Zero,
        }
    }

    /// All of it is done, or failed. An error without a number of the system counts as EIO.
    pub fn finish(mut self, result: io::Result<()>) {
        self.end(result.map_err(|error| Fault(error.raw_os_error().unwrap_or(libc::EIO))));
    }

    fn end(&mut self, result: Result<(), Fault>) {
        if let Some(job) = self.job.take() {
            self.outbox.put(job.finish(result));
        }
    }
}

impl Drop for CustomRequest {
    fn drop(&mut self) {
        self.end(Err(Fault(libc::EIO)));
    }
}

impl fmt::Debug for CustomRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomRequest").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// An open device of the program's own: requests wait until one of its threads takes them.
struct CustomQueue {
    pool: Pool,
    geometry: Arc<Custom>,
}

impl Device for CustomQueue {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.geometry.clone()
    }

    fn submit(&mut self, job: Job) {
        self.pool.submit(job);
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        self.pool.poll(done);
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool.signal())
    }
}
