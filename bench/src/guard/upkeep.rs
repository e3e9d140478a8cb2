//! What the guard itself costs: asleep, and while it looks at 1,000 groups every second.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
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
        std::thread::sleep(Duration::from_secs(10));
        report("asleep", &guard.0)?;
    }
    // A program larger than the limit faults on and on, alone: that keeps the guard awake and lets it look at everybody.
    rig.group("gz0")?;
    let mut alone = rig.command("gz0", &std::env::current_exe()?);
    alone.args(["guard", "worker", "gz", "90", "100000000"]).stdout(Stdio::null());
    let mut children = Children(vec![alone.spawn()?]);
    for number in 0..GROUPS {
        let group = format!("idle{number}");
        rig.group(&group)?;
        let mut command = rig.command(&group, Path::new("/bin/sleep"));
        children.0.push(command.arg("600").spawn()?);
    }
    let guard = Guard::start(&rig, &["--dry-run"])?;
    std::thread::sleep(Duration::from_secs(10));
    report("1,000 groups", &guard.0)
}

/// Processes that end when dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn report(what: &str, guard: &Child) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), cpu_s(guard)?);
    std::thread::sleep(SPAN);
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
