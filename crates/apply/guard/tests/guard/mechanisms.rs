//! Each mechanism on a kernel made of files: what is written, where, in which order, and what is refused.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nigh_guard::mechanism::{Change, Freeze, Grant, Low, Mechanism, Refusal, Setting, Squeeze, Swappiness};
use nigh_guard::{ApplyError, Group, GroupSample, MechanismName, Scope, Settings, Version, Writer};

use crate::common::{MIB, Machine, settings};

fn seen(group: &str, resident_mib: u64, swapped_mib: u64) -> GroupSample {
    let (resident, swapped) = (resident_mib * MIB, swapped_mib * MIB);
    GroupSample {
        group: group.into(),
        faults: 100,
        of_files: None,
        user_s: 0.0,
        waiting_s: 0.0,
        resident,
        swapped,
        eligible: true,
    }
}

/// The settings of `mechanism` for `group` against `others`, in a scope.
fn plan(
    machine: &Machine,
    mechanism: &dyn Mechanism,
    (scope, limit_mib): (&str, u64),
    group: &GroupSample,
    others: &[GroupSample],
) -> Result<Vec<(String, Change)>, Refusal> {
    let tree = machine.tree();
    let scope = Scope { group: scope.into(), limit: limit_mib * MIB, candidates: Vec::new() };
    let is_machine = scope.group.is_empty();
    let grant = Grant { tree: &tree, scope: &scope, is_machine, group, limit: scope.limit, others };
    let settings = mechanism.settings(&grant, 1.0)?;
    let relative = |file: PathBuf| file.strip_prefix(machine.cgroups()).unwrap().display().to_string();
    Ok(settings.into_iter().map(|Setting { file, change }| (relative(file), change)).collect())
}

#[test]
fn low_is_set_on_every_group_up_to_where_reclaim_starts_outermost_first() {
    let machine = Machine::new(Version::V2);
    for group in ["a", "a/b", "a/b/c"] {
        machine.group(group, None);
    }
    let (bytes, group) = (60 * MIB, seen("a/b/c", 40, 20));
    let to_machine = plan(&machine, &Low, ("", 1024), &group, &[]).unwrap();
    let expected = [("a/memory.low", Change::Plus(bytes)), ("a/b/memory.low", Change::Plus(bytes))];
    let expected = expected.into_iter().chain([("a/b/c/memory.low", Change::AtLeast(bytes))]);
    assert_eq!(to_machine, expected.map(|(file, change)| (file.to_owned(), change)).collect::<Vec<_>>());
    let to_limit = plan(&machine, &Low, ("a/b", 1024), &group, &[]).unwrap();
    assert_eq!(to_limit, [("a/b/c/memory.low".to_owned(), Change::AtLeast(bytes))]);
}

#[test]
fn nothing_is_promised_beyond_the_limit() {
    let v2 = Machine::thrashing(Version::V2);
    let v1 = Machine::thrashing(Version::V1);
    let others = [seen("box/gz", 100, 60)];
    let (fits, does_not) = (seen("box/vx", 200, 30), seen("box/vx", 200, 31));
    for (machine, mechanism) in [(&v2, &Low as &dyn Mechanism), (&v2, &Squeeze), (&v1, &Swappiness)] {
        assert!(plan(machine, mechanism, ("box", 256), &fits, &others).is_ok(), "{mechanism:?}");
        let refusal = plan(machine, mechanism, ("box", 256), &does_not, &others).unwrap_err();
        assert_eq!(refusal, Refusal::DoesNotFit { demand: 231 * MIB, limit: 256 * MIB }, "{mechanism:?}");
    }
}

#[test]
fn swappiness_protects_from_the_limit_of_a_group_only() {
    let machine = Machine::thrashing(Version::V1);
    let group = seen("box/vx", 96, 10);
    let found = plan(&machine, &Swappiness, ("box", 256), &group, &[]).unwrap();
    assert_eq!(found, [("memory/box/vx/memory.swappiness".to_owned(), Change::Word("0"))]);
    assert_eq!(plan(&machine, &Swappiness, ("", 8192), &group, &[]), Err(Refusal::NoLimit));
}

#[test]
fn the_others_are_squeezed_into_what_is_left_and_never_below_a_quarter() {
    let machine = Machine::thrashing(Version::V2);
    machine.write("box/memory.current", &(250 * MIB).to_string());
    let vx = seen("box/vx", 96, 20);
    // 256 - 116 - 5 of bystanders are 135; the others want 150 and 120.
    let others = [seen("box/gz", 100, 50), seen("box/other", 49, 71)];
    machine.group("box/other", None);
    let found = plan(&machine, &Squeeze, ("box", 256), &vx, &others).unwrap();
    let expected = [("box/gz/memory.high", 75), ("box/other/memory.high", 60)];
    assert_eq!(found, expected.map(|(file, mib)| (file.to_owned(), Change::AtMost(mib * MIB))));
    let found = plan(&machine, &Squeeze, ("box", 256), &vx, &[seen("box/gz", 149, 851)]).unwrap();
    assert_eq!(found, [("box/gz/memory.high".to_owned(), Change::AtMost(250 * MIB))]);
    assert_eq!(plan(&machine, &Squeeze, ("box", 256), &vx, &[]), Err(Refusal::NobodyElse));
}

#[test]
fn the_freezer_of_either_version_stops_the_others() {
    let (vx, gz) = (seen("box/vx", 96, 20), [seen("box/gz", 100, 50)]);
    let v2 = plan(&Machine::thrashing(Version::V2), &Freeze, ("box", 256), &vx, &gz).unwrap();
    assert_eq!(v2, [("box/gz/cgroup.freeze".to_owned(), Change::Word("1"))]);
    let machine = Machine::thrashing(Version::V1);
    let v1 = plan(&machine, &Freeze, ("box", 256), &vx, &gz).unwrap();
    assert_eq!(v1, [("freezer/box/gz/freezer.state".to_owned(), Change::Word("FROZEN"))]);
    fs::remove_dir_all(machine.cgroups().join("freezer/box/gz")).unwrap();
    assert_eq!(plan(&machine, &Freeze, ("box", 256), &vx, &gz), Err(Refusal::NobodyElse));
}

#[test]
fn a_missing_file_is_a_refusal() {
    let machine = Machine::thrashing(Version::V2);
    let file = machine.memory("box/vx/memory.low");
    fs::remove_file(&file).unwrap();
    assert_eq!(plan(&machine, &Low, ("box", 256), &seen("box/vx", 9, 9), &[]), Err(Refusal::Missing(file)));
}

#[test]
fn an_administrators_value_is_raised_added_to_or_lowered_never_taken_away() {
    let of = |change: Change, original: &str| change.of(original);
    assert_eq!(of(Change::AtLeast(8), "0").as_deref(), Some("8"));
    assert_eq!(of(Change::AtLeast(8), "9"), None);
    assert_eq!(of(Change::AtLeast(8), "max"), None);
    assert_eq!(of(Change::Plus(8), "9").as_deref(), Some("17"));
    assert_eq!(of(Change::Plus(8), "max"), None);
    assert_eq!(of(Change::AtMost(8), "max").as_deref(), Some("8"));
    assert_eq!(of(Change::AtMost(8), "7"), None);
    assert_eq!(of(Change::Word("0"), "60").as_deref(), Some("0"));
    assert_eq!(of(Change::Word("0"), "0"), None);
    assert_eq!(of(Change::AtLeast(8), "nonsense"), None);
}

#[test]
fn what_one_write_refuses_is_rolled_back_as_a_whole() {
    let machine = Machine::new(Version::V2);
    for group in ["a", "a/b", "a/b/c"] {
        machine.group(group, None);
    }
    machine.write("a/memory.low", &MIB.to_string());
    let before = machine.values();
    let settings = |names: &[&str]| -> Vec<Setting> {
        names.iter().map(|name| Setting { file: machine.memory(name), change: Change::Plus(4096) }).collect()
    };
    let owner = Group::from("a/b/c");
    let mut journal = machine.open_journal();
    // The last of three is gone, as with a group that vanishes.
    let error = journal.apply(&owner, &settings(&["a/memory.low", "a/b/memory.low", "a/gone/memory.low"])).unwrap_err();
    assert!(matches!(&error, ApplyError::Refused { file, .. } if file.ends_with("a/gone/memory.low")), "{error}");
    assert_eq!(machine.values(), before);
    assert!(journal.is_empty() && !machine.journal().exists());

    journal.apply(&owner, &settings(&["a/memory.low", "a/b/memory.low"])).unwrap();
    assert_eq!(
        (machine.read("a/memory.low"), machine.read("a/b/memory.low")),
        ((MIB + 4096).to_string(), "4096".into())
    );
    // Values that are no longer wanted are restored; the rest stays.
    journal.apply(&owner, &settings(&["a/b/memory.low"])).unwrap();
    assert_eq!((machine.read("a/memory.low"), machine.read("a/b/memory.low")), (MIB.to_string(), "4096".into()));
    journal.restore(&owner).unwrap();
    assert_eq!(machine.values(), before);
}

#[test]
fn units_get_their_values_from_systemd_other_groups_from_files() {
    let machine = Machine::new(Version::V2);
    let groups = ["system.slice", "system.slice/db.service", "user.slice", "user.slice/user@1.service", "plain"];
    let user_unit = "user.slice/user@1.service/app.scope";
    groups.iter().chain([&user_unit]).for_each(|group| machine.group(group, None));
    // A systemctl that notes how it is called.
    let (notes, systemctl) = (machine.proc().join("notes"), machine.proc().join("systemctl"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{}\ncase $4 in *db*) echo no such unit >&2; exit 1;; esac\n",
        notes.display()
    );
    fs::write(&systemctl, script).unwrap();
    fs::set_permissions(&systemctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let writer = Writer::Systemd { systemctl, cgroupfs: machine.cgroups() };
    let mut journal = nigh_guard::Journal::open(&machine.journal(), writer).unwrap();
    let setting = |group: &str, name: &str, change| Setting { file: machine.memory(group).join(name), change };
    let settings = [
        setting("system.slice", "memory.low", Change::Plus(8192)),
        setting("user.slice", "memory.high", Change::AtMost(4096)),
        setting("plain", "memory.low", Change::AtLeast(4096)),
        setting(user_unit, "memory.low", Change::AtLeast(4096)),
    ];
    journal.apply(&Group::from("x"), &settings).unwrap();
    let noted = fs::read_to_string(&notes).unwrap();
    let expected =
        "set-property --runtime -- system.slice MemoryLow=8192\nset-property --runtime -- user.slice MemoryHigh=4096\n";
    assert_eq!(noted, expected);
    assert_eq!(
        (machine.read("plain/memory.low"), machine.read("user.slice/user@1.service/app.scope/memory.low")),
        ("4096".into(), "4096".into())
    );
    let error = journal
        .apply(&Group::from("y"), &[setting("system.slice/db.service", "memory.low", Change::AtLeast(4096))])
        .unwrap_err();
    assert!(error.to_string().ends_with("no such unit"), "{error}");
}

#[test]
fn a_nested_unit_is_not_taken_for_one_of_the_host() {
    let machine = Machine::new(Version::V2);
    let nested = [
        "machine.slice/machine-web.scope/system.slice/cron.service",
        "machine.slice/machine-web.scope/system.slice",
        "docker/0123/system.slice/cron.service",
        "user.slice/user-1.slice/user@1.service/app.slice/app.scope",
        // Not where systemd would place them.
        "user.slice/system.slice/cron.service",
        "user-1.slice/cron.service",
    ];
    let of_host = ["system.slice/cron.service", "user.slice/user-1.slice/session-2.scope", "user.slice/user-1.slice"];
    let escaped = "system.slice/_memory.service";
    nested.iter().chain(&of_host).chain([&escaped]).for_each(|group| machine.group(group, None));
    let (notes, systemctl) = (machine.proc().join("notes"), machine.proc().join("systemctl"));
    fs::write(&systemctl, format!("#!/bin/sh\necho $4 >>{}\n", notes.display())).unwrap();
    fs::set_permissions(&systemctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let writer = Writer::Systemd { systemctl, cgroupfs: machine.cgroups() };
    let mut journal = nigh_guard::Journal::open(&machine.journal(), writer).unwrap();
    let setting =
        |group: &&str| Setting { file: machine.memory(group).join("memory.low"), change: Change::AtLeast(4096) };
    journal.apply(&Group::from("x"), &nested.iter().map(setting).collect::<Vec<_>>()).unwrap();
    assert!(!notes.exists(), "{}", fs::read_to_string(&notes).unwrap());
    for group in nested {
        assert_eq!(machine.read(&format!("{group}/memory.low")), "4096", "{group}");
    }
    journal.apply(&Group::from("y"), &of_host.iter().chain([&escaped]).map(setting).collect::<Vec<_>>()).unwrap();
    let noted = fs::read_to_string(&notes).unwrap();
    assert_eq!(noted, "cron.service\nsession-2.scope\nuser-1.slice\nmemory.service\n");
}

fn wanting(mechanism: MechanismName) -> Settings {
    Settings { mechanism: Some(mechanism), ..settings() }
}

#[test]
fn a_thrashing_machine_of_v2_is_protected_by_low_refreshed_and_faded() {
    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let mut guard = machine.guard(settings());
    machine.thrash(&mut guard, 3);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"));
    assert_eq!(machine.read("box/vx/memory.low"), (116 * MIB).to_string());
    let changed: Vec<_> = machine.values().into_iter().filter(|(file, value)| before[file] != *value).collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    // The demand grows, and the promise with it.
    machine.processes.get_mut(&11).unwrap().swapped_mib = 40;
    machine.thrash(&mut guard, 1);
    assert_eq!(machine.read("box/vx/memory.low"), (136 * MIB).to_string());
    // It faults no more: two seconds later the promise begins to shrink by a tenth a second.
    let mut seen = Vec::new();
    for _ in 0..13 {
        machine.tick(&mut guard, &[(10, 333)]).unwrap();
        seen.push(machine.read("box/vx/memory.low").parse::<u64>().unwrap() * 10 / (136 * MIB));
    }
    assert_eq!(seen, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
    assert_eq!(machine.values(), before);
    assert_eq!(machine.protected(&guard), None);
}

#[test]
fn a_thrashing_machine_of_v1_is_protected_by_swappiness_until_it_would_not_fit() {
    let mut machine = Machine::thrashing(Version::V1);
    let before = machine.values();
    let mut guard = machine.guard(settings());
    machine.thrash(&mut guard, 3);
    assert_eq!(
        (machine.read("box/vx/memory.swappiness"), machine.read("box/gz/memory.swappiness")),
        ("0".into(), "60".into())
    );
    // It grows to where the kernel would kill it: the cap guard lets go at once.
    machine.processes.get_mut(&11).unwrap().resident_mib = 220;
    machine.write("box/vx/memory.usage_in_bytes", &(220 * MIB).to_string());
    machine.thrash(&mut guard, 1);
    machine.write("box/vx/memory.usage_in_bytes", &(96 * MIB).to_string());
    assert_eq!(machine.values(), before);
    assert_eq!(guard.status(machine.now()).counts.refusals, 1);
}

#[test]
fn the_protection_of_the_command_and_the_time_that_it_saved_are_counted() {
    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(Settings { command: Some("vx".into()), ..settings() });
    machine.thrash(&mut guard, 3);
    for _ in 0..5 {
        // It computes far more than before.
        machine.processes.get_mut(&11).unwrap().user_ticks += 79;
        machine.thrash(&mut guard, 1);
    }
    guard.release_all("the test is over").unwrap();
    let counts = guard.status(machine.now()).counts;
    assert_eq!((counts.protections, counts.protected_s), (1, 5.0));
    assert_eq!(guard.command_protected(), Duration::from_secs(5));
    // 405 ticks, and before, two a second, or as many as can be expected where four were counted in 2 s: about 5. The two groups could do the
    // rest in half the time.
    assert!((1.6..1.75).contains(&counts.saved_s), "{counts:?}");

    let mut machine = Machine::thrashing(Version::V2);
    let mut guard = machine.guard(Settings { command: Some("gz".into()), ..settings() });
    machine.thrash(&mut guard, 8);
    guard.release_all("the test is over").unwrap();
    assert_eq!(guard.command_protected(), Duration::ZERO);
    assert_eq!(guard.status(machine.now()).counts.saved_s, 0.0, "nothing got on better than before");
}

#[test]
fn a_refusal_is_kept_for_the_summary() {
    let mut machine = Machine::new(Version::V1);
    machine.process(10, "gz", 149, 61);
    machine.process(11, "vx", 96, 20);
    let mut guard = machine.guard(settings());
    machine.thrash(&mut guard, 4);
    assert_eq!(
        guard.refusal(),
        Some("swappiness: cgroup v1 protects only within the limit of a group, not on the whole machine")
    );
}

#[test]
fn a_group_with_a_limit_of_its_own_must_fit_in_that() {
    let mut machine = Machine::thrashing(Version::V1);
    machine.write("box/vx/memory.limit_in_bytes", &(120 * MIB).to_string());
    let mut guard = machine.guard(settings());
    // vx wants 116 of its 120 MiB; gz has its turn.
    machine.thrash(&mut guard, 5);
    assert_eq!(machine.protected(&guard).as_deref(), Some("box/gz"));
    assert_eq!(
        (machine.read("box/vx/memory.swappiness"), machine.read("box/gz/memory.swappiness")),
        ("60".into(), "0".into())
    );
}

#[test]
fn the_chosen_mechanism_is_the_only_one() {
    let mut machine = Machine::thrashing(Version::V2);
    machine.write("box/memory.current", &(245 * MIB).to_string());
    let mut guard = machine.guard(wanting(MechanismName::Squeeze));
    machine.thrash(&mut guard, 3);
    assert_eq!(
        (machine.read("box/vx/memory.low"), machine.read("box/gz/memory.high")),
        ("0".into(), (140 * MIB).to_string())
    );
    // gz stands at its bound and faults no more: the bound stays as long as vx is protected.
    machine.tick(&mut guard, &[(11, 340)]).unwrap();
    assert_eq!(machine.read("box/gz/memory.high"), (140 * MIB).to_string());

    let mut machine = Machine::thrashing(Version::V2);
    let before = machine.values();
    let mut guard = machine.guard(wanting(MechanismName::Swappiness));
    machine.thrash(&mut guard, 6);
    assert_eq!((machine.protected(&guard), machine.values() == before), (None, true));
    assert_eq!(guard.status(machine.now()).counts.refusals, 2, "both were tried");
}

#[test]
fn a_freeze_ends_after_its_seconds_and_is_never_longer_than_three() {
    for (version, file, frozen, running) in [
        (Version::V2, "box/gz/cgroup.freeze", "1", "0"),
        (Version::V1, "../freezer/box/gz/freezer.state", "FROZEN", "THAWED"),
    ] {
        let mut machine = Machine::thrashing(version);
        let mut guard = machine.guard(Settings { freeze: Duration::from_secs(60), ..settings() });
        machine.thrash(&mut guard, 3);
        assert_eq!(machine.read(file), frozen);
        // A stopped group does not fault.
        for _ in 0..2 {
            machine.tick(&mut guard, &[(11, 340)]).unwrap();
            assert_eq!(machine.read(file), frozen);
        }
        machine.tick(&mut guard, &[(11, 340)]).unwrap();
        assert_eq!(machine.read(file), running);
        assert_eq!(machine.protected(&guard).as_deref(), Some("box/vx"), "the protection goes on");
    }
}

#[test]
fn if_none_fits_it_says_so_and_lets_one_rest_for_a_moment() {
    let mut machine = Machine::new(Version::V2);
    machine.group("box", Some(256 * MIB));
    machine.process(10, "box/gz", 130, 120);
    machine.process(11, "box/vx", 120, 110);
    let before = machine.values();
    let mut guard = machine.guard(Settings { freeze: Duration::from_secs(3), ..settings() });
    let mut rested = 0;
    for _ in 0..9 {
        machine.thrash(&mut guard, 1);
        rested += u32::from(machine.read("box/gz/cgroup.freeze") == "1");
        assert_eq!(machine.read("box/vx/cgroup.freeze"), "0");
    }
    assert_eq!(rested, 1, "a second of ten");
    assert_eq!(guard.status(machine.now()).counts.load_controls, 1, "it is told once");
    guard.release_all("the test is over").unwrap();
    assert_eq!(machine.values(), before);
}
