//! Programs that thrash in one limit: with enough memory, without the guard, with each of its profiles, and beside SIGSTOP of
//! one of them, which is what tools do that do not kill.

mod build;
mod claims;
mod pair;
mod rig;
mod upkeep;
mod worker;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    #[command(subcommand)]
    worker: Option<Worker>,
    /// Part of the bench: gz-vx, gz-vx-long, gz-gz, vx-cc, three, four, grows, fitting, build, claims, upkeep or resident
    #[arg(long, value_delimiter = ',', default_value = "gz-vx,fitting,upkeep,resident")]
    part: Vec<String>,
    /// Of pairs, only these ways to run them, by the names in the table; all by default
    #[arg(long, value_delimiter = ',')]
    mode: Vec<String>,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Debug, Subcommand)]
enum Worker {
    /// One of the programs that compete
    #[command(hide = true)]
    Worker { kind: String, mib: usize, touches: u64, rounds: usize },
}

pub(crate) fn run(args: &GuardArgs) -> anyhow::Result<()> {
    if let Some(Worker::Worker { kind, mib, touches, rounds }) = &args.worker {
        return worker::run(kind, *mib, *touches, *rounds);
    }
    for part in &args.part {
        anyhow::ensure!(
            pair::ALL.iter().any(|one| one.name == part)
                || ["build", "claims", "upkeep", "resident"].contains(&part.as_str()),
            "there is no part {part}"
        );
    }
    for part in &args.part {
        if part == "resident" && nix::unistd::geteuid().is_root() {
            upkeep::resident()?;
            continue;
        }
        if let Some(reason) = rig::missing() {
            println!("skipped: bench guard --part {part}: {reason}");
            continue;
        }
        match pair::ALL.iter().find(|one| one.name == part) {
            Some(together) => pair::compare(together, &args.mode, args.rounds)?,
            None if part == "build" => match build::missing() {
                Some(reason) => println!("skipped: bench guard --part build: {reason}"),
                None => build::run(args.rounds)?,
            },
            None if part == "claims" => claims::run(args.rounds)?,
            None => upkeep::run()?,
        }
    }
    Ok(())
}
