//! The jobs of a level, each as parts of one block, which different servers may have.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_engine::{Action, Fault};

use super::Desk;
use crate::device::Job;

/// A block of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    job: u64,
    /// Which block of the job.
    at: u64,
    /// Its place, counted in blocks from the beginning of the device.
    pub(super) place: u64,
    pub(super) is_read: bool,
}

/// A job whose parts are under way.
struct Begun {
    job: Job,
    blocks: u64,
    over: u64,
    result: Result<(), Fault>,
}

/// The jobs that are under way.
pub(super) struct Jobs {
    desk: Arc<Desk>,
    block_bytes: u64,
    begun: HashMap<u64, Begun>,
    number: u64,
}

impl Jobs {
    pub(super) fn new(desk: Arc<Desk>, block_bytes: u64) -> Jobs {
        Jobs { desk, block_bytes, begun: HashMap::new(), number: 0 }
    }

    /// Begins `job`, and returns its parts; none of a job that has nothing to do, which is done.
    pub(super) fn begin(&mut self, job: Job) -> Vec<Part> {
        let (is_read, is_write) = match &job.operation.action {
            Action::Read(_) => (true, false),
            Action::Write(_) => (false, true),
            _ => (false, false),
        };
        let blocks = job.operation.length / self.block_bytes;
        if !is_read && !is_write || blocks == 0 {
            self.finish(job, Ok(()));
            return Vec::new();
        }
        let first = job.operation.offset / self.block_bytes;
        self.number += 1;
        let number = self.number;
        self.begun.insert(number, Begun { job, blocks, over: 0, result: Ok(()) });
        (0..blocks).map(|at| Part { job: number, at, place: first + at, is_read }).collect()
    }

    fn finish(&self, job: Job, result: Result<(), Fault>) {
        self.desk.mail().done.push(job.finish(result));
        self.desk.done.raise();
    }

    /// The contents of a part that is to be stored, and how long ago it was referenced, in microseconds.
    pub(super) fn contents(&self, part: Part) -> Option<(&[u8], u64)> {
        let operation = &self.begun.get(&part.job)?.job.operation;
        let Action::Write(frames) = &operation.action else { return None };
        let age_us = operation.ages_us.get(part.at as usize).copied().unwrap_or(0);
        Some((frames.slices().nth(part.at as usize)?, age_us))
    }

    /// Whether a part that is to be read leaves the level.
    pub(super) fn leaves(&self, part: Part) -> bool {
        self.begun.get(&part.job).is_some_and(|begun| begun.job.operation.leaves)
    }

    /// Has the frame of a part filled.
    pub(super) fn fill(&mut self, part: Part, fill: impl FnMut(&mut [u8])) {
        if let Some(begun) = self.begun.get_mut(&part.job)
            && let Action::Read(frames) = &mut begun.job.operation.action
        {
            frames.slices_mut().skip(part.at as usize).take(1).for_each(fill);
        }
    }

    /// A part is over.
    pub(super) fn end(&mut self, part: Part, result: Result<(), Fault>) {
        let Some(begun) = self.begun.get_mut(&part.job) else { return };
        begun.over += 1;
        begun.result = begun.result.and(result);
        if begun.over == begun.blocks
            && let Some(Begun { job, result, .. }) = self.begun.remove(&part.job)
        {
            self.finish(job, result);
        }
    }
}
