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
    let Turn { length: Some(length), began, used } = TURN.get() else { return false };
    if now.saturating_duration_since(began) <= length {
        return false;
    }
    let total = processor_time();
    let is_over = total.saturating_sub(used) > length;
    TURN.set(Turn { length: Some(length), began: now, used: if is_over { total } else { used } });
    is_over
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_micros(200);

    /// In a thread of its own, for the turns of others to stay as they are.
    fn with_turns(test: impl FnOnce() + Send + 'static) {
        let turns = move || {
            kernel::take_turns_of(LENGTH).unwrap();
            if kernel::turn(REAL_TIME) == Some(LENGTH) {
                test();
            } else {
                println!("skipped: a test of turns: this thread has none of its own length");
            }
        };
        std::thread::spawn(turns).join().unwrap();
    }

    fn compute(time: Duration) {
        let begin = processor_time();
        while processor_time() - begin < time {}
    }

    #[test]
    fn a_turn_is_over_after_its_length() {
        with_turns(|| {
            let begin = Instant::now();
            begin_turn(begin);
            compute(2 * LENGTH);
            assert!(!end_turn(begin + LENGTH) && end_turn(Instant::now()));
            compute(2 * LENGTH);
            assert!(end_turn(Instant::now()), "the next one is over, too");
            compute(2 * LENGTH);
            begin_turn(Instant::now());
            assert!(!end_turn(Instant::now() - LENGTH), "it began just now");
        });
    }

    #[test]
    fn who_did_not_have_the_processor_keeps_the_turn() {
        with_turns(|| {
            compute(2 * LENGTH);
            assert!(end_turn(Instant::now()));
            std::thread::sleep(10 * LENGTH);
            assert!(!end_turn(Instant::now()), "it slept");
        });
    }
}
