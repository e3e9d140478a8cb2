//! Independent jobs in threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `run` for each of `jobs`, in their order, computed by `threads` threads.
pub fn in_threads<J: Sync, R: Send>(jobs: &[J], threads: usize, run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let result = run(job);
                    *results[at].lock().expect("no thread panics while it holds one") = Some(result);
                }
            });
        }
    });
    results.into_iter().map(|cell| cell.into_inner().expect("no thread panicked").expect("every job ran")).collect()
}
