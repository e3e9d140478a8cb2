//! Hits in this process, by one thread and by several: their times, and how often a shard's lock is taken for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_engine::{Op, Outcome};
use nigh_host::front::{Cache, Client, Submission, Waiter, Work};
use nigh_host::{DiskSettings, Host, Settings};
use nigh_policy::Stream;

use crate::engine::BLOCK;
use crate::measure::{load, median};

/// What is read again and again, at random.
const HOT: u64 = 32 << 20;
/// Threads, and the most ns that a hit may take with them.
const THREADS: [(usize, Option<f64>); 4] = [(1, Some(350.0)), (2, Some(600.0)), (4, None), (8, None)];
/// The most times that a lock may be taken for 1,000 hits.
const LOCKED_MOST: f64 = 20.0;
/// Hits between two looks at the clock.
const LOT: u64 = 1000;

pub(crate) fn run(policies: &[String], rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!(
        "hits of 4 KiB in this process, without a copy of the bytes; medians of {rounds} rounds of {} s; load {}",
        how_long.as_secs_f64(),
        load()
    );
    println!("{:12}{:>8}{:>12}{:>10}{:>8}{:>24}", "", "threads", "ns a hit", "goal", "", "locked in 1,000 hits");
    let hosts = policies.iter().map(|policy| start(policy)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut figures = vec![[const { (Vec::new(), Vec::new()) }; THREADS.len()]; hosts.len()];
    for round in 0..rounds {
        for turn in 0..hosts.len() {
            let at = if round % 2 == 0 { turn } else { hosts.len() - 1 - turn };
            for ((threads, _), (ns, locked)) in THREADS.iter().zip(&mut figures[at]) {
                let found = hits(&hosts[at], *threads, how_long)?;
                ns.push(found.0);
                locked.push(found.1);
            }
        }
    }
    for (policy, figures) in policies.iter().zip(&mut figures) {
        for ((threads, goal), (ns, locked)) in THREADS.iter().zip(figures) {
            let (ns, locked) = (median(ns), median(locked));
            let is_held = |most| if ns <= most && locked <= LOCKED_MOST { "held" } else { "no" };
            let (most, held) = goal.map_or_else(Default::default, |most| (format!("<= {most}"), is_held(most)));
            println!("{policy:12}{threads:>8}{ns:>12.0}{most:>10}{held:>8}{locked:>24.1}");
        }
    }
    hosts.iter().try_for_each(|host| host.shut_down()).map_err(|unwritten| anyhow::anyhow!("{unwritten:?}"))
}

/// A cache that has all of its disk in memory.
fn start(policy: &str) -> anyhow::Result<Host> {
    let disk = DiskSettings::new("disk", format!("memory:{HOT}B").parse()?);
    let host = Host::start(Settings::new(2 * HOT, policy.parse()?, vec![disk]))?;
    let session = host.open("disk")?;
    let mut bytes = vec![0; BLOCK as usize];
    for _ in 0..2 {
        (0..HOT / BLOCK).try_for_each(|block| session.read(block * BLOCK, &mut bytes))?;
    }
    Ok(host)
}

/// Time of a hit in ns if so many threads hit as fast as they can, each a client of its own, and how often a lock was taken for 1,000 hits.
fn hits(host: &Host, threads: usize, how_long: Duration) -> anyhow::Result<(f64, f64)> {
    let (cache, disk) = (host.cache(), host.disk("disk").context("it is open")?);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = cache.acquisitions();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for stream in 0..threads as u64 {
            let (disk, stop, count) = (&disk, &stop, &count);
            scope.spawn(move || {
                let client = cache.client(disk, Stream(stream));
                let (mut work, mut random, mut lots) = (Work::default(), fastrand::Rng::with_seed(stream), 0);
                while !stop.load(Ordering::Relaxed) {
                    (0..LOT).for_each(|_| hit(cache, &client, random.u64(..HOT / BLOCK), &mut work));
                    lots += 1;
                }
                count.fetch_add(lots * LOT, Ordering::Relaxed);
            });
        }
        std::thread::sleep(how_long);
        stop.store(true, Ordering::Relaxed);
    });
    let (ns, count) = (begin.elapsed().as_nanos() as f64, count.into_inner() as f64);
    let locked = (cache.acquisitions() - before) as f64;
    // With more threads than processors, a thread that does not run hits nothing.
    let running = threads.min(std::thread::available_parallelism().map_or(1, usize::from));
    Ok((ns * running as f64 / count, 1000.0 * locked / count))
}

fn hit(cache: &Cache, client: &Client, block: u64, work: &mut Work) {
    let range = block * BLOCK..(block + 1) * BLOCK;
    let submission = Submission { op: Op::Read, range, fua: false };
    let waiter = || -> Arc<dyn Waiter> { unreachable!("all is in memory") };
    let submitted = cache.submit(client, submission, work, waiter).expect("a hit is not refused");
    let Some(Outcome::Data(data)) = submitted.outcome else { unreachable!("all is in memory") };
    std::hint::black_box(data.len());
    work.release(submitted.shard, data);
    cache.dispatch(work, None);
}
