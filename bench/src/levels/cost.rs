//! Cost of a level: hits in memory while blocks are demoted below it, and the processor time of a retrieve of a level server.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_service::{ControlClient, Statistics};

use super::remote::{LevelConnection, LevelProcess};
use crate::load::{Connection, Order, Reads, all_cached, stamp};
use crate::measure::{load, median, nigh};
use crate::neighbours::Turn;
use crate::peers::{CLIENTS, Peer, SERVERS};

const BLOCK: u64 = 4096;
/// Read again and again: it stays in memory.
const HOT: u64 = 8 << 20;
/// Read at random beside it: most of it is not in memory.
const DISK: u64 = 192 << 20;
const MEMORY: &str = "32M";
const LEVEL: &str = "160M";
/// Blocks of the rest of the disk that are read each second. As many leave memory.
const DEMOTIONS: u64 = 2000;
/// Hits of a server whose blocks are all in memory, and retrieves.
const ALL: u64 = 32 << 20;
/// How much longer hits may take with a level, and how much more processor time a retrieve may take than a hit.
const GOAL: f64 = 1.2;

pub(crate) fn run(rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!("servers on processor {SERVERS}, clients on processor {CLIENTS}; load {}", load());
    let folder = tempfile::tempdir()?;
    hits(folder.path(), rounds, how_long)?;
    println!();
    retrieves(folder.path(), rounds, how_long)
}

fn held(ratio: f64) -> &'static str {
    if ratio <= GOAL { "yes" } else { "no" }
}

/// Starts a process that gives way to servers and clients, as if it had processors of its own.
fn as_another_host<T: Send>(start: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let begin = move || {
        Turn::Last.take()?;
        start()
    };
    std::thread::scope(|scope| scope.spawn(begin).join().expect("it does not panic"))
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server of `image` with or without a level.
struct Cache {
    peer: Peer,
    control: std::path::PathBuf,
    hits: Connection,
    misses: Connection,
}

impl Cache {
    fn start(folder: &Path, image: &Path, name: &str, level: Option<&str>) -> anyhow::Result<Cache> {
        let (socket, control) = (folder.join(format!("{name}.socket")), folder.join(format!("{name}.control")));
        let mut serve = nigh()?;
        serve.args([
            "serve",
            "--readahead",
            "none",
            "--memory",
            MEMORY,
            "--policy",
            "lru",
            "--shards",
            "1",
            "--log",
            "error",
            "--read-only",
        ]);
        serve.arg(format!("={}", image.display())).arg("--control").arg(&control);
        serve.arg("--listen").arg(format!("unix:{}", socket.display()));
        level.iter().for_each(|level| {
            serve.args(["--level", level]);
        });
        let peer = Peer::start(&mut serve, &socket)?;
        let (mut hits, mut misses) = (Connection::open(&socket)?, Connection::open(&socket)?.seeded(7));
        // The level has what memory does not.
        misses.read_all(HOT..DISK)?;
        hits.read_all(0..HOT)?;
        Ok(Cache { peer, control, hits, misses })
    }

    fn status(&self) -> anyhow::Result<Statistics> {
        Ok(ControlClient::connect(&self.control)?.status()?)
    }
}

/// Of a server in one round.
struct Round {
    p50_us: f64,
    p99_us: f64,
    stores_per_s: f64,
    level_hits_per_s: f64,
    missed: u64,
}

fn hits(folder: &Path, rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    let image = folder.join("image");
    stamp(&std::fs::File::create(&image)?, 0..DISK)?;
    let lender = as_another_host(|| LevelProcess::start("512M"))?;
    let file = format!("file:{}:{LEVEL}", folder.join("level").display());
    let remote = format!("tcp:127.0.0.1:{}:{LEVEL}", lender.port);
    let levels = [("no level", None), ("--level file:", Some(file.as_str())), ("--level tcp:", Some(remote.as_str()))];
    let mut caches = Vec::new();
    for (name, level) in levels {
        caches.push(Cache::start(folder, &image, &name.replace([' ', ':'], ""), level)?);
    }
    let mut figures: Vec<Vec<Round>> = levels.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..levels.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            figures[at].push(measure(&mut caches[at], how_long)?);
        }
    }
    println!(
        "hits of 4 KiB, one at a time, while {DEMOTIONS} other blocks a second are read that are not in memory ({MEMORY} of {} MiB);\n\
         medians of {rounds} rounds of {} s; ratios to no level, round by round",
        DISK >> 20,
        how_long.as_secs_f64()
    );
    println!(
        "{:16}{:>9}{:>9}{:>9}{:>9}{:>9}  {:6}{:>11}{:>12}{:>9}",
        "", "p50, us", "ratio", "p99, us", "ratio", "goal", "held", "stored/s", "of level/s", "misses"
    );
    for (at, (name, _)) in levels.iter().enumerate() {
        let of = |value: fn(&Round) -> f64| figures[at].iter().map(value).collect::<Vec<f64>>();
        let ratio = |value: fn(&Round) -> f64| {
            median(
                &mut figures[at]
                    .iter()
                    .zip(&figures[0])
                    .map(|(own, none)| value(own) / value(none))
                    .collect::<Vec<_>>(),
            )
        };
        let (p50, p99) = (ratio(|round| round.p50_us), ratio(|round| round.p99_us));
        let (goal, is_held) = if at == 0 { ("-".to_owned(), "-") } else { (format!("<= {GOAL}"), held(p50.max(p99))) };
        println!(
            "{name:16}{:>9.1}{p50:>9.3}{:>9.1}{p99:>9.3}{goal:>9}  {is_held:6}{:>11.0}{:>12.0}{:>9}",
            median(&mut of(|round| round.p50_us)),
            median(&mut of(|round| round.p99_us)),
            median(&mut of(|round| round.stores_per_s)),
            median(&mut of(|round| round.level_hits_per_s)),
            figures[at].iter().map(|round| round.missed).sum::<u64>(),
        );
    }
    caches.into_iter().try_for_each(|cache| cache.peer.end())
}

/// Hits, while another client reads the rest of the disk at a steady rate.
fn measure(cache: &mut Cache, how_long: Duration) -> anyhow::Result<Round> {
    let before = cache.status()?;
    let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let (hits, misses) = (&mut cache.hits, &mut cache.misses);
    let found = std::thread::scope(|scope| {
        let (over, read) = (&over, &read);
        let other = scope.spawn(move || {
            let begun = Instant::now();
            let reads = Reads { range: HOT..DISK, length: BLOCK, order: Order::Random, depth: 4 };
            while !over.load(Ordering::Acquire) {
                let due = (begun.elapsed().as_secs_f64() * DEMOTIONS as f64) as u64;
                let count = due - read.load(Ordering::Relaxed);
                if count > 0 {
                    misses.read_until(&reads, |_, asked| asked >= count)?;
                    read.fetch_add(count, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            anyhow::Ok(())
        });
        // Memory and the level are as they will stay.
        std::thread::sleep(Duration::from_millis(200));
        let reads = Reads { range: 0..HOT, length: BLOCK, order: Order::Random, depth: 1 };
        let found = hits.read_for(&reads, how_long);
        over.store(true, Ordering::Release);
        other.join().expect("it does not panic")?;
        found
    })?;
    let after = cache.status()?;
    let seconds = (how_long + Duration::from_millis(200)).as_secs_f64();
    let level = |status: &Statistics| status.host.levels.first().map_or((0, 0), |level| (level.stores, level.hits));
    let ((stores, hits), (stores_before, hits_before)) = (level(&after), level(&before));
    let disk = |status: &Statistics| status.exports[0].disk.misses + status.exports[0].disk.joined;
    let missed = (disk(&after) - disk(&before)).saturating_sub(read.into_inner());
    let mut times = found.latencies_ns;
    let mut percentile = |share: usize| {
        let at = (times.len() * share / 100).min(times.len() - 1);
        *times.select_nth_unstable(at).1 as f64 / 1e3
    };
    Ok(Round {
        p50_us: percentile(50),
        p99_us: percentile(99),
        stores_per_s: (stores - stores_before) as f64 / seconds,
        level_hits_per_s: (hits - hits_before) as f64 / seconds,
        missed,
    })
}

fn retrieves(folder: &Path, rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    let (image, socket, port) = (folder.join("all"), folder.join("all.socket"), free_port()?);
    stamp(&std::fs::File::create(&image)?, 0..ALL)?;
    let mut serve = nigh()?;
    serve
        .args(["serve", "--readahead", "none", "--memory", "128M", "--read-only", "--log", "error"])
        .arg(format!("={}", image.display()));
    serve.arg("--listen").arg(format!("unix:{}", socket.display()));
    serve.arg("--listen").arg(format!("tcp:127.0.0.1:{port}"));
    let cache = Peer::start(&mut serve, &socket)?;
    let mut hits = Connection::over_tcp(port)?;
    hits.read_all(0..ALL)?;
    ensure!(all_cached(&socket, 0..ALL)?, "nigh has not all in its cache");
    let lender = LevelProcess::start_pinned("64M")?;
    let mut level = LevelConnection::open(lender.port)?;
    level.fill(ALL / BLOCK)?;
    println!(
        "4 KiB over TCP on this machine, all in memory; processor time of the server; medians of {rounds} rounds of {} s",
        how_long.as_secs_f64()
    );
    println!("{:20}{:>14}{:>14}{:>9}{:>9}  held", "us", "an NBD hit", "a retrieve", "ratio", "goal");
    for depth in [1, 16] {
        let (mut of_hits, mut of_retrieves, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let before = cache.cpu()?;
            let reads = Reads { range: 0..ALL, length: BLOCK, order: Order::Random, depth };
            let count = hits.read_for(&reads, how_long)?.latencies_ns.len();
            let hit = (cache.cpu()? - before).as_secs_f64() * 1e6 / count as f64;
            let before = lender.cpu()?;
            let count = level.retrieve_for(depth, how_long).context("the level server")?;
            let retrieve = (lender.cpu()? - before).as_secs_f64() * 1e6 / count as f64;
            of_hits.push(hit);
            of_retrieves.push(retrieve);
            ratios.push(retrieve / hit);
        }
        let ratio = median(&mut ratios);
        println!(
            "{:20}{:>14.2}{:>14.2}{ratio:>9.3}{:>9}  {}",
            format!("{depth} at a time"),
            median(&mut of_hits),
            median(&mut of_retrieves),
            format!("<= {GOAL}"),
            held(ratio)
        );
    }
    cache.end()
}
