//! The time that protections saved, at least, as a pure function of samples.
//!
//! How long the programs would have taken without a protection is not known: thrashing can end by itself, at once or never. It is known how
//! much more they computed during the protection than at the rate before it. Without the protection, this would have been left to do
//! afterwards, and even without any more thrashing it would have taken its time. It is therefore a lower limit, and no more than the length of the
//! protection.
//!
//! It can be wrong if thrashing would have ended during the protection, and if the programs would have computed more from then on than before.
//! `cargo xtask bench guard --part claims` compares it with runs without the guard.

use std::collections::BTreeSet;

use crate::sample::{Group, Sample};

/// The unit in which the kernel reports processor time: USER_HZ is 100 wherever the guard runs.
const TICK_S: f64 = 0.01;
/// Smaller savings are not claimed: starting and ending a protection costs about as much.
const CLAIMED_LEAST_S: f64 = 1.0;
/// Of how many standard deviations the number of ticks may be wrong: the kernel takes samples of what runs.
const DEVIATIONS: f64 = 2.0;

/// Seconds of processor time in user mode, and the seconds in which they were used.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    user_s: f64,
    elapsed_s: f64,
}

impl Work {
    /// Adds what `groups` did in `sample`. Returns false, and adds nothing, if one of them is not in it.
    fn add<'a>(&mut self, sample: &Sample, groups: impl Iterator<Item = &'a Group>) -> bool {
        let user_s = |group: &Group| sample.groups.iter().find(|seen| seen.group == *group).map(|seen| seen.user_s);
        let Some(user_s) = groups.map(user_s).sum::<Option<f64>>() else { return false };
        self.user_s += user_s;
        self.elapsed_s += sample.elapsed_s;
        true
    }

    /// How far `user_s` may be off: the error of sampling, and a tick at either end.
    fn error_s(self) -> f64 {
        DEVIATIONS * (self.user_s * TICK_S).sqrt() + 2.0 * TICK_S
    }
}

/// The seconds that a protection saved, at least, by what `groups` programs, or groups of them, computed before it and during it.
fn least_saved_s(before: Work, during: Work, groups: usize) -> f64 {
    if before.elapsed_s <= 0.0 || during.elapsed_s <= 0.0 {
        return 0.0;
    }
    let expected_s = (before.user_s + before.error_s()) * during.elapsed_s / before.elapsed_s;
    let more_s = during.user_s - during.error_s() - expected_s;
    // Later, all could have computed at the same time.
    let at_once = (groups as f64).max(during.user_s / during.elapsed_s);
    Some((more_s / at_once).min(during.elapsed_s)).filter(|saved_s| *saved_s >= CLAIMED_LEAST_S).unwrap_or(0.0)
}

/// The samples since several groups of a scope began to thrash, except those of protections.
#[derive(Debug, Default)]
pub(crate) struct Baseline(Work);

impl Baseline {
    /// Adds a sample in which the groups `faulting` thrashed.
    pub(crate) fn add<'a>(&mut self, sample: &Sample, faulting: impl Iterator<Item = &'a Group>) {
        self.0.add(sample, faulting);
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Work::default();
    }
}

/// The work during one protection, and the work that it is compared with.
#[derive(Debug)]
pub(crate) struct Gain {
    groups: BTreeSet<Group>,
    before: Work,
    during: Work,
    /// Whether all groups are still there: if one has ended, the others get on without being protected.
    is_complete: bool,
}

impl Gain {
    /// Begins with a protection against the thrashing of the groups `faulting`, measured by `baseline`.
    pub(crate) fn new<'a>(baseline: &Baseline, faulting: impl Iterator<Item = &'a Group>) -> Gain {
        Gain { groups: faulting.cloned().collect(), before: baseline.0, during: Work::default(), is_complete: true }
    }

    /// Adds a sample of the protection.
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.is_complete = self.is_complete && self.during.add(sample, self.groups.iter());
    }

    /// The seconds saved so far, at least.
    pub(crate) fn least_saved_s(&self) -> f64 {
        least_saved_s(self.before, self.during, self.groups.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::GroupSample;

    fn second(user_s: &[f64]) -> Sample {
        let groups = user_s.iter().enumerate().map(|(at, user_s)| GroupSample {
            group: Group::from(["a", "b", "bystander"][at]),
            faults: 100,
            of_files: None,
            user_s: *user_s,
            waiting_s: 0.0,
            resident: 0,
            swapped: 0,
            eligible: true,
        });
        Sample { elapsed_s: 1.0, machine_cpu: 0.1, io_full: 0.9, groups: groups.collect() }
    }

    /// The claim after 10 s of a protection, with these seconds of processor time a second in 5 s before it, and during it.
    fn saved(before: &[f64], during: &[f64]) -> f64 {
        let faulting = [Group::from("a"), Group::from("b")];
        let mut baseline = Baseline::default();
        (0..5).for_each(|_| baseline.add(&second(before), faulting.iter()));
        let mut gain = Gain::new(&baseline, faulting.iter());
        (0..10).for_each(|_| gain.add(&second(during)));
        gain.least_saved_s()
    }

    #[test]
    fn savings_11_are_what_was_computed_more_and_at_full_speed() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 0.01, "{value}, not {expected}");
        // 6 s instead of 2: 4 s more, less the errors of 600 and of 100 ticks, by two groups at once.
        near(saved(&[0.1, 0.1, 0.5], &[0.6, 0.0, 0.0]), (6.0 - 0.51 - 2.0 * (1.0 + 0.22)) / 2.0);
        // Nothing before: the error of two ticks in 5 s is left.
        near(saved(&[0.0, 0.0, 0.5], &[0.6, 0.0, 0.0]), (6.0 - 0.51 - 0.04) / 2.0);
        near(saved(&[0.0, 0.0, 0.0], &[1.0, 3.0, 0.0]), (40.0 - 1.285 - 0.04) / 4.0);
        near(saved(&[0.1, 0.1, 0.0], &[0.1, 0.1, 0.9]), 0.0);
        // Less work than before counts as no saving, not as a cost.
        near(saved(&[0.1, 0.1, 0.0], &[0.1, 0.0, 0.0]), 0.0);
    }

    #[test]
    fn savings_11_are_not_claimed_for_what_the_clock_cannot_count() {
        // A few ticks where there was none: as of programs that wait for a disk nearly all of the time.
        assert_eq!(saved(&[0.0, 0.0], &[0.002, 0.002]), 0.0);
        assert_eq!(saved(&[0.001, 0.0], &[0.005, 0.005]), 0.0);
        assert_eq!(saved(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
    }

    #[test]
    fn savings_11_are_not_claimed_for_a_rival_that_has_ended() {
        let faulting = [Group::from("a"), Group::from("b")];
        let mut baseline = Baseline::default();
        baseline.add(&second(&[0.1, 0.1]), faulting.iter());
        let mut gain = Gain::new(&baseline, faulting.iter());
        (0..10).for_each(|_| gain.add(&second(&[0.1, 0.1])));
        // Only `a` is left, and gets on.
        (0..100).for_each(|_| gain.add(&second(&[1.0])));
        assert_eq!(gain.least_saved_s(), 0.0);
    }

    #[test]
    fn savings_11_need_something_to_compare_with() {
        let mut gain = Gain::new(&Baseline::default(), [Group::from("a")].iter());
        gain.add(&second(&[1.0]));
        assert_eq!(gain.least_saved_s(), 0.0);
    }

    proptest! {
        #[test]
        fn savings_11_are_never_more_than_the_time_that_ran(
            before in (0.0..1e6, 0.0..1e6), during in (0.0..1e6, 0.0..1e6), groups in 0usize..100,
        ) {
            let work = |(user_s, elapsed_s)| Work { user_s, elapsed_s };
            let saved_s = least_saved_s(work(before), work(during), groups);
            prop_assert!((0.0..=during.1).contains(&saved_s), "{saved_s}");
            // More work before, or less during it, never raises the claim.
            prop_assert!(least_saved_s(work((before.0 + 1.0, before.1)), work(during), groups) <= saved_s);
            prop_assert!(least_saved_s(work(before), work((during.0 / 2.0, during.1)), groups) <= saved_s + 1e-9);
        }
    }
}
