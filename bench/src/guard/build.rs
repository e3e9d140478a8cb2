//! A real build, `make -j` in half the memory that it needs, beside a program that someone uses: how long the build takes,
//! and how long the other program waits for memory and I/O (PSI).
//!
//! The build is of zstd's library, in the sources that Cargo has fetched for a crate that nigh depends on.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::pair::Guard;
use super::rig::{LIMIT_MOST_MIB, Rig, folder};
use crate::measure::{self, load, median};

const JOBS: usize = 4;
/// The program that is used: its memory, of which it touches a part twenty times a second.
const USED_MIB: u64 = 32;
/// No build is longer.
const LONGEST: Duration = Duration::from_secs(400);
/// Pressure is accounted by cgroup v2, also where memory is limited by v1.
const PRESSURE: &str = "/sys/fs/cgroup/unified/nigh-bench";

const MODES: [(&str, Option<&[&str]>); 4] = [
    ("none", None),
    ("guard", Some(&[])),
    ("dissertation", Some(&["--profile", "dissertation"])),
    ("guard --freeze 3", Some(&["--freeze", "3"])),
];

/// One build beside the program.
struct Outcome {
    build_s: f64,
    /// Time that the program waited for memory and for I/O.
    stalled_s: [f64; 2],
    /// Its steps, in ms.
    steps_ms: Vec<f64>,
}

/// A missing requirement, if there is any.
pub(crate) fn missing() -> Option<String> {
    let pressure = Path::new(PRESSURE).with_file_name("memory.pressure");
    if !pressure.exists() {
        return Some(format!("there is no {}", pressure.display()));
    }
    if ["make", "cc"].iter().any(|tool| Command::new(tool).arg("--version").output().is_err()) {
        return Some("make or cc is not installed".into());
    }
    sources().is_none().then(|| "Cargo has not fetched zstd's sources".into())
}

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    let needed_mib = {
        let rig = Rig::new(LIMIT_MOST_MIB)?;
        let (mut build, start) = (start_build(&rig)?, Instant::now());
        let status = build.0.wait()?;
        ensure!(status.success(), "the build alone failed: {status}");
        let peak: u64 = read_number(&folder("memory", "build0/memory.max_usage_in_bytes"))?;
        println!(
            "build: make -j{JOBS} of zstd alone took {:.1} s and {} MiB; {rounds} rounds; load {}",
            start.elapsed().as_secs_f64(),
            peak >> 20,
            load()
        );
        peak >> 20
    };
    let limit_mib = needed_mib / 2 + USED_MIB;
    println!("in {limit_mib} MiB with a program that touches 1 of its {USED_MIB} MiB twenty times a second");
    let mut runs: Vec<Vec<Outcome>> = MODES.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((name, guard), runs) in MODES.iter().zip(&mut runs) {
            let run = once(limit_mib, *guard)?;
            let [memory_s, io_s] = run.stalled_s;
            println!("  {name}: {:.1} s, stalled {memory_s:.2} + {io_s:.2} s; load {}", run.build_s, load());
            runs.push(run);
        }
    }
    println!(
        "{:17} {:>8} {:>8} {:>8} {:>12} {:>12} {:>9} {:>10} {:>10}",
        "seconds", "min", "median", "max", "memory PSI", "I/O PSI", "to none", "step ms", "99 % ms"
    );
    let of = |runs: &[Outcome], value: fn(&Outcome) -> f64| median(&mut runs.iter().map(value).collect::<Vec<_>>());
    let stalled = |run: &Outcome| run.stalled_s[0] + run.stalled_s[1];
    let base = of(&runs[0], stalled);
    for ((name, _), runs) in MODES.iter().zip(&runs) {
        let seconds = runs.iter().map(|run| run.build_s);
        let (least, most) = seconds.fold((f64::MAX, f64::MIN), |(least, most), one| (one.min(least), one.max(most)));
        let mut steps: Vec<f64> = runs.iter().flat_map(|run| run.steps_ms.iter().copied()).collect();
        let middle = median(&mut steps);
        let late = steps[steps.len() * 99 / 100];
        println!(
            "{name:17} {least:>8.1} {:>8.1} {most:>8.1} {:>12.2} {:>12.2} {:>9.2} {middle:>10.1} {late:>10.1}",
            of(runs, |run| run.build_s),
            of(runs, |run| run.stalled_s[0]),
            of(runs, |run| run.stalled_s[1]),
            of(runs, stalled) / base
        );
    }
    Ok(())
}

fn once(limit_mib: u64, guard: Option<&[&str]>) -> anyhow::Result<Outcome> {
    let rig = Rig::new(limit_mib)?;
    let pressure = Pressure::new()?;
    let guard = guard.map(|more| Guard::start(rig.outside(&measure::nigh()?), more)).transpose()?;
    rig.group("used1")?;
    let enter = format!("echo $$ >{PRESSURE}/cgroup.procs; exec \"$0\" \"$@\"");
    let mut used = rig.command("used1", Path::new("/bin/sh"));
    used.args(["-c", &enter]).arg(std::env::current_exe()?);
    used.args(["guard", "worker", "used", &USED_MIB.to_string(), "0", "0"]).stdout(Stdio::piped());
    let mut used = Killed(used.spawn()?);
    let lines = BufReader::new(used.0.stdout.take().context("it is piped")?).lines();
    let (told, steps) = channel();
    std::thread::spawn(move || {
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.parse::<f64>().ok());
        // Steps after the end of the bench interest nobody.
        numbers.for_each(|ms| _ = told.send(ms));
    });
    // Its memory is whole.
    rig.pause(Duration::from_secs(2))?;
    steps.try_iter().for_each(drop);
    let before = pressure.stalled_s()?;
    let (mut build, start) = (start_build(&rig)?, Instant::now());
    let status = loop {
        rig.pause(Duration::from_millis(50))?;
        ensure!(start.elapsed() < LONGEST, "not done after {} s", LONGEST.as_secs());
        if let Some(status) = build.0.try_wait()? {
            break status;
        }
    };
    let build_s = start.elapsed().as_secs_f64();
    ensure!(status.success(), "the build failed: {status}");
    let after = pressure.stalled_s()?;
    let steps_ms = steps.try_iter().collect::<Vec<f64>>();
    ensure!(!steps_ms.is_empty(), "the program did not get on");
    drop(guard);
    Ok(Outcome { build_s, stalled_s: [0, 1].map(|at| after[at] - before[at]), steps_ms })
}

/// A process that ends when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group in which pressure is accounted; gone when dropped, once its process has ended.
struct Pressure;

impl Pressure {
    fn new() -> anyhow::Result<Pressure> {
        fs::create_dir_all(PRESSURE).context(PRESSURE)?;
        Ok(Pressure)
    }

    fn stalled_s(&self) -> anyhow::Result<[f64; 2]> {
        let total_s = |name: &str| {
            let text = fs::read_to_string(Path::new(PRESSURE).join(name))?;
            let total = text.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total=")?.1.parse().ok());
            total.map(|us: u64| us as f64 / 1e6).context("a line 'some' with a total")
        };
        Ok([total_s("memory.pressure")?, total_s("io.pressure")?])
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        // A process that was killed just now may still be in it.
        for _ in 0..50 {
            if fs::remove_dir(PRESSURE).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{PRESSURE} is left");
    }
}

/// A whole build in its group, from nothing.
fn start_build(rig: &Rig) -> anyhow::Result<Killed> {
    let output = measure::folder()?.join("build");
    let _ = fs::remove_dir_all(&output);
    fs::create_dir_all(&output)?;
    let sources = sources().context("Cargo has fetched zstd's sources")?;
    let mut rules = String::from("all:\n");
    for part in ["common", "compress", "decompress", "dictBuilder", "legacy"] {
        let Ok(entries) = fs::read_dir(sources.join(part)) else { continue };
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
        files.sort();
        for file in files {
            let name = format!("{part}-{}.o", file.file_stem().unwrap_or_default().display());
            let (from, include) = (file.display(), sources.display());
            writeln!(
                rules,
                "all: {name}\n{name}:\n\tcc -O3 -g -c -DZSTD_LEGACY_SUPPORT=1 -I{include} -I{include}/common -o {name} {from}"
            )?;
        }
    }
    fs::write(output.join("Makefile"), rules)?;
    rig.group("build0")?;
    let mut make = rig.command("build0", Path::new("make"));
    make.args([&format!("-j{JOBS}"), "-s", "-C"]).arg(&output).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Killed(make.spawn()?))
}

/// Zstd's library, in Cargo's folder of sources.
fn sources() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(cargo.join("registry/src")).ok()?.flatten();
    let crates =
        registries.filter_map(|registry| fs::read_dir(registry.path()).ok()).flat_map(|crates| crates.flatten());
    let ours = crates.filter(|entry| entry.file_name().to_string_lossy().starts_with("zstd-sys-"));
    let mut libraries: Vec<PathBuf> =
        ours.map(|entry| entry.path().join("zstd/lib")).filter(|path| path.is_dir()).collect();
    libraries.sort();
    libraries.pop()
}

fn read_number(file: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    text.trim().parse().with_context(|| file.display().to_string())
}
