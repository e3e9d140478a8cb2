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
    /// Of the thread's processor time, what it had used when it gave way last.
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

/// Whether this thread's turn is over at `now`. It is not where others had the processor meanwhile: the thread gives way no more
/// than once for each turn that it used.
pub fn is_turn_over(now: Instant) -> bool {
    let Turn { length: Some(length), began, used } = TURN.get() else { return false };
    if now.saturating_duration_since(began) <= length {
        return false;
    }
    let is_over = processor_time().saturating_sub(used) > length;
    if !is_over {
        begin_turn(now);
    }
    is_over
}

/// Other threads that wait for this thread's processor come first, as far as the kernel lets them; then the next turn begins.
pub fn give_way() {
    std::thread::yield_now();
    TURN.set(Turn { began: Instant::now(), used: processor_time(), ..TURN.get() });
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
            assert!(!is_turn_over(begin + LENGTH) && is_turn_over(Instant::now()));
            give_way();
            compute(2 * LENGTH);
            assert!(is_turn_over(Instant::now()), "the next one is over, too");
            begin_turn(Instant::now());
            assert!(!is_turn_over(Instant::now() - LENGTH));
        });
    }

    #[test]
    fn who_did_not_have_the_processor_keeps_the_turn() {
        with_turns(|| {
            compute(2 * LENGTH);
            give_way();
            std::thread::sleep(10 * LENGTH);
            assert!(!is_turn_over(Instant::now()), "it slept");
        });
    }
}
