//! A cache, the memory of a second host as its level, and a home on a third: as network namespaces of this machine, and simulated.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_service::ControlClient;
use nigh_trace::Request;
use serde_json::Value;

use super::{BLOCK, Killed, WITHIN, read, reads, write_trace};
use crate::measure::{self, load, nigh};
use crate::peers::Peer;

/// Blocks that are read, scattered over the disk.
const BLOCKS: usize = 6144;
const READS: usize = 16_000;
const DISK: u64 = 1 << 30;
const MEMORY: &str = "4M";
const LEVEL: &str = "16M";
/// Time of the home for a read.
const HOME: &str = "5ms";
const HOME_US: u32 = 5000;
/// How far shares of hits may lie apart, and demotions.
const POINTS: f64 = 1.0;
const DEMOTIONS_WITHIN: f64 = 0.05;

/// Each with the addresses of its ends of two links.
const CACHE: &str = "nigh-bench-cache";
const LENDER: (&str, &str, &str) = ("nigh-bench-level", "10.91.1.1", "10.91.1.2");
const STORE: (&str, &str, &str) = ("nigh-bench-home", "10.91.2.1", "10.91.2.2");

/// Three hosts. They are gone when it is dropped.
struct Hosts;

fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("this bench needs ip, of iproute2")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {} (network namespaces need root)", said.trim());
    Ok(())
}

impl Hosts {
    fn new() -> anyhow::Result<Hosts> {
        // Those of a run that was killed.
        drop(Hosts);
        let hosts = Hosts;
        [CACHE, LENDER.0, STORE.0].iter().try_for_each(|host| ip(&format!("netns add {host}")))?;
        for (number, (host, near, far)) in [LENDER, STORE].into_iter().enumerate() {
            ip(&format!("link add near{number} netns {CACHE} type veth peer name far{number} netns {host}"))?;
            ip(&format!("-n {CACHE} address add {near}/24 dev near{number}"))?;
            ip(&format!("-n {host} address add {far}/24 dev far{number}"))?;
            ip(&format!("-n {CACHE} link set near{number} up"))?;
            ip(&format!("-n {host} link set far{number} up"))?;
        }
        Ok(hosts)
    }

    /// A command on a host.
    fn on(host: &str, program: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host]).arg(program.get_program()).args(program.get_args());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [CACHE, LENDER.0, STORE.0] {
            // There may be none.
            let _ = Command::new("ip").args(["netns", "delete", host]).output();
        }
    }
}

/// Shares of the reads in percent, and seconds.
struct Run {
    memory: f64,
    level: f64,
    home: f64,
    demotions: f64,
    seconds: f64,
}

impl Run {
    fn new(reads: u64, level: u64, home: u64, demotions: u64, seconds: f64) -> Run {
        let share = |count: u64| count as f64 * 100.0 / reads as f64;
        let memory = share(reads - level - home);
        Run { memory, level: share(level), home: share(home), demotions: share(demotions), seconds }
    }

    fn print(&self, name: &str) {
        let Run { memory, level, home, demotions, seconds } = self;
        println!("{name:18}{memory:>10.2}{level:>10.2}{home:>10.2}{demotions:>12.2}{seconds:>10.1}");
    }
}

fn live(folder: &Path, policy: &str, requests: &[Request]) -> anyhow::Result<Run> {
    let _hosts = Hosts::new()?;
    let (disk, socket, control) = (folder.join("disk"), folder.join("socket"), folder.join("control"));
    std::fs::File::create(&disk)?.set_len(DISK)?;
    let mut home = Command::new("nbdkit");
    home.args(["--foreground", "--ipaddr", STORE.2, "--filter=delay", "file"]).arg(&disk);
    home.arg(format!("delay-read={HOME}"));
    let mut home = Killed(Hosts::on(STORE.0, &home).spawn().context("nbdkit")?);
    let mut lender = nigh()?;
    lender.args(["level", "--memory", "64M", "--insecure-tcp", "--log", "error", "--listen"]);
    lender.arg(format!("tcp:{}:10810", LENDER.2));
    let mut lender = Killed(Hosts::on(LENDER.0, &lender).spawn().context("nigh level")?);
    let mut serve = nigh()?;
    serve.args([
        "serve",
        "--readahead",
        "none",
        "--memory",
        MEMORY,
        "--policy",
        policy,
        "--shards",
        "1",
        "--log",
        "error",
    ]);
    serve.args(["--level", &format!("tcp:{}:10810:{LEVEL},required,wait=10s", LENDER.2)]);
    serve.arg(format!("=nbd://{}/", STORE.2)).arg("--control").arg(&control);
    serve.arg("--listen").arg(format!("unix:{}", socket.display()));
    std::thread::sleep(Duration::from_millis(500));
    ensure!(home.0.try_wait()?.is_none() && lender.0.try_wait()?.is_none(), "a host has ended");
    let cache = Peer::unpinned(&mut Hosts::on(CACHE, &serve), &socket)?;
    let (_, took) = read(&socket, requests.iter(), Duration::MAX)?;
    let status = ControlClient::connect(&control)?.status()?;
    let (disk, level) = (&status.exports[0].disk, status.host.levels.first().context("it has a level")?);
    let (reads, homes) = (requests.len() as u64, disk.device_read_bytes / BLOCK);
    let run = Run::new(reads, disk.level_hits, homes, level.stores, took.as_secs_f64());
    cache.end()?;
    Ok(run)
}

fn simulated(folder: &Path, policy: &str, trace: &Path) -> anyhow::Result<Run> {
    let profile = folder.join("home.toml");
    let text = format!(
        "kind = \"volume\"\ntitle = \"A home\"\nbytes = {DISK}\niops = 1e6\nmb_per_s = 10000\nio_kib = 4\nread_us = {HOME_US}\n\
         write_us = {HOME_US}\njitter_us = 0\nburst_ms = 10\ndepth = 64\n"
    );
    std::fs::write(&profile, text)?;
    let mut command = nigh()?;
    command.arg("sim").arg(trace).arg("--device").arg(&profile).args([
        "--readahead",
        "none",
        "--scheduler",
        "first-come",
        "--think",
        "0ms",
    ]);
    command.args(["--policy", policy, "--size", MEMORY, "--level", &format!("net-memory:{LEVEL}"), "--json"]);
    let printed: Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
    let row = &printed["results"][0];
    let count = |of: &Value| of.as_u64().with_context(|| format!("nigh sim gives no counts: {row}"));
    let level = count(&row["level_1_hits"])?;
    let (home, stores) = (count(&row["device_read_bytes"])? / BLOCK, count(&row["levels"][0]["stores"])?);
    let seconds = row["execution_s"].as_f64().context("nigh sim gives no times")?;
    Ok(Run::new(count(&row["references"])?, level, home, stores, seconds))
}

pub(super) fn run() -> anyhow::Result<()> {
    println!(
        "a cache of {MEMORY}, {LEVEL} of `nigh level` on a second host, a home of {HOME} on a third (nbdkit); {READS} reads of \
         {BLOCKS} blocks;\nnetwork namespaces of this machine, and `nigh sim --level net-memory`; % of the reads; load {}",
        load()
    );
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("reads.csv");
    let requests = reads(DISK, BLOCKS, READS);
    write_trace(&trace, &requests)?;
    println!("{:18}{:>10}{:>10}{:>10}{:>12}{:>10}", "", "memory", "level", "home", "demotions", "s");
    for policy in ["lru", "lirs", "ulc"] {
        let live = live(folder.path(), policy, &requests)?;
        let simulated = simulated(folder.path(), policy, &trace)?;
        live.print(&format!("{policy}, live"));
        simulated.print(&format!("{policy}, simulated"));
        let apart = |of: fn(&Run) -> f64| (of(&live) - of(&simulated)).abs();
        let points = apart(|run| run.memory).max(apart(|run| run.level)).max(apart(|run| run.home));
        let demotions = live.demotions / simulated.demotions - 1.0;
        let time = live.seconds / simulated.seconds - 1.0;
        let held = |is_held: bool| if is_held { "held" } else { "missed" };
        println!(
            "  shares {points:.2} points apart (goal {POINTS}: {}), demotions {:+.1} % (goal {:.0}: {}), time {:+.1} % (goal {:.0}: {})",
            held(points <= POINTS),
            demotions * 100.0,
            DEMOTIONS_WITHIN * 100.0,
            held(demotions.abs() <= DEMOTIONS_WITHIN),
            time * 100.0,
            WITHIN * 100.0,
            held(time.abs() <= WITHIN)
        );
    }
    Ok(())
}
