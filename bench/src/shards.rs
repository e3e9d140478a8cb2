//! The price of one lock for all clients: `nigh serve` with one shard and with several on all processors of this machine,
//! and a model of machines with more.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_engine::{Config, Outcome};

use crate::engine::{BLOCK, ask, read, with_disk};
use crate::load::{Connection, Order, Reads};
use crate::measure::{load as machine_load, median, nigh};
use crate::peers::Peer;

/// Bytes that are read again and again.
const HOT: u64 = 64 << 20;
/// Connections, each with this many reads on their way.
const CONNECTIONS: usize = 4;
const DEPTH: usize = 16;
/// Goal of one shard's cost on this machine.
const GOAL: f64 = 1.10;

/// Servers: shards, and further arguments.
const SERVERS: [(&str, &[&str]); 3] = [
    ("1 shard, lru", &["--shards", "1", "--policy", "lru"]),
    ("8 shards, lru", &["--shards", "8", "--policy", "lru"]),
    ("1 shard, tenants", &["--allocate", "lru-sp"]),
];

pub(crate) fn run(rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let processors = available_parallelism().map_or(1, usize::from);
    println!("servers and clients on {processors} processors, Unix sockets; load {}", machine_load());
    let folder = tempfile::tempdir()?;
    let peers = (0..SERVERS.len()).map(|at| serve(folder.path(), at)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut figures = vec![[Vec::new(), Vec::new()]; peers.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let at = if round % 2 == 0 { turn } else { peers.len() - 1 - turn };
            let (rate, cpu_us) = hits(&peers[at], how_long)?;
            figures[at][0].push(rate);
            figures[at][1].push(cpu_us);
        }
    }
    println!(
        "4 KiB hits, {CONNECTIONS} connections with {DEPTH} each; medians of {rounds} rounds of {} s, ratios round by round",
        how_long.as_secs_f64()
    );
    println!("{:20}{:>10}{:>16}{:>12}{:>14}", "", "hits/s", "processor us", "of 8: rate", "of 8: us");
    let mut service_us = 0.0;
    let eight = figures[1].clone();
    for ((name, _), figures) in SERVERS.iter().zip(&mut figures) {
        let [rate, cpu] = [0, 1].map(|at| {
            let mut ratios: Vec<f64> = figures[at].iter().zip(&eight[at]).map(|(own, eight)| own / eight).collect();
            (median(&mut figures[at].clone()), median(&mut ratios))
        });
        println!("{name:20}{:>10.0}{:>16.2}{:>12.2}{:>14.2}", rate.0, cpu.0, rate.1, cpu.1);
        if *name == SERVERS[0].0 {
            service_us = cpu.0;
            println!("{:20}one shard costs at most {GOAL:.2} times: {}", "", if cpu.1 <= GOAL { "yes" } else { "no" });
        }
    }
    let locked_us = locked_us()?;
    println!();
    println!(
        "under the lock a hit takes {locked_us:.3} us of {service_us:.2}; by mean value analysis of processors that take"
    );
    println!("turns at so many locks, all of them hitting as fast as they can (rate, of that without any lock):");
    println!("{:>12}{:>10}{:>10}{:>10}{:>10}", "processors", "1 lock", "2", "4", "8");
    for processors in [2, 4, 8, 16, 32, 64] {
        let rates =
            [1, 2, 4, 8].map(|locks| format!("{:>10.2}", share_of_ideal(processors, locks, locked_us, service_us)));
        println!("{processors:>12}{}", rates.concat());
    }
    Ok(())
}

fn serve(folder: &Path, at: usize) -> anyhow::Result<Peer> {
    let socket = folder.join(format!("{at}.sock"));
    let mut command = nigh()?;
    command.args(["serve", "--memory", "256M", "--log", "warn"]).args(SERVERS[at].1);
    command.arg("--listen").arg(format!("unix:{}", socket.display())).arg(format!("disk=memory:{HOT}B"));
    let peer = Peer::unpinned(&mut command, &socket)?;
    Connection::open(&peer.socket)?.read_all(0..HOT)?;
    Ok(peer)
}

/// Hits a second of all connections together, and the server's processor time of each in µs.
fn hits(peer: &Peer, how_long: Duration) -> anyhow::Result<(f64, f64)> {
    let reads = Reads { range: 0..HOT, length: BLOCK, order: Order::Random, depth: DEPTH };
    let mut connections = Vec::new();
    for number in 1..=CONNECTIONS as u64 {
        connections.push(Connection::open(&peer.socket)?.seeded(number));
    }
    let before = peer.cpu()?;
    let found = std::thread::scope(|scope| {
        let reads = &reads;
        let threads: Vec<_> = connections
            .iter_mut()
            .map(|connection| scope.spawn(move || connection.read_for(reads, how_long)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("a client does not panic"));
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let cpu = peer.cpu()? - before;
    let rate = found.iter().map(|found| found.per_second()).sum();
    let count: usize = found.iter().map(|found| found.latencies_ns.len()).sum();
    Ok((rate, cpu.as_secs_f64() * 1e6 / count as f64))
}

/// Time of a hit under the lock, in µs: the calls of an engine, without those of a lock.
fn locked_us() -> anyhow::Result<f64> {
    const HITS: u64 = 2_000_000;
    let blocks = HOT / BLOCK;
    let mut engine = with_disk(Config::new(blocks as u32, "lru".parse()?), HOT)?;
    (0..blocks).try_for_each(|block| read(&mut engine, block))?;
    let mut random = 1_u64;
    let begin = Instant::now();
    for _ in 0..HITS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let reply = ask(&mut engine, (random >> 33) % blocks)?.context("all is cached")?;
        ensure!(matches!(reply.outcome, Outcome::Data(_)), "a hit has its data");
        ensure!(engine.next_reply().is_none() && engine.next_operation(0).is_none(), "a hit has no consequences");
        std::hint::black_box(engine.next_wakeup());
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / HITS as f64)
}

/// The rate of `processors` that do hits of `service_us`, of which `locked_us` under one of `locks`, in proportion to the
/// rate that they would have without locks: mean value analysis of a closed queueing network with exponential times.
fn share_of_ideal(processors: usize, locks: usize, locked_us: f64, service_us: f64) -> f64 {
    let visits = 1.0 / locks as f64;
    let (mut queue, mut rate) = (0.0, 0.0);
    for count in 1..=processors {
        let locked = locked_us * (1.0 + queue);
        rate = count as f64 / (service_us - locked_us + locked);
        queue = rate * visits * locked;
    }
    rate * service_us / processors as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_bounds_the_rate() {
        assert!((share_of_ideal(1, 1, 0.3, 3.0) - 1.0).abs() < 1e-9);
        // 100 processors at a lock that takes a tenth: ten at most are busy.
        let share = share_of_ideal(100, 1, 0.3, 3.0);
        assert!((0.095..=0.1).contains(&share), "{share}");
        assert!(share_of_ideal(16, 4, 0.3, 3.0) > share_of_ideal(16, 1, 0.3, 3.0));
    }
}
