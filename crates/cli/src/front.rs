//! The frame of every binary's work: parsing, signals and errors.

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::output;

/// Parses the command line, runs, and prints errors in one line.
pub(crate) fn main<Cli: Parser>(run: impl FnOnce(Cli) -> anyhow::Result<ExitCode>) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::tell(format_args!("nigh: {}", nigh_text::printable(&one_line(&error, Cli::command()))));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) if is_unread(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(format_args!("nigh: {}", nigh_text::printable(&causes(&*error))));
            ExitCode::from(2)
        }
    }
}

/// An error of the command line, without the usage that clap adds, and with the name that may have been meant.
fn one_line(error: &clap::Error, command: clap::Command) -> String {
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && let Some(instead) = instead_of(flag)
    {
        return format!("{flag} is now written as in {instead}");
    }
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let is_similar = |line: &&str| line.starts_with("tip: ") && line.contains(" similar ");
    let parts: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty() && !is_similar(line)).collect();
    let line = parts.join(" ").trim_start_matches("error: ").to_owned();
    let suggestions = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let suggested = suggestions.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) => names.first().cloned(),
        _ => None,
    });
    let near = suggested.or_else(|| match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(given) => near_subcommand(given, command),
        _ => None,
    });
    format!("{line}{}", nigh_text::did_you_mean(near.as_deref()))
}

/// Flags of earlier versions, and what is written instead.
const MOVED: [(&str, &str); 18] = [
    ("--action", "TRACE,action=EVENT"),
    ("--adapt-batch", "--prefetch adapt"),
    ("--batch", "--prefetch batch=BLOCKS"),
    ("--gap", "--arrivals TIME"),
    ("--level-ca", "--level tls:HOST:PORT:SIZE,ca=FILE"),
    ("--level-certificate", "--level tls:HOST:PORT:SIZE,certificate=FILE"),
    ("--level-key", "--level tls:HOST:PORT:SIZE,key=FILE"),
    ("--level-name", "--level tcp:HOST:PORT:SIZE,name=NAME"),
    ("--level-required", "--level tcp:HOST:PORT:SIZE,required"),
    ("--level-wait", "--level tcp:HOST:PORT:SIZE,wait=TIME"),
    ("--metrics-token", "--metrics HOST:PORT,token=FILE"),
    ("--poisson", "--arrivals poisson:TIME"),
    ("--prefetch-window", "--prefetch window=BLOCKS"),
    ("--record-sample", "--record FILE,sample=RATE"),
    ("--recorded-sizes", "TRACE,recorded-sizes"),
    ("--tls-certificate", "--tls certificate=FILE,key=FILE"),
    ("--tls-client-ca", "--tls certificate=FILE,key=FILE,client-ca=FILE"),
    ("--tls-key", "--tls certificate=FILE,key=FILE"),
];

/// The present spelling of a flag that is written in another way now.
pub(crate) fn instead_of(flag: &str) -> Option<&'static str> {
    MOVED.iter().find(|(old, _)| *old == flag).map(|(_, instead)| *instead)
}

/// The subcommand that `given` may stand for, at the place in the arguments where it was found.
fn near_subcommand(given: &str, mut command: clap::Command) -> Option<String> {
    command.build();
    let mut at = &command;
    for argument in std::env::args().skip(1).take_while(|argument| argument != given) {
        at = at.find_subcommand(argument).unwrap_or(at);
    }
    nearest_of(at, given).map(str::to_owned)
}

/// The subcommand of `command` whose name is most like `given`.
pub(crate) fn nearest_of<'a>(command: &'a clap::Command, given: &str) -> Option<&'a str> {
    nigh_text::nearest(given, command.get_subcommands().map(clap::Command::get_name))
}

/// An error and its causes in one line. Some errors name their cause themselves: it is not repeated.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    anyhow::Chain::new(error).map(ToString::to_string).fold(String::new(), |line, cause| match line {
        line if line.is_empty() => cause,
        line if line.ends_with(&cause) => line,
        line => format!("{line}: {cause}"),
    })
}

/// Whether the only error is that the reader of our output has closed it, as `head` does.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    is_broken_pipe(error) && reader_is_gone()
}

/// Whether the reader of our output has gone away.
fn reader_is_gone() -> bool {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Whether somebody that was written to has gone away: who reads our output, or a server.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
