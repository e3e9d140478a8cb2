//! Standard error that cannot be written: messages are lost, and nothing else changes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A device that is full, and a pipe that nobody reads any more.
fn unwritable() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [File::options().write(true).open("/dev/full").unwrap().into(), writer.into()]
}

/// The effect of the command on each of them, which is the same.
fn outputs(folder: &Path, arguments: &[&str]) -> Vec<Output> {
    let run = |stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.current_dir(folder).args(arguments).stdin(Stdio::null()).stderr(stderr).output().unwrap()
    };
    unwritable().into_iter().map(run).collect()
}

#[test]
fn stderr_12_messages_that_cannot_be_written_end_no_command() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.lirs"), "1\n2\n1\n3\n1\n").unwrap();
    let all: [(&[&str], i32); 9] = [
        (&["simm"], 2),
        (&["sim", "t.lirs", "--sizes"], 2),
        (&["sim", "missing.csv"], 2),
        (&["guard", "--freeze", "4"], 2),
        (&["sim", "t.lirs", "--policy", "lru", "--size", "2b"], 0),
        (&["trace", "generate", "zipf:blocks=1k", "made.csv", "--requests", "100", "--force"], 0),
        (&["trace", "convert", "t.lirs", "t.csv", "--force"], 0),
        (&["trace", "layout", "t.lirs", "laid.csv", "--force"], 0),
        (&["patterns", "t.lirs", "--profile", "t.aoio"], 2),
    ];
    for (arguments, expected) in all {
        for output in outputs(folder.path(), arguments) {
            assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {output:?}");
        }
    }
    assert!(folder.path().join("t.csv").exists() && folder.path().join("made.csv").exists());
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn stderr_12_programs_are_recorded_and_advised_where_nothing_can_be_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("words"), "some words\n").unwrap();
    let cat = ["sh", "-c", "cat words; exit 7"];
    let modes: [&[&str]; 5] = [
        &["record", "--force", "-o", "words.parquet", "--"],
        &["record", "--force", "--ptrace", "-o", "words.parquet", "--"],
        // The first run is recorded, and later ones are advised or recorded.
        &["advise", "--profile", "words.aoio", "--"],
        &["advise", "--profile", "words.aoio", "--report", "--"],
        &["advise", "--profile", "words.aoio", "--learn", "--"],
    ];
    for mode in modes {
        for output in outputs(folder.path(), &[mode, &cat].concat()) {
            let ran = (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
            assert_eq!(ran, (Some(7), "some words\n".to_owned()), "{mode:?}");
        }
    }
    assert!(folder.path().join("words.parquet").exists() && folder.path().join("words.aoio").exists());
}
