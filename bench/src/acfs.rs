//! The six file systems of ACFS's section 5.2 on its programs, alone and in pairs, in the timed simulation: elapsed times
//! beside those of global LRU with one-block lookahead (figures 4, 5, 8 and 9), those of the oblivious program in a pair (10
//! and 11), and those of each batch size (6), with the latency of the disk (7).

use anyhow::Context;
use clap::{Args, ValueEnum};
use nigh_control::{Allocation, Config, Foresight};
use nigh_engine::Scheduler;
use nigh_sim::acfs::{self, Assumed, BLOCK_BYTES, Placed, Workload};
use nigh_sim::timed::{Outcome, Processors, Setup, run as simulate};

/// 6.4 MB, Ultrix's usual size, and 12 MB, in blocks of 8 KB.
const SIZES: [(u32, &str); 2] = [(819, "6.4 MB"), (1536, "12 MB")];
/// Figures 6 and 7.
const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const BATCH: u32 = 16;

/// A configuration of 5.2.
#[derive(Clone, Copy)]
struct FileSystem {
    caching: bool,
    prefetching: bool,
    batches: Batches,
}

const fn file_system(caching: bool, prefetching: bool, batch: u32) -> FileSystem {
    FileSystem { caching, prefetching, batches: Batches::Of(batch) }
}

const FILE_SYSTEMS: [(FileSystem, &str); 6] = [
    (file_system(false, false, 1), "LRU"),
    (file_system(false, true, 1), "LRU+p"),
    (file_system(false, true, BATCH), "LRU+p+s"),
    (file_system(true, false, 1), "AC"),
    (file_system(true, true, 1), "AC+p"),
    (file_system(true, true, BATCH), "AC+p+s"),
];

/// The size of all batches, or their greatest size where they adapt to what the disk takes for a block.
#[derive(Clone, Copy)]
enum Batches {
    Of(u32),
    Adapting(u32),
}

/// `Processors`, as an argument.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Computing {
    Each,
    Turns,
    Decay,
}

/// Assumptions about the machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct AcfsArgs {
    /// Runs, of which the means are printed; each has other sizes of files, finds of queries and turns of the disks
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Read-ahead for programs that have not announced their reads
    #[arg(long, default_value = "one-block:sequential")]
    readahead: nigh_prefetch::Spec,
    /// Place on a disk of the files of its second program, in percent
    #[arg(long, default_value_t = 50.0)]
    second_at: f64,
    /// Processor times, in percent of those assumed
    #[arg(long, default_value_t = 100.0)]
    compute: f64,
    /// Processor time of the system for each block read or written, in ms
    #[arg(long, default_value_t = 1.0)]
    io_ms: f64,
    /// How programs share processors: each has its own, or both share one, in turns or by 4.3BSD's priorities, as the
    /// paper's Ultrix
    #[arg(long, value_enum, default_value_t = Computing::Decay)]
    processors: Computing,
    /// The share of block borders at which files of an aged file system are cut, in percent; 0: as it was new
    #[arg(long, default_value_t = 0.0)]
    aged: f64,
    /// Window of the prefetch allowance, in blocks; 0 for no allowance
    #[arg(long, default_value_t = Config::WINDOW)]
    prefetch_window: u32,
    /// Instead of the tables: by how much the allowance changes them
    #[arg(long)]
    allowance: bool,
    /// Choose the block that leaves as the paper's prototype does (4.3), not by the list first (2.1.3)
    #[arg(long)]
    prototype: bool,
    /// Instead of the tables: the elapsed times of AC+p and AC+p+s by both choices
    #[arg(long)]
    choices: bool,
    /// Instead of the tables: elapsed times of all programs and pairs by the size of batches, and where it adapts
    #[arg(long)]
    batches: bool,
}

/// Programs that run together, by seed.
struct Together {
    name: String,
    runs: Vec<Vec<Workload>>,
}

impl Together {
    /// The same workloads of each seed under one name.
    fn all(seeds: u64, make: impl Fn(u64) -> Vec<Vec<Workload>>) -> Vec<Together> {
        let mut all: Vec<Together> = Vec::new();
        for seed in 1..=seeds {
            for (at, workloads) in make(seed).into_iter().enumerate() {
                if all.len() == at {
                    let names: Vec<&str> = workloads.iter().map(|workload| workload.name).collect();
                    all.push(Together { name: names.join("+"), runs: Vec::new() });
                }
                all[at].runs.push(workloads);
            }
        }
        all
    }

    /// Outcomes, one for each seed.
    fn run(&self, system: FileSystem, capacity: u32, args: &AcfsArgs) -> anyhow::Result<Vec<Outcome>> {
        (1..).zip(&self.runs).map(|(seed, workloads)| run_one(workloads, system, capacity, seed, args)).collect()
    }
}

fn run_one(
    workloads: &[Workload],
    system: FileSystem,
    capacity: u32,
    seed: u64,
    args: &AcfsArgs,
) -> anyhow::Result<Outcome> {
    let FileSystem { caching, prefetching, batches } = system;
    let (batch, adapt_batch) = match batches {
        Batches::Of(batch) => (batch, false),
        Batches::Adapting(most) => (most, true),
    };
    let assumed = Assumed {
        second_at: args.second_at / 100.0,
        compute: args.compute / 100.0,
        io_ns: (args.io_ms * 1e6) as u64,
        aged: args.aged / 100.0,
    };
    let placed = Placed::new(workloads, caching, prefetching, &assumed).context("the files have their places")?;
    let tenants = Config {
        // 5.2: "the kernel uses default LRU for each application's replacement policy".
        foresight: match caching {
            true if args.prototype => Foresight::Prototype,
            true => Foresight::Full,
            false => Foresight::Fetch,
        },
        allocation: if caching || prefetching { Allocation::LruSp } else { Allocation::Global },
        batch,
        adapt_batch,
        window: args.prefetch_window,
        ..Config::default()
    };
    let setup = Setup {
        programs: &placed.programs,
        block_bytes: BLOCK_BYTES,
        disks: &placed.disks(),
        levels: &[],
        encoded: None,
        seed,
        readahead: &args.readahead,
        scheduler: Scheduler::FirstCome,
        tenants: Some(&tenants),
        processors: match args.processors {
            Computing::Each => Processors::Each,
            Computing::Turns => Processors::Turns,
            Computing::Decay => Processors::Decay,
        },
        processor_ns_a_block: assumed.io_ns,
        warmup: 0,
        progress: None,
        stop: None,
    };
    Ok(simulate(&setup, &"lru".parse()?, capacity)?)
}

fn mean(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.execution_ns() as f64 / 1e9
}

/// When the last of the programs ended.
fn last_s(outcome: &Outcome) -> f64 {
    outcome.ends_ns.last().map_or(0.0, |&end_ns| end_ns as f64 / 1e9)
}

fn blocks_read(outcome: &Outcome) -> f64 {
    outcome.cache.device_read_bytes as f64 / f64::from(BLOCK_BYTES)
}

fn change(of: f64, to: f64) -> f64 {
    100.0 * (of / to - 1.0)
}

/// Prints a line for each of `all`: the baseline's time by `time`, the others' changes, how far those of the last file
/// system are apart between seeds, and the blocks read. Gives the changes of all file systems but the first, by program.
fn table(all: &[Together], capacity: u32, args: &AcfsArgs, time: fn(&Outcome) -> f64) -> anyhow::Result<Vec<[f64; 5]>> {
    print!("{:14}{:>9}", "", "LRU s");
    FILE_SYSTEMS[1..].iter().for_each(|(_, name)| print!("{name:>9}"));
    println!("   apart   blocks read: {}", FILE_SYSTEMS.map(|(_, name)| name).join(", "));
    let mut all_changes = Vec::new();
    for together in all {
        let runs = FILE_SYSTEMS.map(|(system, _)| together.run(system, capacity, args));
        let runs = runs.into_iter().collect::<anyhow::Result<Vec<Vec<Outcome>>>>()?;
        let baseline = mean(&runs[0], time);
        let changes = [1, 2, 3, 4, 5].map(|system: usize| change(mean(&runs[system], time), baseline));
        let pairs = runs[5].iter().zip(&runs[0]);
        let each: Vec<f64> = pairs.map(|(outcome, plain)| change(time(outcome), time(plain))).collect();
        let apart = each.iter().fold(f64::MIN, |most, &one| most.max(one))
            - each.iter().fold(f64::MAX, |least, &one| least.min(one));
        print!("{:14}{baseline:>9.1}", together.name);
        changes.iter().for_each(|change| print!("{change:>8.1}%"));
        let blocks: Vec<String> = runs.iter().map(|runs| format!("{:.0}", mean(runs, blocks_read))).collect();
        println!("{apart:>8.1}   {}", blocks.join(" "));
        all_changes.push(changes);
    }
    Ok(all_changes)
}

/// Prints by how many points the allowance changes those changes, for each file system that prefetches, and the blocks
/// that AC+p+s reads without it and with it. Gives the greatest of these points, without their signs.
fn allowances(all: &[Together], capacity: u32, args: &AcfsArgs, time: fn(&Outcome) -> f64) -> anyhow::Result<f64> {
    let prefetching: Vec<_> = FILE_SYSTEMS.iter().filter(|(system, _)| system.prefetching).collect();
    print!("{:14}", "");
    prefetching.iter().for_each(|(_, name)| print!("{name:>9}"));
    println!("   blocks read in the last: without, with");
    let without = AcfsArgs { prefetch_window: 0, ..args.clone() };
    let mut most = 0.0f64;
    for together in all {
        let baseline = mean(&together.run(FILE_SYSTEMS[0].0, capacity, args)?, time);
        print!("{:14}", together.name);
        let mut blocks = [0.0; 2];
        for (system, _) in &prefetching {
            let [free, limited] = [&without, args].map(|args| together.run(*system, capacity, args));
            let [free, limited] = [free?, limited?];
            let points = change(mean(&limited, time), baseline) - change(mean(&free, time), baseline);
            print!("{points:>9.2}");
            most = most.max(points.abs());
            blocks = [&free, &limited].map(|runs| mean(runs, blocks_read));
        }
        println!("   {:.0} {:.0}", blocks[0], blocks[1]);
    }
    Ok(most)
}

/// Prints the means of changes, and the range of those of the last file system.
fn summary(changes: &[[f64; 5]]) {
    print!("{:23}", "\nmean of both sizes");
    for system in 0..5 {
        print!("{:>8.1}%", changes.iter().map(|change| change[system]).sum::<f64>() / changes.len() as f64);
    }
    let last = changes.iter().map(|change| change[4]);
    let (low, high) = last.fold((f64::MAX, f64::MIN), |(low, high), one| (one.min(low), one.max(high)));
    println!("\nAC+p+s: from {high:.1}% to {low:.1}%");
}

/// Prints the changes of AC+p and AC+p+s against LRU, in percent, with each of both choices of the block that leaves; and
/// gives them.
fn choices(all: &[Together], capacity: u32, args: &AcfsArgs) -> anyhow::Result<Vec<[f64; 4]>> {
    println!("{:14}{:>16}{:>16}{:>16}{:>16}", "", "AC+p, 2.1.3", "4.3", "AC+p+s, 2.1.3", "4.3");
    let mut all_changes = Vec::new();
    for together in all {
        let baseline = mean(&together.run(FILE_SYSTEMS[0].0, capacity, args)?, seconds);
        let mut changes = [0.0; 4];
        for (at, change_of) in changes.iter_mut().enumerate() {
            let (system, prototype) = (FILE_SYSTEMS[4 + at / 2].0, at % 2 == 1);
            let runs = together.run(system, capacity, &AcfsArgs { prototype, ..args.clone() })?;
            *change_of = change(mean(&runs, seconds), baseline);
        }
        print!("{:14}", together.name);
        changes.iter().for_each(|change| print!("{change:>15.1}%"));
        println!();
        all_changes.push(changes);
    }
    Ok(all_changes)
}

/// Figures 6 and 7, by the size of batches: elapsed times in the integrated system beside those of single blocks, and what
/// the disk took for a block and for a request. The last column adapts up to the largest size.
fn batches(all: &[Together], capacity: u32, args: &AcfsArgs) -> anyhow::Result<()> {
    print!("{:14}", "batch");
    BATCHES.iter().for_each(|batch| print!("{batch:>7}"));
    println!("{:>7}", "adapts");
    for together in all {
        let largest = BATCHES[BATCHES.len() - 1];
        let sizes = BATCHES.iter().map(|&batch| Batches::Of(batch)).chain([Batches::Adapting(largest)]);
        let runs = sizes.map(|batches| {
            let system = FileSystem { caching: true, prefetching: true, batches };
            together.run(system, capacity, args)
        });
        let runs = runs.collect::<anyhow::Result<Vec<Vec<Outcome>>>>()?;
        let line = |name: &str, figure: &dyn Fn(&Outcome) -> f64| {
            print!("{name:14}");
            runs.iter().for_each(|runs| print!("{:>7.3}", mean(runs, figure)));
            println!();
        };
        let single = mean(&runs[0], seconds);
        line(&together.name, &|outcome| seconds(outcome) / single);
        let busy_ms = |outcome: &Outcome| outcome.device.busy_ns as f64 / 1e6;
        line("  ms a block", &|outcome| busy_ms(outcome) / blocks_read(outcome));
        line("  ms a request", &|outcome| busy_ms(outcome) / outcome.device.requests as f64);
    }
    Ok(())
}

pub(crate) fn bench(args: &AcfsArgs) -> anyhow::Result<()> {
    println!(
        "change of elapsed time against global LRU with read-ahead {}; p: prefetching, s: scheduling, batches of {BATCH}; \
         means of {} seeds\n{args:?}",
        args.readahead, args.seeds
    );
    let mut alone = Together::all(args.seeds, |seed| acfs::alone(seed).into_iter().map(|one| vec![one]).collect());
    let mut pairs = Together::all(args.seeds, |seed| acfs::pairs(seed).into_iter().map(Vec::from).collect());
    if args.allowance {
        let mut most = 0.0f64;
        let andrews = Together::all(args.seeds, |seed| {
            let pairs = acfs::pairs(seed).into_iter().filter(|pair| pair[1].name == "andrew");
            pairs.map(Vec::from).collect()
        });
        for (all, title) in [(&alone, "alone"), (&pairs, "in pairs"), (&andrews, "andrew in its pairs")] {
            let time = if title.starts_with("andrew") { last_s } else { seconds };
            for (capacity, size) in SIZES {
                println!("\n{title}, cache of {size}: points, with a window of {} less without", args.prefetch_window);
                most = most.max(allowances(all, capacity, args, time)?);
            }
        }
        println!("\nat most {most:.2} points");
        return Ok(());
    }
    if args.choices {
        for (all, title) in [(&alone, "alone"), (&pairs, "in pairs")] {
            let mut changes = Vec::new();
            for (capacity, size) in SIZES {
                println!("\n{title}, cache of {size}");
                changes.extend(choices(all, capacity, args)?);
            }
            let mean_of = |at: usize| changes.iter().map(|change| change[at]).sum::<f64>() / changes.len() as f64;
            println!("{:14}{}", "mean", [0, 1, 2, 3].map(|at| format!("{:>15.1}%", mean_of(at))).concat());
        }
        return Ok(());
    }
    let by_batch = |all: &[Together]| {
        for (capacity, size) in SIZES {
            println!("\nelapsed time by size of batches (figure 6), and the disk's (figure 7), cache of {size}");
            batches(all, capacity, args)?;
        }
        anyhow::Ok(())
    };
    if args.batches {
        alone.extend(pairs);
        return by_batch(&alone);
    }
    for (all, title) in [(&alone, "alone (figures 4 and 5)"), (&pairs, "in pairs (figures 8 and 9)")] {
        let mut changes = Vec::new();
        for (capacity, size) in SIZES {
            println!("\n{title}, cache of {size}");
            changes.extend(table(all, capacity, args, seconds)?);
        }
        summary(&changes);
    }
    pairs.retain(|pair| pair.name.ends_with("+andrew"));
    for (capacity, size) in SIZES {
        println!("\nandrew in its pairs (figures 10 and 11), cache of {size}");
        table(&pairs, capacity, args, last_s)?;
    }
    alone.retain(|one| ["cs2", "cs3", "gli", "psel2"].contains(&&one.name[..]));
    by_batch(&alone)
}
