//! The `nigh` binary: flags, rendering and exit codes around the libraries.

mod advise;
mod args;
mod asked;
mod clients;
mod compare;
mod completion;
mod content;
mod contents;
mod controlled;
mod ctl;
mod demo;
mod devices;
mod front;
mod generators;
mod grid;
mod guard;
mod layout;
mod leaders;
mod level;
mod log;
mod mount;
mod object;
mod output;
mod page;
mod pages;
mod patterns;
mod plan;
mod policies;
mod progress;
mod record;
mod results;
mod sandbox;
mod serve;
mod sim;
mod size;
mod source;
mod started;
mod sweep;
mod table;
mod tiers;
mod timed;
mod together;
mod top;
mod trace;
mod wrap;
mod written;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::CompleteEnv;
use nigh_output::Destination;

use args::{Cli, Command};

fn main() -> ExitCode {
    // Prints completions and ends the program, where a shell asks for that.
    CompleteEnv::with_factory(Cli::command).var(completion::VARIABLE).complete();
    front::main(run)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Guard(args) => return run_guard(&args),
        Command::Sweep(args) => return sweep::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sim(args) => together::check_sim(&args).and_then(|()| match &args.timed.device {
            Some(device) => timed::run(&args, device),
            None if !args.levels.is_empty() => tiers::run(&args),
            None if let Some(file) = &args.contents.contents => contents::run(&args, file),
            None if args.timed.readahead_at_once().is_some() => timed::run_at_once(&args),
            None => sim::run(&args),
        }),
        Command::Plan(args) => together::check_plan(&args).and_then(|()| plan::run(&args)),
        Command::Trace { command } => trace::run(&command),
        Command::Content(args) => content::run(&args),
        Command::Patterns(args) => patterns::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Level(args) => level::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Object(args) => object::run(&args),
        Command::Completions { shell } => output::print(&completion::script(shell)?),
        Command::Man { command, all, force } => man(&command, all.as_deref(), force),
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

/// Prints the page of a command, or writes those of all commands into a folder.
fn man(path: &[String], all: Option<&Path>, force: bool) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    if let Some(folder) = all {
        let mut pages = Vec::new();
        list_pages(&command, &mut vec!["nigh"], &mut pages)?;
        let to = pages.iter().map(|(name, _)| Destination::new(&folder.join(name), force, &[]));
        // None is written if one of them cannot be.
        let to = to.collect::<Result<Vec<_>, _>>()?;
        return pages.iter().zip(&to).try_for_each(|((_, page), to)| output::write(to, |out| out.write_all(page)));
    }
    let mut at = &command;
    for name in path {
        at = at.find_subcommand(name).ok_or_else(|| {
            let near = nigh_text::did_you_mean(front::nearest_of(at, name));
            anyhow::anyhow!("there is no command '{}'{near}", path.join(" "))
        })?;
    }
    let names: Vec<&str> = ["nigh"].into_iter().chain(path.iter().map(String::as_str)).collect();
    output::print(&page(at, &names)?)
}

fn page(command: &clap::Command, names: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    let title = names.join("-").to_uppercase();
    let source = concat!("nigh ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).title(title).source(source).render(&mut page)?;
    Ok(page)
}

/// The pages of a command and of its parts, with the names of their files.
fn list_pages<'a>(
    command: &'a clap::Command,
    names: &mut Vec<&'a str>,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> anyhow::Result<()> {
    pages.push((names.join("-") + ".1", page(command, names)?));
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        names.push(part.get_name());
        list_pages(part, names, pages)?;
        names.pop();
    }
    Ok(())
}
