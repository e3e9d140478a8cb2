//! Threads that do jobs and may block: system calls on a file, or a device of the program's own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::device::{Completion, Job};
use crate::open::OpenFile;
use crate::perform::perform;
use crate::signal::Signal;
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    done: Vec<Completion>,
    /// Nothing more will be submitted.
    ends: bool,
}

struct Common {
    jobs: Mutex<Jobs>,
    /// For the threads: something waits, or nothing more will.
    more: Condvar,
    /// Something is done.
    signal: Signal,
}

impl Common {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().expect("nobody panics with it")
    }
}

/// The place for completions of a pool's jobs.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Common>);

impl Outbox {
    /// A job is done. From any thread.
    pub(crate) fn put(&self, completion: Completion) {
        self.0.jobs().done.push(completion);
        self.0.signal.raise();
    }
}

/// The threads. Dropping it waits until each thread is done with its job, and all have been begun.
pub(crate) struct Pool {
    common: Arc<Common>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    /// Threads that do jobs on `file`.
    pub(crate) fn of_file(file: &Arc<OpenFile>, threads: usize) -> io::Result<Pool> {
        let file = file.clone();
        Pool::new(threads, move |mut job, done| {
            let result = perform(&file, &mut job);
            done.put(job.finish(result));
        })
    }

    /// Threads that call `begin` with each job, which goes to the outbox when it is done.
    pub(crate) fn new(threads: usize, begin: impl Fn(Job, &Outbox) + Send + Sync + 'static) -> io::Result<Pool> {
        let common = Arc::new(Common { jobs: Mutex::default(), more: Condvar::new(), signal: Signal::new()? });
        let begin = Arc::new(begin);
        let mut pool = Pool { common, threads: Vec::new() };
        for _ in 0..threads {
            let (outbox, begin) = (Outbox(pool.common.clone()), begin.clone());
            let work = move || work(&outbox, &*begin);
            pool.threads.push(thread::Builder::new().name("nigh-io".to_owned()).spawn(work)?);
        }
        Ok(pool)
    }

    pub(crate) fn submit(&self, job: Job) {
        self.common.jobs().waiting.push_back(job);
        self.common.more.notify_one();
    }

    /// Appends what is done.
    pub(crate) fn poll(&self, done: &mut Vec<Completion>) {
        // First, so that what is done later signals again.
        self.common.signal.clear();
        done.append(&mut self.common.jobs().done);
    }

    /// Readable when something is done.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.common.signal.as_fd()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.common.jobs().ends = true;
        self.common.more.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed that.
            let _ = thread.join();
        }
    }
}

fn work(outbox: &Outbox, begin: &impl Fn(Job, &Outbox)) {
    let common = &outbox.0;
    let mut jobs = common.jobs();
    loop {
        if let Some(job) = jobs.waiting.pop_front() {
            drop(jobs);
            begin(job, outbox);
            jobs = common.jobs();
        } else if jobs.ends {
            return;
        } else {
            jobs = common.more.wait(jobs).expect("nobody panics with it");
        }
    }
}

/// All orders of the steps of a pool's threads (`cargo xtask loom`).
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::models::{Requests, check, file};

    /// Two jobs are done by two threads and come back once each, with their own bytes, to a caller that sleeps until it is woken.
    #[test]
    fn whoever_waits_for_jobs_gets_them() {
        let file = file(&[1, 2, 3]);
        check(3, move || {
            let mut requests = Requests::new();
            let pool = Pool::of_file(&file, 2).expect("threads");
            pool.submit(Job::new(0, requests.read(0)));
            pool.submit(Job::new(0, requests.read(2)));
            let mut done = Vec::new();
            while done.len() < 2 {
                pool.common.signal.wait();
                pool.poll(&mut done);
            }
            drop(pool);
            assert_eq!(requests.complete(done), [(0, 1), (2, 3)]);
        });
    }

    /// Dropping a pool waits until its jobs are done: the bytes are in the file, and no thread has the frames.
    #[test]
    fn a_pool_ends_after_its_jobs() {
        let file = file(&[0, 0]);
        check(3, move || {
            let mut requests = Requests::new();
            crate::models::write(&file, &[0, 0]);
            let pool = Pool::of_file(&file, 2).expect("threads");
            pool.submit(Job::new(0, requests.write(0, 5)));
            pool.submit(Job::new(0, requests.write(1, 6)));
            let common = pool.common.clone();
            drop(pool);
            assert_eq!(crate::models::read(&file, 2), [5, 6]);
            let done = std::mem::take(&mut common.jobs().done);
            assert_eq!(done.len(), 2);
            requests.complete(done);
            assert_eq!(Arc::strong_count(&common), 1, "a thread is left");
        });
    }
}
