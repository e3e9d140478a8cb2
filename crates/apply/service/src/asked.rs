//! A request as its front describes it when it is answered.

use std::time::{Duration, Instant};

use nigh_trace::Op;

/// A request, for its latency and for the record.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// As it is recorded.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// When it was received.
    pub since: Instant,
    /// Microseconds from then until its turn came, if it waited for the rates of its export; otherwise 0.
    turn_us: u32,
    /// Microseconds from then until its reply could be sent, if that was noted; otherwise 0.
    ready_us: u32,
}

impl Asked {
    /// A request that was received at `since`.
    pub fn new(op: Op, offset: u64, length: u64, since: Instant) -> Asked {
        Asked { op, offset, length, since, turn_us: 0, ready_us: 0 }
    }

    /// The same, whose turn came at `turn` after it had waited for the rates of its export.
    pub fn with_turn(self, turn: Instant) -> Asked {
        Asked { turn_us: self.us_until(turn), ..self }
    }

    /// The same, whose reply can be sent at `ready`. That is of interest if [`Recorder::is_timed`](crate::front::Recorder::is_timed).
    pub fn with_ready(self, ready: Instant) -> Asked {
        Asked { ready_us: self.us_until(ready), ..self }
    }

    fn us_until(&self, moment: Instant) -> u32 {
        let us = moment.saturating_duration_since(self.since).as_micros();
        u32::try_from(us).unwrap_or(u32::MAX).max(1)
    }

    /// The time until its turn came, if it waited for that.
    pub(crate) fn turn(&self) -> Option<Duration> {
        (self.turn_us > 0).then(|| Duration::from_micros(self.turn_us.into()))
    }

    /// The time until its reply could be sent, if that was noted.
    pub(crate) fn ready(&self) -> Option<Duration> {
        (self.ready_us > 0).then(|| Duration::from_micros(self.ready_us.into()))
    }
}
