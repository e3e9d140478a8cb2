//! `nigh sweep`: many traces against policies and sizes, whose results are kept.

use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use nigh_sweep::{About, Folder, List, Outcome, State, Task, text};

use crate::compare::Comparison;
use crate::results::{Results, grouped};
use crate::{asked, grid, output, progress};

/// More traces than this are compared in a summary, without a row for each.
const TRACES_MOST: usize = 24;

/// The exit code of a sweep some of whose jobs failed.
const SOME_FAILED: u8 = 1;

// No doc comment: clap would head the help of `sweep` with it.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The list of traces, policies, sizes and settings (TOML, see docs/sweep.md)
    #[arg(value_name = "SWEEP.toml")]
    list: PathBuf,
    /// Jobs that run at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Keep the results in this folder, one Parquet file for each trace [default: that of the list, or 'results' beside it]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// Run the jobs on the workers of a Dask cluster, given by the address of its scheduler, such as tcp://head:8786. Needs the
    /// Python package of nigh with distributed
    #[arg(long, value_name = "ADDRESS", conflicts_with = "threads")]
    dask: Option<String>,
    /// The Python interpreter for --dask
    #[arg(long, value_name = "PROGRAM", env = "NIGH_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Print one JSON object (its schema is in docs/json.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a row for each trace, policy and size as CSV
    #[arg(long)]
    csv: bool,
    /// List the jobs and what there is of their results, and end
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    dry_run: bool,
}

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let list = List::read(&args.list).with_context(|| args.list.display().to_string())?;
    if let Some(address) = &args.dask {
        return run_on_dask(args, address);
    }
    if let Some(uri) = list.traces.iter().find(|trace| nigh_sweep::is_uri(trace)) {
        return Err(nigh_sweep::Error::Uri(uri.clone()).into());
    }
    let mut traces = Vec::new();
    for pattern in &list.traces {
        traces.extend(nigh_sweep::expand(pattern)?);
    }
    let jobs = nigh_sweep::jobs(traces, &list.settings);
    let threads = asked::threads(args.threads);
    let path = args.results.as_deref().unwrap_or(&list.results);
    if args.dry_run {
        let folder = if path.exists() { Some(Folder::open(path)?) } else { None };
        let (tasks, failed) = nigh_sweep::tasks(jobs, folder.as_ref(), threads);
        output::print(listed(&tasks, &failed).as_bytes())?;
        return Ok(code(&failed));
    }
    let folder = Folder::create(path)?;
    let (tasks, mut outcomes) = nigh_sweep::tasks(jobs, Some(&folder), threads);
    for task in tasks.iter().filter(|task| matches!(task.state, State::Damaged)) {
        let path = folder.path(&task.key);
        eprintln!("nigh: note: {}: the result is damaged: {} is replayed again", path.display(), task.job.name);
    }
    let done = tasks.iter().filter(|task| matches!(task.state, State::Done(_))).count();
    let finished = AtomicU64::new(0);
    let bar = progress::jobs(tasks.len() as u64);
    let ran = progress::follow(bar, &finished, || nigh_sweep::run(tasks, &folder, threads, &finished));
    let replayed = ran.iter().filter(|outcome| outcome.table.is_ok()).count() - done;
    outcomes.splice(0..0, ran);
    write(args, &outcomes)?;
    let failed = outcomes.iter().filter(|outcome| outcome.table.is_err()).count();
    if !args.json && !args.csv {
        let (replayed, done) = (grouped(replayed as u64), grouped(done as u64));
        let path = path.display();
        let text = format!("traces: {replayed} replayed, {done} already there, {failed} failed; results in {path}\n");
        output::print(text.as_bytes())?;
    }
    Ok(code(&outcomes))
}

fn code(outcomes: &[Outcome]) -> ExitCode {
    let is_failed = outcomes.iter().any(|outcome| outcome.table.is_err());
    if is_failed { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS }
}

/// Gives the results to whom `args` says, and the errors to standard error.
fn write(args: &SweepArgs, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let tables: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.table.as_ref().ok().cloned()).collect();
    let errors: Vec<(String, String)> = outcomes.iter().filter_map(error).collect();
    if args.json {
        output::print(text::json(&tables, &errors).as_bytes())?;
    } else if args.csv {
        output::print(text::csv(&tables).as_bytes())?;
    } else if !tables.is_empty() {
        let results = tables.iter().map(|table| {
            let about = About::of(table).context("the table is not that of a job")?;
            let rows = nigh_sweep::to_rows(table).context("the table is not that of a job")?;
            Ok(Results { results: rows, notes: about.notes, ..Results::new(about.trace, 1) })
        });
        let comparison = Comparison::new(results.collect::<anyhow::Result<_>>()?);
        output::print(comparison.table(grid::terminal_width(), TRACES_MOST).as_bytes())?;
    }
    for (name, error) in errors {
        eprintln!("nigh: {name}: {error}");
    }
    Ok(())
}

/// The trace of a job that failed, and why.
fn error(outcome: &Outcome) -> Option<(String, String)> {
    outcome.table.as_ref().err().map(|error| (outcome.job.name.clone(), reason(error)))
}

fn reason(error: &nigh_sweep::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// A line for each job: its key, what there is of its result, and its trace.
fn listed(tasks: &[Task], failed: &[Outcome]) -> String {
    let line = |task: &Task| {
        let state = match task.state {
            State::Open => "open",
            State::Damaged => "damaged",
            State::Done(_) => "done",
        };
        format!("{}  {state:<7}  {}\n", task.key, task.job.trace)
    };
    let lines = tasks.iter().map(line);
    let failed =
        failed.iter().filter_map(error).map(|(name, error)| format!("{:<32}  failed   {name}: {error}\n", "-"));
    lines.chain(failed).collect()
}

/// `python3 -m nigh sweep` in place of this process.
fn run_on_dask(args: &SweepArgs, address: &str) -> anyhow::Result<ExitCode> {
    let python = args.python.display();
    let other = "name another interpreter by --python or NIGH_PYTHON";
    let check = Command::new(&args.python).args(["-c", "import nigh, distributed"]).output();
    let check = check.with_context(|| format!("{python}: {other}"))?;
    if !check.status.success() {
        let text = String::from_utf8_lossy(&check.stderr);
        let last = text.lines().last().unwrap_or("it failed").to_owned();
        bail!(
            "{python}: {last}: --dask needs the packages nigh and distributed (pip install 'nigh[dask]'), or {other}"
        );
    }
    let mut command = Command::new(&args.python);
    command.args(["-m", "nigh", "sweep"]).arg(&args.list).args(["--dask", address]);
    if let Some(results) = &args.results {
        command.arg("--results").arg(results);
    }
    for (flag, given) in [("--json", args.json), ("--csv", args.csv), ("--dry-run", args.dry_run)] {
        command.args(given.then_some(flag));
    }
    Err(anyhow!(command.exec()).context(python.to_string()))
}
