//! Many policies and sizes over one trace, in threads.

use std::sync::Arc;

use nigh_policy::{Spec, SpecError};

use crate::replay::Watch;
use crate::threads::in_threads;
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
    let future = jobs.iter().any(|job| job.spec.info().offline).then(|| references.future());
    let runs = in_threads(jobs, threads, |job| {
        let future = future.as_ref().filter(|_| job.spec.info().offline).map(Arc::clone);
        replay(references, &job.spec, job.capacity, future, Watch { gauges: job.gauges, ..watch })
    });
    runs.into_iter().collect()
}
