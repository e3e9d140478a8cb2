//! How long the requests of a client took that has one at a time: turns of hits, a miss and writes, some with a flush.

use std::time::Instant;

/// In a turn.
pub(crate) const HITS: u64 = 8;
/// In a turn.
pub(crate) const WRITES: u64 = 4;
/// One turn of this many ends with a flush.
pub(crate) const TURNS_PER_FLUSH: u64 = 8;

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

    pub(crate) fn append(&mut self, other: Times) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            own.extend(other);
        }
    }

    pub(crate) fn time<T>(&mut self, kind: usize, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.0[kind].push(begun.elapsed().as_nanos() as u64);
        result
    }
}
