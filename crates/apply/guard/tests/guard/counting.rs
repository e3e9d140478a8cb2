//! Which faults count, and when they are seen: of many groups, those at rest take turns to be read.

use std::fs;
use std::time::Duration;

use nigh_guard::{Next, Profile, Settings, Version};

use crate::common::{MIB, Machine, reads, settings};

/// Every group is read at least once in this many ticks.
const TURN_TICKS: u32 = 10;

/// `count` groups with a process each, numbered from 100, in a scope beside one that keeps the guard awake.
fn crowd(count: u32) -> Machine {
    let mut machine = Machine::new(Version::V2);
    machine.group("crowd", Some(256 * MIB));
    machine.process(10, "awake", 10, 0);
    for number in 0..count {
        machine.process(100 + number, &format!("crowd/{number}"), 100, 20);
    }
    machine
}

/// Groups of the crowd that the guard knows to fault much.
fn faulting(machine: &Machine, guard: &nigh_guard::Guard) -> Vec<String> {
    let scopes = guard.status(machine.now()).scopes;
    scopes.into_iter().filter(|scope| scope.scope == "crowd").flat_map(|scope| scope.faulting).collect()
}

#[test]
fn whoever_begins_to_fault_among_many_is_seen_within_a_turn() {
    let mut machine = crowd(700);
    let mut guard = machine.guard(settings());
    let mut latest = 0;
    // Two at a time, wherever the turns happen to be.
    for (rest, pair) in [(21, [100, 799]), (1, [101, 450]), (3, [333, 102]), (4, [500, 501])] {
        for _ in 0..rest {
            machine.tick(&mut guard, &[(10, 100)]).unwrap();
        }
        assert_eq!(faulting(&machine, &guard), [""; 0]);
        let mut ticks = 0;
        while faulting(&machine, &guard).len() < 2 {
            machine.tick(&mut guard, &[(10, 100), (pair[0], 40), (pair[1], 40)]).unwrap();
            ticks += 1;
            assert!(ticks <= TURN_TICKS, "{pair:?} are not seen");
        }
        // Seen once, it is measured at every tick, and reported as it was in that second.
        latest = latest.max(ticks);
        machine.tick(&mut guard, &[(10, 100), (pair[0], 11), (pair[1], 11)]).unwrap();
        assert_eq!(faulting(&machine, &guard).len(), 2);
        machine.tick(&mut guard, &[(10, 100)]).unwrap();
    }
    // With no turns to wait for there would be nothing to test here.
    assert!(latest > 1);
}

#[test]
fn a_rate_below_the_threshold_is_not_taken_for_one_above_it() {
    let mut machine = crowd(700);
    let mut guard = machine.guard(settings());
    for _ in 0..40 {
        // Nine a second are ninety in a turn.
        machine.tick(&mut guard, &[(10, 100), (150, 9), (640, 9)]).unwrap();
        assert_eq!(faulting(&machine, &guard), [""; 0]);
    }
}

#[test]
fn few_groups_are_read_at_every_tick() {
    let mut machine = crowd(60);
    let mut guard = machine.guard(settings());
    for _ in 0..15 {
        machine.tick(&mut guard, &[(10, 100)]).unwrap();
    }
    machine.tick(&mut guard, &[(10, 100), (130, 11), (155, 11)]).unwrap();
    assert_eq!(faulting(&machine, &guard), ["crowd/30", "crowd/55"]);
}

#[test]
fn groups_at_rest_are_not_all_read_at_every_tick() {
    let mut machine = crowd(1000);
    let mut guard = machine.guard(settings());
    for _ in 0..25 {
        machine.tick(&mut guard, &[(10, 100)]).unwrap();
    }
    let Some(before) = reads() else {
        println!("skipped: groups_at_rest_are_not_all_read_at_every_tick: the kernel does not count reads");
        return;
    };
    let ticks = 20;
    for _ in 0..ticks {
        machine.tick(&mut guard, &[(10, 100)]).unwrap();
    }
    let a_tick = (reads().unwrap() - before) / ticks;
    // A tenth of the groups, of each two files to their end: the walks through the tree read none of them.
    assert!(a_tick < 450, "{a_tick} reads a tick");
}

#[test]
fn new_groups_and_new_processes_in_known_ones_are_seen() {
    let mut machine = crowd(3);
    machine.group("crowd/empty", None);
    machine.write("crowd/empty/cgroup.procs", "");
    let mut guard = machine.guard(settings());
    for _ in 0..15 {
        machine.tick(&mut guard, &[(10, 100)]).unwrap();
    }
    let groups = |machine: &Machine, guard: &nigh_guard::Guard| {
        let scopes = guard.status(machine.now()).scopes;
        scopes.iter().filter(|scope| scope.scope == "crowd").map(|scope| scope.groups).sum::<usize>()
    };
    assert_eq!(groups(&machine, &guard), 3);
    machine.process(500, "crowd/new", 100, 20);
    machine.process(501, "crowd/empty", 100, 20);
    // Another process in place of the one that was known.
    machine.process(502, "crowd/0", 100, 20);
    for _ in 0..13 {
        machine.tick(&mut guard, &[(10, 100), (500, 40), (501, 40), (502, 40)]).unwrap();
    }
    assert_eq!(faulting(&machine, &guard), ["crowd/0", "crowd/empty", "crowd/new"]);
    // Without processes a group does not compete, and is found again when it has some.
    machine.write("crowd/new/cgroup.procs", "");
    for _ in 0..25 {
        machine.tick(&mut guard, &[(10, 100), (501, 40), (502, 40)]).unwrap();
    }
    assert_eq!(faulting(&machine, &guard), ["crowd/0", "crowd/empty"]);
    assert_eq!(groups(&machine, &guard), 4);
    machine.write("crowd/new/cgroup.procs", "500\n");
    for _ in 0..13 {
        machine.tick(&mut guard, &[(10, 100), (500, 40), (501, 40), (502, 40)]).unwrap();
    }
    assert_eq!(faulting(&machine, &guard), ["crowd/0", "crowd/empty", "crowd/new"]);
}

#[test]
fn on_the_whole_machine_only_faults_from_swap_count_in_a_limit_all() {
    for (is_from_swap, is_limited, expected) in
        [(false, false, None), (true, false, Some("a/vx")), (false, true, Some("a/vx")), (true, true, Some("a/vx"))]
    {
        let mut machine = Machine::new(Version::V2);
        machine.group("a", is_limited.then_some(256 * MIB));
        machine.process(10, "a/gz", 149, 61);
        machine.process(11, "a/vx", 96, 20);
        let mut guard = machine.guard(settings());
        for _ in 0..5 {
            machine.file_faults += if is_from_swap { 0 } else { 333 + 340 };
            machine.thrash(&mut guard, 1);
        }
        assert_eq!(machine.protected(&guard).as_deref(), expected, "{is_from_swap} {is_limited}");
        assert_eq!(guard.status(machine.now()).counts.load_controls, 0);
    }
}

#[test]
fn where_the_kernel_does_not_tell_what_came_from_swap_all_faults_count() {
    let mut machine = Machine::new(Version::V2);
    machine.process(10, "gz", 149, 61);
    machine.process(11, "vx", 96, 20);
    let mut guard = machine.guard(settings());
    for second in 0..5 {
        machine.second(&[(10, 333), (11, 340)]);
        fs::write(machine.proc().join("vmstat"), format!("pgmajfault {}\n", second * 673)).unwrap();
        guard.tick(machine.now()).unwrap();
    }
    assert_eq!(machine.protected(&guard).as_deref(), Some("vx"));
}

/// A machine in whose groups a second has this many major faults and refaults each.
fn refaulting(machine: &mut Machine, guard: &mut nigh_guard::Guard, seconds: u64, faults: u64, refaults: [u64; 2]) {
    for _ in 0..seconds {
        for (group, more) in ["box/gz", "box/vx"].into_iter().zip(refaults) {
            let file = format!("{group}/memory.stat");
            let text = fs::read_to_string(machine.memory(&file)).unwrap_or_default();
            let before = text.lines().find_map(|line| line.strip_prefix("workingset_refault_anon ")).unwrap_or("0");
            let total = before.parse::<u64>().unwrap() + more;
            // The counts of v1 for the groups below come after those of the group itself.
            let text = format!(
                "anon 7\nworkingset_refault_anon {total}\nworkingset_refault_file 5\ntotal_workingset_refault_anon 9\n"
            );
            machine.write(&file, &text);
        }
        machine.tick(guard, &[(10, faults), (11, faults)]).unwrap();
    }
}

#[test]
fn pages_that_are_read_for_the_first_time_are_not_taken_for_thrashing() {
    for version in [Version::V1, Version::V2] {
        // Of 300 faults a second, this many are of pages that were reclaimed, or more refaults come from read-ahead.
        for (refaults, expected) in [([0, 0], None), ([10, 400], None), ([11, 400], Some("box/vx"))] {
            let mut machine = Machine::thrashing(version);
            let mut guard = machine.guard(settings());
            refaulting(&mut machine, &mut guard, 3, 300, refaults);
            let before = machine.protected(&guard);
            assert_eq!(before, None, "the first reading of refaults compares with none");
            refaulting(&mut machine, &mut guard, 3, 300, refaults);
            assert_eq!(machine.protected(&guard).as_deref(), expected, "{version:?} {refaults:?}");
        }
    }
}

#[test]
fn savings_11_pages_of_files_are_protected_where_the_kernel_can_and_else_the_reason_is_kept() {
    for (version, of_files, expected) in
        [(Version::V1, 400, None), (Version::V1, 100, Some("box/vx")), (Version::V2, 400, Some("box/vx"))]
    {
        let mut machine = Machine::thrashing(version);
        let mut guard = machine.guard(settings());
        for second in 1..=8 {
            for group in ["box/gz", "box/vx"] {
                let [files, swap] = [of_files, 400 - of_files].map(|more| more * second);
                let text = format!("workingset_refault_anon {swap}\nworkingset_refault_file {files}\n");
                machine.write(&format!("{group}/memory.stat"), &text);
            }
            machine.tick(&mut guard, &[(10, 300), (11, 300)]).unwrap();
        }
        assert_eq!(machine.protected(&guard).as_deref(), expected, "{version:?} {of_files}");
        let status = guard.status(machine.now());
        let told = "swappiness: it protects only memory in swap, and 100 % of the pages that this group lost are pages of files";
        assert_eq!(status.refusal.as_deref(), expected.is_none().then_some(told));
        assert_eq!(status.counts.protections, u64::from(expected.is_some()));
    }
}

#[test]
fn refaults_without_major_faults_are_read_ahead() {
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(settings());
    refaulting(&mut machine, &mut guard, 2, 300, [0, 0]);
    refaulting(&mut machine, &mut guard, 6, 9, [2000, 2000]);
    assert_eq!(machine.protected(&guard), None);
}

/// The utilization of two thrashing programs after four seconds, of each of which their threads wait this many milliseconds for a processor.
fn utilization(waiting_ms: [&[u64]; 2]) -> f64 {
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(settings());
    for second in 0..4 {
        for (pid, waiting_ms) in [10, 11].into_iter().zip(waiting_ms) {
            let waited_ms = waiting_ms.iter().map(|ms| 5000 + second * ms).collect();
            machine.processes.get_mut(&pid).unwrap().waited_ms = waited_ms;
        }
        machine.tick(&mut guard, &[(10, 333), (11, 340)]).unwrap();
    }
    let scopes = guard.status(machine.now()).scopes;
    scopes.into_iter().find(|scope| scope.scope == "box").and_then(|scope| scope.utilization).unwrap()
}

#[test]
fn time_in_which_a_thread_waits_for_a_processor_is_not_lost_to_faults() {
    let near = |waiting_ms, expected: f64| {
        let found = utilization(waiting_ms);
        assert!((found - expected).abs() < 1e-6, "{waiting_ms:?}: {found}, not {expected}");
    };
    // Each computes for 10 ms.
    near([&[], &[]], 1.0 - 0.99 * 0.99);
    near([&[90], &[290]], 1.0 - 0.9 * 0.7);
    near([&[40, 50], &[200, 0, 90]], 1.0 - 0.9 * 0.7);
    near([&[5000], &[]], 1.0);
    // Of more threads, it is not known.
    near([&[50; 65], &[]], 1.0 - 0.99 * 0.99);
}

#[test]
fn groups_are_read_more_often_while_several_fault_much() {
    let (second, quarter) = (Duration::from_secs(1), Duration::from_millis(250));
    for (profile, often) in [(Profile::MODERN, quarter), (Profile::DISSERTATION, second)] {
        let mut machine = Machine::thrashing(Version::V2);
        let mut guard = machine.guard(Settings { profile, ..settings() });
        let mut next = |faults: &[(u32, u64)]| machine.tick(&mut guard, faults).unwrap();
        // The first reading has nothing to compare with.
        let nexts = [next(&[(10, 300)]), next(&[(10, 300)]), next(&[(10, 300), (11, 300)]), next(&[(10, 300)])];
        assert_eq!(nexts, [often, second, often, second].map(Next::Tick));
    }
}

#[test]
fn who_starts_right_after_the_guard_was_woken_is_seen_soon() {
    let mut machine = Machine::new(Version::V2);
    machine.group("box", Some(256 * MIB));
    machine.process(10, "box/gz", 149, 61);
    let mut guard = machine.guard(settings());
    machine.tick(&mut guard, &[(10, 333)]).unwrap();
    machine.process(11, "box/vx", 96, 20);
    machine.thrash(&mut guard, 4);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
}
