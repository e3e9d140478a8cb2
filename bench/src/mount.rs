//! Files behind `nigh mount`: hits beside the least that a FUSE file system does, and a tree on a slow source that is read twice, beside other
//! file systems.

pub(crate) mod minimal;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::measure::{load, median, nigh};

/// The file whose blocks are read, all of which are cached.
const HOT: u64 = 128 << 20;
const BLOCK: usize = 4096;
/// Files of the tree, in folders of `FOLDER`.
const FILES: usize = 400;
const FOLDER: usize = 40;
/// Goals: p50 of a hit, and hits of many at a time, by those of the minimal file system; the second time by the first.
const GOALS: (f64, f64, f64) = (1.2, 0.8, 20.0);
/// How long a server may take to mount.
const START: Duration = Duration::from_secs(20);

/// A mounted file system; it is unmounted when this is dropped.
struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    fn start(mut command: Command, at: &Path) -> anyhow::Result<Mounted> {
        fs::create_dir_all(at)?;
        let before = fs::metadata(at)?;
        let shown = format!("{command:?}").replace('"', "");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut mounted = Mounted { child: child.with_context(|| shown.clone())?, at: at.to_owned() };
        let begun = Instant::now();
        while fs::metadata(at).is_ok_and(|now| std::os::unix::fs::MetadataExt::dev(&now) == device(&before)) {
            ensure!(mounted.child.try_wait()?.is_none(), "{shown} ended");
            ensure!(begun.elapsed() < START, "{shown} does not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }
}

fn device(found: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::dev(found)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // One that is busy is detached.
        let _ = nix::mount::umount2(&self.at, nix::mount::MntFlags::MNT_DETACH);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn own(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

pub(crate) fn run(parts: &[Part], rounds: usize, seconds: f64) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!("load {}", load());
    for part in parts {
        match part {
            Part::Hits => hits(rounds, seconds)?,
            Part::Tree => tree(rounds)?,
        }
    }
    Ok(())
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Hits of 4 KiB, one and 16 at a time
    Hits,
    /// A tree on a source with 5 ms for each request, read twice
    Tree,
}

fn hits(rounds: usize, seconds: f64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let source = folder.path().join("source");
    fs::create_dir(&source)?;
    let mut bytes = vec![0; HOT as usize];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    fs::write(source.join("hot"), &bytes)?;
    drop(bytes);
    let source = source.display().to_string();
    for (name, processors) in [("same processor", 1), ("all processors", 0)] {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        if processors == 1 {
            let mut one = CpuSet::new();
            let first = (0..CpuSet::count()).find(|at| all.is_set(*at).unwrap_or(false)).context("a processor")?;
            one.set(first)?;
            sched_setaffinity(Pid::from_raw(0), &one)?;
        }
        let result = hits_on(folder.path(), &source, name, rounds, seconds);
        sched_setaffinity(Pid::from_raw(0), &all)?;
        result?;
    }
    Ok(())
}

fn hits_on(folder: &Path, source: &str, name: &str, rounds: usize, seconds: f64) -> anyhow::Result<()> {
    let minimal_at = folder.join(format!("minimal {name}"));
    let nigh_at = folder.join(format!("nigh {name}"));
    let minimal = own(&["minimal-mount", source, &minimal_at.display().to_string(), "--threads", "16"])?;
    let minimal = Mounted::start(minimal, &minimal_at)?;
    let mut command = nigh()?;
    command.args(["mount", source]).arg(&nigh_at).args(["--memory", "256M", "--log", "warn"]);
    let nigh = Mounted::start(command, &nigh_at)?;
    let files = [minimal_at.join("hot"), nigh_at.join("hot")];
    for file in &files {
        let mut all = Vec::new();
        File::open(file)?.read_to_end(&mut all)?;
        ensure!(all.len() as u64 == HOT, "{}: {} bytes", file.display(), all.len());
    }
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let at = (turn + round) % 2;
            let (p50_us, _) = read_for(&files[at], 1, seconds)?;
            let (_, rate) = read_for(&files[at], 16, seconds)?;
            figures[at][0].push(p50_us);
            figures[at][1].push(rate);
        }
    }
    let ratio = |kind: usize| {
        let pairs = figures[1][kind].iter().zip(&figures[0][kind]);
        median(&mut pairs.map(|(ours, minimal)| ours / minimal).collect::<Vec<_>>())
    };
    let (p50, rate) = (ratio(0), ratio(1));
    println!("\n4 KiB hits, {name}; medians of {rounds} rounds of {seconds} s");
    println!("{:24}{:>14}{:>18}", "", "p50 of one, us", "16 at a time, /s");
    for (name, figures) in ["minimal pass-through", "nigh mount"].iter().zip(&figures) {
        let [p50, rate] = [0, 1].map(|kind| median(&mut figures[kind].clone()));
        println!("{name:24}{p50:>14.2}{rate:>18.0}");
    }
    let held = |holds: bool| if holds { "held" } else { "not held" };
    println!("{:24}{p50:>14.2}{rate:>18.2}", "ratio, round by round");
    println!("{:24}{:>14}{:>18}", "goal", held(p50 <= GOALS.0), held(rate >= GOALS.1));
    drop((minimal, nigh));
    Ok(())
}

/// The median of a read in µs, and reads a second, of `threads` that read at random.
fn read_for(path: &Path, threads: u64, seconds: f64) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let read = |seed: u64| -> anyhow::Result<Vec<f64>> {
        let file = File::open(path)?;
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut block, mut times) = ([0; BLOCK], Vec::new());
        while begun.elapsed().as_secs_f64() < seconds {
            let before = Instant::now();
            file.read_exact_at(&mut block, random.u64(0..HOT / BLOCK as u64) * BLOCK as u64)?;
            times.push(before.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    };
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || read(seed))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("a reader does not panic"));
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut all: Vec<f64> = times.into_iter().flatten().collect();
    let rate = all.len() as f64 / begun.elapsed().as_secs_f64();
    Ok((median(&mut all), rate))
}

/// A file system above the slow source.
type Above = (&'static str, fn(&str, &str, &Path) -> anyhow::Result<Command>);

const ABOVE: [Above; 5] = [
    ("nigh mount", |source, at, _| {
        let mut command = nigh()?;
        command.args(["mount", source, at, "--memory", "256M", "--log", "warn"]);
        Ok(command)
    }),
    ("nigh mount --fresh 60s", |source, at, _| {
        let mut command = nigh()?;
        command.args(["mount", source, at, "--memory", "256M", "--log", "warn", "--fresh", "60s"]);
        Ok(command)
    }),
    ("rclone, full cache", |source, at, folder| {
        let mut command = Command::new("rclone");
        command.args(["mount", source, at, "--vfs-cache-mode", "full", "--cache-dir"]).arg(folder.join("rclone"));
        Ok(command)
    }),
    ("rclone, --dir-cache-time 1s", |source, at, folder| {
        let mut command = Command::new("rclone");
        command.args(["mount", source, at, "--vfs-cache-mode", "full", "--dir-cache-time", "1s", "--cache-dir"]);
        command.arg(folder.join("rclone"));
        Ok(command)
    }),
    ("bindfs", |source, at, _| {
        let mut command = Command::new("bindfs");
        command.args(["-f", source, at]);
        Ok(command)
    }),
];

fn tree(rounds: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let files = folder.path().join("files");
    let mut random = fastrand::Rng::with_seed(1);
    let mut total = 0;
    for number in 0..FILES {
        let into = files.join(format!("{:02}", number / FOLDER));
        fs::create_dir_all(&into)?;
        // As sources of programs: most are small, some are not.
        let mut bytes = vec![0; 1 << random.u32(9..18)];
        random.fill(&mut bytes);
        total += bytes.len();
        fs::write(into.join(format!("{number}.c")), &bytes)?;
    }
    println!(
        "\n{FILES} files of {} KiB in all, on a source that takes 5 ms for each request; medians of {rounds}",
        total >> 10
    );
    println!("{:30}{:>12}{:>12}{:>10}", "", "first, s", "again, s", "ratio");
    for (name, command) in ABOVE {
        let (mut first, mut again, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let slow_at = folder.path().join("slow");
            let slow = own(&[
                "minimal-mount",
                &path(folder.path(), "files"),
                &slow_at.display().to_string(),
                "--delay-us",
                "5000",
                "--threads",
                "64",
            ])?;
            let slow = Mounted::start(slow, &slow_at)?;
            let at = folder.path().join(format!("above {name} {round}"));
            fs::create_dir_all(&at)?;
            let above = command(&slow_at.display().to_string(), &at.display().to_string(), folder.path())?;
            let above = match Mounted::start(above, &at) {
                Ok(above) => above,
                Err(error) => {
                    println!("{name:30}skipped: {error:#}");
                    break;
                }
            };
            let times = [read_tree(&at, total)?, read_tree(&at, total)?];
            first.push(times[0]);
            again.push(times[1]);
            ratios.push(times[0] / times[1]);
            drop((above, slow));
            // Each begins with nothing.
            let _ = fs::remove_dir_all(folder.path().join("rclone"));
        }
        if ratios.is_empty() {
            continue;
        }
        let ratio = median(&mut ratios);
        let held = match name.starts_with("nigh") {
            true if ratio >= GOALS.2 => "  held",
            true => "  not held",
            false => "",
        };
        println!("{name:30}{:>12.2}{:>12.3}{ratio:>10.1}{held}", median(&mut first), median(&mut again));
    }
    Ok(())
}

/// Reads all files, one after the other, in the order of their names. Returns the time in seconds.
fn read_tree(at: &Path, total: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut read = 0;
    for folder in sorted(at)? {
        for file in sorted(&folder)? {
            read += fs::read(&file).with_context(|| file.display().to_string())?.len();
        }
    }
    if read != total {
        bail!("{}: {read} bytes of {total}", at.display());
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}
