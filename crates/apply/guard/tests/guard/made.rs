//! Runs remove the groups and folders that they made, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use nigh_guard::made::{add, tidy};
use nigh_guard::{Journal, Version, Writer};

use crate::common::Machine;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn groups_10_what_a_run_made_is_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("made/inner")).unwrap();
    fs::create_dir_all(path("admin/made")).unwrap();
    fs::create_dir(path("run")).unwrap();
    add(&path("run"), &[path("made"), path("made/inner"), path("admin/made"), path("gone")]).unwrap();
    // It is in use.
    fs::write(path("admin/made/file"), "").unwrap();
    tidy(&path("run")).unwrap();
    assert_eq!((names(folder.path()), names(&path("run"))), (vec!["admin".into(), "run".into()], vec!["made".into()]));
    fs::remove_file(path("admin/made/file")).unwrap();
    tidy(&path("run")).unwrap();
    assert_eq!((names(&path("admin")), names(&path("run"))), (vec![], vec![]));
    // The folder of the state was there before.
    assert_eq!(names(folder.path()), ["admin", "run"]);
}

#[test]
fn groups_10_what_a_killed_run_left_is_removed_by_the_next_one_and_what_another_uses_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let mut running = Command::new("sleep").arg("1000").spawn().unwrap();
    for name in ["run", "left", "used", "used/inner"] {
        fs::create_dir(path(name)).unwrap();
    }
    let entry = |name: &str, process: u32| serde_json::json!({"folder": path(name), "process": process});
    let made = [
        entry("run", ended.id()),
        entry("left", ended.id()),
        // The one that made the outer group has ended, and another one is in it.
        entry("used", ended.id()),
        entry("used/inner", running.id()),
    ];
    fs::write(path("run/made"), serde_json::json!(made).to_string()).unwrap();
    tidy(&path("run")).unwrap();
    assert_eq!((names(folder.path()), names(&path("used"))), (vec!["run".into(), "used".into()], vec!["inner".into()]));
    running.kill().unwrap();
    running.wait().unwrap();
    tidy(&path("run")).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn groups_10_a_journal_leaves_no_files_unless_something_is_to_be_restored() {
    let machine = Machine::new(Version::V2);
    let state = machine.journal().parent().unwrap().to_owned();
    for _ in 0..2 {
        let journal = machine.open_journal();
        assert!(Journal::open(&machine.journal(), Writer::Files).is_err(), "there is one at a time");
        assert_eq!(names(&state), ["journal.lock", "made"]);
        drop(journal);
        tidy(&state).unwrap();
        assert!(!state.exists());
    }
}

#[test]
fn groups_10_runs_that_end_and_begin_at_the_same_time_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("run");
    std::thread::scope(|threads| {
        for name in ["a", "b", "c"] {
            let (made, state) = (folder.path().join(name), &state);
            threads.spawn(move || {
                for _ in 0..200 {
                    // No list, and so no folder, is lost while another one is removed.
                    let journal = Journal::open(&state.join(format!("journal-{name}")), Writer::Files).unwrap();
                    fs::create_dir(&made).unwrap();
                    add(state, std::slice::from_ref(&made)).unwrap();
                    drop(journal);
                    tidy(state).unwrap();
                    // One that another thread of this process removes is removed, too.
                    assert!(!made.exists());
                }
            });
        }
    });
    tidy(&state).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}
