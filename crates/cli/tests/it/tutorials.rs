//! The tutorials of docs/tutorials and the recipes of docs/measure.md, executed: every command, in order, in one shell in an
//! empty folder.
//!
//! Comments in the text steer this. `<!-- needs: PROGRAM ... -->` names programs without which it is skipped; `root`,
//! `loop-device` and `user` (not root) are needs too. `<!-- prints: TEXT -->` behind a block of commands is what they must
//! print. Programs are built with this test, so the command that installs them is executed by `cargo xtask ci` instead.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nigh_testkit::tools::installed;

const COMMANDS_MAX: usize = 6;
const INSTALL: &str = "cargo install --locked --path crates/cli";

/// The user and the group that run what does not run as root.
const NOBODY: u32 = 65534;

/// Commands in one fenced block, and what they must print.
#[derive(Default)]
struct Block {
    commands: Vec<String>,
    prints: Vec<String>,
}

fn comment<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    Some(line.strip_prefix("<!-- ")?.strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(" -->")?.trim())
}

/// The blocks of a tutorial, and the programs that it needs.
fn read(text: &str) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut needs) = (Vec::<Block>::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "```sh" {
            let mut block = Block::default();
            let mut goes_on = false;
            for line in lines.by_ref().take_while(|line| *line != "```") {
                match block.commands.last_mut() {
                    Some(last) if goes_on => *last = format!("{last}\n{line}"),
                    _ => block.commands.push(line.to_owned()),
                }
                goes_on = line.ends_with('\\');
            }
            blocks.push(block);
        } else if let Some(text) = comment(line, "prints") {
            blocks.last_mut().expect("commands come first").prints.push(text.to_owned());
        } else if let Some(programs) = comment(line, "needs") {
            needs.extend(programs.split(' ').map(str::to_owned));
        }
    }
    (blocks, needs)
}

/// Whether `need` is met; otherwise prints that `name` is skipped.
fn is_met(name: &str, need: &str) -> bool {
    let (met, why) = match need {
        "root" => (is_root(), "it needs root"),
        "loop-device" => {
            let find = Command::new("losetup").arg("--find").stdout(Stdio::null()).stderr(Stdio::null()).status();
            (find.is_ok_and(|status| status.success()), "there is no loop device")
        }
        // Root runs it as another user.
        "user" => (true, ""),
        // On Debian, it is not on the path.
        "postgres" if debian_postgres() => (true, ""),
        program => return installed(name, program),
    };
    if !met {
        println!("skipped: {name}: {why}");
    }
    met
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn debian_postgres() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/postgres").is_file())
}

/// Runs the commands of all blocks in one shell, `as_user` as a user that is not root; what each block printed.
fn run(name: &str, blocks: &[Block], as_user: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_nigh"));
    let mut programs = built.parent().unwrap().to_owned();
    // Servers in the background end with the shell.
    let mut script = String::from("set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    for (at, block) in blocks.iter().enumerate() {
        script.push_str(&format!("exec >{at}.printed 2>&1\n"));
        for command in block.commands.iter().filter(|command| *command != INSTALL) {
            script.push_str(command);
            script.push('\n');
        }
    }
    let mut shell = Command::new("timeout");
    // Another user may have no access to the folder of builds.
    let copied = tempfile::tempdir().unwrap();
    if as_user && is_root() {
        std::fs::set_permissions(copied.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::copy(built, copied.path().join("nigh")).unwrap();
        copied.path().clone_into(&mut programs);
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        shell.uid(NOBODY).gid(NOBODY);
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    shell.args(["120", "bash", "-c", &script]).current_dir(folder.path()).env("PATH", path).stdin(Stdio::null());
    let status = shell.status().unwrap();
    let printed = |at: usize| std::fs::read_to_string(folder.path().join(format!("{at}.printed"))).unwrap_or_default();
    let printed: Vec<String> = (0..blocks.len()).map(printed).collect();
    assert!(status.success(), "{name}: {status}; it printed: {printed:#?}");
    printed
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The texts of all tutorials, by the names of their files.
fn tutorials() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(docs().join("tutorials")).unwrap().map(|file| file.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The sections of docs/measure.md, by their titles.
fn recipes() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(docs().join("measure.md")).unwrap();
    let sections = text.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    sections.map(|(title, text)| (title.to_owned(), text.to_owned())).collect()
}

/// Executes a text, if what it needs is there.
fn follow(name: &str, text: &str) {
    let (blocks, needs) = read(text);
    assert!(blocks.iter().any(|block| !block.prints.is_empty()), "{name}: nothing shows that it works");
    if !needs.iter().all(|need| is_met(name, need)) {
        return;
    }
    let as_user = needs.iter().any(|need| need == "user");
    for (block, printed) in blocks.iter().zip(run(name, &blocks, as_user)) {
        for text in &block.prints {
            assert!(printed.contains(text), "{name}: no {text:?} in\n{printed}");
        }
    }
}

/// From a clean machine to the answer.
fn follow_tutorial(name: &str) {
    let text = &tutorials()[name];
    let (blocks, _) = read(text);
    let commands: Vec<&String> = blocks.iter().flat_map(|block| &block.commands).collect();
    assert_eq!(commands[0], INSTALL, "{name}");
    assert!(commands.len() <= COMMANDS_MAX, "{name}: {commands:#?}");
    follow(name, text);
}

fn follow_recipe(title: &str) {
    follow(title, &recipes()[title]);
}

macro_rules! tests {
    ($every:ident: $follow:ident of $all:ident { $($test:ident: $name:literal,)* }) => {
        $(#[test] fn $test() { $follow($name); })*

        #[test]
        fn $every() {
            let followed = BTreeSet::from([$($name),*]);
            assert!($all().keys().all(|name| followed.contains(&**name)), "{:?}", $all().keys());
        }
    };
}

tests! {
    every_tutorial_is_followed: follow_tutorial of tutorials {
        a_storage_engineer_sizes_a_cache: "storage-engineer",
        an_operator_of_virtual_machines_serves_a_disk: "virtual-machines",
        a_database_developer_finds_the_working_set: "database-developer",
        a_researcher_compares_policies: "researcher",
        a_user_protects_a_build: "builds-that-thrash",
    }
}

tests! {
    every_recipe_is_followed: follow_recipe of recipes {
        a_c_program_is_measured: "A C program",
        a_python_program_is_measured: "A Python program",
        sqlite_is_measured: "SQLite",
        postgresql_is_measured: "PostgreSQL under pgbench",
        a_disk_is_measured: "A disk",
        a_guests_disk_is_measured: "A QEMU guest's disk",
    }
}
