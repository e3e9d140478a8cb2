//! Long work without the interpreter's lock: it reports progress, and Ctrl-C ends it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;

/// How often signals are looked at and progress is reported.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Progress of long work, and whether it is to end.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) done: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Work {
    /// Counts this much more as done; whether to continue.
    pub(crate) fn did(&self, count: usize) -> bool {
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `work` in a thread without the interpreter's lock. Meanwhile `progress` is called with the count so far. An exception of
/// it, or of a signal's handler, ends the work.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Work) -> T + Send,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel::<()>(1);
    let progress = progress.map(|progress| progress.clone().unbind());
    py.detach(move || {
        let state = Work::default();
        std::thread::scope(|scope| {
            let shared = &state;
            let worker = scope.spawn(move || {
                // Dropped at the end, also by a panic.
                let _sender = sender;
                work(shared)
            });
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = receiver.recv_timeout(INTERVAL) {
                if raised.is_some() {
                    continue;
                }
                let done = state.done.load(Ordering::Relaxed);
                if let Err(error) = Python::attach(|py| look(py, progress.as_ref(), done)) {
                    state.stop.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            let result = worker.join();
            match (raised, result) {
                (Some(error), _) => Err(error),
                (None, Ok(result)) => Ok(result),
                (None, Err(panic)) => std::panic::resume_unwind(panic),
            }
        })
    })
}

/// Looks at signals, and calls `progress` with what is `done`.
pub(crate) fn look(py: Python<'_>, progress: Option<&Py<PyAny>>, done: u64) -> PyResult<()> {
    py.check_signals()?;
    progress.map_or(Ok(()), |progress| progress.call1(py, (done,)).map(|_| ()))
}
