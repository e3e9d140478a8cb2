//! How long the requests of a client took.

use std::time::Instant;

pub(crate) const KINDS: [&str; 4] = ["hits", "misses", "writes", "flushes"];

/// In nanoseconds, of each of `KINDS`.
#[derive(Debug, Default)]
pub(crate) struct Times([Vec<u64>; 4]);

impl Times {
    /// Whether there was none of some kind.
    pub(crate) fn lacks_some(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }

    pub(crate) fn is_empty(&self, kind: usize) -> bool {
        self.0[kind].is_empty()
    }

    /// Of a kind of which there was one.
    pub(crate) fn p99_us(&self, kind: usize) -> f64 {
        let mut times = self.0[kind].clone();
        let at = (times.len() * 99 / 100).min(times.len() - 1);
        *times.select_nth_unstable(at).1 as f64 / 1e3
    }

    pub(crate) fn push(&mut self, kind: usize, ns: u64) {
        self.0[kind].push(ns);
    }

    pub(crate) fn time<T>(&mut self, kind: usize, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.push(kind, begun.elapsed().as_nanos() as u64);
        result
    }
}
