//! All jobs of a sweep in threads of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use nigh_sim::threads::in_threads;

use crate::{Error, Folder, Found, Job, Key, encode};

/// A job, and what there is of its result when the sweep starts.
#[derive(Debug)]
pub struct Task {
    /// The job; its content is known unless it cannot be read.
    pub job: Job,
    /// Its key with what has been found, or why there is none.
    pub found: Result<(Key, Found), Error>,
}

impl Task {
    /// Whether there is something to do.
    pub fn is_open(&self) -> bool {
        matches!(self.found, Ok((_, Found::Nothing | Found::Damaged)))
    }
}

/// Result of a job: its table, or why there is none.
#[derive(Debug)]
pub struct Outcome {
    /// The job.
    pub job: Job,
    /// Its rows.
    pub table: Result<RecordBatch, Error>,
}

/// Finds the keys of `jobs`, in `threads` threads, and what `folder` has of them. A job fails here if its trace cannot be read.
pub fn tasks(jobs: Vec<Job>, folder: Option<&Folder>, threads: usize) -> Vec<Task> {
    let found = in_threads(&jobs, threads, |job| {
        let content = job.read_content()?;
        let key = job.key(&content);
        let found = folder.map_or(Ok(Found::Nothing), |folder| folder.find(&key))?;
        Ok((content, (key, found)))
    });
    let task = |(mut job, found): (Job, Result<_, Error>)| {
        let found = found.map(|(content, found)| {
            job.content = Some(content);
            found
        });
        Task { job, found }
    };
    jobs.into_iter().zip(found).map(task).collect()
}

/// Runs the tasks that are open in `threads` threads, and stores their results. `finished` counts them. A job that fails costs
/// no other.
pub fn run(tasks: Vec<Task>, folder: &Folder, threads: usize, finished: &AtomicU64) -> Vec<Outcome> {
    let open: Vec<&Job> = tasks.iter().filter(|task| task.is_open()).map(|task| &task.job).collect();
    // The threads that jobs do not need help those that run.
    let each = (threads / open.len().max(1)).max(1);
    let ran = in_threads(&open, threads, |job| {
        let table = run_and_store(job, folder, each);
        finished.fetch_add(1, Ordering::Relaxed);
        table
    });
    let mut ran = ran.into_iter();
    let outcome = |task: Task| {
        let table = match task.found {
            Ok((_, Found::Table(table))) => Ok(table),
            Ok((_, Found::Nothing | Found::Damaged)) => ran.next().expect("each open task ran"),
            Err(error) => Err(error),
        };
        Outcome { job: task.job, table }
    };
    tasks.into_iter().map(outcome).collect()
}

fn run_and_store(job: &Job, folder: &Folder, threads: usize) -> Result<RecordBatch, Error> {
    let (key, table) = job.run(threads, &AtomicU64::new(0), &AtomicBool::new(false))?;
    folder.put(&key, &encode(&key, &table))?;
    Ok(table)
}
