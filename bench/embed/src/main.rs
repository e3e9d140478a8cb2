//! Hits inside a program, by one thread and by several: nigh, from Rust and from C, beside quick_cache, foyer and moka, and how often nigh takes a shard's lock.
//!
//! A hit gives the thread a handle of a block of 4 KiB, and none of its bytes is copied, except in the marked lines of nigh. All blocks are in
//! memory, so the caches evict nothing. `keyed.rs` measures caches of values by key, by one thread.

#![allow(clippy::print_stdout, reason = "its results")]

mod c;
mod keyed;
mod nigh;
mod peers;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;

const BLOCK: usize = 4096;
/// Blocks that are read again and again, at random.
const HOT: u64 = 8192;
/// Blocks that fit into the cache.
const ROOM: u64 = 2 * HOT;
/// Threads.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// The most times that nigh may take a lock for 1,000 hits.
const LOCKED_MOST: f64 = 20.0;
/// The most ns that a hit from C may take longer.
const PRICE_MOST: f64 = 30.0;
/// Hits between two readings of the clock.
const LOT: u64 = 1000;

#[derive(Parser)]
#[command(about = "Caches inside a program: nigh beside quick_cache, foyer, moka and lru")]
struct Options {
    /// Caches of blocks, caches of values by key, or both
    #[arg(long, value_delimiter = ',', default_value = "blocks,keyed")]
    part: Vec<Part>,
    /// Policies of nigh
    #[arg(long, value_delimiter = ',', default_value = "lirs,clock,s3-fifo")]
    policy: Vec<String>,
    /// Rounds; in each, the caches take their turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each turn is
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Blocks,
    Keyed,
}

/// A cache that has all blocks.
trait Cache: Sync {
    fn name(&self) -> String;

    /// Hits blocks until `stop`, each time `LOT`, as client `number`; returns the number of hits.
    fn hit(&self, number: u64, stop: &AtomicBool) -> u64;

    /// The most ns that a hit may take with the threads of this position in `THREADS`.
    fn goal(&self, _at: usize) -> Option<f64> {
        None
    }

    /// Number of times that a lock was taken, if that is counted.
    fn locked(&self) -> Option<u64> {
        None
    }
}

#[derive(Default)]
struct Figures {
    ns: Vec<f64>,
    locked: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let Options { part, policy, rounds, seconds } = Options::parse();
    let turn = Duration::try_from_secs_f64(seconds)?;
    ensure!(rounds > 0, "a median needs a round");
    if part.contains(&Part::Blocks) {
        blocks(&policy, rounds, turn)?;
    }
    if part.contains(&Part::Keyed) {
        keyed::run(&policy, rounds, turn)?;
    }
    Ok(())
}

/// Prints the hits of 4 KiB of each cache.
fn blocks(policies: &[String], rounds: usize, turn: Duration) -> anyhow::Result<()> {
    let mut caches = peers::all();
    for policy in policies {
        caches.extend(nigh::Nigh::start(policy)?.map(|nigh| Box::new(nigh) as Box<dyn Cache>));
        caches.push(Box::new(c::C::start(policy)?));
    }
    println!("hits of 4 KiB inside a program; {}", circumstances(rounds, turn));
    println!("{:20}{:>8}{:>10}{:>10}{:>6}{:>24}", "", "threads", "ns a hit", "goal", "", "locked in 1,000 hits");
    let mut figures: Vec<[Figures; THREADS.len()]> = caches.iter().map(|_| Default::default()).collect();
    for round in 0..rounds {
        for at in 0..caches.len() {
            let at = if round % 2 == 0 { at } else { caches.len() - 1 - at };
            for (threads, figures) in THREADS.iter().zip(&mut figures[at]) {
                let (ns, locked) = measure(&*caches[at], *threads, turn);
                figures.ns.push(ns);
                figures.locked.extend(locked);
            }
        }
    }
    for (cache, figures) in caches.iter().zip(&mut figures) {
        for (at, (threads, Figures { ns, locked })) in THREADS.iter().zip(figures).enumerate() {
            let ns = median(ns);
            let (mut most, mut held, mut locks) = (String::new(), "", String::new());
            if !locked.is_empty() {
                let locked = median(locked);
                locks = format!("{locked:.1}");
                if let Some(goal) = cache.goal(at) {
                    most = format!("<= {goal}");
                    held = if ns <= goal && locked <= LOCKED_MOST { "yes" } else { "no" };
                }
            }
            println!("{:20}{threads:>8}{ns:>10.0}{most:>10}{held:>6}{locks:>24}", cache.name());
        }
    }
    for policy in policies {
        let (ns, more) = c::price(policy)?;
        let held = if more <= PRICE_MOST { "yes" } else { "no" };
        println!(
            "nigh {policy}: few blocks are hit in {ns:.0} ns, and in C in {more:.0} ns more; goal <= {PRICE_MOST}: {held}"
        );
    }
    Ok(())
}

/// How the figures come about.
fn circumstances(rounds: usize, turn: Duration) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    format!("medians of {rounds} rounds of {} s; load {load} on {} processors", turn.as_secs_f64(), processors())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time of a hit in ns if this many threads hit as fast as they can, and how often a lock was taken for 1,000 hits.
fn measure(cache: &dyn Cache, threads: usize, turn: Duration) -> (f64, Option<f64>) {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = cache.locked();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..threads as u64 {
            let (stop, count) = (&stop, &count);
            scope.spawn(move || count.fetch_add(cache.hit(number, stop), Ordering::Relaxed));
        }
        std::thread::sleep(turn);
        stop.store(true, Ordering::Relaxed);
    });
    let (ns, count) = (begin.elapsed().as_nanos() as f64, count.into_inner() as f64);
    let locked = cache.locked().zip(before).map(|(now, before)| 1000.0 * (now - before) as f64 / count);
    // With more threads than processors, a thread that does not run hits nothing.
    (ns * threads.min(processors()) as f64 / count, locked)
}

/// Calls `hit` with random blocks, `LOT` times between two checks of `stop`.
fn repeat(number: u64, stop: &AtomicBool, mut hit: impl FnMut(u64)) -> u64 {
    let (mut random, mut hits) = (fastrand::Rng::with_seed(number), 0);
    while !stop.load(Ordering::Relaxed) {
        (0..LOT).for_each(|_| hit(random.u64(..HOT)));
        hits += LOT;
    }
    hits
}
