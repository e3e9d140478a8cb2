//! `cargo xtask bench NAME`: side by side in one run, printed as ratios.

mod growth;
mod guard;
mod measure;
mod memory;
mod replay;
mod rival;

use clap::{Parser, Subcommand};

/// Benches that compare side by side in one run and print ratios.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// `nigh sim` against libCacheSim's `cachesim`, on 20 M references to 1 M blocks by Zipf's law
    Replay {
        /// Pairs of runs
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// References
        #[arg(long, default_value_t = 20_000_000)]
        references: u64,
    },
    /// Processor time a reference, from 10^4 to 10^7 blocks
    Growth {
        /// Policies
        #[arg(long, value_delimiter = ',', default_value = "lru,clock,arc,lirs,clock-pro")]
        policy: Vec<String>,
    },
    /// Programs that thrash, with and without `nigh guard`: root, cgroup v1, and a swap file on a throttled loop device
    Guard(guard::GuardArgs),
    /// Resident memory a distinct block and instance, for every policy
    Memory,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().bench {
        Bench::Replay { rounds, references } => replay::run(rounds, references),
        Bench::Growth { policy } => growth::run(&policy),
        Bench::Guard(args) => guard::run(&args),
        Bench::Memory => memory::run(),
    }
}
