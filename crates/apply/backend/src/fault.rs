//! A wrapper that makes chosen operations go wrong, for tests.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use nigh_engine::{Action, Fault};

use crate::device::{Completion, Device, Geometry, Job};

/// Unit of a disk's transfers, in bytes: each is transferred whole.
const SECTOR: u64 = 512;

/// Which operation goes wrong, and how. Those that fail do so with EIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A read fails.
    Read,
    /// A write fails, and nothing of it arrives.
    Write,
    /// A flush fails.
    Flush,
    /// A discard fails.
    Discard,
    /// A writing of zeros fails.
    Zeroes,
    /// A read fails after its first half.
    ShortRead,
    /// A write fails after its first half arrived.
    ShortWrite,
    /// Of a write only the first sectors arrive, a quarter of it, and it is reported as done: what a disk with a cache
    /// leaves when it loses power.
    TornWrite,
}

impl FaultKind {
    pub(crate) const ALL: [(&'static str, FaultKind); 8] = [
        ("read", FaultKind::Read),
        ("write", FaultKind::Write),
        ("flush", FaultKind::Flush),
        ("discard", FaultKind::Discard),
        ("zeroes", FaultKind::Zeroes),
        ("short-read", FaultKind::ShortRead),
        ("short-write", FaultKind::ShortWrite),
        ("torn-write", FaultKind::TornWrite),
    ];

    /// Among which operations it counts.
    fn class(self) -> usize {
        match self {
            FaultKind::Read | FaultKind::ShortRead => 0,
            FaultKind::Write | FaultKind::ShortWrite | FaultKind::TornWrite => 1,
            FaultKind::Flush => 2,
            FaultKind::Discard => 3,
            FaultKind::Zeroes => 4,
        }
    }
}

/// One fault that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The fault,
    pub kind: FaultKind,
    /// and to which read, write, flush, discard or writing of zeros, counted from 1 in the order of their submission.
    pub at: u64,
}

/// The device.
pub(crate) struct Faulty {
    inner: Box<dyn Device>,
    plan: Vec<Planned>,
    /// Operations so far, by class.
    counts: [u64; 5],
    failed: Vec<Completion>,
}

impl Faulty {
    pub(crate) fn new(plan: Vec<Planned>, inner: Box<dyn Device>) -> Faulty {
        Faulty { inner, plan, counts: [0; 5], failed: Vec::new() }
    }
}

fn class(action: &Action) -> usize {
    match action {
        Action::Read(_) => 0,
        Action::Write(_) => 1,
        Action::Flush => 2,
        Action::Discard => 3,
        Action::Zeroes { .. } => 4,
    }
}

impl Device for Faulty {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.inner.geometry()
    }

    fn submit(&mut self, mut job: Job) {
        let class = class(&job.operation.action);
        self.counts[class] += 1;
        let due = self.plan.iter().find(|fault| fault.kind.class() == class && fault.at == self.counts[class]);
        let failed = Err(Fault(libc::EIO));
        match due.map(|fault| fault.kind) {
            None => {}
            Some(FaultKind::ShortRead | FaultKind::ShortWrite) => {
                job.bytes = job.bytes / 2 / SECTOR * SECTOR;
                job.verdict = failed;
            }
            Some(FaultKind::TornWrite) => job.bytes = job.bytes / 4 / SECTOR * SECTOR,
            Some(_) => return self.failed.push(job.finish(failed)),
        }
        self.inner.submit(job);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.failed);
        self.inner.poll(now, done);
    }

    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline()
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.inner.signal()
    }

    fn is_restless(&self) -> bool {
        self.inner.is_restless()
    }
}
