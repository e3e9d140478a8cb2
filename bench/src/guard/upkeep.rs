//! Cost of the guard itself: asleep, and while it examines 1,000 groups every second.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::pair::Guard;
use super::rig::Rig;
use super::worker::ROUNDS;
use crate::measure::{load, nigh};

/// Seconds that each state is watched.
const SPAN: Duration = Duration::from_secs(30);
const GROUPS: usize = 1000;
/// How long the guard runs before its memory is looked at.
const IDLE: Duration = Duration::from_secs(180);

pub(crate) fn run() -> anyhow::Result<()> {
    println!("upkeep: share of a processor over {} s, and resident memory; load {}", SPAN.as_secs(), load());
    let rig = Rig::new(64)?;
    {
        let guard = Guard::start(rig.outside(&nigh()?), &[])?;
        // It looks a few times, finds nothing, and sleeps.
        rig.pause(Duration::from_secs(10))?;
        report(&rig, "asleep", &guard.0)?;
    }
    // A program larger than the limit faults on and on, alone: that keeps the guard awake and lets it examine everybody.
    rig.group("gz0")?;
    let mut alone = rig.command("gz0", &std::env::current_exe()?);
    alone.args(["guard", "worker", "gz", "90", "100000000", &ROUNDS.to_string()]).stdout(Stdio::null());
    let mut crowd = Crowd { children: vec![alone.spawn()?] };
    for number in 0..GROUPS {
        crowd.add(number)?;
    }
    let guard = Guard::start(rig.outside(&nigh()?), &[])?;
    rig.pause(Duration::from_secs(10))?;
    report(&rig, "1,000 groups", &guard.0)
}

/// Resident memory of a guard that has slept for some minutes and reported its status, by mapping.
pub(crate) fn resident() -> anyhow::Result<()> {
    println!("resident: KiB after {} s; load {}", IDLE.as_secs(), load());
    let mut guard = Guard::start(nigh()?, &[])?;
    std::thread::sleep(IDLE);
    ensure!(guard.0.try_wait()?.is_none(), "the guard has ended; its reason is in guard.log");
    guard.ask()?;
    let text = fs::read_to_string(format!("/proc/{}/smaps", guard.0.id()))?;
    let mut mappings: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [_, access, _, _, _, ref path @ ..] if !line.ends_with(" kB") => {
                let file = path.first().map_or("anonymous", |path| path.rsplit('/').next().unwrap_or(path));
                name = format!("{file} {access}");
            }
            ["Rss:", kib, _] => mappings.entry(name.clone()).or_default()[0] += kib.parse::<u64>()?,
            ["Anonymous:", kib, _] => mappings.entry(name.clone()).or_default()[1] += kib.parse::<u64>()?,
            _ => {}
        }
    }
    println!("{:34} {:>8} {:>9}", "", "resident", "anonymous");
    for (name, [all, anonymous]) in mappings.iter().filter(|(_, [all, _])| *all > 0) {
        println!("{name:34} {all:>8} {anonymous:>9}");
    }
    let [all, anonymous] = [0, 1].map(|at| mappings.values().map(|kib| kib[at]).sum::<u64>());
    println!("{:34} {all:>8} {anonymous:>9}", "all");
    Ok(())
}

/// Groups without a limit, with a sleeping process each; gone when dropped.
struct Crowd {
    children: Vec<Child>,
}

impl Crowd {
    fn add(&mut self, number: usize) -> anyhow::Result<()> {
        let child = Command::new("/bin/sleep").arg("600").spawn()?;
        let folder = group(number);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("cgroup.procs"), child.id().to_string())?;
        self.children.push(child);
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        (0..GROUPS).for_each(|number| drop(fs::remove_dir(group(number))));
        let _ = group(0).parent().map(fs::remove_dir);
    }
}

fn group(number: usize) -> PathBuf {
    Path::new("/sys/fs/cgroup/memory/nigh-bench-idle").join(number.to_string())
}

fn report(rig: &Rig, what: &str, guard: &Child) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), cpu_s(guard)?);
    rig.pause(SPAN)?;
    let share = (cpu_s(guard)? - before) / start.elapsed().as_secs_f64();
    let text = fs::read_to_string(format!("/proc/{}/status", guard.id()))?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("the kernel tells")?;
        Ok::<u64, anyhow::Error>(line.trim().trim_end_matches(" kB").parse()?)
    };
    let (all, anonymous, file) = (kib("VmRSS:")?, kib("RssAnon:")?, kib("RssFile:")?);
    println!("{what:14} {:>6.2} %  {all} KiB resident ({anonymous} anonymous, {file} of files)", 100.0 * share);
    Ok(())
}

/// Processor seconds of a process, exact where the kernel accounts to the nanosecond.
fn cpu_s(process: &Child) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", process.id()))?;
    let nanoseconds: f64 = text.split(' ').next().context("the kernel tells")?.parse()?;
    Ok(nanoseconds / 1e9)
}
