//! A level on flash below a small memory: live beside simulated, and the first minute after a restart, warm and cold.
//!
//! A client reads blocks of 64 MiB that are scattered over a disk, half of its reads in a quarter of them, one after the
//! other.

mod alternatives;
mod clients;
mod cost;
mod hosts;
mod remote;
mod restarts;
mod traces;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_service::{ControlClient, Statistics};
use nigh_trace::Request;
use nigh_trace::write::{Destination, WriteOptions, Writer};
use serde_json::Value;

use crate::measure::{self, load, nigh};
use crate::peers::Peer;

const DISK: &str = "hdd-10k";
const LEVEL: &str = "ssd-sata";
/// How much faster than these the live ones are.
const SPEED: u64 = 2;
/// As large as the device of the disk, in bytes.
const MEDIUM: u64 = 8_891_620 << 10;
const MEMORY: &str = "8M";
const LEVEL_MIB: u64 = 64;
const BLOCK: u64 = 4096;
/// Blocks that are read: as many as the level holds.
const BLOCKS: usize = (LEVEL_MIB << 20) as usize / BLOCK as usize;
const READS: usize = 30_000;
/// How far live and simulated may lie apart.
const WITHIN: f64 = 0.2;
/// Of the time of the devices, after a restart.
const MINUTE: Duration = Duration::from_secs(60);

/// `count` reads of this many blocks, scattered over `medium` bytes, half of them in a quarter of the blocks.
fn reads(medium: u64, blocks: usize, count: usize) -> Vec<Request> {
    let mut random = Rng::with_seed(1);
    let mut places: Vec<u64> = (0..medium / BLOCK / 16).map(|at| at * 16 * BLOCK).collect();
    random.shuffle(&mut places);
    let mut read = |_| {
        let most = if random.bool() { blocks / 4 } else { blocks };
        Request { offset: places[random.usize(..most)], length: BLOCK as u32, ..Request::default() }
    };
    (0..count).map(&mut read).collect()
}

/// Makes the requests of a server, one after the other, until the time is up; returns how many, and how long they took.
fn read<'a>(
    socket: &Path,
    requests: impl Iterator<Item = &'a Request>,
    most: Duration,
) -> anyhow::Result<(usize, Duration)> {
    let mut client = Client::connect(UnixStream::connect(socket)?, "", &[])?;
    let begun = Instant::now();
    let mut done = 0;
    for request in requests.take_while(|_| begun.elapsed() < most) {
        let bytes = client.read(request.offset, request.length as usize)?;
        ensure!(bytes.len() == request.length as usize, "a short reply");
        done += 1;
    }
    let took = begun.elapsed();
    client.disconnect()?;
    Ok((done, took))
}

fn write_trace(path: &Path, requests: &[Request]) -> anyhow::Result<()> {
    let mut writer = Writer::create(
        &Destination::new(path, true, &[])?,
        &WriteOptions { format: None, block_bytes: BLOCK as u32, taken: None },
    )?;
    writer.push(requests)?;
    writer.finish()?;
    Ok(())
}

/// Measurements of a run.
struct Run {
    seconds: f64,
    /// Blocks from the disk and from the level.
    disk: u64,
    level: u64,
}

/// The disk, its level and the socket of a server.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> anyhow::Result<Place> {
        // In memory, where there is such a file system, so that only the models take time.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        std::fs::File::create(folder.path().join("disk"))?.set_len(MEDIUM)?;
        Ok(Place { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn serve(&self, with_level: bool) -> anyhow::Result<Peer> {
        let socket = self.path("socket");
        let mut serve = nigh()?;
        serve
            .args(["serve", "--readahead", "none"])
            .arg(format!("=delay:disk={DISK},speed={SPEED}:{}", self.path("disk").display()));
        serve.args(["--memory", MEMORY, "--policy", "lru", "--shards", "1", "--log", "error"]);
        serve
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .arg("--control")
            .arg(self.path("control"))
            .args(["--warm", "none"]);
        if with_level {
            // With room for the file's header.
            let (path, mib) = (self.path("level"), LEVEL_MIB + 1);
            serve.arg("--level").arg(format!("delay:disk={LEVEL},speed={SPEED}:file:{}:{mib}M", path.display()));
        }
        Peer::start(&mut serve, &socket)
    }

    fn status(&self) -> anyhow::Result<Statistics> {
        Ok(ControlClient::connect(&self.path("control"))?.status()?)
    }

    /// Reads until there is no request left, or the time is up.
    fn run<'a>(
        &self,
        server: &Peer,
        requests: impl Iterator<Item = &'a Request>,
        most: Duration,
    ) -> anyhow::Result<(usize, Run)> {
        let (done, took) = read(&server.socket, requests, most)?;
        let seconds = took.as_secs_f64() * SPEED as f64;
        let disk = &self.status()?.exports[0].disk;
        Ok((done, Run { seconds, disk: disk.device_read_bytes / BLOCK, level: disk.level_hits }))
    }
}

fn simulated(trace: &Path, with_level: bool) -> anyhow::Result<Run> {
    let mut command = nigh()?;
    command.arg("sim").arg(trace).args([
        "--device",
        DISK,
        "--readahead",
        "none",
        "--scheduler",
        "batch:16",
        "--think",
        "0ms",
    ]);
    command.args(["--policy", "lru", "--size", MEMORY, "--json"]);
    if with_level {
        command.args(["--level", &format!("{LEVEL}:{LEVEL_MIB}M")]);
    }
    let printed: Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
    let row = &printed["results"][0];
    let seconds = row["execution_s"].as_f64().context("nigh sim gives no times")?;
    let count = |of: &Value| of.as_u64().context("nigh sim gives no counts");
    Ok(Run { seconds, disk: count(&row["device_read_bytes"])? / BLOCK, level: count(&row["level_1_hits"])? })
}

/// A process that has nothing to lose, and may have ended.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Live beside simulated, and restarts.
    Flash,
    /// Hits while blocks are demoted, and retrieves of a level server.
    Cost,
    /// A level on another host, live in network namespaces beside simulated.
    Hosts,
    /// Seven caches above one level server: what each has of its memory.
    Clients,
    /// The first seconds after SIGTERM and kill -9, with and without the list of blocks in memory.
    Restarts,
    /// A level in a file beside memory alone and nbdkit's cache filter on the same file system.
    Alternatives,
    /// Schemes of two and three levels on recorded traces.
    Traces,
}

pub(crate) fn run(parts: &[Part], rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    if parts.contains(&Part::Cost) {
        cost::run(rounds, how_long)?;
    }
    if parts.contains(&Part::Flash) {
        flash()?;
    }
    if parts.contains(&Part::Hosts) {
        hosts::run()?;
    }
    if parts.contains(&Part::Clients) {
        clients::run()?;
    }
    if parts.contains(&Part::Alternatives) {
        alternatives::run()?;
    }
    if parts.contains(&Part::Restarts) {
        restarts::run()?;
    }
    if parts.contains(&Part::Traces) { traces::run() } else { Ok(()) }
}

fn flash() -> anyhow::Result<()> {
    println!(
        "{READS} reads of {BLOCKS} blocks on {DISK}, {MEMORY} of memory, with and without {LEVEL_MIB} MiB of {LEVEL} ({SPEED} times as \
         fast live); load {}",
        load()
    );
    let requests = reads(MEDIUM, BLOCKS, READS);
    compare(&requests)?;
    restart(&requests)
}

fn compare(requests: &[Request]) -> anyhow::Result<()> {
    let place = Place::new()?;
    let trace = place.path("reads.csv");
    write_trace(&trace, requests)?;
    println!();
    println!("{:16}{:>30}{:>30}", "", "live", "simulated");
    let head = format!("{:>10}{:>10}{:>10}", "s", "of disk", "of level");
    println!("{:16}{head}{head}{:>10}", "", "ratio");
    let mut ratios = Vec::new();
    for (name, with_level) in [("memory alone", false), ("with the level", true)] {
        let server = place.serve(with_level)?;
        let (_, live) = place.run(&server, requests.iter(), Duration::MAX)?;
        server.end()?;
        let simulated = simulated(&trace, with_level)?;
        let row = |run: &Run| format!("{:>10.1}{:>10}{:>10}", run.seconds, run.disk, run.level);
        let ratio = live.seconds / simulated.seconds;
        let agree = if (ratio - 1.0).abs() <= WITHIN { "within a fifth" } else { "apart" };
        println!("{name:16}{}{}{ratio:>10.3}  {agree}", row(&live), row(&simulated));
        ratios.push((live, simulated));
    }
    let [(alone, alone_simulated), (with, with_simulated)] = &ratios[..] else { unreachable!("two runs") };
    let gain = |alone: &Run, with: &Run| (alone.seconds / with.seconds, alone.disk as f64 / with.disk as f64);
    let (live, simulated) = (gain(alone, with), gain(alone_simulated, with_simulated));
    println!("with the level {:.2} times as fast live and {:.2} times simulated,", live.0, simulated.0);
    println!("and {:.2} and {:.2} times fewer reads of the disk", live.1, simulated.1);
    Ok(())
}

/// The first minute after a restart in order, after everything was read, and after a start with an empty level.
fn restart(requests: &[Request]) -> anyhow::Result<()> {
    println!();
    println!("the first {} s of the devices' time after a restart", MINUTE.as_secs());
    println!("{:16}{:>10}{:>12}{:>10}{:>10}{:>10}", "", "reads", "a read, ms", "memory %", "level %", "disk %");
    let place = Place::new()?;
    let server = place.serve(true)?;
    place.run(&server, requests.iter(), Duration::MAX)?;
    server.end()?;
    let mut counts = Vec::new();
    for name in ["a warm level", "a cold level"] {
        let server = place.serve(true)?;
        let warm = place.status()?.host.levels[0].warm_blocks;
        ensure!((warm > 0) == (name == "a warm level"), "{name} with {warm} blocks");
        let (done, run) = place.run(&server, requests.iter().cycle(), MINUTE / SPEED as u32)?;
        // Killed, so that the next one begins empty.
        drop(server);
        let share = |count: u64| 100.0 * count as f64 / done as f64;
        let ms = 1e3 * run.seconds / done as f64;
        let memory = share(done as u64 - run.level - run.disk);
        println!("{name:16}{done:>10}{ms:>12.2}{memory:>10.1}{:>10.1}{:>10.1}", share(run.level), share(run.disk));
        counts.push(done as f64);
    }
    println!("{:.2} times as many reads", counts[0] / counts[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::digest;

    /// The table in the README is of these requests.
    #[test]
    fn reads_are_the_same_on_every_run() {
        let requests = reads(MEDIUM, BLOCKS, READS);
        let mut places: Vec<u64> = requests.iter().map(|request| request.offset).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((requests.len(), places.len(), digest(&requests)), (READS, 11_437, 0xdec352d09cf1a05));
    }
}
