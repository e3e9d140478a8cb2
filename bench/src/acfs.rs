//! The six file systems of ACFS's section 5.2 on its programs, alone and in pairs, in the timed simulation: elapsed times
//! beside those of global LRU with one-block lookahead (figures 4, 5, 8 and 9), and those of each batch size (figure 6).

use anyhow::Context;
use nigh_control::{Allocation, Config, Foresight};
use nigh_engine::Scheduler;
use nigh_sim::acfs::{self, BLOCK_BYTES, Placed, Workload};
use nigh_sim::timed::{Outcome, Setup, run as simulate};

/// 6.4 MB, Ultrix's usual size, and 12 MB, in blocks of 8 KB.
const SIZES: [(u32, &str); 2] = [(819, "6.4 MB"), (1536, "12 MB")];
/// Figure 6.
const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const BATCH: u32 = 16;

/// A configuration of 5.2.
#[derive(Clone, Copy)]
struct FileSystem {
    caching: bool,
    prefetching: bool,
    batch: u32,
}

const fn file_system(caching: bool, prefetching: bool, batch: u32) -> FileSystem {
    FileSystem { caching, prefetching, batch }
}

const FILE_SYSTEMS: [(FileSystem, &str); 6] = [
    (file_system(false, false, 1), "LRU"),
    (file_system(false, true, 1), "LRU+p"),
    (file_system(false, true, BATCH), "LRU+p+s"),
    (file_system(true, false, 1), "AC"),
    (file_system(true, true, 1), "AC+p"),
    (file_system(true, true, BATCH), "AC+p+s"),
];

fn run_one(
    workloads: &[Workload],
    system: FileSystem,
    capacity: u32,
    seed: u64,
    readahead: &nigh_prefetch::Spec,
) -> anyhow::Result<Outcome> {
    let FileSystem { caching, prefetching, batch } = system;
    let placed = Placed::new(workloads, caching, prefetching).context("the files have their places")?;
    let tenants = Config {
        // 5.2: "the kernel uses default LRU for each application's replacement policy".
        foresight: if caching { Foresight::Full } else { Foresight::Fetch },
        allocation: if caching || prefetching { Allocation::LruSp } else { Allocation::Global },
        batch,
        ..Config::default()
    };
    let setup = Setup {
        programs: &placed.programs,
        block_bytes: BLOCK_BYTES,
        disks: &placed.disks(),
        seed,
        readahead,
        scheduler: Scheduler::FirstCome,
        tenants: Some(&tenants),
        progress: None,
    };
    Ok(simulate(&setup, &"lru".parse()?, capacity)?)
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.execution_ns() as f64 / 1e9
}

fn change(of: f64, to: f64) -> f64 {
    100.0 * (of / to - 1.0)
}

/// Prints a line for each of `all`; gives the changes of the last file system.
fn table(
    all: &[(String, Vec<Workload>)],
    capacity: u32,
    seed: u64,
    readahead: &nigh_prefetch::Spec,
) -> anyhow::Result<Vec<f64>> {
    print!("{:14}{:>9}", "", "LRU s");
    FILE_SYSTEMS[1..].iter().for_each(|(_, name)| print!("{name:>9}"));
    println!("   blocks read: {}", FILE_SYSTEMS.map(|(_, name)| name).join(", "));
    let mut best = Vec::new();
    for (name, workloads) in all {
        let outcomes = FILE_SYSTEMS.map(|(system, _)| run_one(workloads, system, capacity, seed, readahead));
        let outcomes = outcomes.into_iter().collect::<anyhow::Result<Vec<Outcome>>>()?;
        let baseline = seconds(&outcomes[0]);
        print!("{name:14}{baseline:>9.1}");
        for outcome in &outcomes[1..] {
            print!("{:>8.1}%", change(seconds(outcome), baseline));
        }
        let blocks = |outcome: &Outcome| outcome.cache.device_read_bytes / u64::from(BLOCK_BYTES);
        let blocks: Vec<String> = outcomes.iter().map(|outcome| blocks(outcome).to_string()).collect();
        println!("   {}", blocks.join(" "));
        best.push(change(seconds(&outcomes[5]), baseline));
    }
    Ok(best)
}

/// Figure 6: elapsed times in the integrated system, by the size of batches, beside those of single blocks.
fn batches(
    all: &[(String, Vec<Workload>)],
    capacity: u32,
    seed: u64,
    readahead: &nigh_prefetch::Spec,
) -> anyhow::Result<()> {
    print!("{:14}", "batch");
    BATCHES.iter().for_each(|batch| print!("{batch:>7}"));
    println!();
    for (name, workloads) in all {
        let times = BATCHES.map(|batch| run_one(workloads, file_system(true, true, batch), capacity, seed, readahead));
        let times = times.into_iter().map(|outcome| Ok(seconds(&outcome?))).collect::<anyhow::Result<Vec<f64>>>()?;
        print!("{name:14}");
        times.iter().for_each(|time| print!("{:>7.3}", time / times[0]));
        println!();
    }
    Ok(())
}

fn named(workloads: Vec<Workload>) -> (String, Vec<Workload>) {
    (workloads.iter().map(|workload| workload.name).collect::<Vec<_>>().join("+"), workloads)
}

pub(crate) fn bench(seed: u64, readahead: &str) -> anyhow::Result<()> {
    let readahead = &readahead.parse()?;
    println!(
        "change of elapsed time against global LRU with read-ahead {readahead}; p: prefetching, s: scheduling, batches of {BATCH}"
    );
    let alone: Vec<_> = acfs::alone(seed).into_iter().map(|workload| named(vec![workload])).collect();
    let pairs: Vec<_> = acfs::pairs(seed).into_iter().map(|pair| named(pair.into())).collect();
    for (all, title) in [(&alone, "alone (figures 4 and 5)"), (&pairs, "in pairs (figures 8 and 9)")] {
        let mut best = Vec::new();
        for (capacity, size) in SIZES {
            println!("\n{title}, cache of {size}");
            best.extend(table(all, capacity, seed, readahead)?);
        }
        let mean = best.iter().sum::<f64>() / best.len() as f64;
        let (low, high) = best.iter().fold((f64::MAX, f64::MIN), |(low, high), &one| (one.min(low), one.max(high)));
        println!("AC+p+s: from {high:.1}% to {low:.1}%, {mean:.1}% on average");
    }
    let studied: Vec<_> =
        alone.into_iter().filter(|(name, _)| ["cs2", "cs3", "gli", "psel2"].contains(&&name[..])).collect();
    for (capacity, size) in SIZES {
        println!("\nelapsed time by size of batches (figure 6), cache of {size}");
        batches(&studied, capacity, seed, readahead)?;
    }
    Ok(())
}
