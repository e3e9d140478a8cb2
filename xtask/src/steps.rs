//! The steps of each tier: the one table of steps, which CONTRIBUTING.md shows.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::held::Held;
use crate::report::Report;
use crate::run::{cargo, check};
use crate::{guest, instructions, package, python, suite, tests, tidy};

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Before every push.
    Push,
    /// Before a push that changes its inputs.
    Changed,
    /// Before a release.
    Release,
}

pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// How it is run alone.
    pub(crate) command: &'static str,
    pub(crate) tier: Tier,
    /// Its inputs, as git names them.
    pub(crate) inputs: &'static [&'static str],
    work: fn(&mut Report) -> anyhow::Result<()>,
}

const LOOM: &[&str] = &[
    "Cargo.lock",
    "crates/apply/backend/src/driver.rs",
    "crates/apply/backend/src/lib.rs",
    "crates/apply/backend/src/pool.rs",
    "crates/apply/backend/src/pool",
    "crates/apply/backend/src/signal.rs",
    "crates/apply/backend/src/sync.rs",
    "crates/core/content/src",
    "crates/core/engine/src/arena.rs",
    "crates/core/engine/src/sync.rs",
    "crates/apply/server/src/link",
];

const INSTRUCTIONS: &[&str] = &[
    "Cargo.lock",
    "crates/core/content/examples/steps.rs",
    "crates/core/content/src",
    "crates/core/engine/src",
    "crates/apply/host/src",
    "crates/apply/nbd/src",
    "crates/core/policy/src",
    "crates/apply/server/examples/hits.rs",
    "crates/apply/server/src",
    "crates/apply/service/src",
    "xtask/src/instructions.rs",
];

/// These decide which features other crates have.
const MANIFESTS: &[&str] = &["Cargo.lock", "Cargo.toml", "*/Cargo.toml"];

const ALWAYS: &[&str] = &[];

/// The first step that uses what `cargo xtask install` installs.
const TESTS: &str = "tests";

/// In the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "fmt", command: "cargo fmt --all --check", tier: Tier::Push, inputs: ALWAYS, work: |_| fmt() },
    Step { name: "tidy", command: "cargo xtask tidy", tier: Tier::Push, inputs: ALWAYS, work: |_| tidy::tidy() },
    Step {
        name: "clippy",
        command: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
        tier: Tier::Push,
        inputs: ALWAYS,
        work: |_| clippy(&["--workspace"]),
    },
    Step {
        name: "docs",
        command: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features",
        tier: Tier::Push,
        inputs: ALWAYS,
        work: |_| {
            let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--all-features", "--locked", "--quiet"]);
            check(docs.env("RUSTDOCFLAGS", "-D warnings"))
        },
    },
    Step {
        name: "newcomer",
        command: "cargo check -p nigh",
        tier: Tier::Changed,
        inputs: MANIFESTS,
        // As `cargo install` compiles it: alone, so that no other crate adds features.
        work: |_| check(&mut cargo(&["check", "--locked", "--quiet", "-p", "nigh"])),
    },
    Step {
        name: "build",
        command: "cargo build --workspace --all-features --lib --tests --examples",
        tier: Tier::Push,
        inputs: ALWAYS,
        work: |_| tests::build(),
    },
    Step { name: TESTS, command: "cargo xtask test", tier: Tier::Push, inputs: ALWAYS, work: tests::run },
    Step {
        name: "doc tests",
        command: "cargo test --workspace --all-features --doc",
        tier: Tier::Push,
        inputs: ALWAYS,
        work: tests::documents,
    },
    Step { name: "python", command: "cargo xtask test", tier: Tier::Push, inputs: ALWAYS, work: tests::python },
    Step { name: "models", command: "cargo xtask loom", tier: Tier::Changed, inputs: LOOM, work: |_| suite::loom() },
    Step {
        name: "instructions",
        command: "cargo xtask instructions",
        tier: Tier::Changed,
        inputs: INSTRUCTIONS,
        work: |_| instructions::instructions(),
    },
    Step {
        name: "install",
        command: "cargo install --locked --path crates/cli",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::installed(),
    },
    Step {
        name: "package",
        command: "cargo xtask package --check",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| package::check_package(),
    },
    Step {
        name: "crates",
        command: "cargo xtask crates",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::packages(),
    },
    Step {
        name: "oldest Rust",
        command: "cargo +1.90.0 check --workspace --all-features",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::oldest_rust(),
    },
    Step {
        name: "crates alone",
        command: "cargo clippy -p CRATE",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::alone(),
    },
    Step {
        name: "union",
        command: "cargo xtask union --check",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::union(true),
    },
    Step {
        name: "many seeds",
        command: "NIGH_TESTS=release cargo xtask test",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: tests::many,
    },
    Step {
        name: "whole traces",
        command: "cargo xtask agreement",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::agreement(),
    },
    Step {
        name: "golden",
        command: "cargo xtask golden",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::golden(),
    },
    Step {
        name: "wheels",
        command: "cargo xtask python",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::python(&[]),
    },
    Step {
        name: "simulation",
        command: "cargo xtask vopr --seeds 100000",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::vopr(None, 100_000),
    },
    Step {
        name: "killed levels",
        command: "cargo xtask levels",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::levels(200),
    },
    Step {
        name: "power cuts",
        command: "cargo xtask power",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::power(10_000, 1, "nigh"),
    },
    Step { name: "Miri", command: "cargo xtask miri", tier: Tier::Release, inputs: ALWAYS, work: |_| suite::miri(8) },
    Step {
        name: "guests",
        command: "cargo xtask guard-guest; cargo xtask advise-guest; cargo xtask vhost-guest; cargo xtask ublk-guest; cargo xtask restarts-guest",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| {
            guest::run(guest::Part::Cases)
                .and_then(|()| guest::run(guest::Part::Advise))
                .and_then(|()| guest::vhost::run())
                .and_then(|()| guest::ublk::run())
                .and_then(|()| guest::restarts::run(5))
        },
    },
    Step {
        name: "fuzzing",
        command: "cargo xtask fuzz",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| crate::fuzz::fuzz(20, None),
    },
    Step {
        name: "soak",
        command: "cargo xtask soak",
        tier: Tier::Release,
        inputs: ALWAYS,
        work: |_| suite::soak(1.0, 1),
    },
];

fn fmt() -> anyhow::Result<()> {
    check(&mut cargo(&["fmt", "--all", "--check"]))
}

/// All targets of these packages, with all features.
fn clippy(packages: &[&str]) -> anyhow::Result<()> {
    let mut clippy = cargo(&["clippy", "--all-targets", "--all-features", "--locked", "--quiet"]);
    check(clippy.args(packages).args(["--", "-D", "warnings"]))
}

/// Runs the steps up to `tier`, to the first that fails, and prints how long each took. With `install`, does what
/// `cargo xtask install` does before the tests.
pub(crate) fn run(tier: Tier, install: bool, within: Option<Duration>) -> anyhow::Result<()> {
    let begin = Instant::now();
    let (mut report, mut held) = (Report::default(), Held::read()?);
    let (mut times, mut failed, mut of_changed) = (Vec::new(), None, Duration::ZERO);
    // Downloads go on while others compile. If the environment cannot be made, the step that needs it reports that.
    let mut installing = install.then(|| std::thread::spawn(suite::install));
    std::thread::spawn(python::environment);
    for step in STEPS.iter().filter(|step| step.tier <= tier) {
        let changed = step.tier == Tier::Changed;
        if changed && tier < Tier::Release && held.holds(step.name, step.inputs)? {
            times.push((step.name, None));
            continue;
        }
        if step.name == TESTS
            && let Some(installing) = installing.take()
        {
            let start = Instant::now();
            if let Err(error) = installing.join().unwrap_or_else(|_| bail!("it panicked")) {
                eprintln!("xtask: install: {error:#}: tests that need what is missing report themselves skipped");
            }
            times.push(("install, after what was done meanwhile", Some(start.elapsed())));
        }
        eprintln!("xtask: {} ...", step.name);
        let start = Instant::now();
        let done = (step.work)(&mut report);
        let took = start.elapsed();
        times.push((step.name, Some(took)));
        of_changed += if changed { took } else { Duration::ZERO };
        match done {
            Ok(()) if changed => held.note(step.name, step.inputs)?,
            Ok(()) => {}
            Err(error) => {
                failed = Some(error.context(step.name));
                break;
            }
        }
    }
    println!("{:>7}  step", "seconds");
    for (name, time) in &times {
        match time {
            Some(time) => println!("{:>7.1}  {name}", time.as_secs_f64()),
            None => println!("{:>7}  {name}: its inputs are those with which it held last", "-"),
        }
    }
    let all = begin.elapsed();
    println!("{:>7.1}  all", all.as_secs_f64());
    report.print_slowest(10);
    report.print();
    if let Some(error) = failed {
        return Err(error);
    }
    report.result()?;
    match within {
        Some(most) if all - of_changed > most => {
            bail!("all steps hold, but in {} s, not within {} s", (all - of_changed).as_secs(), most.as_secs())
        }
        _ => Ok(()),
    }
}

/// Runs the quick steps, of these packages only.
pub(crate) fn quick(since: Option<&str>) -> anyhow::Result<()> {
    let begin = Instant::now();
    fmt()?;
    tidy::tidy()?;
    let changed = suite::changed(since)?;
    if changed.is_empty() {
        println!("no crate differs");
        return Ok(());
    }
    println!("{}", changed.join(", "));
    let packages: Vec<&str> = changed.iter().flat_map(|name| ["--package", name]).collect();
    clippy(&packages)?;
    let mut report = Report::default();
    tests::run_of(&packages, &mut report)?;
    report.print_slowest(3);
    report.print();
    println!("{:.0} s", begin.elapsed().as_secs_f64());
    report.result()
}

/// Prints the steps of each tier, and every test by name.
pub(crate) fn list() -> anyhow::Result<()> {
    for step in STEPS {
        println!("{:?}: {}: {}", step.tier, step.name, step.command);
    }
    tests::list()
}

#[cfg(test)]
mod shown {
    use super::*;

    /// `UPDATE=1` writes it again.
    #[test]
    fn contributing_shows_the_table() {
        let when = |step: &Step| match step.tier {
            Tier::Push => "every push".to_owned(),
            Tier::Changed => format!("a push that changes {}", step.inputs.join(", ")),
            Tier::Release => "a release".to_owned(),
        };
        let rows = STEPS.iter().map(|step| format!("| {} | `{}` | {} |\n", step.name, step.command, when(step)));
        let table = format!("| step | command | before |\n|---|---|---|\n{}", rows.collect::<String>());
        let path = crate::run::root().join("CONTRIBUTING.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let begin = text.find("| step | command | before |\n").expect("a table of steps");
        let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end + 1);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, format!("{}{table}{}", &text[..begin], &text[end..])).unwrap();
        } else {
            assert_eq!(text[begin..end], table, "UPDATE=1 cargo test -p xtask writes it");
        }
    }
}
