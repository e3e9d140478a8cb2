//! Which clients get a processor first when there are too few: those that ask for little at a time.

use std::time::{Duration, Instant};

use nigh_backend::take_turns_of;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// How long a thread may keep a processor whose client asks for little at a time: the kernel then lets it interrupt others.
const SHORT: Duration = Duration::from_micros(100);
/// A thread that computes for longer between two waits gets the turns of other programs, a few milliseconds: it is
/// interrupted by the others, and not more often than need be.
const LONG: Duration = Duration::from_micros(200);
/// How often it is looked at.
const WINDOW: Duration = Duration::from_millis(5);

/// Of a connection's thread, and used on it only.
pub(crate) struct Turns {
    is_short: bool,
    looked_at: Instant,
    /// What it had computed, and how often it had waited.
    computed: Duration,
    waits: u64,
}

impl Turns {
    /// Begins with short turns.
    pub(crate) fn new() -> Turns {
        let (computed, waits) = used();
        let _ = take_turns_of(Some(SHORT));
        Turns { is_short: true, looked_at: Instant::now(), computed, waits }
    }

    /// Looks now and then at what the thread did since the last time.
    pub(crate) fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked_at) < WINDOW {
            return;
        }
        let (computed, waits) = used();
        let is_short = is_short(computed.saturating_sub(self.computed), waits - self.waits);
        if is_short != self.is_short {
            // Where the kernel does not do it, everything goes on as without.
            let _ = take_turns_of(is_short.then_some(SHORT));
        }
        *self = Turns { is_short, looked_at: now, computed, waits };
    }
}

/// Whether a thread should have short turns that computed for so long and waited so often.
fn is_short(computed: Duration, waits: u64) -> bool {
    computed.as_nanos() / (u128::from(waits) + 1) <= LONG.as_nanos()
}

/// What this thread has computed, and how often it has waited.
fn used() -> (Duration, u64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return (Duration::ZERO, 0) };
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    (Duration::from_micros(microseconds as u64), usage.voluntary_context_switches() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_computes_long_between_waits_has_long_turns() {
        assert!(is_short(Duration::from_millis(2), 40), "50 us each");
        assert!(!is_short(Duration::from_millis(4), 3), "1 ms each");
        assert!(!is_short(Duration::from_millis(5), 0));
        assert!(is_short(Duration::ZERO, 0));
    }

    /// In this thread: it waits, computes, and waits again.
    #[test]
    fn turns_follow_what_the_thread_does() {
        let mut turns = Turns::new();
        let wait = || (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        wait();
        turns.look(Instant::now());
        assert!(turns.is_short);
        while turns.computed + Duration::from_millis(50) > used().0 {}
        turns.look(Instant::now());
        assert!(!turns.is_short, "it computed for 50 ms");
        wait();
        turns.look(Instant::now());
        assert!(turns.is_short, "it waits again");
    }
}
