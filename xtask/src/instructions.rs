//! Instructions of hits and of the steps of encoding, counted by valgrind: unlike times, the same on a busy machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::run::{builds, cargo, check};

/// Rounds that are counted.
const ROUNDS: u64 = 30;

/// A program that does one of several things, the same in each round.
struct Example {
    package: &'static str,
    name: &'static str,
    /// Blocks of 4 KiB of a round.
    blocks: u64,
    /// Its arguments, and the most instructions that this may take for a block: a tenth more than it took when it was
    /// measured.
    steps: &'static [(&'static str, u64)],
}

const EXAMPLES: [Example; 2] = [
    // Hits this many at a time, with a rule of read-ahead, a policy, and a curve that samples one in 64 blocks, as in a cache of 128 MiB
    // or more: beside `cargo xtask bench nbd`. Those of the client count, too.
    Example {
        package: "nigh-server",
        name: "hits",
        blocks: 960,
        steps: &[("1", 3_905), ("16", 2_350), ("16,auto", 2_915), ("16,none,auto", 2_710), ("16,none,lirs,64", 2_430)],
    },
    // Beside the microseconds that docs/content.md states.
    Example {
        package: "nigh-content",
        name: "steps",
        blocks: 100,
        steps: &[
            ("hash", 1_650),
            ("signature", 75),
            ("sketch", 18_700),
            ("line-encode", 7_200),
            ("line-decode", 4_700),
            ("lz4-decode", 17_200),
            ("zstd-difference-decode", 41_000),
            ("hit", 39_500),
        ],
    },
];

pub(crate) fn instructions() -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("skipped: instructions: there is no valgrind; cargo xtask install installs it");
        return Ok(());
    }
    println!("{:28} {:>8} {:>8}", "instructions a block", "most", "counted");
    let mut above = Vec::new();
    for Example { package, name, blocks, steps } in EXAMPLES {
        check(&mut cargo(&["build", "--release", "--locked", "--quiet", "-p", package, "--example", name]))?;
        let program = builds().join("release/examples").join(name);
        for (step, most) in steps {
            let added = executed(&program, step, 1 + ROUNDS)? - executed(&program, step, 1)?;
            let counted = added / (blocks * ROUNDS);
            let what = format!("{name} {step}");
            println!("{what:28} {most:8} {counted:8}");
            if counted > *most {
                above.push(what);
            }
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
