//! `nigh guard`: protection against thrashing.

use std::fmt::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use nigh_guard::{Guard, Journal, MechanismName, Outcome, Procfs, Service, Settings, Tree, Writer, made};

use crate::{log, output};

#[path = "guard/command.rs"]
mod command;
#[path = "guard/dry.rs"]
mod dry;

pub(crate) const HELP: &str = "\
When groups that share a memory limit take pages from each other, so that none makes progress, nigh guard protects one of them for a few \
seconds, until its working set is in memory, and then the next. It never kills a process. It records each value before it changes it, and \
restores the values when it stops; after a crash, the next start or 'nigh guard restore' restores them. Stop the guard with SIGTERM or SIGINT.";

const RUN_HELP: &str = "\
If another guard is running, that guard protects the command. Otherwise this command guards while it runs: the whole machine for root, and \
the cgroup delegated to the user for other users. Options of 'nigh guard', such as --freeze, go before 'run'. At the end, the last line on \
standard error reports the time under protection and the time that it saved at least, or that nothing thrashed. The exit status is that of the \
command.";

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GuardCommand>,
    /// Change nothing; report every five seconds what the guard measures and would do; needs no root
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Conditions for protection: default, or dissertation (exactly those of the dissertation, see docs/guard.md)
    #[arg(long, value_name = "PROFILE", default_value = "default")]
    pub(crate) profile: String,
    /// How to protect [default: the first that works]
    #[arg(long, value_enum, value_name = "MECHANISM")]
    pub(crate) mechanism: Option<MechanismArg>,
    /// Do not fetch the protected group's pages from swap
    #[arg(long)]
    pub(crate) no_prefetch: bool,
    /// Freeze the other groups for this long when a protection starts, at most 3 seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) freeze: Option<f64>,
    /// Protect only these groups and the groups below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,
    /// Neither protect nor limit these groups and the groups below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) deny: Vec<String>,
    /// Watch and change only groups below this one, for example one delegated to you
    #[arg(long, value_name = "GROUP")]
    pub(crate) below: Option<String>,
    /// Serve statistics over HTTP: /metrics for Prometheus, /json
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Let other machines read --metrics
    #[arg(long)]
    pub(crate) insecure_tcp: bool,
    /// Folder of the journal and the status socket [default: /run/nigh-guard; for users, nigh-guard in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state: Option<PathBuf>,
    /// Mount point of the cgroups
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup", global = true)]
    pub(crate) cgroupfs: PathBuf,
    /// Mount point of /proc
    #[arg(long, value_name = "FOLDER", default_value = "/proc", global = true)]
    pub(crate) procfs: PathBuf,
    /// Least severe messages on standard error: error, warn, info, debug or trace [default: info; dry run: warn; run: error]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardCommand {
    /// Run a command in a group of its own, and protect against thrashing while it runs
    #[command(after_long_help = RUN_HELP)]
    Run(GuardRunArgs),
    /// Report the state of the running guard
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Restore the values that a killed guard left changed
    Restore,
}

#[derive(Debug, Args)]
pub(crate) struct GuardRunArgs {
    /// Name of the group [default: the name of the command and a number]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Create the group below this one [default: a scope of systemd; without systemd, /nigh, or nigh in the delegated group]
    #[arg(long, value_name = "GROUP")]
    pub(crate) within: Option<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MechanismArg {
    /// memory.low of the group and the groups above it (cgroup v2)
    Low,
    /// memory.swappiness 0 of the group (cgroup v1)
    Swappiness,
    /// memory.high of the others (cgroup v2)
    Squeeze,
}

pub(crate) fn run(args: &GuardArgs) -> anyhow::Result<ExitCode> {
    if args.command.is_none() && args.dry_run {
        return dry::run(args).map(|()| ExitCode::SUCCESS);
    }
    let state = args.state.clone().map_or_else(default_state, Ok)?;
    let done = match &args.command {
        None => serve(args, &state).map(|()| ExitCode::SUCCESS),
        Some(GuardCommand::Run(run)) => return command::run(args, run, &state),
        Some(GuardCommand::Status { json }) => {
            let asked = status(&state, args.state.is_none(), *json);
            // A folder that was made just now to look into it; that of another user stays.
            let _ = made::tidy(&state);
            return asked.map(|()| ExitCode::SUCCESS);
        }
        Some(GuardCommand::Restore) => restore(&state, &args.cgroupfs).map(|()| ExitCode::SUCCESS),
    };
    // The first error is the one to report.
    let tidied = made::tidy(&state).with_context(|| state.display().to_string());
    done.and_then(|code| tidied.map(|()| code))
}

/// Folder of the machine's guard for files that do not outlive a boot.
const OF_MACHINE: &str = "/run/nigh-guard";

/// Folder of this user's guards for files that do not outlive a boot.
fn default_state() -> anyhow::Result<PathBuf> {
    if is_root() {
        return Ok(OF_MACHINE.into());
    }
    let user = rustix::process::geteuid().as_raw();
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = || Some(PathBuf::from(format!("/run/user/{user}"))).filter(|folder| folder.is_dir());
    if let Some(folder) = of_session.filter(|folder| !folder.as_os_str().is_empty()).or_else(usual) {
        return Ok(folder.join("nigh-guard"));
    }
    // The guard writes to files that the journal names: nobody else may have made this folder.
    let folder = std::env::temp_dir().join(format!("nigh-guard-{user}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => made::add(&folder, std::slice::from_ref(&folder)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .and_then(|()| std::fs::symlink_metadata(&folder))
    .map_err(anyhow::Error::from)
    .and_then(|found| {
        let is_private = found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
        is_private.then_some(folder.clone()).context("this folder must belong to this user alone")
    })
    .with_context(|| folder.display().to_string())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn serve(args: &GuardArgs, state: &Path) -> anyhow::Result<()> {
    ensure!(
        is_root() || args.below.is_some(),
        "protection needs root, or --below GROUP with a group delegated to you; --dry-run needs neither, and \
         'nigh guard run' finds that group itself"
    );
    let settings = settings(args, None)?;
    let _log = log::start(args.log.as_deref().unwrap_or("info"))?;
    let tree = Tree::open(&args.cgroupfs, below(args)?)?;
    let journal = Journal::open(&nigh_guard::journal_in(state), Writer::of_system(&args.cgroupfs))?;
    let (profile, controller) = (settings.profile.name, tree.version());
    let mut guard = Guard::new(settings, tree, Procfs::new(&args.procfs), Some(journal))?;
    tracing::info!(profile, ?controller, "watching");
    controller.limits().into_iter().for_each(|limits| tracing::warn!("{limits}"));
    let service = Service { procfs: &args.procfs, state: Some(state), metrics: args.metrics, report: None };
    nigh_guard::serve(&mut guard, &service)?;
    Ok(())
}

/// The group of `--below`; empty for everything.
fn below(args: &GuardArgs) -> anyhow::Result<&str> {
    let below = args.below.as_deref().unwrap_or_default();
    plain_group(below)?;
    Ok(below)
}

/// The settings that the flags ask for. `command` is the name of the group of a command that is run.
fn settings(args: &GuardArgs, command: Option<String>) -> anyhow::Result<Settings> {
    let most = nigh_guard::FREEZE_MOST.as_secs_f64();
    let freeze = args.freeze.unwrap_or(0.0);
    ensure!((0.0..=most).contains(&freeze), "--freeze is at most {most} seconds");
    args.allow.iter().chain(&args.deny).try_for_each(|group| plain_group(group))?;
    if let Some(address) = args.metrics.filter(|address| !(args.insecure_tcp || address.ip().is_loopback())) {
        bail!("statistics on {address} would be open to the network: use a loopback address, or say --insecure-tcp");
    }
    Ok(Settings {
        profile: args.profile.parse()?,
        allow: args.allow.clone(),
        deny: args.deny.clone(),
        mechanism: args.mechanism.map(|mechanism| match mechanism {
            MechanismArg::Low => MechanismName::Low,
            MechanismArg::Swappiness => MechanismName::Swappiness,
            MechanismArg::Squeeze => MechanismName::Squeeze,
        }),
        prefetch: !args.no_prefetch,
        freeze: Duration::from_secs_f64(freeze),
        command,
    })
}

/// A group is a path below the root of the cgroups, and stays there.
fn plain_group(group: &str) -> anyhow::Result<()> {
    let stays = Path::new(group).components().all(|part| !matches!(part, std::path::Component::ParentDir));
    ensure!(stays, "'{group}' is no group: expected a path such as user.slice/build");
    Ok(())
}

/// Prints the status of the guard in `state`, or else, with `or_machine`, of the machine's.
fn status(state: &Path, or_machine: bool, json: bool) -> anyhow::Result<()> {
    let answer = nigh_guard::ask(state);
    let answer = if or_machine { answer.or_else(|_| nigh_guard::ask(Path::new(OF_MACHINE))) } else { answer };
    let text = answer.with_context(|| format!("no guard is running: none answers in {}", state.display()))?;
    if json {
        return output::print(format!("{text}\n").as_bytes());
    }
    let status: serde_json::Value = serde_json::from_str(&text).context("the guard's answer")?;
    output::print(render(&status).as_bytes())
}

/// The status for people.
fn render(status: &serde_json::Value) -> String {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let mut text = String::new();
    let _ = writeln!(text, "profile {}, cgroup {}", word(&status["profile"]), word(&status["controller"]));
    let scopes = status["scopes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if scopes.is_empty() {
        let _ = writeln!(text, "no memory limit is watched: nothing thrashes");
    }
    for scope in scopes {
        let (name, limit_mib) = (word(&scope["scope"]), scope["limit"].as_u64().unwrap_or(0) >> 20);
        let _ = write!(text, "/{name} ({limit_mib} MiB, {} groups): {}", scope["groups"], word(&scope["state"]));
        if let (Some(group), Some(seconds)) = (scope["protected"].as_str(), scope["protected_s"].as_f64()) {
            let by = scope["mechanism"].as_str().unwrap_or("freeze");
            let _ = write!(text, ", {group} protected by {by} for {seconds:.0} s");
        }
        text.push('\n');
    }
    let [seconds, saved] = ["protected_s", "saved_s"].map(|name| status[name].as_f64().unwrap_or(0.0));
    let _ = writeln!(
        text,
        "since the start: {} protections ({seconds:.0} s, at least {:.0} s saved), {} refusals, {} times no group fitted, {} major faults \
         under pressure",
        status["protections"],
        saved.floor(),
        status["refusals"],
        status["load_controls"],
        status["faults"]
    );
    if let Some(refusal) = status["refusal"].as_str() {
        let _ = writeln!(text, "latest refusal: {refusal}");
    }
    text
}

fn restore(state: &Path, cgroupfs: &Path) -> anyhow::Result<()> {
    let path = nigh_guard::journal_in(state);
    if !path.exists() {
        return output::print(b"nothing to restore\n");
    }
    let mut text = String::new();
    let mut refused = 0;
    for restored in Journal::open(&path, Writer::of_system(cgroupfs))?.restore_all()? {
        let file = restored.file.display();
        let _ = match restored.outcome {
            Outcome::Original => writeln!(text, "{file} = {}", restored.original),
            Outcome::Gone => writeln!(text, "{file} no longer exists"),
            Outcome::Foreign(value) => writeln!(text, "{file} stays {value}: another program has set it"),
            Outcome::Refused(error) => {
                refused += 1;
                writeln!(text, "{file}: not restored: {error}")
            }
        };
    }
    output::print(text.as_bytes())?;
    if refused > 0 {
        bail!("{refused} values could not be restored; they stay in {}", path.display());
    }
    Ok(())
}
