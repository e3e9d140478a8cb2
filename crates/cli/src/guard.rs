//! `nigh guard`: protection against thrashing.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use nigh_guard::{Guard, Journal, Listen, MechanismName, Outcome, Procfs, Settings, Tree, Writer};

use crate::output;

pub(crate) const HELP: &str = "\
When groups that share a limit fault each other out of memory, one of them is protected for some seconds, until its working set is
there; then the next. Nothing is ever killed. What is changed is written down first, and restored at the end; after a crash, by the
next start or by 'nigh guard restore'. SIGTERM and SIGINT end the service.";

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GuardCommand>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// When to act: default, or dissertation (its literal conditions)
    #[arg(long, value_name = "PROFILE", default_value = "default")]
    pub(crate) profile: String,
    /// How to protect [default: the first that works]
    #[arg(long, value_enum, value_name = "MECHANISM")]
    pub(crate) mechanism: Option<MechanismArg>,
    /// Do not fetch the protected group's pages from swap
    #[arg(long)]
    pub(crate) no_prefetch: bool,
    /// Let the others stand still for so many seconds at the start of a protection, at most 3
    #[arg(long, value_name = "SECONDS")]
    pub(crate) freeze: Option<f64>,
    /// Protect only these groups and what is below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,
    /// Neither protect nor hinder these groups and what is below them
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) deny: Vec<String>,
    /// Look at and change only what is below this group, such as one that was delegated to you
    #[arg(long, value_name = "GROUP")]
    pub(crate) below: Option<String>,
    /// Serve statistics over HTTP here: /metrics for Prometheus, /json
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Keep the journal and the socket for 'status' here [default: /run/nigh-guard, a user's in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state: Option<PathBuf>,
    /// Where cgroups are mounted
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup", global = true)]
    pub(crate) cgroupfs: PathBuf,
    /// Where processes are mounted
    #[arg(long, value_name = "FOLDER", default_value = "/proc", global = true)]
    pub(crate) procfs: PathBuf,
    /// What is told on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardCommand {
    /// Run a command in a group of its own, so that it can be protected
    Run(GuardRunArgs),
    /// Say what the running guard does
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Restore what a guard that was killed has left changed
    Restore,
}

#[derive(Debug, Args)]
pub(crate) struct GuardRunArgs {
    /// The group's name [default: the command's, and a number]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Make the group below this one, without systemd [default: a scope of systemd; where it does not run, nigh]
    #[arg(long, value_name = "GROUP")]
    pub(crate) within: Option<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MechanismArg {
    /// memory.low of the group and those above it (cgroup v2)
    Low,
    /// memory.swappiness 0 of the group (cgroup v1)
    Swappiness,
    /// memory.high of the others (cgroup v2)
    Squeeze,
}

/// The name of the journal in the folder of the state.
const JOURNAL: &str = "journal";

pub(crate) fn run(args: &GuardArgs) -> anyhow::Result<ExitCode> {
    let state = args.state.clone().unwrap_or_else(default_state);
    match &args.command {
        None => serve(args, &state).map(|()| ExitCode::SUCCESS),
        Some(GuardCommand::Run(run)) => run_command(args, run),
        Some(GuardCommand::Status { json }) => status(&state, *json).map(|()| ExitCode::SUCCESS),
        Some(GuardCommand::Restore) => restore(&state, &args.cgroupfs).map(|()| ExitCode::SUCCESS),
    }
}

/// Where root's services, or a user's, keep what does not outlive a boot.
fn default_state() -> PathBuf {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !is_root());
    of_user.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("nigh-guard")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn serve(args: &GuardArgs, state: &Path) -> anyhow::Result<()> {
    ensure!(
        is_root() || args.dry_run || args.below.is_some(),
        "protection needs root, or --below GROUP with a group that was delegated to you; --dry-run needs neither"
    );
    let settings = settings(args)?;
    let below = args.below.as_deref().unwrap_or_default();
    plain_group(below)?;
    start_log(&args.log)?;
    let tree = Tree::open(&args.cgroupfs, below)?;
    let journal = Journal::open(&state.join(JOURNAL), Writer::of_system(&args.cgroupfs))?;
    let (profile, controller) = (settings.profile.name, tree.version());
    let mut guard = Guard::new(settings, tree, Procfs::new(&args.procfs), journal)?;
    tracing::info!(profile, ?controller, dry_run = args.dry_run, "watching");
    let listen = Listen { state: state.to_owned(), metrics: args.metrics };
    nigh_guard::serve(&mut guard, &listen, &args.procfs)?;
    Ok(())
}

fn settings(args: &GuardArgs) -> anyhow::Result<Settings> {
    let most = nigh_guard::FREEZE_MOST.as_secs_f64();
    let freeze = args.freeze.unwrap_or(0.0);
    ensure!((0.0..=most).contains(&freeze), "--freeze is at most {most} seconds");
    args.allow.iter().chain(&args.deny).try_for_each(|group| plain_group(group))?;
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
        dry_run: args.dry_run,
    })
}

fn start_log(level: &str) -> anyhow::Result<()> {
    let level: tracing::Level =
        level.parse().map_err(|_| anyhow!("'{level}' is no level: error, warn, info, debug or trace"))?;
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_ansi(false);
    log.with_writer(std::io::stderr).init();
    Ok(())
}

/// A group is a path below the root of the cgroups, and stays there.
fn plain_group(group: &str) -> anyhow::Result<()> {
    let stays = Path::new(group).components().all(|part| !matches!(part, std::path::Component::ParentDir));
    ensure!(stays, "'{group}' is no group: expected a path such as user.slice/build");
    Ok(())
}

fn run_command(args: &GuardArgs, run: &GuardRunArgs) -> anyhow::Result<ExitCode> {
    let (program, arguments) = run.command.split_first().context("what is to be run?")?;
    let default = || {
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{program}-{}", std::process::id())
    };
    let name = run.name.clone().unwrap_or_else(default);
    ensure!(!name.is_empty() && name != "." && name != ".." && !name.contains('/'), "'{name}' is no name of a group");
    // Where systemd runs, groups are its own: a scope is one that it knows.
    if run.within.is_none() && Path::new("/run/systemd/system").is_dir() {
        let mut scope = Command::new("systemd-run");
        scope.args(["--scope", "--quiet", "--collect"]).arg(format!("--unit=nigh-{name}"));
        scope.args((!is_root()).then_some("--user")).arg("--").args(&run.command);
        return Err(std::os::unix::process::CommandExt::exec(&mut scope)).context("systemd-run");
    }
    let within = run.within.as_deref().unwrap_or("nigh");
    plain_group(within)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let status = nigh_guard::run_in_group(&args.cgroupfs, &args.procfs, within, &name, &mut command)?;
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    let code = status.code().or(by_signal).and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

fn status(state: &Path, json: bool) -> anyhow::Result<()> {
    let text = nigh_guard::ask(state).with_context(|| format!("no guard answers in {}", state.display()))?;
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
    let dry = if status["dry_run"] == true { ", dry run" } else { "" };
    let _ = writeln!(text, "profile {}, cgroup {}{dry}", word(&status["profile"]), word(&status["controller"]));
    let scopes = status["scopes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if scopes.is_empty() {
        let _ = writeln!(text, "all is well: nothing is watched");
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
    let seconds = status["protected_s"].as_f64().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "since the start: {} protections ({seconds:.0} s), {} refusals, {} times none fitted, {} major faults under pressure",
        status["protections"], status["refusals"], status["load_controls"], status["faults"]
    );
    text
}

fn restore(state: &Path, cgroupfs: &Path) -> anyhow::Result<()> {
    let path = state.join(JOURNAL);
    if !path.exists() {
        return output::print(b"nothing to restore\n");
    }
    let mut text = String::new();
    let mut refused = 0;
    for restored in Journal::open(&path, Writer::of_system(cgroupfs))?.restore_all()? {
        let file = restored.file.display();
        let _ = match restored.outcome {
            Outcome::Original => writeln!(text, "{file} = {}", restored.original),
            Outcome::Gone => writeln!(text, "{file} is gone with its group"),
            Outcome::Foreign(value) => writeln!(text, "{file} stays {value}: somebody else has set it"),
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
