//! `nigh guard` alone: `nigh guard` runs this program if it is installed beside `nigh`, because a service should occupy little memory.

#[path = "../front.rs"]
mod front;
#[path = "../guard.rs"]
mod guard;
#[path = "../log.rs"]
mod log;
#[path = "../output.rs"]
#[expect(dead_code, reason = "a guard is asked for no files")]
mod output;

use std::process::ExitCode;

use clap::Parser;

/// Protect programs against thrashing, one working set at a time
#[derive(Debug, Parser)]
#[command(name = "nigh guard", version, max_term_width = 120, after_long_help = guard::HELP)]
struct Cli {
    #[command(flatten)]
    args: guard::GuardArgs,
}

fn main() -> ExitCode {
    front::main(|cli: Cli| guard::run(&cli.args))
}
