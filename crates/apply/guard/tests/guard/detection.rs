//! The state machine: recorded samples, every edge of figure 4.7, and what holds for all samples.

use std::path::Path;

use nigh_guard::{Action, Detector, Group, GroupSample, Profile, Sample, State, Why, choose};
use proptest::prelude::*;

use crate::common::{MIB, sample, until_protected};

const LIMIT: u64 = 256 * MIB;
const GZ: &str = "gz1";
const VX: &str = "vx2";

/// The samples of a recorded run, each with its second.
fn recorded(test: &str, name: &str) -> Option<Vec<(u32, Sample)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces/thrashing");
    let Ok(text) = std::fs::read_to_string(folder.join(name)) else {
        println!("skipped: {test}: there is no folder of traces beside the repository");
        return None;
    };
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{name}: {value} is no number"));
    let samples = text.lines().map(|line| {
        let seen: serde_json::Value = serde_json::from_str(line).unwrap();
        let util = number(&seen["util"]) / 100.0;
        let groups = [GZ, VX].map(|group| GroupSample {
            group: Group::from(group),
            faults: number(&seen[group]["maj"]) as u64,
            of_files: None,
            user_s: util / 2.0,
            waiting_s: 0.0,
            resident: number(&seen[group]["rss"]) as u64 * MIB,
            swapped: number(&seen[group]["swap"]) as u64 * MIB,
            eligible: true,
        });
        let sample = Sample {
            elapsed_s: 1.0,
            machine_cpu: number(&seen["sysutil"]) / 100.0,
            io_full: number(&seen["iofull"]) / 100.0,
            groups: groups.into(),
        };
        (number(&seen["t"]).round() as u32, sample)
    });
    Some(samples.collect())
}

/// The seconds in which the state changes, and to what.
fn transitions(profile: Profile, samples: &[(u32, Sample)]) -> Vec<(u32, State, Option<Action>)> {
    let mut detector = Detector::new(profile);
    let mut found = Vec::new();
    for (second, sample) in samples {
        let before = detector.state();
        let action = detector.tick(sample, LIMIT);
        if detector.state() != before || action.is_some() {
            found.push((*second, detector.state(), action));
        }
    }
    found
}

fn protect(group: &str) -> Option<Action> {
    Some(Action::Protect(group.into()))
}

fn release(group: &str, why: Why) -> Option<Action> {
    Some(Action::Release(group.into(), why))
}

/// Section 4.4.3 and figure 4.7, with the conditions of 4.4.1 and the values of 4.5.1, followed by hand through the recorded faults
/// and utilizations.
#[test]
fn the_dissertations_profile_follows_figure_4_7_through_recorded_runs() {
    use State::{Monitoring, Normal, Protection};
    // Nobody acts on it: vx faults 300 times a second to the end, and the processor idles.
    let unprotected = vec![(3, Monitoring, None), (4, Protection, protect(VX))];
    let expected = [
        ("1_none.jsonl", unprotected.clone()),
        ("2_none.jsonl", unprotected),
        (
            "1_swappiness.jsonl",
            vec![
                (3, Monitoring, None),
                (4, Protection, protect(VX)),
                // 88.9 % busy; vx stays on the list with 5, 4, 3 and 1 faults, until it has none.
                (23, Monitoring, release(VX, Why::Busy)),
                (27, Normal, None),
            ],
        ),
        (
            "1_willneed.jsonl",
            vec![
                (3, Monitoring, None),
                // 69 % busy: not low enough. vx has no faults and leaves the list.
                (5, Normal, None),
                (6, Monitoring, None),
                (7, Protection, protect(VX)),
                (8, Monitoring, release(VX, Why::Busy)),
                // Between 1 and 10 faults a second vx stays on the list.
                (17, Protection, protect(VX)),
                (18, Monitoring, release(VX, Why::Stable)),
                (19, Normal, None),
            ],
        ),
        (
            "1_stop.jsonl",
            vec![
                (3, Monitoring, None),
                (4, Protection, protect(VX)),
                (5, Monitoring, release(VX, Why::Busy)),
                (6, Normal, None),
                (10, Monitoring, None),
                (11, Normal, None),
            ],
        ),
    ];
    for (name, expected) in expected {
        let test = "the_dissertations_profile_follows_figure_4_7_through_recorded_runs";
        let Some(samples) = recorded(test, name) else { return };
        assert_eq!(transitions(Profile::DISSERTATION, &samples), expected, "{name}");
    }
}

#[test]
fn the_default_profile_agrees_with_itself_twice_before_it_acts() {
    use State::{Monitoring, Normal, Protection};
    let test = "the_default_profile_agrees_with_itself_twice_before_it_acts";
    let Some(samples) = recorded(test, "1_swappiness.jsonl") else { return };
    let expected = vec![
        (3, Monitoring, None),
        // Two seconds of 19 and 18 % utilization.
        (5, Protection, protect(VX)),
        // A lease is fifteen seconds; vx still faults more than once a second.
        (20, Monitoring, release(VX, Why::Lease)),
        // 44 % utilization at first, then more, until vx does not fault.
        (27, Normal, None),
    ];
    assert_eq!(transitions(Profile::MODERN, &samples), expected);
}

#[test]
fn every_edge_of_figure_4_7() {
    let mut detector = Detector::new(Profile::DISSERTATION);
    let mut tick = |cpu, groups: &[(&str, u64, u64)]| {
        let action = detector.tick(&sample(cpu, groups), LIMIT);
        (detector.state(), action)
    };
    // PF_High is exceeded by more than 10, by more than one process.
    assert_eq!(tick(0.1, &[("a", 10, 5), ("b", 400, 5)]), (State::Normal, None));
    assert_eq!(tick(0.1, &[("a", 11, 5), ("b", 400, 5)]), (State::Monitoring, None));
    // CPU_Low is 40 %.
    assert_eq!(tick(0.40, &[("a", 11, 5), ("b", 400, 5)]), (State::Monitoring, None));
    // Between PF_Low and PF_High a process stays on the list.
    assert_eq!(tick(0.39, &[("a", 1, 5), ("b", 400, 4)]), (State::Protection, protect("b")));
    // CPU_High is 80 %.
    assert_eq!(tick(0.80, &[("a", 1, 5), ("b", 1, 4)]), (State::Protection, None));
    assert_eq!(tick(0.81, &[("a", 1, 5), ("b", 1, 4)]), (State::Monitoring, release("b", Why::Busy)));
    assert_eq!(tick(0.39, &[("a", 1, 3), ("b", 1, 4)]), (State::Protection, protect("a")));
    // PF_Low is 1.
    assert_eq!(tick(0.39, &[("a", 0, 3), ("b", 1, 4)]), (State::Monitoring, release("a", Why::Stable)));
    assert_eq!(tick(0.10, &[("a", 9, 3), ("b", 50, 4)]), (State::Normal, None));
    assert_eq!(tick(0.10, &[("a", 99, 3), ("b", 50, 4)]), (State::Monitoring, None));
    assert_eq!(tick(0.10, &[("a", 99, 3), ("b", 50, 4)]), (State::Protection, protect("a")));
    assert_eq!(tick(0.10, &[("b", 50, 4)]), (State::Monitoring, release("a", Why::Gone)));
}

#[test]
fn rates_are_by_the_second_whatever_the_time_between_samples() {
    let mut detector = Detector::new(Profile::DISSERTATION);
    let slow = Sample { elapsed_s: 4.0, ..sample(0.1, &[("a", 40, 1), ("b", 40, 1)]) };
    detector.tick(&slow, LIMIT);
    assert_eq!(detector.state(), State::Normal);
    let fast = Sample { elapsed_s: 0.5, ..sample(0.1, &[("a", 6, 1), ("b", 6, 1)]) };
    detector.tick(&fast, LIMIT);
    assert_eq!(detector.state(), State::Monitoring);
}

#[test]
fn work_of_others_does_not_hide_thrashing_from_the_default_profile() {
    let busy_machine = sample(1.0, &[("a", 300, 1), ("b", 300, 2)]);
    assert_eq!(&*until_protected(&mut Detector::new(Profile::MODERN), &busy_machine, LIMIT), "a");
    let mut literal = Detector::new(Profile::DISSERTATION);
    for _ in 0..5 {
        literal.tick(&busy_machine, LIMIT);
    }
    assert_eq!(literal.protected(), None);
    // A group that computes in spite of its faults needs no help, unless everybody waits for the disk.
    let mut computing = busy_machine.clone();
    computing.groups.iter_mut().for_each(|seen| seen.user_s = 0.45);
    let mut detector = Detector::new(Profile::MODERN);
    for _ in 0..5 {
        detector.tick(&computing, LIMIT);
    }
    assert_eq!(detector.protected(), None);
    computing.io_full = 0.61;
    until_protected(&mut detector, &computing, LIMIT);
}

#[test]
fn groups_that_share_a_busy_processor_do_not_thrash_in_the_default_profile() {
    // Three groups fault, and each has a third of the processor.
    let mut sharing = sample(1.0, &[("a", 300, 1), ("b", 300, 2), ("c", 300, 3)]);
    sharing.groups.iter_mut().for_each(|seen| (seen.user_s, seen.waiting_s) = (0.1, 0.06));
    let mut detector = Detector::new(Profile::MODERN);
    for _ in 0..5 {
        detector.tick(&sharing, LIMIT);
    }
    // 1 - 0.84^3 is 41 %, and 1 - 0.85^3 is 39 %.
    assert_eq!(detector.protected(), None);
    sharing.groups.iter_mut().for_each(|seen| seen.waiting_s = 0.05);
    assert_eq!(&*until_protected(&mut detector, &sharing, LIMIT), "a");
    // A protected group that only waits for its rivals to leave the processor gets on.
    sharing.groups[0].waiting_s = 0.75;
    assert_eq!(detector.tick(&sharing, LIMIT), None);
    assert_eq!(detector.tick(&sharing, LIMIT), release("a", Why::Busy));
}

#[test]
fn a_small_group_is_protected_beside_one_that_keeps_the_processors_busy() {
    // Of 256 MiB, a quarter is small.
    let mut beside_build = sample(1.0, &[("build", 300, 1), ("used", 300, 20)]);
    beside_build.groups[0].user_s = 2.0;
    beside_build.groups[1].resident = 44 * MIB;
    assert_eq!(&*until_protected(&mut Detector::new(Profile::MODERN), &beside_build, LIMIT), "used");
    // It is released only once nobody else faults, or when its lease is over.
    for (others, why, seconds) in [(300, Why::Lease, 15), (0, Why::Stable, 2)] {
        let mut detector = Detector::new(Profile::MODERN);
        until_protected(&mut detector, &beside_build, LIMIT);
        let mut calm = beside_build.clone();
        (calm.groups[0].faults, calm.groups[1].faults) = (others, 0);
        let released = (1..20).find_map(|second| Some((second, detector.tick(&calm, LIMIT)?)));
        assert_eq!(released, Some((seconds, Action::Release("used".into(), why))));
    }
    beside_build.groups[1].resident = 45 * MIB;
    for profile in [Profile::MODERN, Profile::DISSERTATION] {
        let mut detector = Detector::new(profile);
        for _ in 0..5 {
            assert_eq!(detector.tick(&beside_build, LIMIT), None);
        }
    }
}

#[test]
fn each_time_that_a_release_was_too_early_the_next_needs_twice_as_long() {
    let mut detector = Detector::new(Profile::MODERN);
    let quarter = |groups| Sample { elapsed_s: 0.25, ..sample(0.1, groups) };
    let thrashing = quarter(&[("a", 75, 1), ("b", 75, 2)]);
    let calm = quarter(&[("a", 0, 0), ("b", 75, 2)]);
    until_protected(&mut detector, &thrashing, LIMIT);
    for seconds in [2, 4] {
        for _ in 1..seconds * 4 {
            assert_eq!(detector.tick(&calm, LIMIT), None);
        }
        assert_eq!(detector.tick(&calm, LIMIT), release("a", Why::Stable));
        assert_eq!(detector.tick(&thrashing, LIMIT), protect("a"));
    }
    // Six and a half seconds of fifteen are over; eight of calm would end the third time before that.
    for _ in 1..32 {
        assert_eq!(detector.tick(&calm, LIMIT), None);
    }
    assert_eq!(detector.tick(&calm, LIMIT), release("a", Why::Stable));
}

#[test]
fn the_least_hungry_that_fits_is_chosen() {
    let seen = sample(0.1, &[("a", 99, 30), ("b", 99, 20), ("c", 99, 10)]);
    let choice =
        |fit, limit, last: Option<&str>| choose(seen.groups.iter(), fit, limit, last.map(Group::from).as_ref());
    assert_eq!(choice(None, 1, None).as_deref(), Some("c"));
    assert_eq!(choice(None, 1, Some("c")).as_deref(), Some("b"));
    // Each has 100 MiB resident.
    assert_eq!(choice(Some(0.5), 220 * MIB, None).as_deref(), Some("c"));
    assert_eq!(choice(Some(0.5), 219 * MIB, None), None);
    let mut only_a = seen.clone();
    only_a.groups.iter_mut().for_each(|group| group.eligible = &*group.group == "a");
    assert_eq!(choose(only_a.groups.iter(), None, 0, None).as_deref(), Some("a"));
    let alone = choose(only_a.groups.iter(), None, 0, Some(&Group::from("a")));
    assert_eq!(alone.as_deref(), Some("a"), "the last one is better than none");
}

#[test]
fn what_does_not_fit_needs_load_control() {
    let mut detector = Detector::new(Profile::MODERN);
    let seen = sample(0.1, &[("a", 99, 200), ("b", 99, 200)]);
    let actions: Vec<_> = (0..4).map(|_| detector.tick(&seen, LIMIT)).collect();
    assert!(actions.contains(&Some(Action::LoadControl)), "{actions:?}");
    assert_eq!(detector.protected(), None);
}

#[test]
fn after_a_refusal_another_has_its_turn() {
    let mut detector = Detector::new(Profile::MODERN);
    let seen = sample(0.1, &[("a", 99, 1), ("b", 99, 2)]);
    assert_eq!(&*until_protected(&mut detector, &seen, LIMIT), "a");
    detector.refused();
    assert_eq!((detector.state(), detector.protected()), (State::Monitoring, None));
    assert_eq!(&*until_protected(&mut detector, &seen, LIMIT), "b");
    detector.refused();
    assert_eq!(detector.tick(&seen, LIMIT), Some(Action::LoadControl));
}

/// The seconds of `detector` after two samples of thrashing in which `a` is protected and released as stable.
fn released_early(detector: &mut Detector) {
    let thrashing = sample(0.1, &[("a", 300, 1), ("b", 300, 2)]);
    assert_eq!(&*until_protected(detector, &thrashing, LIMIT), "a");
    let calm = sample(0.5, &[("a", 0, 0), ("b", 300, 2)]);
    assert_eq!(detector.tick(&calm, LIMIT), None);
    assert_eq!(detector.tick(&calm, LIMIT), release("a", Why::Stable));
}

#[test]
fn a_released_group_that_faults_within_its_lease_is_protected_again_at_once_for_the_rest() {
    let mut detector = Detector::new(Profile::MODERN);
    released_early(&mut detector);
    // Its utilization is not low, and b lacks less memory; a lease of 15 s began 3 s ago.
    let mut refaulting = sample(0.9, &[("a", 11, 30), ("b", 300, 2)]);
    refaulting.groups.iter_mut().for_each(|seen| seen.user_s = 0.5);
    assert_eq!(detector.tick(&refaulting, LIMIT), protect("a"));
    let held = (1..20).find_map(|held| Some((held, detector.tick(&refaulting, LIMIT)?)));
    assert_eq!(held, Some((12, Action::Release("a".into(), Why::Lease))));
    // The lease is over: all conditions apply again.
    for _ in 0..5 {
        assert_eq!(detector.tick(&refaulting, LIMIT), None);
    }
}

#[test]
fn a_lease_passes_without_samples_and_needs_faults_above_pf_high() {
    let refaulting = sample(0.9, &[("a", 11, 30), ("b", 300, 2)]);
    let few = sample(0.9, &[("a", 10, 30), ("b", 300, 2)]);
    for (rested_s, sample, expected) in
        [(11.0, &refaulting, protect("a")), (12.0, &refaulting, None), (0.0, &few, None)]
    {
        let mut detector = Detector::new(Profile::MODERN);
        released_early(&mut detector);
        detector.rest(rested_s);
        let mut seen = sample.clone();
        seen.groups.iter_mut().for_each(|seen| seen.user_s = 0.5);
        assert_eq!(detector.tick(&seen, LIMIT), expected, "{rested_s}");
    }
    // The dissertation's profile has no leases.
    let mut literal = Detector::new(Profile::DISSERTATION);
    let thrashing = sample(0.1, &[("a", 300, 1), ("b", 300, 2)]);
    until_protected(&mut literal, &thrashing, LIMIT);
    let calm = sample(0.5, &[("a", 0, 0), ("b", 300, 2)]);
    assert_eq!(literal.tick(&calm, LIMIT), release("a", Why::Stable));
    for _ in 0..3 {
        assert_eq!(literal.tick(&refaulting, LIMIT), None);
    }
}

#[test]
fn a_released_group_that_no_longer_fits_or_was_refused_is_not_protected_again() {
    let mut detector = Detector::new(Profile::MODERN);
    released_early(&mut detector);
    let mut grown = sample(0.9, &[("a", 300, 200), ("b", 300, 200)]);
    grown.groups.iter_mut().for_each(|seen| seen.user_s = 0.5);
    assert_eq!(detector.tick(&grown, LIMIT), None);
    let mut refaulting = sample(0.9, &[("a", 300, 30), ("b", 300, 200)]);
    refaulting.groups.iter_mut().for_each(|seen| seen.user_s = 0.5);
    assert_eq!(detector.tick(&refaulting, LIMIT), protect("a"));
    detector.refused();
    assert_eq!(detector.tick(&refaulting, LIMIT), None);
}

/// Samples of up to four groups that come and go.
fn any_sample() -> impl Strategy<Value = Sample> {
    let group =
        (0..4usize, prop_oneof![0..3u64, 5..20u64, 100..900u64], 0..200u64, 0.0..1.0f64, 0.0..1.0f64, any::<bool>());
    let groups = prop::collection::vec(group, 0..4);
    (groups, 0.0..1.0f64, 0.0..1.0f64, 0.5..2.5f64).prop_map(|(groups, machine_cpu, io_full, elapsed_s)| {
        let mut seen: Vec<GroupSample> = Vec::new();
        for (number, faults, swapped_mib, user_s, waiting_s, eligible) in groups {
            let group = Group::from(["a", "b", "c", "d"][number]);
            if seen.iter().all(|other| other.group != group) {
                let (resident, swapped) = (50 * MIB, swapped_mib * MIB);
                seen.push(GroupSample {
                    group,
                    faults,
                    of_files: None,
                    user_s,
                    waiting_s,
                    resident,
                    swapped,
                    eligible,
                });
            }
        }
        Sample { elapsed_s, machine_cpu, io_full, groups: seen }
    })
}

proptest! {
    #[test]
    fn what_holds_for_all_samples(
        samples in prop::collection::vec(any_sample(), 1..60),
        refusals in prop::collection::vec(any::<bool>(), 60),
        literal in any::<bool>(),
    ) {
        let profile = if literal { Profile::DISSERTATION } else { Profile::MODERN };
        let mut detector = Detector::new(profile.clone());
        let mut protected: Option<Group> = None;
        let mut held_s = 0.0;
        for (sample, refuse) in samples.iter().zip(refusals) {
            let before = detector.state();
            match detector.tick(sample, LIMIT) {
                Some(Action::Protect(group)) => {
                    prop_assert_eq!(&protected, &None, "at most one group is protected");
                    let faulting: Vec<&Group> = detector.faulting().collect();
                    prop_assert!(faulting.len() >= 2, "two groups fault, at least");
                    prop_assert!(faulting.contains(&&group));
                    prop_assert_eq!(before, State::Monitoring);
                    let seen = sample.groups.iter().find(|seen| seen.group == group).unwrap();
                    prop_assert!(seen.eligible);
                    if let Some(fit) = profile.fit {
                        prop_assert!(seen.demand() as f64 <= fit * LIMIT as f64);
                    }
                    protected = Some(group);
                    held_s = 0.0;
                    if refuse {
                        detector.refused();
                        protected = None;
                    }
                }
                Some(Action::Release(group, _)) => {
                    prop_assert_eq!(protected.take(), Some(group), "only what is protected is released");
                    prop_assert_eq!(detector.state(), State::Monitoring);
                }
                Some(Action::LoadControl) => prop_assert_eq!(detector.state(), State::Monitoring),
                None => held_s += sample.elapsed_s,
            }
            prop_assert_eq!(detector.protected(), protected.as_ref());
            prop_assert_eq!(detector.state() == State::Protection, protected.is_some());
            if let (Some(lease_s), Some(_)) = (profile.lease_s, &protected) {
                prop_assert!(held_s < lease_s, "no lease is longer");
            }
        }
        // Whatever happened: when all is calm, everything is released and the state is normal, a lease later at most.
        let calm = Sample { elapsed_s: 1.0, machine_cpu: 0.9, io_full: 0.0, groups: Vec::new() };
        for _ in 0..4 {
            detector.tick(&calm, LIMIT);
        }
        prop_assert_eq!(detector.state(), State::Normal);
        prop_assert_eq!(detector.protected(), None);
        prop_assert_eq!(detector.faulting().count(), 0);
    }
}
