//! `cargo xtask COMMAND`: what is done to the tree.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

mod circles;
mod fuzz;
mod guest;
mod held;
mod images;
mod instructions;
mod package;
mod python;
mod report;
mod run;
mod steps;
mod suite;
mod supply;
mod tests;
mod tidy;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use steps::Tier;

/// Tasks of the workspace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that must hold before a change is pushed, with the seconds of each step (CONTRIBUTING.md lists them)
    Ci {
        /// Also do what `install` does, while crates are compiled
        #[arg(long)]
        install: bool,
        /// Fail if it takes longer, such as 20m, without the steps that run because their inputs changed
        #[arg(long, value_parser = limit)]
        within: Option<Duration>,
    },
    /// fmt, tidy, and clippy and the tests of the crates that differ from main
    Quick {
        /// Or from this commit
        #[arg(long)]
        since: Option<String>,
    },
    /// Everything that must hold before a release: all of `ci`, and what takes hours
    Release,
    /// List the steps of `ci` and `release`, and every test by name
    List,
    /// All tests, and what they skipped by name
    Test {
        /// First do what `install` does
        #[arg(long)]
        install: bool,
    },
    /// Install the programs that black box tests drive (apt-get, root)
    Install,
    /// The rules of the tree that no compiler checks
    Tidy,
    /// Write crates/common/union/Cargo.toml again: the features that the crates ask of others, together
    Union {
        /// Only check it
        #[arg(long)]
        check: bool,
    },
    /// Our figures beside published ones, as tables
    Golden,
    /// Whole traces through `nigh sim` and `nigh serve`: every policy has the same hits in both
    Agreement,
    /// Benches side by side with peers; each prints ratios
    Bench {
        /// The bench and its options; without one, the benches there are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Images of Debian systems with services, from packages, without root: for `nigh content` and the bench of that name
    Images {
        /// Folder of the images; those that exist are kept
        folder: std::path::PathBuf,
        /// The release
        #[arg(long, default_value = "bookworm")]
        release: String,
    },
    /// The engine against a model of every byte: random requests, faults, delays and crashes on a virtual clock
    Vopr {
        /// The first seed, by default another one each second; a failure prints the one that replays it
        #[arg(long)]
        seed: Option<u64>,
        /// How many seeds
        #[arg(long, default_value_t = 1)]
        seeds: u64,
    },
    /// Servers whose power fails, that are killed or asked to end, under load on a disk that loses what was not flushed: no promise is broken
    Power {
        /// How many
        #[arg(long, default_value_t = 10_000)]
        cuts: u32,
        /// Seed of the clients' requests and of the disk's losses
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The server: nigh (in turn with write-back, write-through, a level and a write log), write-log alone, qemu-nbd or nbdkit
        #[arg(long, default_value = "nigh")]
        server: String,
    },
    /// A server for hours beside neighbours that come and go, sick devices and changes: nothing grows, no byte is wrong; as a picture
    Soak {
        /// How long
        #[arg(long, default_value_t = 1.0)]
        hours: f64,
        /// Seed of all that happens
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Servers with a level, killed at random points: nothing that they read afterwards is stale
    Levels {
        /// How many
        #[arg(long, default_value_t = 200)]
        kills: u32,
    },
    /// Every fuzz target for a while
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 20)]
        seconds: u32,
        /// Only targets whose names contain this
        target: Option<String>,
    },
    /// The threads that share an engine's memory, under Miri: no data race, no access outside of a frame
    Miri {
        /// How many orders of their steps
        #[arg(long, default_value_t = 8)]
        seeds: u32,
    },
    /// Packages of the crates that programs with a cache inside need, each compiled from its package
    Crates,
    /// Models of what threads share, under loom: all orders of the threads' steps
    Loom,
    /// Instructions that hits over NBD and the steps of encoding take, counted by valgrind: none takes more than it did
    Instructions,
    /// The guard on cgroup v2, in a guest with Debian's kernel (QEMU)
    GuardGuest {
        /// Subject of the run
        #[arg(value_enum, default_value = "cases")]
        part: guest::Part,
    },
    /// `nigh advise` on cgroup v2, in the same way
    AdviseGuest,
    /// A guest whose disk is served by vhost-user-blk: file system, fio with verification, trim, a restart and a kill of the server (QEMU)
    VhostGuest,
    /// A guest with Linux 6.12 in which a disk is a block device (ublk): file system, fio with verification, trim, restarts and kills of the server, removal, and the rate beside nbd-client (QEMU)
    UblkGuest,
    /// A guest that works on its disk while `nigh serve` is restarted, replaced and killed below it (QEMU)
    RestartsGuest {
        /// How often, in each way
        #[arg(long, default_value_t = 50)]
        rounds: u32,
    },
    /// How long a guest takes to boot, search, and query two databases, on a disk of 2 ms that `nigh serve` caches, with each rule of
    /// read-ahead (QEMU, debootstrap, root)
    ReadaheadGuest {
        /// Rules of read-ahead
        #[arg(long, value_delimiter = ',', default_value = "none,linux,auto")]
        rules: Vec<String>,
    },
    /// The Debian package: programs, units, manual pages and completions
    Package {
        /// Only check it, with the programs of the tests
        #[arg(long)]
        check: bool,
    },
    /// The Python package alone: installed in an environment of its own as users get it, its tests and types; then its
    /// source distribution, and the wheel of that under every Python that there is
    Python {
        /// Instead of the tests, this bench beside its peers, such as speed, with its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        bench: Vec<String>,
    },
    /// Write the generated documents again (docs/cli.md, the tables of docs/config.md)
    Docs,
}

/// A limit such as 90s, 20m or 2h.
fn limit(text: &str) -> Result<Duration, String> {
    nigh_text::seconds(text).map(Duration::from_secs_f64).ok_or_else(|| format!("'{text}' is no time, such as 20m"))
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Ci { install, within } => steps::run(Tier::Changed, install, within),
        Command::Quick { since } => steps::quick(since.as_deref()),
        Command::Release => steps::run(Tier::Release, false, None),
        Command::List => steps::list(),
        Command::Test { install } => install.then(suite::install).unwrap_or(Ok(())).and_then(|()| tests::all()),
        Command::Install => suite::install(),
        Command::Union { check } => suite::union(check),
        Command::Tidy => tidy::tidy(),
        Command::Golden => suite::golden(),
        Command::Agreement => suite::agreement(),
        Command::Images { folder, release } => images::images(&folder, &release),
        Command::Bench { args } => suite::bench(&args),
        Command::Vopr { seed, seeds } => suite::vopr(seed, seeds),
        Command::Power { cuts, seed, server } => suite::power(cuts, seed, &server),
        Command::Soak { hours, seed } => suite::soak(hours, seed),
        Command::Levels { kills } => suite::levels(kills),
        Command::Fuzz { seconds, target } => fuzz::fuzz(seconds, target.as_deref()),
        Command::Miri { seeds } => suite::miri(seeds),
        Command::Crates => suite::packages(),
        Command::Loom => suite::loom(),
        Command::Instructions => instructions::instructions(),
        Command::GuardGuest { part } => guest::run(part),
        Command::AdviseGuest => guest::run(guest::Part::Advise),
        Command::VhostGuest => guest::vhost::run(),
        Command::UblkGuest => guest::ublk::run(),
        Command::RestartsGuest { rounds } => guest::restarts::run(rounds),
        Command::ReadaheadGuest { rules } => guest::readahead::run(&rules),
        Command::Package { check: true } => package::check_package(),
        Command::Package { check: false } => package::package(),
        Command::Python { bench } => suite::python(&bench),
        Command::Docs => suite::docs(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
