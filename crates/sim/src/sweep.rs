//! Many policies and sizes over one trace, in threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nigh_policy::{Spec, SpecError, registry};

use crate::replay::Watch;
use crate::{References, Run, replay};

/// One policy at one size.
#[derive(Clone, Debug)]
pub struct Job {
    /// The policy.
    pub spec: Spec,
    /// The blocks it is replayed with.
    pub capacity: u32,
    /// How often its gauges are read.
    pub gauges: usize,
}

/// Runs all `jobs` in `threads` threads; the results are in the order of the jobs. `watch.gauges` is not looked at.
pub fn sweep(references: &References, jobs: &[Job], threads: usize, watch: Watch) -> Result<Vec<Run>, SpecError> {
    let offline = |job: &Job| registry().iter().any(|info| info.name == job.spec.name() && info.offline);
    let future = jobs.iter().any(offline).then(|| references.future());
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Run, SpecError>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let future = future.as_ref().filter(|_| offline(job)).map(Arc::clone);
                    let watch = Watch { gauges: job.gauges, ..watch };
                    let run = replay(references, &job.spec, job.capacity, future, watch);
                    *results[at].lock().expect("no thread panics while it holds one") = Some(run);
                }
            });
        }
    });
    results.into_iter().map(|cell| cell.into_inner().expect("no thread panicked").expect("every job ran")).collect()
}
