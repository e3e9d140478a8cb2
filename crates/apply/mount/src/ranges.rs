//! Ranges of a file that are being changed: changes of overlapping ranges take turns, in the order in which they came.

use std::ops::Range;
use std::sync::{Condvar, Mutex};

use nigh_host::front::lock;

/// The ranges that are held or waited for.
#[derive(Default)]
pub(crate) struct Ranges {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    /// By age: an entry holds its range if no older one overlaps with it.
    entries: Vec<(u64, Range<u64>)>,
}

/// A range that nobody else changes until this is dropped.
pub(crate) struct Held<'a> {
    ranges: &'a Ranges,
    number: u64,
}

impl Ranges {
    /// Waits for `range`.
    pub(crate) fn hold(&self, range: Range<u64>) -> Held<'_> {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.entries.push((number, range.clone()));
        let overlaps = |other: &Range<u64>| range.start < other.end && other.start < range.end;
        let waits = |state: &mut State| {
            state.entries.iter().take_while(|(older, _)| *older != number).any(|(_, other)| overlaps(other))
        };
        let _state = self.changed.wait_while(state, waits).unwrap_or_else(std::sync::PoisonError::into_inner);
        Held { ranges: self, number }
    }

    /// Waits for the whole file, whatever its size.
    pub(crate) fn hold_all(&self) -> Held<'_> {
        self.hold(0..u64::MAX)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.ranges.state).entries.retain(|(number, _)| *number != self.number);
        self.ranges.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn overlapping_ranges_take_turns_and_others_do_not_wait() {
        let ranges = Ranges::default();
        let inside = [const { AtomicU32::new(0) }; 16];
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (ranges, inside) = (&ranges, &inside);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..300 {
                        let start = random.u64(0..16);
                        let range = start..random.u64(start + 1..=16);
                        let all = random.u8(..) < 20;
                        let _held = if all { ranges.hold_all() } else { ranges.hold(range.clone()) };
                        let mine = if all { 0..16 } else { range };
                        for at in mine.clone() {
                            assert_eq!(
                                inside[at as usize].fetch_add(1, Ordering::SeqCst),
                                0,
                                "seed {thread}, {mine:?}"
                            );
                        }
                        std::thread::yield_now();
                        mine.for_each(|at| _ = inside[at as usize].fetch_sub(1, Ordering::SeqCst));
                    }
                });
            }
        });
        let _first = ranges.hold(0..10);
        let _beside = ranges.hold(10..20);
    }

    #[test]
    fn one_that_waits_for_all_is_not_overtaken() {
        let ranges = Ranges::default();
        let order = Mutex::new(Vec::new());
        let first = ranges.hold(0..1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _all = ranges.hold_all();
                lock(&order).push("all");
            });
            while lock(&ranges.state).entries.len() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            scope.spawn(|| {
                let _late = ranges.hold(5..6);
                lock(&order).push("late");
            });
            while lock(&ranges.state).entries.len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(first);
        });
        assert_eq!(*lock(&order), ["all", "late"]);
    }
}
