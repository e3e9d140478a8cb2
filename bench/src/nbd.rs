//! `nigh serve` against nbdkit, qemu-nbd and an earlier build of itself: hits, and hits beside another client's misses.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::load::{Connection, Found, Order, Reads, all_cached, stamp, write_stamped};
use crate::measure::{load as machine_load, median, nigh};
use crate::peers::{CLIENTS, Peer, SERVERS};

/// Bytes that are read again and again; every server has all of them in memory.
const HOT: u64 = 128 << 20;
/// The disk behind the delay; what lies beyond `HOT` is read once.
const DELAYED: u64 = 16 << 30;
const DELAY_MS: u32 = 5;
/// Requests on their way from the client that misses.
const MISSES: usize = 4;

/// A figure: of each server one.
struct Row {
    load: Load,
    figure: Figure,
    name: &'static str,
    digits: usize,
    /// Goal of the ratio of nigh to nbdkit's memory plugin, if there is any.
    goal: Option<f64>,
}

impl Row {
    fn goal(&self) -> Option<Goal> {
        Some(Goal { better: self.figure.better(), bound: self.goal? })
    }

    /// Of the ratio to an earlier build.
    fn no_worse(&self) -> Goal {
        let better = self.figure.better();
        let bound = match better {
            Better::Lower => 1.0 + SLACK,
            Better::Higher => 1.0 - SLACK,
        };
        Goal { better, bound }
    }
}

#[derive(Clone, Copy)]
enum Figure {
    P50,
    Hits,
    Megabytes,
    Processor,
}

impl Figure {
    fn better(self) -> Better {
        match self {
            Figure::P50 | Figure::Processor => Better::Lower,
            Figure::Hits | Figure::Megabytes => Better::Higher,
        }
    }

    /// Of reads that were `length` bytes long, and the server's processor time meanwhile.
    fn of(self, found: &mut Found, length: u64, processor: Duration) -> f64 {
        match self {
            Figure::P50 => found.p50_us(),
            Figure::Hits => found.per_second(),
            Figure::Megabytes => found.per_second() * length as f64 / 1e6,
            Figure::Processor => processor.as_secs_f64() * 1e6 / found.latencies_ns.len() as f64,
        }
    }
}

#[derive(Clone, Copy)]
enum Better {
    Lower,
    Higher,
}

/// A bound of a ratio.
#[derive(Clone, Copy)]
struct Goal {
    better: Better,
    bound: f64,
}

impl Goal {
    fn is_held(self, ratio: f64) -> &'static str {
        let holds = match self.better {
            Better::Lower => ratio <= self.bound,
            Better::Higher => ratio >= self.bound,
        };
        if holds { "yes" } else { "no" }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.better {
            Better::Lower => "<=",
            Better::Higher => ">=",
        };
        to.pad(&format!("{sign} {}", self.bound))
    }
}

/// After this many rounds, the servers are started anew, in the opposite order: with one start, two runs of the same two builds
/// differed by 10 %.
const ROUNDS_A_START: usize = 2;

/// Length of reads of `HOT`, their order, and how many are asked for at a time.
type Load = (u64, Order, usize);

const ALONE: Load = (4096, Order::Random, 1);
const DEEP: Load = (4096, Order::Random, 16);
const LARGE: Load = (64 << 10, Order::Sequential, 1);
const LARGE_DEEP: Load = (64 << 10, Order::Sequential, 16);
const LOADS: [Load; 4] = [ALONE, DEEP, LARGE, LARGE_DEEP];

const ROWS: [Row; 7] = [
    Row { load: ALONE, figure: Figure::P50, name: "4 KiB one at a time: p50, us", digits: 2, goal: Some(1.0) },
    Row { load: ALONE, figure: Figure::Processor, name: "  server's processor us a hit", digits: 2, goal: Some(0.8) },
    Row { load: DEEP, figure: Figure::Hits, name: "4 KiB 16 at a time: hits/s", digits: 0, goal: Some(1.3) },
    Row { load: DEEP, figure: Figure::Processor, name: "  server's processor us a hit", digits: 2, goal: Some(0.8) },
    Row {
        load: LARGE,
        figure: Figure::Megabytes,
        name: "64 KiB sequential, one at a time: MB/s",
        digits: 0,
        goal: None,
    },
    Row {
        load: LARGE_DEEP,
        figure: Figure::Megabytes,
        name: "64 KiB sequential, 16 at a time: MB/s",
        digits: 0,
        goal: Some(1.2),
    },
    Row { load: LARGE_DEEP, figure: Figure::Processor, name: "  server's processor us a hit", digits: 2, goal: None },
];

/// How much worse than an earlier build a figure may be, in shares of it.
const SLACK: f64 = 0.03;

/// With `before`, that build of nigh takes its turns beside this one.
pub(crate) fn run(rounds: usize, how_long: Duration, before: Option<&Path>) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir()?;
    println!("servers on processor {SERVERS}, clients on processor {CLIENTS}, Unix sockets; load {}", machine_load());
    hits(folder.path(), rounds, how_long, before)?;
    println!();
    beside_misses(folder.path(), rounds, how_long, before)
}

/// The order in which this many servers are started before this round.
fn started(count: usize, round: usize) -> Vec<usize> {
    match (round / ROUNDS_A_START).is_multiple_of(2) {
        true => (0..count).collect(),
        false => (0..count).rev().collect(),
    }
}

fn hits(folder: &Path, rounds: usize, how_long: Duration, before: Option<&Path>) -> anyhow::Result<()> {
    let image = folder.join("image");
    let file = std::fs::File::create(&image)?;
    stamp(&file, 0..HOT)?;
    file.sync_all()?;
    let names = ["nigh", "nbdkit memory", "nbdkit file", "qemu-nbd"];
    let target = image.to_str().context("a temporary folder's name is UTF-8")?;
    let count = names.len() + usize::from(before.is_some());
    let start = |round: usize| {
        let folder = tempfile::tempdir_in(folder)?;
        let start = |at: usize| {
            let peer = match at {
                0 => serve(nigh()?, folder.path(), "nigh", target)?,
                1 => nbdkit(folder.path(), "memory", |command| command.arg("memory").arg(HOT.to_string()))?,
                2 => nbdkit(folder.path(), "file", |command| command.args(["--readonly", "file"]).arg(&image))?,
                3 => qemu_nbd(folder.path(), &image)?,
                _ => serve(Command::new(before.context("one more server")?), folder.path(), "before", target)?,
            };
            if at == 1 {
                write_stamped(&peer.socket, 0..HOT)?;
            }
            let mut connection = Connection::open(&peer.socket)?;
            connection.read_all(0..HOT)?;
            anyhow::Ok((at, peer, connection))
        };
        let mut servers = started(count, round).into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        servers.sort_unstable_by_key(|(at, ..)| *at);
        ensure!(all_cached(&servers[0].1.socket, 0..HOT)?, "nigh has not all in its cache");
        anyhow::Ok(servers)
    };

    // By row, server and round.
    let mut figures = vec![vec![Vec::new(); count]; ROWS.len()];
    let mut servers = Vec::new();
    for round in 0..rounds {
        if round % ROUNDS_A_START == 0 {
            servers.clear();
            servers = start(round)?;
        }
        // The two builds follow each other with each load, and nobody is always behind the same one.
        let mut turns: Vec<usize> = (names.len()..count).chain(0..names.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for load in LOADS {
            let (length, order, depth) = load;
            let reads = Reads { range: 0..HOT, length, order, depth };
            for &at in &turns {
                let (_, peer, connection) = &mut servers[at];
                let before = peer.cpu()?;
                let mut found = connection.read_for(&reads, how_long)?;
                let processor = peer.cpu()? - before;
                for (row, figures) in ROWS.iter().zip(&mut figures).filter(|(row, _)| row.load == load) {
                    figures[at].push(row.figure.of(&mut found, length, processor));
                }
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
        let ratio = median(&mut ratios(&figures[0], &figures[1]));
        // Sorted copies: the rounds stay in their order for the comparison with an earlier build.
        let medians: Vec<String> =
            figures.iter().map(|rounds| format!("{:.*}", row.digits, median(&mut rounds.clone()))).collect();
        println!(
            "{:40}{:>10}{:>15}{:>13}{:>10}{ratio:>8.2}{:>9}  {}",
            row.name,
            medians[0],
            medians[1],
            medians[2],
            medians[3],
            row.goal().map_or("-".to_owned(), |goal| goal.to_string()),
            row.goal().map_or("-", |goal| goal.is_held(ratio))
        );
    }
    if before.is_some() {
        println!(
            "\n{:40}{:>10}{:>10}{:>8}{:>9}  held",
            "this build against the one before", "this", "before", "ratio", "goal"
        );
        for (row, figures) in ROWS.iter().zip(&mut figures) {
            let goal = row.no_worse();
            let ratio = median(&mut ratios(&figures[0], &figures[names.len()]));
            println!(
                "{:40}{:>10.*}{:>10.*}{ratio:>8.3}{goal:>9}  {}",
                row.name,
                row.digits,
                median(&mut figures[0]),
                row.digits,
                median(&mut figures[names.len()]),
                goal.is_held(ratio)
            );
        }
    }
    Ok(())
}

/// Of two servers' figures, round by round.
fn ratios(own: &[f64], other: &[f64]) -> Vec<f64> {
    own.iter().zip(other).map(|(own, other)| own / other).collect()
}

/// A client that hits, alone and while another one misses.
fn beside_misses(folder: &Path, rounds: usize, how_long: Duration, before: Option<&Path>) -> anyhow::Result<()> {
    let image = folder.join("delayed");
    let file = std::fs::File::create(&image)?;
    file.set_len(DELAYED)?;
    let hot = 0..HOT / 2;
    stamp(&file, hot.clone())?;
    let target = format!("delay:{DELAY_MS}ms:{}", image.display());
    let delay = format!("rdelay={DELAY_MS}ms");
    let names = ["nigh", "nbdkit --filter=cache --filter=delay", "nigh before"];
    let names = &names[..if before.is_some() { 3 } else { 2 }];
    let start = |round: usize| {
        let folder = tempfile::tempdir_in(folder)?;
        let start = |at: usize| {
            let peer = match at {
                0 => serve(nigh()?, folder.path(), "nigh", &target)?,
                1 => nbdkit(folder.path(), "cache", |command| {
                    command
                        .args(["--filter=cache", "--filter=delay", "file"])
                        .arg(&image)
                        .args([&delay, "cache-on-read=true"])
                })?,
                _ => serve(Command::new(before.context("one more server")?), folder.path(), "before", &target)?,
            };
            let mut hitting = Connection::open(&peer.socket)?;
            hitting.read_all(hot.clone())?;
            let has_all = at == 1 || all_cached(&peer.socket, hot.clone())?;
            ensure!(has_all, "{} has not all in its cache", names[at]);
            let missing = Connection::open(&peer.socket)?;
            Ok((at, Pair { hitting, missing, _server: peer }))
        };
        let mut pairs = started(names.len(), round).into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        pairs.sort_unstable_by_key(|(at, _)| *at);
        anyhow::Ok(pairs)
    };
    println!(
        "4 KiB hits one at a time, p50 in us, alone and while a second client misses {MISSES} at a time on a disk that"
    );
    println!("takes {DELAY_MS} ms; medians of {rounds} rounds of {} s, in turns", how_long.as_secs_f64());
    println!("{:40}{:>10}{:>15}{:>13}{:>18}{:>9}  held", "", "alone", "beside misses", "misses/s", "ratio", "goal");
    let mut figures: Vec<[Vec<f64>; 3]> = names.iter().map(|_| Default::default()).collect();
    let mut clients = Vec::new();
    for round in 0..rounds {
        if round % ROUNDS_A_START == 0 {
            clients.clear();
            clients = start(round)?;
        }
        for ((_, pair), figures) in clients.iter_mut().zip(&mut figures) {
            for (figure, figures) in pair.measure(&hot, how_long)?.into_iter().zip(figures) {
                figures.push(figure);
            }
        }
    }
    let goal = Goal { better: Better::Lower, bound: 1.5 };
    for (name, [alone, beside, rate]) in names.iter().zip(&mut figures.clone()) {
        let ratio = median(&mut ratios(beside, alone));
        println!(
            "{name:40}{:>10.2}{:>15.2}{:>13.0}{ratio:>18.2}{goal:>9}  {}",
            median(alone),
            median(beside),
            median(rate),
            goal.is_held(ratio)
        );
    }
    if before.is_some() {
        let goal = Goal { better: Better::Lower, bound: 1.0 + SLACK };
        for (name, at) in [("alone", 0), ("beside misses", 1)] {
            let ratio = median(&mut ratios(&figures[0][at], &figures[2][at]));
            println!("this build against the one before, {name:>14}{ratio:>48.3}{goal:>9}  {}", goal.is_held(ratio));
        }
    }
    Ok(())
}

/// Two clients of one server.
struct Pair {
    hitting: Connection,
    missing: Connection,
    _server: Peer,
}

impl Pair {
    /// The median latency of a hit alone and beside misses in microseconds, and the rate of the misses.
    fn measure(&mut self, hot: &Range<u64>, how_long: Duration) -> anyhow::Result<[f64; 3]> {
        let hits = Reads { range: hot.clone(), length: 4096, order: Order::Random, depth: 1 };
        let misses = Reads { range: HOT..DELAYED, length: 4096, order: Order::Random, depth: MISSES };
        let alone = self.hitting.read_for(&hits, how_long)?.p50_us();
        let over = AtomicBool::new(false);
        let (hit, missed) = std::thread::scope(|scope| {
            let missing = scope.spawn(|| self.missing.read_until(&misses, |_, _| over.load(Ordering::Relaxed)));
            let hit = self.hitting.read_for(&hits, how_long);
            over.store(true, Ordering::Relaxed);
            (hit, missing.join().expect("a client does not panic"))
        });
        Ok([alone, hit?.p50_us(), missed?.per_second()])
    }
}

fn serve(mut command: Command, folder: &Path, name: &str, target: &str) -> anyhow::Result<Peer> {
    let socket = folder.join(format!("{name}.sock"));
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
