//! The tests and checks, as CI runs them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::package::{self, CARGO_DEB};
use crate::run::{builds, cargo, check, count, root};
use crate::{instructions, python, tidy};

/// Debian packages that black box tests and checks of pages use.
const PACKAGES: &[&str] = &[
    "chromium",
    "e2fsprogs",
    "fio",
    "iproute2",
    "libnbd-bin",
    "make",
    "mount",
    "nbdkit",
    "postgresql",
    "python3-libnbd",
    "python3-venv",
    "qemu-system-x86",
    "qemu-utils",
    "sqlite3",
    "strace",
    "util-linux",
    "valgrind",
];

/// The file system exerciser, and where tests look for it: in `tools` of the folder of builds.
const FSX: &str = "fsx@0.3.2";

pub(crate) fn ci() -> anyhow::Result<()> {
    step("fmt", || check(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("tidy", tidy::tidy)?;
    step("clippy", || {
        check(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]))
    })?;
    step("features", || {
        // Alone, so that no other crate of the workspace adds features.
        for package in ["nigh", "nigh-advise", "nigh-trace", "nigh-control", "nigh-host"] {
            let mut clippy = cargo(&["clippy", "--package", package, "--no-default-features", "--locked", "--quiet"]);
            check(clippy.args(["--", "-D", "warnings"]))?;
        }
        Ok(())
    })?;
    step("docs", || {
        let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        check(docs.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("tests", || test(false))?;
    step("models", loom)?;
    step("instructions", instructions::instructions)?;
    step("install", installed)?;
    step("package", package::check_package)?;
    step("oldest Rust", oldest_rust)
}

/// The workspace compiles with the `rust-version` that it states.
fn oldest_rust() -> anyhow::Result<()> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.context("Cargo.toml has no rust-version")?.trim_matches('"');
    let toolchain = format!("{version}.0");
    let mut known = Command::new("rustup");
    known.args(["run", &toolchain, "rustc", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !known.status().is_ok_and(|status| status.success()) {
        println!("skipped: oldest Rust: rustup toolchain install {toolchain} --profile minimal installs it");
        return Ok(());
    }
    let mut oldest = Command::new("rustup");
    oldest.args(["run", &toolchain, "cargo", "check", "--workspace", "--locked", "--quiet"]).current_dir(root());
    // Cargo runs itself by this variable, and would be the wrong one.
    oldest.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    check(oldest.arg("--target-dir").arg(builds().join("oldest-rust")))
}

/// The first command of every tutorial.
fn installed() -> anyhow::Result<()> {
    let folder = builds().join("installed");
    let mut install = cargo(&["install", "--locked", "--path", "crates/cli", "--debug", "--quiet"]);
    check(install.arg("--root").arg(&folder).arg("--target-dir").arg(builds()))?;
    ["nigh", "nigh-guard"].iter().try_for_each(|program| {
        check(Command::new(folder.join("bin").join(program)).arg("--version").stdout(Stdio::null()))
    })
}

fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let start = Instant::now();
    eprintln!("xtask: {name} ...");
    work().with_context(|| name.to_owned())?;
    eprintln!("xtask: {name} holds ({:.0} s)", start.elapsed().as_secs_f64());
    Ok(())
}

/// Installs the programs that black box tests drive: packages of the system, and one beside what is built here.
pub(crate) fn install() -> anyhow::Result<()> {
    check(Command::new("apt-get").arg("update").arg("-qq"))?;
    let mut install = Command::new("apt-get");
    check(install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(PACKAGES).stdout(Stdio::null()))?;
    let tools = builds().join("tools");
    [FSX, CARGO_DEB]
        .iter()
        .try_for_each(|tool| check(cargo(&["install", tool, "--locked", "--debug", "--quiet", "--root"]).arg(&tools)))
}

/// Runs all tests and lists at the end which were skipped: a test that cannot run prints `skipped: NAME: REASON`.
pub(crate) fn test(install: bool) -> anyhow::Result<()> {
    if install {
        self::install()?;
    }
    let mut tests = cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"]);
    let mut running = tests.stdout(Stdio::piped()).spawn().context("starting cargo test")?;
    let output = running.stdout.take().expect("it is piped");
    let mut skipped = BTreeSet::new();
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(output).lines() {
        let line = line?;
        if let Some(test) = line.trim().strip_prefix("skipped: ") {
            skipped.insert(test.to_owned());
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += count(counts, " passed");
            failed += count(counts, " failed");
        }
        // What passing tests print is of interest only when it says that they were skipped.
        if !line.starts_with("test ") || !line.ends_with("... ok") {
            println!("{line}");
        }
    }
    let status = running.wait()?;
    let of_python = python::test(false).context("the Python package");
    if let Ok(of_python) = &of_python {
        passed += of_python.passed;
        failed += of_python.failed;
        skipped.extend(of_python.skipped.iter().cloned());
    }
    for test in &skipped {
        println!("skipped: {test}");
    }
    println!("{passed} passed, {failed} failed, {} skipped", skipped.len());
    ensure!(status.success(), "cargo test: {status}");
    let of_python = of_python?;
    ensure!(of_python.failed == 0, "pytest: {} failed", of_python.failed);
    Ok(())
}

pub(crate) fn python(bench: &[String]) -> anyhow::Result<()> {
    if let [bench, options @ ..] = bench {
        return python::bench(bench, options);
    }
    // The tests run it, and an old one would answer for it.
    check(&mut cargo(&["build", "--locked", "--quiet", "-p", "nigh"]))?;
    let tested = python::test(true)?;
    tested.skipped.iter().for_each(|test| println!("skipped: {test}"));
    ensure!(tested.failed == 0, "pytest: {} failed", tested.failed);
    python::distribution()
}

pub(crate) fn golden() -> anyhow::Result<()> {
    check(&mut cargo(&["test", "--release", "--locked", "-p", "nigh", "--test", "golden", "--", "--nocapture"]))
}

pub(crate) fn agreement() -> anyhow::Result<()> {
    let mut compare =
        cargo(&["test", "--release", "--locked", "-p", "nigh", "--test", "agreement", "--", "--nocapture"]);
    check(compare.env("NIGH_AGREEMENT", "whole"))
}

pub(crate) fn bench(args: &[String]) -> anyhow::Result<()> {
    check(&mut cargo(&["build", "--release", "--locked", "-p", "nigh"]))?;
    check(cargo(&["run", "--release", "--locked", "--quiet", "-p", "nigh-bench", "--"]).args(args))
}

pub(crate) fn vopr(seed: u64, seeds: u64) -> anyhow::Result<()> {
    let mut simulate =
        cargo(&["run", "--release", "--locked", "--quiet", "-p", "nigh-engine", "--example", "vopr", "--"]);
    check(simulate.args(["--seed", &seed.to_string(), "--seeds", &seeds.to_string()]))
}

/// Needs a nightly compiler: Miri is not in a stable one.
pub(crate) fn miri(seeds: u32) -> anyhow::Result<()> {
    let mut test = Command::new("rustup");
    test.args(["run", "nightly", "cargo", "miri", "test", "--package", "nigh-engine", "--test", "threads"]);
    test.current_dir(root()).env("CARGO_TARGET_DIR", builds().join("miri"));
    // The clock is real, because waits have limits; each seed is another order of the threads' steps.
    test.env("MIRIFLAGS", format!("-Zmiri-disable-isolation -Zmiri-many-seeds=0..{seeds}"));
    check(&mut test).context("Miri is installed by `rustup toolchain install nightly --component miri,rust-src`")
}

/// Models are tests that are compiled with `--cfg loom` only, in modules of the name `models`.
pub(crate) fn loom() -> anyhow::Result<()> {
    let mut test = cargo(&["test", "--locked", "--quiet", "--lib"]);
    test.args(["-p", "nigh-content", "-p", "nigh-engine", "-p", "nigh-backend", "-p", "nigh-server", "models::"]);
    check(test.env("CARGO_TARGET_DIR", builds().join("loom")).env("RUSTFLAGS", "--cfg loom"))
}

pub(crate) fn levels(kills: u32) -> anyhow::Result<()> {
    let mut test = cargo(&["test", "--locked", "--quiet", "-p", "nigh", "--test", "levels", "--", "--nocapture"]);
    check(test.env("NIGH_KILLS", kills.to_string()))
}

pub(crate) fn power(cuts: u32, seed: u64, server: &str) -> anyhow::Result<()> {
    let mut test = cargo(&["test", "--locked", "--quiet", "-p", "nigh", "--test", "power"]);
    test.args(["no_promise_is_broken_by_a_power_cut", "--", "--nocapture"]);
    check(test.env("NIGH_CUTS", cuts.to_string()).env("NIGH_SEED", seed.to_string()).env("NIGH_SERVER", server))
}

pub(crate) fn docs() -> anyhow::Result<()> {
    check(cargo(&["test", "--locked", "--quiet", "-p", "nigh", "--test", "cli_reference"]).env("UPDATE", "1"))
}
