//! A thread's turn: for how long it keeps a processor that others want.
//!
//! The kernel ends turns only when its clock ticks, 250 times a second for instance, and never those of threads with a real-time
//! priority. So a thread that has much to do looks at the time itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::kernel::{self, processor_time};

/// Of threads with a real-time priority, which have no turns by themselves.
const REAL_TIME: Duration = Duration::from_micros(100);

#[derive(Clone, Copy)]
struct Turn {
    /// Without it, the thread never gives way: it has a policy for batches or idle times, or an old kernel.
    length: Option<Duration>,
    began: Instant,
    /// Of the thread's processor time, what it had used when its last turn ended.
    used: Duration,
}

impl Turn {
    /// Begins the next turn, if this one is over at `now`, and says whether; `total` is the thread's processor time.
    fn end(&mut self, now: Instant, total: impl FnOnce() -> Duration) -> bool {
        let Some(length) = self.length else { return false };
        if now.saturating_duration_since(self.began) <= length {
            return false;
        }
        self.began = now;
        let total = total();
        let is_over = total.saturating_sub(self.used) > length;
        if is_over {
            self.used = total;
        }
        is_over
    }
}

thread_local! {
    static TURN: Cell<Turn> =
        Cell::new(Turn { length: kernel::turn(REAL_TIME), began: Instant::now(), used: Duration::ZERO });
}

/// This thread has waited until `now`: its turn begins.
pub fn begin_turn(now: Instant) {
    TURN.set(Turn { began: now, ..TURN.get() });
}

/// Ends this thread's turn, if it is over at `now`, and says whether. It is not where others had the processor meanwhile: a thread
/// ends no more turns than it used. Whoever is told so lets other threads go first (`yield_now`).
pub fn end_turn(now: Instant) -> bool {
    let mut turn = TURN.get();
    let is_over = turn.end(now, processor_time);
    TURN.set(turn);
    is_over
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_micros(200);
    const LONGER: Duration = Duration::from_micros(201);

    #[test]
    fn a_turn_is_over_after_its_length() {
        let begin = Instant::now();
        let mut turn = Turn { length: Some(LENGTH), began: begin, used: Duration::ZERO };
        assert!(!turn.end(begin + LENGTH, || unreachable!("processor time is asked for after the length only")));
        assert!(turn.end(begin + LONGER, || LONGER));
        assert!(!turn.end(begin + LONGER + LENGTH, || unreachable!("the next one began where the first ended")));
        assert!(turn.end(begin + 2 * LONGER, || 2 * LONGER));
    }

    #[test]
    fn who_did_not_have_the_processor_keeps_the_turn() {
        let begin = Instant::now();
        let mut turn = Turn { length: Some(LENGTH), began: begin, used: LENGTH };
        assert!(!turn.end(begin + LONGER, || 2 * LENGTH), "it used no more than its length");
        assert!(turn.end(begin + 2 * LONGER, || LENGTH + LONGER), "what it used before counts");
    }

    #[test]
    fn who_never_gives_way_has_no_turns() {
        let begin = Instant::now();
        let mut turn = Turn { length: None, began: begin, used: Duration::ZERO };
        assert!(!turn.end(begin + LONGER, || LONGER));
    }

    #[test]
    fn turns_are_those_of_the_thread() {
        let turns = || {
            kernel::take_turns_of(LENGTH).unwrap();
            let Some(length) = kernel::turn(REAL_TIME) else {
                return println!("skipped: turns_are_those_of_the_thread: the kernel tells no length of turns");
            };
            let begin = Instant::now();
            begin_turn(begin);
            assert!(!end_turn(begin + length));
            let used = processor_time();
            while processor_time() - used <= length {}
            assert!(end_turn(Instant::now()));
        };
        std::thread::spawn(turns).join().unwrap();
    }
}
