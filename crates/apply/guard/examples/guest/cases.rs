//! Effect of `memory.low`: how much of a group that holds memory and does not touch it is swapped out when another wants more than is
//! there.
//!
//! Each case runs without protection, with the group alone protected, and with all above it protected, too, up to where reclaim starts.

use std::fs;
use std::path::Path;

use nigh_guard::mechanism::{Grant, Low, Mechanism, Setting};
use nigh_guard::{Group, GroupSample, Journal, Procfs, Scope, Tree, Writer};

use crate::{CGROUPS, MIB, groups, start};

/// Memory of the group.
const HELD: u64 = 40 * MIB;

/// The limit that causes reclaim: that of the group `box`, or the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reclaim {
    Limit,
    Machine,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protection {
    None,
    ChildOnly,
    WithAncestors,
}

pub(crate) fn run() -> bool {
    let mut failed = 0;
    for reclaim in [Reclaim::Limit, Reclaim::Machine] {
        for protection in [Protection::None, Protection::ChildOnly, Protection::WithAncestors] {
            let lost = lost(reclaim, protection);
            // With only the child protected, its parent's 0 bounds it.
            let as_expected = if protection == Protection::WithAncestors { lost == 0 } else { lost > HELD / 10 };
            failed += u32::from(!as_expected);
            let verdict = if as_expected { "as expected" } else { "NOT as expected" };
            println!(
                "guest: reclaim by {reclaim:?}, protection {protection:?}: {} of {} KiB lost, {verdict}",
                lost >> 10,
                HELD >> 10
            );
        }
    }
    failed == 0
}

/// Bytes of the group that went to swap while another wanted too much.
fn lost(reclaim: Reclaim, protection: Protection) -> u64 {
    let total = Procfs::new(Path::new("/proc")).memory_total().expect("/proc is mounted");
    let limit = if reclaim == Reclaim::Limit { 100 * MIB } else { total };
    groups(limit);

    let mut victim = start("hold", "box/a/victim", HELD);
    let tree = Tree::open(Path::new(CGROUPS), "").expect("cgroup v2");
    let owner: Group = "box/a/victim".into();
    let scope =
        Scope { group: if reclaim == Reclaim::Limit { "box" } else { "" }.into(), limit, candidates: Vec::new() };
    let sample = GroupSample {
        group: owner.clone(),
        faults: 0,
        of_files: None,
        user_s: 0.0,
        waiting_s: 0.0,
        resident: HELD + 4 * MIB,
        swapped: 0,
        eligible: true,
    };
    let is_machine = reclaim == Reclaim::Machine;
    let grant = Grant { tree: &tree, scope: &scope, is_machine, group: &sample, limit, others: &[] };
    let mut settings: Vec<Setting> = Low.settings(&grant, 1.0).expect("it fits");
    match protection {
        Protection::None => settings.clear(),
        Protection::ChildOnly => settings = settings.split_off(settings.len() - 1),
        Protection::WithAncestors => {}
    }
    let mut journal = Journal::open(Path::new("/run/journal"), Writer::Files).expect("a journal");
    journal.apply(&owner, &settings).expect("memory.low");

    let wanted = match reclaim {
        Reclaim::Limit => 90 * MIB,
        Reclaim::Machine => available() + 30 * MIB,
    };
    let before = swapped(victim.id());
    let mut greedy = start("want", "box/b/greedy", wanted);
    assert!(greedy.wait().expect("it ends").success(), "there is swap for all");
    let lost = swapped(victim.id()).saturating_sub(before);
    victim.kill().and_then(|()| victim.wait()).expect("it was held");
    journal.restore_all().expect("memory.low is restored");
    for setting in settings {
        assert_eq!(fs::read_to_string(&setting.file).expect("it is there").trim(), "0", "{}", setting.file.display());
    }
    lost
}

fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
    kibibytes(&text, "MemAvailable:")
}

fn swapped(pid: u32) -> u64 {
    kibibytes(&fs::read_to_string(format!("/proc/{pid}/status")).expect("it is held"), "VmSwap:")
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells");
    line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).expect("a number") * 1024
}
