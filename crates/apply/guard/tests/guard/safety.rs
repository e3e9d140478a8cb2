//! Guarantees in all cases: nothing stays changed, nobody's values are taken away, and each trouble is one clear line.

use std::fs;
use std::path::{Path, PathBuf};

use nigh_guard::{
    Guard, Journal, JournalError, MechanismName, Next, Outcome, Procfs, Settings, Tree, TreeError, Version, Writer,
};

use crate::common::{MIB, Machine, reads, settings};

/// A machine of either version on which vx is protected, and its values before.
fn protecting(version: Version) -> (Machine, Guard, std::collections::BTreeMap<std::path::PathBuf, String>) {
    let mut machine = Machine::thrashing(version);
    let before = machine.values();
    let mut guard = machine.guard(settings());
    machine.thrash(&mut guard, 3);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
    assert_ne!(machine.values(), before);
    (machine, guard, before)
}

#[test]
fn at_its_end_everything_is_as_it_was() {
    for version in [Version::V1, Version::V2] {
        let (machine, mut guard, before) = protecting(version);
        guard.release_all("the service ends").unwrap();
        assert_eq!(machine.values(), before);
        assert!(!machine.journal().exists());
    }
}

#[test]
fn after_a_kill_the_next_start_restores() {
    for version in [Version::V1, Version::V2] {
        let (machine, guard, before) = protecting(version);
        // As SIGKILL leaves it: nothing is run, and the lock is gone with the process.
        drop(guard);
        assert_ne!(machine.values(), before);
        let _next = machine.guard(settings());
        assert_eq!(machine.values(), before);
    }
}

#[test]
fn killed_between_the_journal_and_the_write_nothing_is_lost() {
    let machine = Machine::thrashing(Version::V2);
    let entry = |ours: &[&str]| serde_json::json!([{"owner": "box/vx", "file": machine.memory("box/vx/memory.low"), "original": "4096", "ours": ours}]);
    fs::create_dir_all(machine.journal().parent().unwrap()).unwrap();
    // Both the value before the write and the one after it are the guard's.
    for current in ["8192", "12288"] {
        fs::write(machine.journal(), entry(&["8192", "12288"]).to_string()).unwrap();
        machine.write("box/vx/memory.low", current);
        machine.open_journal().restore_all().unwrap();
        assert_eq!(machine.read("box/vx/memory.low"), "4096");
        assert!(!machine.journal().exists());
    }
}

#[test]
fn what_an_administrator_sets_meanwhile_stays() {
    let (mut machine, mut guard, _) = protecting(Version::V2);
    machine.write("box/vx/memory.low", "12345856");
    machine.thrash(&mut guard, 1);
    assert_ne!(machine.protected(&guard).as_deref(), Some("box/vx"));
    machine.thrash(&mut guard, 1);
    guard.release_all("the test is over").unwrap();
    assert_eq!((machine.read("box/vx/memory.low"), machine.read("box/gz/memory.low")), ("12345856".into(), "0".into()));

    // Set after the last tick, too.
    let (machine, mut guard, _) = protecting(Version::V1);
    machine.write("box/vx/memory.swappiness", "30");
    guard.release_all("the test is over").unwrap();
    assert_eq!(machine.read("box/vx/memory.swappiness"), "30");
    assert!(!machine.journal().exists());
}

#[test]
fn what_an_administrator_has_set_is_not_taken_away() {
    let mut machine = Machine::thrashing(Version::V2);
    machine.write("box/vx/memory.low", &(200 * MIB).to_string());
    machine.write("box/vx/memory.min", &(64 * MIB).to_string());
    let before = machine.values();
    let mut guard = machine.guard(settings());
    for _ in 0..20 {
        machine.thrash(&mut guard, 1);
        assert!(machine.read("box/vx/memory.low").parse::<u64>().unwrap() >= 200 * MIB);
        assert_eq!(machine.read("box/vx/memory.min"), (64 * MIB).to_string());
    }
    guard.release_all("the test is over").unwrap();
    assert_eq!(machine.values(), before);
}

#[test]
fn groups_that_vanish_are_forgotten() {
    for version in [Version::V1, Version::V2] {
        let (mut machine, mut guard, _) = protecting(version);
        machine.vanish("box/vx");
        machine.tick(&mut guard, &[(10, 333)]).unwrap();
        assert_eq!(machine.protected(&guard), None);
        assert!(!machine.journal().exists());
        // The other, and the whole scope, in the middle of a second.
        machine.vanish("box");
        for _ in 0..11 {
            machine.tick(&mut guard, &[(10, 333)]).unwrap();
        }
        assert_eq!(guard.status(machine.now()).scopes.len(), 0);
    }
}

#[test]
fn groups_that_vanish_in_the_middle_of_a_tick_leave_nothing_changed() {
    let (mut machine, mut guard, before) = protecting(Version::V2);
    let (group, aside, fresh) = (machine.memory("box/vx"), machine.proc().join("aside"), machine.proc().join("fresh"));
    let values: Vec<_> = before.iter().filter(|(file, _)| file.starts_with(&group)).collect();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let comings = std::thread::scope(|threads| {
        let comings = threads.spawn(|| {
            let mut comings = 0;
            loop {
                // At once, as `rmdir` and `mkdir` of the kernel do, and each time with the kernel's own values.
                fs::rename(&group, &aside).unwrap();
                fs::remove_dir_all(&aside).unwrap();
                fs::create_dir(&fresh).unwrap();
                values
                    .iter()
                    .for_each(|(file, value)| fs::write(fresh.join(file.file_name().unwrap()), value).unwrap());
                fs::rename(&fresh, &group).unwrap();
                comings += 1;
                if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    return comings;
                }
                std::thread::yield_now();
            }
        });
        for _ in 0..300 {
            machine.thrash(&mut guard, 1);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        comings.join().unwrap()
    });
    guard.release_all("the test is over").unwrap();
    assert!(comings > 10, "{comings}");
    assert_eq!(machine.values(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn a_scope_that_is_left_alone_is_released() {
    let (mut machine, mut guard, before) = protecting(Version::V2);
    machine.vanish("box/gz");
    for _ in 0..11 {
        machine.tick(&mut guard, &[(11, 340)]).unwrap();
    }
    assert_eq!(machine.protected(&guard), None);
    let left = machine.values();
    assert!(left.iter().all(|(file, value)| before[file] == *value));
}

#[test]
fn a_write_that_is_refused_changes_nothing_and_another_has_its_turn() {
    let mut machine = Machine::thrashing(Version::V2);
    // A folder in place of the file refuses every write, to root as well.
    fs::remove_file(machine.memory("box/vx/memory.low")).unwrap();
    fs::create_dir(machine.memory("box/vx/memory.low")).unwrap();
    let before = machine.values();
    let mut guard = machine.guard(Settings { mechanism: Some(nigh_guard::MechanismName::Low), ..settings() });
    machine.thrash(&mut guard, 3);
    assert_eq!((machine.protected(&guard), machine.values()), (None, before));
    assert!(!machine.journal().exists());
    machine.thrash(&mut guard, 1);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/gz"));
    assert_eq!(guard.status(machine.now()).counts.refusals, 1);
}

#[test]
fn lists_say_who_is_protected_and_who_is_left_alone() {
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(Settings { allow: vec!["/box/gz".into()], ..settings() });
    machine.thrash(&mut guard, 3);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/gz"));

    let freeze = std::time::Duration::from_secs(3);
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let mut guard = machine.guard(Settings { deny: vec!["box".into()], freeze, ..settings() });
    machine.thrash(&mut guard, 5);
    assert_eq!((machine.protected(&guard), machine.values() == before), (None, true));

    // Denied, gz is not hindered either. A name is not the beginning of another.
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(Settings { deny: vec!["box/gz".into(), "box/v".into()], freeze, ..settings() });
    machine.thrash(&mut guard, 3);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
    assert_eq!(machine.read("box/gz/cgroup.freeze"), "0");
}

#[test]
fn a_dry_run_changes_nothing_and_tells_all() {
    let mut machine = Machine::thrashing(Version::V1);
    let before = machine.values();
    let freeze = std::time::Duration::from_secs(3);
    let mut guard = machine.dry_guard(Settings { freeze, ..settings() });
    machine.thrash(&mut guard, 4);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
    for _ in 0..5 {
        machine.tick(&mut guard, &[]).unwrap();
    }
    assert_eq!(machine.values(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn a_dry_run_leaves_to_others_what_a_run_before_has_left() {
    let (machine, guard, before) = protecting(Version::V2);
    drop(guard);
    let left = machine.values();
    let mut dry = machine.dry_guard(settings());
    dry.release_all("the test is over").unwrap();
    assert_eq!(machine.values(), left);
    drop(dry);
    machine.open_journal().restore_all().unwrap();
    assert_eq!(machine.values(), before);
}

#[test]
fn there_is_one_guard_at_a_time() {
    let machine = Machine::thrashing(Version::V2);
    let _guard = machine.guard(settings());
    let second = Journal::open(&machine.journal(), Writer::Files).unwrap_err();
    assert!(matches!(second, JournalError::Busy(_)), "{second}");
}

#[test]
fn a_journal_that_is_not_ours_stops_the_start() {
    let machine = Machine::thrashing(Version::V2);
    fs::create_dir_all(machine.journal().parent().unwrap()).unwrap();
    fs::write(machine.journal(), "[{\"file\": 7").unwrap();
    let error = Journal::open(&machine.journal(), Writer::Files).unwrap_err();
    assert!(matches!(error, JournalError::Garbled { .. }), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let mut guard = machine.guard(settings());
    fs::remove_dir_all(machine.journal().parent().unwrap()).unwrap();
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.extend(machine.tick(&mut guard, &[(10, 333), (11, 340)]).err());
    }
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("journal"), "{}", errors[0]);
    assert_eq!(machine.values(), before);
}

#[test]
fn a_machine_without_what_is_needed_gets_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tree::open(folder.path(), "").unwrap_err();
    assert!(matches!(error, TreeError::NoController(_)) && error.to_string().lines().count() == 1, "{error}");
    // A unified hierarchy beside v1's controllers has no memory controller.
    fs::write(folder.path().join("cgroup.controllers"), "cpu io\n").unwrap();
    assert!(matches!(Tree::open(folder.path(), ""), Err(TreeError::NoController(_))));
    let machine = Machine::new(Version::V2);
    assert!(matches!(Tree::open(&machine.cgroups(), "not/there"), Err(TreeError::NoGroup(_))));
    let no_proc =
        Guard::new(settings(), machine.tree(), Procfs::new(folder.path()), Some(machine.open_journal())).unwrap_err();
    assert!(no_proc.to_string().contains("No such file"), "{no_proc}");
    fs::write(machine.proc().join("vmstat"), "nothing of use\n").unwrap();
    let odd =
        Guard::new(settings(), machine.tree(), Procfs::new(&machine.proc()), Some(machine.open_journal())).unwrap_err();
    assert!(odd.to_string().contains("vmstat has an unexpected format"), "{odd}");
}

#[test]
fn a_refused_restore_stays_in_the_journal() {
    let machine = Machine::thrashing(Version::V2);
    // Readable, and not even root can write it.
    let file = Path::new("/proc/version");
    let current = fs::read_to_string(file).unwrap().trim().to_owned();
    let entry = serde_json::json!([{"owner": "x", "file": file, "original": "0", "ours": [current]}]);
    fs::create_dir_all(machine.journal().parent().unwrap()).unwrap();
    fs::write(machine.journal(), entry.to_string()).unwrap();
    let mut journal = machine.open_journal();
    let restored = journal.restore_all().unwrap();
    assert!(matches!(restored[..], [ref one] if matches!(one.outcome, Outcome::Refused(_))), "{restored:?}");
    assert!(!journal.is_empty() && machine.journal().exists());
}

#[test]
fn only_a_missing_file_means_that_its_group_is_gone() {
    let (mut machine, mut guard, before) = protecting(Version::V2);
    // Reading fails, and not because the file is missing.
    let (file, aside) = (machine.memory("box/vx/memory.low"), machine.proc().join("aside"));
    fs::rename(&file, &aside).unwrap();
    fs::create_dir(&file).unwrap();
    guard.release_all("the test says so").unwrap();
    let journal = fs::read_to_string(machine.journal()).unwrap();
    assert!(journal.contains("box/vx/memory.low"), "{journal}");
    // The trouble passes: it is restored at the next second, though nothing thrashes.
    fs::remove_dir(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    assert_ne!(machine.values(), before);
    machine.tick(&mut guard, &[]).unwrap();
    assert_eq!(machine.values(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn the_guard_stays_awake_until_everything_is_restored() {
    let (mut machine, mut guard, _) = protecting(Version::V2);
    let file = machine.memory("box/vx/memory.low");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    guard.release_all("the test says so").unwrap();
    for _ in 0..20 {
        assert!(matches!(machine.tick(&mut guard, &[]).unwrap(), Next::Tick(_)));
    }
    fs::remove_dir(&file).unwrap();
    let nexts: Vec<_> = (0..10).map(|_| machine.tick(&mut guard, &[]).unwrap()).collect();
    assert!(nexts.contains(&Next::Sleep) && !machine.journal().exists(), "{nexts:?}");
}

#[test]
fn a_group_that_is_being_frozen_again_is_thawed() {
    let freeze = std::time::Duration::from_secs(3);
    let mut machine = Machine::thrashing(Version::V1);
    let mut guard = machine.guard(Settings { freeze, ..settings() });
    machine.thrash(&mut guard, 3);
    let state = machine.cgroups().join("freezer/box/gz/freezer.state");
    assert_eq!(fs::read_to_string(&state).unwrap(), "FROZEN");
    fs::write(&state, "FREEZING\n").unwrap();
    machine.thrash(&mut guard, 4);
    assert_eq!(fs::read_to_string(&state).unwrap(), "THAWED");
}

#[test]
fn the_guard_freezes_neither_itself_nor_the_first_process() {
    let freeze = std::time::Duration::from_secs(3);
    let own = std::process::id();
    for (version, process, below) in
        [(Version::V1, own, ""), (Version::V2, own, "/deep/er"), (Version::V1, 1, "/deep"), (Version::V2, 1, "")]
    {
        let mut machine = Machine::thrashing(version);
        let group = format!("box/gz{below}");
        for group in ["box/gz/deep", "box/gz/deep/er"].into_iter().filter(|deep| group.starts_with(deep)) {
            machine.group(group, None);
        }
        let listed = machine.memory(&group).join("cgroup.procs");
        fs::write(&listed, format!("10\n{process}\n")).unwrap();
        let of_group = |(file, _): &(PathBuf, String)| file.display().to_string().contains("box/gz");
        let before: Vec<_> = machine.values().into_iter().filter(of_group).collect();
        let mut guard = machine.guard(Settings { freeze, mechanism: Some(MechanismName::Squeeze), ..settings() });
        for _ in 0..6 {
            machine.thrash(&mut guard, 1);
            let now: Vec<_> = machine.values().into_iter().filter(of_group).collect();
            assert_eq!(now, before, "{version:?} {group}: neither frozen nor bounded");
        }
    }

    // The freezer of v1 has a hierarchy of its own: another process may be there.
    let mut machine = Machine::thrashing(Version::V1);
    fs::write(machine.cgroups().join("freezer/box/gz/cgroup.procs"), "1\n").unwrap();
    let mut guard = machine.guard(Settings { freeze, ..settings() });
    machine.thrash(&mut guard, 3);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
    assert_eq!(fs::read_to_string(machine.cgroups().join("freezer/box/gz/freezer.state")).unwrap(), "THAWED\n");
}

#[test]
fn freezing_a_group_freezes_neither_the_protected_nor_a_denied_one_below_it() {
    let freeze = std::time::Duration::from_secs(3);
    for (below, deny) in [("box/gz/vx", vec![]), ("box/vx", vec!["box/gz/denied".to_owned()])] {
        let mut machine = Machine::new(Version::V1);
        machine.group("box", Some(256 * MIB));
        machine.process(10, "box/gz", 149, 61);
        machine.process(11, below, 96, 20);
        let mut guard = machine.guard(Settings { freeze, deny, ..settings() });
        machine.thrash(&mut guard, 3);
        assert_eq!(machine.protected(&guard).as_deref(), Some(below));
        assert_eq!(fs::read_to_string(machine.cgroups().join("freezer/box/gz/freezer.state")).unwrap(), "THAWED\n");
    }
}

#[test]
fn in_a_delegated_subtree_nothing_outside_is_touched() {
    let mut machine = Machine::new(Version::V2);
    machine.group("mine", Some(256 * MIB));
    machine.process(10, "mine/gz", 149, 61);
    machine.process(11, "mine/vx", 96, 20);
    machine.process(12, "other", 96, 20);
    machine.process(13, "another", 96, 10);
    let before = machine.values();
    let tree = Tree::open(&machine.cgroups(), "/mine").unwrap();
    let mut guard = Guard::new(settings(), tree, Procfs::new(&machine.proc()), Some(machine.open_journal())).unwrap();
    for _ in 0..4 {
        machine.tick(&mut guard, &[(10, 300), (11, 300), (12, 300), (13, 300)]).unwrap();
    }
    assert_eq!(machine.protected(&guard).as_deref(), Some("mine/vx"));
    let changed: Vec<_> = machine.values().into_iter().filter(|(file, value)| before[file] != *value).collect();
    assert!(changed.len() == 1 && changed[0].0.starts_with(machine.memory("mine")), "{changed:?}");
}

#[test]
fn each_limit_is_a_scope_and_each_has_at_most_one_protected_group() {
    let mut machine = Machine::new(Version::V2);
    for (scope, pid) in [("one", 10), ("two", 20)] {
        machine.group(scope, Some(256 * MIB));
        machine.process(pid, &format!("{scope}/a"), 100, 30);
        machine.process(pid + 1, &format!("{scope}/b"), 100, 20);
    }
    machine.group("loose", None);
    machine.process(30, "loose/c", 100, 9);
    machine.process(31, "loose/d", 100, 8);
    let mut guard = machine.guard(settings());
    for _ in 0..4 {
        machine.tick(&mut guard, &[10, 11, 20, 21, 30, 31].map(|pid| (pid, 300))).unwrap();
    }
    let mut protected: Vec<_> =
        guard.status(machine.now()).scopes.into_iter().map(|s| (s.scope, s.protected.unwrap())).collect();
    protected.sort();
    let expected = [("", "loose/d"), ("one", "one/b"), ("two", "two/b")];
    assert_eq!(protected, expected.map(|(scope, group)| (scope.to_owned(), group.to_owned())));
    // Reclaim of the machine starts at the root: the group above needs its share, too.
    assert_eq!(
        (machine.read("loose/memory.low"), machine.read("one/memory.low")),
        ((108 * MIB).to_string(), "0".into())
    );
}

#[test]
fn while_all_is_well_it_asks_to_sleep_and_looks_at_no_group() {
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(settings());
    let mut nexts = vec![machine.tick(&mut guard, &[]).unwrap()];
    // One file is read each time, however many groups there are: what the machine counts.
    machine.second(&[(10, 4), (11, 4)]);
    if let (Some(first), Some(second)) = (reads(), reads()) {
        nexts.push(guard.tick(machine.now()).unwrap());
        let in_tick = (reads().unwrap() - second) - (second - first);
        assert!(in_tick <= 3, "{in_tick} reads");
    } else {
        println!("skipped: while_all_is_well_it_asks_to_sleep_and_looks_at_no_group: the kernel does not count reads");
    }
    for _ in 0..5 {
        // A machine that faults a little now and then.
        nexts.push(machine.tick(&mut guard, &[(10, 4), (11, 4)]).unwrap());
    }
    assert!(nexts.contains(&Next::Sleep), "{nexts:?}");
    assert_eq!(guard.status(machine.now()).counts.protections, 0);
    // Woken by pressure, it is at work again.
    machine.thrash(&mut guard, 4);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
}
