//! How much of a processor encoding takes.

use std::time::Duration;

/// Processor time can be used later or in advance, up to that of this time.
const BURST: Duration = Duration::from_millis(500);
/// After a pause, there is so much processor time, in seconds: more than it takes to wake up.
const TURN: f64 = 200e-6;

/// Processor time that a thread may use: a share of the time that passes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    share: f64,
    /// Seconds of processor time; below 0 if it was used in advance.
    left: f64,
    /// The time, and the processor time that was used, as of the last call of [`Budget::debt`].
    at: Duration,
    used: Duration,
}

impl Budget {
    /// A share of one processor, from 0.01 to 1. Without any, nothing would ever be encoded.
    pub fn new(share: f64) -> Budget {
        let share = share.clamp(0.01, 1.0);
        Budget { share, left: BURST.as_secs_f64() * share, at: Duration::ZERO, used: Duration::ZERO }
    }

    /// It is `now`, and `all_used` is the processor time that was used, both since the start. Returns how long to wait until there
    /// is time again, if there is none.
    pub fn debt(&mut self, now: Duration, all_used: Duration) -> Option<Duration> {
        let (passed, used) = (now - self.at, all_used - self.used);
        (self.at, self.used) = (now, all_used);
        let most = BURST.as_secs_f64() * self.share;
        self.left = (self.left + passed.as_secs_f64() * self.share - used.as_secs_f64()).clamp(-most, most);
        (self.left < 0.0).then(|| Duration::from_secs_f64((TURN - self.left) / self.share))
    }

    /// Whether more than half of what can be saved is left: encoding keeps up.
    pub fn is_ample(&self) -> bool {
        self.left > BURST.as_secs_f64() * self.share / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_share_of_the_time() {
        let mut budget = Budget::new(0.25);
        let (mut passed, mut used) = (Duration::ZERO, Duration::ZERO);
        let step = Duration::from_micros(40);
        while passed < Duration::from_secs(10) {
            passed += step;
            used += step;
            passed += budget.debt(passed, used).unwrap_or_default();
            assert_eq!(budget.debt(passed, used), None, "after the pause, there is time");
        }
        let share = used.as_secs_f64() / passed.as_secs_f64();
        // The first 125 ms are there at the start.
        assert!((0.25..0.265).contains(&share), "{share}");
    }
}
