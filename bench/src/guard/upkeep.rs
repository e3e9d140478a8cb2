//! What the guard itself costs: asleep, and while it looks at 1,000 groups every second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::pair::Guard;
use super::rig::Rig;
use crate::measure::load;

/// Seconds that each state is watched.
const SPAN: Duration = Duration::from_secs(30);
const GROUPS: usize = 1000;

pub(crate) fn run() -> anyhow::Result<()> {
    println!("upkeep: share of a processor over {} s, and resident memory; load {}", SPAN.as_secs(), load());
    let rig = Rig::new(64)?;
    {
        let guard = Guard::start(&rig, &["--dry-run"])?;
        // It looks a few times, finds nothing, and sleeps.
        rig.pause(Duration::from_secs(10))?;
        report(&rig, "asleep", &guard.0)?;
    }
    // A program larger than the limit faults on and on, alone: that keeps the guard awake and lets it look at everybody.
    rig.group("gz0")?;
    let mut alone = rig.command("gz0", &std::env::current_exe()?);
    alone.args(["guard", "worker", "gz", "90", "100000000"]).stdout(Stdio::null());
    let mut crowd = Crowd { children: vec![alone.spawn()?] };
    for number in 0..GROUPS {
        crowd.add(number)?;
    }
    let guard = Guard::start(&rig, &["--dry-run"])?;
    rig.pause(Duration::from_secs(10))?;
    report(&rig, "1,000 groups", &guard.0)
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
