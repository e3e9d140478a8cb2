//! The tutorials of docs/tutorials, executed: every command, in order, in one shell in an empty folder.
//!
//! Comments in a tutorial steer this: `<!-- needs: PROGRAM ... -->` names programs without which it is skipped, and
//! `<!-- prints: TEXT -->` behind a block of commands is what they must print. Programs are built with this test, so the
//! command that installs them is executed by `cargo xtask ci` instead.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nigh_testkit::tools::installed;

const COMMANDS_MAX: usize = 6;
const INSTALL: &str = "cargo install --locked --path crates/cli";

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

/// Runs the commands of all blocks in one shell; what each block printed.
fn run(name: &str, blocks: &[Block]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_nigh")).parent().unwrap();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
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
    shell.args(["120", "bash", "-c", &script]).current_dir(folder.path()).env("PATH", path).stdin(Stdio::null());
    let status = shell.status().unwrap();
    let printed = |at: usize| std::fs::read_to_string(folder.path().join(format!("{at}.printed"))).unwrap_or_default();
    let printed: Vec<String> = (0..blocks.len()).map(printed).collect();
    assert!(status.success(), "{name}: {status}; it printed: {printed:#?}");
    printed
}

fn tutorials() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// From a clean machine to the answer.
fn follow(name: &str) {
    let text = std::fs::read_to_string(&tutorials()[name]).unwrap();
    let (blocks, needs) = read(&text);
    let commands: Vec<&String> = blocks.iter().flat_map(|block| &block.commands).collect();
    assert_eq!(commands[0], INSTALL, "{name}");
    assert!(commands.len() <= COMMANDS_MAX, "{name}: {commands:#?}");
    assert!(blocks.iter().any(|block| !block.prints.is_empty()), "{name}: nothing shows that it works");
    if !needs.iter().all(|program| installed(name, program)) {
        return;
    }
    for (block, printed) in blocks.iter().zip(run(name, &blocks)) {
        for text in &block.prints {
            assert!(printed.contains(text), "{name}: no {text:?} in\n{printed}");
        }
    }
}

macro_rules! tutorials {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { follow($name); })*

        #[test]
        fn every_tutorial_is_followed() {
            let followed = std::collections::BTreeSet::from([$($name),*]);
            assert!(tutorials().keys().all(|name| followed.contains(&**name)), "{:?}", tutorials().keys());
        }
    };
}

tutorials! {
    a_storage_engineer_sizes_a_cache: "storage-engineer",
    an_operator_of_virtual_machines_serves_a_disk: "virtual-machines",
    a_database_developer_finds_the_working_set: "database-developer",
    a_researcher_compares_policies: "researcher",
    a_user_protects_a_build: "builds-that-thrash",
}
