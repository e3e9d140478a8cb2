//! `nigh sweep`: many traces against policies and sizes, whose results are kept.

use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use nigh_sweep::{About, Folder, Found, List, Outcome, Task, text};

use crate::compare::Comparison;
use crate::results::{Results, grouped};
use crate::{asked, front, grid, output, progress};

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
    if let Some((uri, _)) = list.traces.iter().find(|(trace, _)| nigh_sweep::is_uri(trace)) {
        return Err(nigh_sweep::Error::Uri(uri.clone()).into());
    }
    let mut traces = Vec::new();
    for (pattern, settings) in &list.traces {
        let files = nigh_sweep::expand(&list.folder, pattern)?;
        traces.extend(files.into_iter().map(|file| (file, settings.clone())));
    }
    let jobs = nigh_sweep::jobs(traces);
    let threads = asked::threads(args.threads);
    let path = args.results.as_deref().unwrap_or(&list.results);
    if args.dry_run {
        let folder = if path.exists() { Some(Folder::open(path)?) } else { None };
        let tasks = nigh_sweep::tasks(jobs, folder.as_ref(), threads);
        let failed = tasks.iter().filter(|task| task.found.is_err()).count();
        return ended(output::print(tasks.iter().map(listed).collect::<String>().as_bytes()), failed);
    }
    let folder = Folder::create(path)?;
    let tasks = nigh_sweep::tasks(jobs, Some(&folder), threads);
    let (mut open, mut done) = (0, 0);
    for task in &tasks {
        open += u64::from(task.is_open());
        match &task.found {
            Ok((key, Found::Damaged)) => {
                let path = folder.path(key);
                output::tell(format_args!(
                    "nigh: note: {}: the result is damaged: {} is replayed again",
                    path.display(),
                    task.job.name
                ));
            }
            Ok((_, Found::Table(_))) => done += 1,
            Ok((_, Found::Nothing)) | Err(_) => {}
        }
    }
    let finished = AtomicU64::new(0);
    let run = || nigh_sweep::run(tasks, &folder, threads, &finished);
    let outcomes = progress::follow(progress::jobs(open), &finished, run);
    let errors: Vec<(String, String)> = outcomes.iter().filter_map(error).collect();
    // First, in case that who reads the results has gone away.
    for (name, error) in &errors {
        output::tell(format_args!("nigh: {name}: {error}"));
    }
    let failed = errors.len();
    let replayed = outcomes.len() - done - failed;
    let printed = print(args, &outcomes, &errors).and_then(|()| {
        if args.json || args.csv {
            return Ok(());
        }
        let (replayed, done, path) = (grouped(replayed as u64), grouped(done as u64), path.display());
        let text = format!("traces: {replayed} replayed, {done} already there, {failed} failed; results in {path}\n");
        output::print(text.as_bytes())
    });
    ended(printed, failed)
}

/// The exit code of a sweep of which this many jobs failed, whether or not its output was read.
fn ended(printed: anyhow::Result<()>, failed: usize) -> anyhow::Result<ExitCode> {
    match printed {
        Err(error) if !front::is_unread(&error) => Err(error),
        _ if failed > 0 => Ok(ExitCode::from(SOME_FAILED)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints the results in the form of `args`.
fn print(args: &SweepArgs, outcomes: &[Outcome], errors: &[(String, String)]) -> anyhow::Result<()> {
    let tables: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.table.as_ref().ok().cloned()).collect();
    if args.json {
        output::print(text::json(&tables, errors).as_bytes())?;
    } else if args.csv {
        output::print(text::csv(&tables).as_bytes())?;
    } else if !tables.is_empty() {
        let results = tables.iter().map(|table| {
            let about = About::of(table).context("the table is not that of a job")?;
            let rows = nigh_sweep::to_rows(table).context("the table is not that of a job")?;
            Ok(Results { results: rows, notes: about.notes, ..Results::new(about.trace, 1) })
        });
        let comparison = Comparison::new(results.collect::<anyhow::Result<_>>()?, None)?;
        output::print(comparison.table(grid::terminal_width(), Some(TRACES_MOST)).as_bytes())?;
    }
    Ok(())
}

/// The trace of a job that failed, and why.
fn error(outcome: &Outcome) -> Option<(String, String)> {
    outcome.table.as_ref().err().map(|error| (outcome.job.name.clone(), front::causes(error)))
}

/// The line of a job: its key, what there is of its result, and its trace.
fn listed(task: &Task) -> String {
    let (key, state) = match &task.found {
        Ok((key, Found::Nothing)) => (key, "open"),
        Ok((key, Found::Damaged)) => (key, "damaged"),
        Ok((key, Found::Table(_))) => (key, "done"),
        Err(error) => return format!("{:<32}  failed   {}: {}\n", "-", task.job.name, front::causes(error)),
    };
    format!("{key}  {state:<7}  {}\n", task.job.trace)
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
            "{python}: {last}: --dask needs nigh's Python package and distributed (in a checkout: pip install '.[dask]'), or {other}"
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
