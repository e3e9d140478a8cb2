//! State that an object device shares with its thread.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nigh_engine::Fault;
use nigh_objects::Disk;
use tokio::sync::Notify;

use crate::device::{Completion, Extent, Geometry, Job};
use crate::signal::Signal;
use crate::stamp::Stamp;

#[derive(Default)]
struct Mail {
    jobs: Vec<Job>,
    done: Vec<Completion>,
    is_closing: bool,
}

/// State that the device shares with its thread, and with callers that query it.
pub(super) struct Desk {
    disk: Mutex<Disk>,
    bytes: u64,
    is_written: bool,
    is_taken_over: AtomicBool,
    /// Why requests to the store fail at present.
    trouble: Mutex<Option<String>>,
    mail: Mutex<Mail>,
    /// Wakes the thread of the store.
    wake: Notify,
    /// Signals completions to the driver.
    done: Signal,
}

impl Desk {
    pub(super) fn new(disk: Disk, is_written: bool) -> io::Result<Desk> {
        Ok(Desk {
            bytes: disk.bytes(),
            disk: Mutex::new(disk),
            is_written,
            is_taken_over: AtomicBool::new(false),
            trouble: Mutex::default(),
            mail: Mutex::default(),
            wake: Notify::new(),
            done: Signal::new()?,
        })
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the disk. It is not locked for longer than the bytes of a job, or of a part, or a manifest are copied.
    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nobody panics with it")
    }

    /// The size of the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is open for writing.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Acquire)
    }

    /// Somebody else writes the disk now.
    pub(super) fn take_over(&self) {
        self.is_taken_over.store(true, Ordering::Release);
    }

    /// Requests to the store fail, for this reason, or do not any more.
    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub(super) fn submit(&self, job: Job) {
        self.mail().jobs.push(job);
        self.wake.notify_one();
    }

    /// The device is dropped.
    pub(super) fn close(&self) {
        self.mail().is_closing = true;
        self.wake.notify_one();
    }

    /// New jobs, and whether the device is dropped.
    pub(super) fn take(&self) -> (Vec<Job>, bool) {
        let mut mail = self.mail();
        (std::mem::take(&mut mail.jobs), mail.is_closing)
    }

    /// Waits until there is something to take.
    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// A job is done.
    pub(super) fn finish(&self, job: Job, result: Result<(), Fault>) {
        let completion = job.finish(result);
        self.mail().done.push(completion);
        self.done.raise();
    }

    /// Appends what is done.
    pub(super) fn poll(&self, done: &mut Vec<Completion>) {
        self.done.clear();
        done.append(&mut self.mail().done);
    }

    /// Readable when something is done.
    pub(super) fn signal(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

impl Geometry for Desk {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        let range = range.start.min(self.bytes)..range.end.min(self.bytes);
        let extents = self.disk().extents(range, most);
        Ok(extents.into_iter().map(|(range, hole)| Extent { range, hole }).collect())
    }

    /// Nothing that is not in the store is forgotten.
    fn replays(&self) -> bool {
        true
    }

    fn is_taken_over(&self) -> bool {
        Desk::is_taken_over(self)
    }

    fn staged(&self) -> u64 {
        self.disk().unstored()
    }

    fn trouble(&self) -> Option<String> {
        if Desk::is_taken_over(self) {
            return Some("another writer has the disk".to_owned());
        }
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The disk, and when it changed last, in revisions.
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let disk = self.disk();
        let stored = disk.stored();
        let stamp = [stored.disk as u64, (stored.disk >> 64) as u64, self.bytes, stored.changed];
        Ok((disk.is_settled() && !self.is_taken_over()).then_some(stamp))
    }
}
