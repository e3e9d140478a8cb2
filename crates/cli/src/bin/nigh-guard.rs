//! What `nigh guard` is where this lies beside `nigh`: a service is resident for long, so it should be small.

#[path = "../front.rs"]
mod front;
#[path = "../guard.rs"]
mod guard;
#[path = "../output.rs"]
#[expect(dead_code, reason = "a guard is asked for no files")]
mod output;

use std::process::ExitCode;

use clap::Parser;

/// Protect working sets against thrashing, on this machine's own kernel
#[derive(Debug, Parser)]
#[command(name = "nigh guard", version, max_term_width = 120, after_long_help = guard::HELP)]
struct Cli {
    #[command(flatten)]
    args: guard::GuardArgs,
}

fn main() -> ExitCode {
    front::main(|cli: Cli| guard::run(&cli.args))
}
