//! The `nigh` binary: flags, rendering and exit codes around the libraries.

mod args;
mod ctl;
mod demo;
mod devices;
mod guard;
mod layout;
mod output;
mod page;
mod policies;
mod progress;
mod quantity;
mod results;
mod serve;
mod sim;
mod size;
mod table;
mod timed;
mod top;
mod trace;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!("nigh: {}", one_line(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nigh: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Guard(args) => return guard::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Trace { command } => trace::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "nigh", &mut script);
            output::print(&script)
        }
        Command::Man { command } => man(&command),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the command line, without the usage that clap adds.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let parts: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
    parts.join(" ").trim_start_matches("error: ").to_owned()
}

fn man(path: &[String]) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut at = &command;
    for name in path {
        at = at.find_subcommand(name).ok_or_else(|| anyhow::anyhow!("there is no command '{}'", path.join(" ")))?;
    }
    let mut page = Vec::new();
    let title = ["nigh"].into_iter().chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let source = concat!("nigh ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(at.clone()).title(title.to_uppercase()).source(source).render(&mut page)?;
    output::print(&page)
}

/// Whether whoever read the output has gone away, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
