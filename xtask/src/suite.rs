//! Checks that are a command each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::{Context, ensure};

use crate::python;
use crate::report::Report;
use crate::run::{builds, cargo, check, in_root, root};
use crate::tidy::needs;

/// Debian packages that black box tests and checks of pages use.
const PACKAGES: &[&str] = &[
    "chromium",
    "e2fsprogs",
    "fio",
    "g++",
    "iproute2",
    "libnbd-bin",
    "libsqlite3-dev",
    "make",
    "mount",
    "nbdkit",
    "pkg-config",
    "postgresql",
    "prometheus",
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

/// Writes crates/common/union.
const HAKARI: &str = "cargo-hakari@0.9.39";

/// The workspace compiles with the `rust-version` that it states.
pub(crate) fn oldest_rust() -> anyhow::Result<()> {
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
pub(crate) fn installed() -> anyhow::Result<()> {
    let folder = builds().join("installed");
    let mut install = cargo(&["install", "--locked", "--path", "crates/cli", "--debug", "--quiet"]);
    check(install.arg("--root").arg(&folder).arg("--target-dir").arg(builds()))?;
    ["nigh", "nigh-guard"].iter().try_for_each(|program| {
        check(Command::new(folder.join("bin").join(program)).arg("--version").stdout(Stdio::null()))
    })
}

/// Installs the programs that black box tests drive: packages of the system, and one beside what is built here.
pub(crate) fn install() -> anyhow::Result<()> {
    check(Command::new("apt-get").arg("update").arg("-qq"))?;
    let mut install = Command::new("apt-get");
    check(install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(PACKAGES).stdout(Stdio::null()))?;
    tool(FSX)
}

/// Installs a program of the registry beside what is built here.
pub(crate) fn tool(name: &str) -> anyhow::Result<()> {
    let tools = builds().join("tools");
    check(cargo(&["install", name, "--locked", "--debug", "--quiet", "--root"]).arg(&tools))
}

/// Packages of the crates that programs with a cache inside need, as they would be published: each compiles from what is in its package.
pub(crate) fn packages() -> anyhow::Result<()> {
    // Cargo keeps packages by the path of this folder and their versions: in the same one, it would compile those of an earlier run.
    let folder = builds().join(format!("crates-{}", UNIX_EPOCH.elapsed()?.as_secs()));
    let mut package = cargo(&["package", "--locked", "--quiet"]);
    package.arg("--target-dir").arg(&folder);
    for name in &needs("nigh-host") | &needs("nigh-keyed") {
        package.args(["-p", name]);
    }
    let packaged = check(&mut package);
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    packaged
}

/// The features of other crates, chosen once for the workspace (crates/common/union).
pub(crate) fn union(only_check: bool) -> anyhow::Result<()> {
    tool(HAKARI)?;
    let task: &[_] = if only_check { &["generate", "--diff"] } else { &["generate"] };
    check(in_root(builds().join("tools/bin/cargo-hakari")).arg("hakari").args(task))
}

/// Each crate alone, as programs use it: no other crate of the workspace adds features.
pub(crate) fn alone() -> anyhow::Result<()> {
    for (name, _) in crates()? {
        check(cargo(&["clippy", "--locked", "--quiet", "--package", &name]).args(["--", "-D", "warnings"]))?;
    }
    check(embed("clippy").args(["--", "-D", "warnings"]))
}

/// A command of cargo for the bench that is a workspace of its own.
fn embed(command: &str) -> Command {
    let mut cargo = cargo(&[command, "--release", "--locked", "--quiet", "--manifest-path", "bench/embed/Cargo.toml"]);
    cargo.env("CARGO_TARGET_DIR", builds());
    cargo
}

/// The crates of the workspace and their folders, deepest first.
fn crates() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let output = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata: packages")?;
    let about = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some((package["name"].as_str()?.to_owned(), manifest.parent()?.to_owned()))
    };
    let mut crates: Vec<_> = packages.iter().filter_map(about).collect();
    crates.sort_by_key(|(_, folder)| std::cmp::Reverse(folder.components().count()));
    Ok(crates)
}

/// The crates with files that differ from `since`, or from where this branch left `origin/main`, and those that are not
/// committed.
pub(crate) fn changed(since: Option<&str>) -> anyhow::Result<Vec<String>> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root()).output().context("starting git")?;
        ensure!(output.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let base = match since {
        Some(since) => git(&["rev-parse", "--verify", since])?,
        None => git(&["merge-base", "HEAD", "origin/main"]).or_else(|_| git(&["rev-parse", "HEAD"]))?,
    };
    let files = git(&["diff", "--name-only", base.trim()])? + &git(&["ls-files", "--others", "--exclude-standard"])?;
    let crates = crates()?;
    let of = |file: &str| crates.iter().find(|(_, folder)| root().join(file).starts_with(folder));
    let changed: BTreeSet<String> = files.lines().filter_map(of).map(|(name, _)| name.clone()).collect();
    Ok(changed.into_iter().collect())
}

pub(crate) fn python(bench: &[String]) -> anyhow::Result<()> {
    if let [bench, options @ ..] = bench {
        return python::bench(bench, options);
    }
    // The tests run it, and an old one would answer for it.
    check(&mut cargo(&["build", "--locked", "--quiet", "-p", "nigh"]))?;
    let mut report = Report::default();
    python::test(true, &mut report)?;
    report.print();
    report.result()?;
    python::distribution()
}

pub(crate) fn golden() -> anyhow::Result<()> {
    check(&mut cargo(&["test", "--release", "--locked", "-p", "nigh", "--test", "it", "golden::", "--", "--nocapture"]))
}

pub(crate) fn agreement() -> anyhow::Result<()> {
    let mut compare =
        cargo(&["test", "--release", "--locked", "-p", "nigh", "--test", "it", "agreement::", "--", "--nocapture"]);
    check(compare.env("NIGH_AGREEMENT", "whole"))
}

pub(crate) fn bench(args: &[String]) -> anyhow::Result<()> {
    match args {
        [name, options @ ..] if name == "embed" => return check(embed("run").arg("--").args(options)),
        [name, options @ ..] if name == "rivals" => return python::bench(name, options),
        [] => println!(
            "embed: caches inside a program, beside quick_cache, foyer, moka and lru (bench/embed); rivals: hit ratios beside libCacheSim \
             (crates/choose/python/benches/rivals.py). Others:"
        ),
        _ => {}
    }
    check(&mut cargo(&["build", "--release", "--locked", "-p", "nigh"]))?;
    check(cargo(&["run", "--release", "--locked", "--quiet", "-p", "nigh-bench", "--"]).args(args))
}

pub(crate) fn soak(hours: f64, seed: u64) -> anyhow::Result<()> {
    bench(&["soak".into(), format!("--hours={hours}"), format!("--seed={seed}")])
}

pub(crate) fn vopr(seed: Option<u64>, seeds: u64) -> anyhow::Result<()> {
    let seed = seed.map_or_else(|| UNIX_EPOCH.elapsed().map(|since| since.as_secs()), Ok)?;
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
    let mut test =
        cargo(&["test", "--locked", "--quiet", "-p", "nigh", "--test", "it", "levels::", "--", "--nocapture"]);
    check(test.env("NIGH_KILLS", kills.to_string()))
}

pub(crate) fn power(cuts: u32, seed: u64, server: &str) -> anyhow::Result<()> {
    let mut test = cargo(&["test", "--locked", "--quiet", "-p", "nigh", "--test", "it"]);
    test.args(["power::no_promise_is_broken_by_a_power_cut", "--", "--nocapture"]);
    check(test.env("NIGH_CUTS", cuts.to_string()).env("NIGH_SEED", seed.to_string()).env("NIGH_SERVER", server))
}

pub(crate) fn docs() -> anyhow::Result<()> {
    for tests in [["--test", "it", "cli_reference::"], ["--bin", "nigh", "the_documentation_names_every_key"]] {
        let test = [&["test", "--locked", "--quiet", "-p", "nigh"], &tests[..]].concat();
        check(cargo(&test).env("UPDATE", "1"))?;
    }
    Ok(())
}
