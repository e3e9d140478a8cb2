//! A thread's turn: for how long it keeps a processor that others want.
//!
//! The kernel ends turns only when its clock ticks, 250 times a second for instance, and never those of threads with a real-time
//! priority. So a thread that has much to do looks at the time itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::kernel;

/// Of threads with a real-time priority, which have no turns by themselves.
const REAL_TIME: Duration = Duration::from_micros(100);

#[derive(Clone, Copy)]
struct Turn {
    /// Without it, the thread never gives way: it has a policy for batches or idle times, or an old kernel.
    length: Option<Duration>,
    began: Instant,
}

thread_local! {
    static TURN: Cell<Turn> = Cell::new(Turn { length: kernel::turn(REAL_TIME), began: Instant::now() });
}

/// This thread has waited since `now` or longer: its turn begins then.
pub fn begin_turn(now: Instant) {
    TURN.set(Turn { began: now, ..TURN.get() });
}

/// Whether this thread's turn is over at `now`.
pub fn is_turn_over(now: Instant) -> bool {
    let Turn { length, began } = TURN.get();
    length.is_some_and(|length| now.saturating_duration_since(began) > length)
}

/// Other threads that want this thread's processor have it first; then the next turn begins.
pub fn give_way() {
    std::thread::yield_now();
    begin_turn(Instant::now());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_after_its_length() {
        const LENGTH: Duration = Duration::from_micros(200);
        let turns = || {
            kernel::take_turns_of(LENGTH).unwrap();
            if kernel::turn(REAL_TIME) != Some(LENGTH) {
                println!("skipped: a_turn_is_over_after_its_length: this thread has no turns of its own length");
                return;
            }
            let now = Instant::now();
            begin_turn(now);
            assert!(!is_turn_over(now + LENGTH) && is_turn_over(now + 2 * LENGTH));
            give_way();
            assert!(!is_turn_over(now + LENGTH), "the next turn begins later");
        };
        // Its own, for the turns of others to stay as they are.
        std::thread::spawn(turns).join().unwrap();
    }
}
