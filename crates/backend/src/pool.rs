//! Threads that do jobs on a file by blocking system calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::device::{Completion, Job};
use crate::open::OpenFile;
use crate::perform::perform;
use crate::signal::Signal;

/// The threads. Dropping it waits until all jobs are done.
pub(crate) struct Pool {
    /// `None` once it is being dropped.
    jobs: Option<Sender<Job>>,
    done: Receiver<Completion>,
    signal: Arc<Signal>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(file: &Arc<OpenFile>, threads: usize) -> io::Result<Pool> {
        let (jobs, queue) = channel();
        let (completed, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let signal = Arc::new(Signal::new()?);
        let mut pool = Pool { jobs: Some(jobs), done, signal, threads: Vec::new() };
        for _ in 0..threads {
            let (file, queue, completed, signal) =
                (file.clone(), queue.clone(), completed.clone(), pool.signal.clone());
            let work = move || work(&file, &queue, &completed, &signal);
            pool.threads.push(std::thread::Builder::new().name("nigh-io".to_owned()).spawn(work)?);
        }
        Ok(pool)
    }

    pub(crate) fn submit(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("it is not being dropped");
        jobs.send(job).expect("the threads run until it is dropped");
    }

    /// Appends what is done.
    pub(crate) fn poll(&self, done: &mut Vec<Completion>) {
        self.signal.clear();
        done.extend(self.done.try_iter());
    }

    /// Readable when something is done.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn work(file: &OpenFile, queue: &Mutex<Receiver<Job>>, completed: &Sender<Completion>, signal: &Signal) {
    loop {
        let next = queue.lock().expect("nobody panics with it").recv();
        let Ok(mut job) = next else { return };
        let result = perform(file, &mut job);
        // The receiver is gone where the pool is being dropped, and then so is the engine.
        let _ = completed.send(job.finish(result));
        signal.raise();
    }
}
