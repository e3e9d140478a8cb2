//! `nigh guard run`: a command in a group of its own, protected while it runs.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_guard::{Beside, Launch, Summary, Tree, Writer};

use super::{GuardArgs, GuardRunArgs, OF_MACHINE, is_root, plain_group, settings};
use crate::{log, output};

pub(super) fn run(args: &GuardArgs, run: &GuardRunArgs, state: &Path) -> anyhow::Result<ExitCode> {
    ensure!(
        !args.dry_run,
        "--dry-run protects nothing: run 'nigh guard --dry-run' in another terminal beside the command"
    );
    let (program, arguments) = run.command.split_first().context("the command is missing")?;
    let default = || {
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{program}-{}", std::process::id())
    };
    let name = run.name.clone().unwrap_or_else(default);
    ensure!(!name.is_empty() && name != "." && name != ".." && !name.contains('/'), "'{name}' is no name of a group");
    let _log = log::start(args.log.as_deref().unwrap_or("error"))?;
    // Under systemd, groups are its own: a scope is one that it knows.
    let scope = run.within.is_none() && manager_is_there();
    let below = super::below(args)?;
    let reach = match (below, &run.within) {
        ("", Some(within)) if !is_root() => {
            nigh_guard::delegated(&args.cgroupfs, &args.procfs).unwrap_or(within.clone())
        }
        ("", None) if !is_root() => nigh_guard::delegated(&args.cgroupfs, &args.procfs)?,
        (below, _) => below.to_owned(),
    };
    // Obstacles to protection are reported before the command starts.
    let version = Tree::open(&args.cgroupfs, &reach)?.version();
    version.limits().into_iter().for_each(|limits| output::tell(format_args!("nigh: note: {limits}")));
    let within = match &run.within {
        Some(within) => within.clone(),
        None if is_root() => "nigh".to_owned(),
        None => format!("{reach}/nigh"),
    };
    plain_group(&within)?;
    let mut command = Command::new(if scope { "systemd-run" } else { program });
    let unit = format!("nigh-{name}");
    if scope {
        command.args(["--scope", "--quiet", "--collect"]).arg(format!("--unit={unit}"));
        command.args((!is_root()).then_some("--user")).arg("--").arg(program);
    }
    command.args(arguments);
    let group = if scope { format!("{unit}.scope") } else { name.clone() };
    let beside = Beside {
        settings: settings(args, Some(group))?,
        cgroupfs: args.cgroupfs.clone(),
        procfs: args.procfs.clone(),
        below: reach,
        state: state.to_owned(),
        of_machine: (!is_root()).then(|| OF_MACHINE.into()),
        metrics: args.metrics,
        writer: Writer::of_system(&args.cgroupfs),
    };
    let within = (!scope).then_some(&*within);
    let launch = Launch { cgroupfs: &args.cgroupfs, procfs: &args.procfs, within, name: &name, command };
    let start = Instant::now();
    let (status, summary) = launch.run(&beside)?;
    output::tell(format_args!("nigh: {}", line(&summary, start.elapsed())));
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Whether a manager of systemd takes scopes of this user.
fn manager_is_there() -> bool {
    let of_user =
        || std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).join("systemd").is_dir());
    Path::new("/run/systemd/system").is_dir() && (is_root() || of_user())
}

/// Protection while a command ran for `elapsed`, in one line.
fn line(summary: &Summary, elapsed: Duration) -> String {
    let counts = &summary.counts;
    let by = if summary.had_other { " (another guard was running)" } else { "" };
    if let Some(error) = &summary.error {
        return format!("protection failed: {error}");
    }
    let reason =
        summary.refusal.as_deref().unwrap_or("'nigh guard status' and the log of the other guard have the reason");
    if counts.protections > 0 {
        let own = match summary.command_s {
            own if own < 0.5 => "never this command".to_owned(),
            own if own + 0.5 > counts.protected_s => "always this command".to_owned(),
            own => format!("this command for {}", time(own)),
        };
        let saved = match counts.saved_s {
            saved if saved < 1.0 => "whether that saved time is not known".to_owned(),
            saved => format!("that saved at least {}", time(saved.floor())),
        };
        let times = if counts.protections == 1 { "once".to_owned() } else { format!("{} times", counts.protections) };
        return format!(
            "programs thrashed; protected {times} for {} in all, {own}; {saved}{by}",
            time(counts.protected_s)
        );
    }
    if counts.refusals + counts.load_controls > 0 {
        return format!("programs thrashed, but none could be protected: {reason}{by}");
    }
    format!("nothing thrashed in {}; no protection was needed{by}", time(elapsed.as_secs_f64()))
}

/// Seconds in words.
fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_guard::Counts;

    #[test]
    fn the_last_line_reports_protection_refusal_or_rest() {
        let told = |counts: Counts, command_s: f64| {
            line(&Summary { counts, command_s, ..Summary::default() }, Duration::from_secs(3725))
        };
        assert_eq!(told(Counts::default(), 0.0), "nothing thrashed in 1 h 2 min; no protection was needed");
        let counts = Counts { protections: 3, protected_s: 34.2, saved_s: 29.6, ..Counts::default() };
        assert_eq!(
            told(counts.clone(), 20.0),
            "programs thrashed; protected 3 times for 34 s in all, this command for 20 s; that saved at least 29 s"
        );
        let counts = Counts { protections: 1, saved_s: 0.0, ..counts };
        assert_eq!(
            told(counts, 34.2),
            "programs thrashed; protected once for 34 s in all, always this command; whether that saved time is not known"
        );
        let counts = Counts { refusals: 1, ..Counts::default() };
        let refused = Summary { counts, refusal: Some("low: no".to_owned()), had_other: true, ..Summary::default() };
        assert_eq!(
            line(&refused, Duration::ZERO),
            "programs thrashed, but none could be protected: low: no (another guard was running)"
        );
    }
}
