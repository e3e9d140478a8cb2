//! The times of a trace: those of an absolute clock that do not fit in 63 bits are counted from the first request, and times
//! that go back are reported.

use crate::{Note, Request, Requests, Result};

/// Steps back of at most this length are the rule where several processes are recorded, and are not reported.
pub(crate) const JITTER_NS: u64 = 1_000_000;

/// A trace whose times are examined.
pub(crate) struct Clock {
    requests: Box<dyn Requests + Send>,
    /// Steps back of at most this length are not reported.
    tolerance_ns: u64,
    /// The time that counts as 0; known after the first request.
    start_ns: Option<u64>,
    last_ns: u64,
    steps_back: u64,
    longest_ns: u64,
}

impl Clock {
    pub(crate) fn new(requests: Box<dyn Requests + Send>, tolerance_ns: u64) -> Clock {
        Clock { requests, tolerance_ns, start_ns: None, last_ns: 0, steps_back: 0, longest_ns: 0 }
    }

    fn step_back(&mut self, step_ns: u64) {
        if step_ns > self.tolerance_ns {
            self.steps_back += 1;
            self.longest_ns = self.longest_ns.max(step_ns);
        }
    }
}

impl Requests for Clock {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        self.requests.next_batch(batch)?;
        let Some(first) = batch.first() else { return Ok(()) };
        // Dates since 1601 do not fit, and other programs read 63 bits.
        let is_far = first.time_ns > i64::MAX.unsigned_abs();
        let start_ns = *self.start_ns.get_or_insert(if is_far { first.time_ns } else { 0 });
        if start_ns > 0 {
            batch.iter_mut().for_each(|request| request.time_ns = request.time_ns.saturating_sub(start_ns));
        }
        for request in batch.iter() {
            if request.time_ns < self.last_ns {
                self.step_back(self.last_ns - request.time_ns);
            }
            self.last_ns = request.time_ns;
        }
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        self.requests.progress()
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = self.requests.notes();
        if self.steps_back > 0 {
            notes.push(Note::TimesBack { count: self.steps_back, longest_ns: self.longest_ns });
        }
        notes
    }
}
