//! Slow requests: each is counted, and has a line in the log, up to a number of lines per second.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_host::front::{Disk, lock};
use nigh_trace::Op;

use crate::asked::Asked;

/// Lines per second. Further slow requests are only counted.
const LINES: u32 = 10;
/// The time for which lines are counted together.
const SPAN: Duration = Duration::from_secs(1);
/// Bounds of the limit, in seconds.
const LEAST_S: f64 = 0.001;
const MOST_S: f64 = 3600.0;
/// In place of a limit.
const OFF: u64 = u64::MAX;

/// A text is no limit for slow requests.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no limit for slow requests: expected a time from 1ms to 1h, such as 100ms, or none")]
pub struct NoLimit(String);

/// The time beyond which requests are slow; `None` for `none`.
pub fn slow_limit(text: &str) -> Result<Option<Duration>, NoLimit> {
    if text == "none" {
        return Ok(None);
    }
    let seconds = nigh_text::seconds(text).filter(|seconds| (LEAST_S..=MOST_S).contains(seconds));
    seconds.map(|seconds| Some(Duration::from_secs_f64(seconds))).ok_or_else(|| NoLimit(text.to_owned()))
}

/// The limit, and the lines of the last moment.
pub(crate) struct Slow {
    /// In microseconds; `OFF` for none.
    limit: AtomicU64,
    lines: Mutex<Lines>,
}

impl Default for Slow {
    fn default() -> Slow {
        Slow { limit: AtomicU64::new(OFF), lines: Mutex::default() }
    }
}

/// The lines since `begun`, and the slow requests without one.
#[derive(Default)]
struct Lines {
    begun: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Lines {
    /// The requests that had no line in a span that is over.
    fn over(&mut self, now: Instant) -> Option<u64> {
        if self.begun.is_some_and(|begun| now.saturating_duration_since(begun) < SPAN) {
            return None;
        }
        let left_out = self.left_out;
        *self = Lines { begun: Some(now), told: 0, left_out: 0 };
        (left_out > 0).then_some(left_out)
    }

    /// Whether another one has a line.
    fn take(&mut self) -> bool {
        let has_line = self.told < LINES;
        if has_line {
            self.told += 1;
        } else {
            self.left_out += 1;
        }
        has_line
    }
}

impl Slow {
    /// The time beyond which requests are slow.
    pub(crate) fn limit(&self) -> Option<Duration> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != OFF).map(Duration::from_micros)
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        self.limit.store(limit.map_or(OFF, |limit| limit.as_micros() as u64), Ordering::Relaxed);
    }

    /// Whether there is a limit.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != OFF
    }

    #[inline]
    pub(crate) fn is_slow(&self, latency: Duration) -> bool {
        // Without a limit, which is usual, nothing is divided.
        self.is_on() && latency.as_micros() as u64 > self.limit.load(Ordering::Relaxed)
    }

    /// Counts a slow request, which was answered now.
    pub(crate) fn note(&self, disk: &Disk, client: u64, asked: &Asked, latency: Duration) {
        disk.count_slow();
        let now = Instant::now();
        let (over, has_line) = {
            let mut lines = lock(&self.lines);
            (lines.over(now), lines.take())
        };
        report(over);
        if has_line {
            let Asked { op, offset, length, .. } = *asked;
            let (export, op, parts) = (disk.name(), word(op), Parts::of(asked, latency));
            tracing::warn!(export, client, op, offset, length, "slow request: {parts}");
        }
    }

    /// Logs how many had no line, if there were any and their second is over.
    pub(crate) fn tell(&self, now: Instant) {
        report(lock(&self.lines).over(now));
    }
}

fn report(left_out: Option<u64>) {
    if let Some(left_out) = left_out {
        tracing::warn!(left_out, "more slow requests were counted and not logged");
    }
}

/// The operation as the log names it. Zeroes are recorded as writes or trims.
fn word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Trim => "trim",
    }
}

/// The time that a request took, and its parts as far as they are known.
#[derive(Debug, PartialEq)]
struct Parts {
    all: Duration,
    /// Until it was within the rates of its export.
    rate: Option<Duration>,
    /// Until its reply was ready: memory, levels and devices.
    cache: Option<Duration>,
    /// Until its client had taken the reply.
    client: Option<Duration>,
}

impl Parts {
    fn of(asked: &Asked, all: Duration) -> Parts {
        let rate = asked.turn().map(|turn| turn.min(all));
        let done = asked.ready().map(|ready| ready.min(all));
        let cache = done.map(|done| done.saturating_sub(rate.unwrap_or_default()));
        Parts { all, rate, cache, client: done.map(|done| all - done) }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{:.1} ms", ms(self.all))?;
        let parts =
            [(self.rate, "for its rate"), (self.cache, "in cache and devices"), (self.client, "for its client")];
        let mut before = ": ";
        for (time, words) in parts {
            if let Some(time) = time {
                write!(f, "{before}{:.1} {words}", ms(time))?;
                before = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_times_or_none() {
        assert_eq!(slow_limit("100ms").unwrap(), Some(Duration::from_millis(100)));
        assert_eq!(slow_limit("1h").unwrap(), Some(Duration::from_secs(3600)));
        assert_eq!(slow_limit("none").unwrap(), None);
        for text in ["", "0s", "999us", "2h", "-1s", "fast"] {
            let error = slow_limit(text).unwrap_err().to_string();
            assert!(error.contains("1ms to 1h"), "{text}: {error}");
        }
    }

    #[test]
    fn only_requests_beyond_the_limit_are_slow() {
        let slow = Slow::default();
        assert!(!slow.is_slow(Duration::from_secs(1 << 30)) && slow.limit().is_none());
        slow.set(Some(Duration::from_millis(100)));
        assert!(!slow.is_slow(Duration::from_millis(100)) && slow.is_slow(Duration::from_micros(100_001)));
        slow.set(None);
        assert!(!slow.is_slow(Duration::from_secs(3600)));
    }

    #[test]
    fn a_second_has_a_number_of_lines_and_the_rest_are_counted() {
        let (mut lines, begin) = (Lines::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(lines.over(at(0)), None);
        let told = (0..25).filter(|_| lines.take()).count();
        assert_eq!(told, LINES as usize);
        assert_eq!(lines.over(at(999)), None, "its second is not over");
        assert_eq!(lines.over(at(1000)), Some(15));
        assert!(lines.take(), "the next second has lines again");
        assert_eq!(lines.over(at(3000)), None, "each is told once");
    }

    #[test]
    fn a_request_names_the_parts_that_are_known() {
        let since = Instant::now();
        let at = |ms| Some(since + Duration::from_millis(ms));
        let words = |turn: Option<Instant>, ready: Option<Instant>| {
            let asked = Asked::new(Op::Read, 0, 4096, since);
            let asked = turn.map_or(asked, |turn| asked.with_turn(turn));
            let asked = ready.map_or(asked, |ready| asked.with_ready(ready));
            Parts::of(&asked, Duration::from_millis(150)).to_string()
        };
        assert_eq!(words(None, None), "150.0 ms");
        assert_eq!(words(None, at(120)), "150.0 ms: 120.0 in cache and devices, 30.0 for its client");
        assert_eq!(
            words(at(100), at(120)),
            "150.0 ms: 100.0 for its rate, 20.0 in cache and devices, 30.0 for its client"
        );
        assert_eq!(words(at(100), None), "150.0 ms: 100.0 for its rate");
    }
}
