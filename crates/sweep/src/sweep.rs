//! All jobs of a sweep in threads of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use nigh_sim::threads::in_threads;

use crate::{Error, Folder, Found, Job, Key, encode};

/// A job whose key is known.
#[derive(Debug)]
pub struct Task {
    /// The job; its content is known.
    pub job: Job,
    /// Its key.
    pub key: Key,
    /// Whether there is something to do.
    pub state: State,
}

/// What there is of a job's result when the sweep starts.
#[derive(Debug)]
pub enum State {
    /// Nothing: the job has to run.
    Open,
    /// A file that is not whole: the job has to run again.
    Damaged,
    /// The result.
    Done(RecordBatch),
}

/// What became of a job: its table, or why there is none.
#[derive(Debug)]
pub struct Outcome {
    /// The job.
    pub job: Job,
    /// Its rows.
    pub table: Result<RecordBatch, Error>,
}

/// Finds the keys of `jobs`, in `threads` threads, and what `folder` has of them. A job fails here if its trace cannot be read.
pub fn tasks(jobs: Vec<Job>, folder: Option<&Folder>, threads: usize) -> (Vec<Task>, Vec<Outcome>) {
    let found = in_threads(&jobs, threads, |job| {
        let content = job.read_content()?;
        let key = job.key(&content);
        let state = match folder.map_or(Ok(Found::Nothing), |folder| folder.find(&key))? {
            Found::Nothing => State::Open,
            Found::Damaged => State::Damaged,
            Found::Table(table) => State::Done(table),
        };
        Ok((content, key, state))
    });
    let (mut tasks, mut failed) = (Vec::new(), Vec::new());
    for (mut job, found) in jobs.into_iter().zip(found) {
        match found {
            Ok((content, key, state)) => {
                job.content = Some(content);
                tasks.push(Task { job, key, state });
            }
            Err(error) => failed.push(Outcome { job, table: Err(error) }),
        }
    }
    (tasks, failed)
}

/// Runs the tasks that have something to do in `threads` threads, and stores their results. `finished` counts tasks. A job
/// that fails costs no other.
pub fn run(tasks: Vec<Task>, folder: &Folder, threads: usize, finished: &AtomicU64) -> Vec<Outcome> {
    let open = tasks.iter().filter(|task| !matches!(task.state, State::Done(_))).count();
    // The threads that jobs do not need help those that run.
    let each = (threads / open.max(1)).max(1);
    let ran = in_threads(&tasks, threads, |task| {
        let table = match &task.state {
            State::Done(table) => Ok(table.clone()),
            State::Open | State::Damaged => task.run(folder, each),
        };
        finished.fetch_add(1, Ordering::Relaxed);
        table
    });
    tasks.into_iter().zip(ran).map(|(task, table)| Outcome { job: task.job, table }).collect()
}

impl Task {
    fn run(&self, folder: &Folder, threads: usize) -> Result<RecordBatch, Error> {
        let (key, table) = self.job.run(threads, &AtomicU64::new(0), &AtomicBool::new(false))?;
        folder.put(&key, &encode(&key, &table))?;
        Ok(table)
    }
}
