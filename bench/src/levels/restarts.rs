//! The first seconds after a restart: which share of the reads the disk serves, with and without the list of blocks in memory.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_service::{ControlClient, Statistics};

use super::{BLOCK, read, reads};
use crate::measure::{load, nigh};
use crate::peers::Peer;

const DISK: u64 = 4 << 30;
const MEMORY_MIB: u64 = 64;
/// Blocks that are read: three quarters of the memory.
const BLOCKS: usize = (MEMORY_MIB << 20) as usize / BLOCK as usize / 4 * 3;
const READS: usize = 60_000;
const FIRST: Duration = Duration::from_secs(10);
/// A list is kept every minute.
const LIST: Duration = Duration::from_secs(65);

pub(super) fn run() -> anyhow::Result<()> {
    println!(
        "share of reads served by the disk (1 ms) in the first {} s; {BLOCKS} blocks read before, {MEMORY_MIB} MiB of memory; load {}",
        FIRST.as_secs(),
        load()
    );
    println!(
        "{:14}{:10}{:8}{:>14}{:>10}{:>14}{:>10}",
        "disk", "end", "level", "no list, %", "reads", "with it, %", "reads"
    );
    for disk in ["file", "block device"] {
        for killed in [false, true] {
            for level in [false, true] {
                let without = first(disk, killed, level, false)?;
                let with = first(disk, killed, level, true)?;
                let (end, below) = (if killed { "kill -9" } else { "SIGTERM" }, if level { "file" } else { "none" });
                println!(
                    "{disk:14}{end:10}{below:8}{:>14.1}{:>10}{:>14.1}{:>10}",
                    without.0, without.1, with.0, with.1
                );
            }
        }
    }
    Ok(())
}

/// A loop device on a file; detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(file: &Path) -> anyhow::Result<Loop> {
        let output = Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Loop(String::from_utf8(output.stdout)?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if !Command::new("losetup").args(["--detach", &self.0]).status().is_ok_and(|status| status.success()) {
            eprintln!("{} is not detached", self.0);
        }
    }
}

/// The share of the reads that the disk served after a restart, in percent, and the number of reads.
fn first(disk: &str, killed: bool, level: bool, list: bool) -> anyhow::Result<(f64, u64)> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::File::create(path("disk"))?.set_len(DISK)?;
    let device = if disk == "file" { None } else { Some(Loop::attach(&path("disk"))?) };
    let disk = device.as_ref().map_or_else(|| path("disk").display().to_string(), |device| device.0.clone());
    let serve = || {
        let mut serve = nigh()?;
        serve.args(["serve", "--readahead", "none"]).arg(format!("=delay:1ms:{disk}"));
        serve.args(["--memory", &format!("{MEMORY_MIB}M"), "--log", "error", "--control"]).arg(path("control"));
        serve.arg("--listen").arg(format!("unix:{}", path("socket").display()));
        if level {
            serve.arg("--level").arg(format!("file:{}:{}M", path("level").display(), 4 * MEMORY_MIB));
        }
        if !list {
            serve.args(["--warm", "none"]);
        }
        Peer::unpinned(&mut serve, &path("socket"))
    };
    let requests = reads(DISK, BLOCKS, READS);
    let server = serve()?;
    read(&server.socket, requests.iter(), Duration::MAX)?;
    if killed && list {
        let begun = Instant::now();
        let kept = || std::fs::metadata(path("control.warm")).is_ok_and(|meta| meta.modified().is_ok());
        while !kept() || begun.elapsed() < LIST {
            ensure!(begun.elapsed() < 3 * LIST, "no list is kept");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    match killed {
        true => drop(server),
        false => server.end()?,
    }
    if killed {
        // Nothing but a process that runs keeps a socket.
        ["socket", "control"].iter().for_each(|name| _ = std::fs::remove_file(path(name)));
    }
    let server = serve()?;
    let (done, _) = read(&server.socket, requests.iter().cycle(), FIRST)?;
    let Statistics { exports, .. } = ControlClient::connect(&path("control"))?.status()?;
    let disk = &exports.first().context("an export")?.disk;
    server.end()?;
    let of_disk = disk.misses.saturating_sub(disk.level_hits);
    Ok((100.0 * of_disk as f64 / done as f64, done as u64))
}
