//! The `nigh` binary: flags, rendering and exit codes around the libraries.

mod args;
mod asked;
mod ctl;
mod demo;
mod devices;
mod front;
mod generators;
mod guard;
mod layout;
mod output;
mod page;
mod plan;
mod policies;
mod progress;
mod results;
mod serve;
mod sim;
mod size;
mod source;
mod table;
mod timed;
mod top;
mod trace;
mod written;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use args::{Cli, Command};

fn main() -> ExitCode {
    front::main(run)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Guard(args) => return run_guard(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => match &args.timed.device {
            Some(device) => timed::run(&args, device),
            None => sim::run(&args),
        },
        Command::Plan(args) => plan::run(&args),
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

/// `nigh-guard` in place of this process, where it is installed beside `nigh`: the same, but it stays for long and is small.
fn run_guard(args: &guard::GuardArgs) -> anyhow::Result<ExitCode> {
    let small = std::env::current_exe().context("this program")?.with_file_name("nigh-guard");
    if small.is_file() {
        let mut command = std::process::Command::new(&small);
        return Err(command.args(std::env::args_os().skip(2)).exec()).with_context(|| small.display().to_string());
    }
    guard::run(args)
}

fn man(path: &[String]) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut at = &command;
    for name in path {
        at = at.find_subcommand(name).ok_or_else(|| {
            let near = nigh_text::nearest(name, at.get_subcommands().map(clap::Command::get_name));
            anyhow::anyhow!("there is no command '{}'{}", path.join(" "), nigh_text::did_you_mean(near))
        })?;
    }
    let mut page = Vec::new();
    let title = ["nigh"].into_iter().chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let source = concat!("nigh ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(at.clone()).title(title.to_uppercase()).source(source).render(&mut page)?;
    output::print(&page)
}
