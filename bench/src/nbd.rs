//! `nigh serve` against nbdkit and qemu-nbd: hits, and hits beside another client's misses.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::load::{Connection, Order, Reads, all_cached, stamp, write_stamped};
use crate::measure::{load as machine_load, median, nigh};
use crate::peers::{CLIENTS, Peer, SERVERS};

/// What is read again and again; every server has all of it in memory.
const HOT: u64 = 128 << 20;
/// The disk behind the delay; what lies beyond `HOT` is read once.
const DELAYED: u64 = 16 << 30;
const DELAY_MS: u32 = 5;
/// Requests on their way from the client that misses.
const MISSES: usize = 4;

/// A figure: of each server one, better the lower or the higher it is.
struct Row {
    name: &'static str,
    digits: usize,
    /// What the ratio of nigh to nbdkit's memory plugin is meant to reach, where anything was set.
    goal: Option<Goal>,
}

#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Goal::AtMost(most) => ratio <= most,
            Goal::AtLeast(least) => ratio >= least,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, value) = match self {
            Goal::AtMost(most) => ("<=", most),
            Goal::AtLeast(least) => (">=", least),
        };
        to.pad(&format!("{sign} {value:.1}"))
    }
}

/// In the order of `measure`.
const ROWS: [Row; 7] = [
    Row { name: "4 KiB one at a time: p50, us", digits: 2, goal: Some(Goal::AtMost(1.0)) },
    Row { name: "  server's processor us a hit", digits: 2, goal: Some(Goal::AtMost(0.8)) },
    Row { name: "4 KiB 16 at a time: hits/s", digits: 0, goal: Some(Goal::AtLeast(1.3)) },
    Row { name: "  server's processor us a hit", digits: 2, goal: Some(Goal::AtMost(0.8)) },
    Row { name: "64 KiB sequential, one at a time: MB/s", digits: 0, goal: None },
    Row { name: "64 KiB sequential, 16 at a time: MB/s", digits: 0, goal: Some(Goal::AtLeast(1.2)) },
    Row { name: "  server's processor us a hit", digits: 2, goal: None },
];

pub(crate) fn run(rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir()?;
    println!("servers on processor {SERVERS}, clients on processor {CLIENTS}, Unix sockets; load {}", machine_load());
    hits(folder.path(), rounds, how_long)?;
    println!();
    beside_misses(folder.path(), rounds, how_long)
}

fn hits(folder: &Path, rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    let image = folder.join("image");
    let file = std::fs::File::create(&image)?;
    stamp(&file, 0..HOT)?;
    file.sync_all()?;
    let names = ["nigh", "nbdkit memory", "nbdkit file", "qemu-nbd"];
    let peers = [
        serve(folder, "nigh", image.to_str().context("a temporary folder's name is UTF-8")?)?,
        nbdkit(folder, "memory", |command| command.arg("memory").arg(HOT.to_string()))?,
        nbdkit(folder, "file", |command| command.args(["--readonly", "file"]).arg(&image))?,
        qemu_nbd(folder, &image)?,
    ];
    write_stamped(&peers[1].socket, 0..HOT)?;
    let mut connections = Vec::new();
    for peer in &peers {
        let mut connection = Connection::open(&peer.socket)?;
        connection.read_all(0..HOT)?;
        connections.push(connection);
    }
    ensure!(all_cached(&peers[0].socket, 0..HOT)?, "nigh has not all in its cache");

    // By row, server and round.
    let mut figures = vec![vec![Vec::new(); peers.len()]; ROWS.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            // Nobody is always behind the same one.
            let at = if round % 2 == 0 { turn } else { peers.len() - 1 - turn };
            for (row, figure) in measure(&peers[at], &mut connections[at], how_long)?.into_iter().enumerate() {
                figures[row][at].push(figure);
            }
        }
    }
    println!(
        "reads of {} MiB that every server has in memory, each checked; medians of {rounds} rounds in which the servers",
        HOT >> 20
    );
    println!(
        "take turns of {} s, the ratio of nigh to nbdkit's memory plugin taken round by round",
        how_long.as_secs_f64()
    );
    println!(
        "{:40}{:>10}{:>15}{:>13}{:>10}{:>8}{:>9}  held",
        "", names[0], names[1], names[2], names[3], "ratio", "goal"
    );
    for (row, figures) in ROWS.iter().zip(&mut figures) {
        let mut ratios: Vec<f64> = figures[0].iter().zip(&figures[1]).map(|(own, other)| own / other).collect();
        let ratio = median(&mut ratios);
        let medians: Vec<String> =
            figures.iter_mut().map(|rounds| format!("{:.*}", row.digits, median(rounds))).collect();
        println!(
            "{:40}{:>10}{:>15}{:>13}{:>10}{ratio:>8.2}{:>9}  {}",
            row.name,
            medians[0],
            medians[1],
            medians[2],
            medians[3],
            row.goal.map_or("-".to_owned(), |goal| goal.to_string()),
            row.goal.map_or("-", |goal| held(goal, ratio))
        );
    }
    Ok(())
}

fn held(goal: Goal, ratio: f64) -> &'static str {
    if goal.holds(ratio) { "yes" } else { "no" }
}

/// The figures of one server, in the order of `ROWS`.
fn measure(peer: &Peer, connection: &mut Connection, how_long: Duration) -> anyhow::Result<[f64; ROWS.len()]> {
    let mut one = |length, order, depth| {
        let reads = Reads { range: 0..HOT, length, order, depth };
        let before = peer.cpu()?;
        let found = connection.read_for(&reads, how_long)?;
        let cpu = peer.cpu()? - before;
        let cpu_us = cpu.as_secs_f64() * 1e6 / found.latencies_ns.len() as f64;
        anyhow::Ok((found, cpu_us))
    };
    let (mut alone, alone_cpu) = one(4096, Order::Random, 1)?;
    let (deep, deep_cpu) = one(4096, Order::Random, 16)?;
    let (large, _) = one(64 << 10, Order::Sequential, 1)?;
    let (large_deep, large_cpu) = one(64 << 10, Order::Sequential, 16)?;
    let megabytes = f64::from(64 << 10) / 1e6;
    Ok([
        alone.p50_us(),
        alone_cpu,
        deep.per_second(),
        deep_cpu,
        large.per_second() * megabytes,
        large_deep.per_second() * megabytes,
        large_cpu,
    ])
}

/// A client that hits, alone and while another one misses.
fn beside_misses(folder: &Path, rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    let image = folder.join("delayed");
    let file = std::fs::File::create(&image)?;
    file.set_len(DELAYED)?;
    let hot = 0..HOT / 2;
    stamp(&file, hot.clone())?;
    let target = format!("delay:{DELAY_MS}ms:{}", image.display());
    let delay = format!("rdelay={DELAY_MS}ms");
    let peers = [
        ("nigh", serve(folder, "delayed-nigh", &target)?),
        (
            "nbdkit --filter=cache --filter=delay",
            nbdkit(folder, "cache", |command| {
                command
                    .args(["--filter=cache", "--filter=delay", "file"])
                    .arg(&image)
                    .args([&delay, "cache-on-read=true"])
            })?,
        ),
    ];
    println!(
        "4 KiB hits one at a time, p50 in us, alone and while a second client misses {MISSES} at a time on a disk that"
    );
    println!("takes {DELAY_MS} ms; medians of {rounds} rounds of {} s", how_long.as_secs_f64());
    println!("{:40}{:>10}{:>15}{:>13}{:>18}{:>9}  held", "", "alone", "beside misses", "misses/s", "ratio", "goal");
    let goal = Goal::AtMost(1.5);
    for (name, peer) in &peers {
        let mut connection = Connection::open(&peer.socket)?;
        connection.read_all(hot.clone())?;
        ensure!(*name != "nigh" || all_cached(&peer.socket, hot.clone())?, "nigh has not all in its cache");
        let hits = Reads { range: hot.clone(), length: 4096, order: Order::Random, depth: 1 };
        let misses = Reads { range: HOT..DELAYED, length: 4096, order: Order::Random, depth: MISSES };
        let mut other = Connection::open(&peer.socket)?;
        let (mut alone, mut beside, mut rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let p50 = connection.read_for(&hits, how_long)?.p50_us();
            let over = AtomicBool::new(false);
            let (hit, missed) = std::thread::scope(|scope| {
                let missing = scope.spawn(|| other.read_until(&misses, |_, _| over.load(Ordering::Relaxed)));
                let hit = connection.read_for(&hits, how_long);
                over.store(true, Ordering::Relaxed);
                (hit, missing.join().expect("a client does not panic"))
            });
            let (mut hit, missed) = (hit?, missed?);
            alone.push(p50);
            beside.push(hit.p50_us());
            rates.push(missed.per_second());
            ratios.push(beside[beside.len() - 1] / p50);
        }
        let ratio = median(&mut ratios);
        println!(
            "{name:40}{:>10.2}{:>15.2}{:>13.0}{ratio:>18.2}{goal:>9}  {}",
            median(&mut alone),
            median(&mut beside),
            median(&mut rates),
            held(goal, ratio)
        );
    }
    Ok(())
}

fn serve(folder: &Path, name: &str, target: &str) -> anyhow::Result<Peer> {
    let socket = folder.join(format!("{name}.sock"));
    let mut command = nigh()?;
    command.args(["serve", "--memory", "512M", "--policy", "lirs", "--read-only", "--log", "warn"]);
    command.arg("--listen").arg(format!("unix:{}", socket.display())).arg(format!("disk={target}"));
    Peer::start(&mut command, &socket)
}

fn nbdkit(folder: &Path, name: &str, what: impl FnOnce(&mut Command) -> &mut Command) -> anyhow::Result<Peer> {
    let socket = folder.join(format!("nbdkit-{name}.sock"));
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket);
    what(&mut command);
    Peer::start(&mut command, &socket).context("nbdkit is in Debian's package nbdkit")
}

fn qemu_nbd(folder: &Path, image: &Path) -> anyhow::Result<Peer> {
    let socket = folder.join("qemu-nbd.sock");
    let mut command = Command::new("qemu-nbd");
    command.args(["--format=raw", "--read-only", "--persistent", "--shared=0", "--aio=io_uring", "--cache=writeback"]);
    command.arg("--socket").arg(&socket).arg(image);
    Peer::start(&mut command, &socket).context("qemu-nbd is in Debian's package qemu-utils")
}
