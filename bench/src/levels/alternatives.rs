//! A level in a file beside what a user would do instead: memory alone, or nbdkit's cache filter on the same file system.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_trace::Request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Killed, read, reads};
use crate::measure::{load, nigh};
use crate::peers::Peer;

const DISK: u64 = 1 << 30;
const BLOCKS: usize = 6144;
const READS: usize = 16_000;
const MEMORY: &str = "4M";
/// Two thirds of the blocks that are read.
const CACHE_MIB: u64 = 16;
/// Time of the home for a read.
const HOME: &str = "5ms";

/// The home: a file behind a delay, which counts its reads.
fn home(folder: &Path) -> anyhow::Result<Killed> {
    let (socket, disk) = (folder.join("home"), folder.join("disk"));
    // That of the last run.
    let _ = std::fs::remove_file(&socket);
    let mut home = Command::new("nbdkit");
    home.arg("--foreground").arg("--unix").arg(&socket).args(["--filter=stats", "--filter=delay", "file"]).arg(&disk);
    home.arg(format!("delay-read={HOME}")).arg(format!("statsfile={}", folder.join("stats").display()));
    let mut home = Killed(home.spawn().context("nbdkit")?);
    while !socket.exists() {
        ensure!(home.0.try_wait()?.is_none(), "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(home)
}

/// Seconds, and the reads of the home.
fn run_one(folder: &Path, requests: &[Request], server: &mut Command) -> anyhow::Result<(f64, u64)> {
    let mut home = home(folder)?;
    let socket = folder.join("socket");
    let _ = std::fs::remove_file(&socket);
    let server = Peer::unpinned(server, &socket)?;
    let (_, took) = read(&socket, requests.iter(), Duration::MAX)?;
    server.end()?;
    kill(Pid::from_raw(home.0.id() as i32), Signal::SIGTERM)?;
    home.0.wait()?;
    let stats = std::fs::read_to_string(folder.join("stats")).context("what nbdkit counted")?;
    let reads = stats.lines().find_map(|line| line.strip_prefix("read: ")?.split_whitespace().next()?.parse().ok());
    Ok((took.as_secs_f64(), reads.with_context(|| format!("no reads in {stats}"))?))
}

pub(super) fn run() -> anyhow::Result<()> {
    println!(
        "{READS} reads of {BLOCKS} blocks of a home of {HOME} (nbdkit), one after the other; caches in files have {CACHE_MIB} MiB; load {}",
        load()
    );
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::File::create(folder.join("disk"))?.set_len(DISK)?;
    let requests = reads(DISK, BLOCKS, READS);
    let (socket, home) = (folder.join("socket"), folder.join("home"));
    let serve = |policy: &str, has_level: bool| {
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
        if has_level {
            let path = folder.join(format!("level.{policy}"));
            serve.arg("--level").arg(format!("file:{}:{}M", path.display(), CACHE_MIB + 1));
        }
        serve.arg(format!("=nbd+unix:///?socket={}", home.display()));
        serve.arg("--listen").arg(format!("unix:{}", socket.display()));
        anyhow::Ok(serve)
    };
    let mut filter = Command::new("nbdkit");
    filter.args(["--foreground", "--unix"]).arg(&socket).args(["--filter=cache", "nbd"]);
    filter.arg(format!("socket={}", home.display())).args(["cache-on-read=true", "cache-min-block-size=4K"]);
    filter.arg(format!("cache-max-size={CACHE_MIB}M")).env("TMPDIR", folder);
    println!("{:44}{:>8}{:>8}{:>12}{:>8}", "", "s", "ratio", "home reads", "ratio");
    let mut first = None;
    for (name, mut server) in [
        (format!("nigh, {MEMORY} of memory, LRU"), serve("lru", false)?),
        ("LRU, --level file:".to_owned(), serve("lru", true)?),
        ("ULC, --level file:".to_owned(), serve("ulc", true)?),
        ("nbdkit --filter=cache, cache-on-read".to_owned(), filter),
    ] {
        let (seconds, reads) = run_one(folder, &requests, &mut server)?;
        let (alone_s, alone) = *first.get_or_insert((seconds, reads));
        let ratio = (seconds / alone_s, reads as f64 / alone as f64);
        println!("{name:44}{seconds:>8.1}{:>8.3}{reads:>12}{:>8.3}", ratio.0, ratio.1);
    }
    Ok(())
}
