//! Programs in one limit, from their start to their end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::rig::{Rig, folder};
use super::worker::ROUNDS;
use crate::measure::{self, load, median};

/// Programs: what each is, its MiB and its touches; they start together in a limit.
pub(crate) struct Together {
    pub(crate) name: &'static str,
    pub(super) programs: &'static [(&'static str, usize, u64)],
    pub(super) limit_mib: u64,
    /// Times that each touch goes over its page.
    pub(super) rounds: usize,
}

/// Working sets that exceed the limit by about 40 %, as in section 4.3, and a pair that fits. `grows` has a program that
/// grows over half of its run. The programs of `gz-vx-long` compute for about as long as those of the dissertation, minutes,
/// beside which it takes little to read back what was swapped out.
pub(crate) const ALL: &[Together] = &[
    Together { name: "gz-vx", programs: &[("gz", 131, 500_000), ("vx", 94, 500_000)], limit_mib: 160, rounds: ROUNDS },
    Together {
        name: "gz-vx-long",
        programs: &[("gz", 131, 5_000_000), ("vx", 94, 5_000_000)],
        limit_mib: 160,
        rounds: ROUNDS,
    },
    Together { name: "gz-gz", programs: &[("gz", 114, 500_000), ("gz", 110, 500_000)], limit_mib: 160, rounds: ROUNDS },
    Together { name: "vx-cc", programs: &[("vx", 112, 500_000), ("cc", 112, 500_000)], limit_mib: 160, rounds: ROUNDS },
    Together {
        name: "three",
        programs: &[("gz", 84, 330_000), ("vx", 70, 330_000), ("gz", 72, 330_000)],
        limit_mib: 160,
        rounds: ROUNDS,
    },
    Together {
        name: "four",
        programs: &[("gz", 64, 250_000), ("vx", 56, 250_000), ("gz", 56, 250_000), ("vx", 48, 250_000)],
        limit_mib: 160,
        rounds: ROUNDS,
    },
    Together {
        name: "grows",
        programs: &[("slow", 131, 500_000), ("vx", 94, 500_000)],
        limit_mib: 160,
        rounds: ROUNDS,
    },
    Together {
        name: "fitting",
        programs: &[("gz", 70, 1_000_000), ("vx", 60, 1_000_000)],
        limit_mib: 160,
        rounds: ROUNDS,
    },
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// With enough memory for all: section 4.5.2's ideal times.
    Ideal,
    None,
    Stop,
    Guard,
    Dissertation,
    GuardFreeze,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Ideal => "ideal",
            Mode::None => "none",
            Mode::Stop => "SIGSTOP 5 s",
            Mode::Guard => "guard",
            Mode::Dissertation => "dissertation",
            Mode::GuardFreeze => "guard --freeze 3",
        }
    }

    /// The arguments of the guard; none without one.
    fn guard(self) -> Option<&'static [&'static str]> {
        match self {
            Mode::Ideal | Mode::None | Mode::Stop => None,
            Mode::Guard => Some(&[]),
            Mode::Dissertation => Some(&["--profile", "dissertation"]),
            Mode::GuardFreeze => Some(&["--freeze", "3"]),
        }
    }
}

/// One run: by program, and of all.
#[derive(Clone, Default)]
pub(super) struct Outcome {
    faults: Vec<u64>,
    seconds: Vec<f64>,
    cpu_s: Vec<f64>,
    /// Touches of all in the 15 seconds from the onset of thrashing; none if it did not set in.
    work: Option<u64>,
    /// The guard's status at the end.
    pub(super) status: Option<Value>,
}

impl Outcome {
    pub(super) fn total_s(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

/// Seconds from the onset on in which useful work is counted.
const WORK_S: f64 = 15.0;
/// No run is longer.
const LONGEST: Duration = Duration::from_secs(400);
/// Major faults a second of two programs that mean thrashing, as PF_High.
const PF_HIGH: u64 = 10;
/// Memory beyond the working sets that is enough for everything else of the programs.
const MORE_MIB: u64 = 32;

pub(crate) fn compare(together: &Together, only: &[String], rounds: usize) -> anyhow::Result<()> {
    let fits = together.name == "fitting";
    let mut modes = vec![Mode::Ideal, Mode::None, Mode::Stop, Mode::Guard, Mode::Dissertation, Mode::GuardFreeze];
    // Unprotected, it takes half an hour.
    modes.retain(|mode| together.name != "gz-vx-long" || *mode != Mode::None);
    modes.retain(|mode| !fits || ![Mode::Stop, Mode::GuardFreeze].contains(mode));
    modes.retain(|mode| only.is_empty() || only.iter().any(|only| only == mode.name()));
    ensure!(!modes.is_empty(), "there is no such mode");
    let programs = together.programs.iter();
    let described: Vec<String> =
        programs.map(|(kind, mib, touches)| format!("{kind} {mib} MiB {touches} touches")).collect();
    let (name, limit_mib) = (together.name, together.limit_mib);
    println!("{name}: {} in {limit_mib} MiB; {rounds} rounds; load {}", described.join(" + "), load());
    let mut runs = vec![Vec::new(); modes.len()];
    for _ in 0..rounds {
        for (mode, runs) in modes.iter().zip(&mut runs) {
            let run = once(together, *mode)?;
            println!(
                "  {}: {:.1} s, {} touches in 15 s, faults {:?}{}; load {}",
                mode.name(),
                run.total_s(),
                run.work.unwrap_or(0),
                run.faults,
                run.status.as_ref().map_or_else(String::new, |status| format!(", saved_s {}", status["saved_s"])),
                load()
            );
            runs.push(run);
        }
    }
    medians(together, &modes, &runs);
    totals(&modes, &runs);
    if !fits {
        println!("earlyoom and systemd-oomd would kill one of them: its work is lost");
    }
    Ok(())
}

fn of(runs: &[Outcome], value: impl Fn(&Outcome) -> f64) -> f64 {
    if runs.is_empty() {
        return f64::NAN;
    }
    median(&mut runs.iter().map(value).collect::<Vec<_>>())
}

/// The runs without a guard.
fn unprotected<'a>(modes: &[Mode], runs: &'a [Vec<Outcome>]) -> &'a [Outcome] {
    modes.iter().zip(runs).find(|(mode, _)| **mode == Mode::None).map_or(&[], |(_, runs)| runs)
}

/// Medians: faults, seconds and processor seconds of each program; those of all; and the work after the onset.
fn medians(together: &Together, modes: &[Mode], runs: &[Vec<Outcome>]) {
    let count = together.programs.len();
    let (wide, narrow) = (8 * count, 7 * count);
    println!(
        "{:17}{:>wide$}{:>narrow$}{:>narrow$} {:>7} {:>11} {:>6}",
        "medians", "major faults", "seconds", "CPU seconds", "total", "work, 15 s", "ratio"
    );
    let work = |run: &Outcome| run.work.unwrap_or(0) as f64;
    let base = unprotected(modes, runs);
    let (base_s, base_work) = (of(base, Outcome::total_s), of(base, work));
    for (mode, runs) in modes.iter().zip(runs) {
        print!("{:17}", mode.name());
        (0..count).for_each(|at| print!("{:>8.0}", of(runs, |run| run.faults[at] as f64)));
        (0..count).for_each(|at| print!("{:>7.1}", of(runs, |run| run.seconds[at])));
        (0..count).for_each(|at| print!("{:>7.1}", of(runs, |run| run.cpu_s[at])));
        let (total_s, worked) = (of(runs, Outcome::total_s), of(runs, work));
        print!(" {total_s:>7.1} {worked:>11.0}");
        match base.is_empty() {
            true => println!(),
            false => println!(" {:>5.1}x  {:+.0} %", worked / base_work.max(1.0), 100.0 * (total_s / base_s - 1.0)),
        }
    }
}

/// The range of the total times, because thrashing differs from run to run; and the goals: the maximum by the median, at
/// most 1.3; the median by the ideal one, at most 1.25; and the worst round against that round unprotected, at most 1.05.
fn totals(modes: &[Mode], runs: &[Vec<Outcome>]) {
    println!(
        "{:17} {:>7} {:>7} {:>7} {:>11} {:>12} {:>21}",
        "total seconds", "min", "median", "max", "max/median", "median/ideal", "worst by unprotected"
    );
    let ideal_s = modes.iter().zip(runs).find(|(mode, _)| **mode == Mode::Ideal);
    let ideal_s = ideal_s.map_or(f64::NAN, |(_, runs)| of(runs, Outcome::total_s));
    for (mode, own) in modes.iter().zip(runs) {
        let seconds = own.iter().map(Outcome::total_s);
        let (least, most) = seconds.fold((f64::MAX, f64::MIN), |(least, most), one| (one.min(least), one.max(most)));
        let middle = of(own, Outcome::total_s);
        let rounds = own.iter().zip(unprotected(modes, runs));
        let worst = rounds.map(|(run, base)| run.total_s() / base.total_s()).reduce(f64::max);
        let worst = worst.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.2}"));
        println!(
            "  {:15} {least:>7.1} {middle:>7.1} {most:>7.1} {:>11.2} {:>12.2} {worst:>21}",
            mode.name(),
            most / middle,
            middle / ideal_s
        );
    }
}

/// A running program.
struct Program {
    child: Child,
    done: Arc<AtomicU64>,
    faults: u64,
    cpu_s: f64,
    ended_s: Option<f64>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A guard that is stopped, and has restored everything, when dropped.
pub(crate) struct Guard(pub(crate) Child);

impl Guard {
    /// Of the release build, below `nigh-bench` only; `command` starts that build.
    pub(crate) fn start(mut command: Command, more: &[&str]) -> anyhow::Result<Guard> {
        let folder = measure::folder()?;
        command.arg("guard").args(more).arg("--state").arg(folder.join("guard-state")).args(["--allow", "nigh-bench"]);
        let log = fs::File::options().create(true).append(true).open(folder.join("guard.log"))?;
        Ok(Guard(command.stderr(log).stdout(Stdio::null()).spawn()?))
    }

    /// Its status, once.
    pub(crate) fn ask(&self) -> anyhow::Result<Value> {
        let state = measure::folder()?.join("guard-state");
        let told = measure::run(measure::nigh()?.args(["guard", "status", "--json", "--state"]).arg(state))?;
        serde_json::from_str(&told.stdout).context("the guard's status")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(id) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

pub(super) fn once(together: &Together, mode: Mode) -> anyhow::Result<Outcome> {
    let needed_mib: u64 = together.programs.iter().map(|(_, mib, _)| *mib as u64 + MORE_MIB).sum();
    let rig = Rig::new(if mode == Mode::Ideal { needed_mib } else { together.limit_mib })?;
    let guard = mode.guard().map(|more| Guard::start(rig.outside(&measure::nigh()?), more)).transpose()?;
    let own = std::env::current_exe()?;
    let mut programs = Vec::new();
    for (at, (kind, mib, touches)) in together.programs.iter().enumerate() {
        let group = format!("{kind}{at}");
        rig.group(&group)?;
        let command = match *kind {
            "loop" => {
                let file = looped(at, *mib)?;
                rig.throttle_disk_of(&file)?;
                let mut command = rig.command(&group, &looper()?);
                command.arg(file).arg(touches.to_string());
                command
            }
            _ => {
                let mut command = rig.command(&group, &own);
                command.args(["guard", "worker", kind, &mib.to_string(), &touches.to_string()]);
                command.arg(together.rounds.to_string());
                command
            }
        };
        programs.push(start(command)?);
    }
    let mut outcome = watch(&rig, &mut programs, mode);
    if let (Ok(outcome), Some(guard)) = (&mut outcome, &guard) {
        outcome.status = Some(guard.ask()?);
    }
    drop(programs);
    drop(guard);
    for (at, (kind, ..)) in together.programs.iter().enumerate() {
        let swappiness = folder("memory", &format!("{kind}{at}/memory.swappiness"));
        let left = fs::read_to_string(&swappiness).with_context(|| swappiness.display().to_string())?;
        ensure!(left.trim() != "0", "the guard has not restored {}", swappiness.display());
    }
    outcome
}

/// The program that goes over a file.
fn looper() -> anyhow::Result<PathBuf> {
    let program = measure::folder()?.join("loop");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guard/loop.c");
    measure::run(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

/// A file of `mib` MiB of which nothing is cached.
fn looped(number: usize, mib: usize) -> anyhow::Result<PathBuf> {
    let path = measure::folder()?.join(format!("loop{number}.data"));
    if fs::metadata(&path).map_or(0, |metadata| metadata.len()) != (mib as u64) << 20 {
        fs::write(&path, vec![7; mib << 20])?;
    }
    let file = fs::File::open(&path)?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(path)
}

fn start(mut command: Command) -> anyhow::Result<Program> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let done = Arc::new(AtomicU64::new(0));
    let (lines, told) = (BufReader::new(child.stdout.take().context("it is piped")?).lines(), done.clone());
    std::thread::spawn(move || {
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.parse().ok());
        numbers.for_each(|number| told.store(number, Ordering::Relaxed));
    });
    Ok(Program { child, done, faults: 0, cpu_s: 0.0, ended_s: None })
}

/// Until all have ended: their faults and times, and the work since the onset.
fn watch(rig: &Rig, programs: &mut [Program], mode: Mode) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let mut onset: Option<(f64, u64)> = None;
    let mut work = None;
    let mut stopped: Option<(f64, Pid)> = None;
    let mut second = (0.0, vec![0; programs.len()]);
    while programs.iter().any(|program| program.ended_s.is_none()) {
        rig.pause(Duration::from_millis(50))?;
        ensure!(start.elapsed() < LONGEST, "not done after {} s", LONGEST.as_secs());
        let now = start.elapsed().as_secs_f64();
        for program in programs.iter_mut() {
            (program.faults, program.cpu_s) = counters(&program.child).unwrap_or((program.faults, program.cpu_s));
            if program.ended_s.is_none() && program.child.try_wait()?.is_some_and(|status| status.success()) {
                program.ended_s = Some(now);
            }
        }
        let done: u64 = programs.iter().map(|program| program.done.load(Ordering::Relaxed)).sum();
        let faults: Vec<u64> = programs.iter().map(|program| program.faults).collect();
        if now - second.0 >= 1.0 {
            let many = faults.iter().zip(&second.1).filter(|(faults, before)| *faults - *before > PF_HIGH);
            let thrashes = many.count() >= 2;
            second = (now, faults);
            if thrashes && onset.is_none() {
                onset = Some((now, done));
                if mode == Mode::Stop {
                    let victim = Pid::from_raw(i32::try_from(programs[0].child.id())?);
                    kill(victim, Signal::SIGSTOP)?;
                    stopped = Some((now, victim));
                }
            }
        }
        if let Some((since, victim)) = stopped.filter(|(since, _)| now - since >= 5.0) {
            kill(victim, Signal::SIGCONT).with_context(|| format!("after {since} s"))?;
            stopped = None;
        }
        if let Some((at, before)) = onset
            && now - at <= WORK_S
        {
            work = Some(done - before);
        }
    }
    Ok(Outcome {
        faults: programs.iter().map(|program| program.faults).collect(),
        seconds: programs.iter().map(|program| program.ended_s.unwrap_or(0.0)).collect(),
        cpu_s: programs.iter().map(|program| program.cpu_s).collect(),
        work,
        status: None,
    })
}

/// Major faults and processor seconds of a process that has not ended.
fn counters(child: &Child) -> Option<(u64, f64)> {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let faults = words.nth(12 - 3)?.parse().ok()?;
    let (user, system): (f64, f64) = (words.nth(1)?.parse().ok()?, words.next()?.parse().ok()?);
    (user + system > 0.0).then_some((faults, (user + system) / 100.0))
}
