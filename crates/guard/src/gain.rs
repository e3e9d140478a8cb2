//! An estimate of the time that protections save, as a pure function of samples.
//!
//! Groups that thrash wait for pages and get little processor time; once one of them is protected, they get more. The estimate is the
//! extra time that the same work would have taken at the rate measured just before the protection.

use std::collections::{BTreeSet, VecDeque};

use crate::sample::{Group, Sample};

/// Samples before a protection that determine the rate to compare with.
const BASELINE_SAMPLES: usize = 3;
/// A protection saves at most this multiple of its own length: a rate near zero is too uncertain to extrapolate from.
const SAVED_MOST: f64 = 9.0;

/// Seconds of processor time in user mode, and the seconds in which they were used.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    user_s: f64,
    elapsed_s: f64,
}

impl Work {
    fn of<'a>(sample: &Sample, groups: impl Iterator<Item = &'a Group> + Clone) -> Work {
        let seen = sample.groups.iter().filter(|seen| groups.clone().any(|group| *group == seen.group));
        Work { user_s: seen.map(|seen| seen.user_s).sum(), elapsed_s: sample.elapsed_s }
    }

    fn plus(self, other: Work) -> Work {
        Work { user_s: self.user_s + other.user_s, elapsed_s: self.elapsed_s + other.elapsed_s }
    }
}

/// The latest samples in which several groups of a scope thrashed.
#[derive(Debug, Default)]
pub(crate) struct Baseline(VecDeque<Work>);

impl Baseline {
    /// Adds a sample in which the groups `faulting` thrashed.
    pub(crate) fn add<'a>(&mut self, sample: &Sample, faulting: impl Iterator<Item = &'a Group> + Clone) {
        self.0.truncate(BASELINE_SAMPLES - 1);
        self.0.push_front(Work::of(sample, faulting));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The work during one protection, and the rate it is compared with.
#[derive(Debug)]
pub(crate) struct Gain {
    groups: BTreeSet<Group>,
    before: Work,
    during: Work,
}

impl Gain {
    /// Begins with a protection against the thrashing of the groups `faulting`, measured by `baseline`.
    pub(crate) fn new<'a>(baseline: &Baseline, faulting: impl Iterator<Item = &'a Group>) -> Gain {
        let before = baseline.0.iter().copied().fold(Work::default(), Work::plus);
        Gain { groups: faulting.cloned().collect(), before, during: Work::default() }
    }

    /// Adds a sample of the protection.
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.during = self.during.plus(Work::of(sample, self.groups.iter()));
    }

    /// Seconds saved so far.
    pub(crate) fn saved_s(&self) -> f64 {
        let Work { user_s, elapsed_s } = self.during;
        if user_s <= 0.0 || self.before.elapsed_s <= 0.0 {
            return 0.0;
        }
        // Without any work before, this is infinite, so the limit applies.
        let without_s = user_s * self.before.elapsed_s / self.before.user_s;
        (without_s - elapsed_s).clamp(0.0, SAVED_MOST * elapsed_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::GroupSample;

    fn second(user_s: &[f64]) -> Sample {
        let groups = user_s.iter().enumerate().map(|(at, user_s)| GroupSample {
            group: Group::from(["a", "b", "bystander"][at]),
            faults: 100,
            user_s: *user_s,
            waiting_s: 0.0,
            resident: 0,
            swapped: 0,
            eligible: true,
        });
        Sample { elapsed_s: 1.0, machine_cpu: 0.1, io_full: 0.9, groups: groups.collect() }
    }

    /// The estimate for 10 s of a protection, with these seconds of processor time a second before and during it.
    fn saved(before: &[f64], during: &[f64]) -> f64 {
        let faulting = [Group::from("a"), Group::from("b")];
        let mut baseline = Baseline::default();
        (0..5).for_each(|_| baseline.add(&second(before), faulting.iter()));
        let mut gain = Gain::new(&baseline, faulting.iter());
        (0..10).for_each(|_| gain.add(&second(during)));
        gain.saved_s()
    }

    #[test]
    fn saved_time_is_what_the_same_work_would_have_taken_longer() {
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
        // Three times the work in the same time.
        near(saved(&[0.1, 0.1, 0.5], &[0.6, 0.0, 0.0]), 20.0);
        near(saved(&[0.1, 0.1, 0.0], &[0.1, 0.1, 0.9]), 0.0);
        // Less work than before counts as no saving, not as a cost.
        near(saved(&[0.1, 0.1, 0.0], &[0.1, 0.0, 0.0]), 0.0);
        near(saved(&[0.0, 0.0, 0.5], &[0.6, 0.0, 0.0]), 90.0);
        near(saved(&[0.0, 0.0, 0.0], &[0.0, 0.0, 0.0]), 0.0);
    }
}
