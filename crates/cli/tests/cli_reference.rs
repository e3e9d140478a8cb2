//! docs/cli.md is what `--help` says. `cargo xtask docs` writes it again.

use std::path::Path;
use std::process::Command;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["demo"],
    &["sim"],
    &["trace"],
    &["trace", "info"],
    &["trace", "head"],
    &["trace", "convert"],
    &["trace", "generate"],
    &["trace", "formats"],
    &["serve"],
    &["ctl"],
    &["ctl", "hint"],
    &["guard"],
    &["guard", "run"],
    &["guard", "status"],
    &["guard", "restore"],
    &["policies"],
    &["devices"],
    &["devices", "fit"],
    &["completions"],
    &["man"],
];

#[test]
fn the_reference_is_current() {
    let mut text = String::from("# Command line reference\n\nWritten by `cargo xtask docs` from what `--help` says.\n");
    for command in COMMANDS {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(*command).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let name = ["nigh"].iter().chain(*command).copied().collect::<Vec<_>>().join(" ");
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!("\n## {name}\n\n```\n{}\n```\n", lines.join("\n")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/cli.md is not what --help says: run `cargo xtask docs`");
}
