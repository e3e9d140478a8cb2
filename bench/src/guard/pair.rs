//! Two programs in one limit, from their start to their end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rig::{Rig, folder};
use crate::measure::{self, load, median};

/// Two programs: what each is, its MiB and its touches; they start together in a limit.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    programs: [(&'static str, usize, u64); 2],
    limit_mib: u64,
}

/// Working sets that exceed the limit by about 40 %, as in section 4.3, and a pair that fits.
pub(crate) const PAIRS: &[Pair] = &[
    Pair { name: "gz-vx", programs: [("gz", 131, 500_000), ("vx", 94, 500_000)], limit_mib: 160 },
    Pair { name: "gz-gz", programs: [("gz", 114, 500_000), ("gz", 110, 500_000)], limit_mib: 160 },
    Pair { name: "vx-cc", programs: [("vx", 112, 500_000), ("cc", 112, 500_000)], limit_mib: 160 },
    Pair { name: "fitting", programs: [("gz", 70, 1_000_000), ("vx", 60, 1_000_000)], limit_mib: 160 },
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    None,
    Stop,
    Guard,
    GuardFreeze,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Stop => "SIGSTOP 5 s",
            Mode::Guard => "guard",
            Mode::GuardFreeze => "guard --freeze 3",
        }
    }
}

/// One run of a pair.
#[derive(Clone, Default)]
struct Outcome {
    faults: [u64; 2],
    seconds: [f64; 2],
    cpu_s: [f64; 2],
    /// Touches of both in the 15 seconds from the onset of thrashing; none if it did not set in.
    work: Option<u64>,
}

impl Outcome {
    fn both_s(&self) -> f64 {
        self.seconds[0].max(self.seconds[1])
    }
}

/// What is counted as useful work: from the onset on, so long.
const WORK_S: f64 = 15.0;
/// No run is longer.
const LONGEST: Duration = Duration::from_secs(400);
/// Major faults a second of each program that mean thrashing, as PF_High.
const PF_HIGH: u64 = 10;

pub(crate) fn compare(pair: &Pair, rounds: usize) -> anyhow::Result<()> {
    let fits = pair.name == "fitting";
    let modes: &[Mode] =
        if fits { &[Mode::None, Mode::Guard] } else { &[Mode::None, Mode::Stop, Mode::Guard, Mode::GuardFreeze] };
    let described = pair.programs.map(|(kind, mib, touches)| format!("{kind} {mib} MiB {touches} touches"));
    println!("{}: {} in {} MiB; median of {rounds}; load {}", pair.name, described.join(" + "), pair.limit_mib, load());
    let mut runs = vec![Vec::new(); modes.len()];
    for _ in 0..rounds {
        for (mode, runs) in modes.iter().zip(&mut runs) {
            let run = once(pair, *mode)?;
            println!(
                "  {}: {:.0} s, {} touches in 15 s, faults {:?}",
                mode.name(),
                run.both_s(),
                run.work.unwrap_or(0),
                run.faults
            );
            runs.push(run);
        }
    }
    println!(
        "{:17} {:>15} {:>13} {:>13} {:>7} {:>11} {:>6}",
        "", "major faults", "seconds", "CPU seconds", "both", "work, 15 s", "ratio"
    );
    let of =
        |runs: &[Outcome], value: &dyn Fn(&Outcome) -> f64| median(&mut runs.iter().map(value).collect::<Vec<_>>());
    let work = |run: &Outcome| run.work.unwrap_or(0) as f64;
    let base = (of(&runs[0], &Outcome::both_s), of(&runs[0], &work));
    for (mode, runs) in modes.iter().zip(&runs) {
        let pair_of = |value: &dyn Fn(&Outcome) -> [f64; 2]| [0, 1].map(|at| of(runs, &|run: &Outcome| value(run)[at]));
        let faults = pair_of(&|run| run.faults.map(|faults| faults as f64));
        let (seconds, cpu) = (pair_of(&|run| run.seconds), pair_of(&|run| run.cpu_s));
        let (both, worked) = (of(runs, &Outcome::both_s), of(runs, &work));
        println!(
            "{:17} {:>7.0} {:>7.0} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {both:>7.1} {worked:>11.0} {:>5.1}x  {:+.0} %",
            mode.name(),
            faults[0],
            faults[1],
            seconds[0],
            seconds[1],
            cpu[0],
            cpu[1],
            worked / base.1.max(1.0),
            100.0 * (both / base.0 - 1.0)
        );
    }
    if !fits {
        println!("earlyoom and systemd-oomd would kill one of them: its work is lost");
    }
    Ok(())
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
    pub(crate) fn ask(&self) -> anyhow::Result<()> {
        let state = measure::folder()?.join("guard-state");
        measure::run(measure::nigh()?.args(["guard", "status", "--json", "--state"]).arg(state)).map(drop)
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

fn once(pair: &Pair, mode: Mode) -> anyhow::Result<Outcome> {
    let rig = Rig::new(pair.limit_mib)?;
    let guard = match mode {
        Mode::None | Mode::Stop => None,
        Mode::Guard => Some(Guard::start(rig.outside(&measure::nigh()?), &[])?),
        Mode::GuardFreeze => Some(Guard::start(rig.outside(&measure::nigh()?), &["--freeze", "3"])?),
    };
    let own = std::env::current_exe()?;
    let mut programs = Vec::new();
    for (at, (kind, mib, touches)) in pair.programs.iter().enumerate() {
        let group = format!("{kind}{at}");
        rig.group(&group)?;
        let mut command = rig.command(&group, &own);
        command.args(["guard", "worker", kind, &mib.to_string(), &touches.to_string()]);
        programs.push(start(command)?);
    }
    let outcome = watch(&rig, &mut programs, mode);
    drop(programs);
    drop(guard);
    for (at, (kind, ..)) in pair.programs.iter().enumerate() {
        let swappiness = folder("memory", &format!("{kind}{at}/memory.swappiness"));
        let left = fs::read_to_string(&swappiness).with_context(|| swappiness.display().to_string())?;
        ensure!(left.trim() != "0", "the guard has not restored {}", swappiness.display());
    }
    outcome
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

/// Until both have ended: their faults and times, and the work since the onset.
fn watch(rig: &Rig, programs: &mut [Program], mode: Mode) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let mut onset: Option<(f64, u64)> = None;
    let mut work = None;
    let mut stopped: Option<(f64, Pid)> = None;
    let mut second = (0.0, [0; 2]);
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
        let faults = [programs[0].faults, programs[1].faults];
        if now - second.0 >= 1.0 {
            let thrashes = faults.iter().zip(second.1).all(|(faults, before)| faults - before > PF_HIGH);
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
    let of = |value: fn(&Program) -> f64| [value(&programs[0]), value(&programs[1])];
    Ok(Outcome {
        faults: [programs[0].faults, programs[1].faults],
        seconds: of(|program| program.ended_s.unwrap_or(0.0)),
        cpu_s: of(|program| program.cpu_s),
        work,
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
