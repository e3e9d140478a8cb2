//! The binary as people and scripts call it. Not every test needs all of it.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) fn nigh(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The standard output of a command that succeeded.
pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn printed(arguments: &[&str]) -> String {
    stdout(&nigh(arguments))
}

/// The output of a command with `--json`.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat())).unwrap()
}

/// The one line that a rejected command prints.
pub(crate) fn refused(arguments: &[&str]) -> String {
    refusal(&nigh(arguments))
}

pub(crate) fn refusal(output: &Output) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.starts_with("nigh: ") && line.ends_with('\n'), "{line}");
    line
}
