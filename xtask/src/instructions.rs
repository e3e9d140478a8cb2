//! Instructions of the steps of encoding, counted by valgrind: unlike times, the same on a busy machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::run::{builds, cargo, check};

/// Blocks of a round of the example `steps`.
const BLOCKS: u64 = 100;
/// Rounds that are counted.
const ROUNDS: u64 = 10;

/// Steps of the example, and the most instructions that one may take for a block of 4 KiB: a tenth more than it took when it
/// was measured, beside the microseconds that docs/content.md states.
const STEPS: [(&str, u64); 8] = [
    ("hash", 1_650),
    ("signature", 75),
    ("sketch", 18_700),
    ("line-encode", 7_200),
    ("line-decode", 4_700),
    ("lz4-decode", 17_200),
    ("zstd-difference-decode", 41_000),
    ("hit", 39_500),
];

pub(crate) fn instructions() -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("skipped: instructions: there is no valgrind; cargo xtask install installs it");
        return Ok(());
    }
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", "nigh-content", "--example", "steps"]))?;
    let program = builds().join("release/examples/steps");
    println!("{:24} {:>8} {:>8}", "instructions a block", "most", "counted");
    let mut above = Vec::new();
    for (step, most) in STEPS {
        let added = executed(&program, step, 1 + ROUNDS)? - executed(&program, step, 1)?;
        let counted = added / (BLOCKS * ROUNDS);
        println!("{step:24} {most:8} {counted:8}");
        if counted > most {
            above.push(step);
        }
    }
    ensure!(above.is_empty(), "more instructions than allowed: {}", above.join(", "));
    Ok(())
}

/// Instructions of a run of the example.
fn executed(program: &Path, step: &str, rounds: u64) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = valgrind.arg(program).args([step, &rounds.to_string()]).output().context("valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{step}: {}: {said}", output.status);
    let counted =
        said.lines().find_map(|line| line.split_once("refs:")).map(|(_, count)| count.trim().replace(',', ""));
    counted.and_then(|count| count.parse().ok()).with_context(|| format!("{step}: valgrind counted nothing: {said}"))
}
