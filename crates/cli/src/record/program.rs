//! `nigh record -- PROGRAM`: what a program and its children read and write, and which code asked for it.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use nigh_output::Destination;
use nigh_record::{Collector, Program, Session, Summary, Unrecordable, Writer, now_ns};
use nigh_trace::Taken;
use nigh_trace::format::parquet::{About, Recorder};

use super::kept::{CHECKPOINT, Limits, Options, begin, completed, limits, salvaged};
use crate::args::RecordArgs;
use crate::output;
use crate::results::counted;
use crate::size::human_bytes;
use crate::started::{Ended, Started};

/// How often the rings are read, unless much is in them.
const GLANCE: Duration = Duration::from_millis(2);

pub(super) fn run(name: &OsString, arguments: &[OsString], args: &RecordArgs) -> anyhow::Result<()> {
    let (limits, to) = limits(args)?;
    let options = Options { private: args.private, faults: args.faults, lossy: args.lossy, limits };
    let program = find(name)?;
    let session = Session::new().context("a folder to share with the program")?;
    let ended = recorded(&program, arguments, &session, &to, &options, |_| {})?;
    session.end().context("the folder shared with the program")?;
    if let (_, Ok(Some(summary))) = &ended {
        output::tell_part(next(&args.file, summary));
    }
    match ended {
        (ended, Ok(_)) if ended.code() == 0 => Ok(()),
        (ended, _) => std::process::exit(if ended.code() == 0 { 2 } else { ended.code() }),
    }
}

/// Runs `program` and records it into `file`. `each_round` runs every few milliseconds until the program ends. Returns how it
/// ended, and what is in the file, if anything; errors of the recording are reported at once, because the program goes on.
pub(crate) fn recorded(
    program: &Program,
    arguments: &[OsString],
    session: &Session,
    to: &Destination,
    options: &Options,
    mut each_round: impl FnMut(u32),
) -> anyhow::Result<(Ended, anyhow::Result<Option<Summary>>)> {
    let mut command = session.command(program)?;
    let (file, recorder) = (to.path(), begin(to, Taken::Above)?);
    let (start, begin_ns) = (Instant::now(), now_ns());
    let mut collector = Collector::new(session.shared(), begin_ns, options.private);
    if options.lossy {
        collector.be_lossy();
    }
    let watched = if options.faults { collector.record_faults().map_err(faults_refused) } else { Ok(()) };
    let started =
        watched.and_then(|()| Started::new(command.args(arguments)).context(program.path.display().to_string()));
    let mut started = match started {
        Ok(started) => started,
        Err(error) => {
            recorder.discard()?;
            return Err(error);
        }
    };
    let mut writer = Writer::new(recorder, options.limits.calls, begin_ns);
    record(&mut started, &mut collector, &mut writer, &options.limits, &mut each_round)?;
    collector.collect_rest(&mut writer);
    let seconds = start.elapsed().as_secs_f64();
    let (recorder, written) = writer.end();
    let device_bytes = if started.has_ended()? { started.wait()?.device_bytes } else { None };
    let about = About {
        program: std::path::absolute(&program.path)?.to_string_lossy().into_owned(),
        device_bytes: device_bytes.unwrap_or(0),
        modules: collector.modules(),
    };
    let finished = match written {
        Ok(()) => finish(recorder, &collector, about, seconds, file, options.faults),
        Err(error) => Err(salvaged(recorder, file, error)),
    };
    if let Err(error) = &finished {
        output::tell(format_args!("nigh: {error:#}"));
    }
    // Programs that still run need not report their calls any more.
    drop(collector);
    Ok((started.wait().context("waiting for the program")?, finished))
}

/// Why page faults cannot be recorded, and what to do.
fn faults_refused(error: std::io::Error) -> anyhow::Error {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match error.kind() {
        std::io::ErrorKind::PermissionDenied if paranoid.trim().parse().is_ok_and(|level: i32| level > 2) => {
            anyhow::anyhow!(
                "--faults: {error}: it needs root, or /proc/sys/kernel/perf_event_paranoid of at most 2 (it is {})",
                paranoid.trim()
            )
        }
        std::io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("--faults: {error}: a container or a limit (ulimit -l) forbids performance events")
        }
        std::io::ErrorKind::Unsupported => anyhow::anyhow!("--faults: this kernel reports no performance events"),
        _ => anyhow::Error::from(error).context("--faults"),
    }
}

/// Records until the program ends or a limit is reached.
fn record(
    started: &mut Started,
    collector: &mut Collector,
    writer: &mut Writer,
    limits: &Limits,
    each_round: &mut impl FnMut(u32),
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut checkpoint = begin;
    loop {
        each_round(started.process());
        // Before the rings are read: what it did until its end is in them.
        let has_ended = started.has_ended().context("waiting for the program")?;
        let is_behind = writer.is_behind();
        let is_busy = !is_behind && collector.collect(writer);
        if checkpoint.elapsed() > CHECKPOINT {
            checkpoint = Instant::now();
            writer.checkpoint(collector.gaps());
        }
        let is_over = writer.is_over() || writer.bytes() >= limits.bytes;
        if (has_ended && !is_behind) || is_over || limits.time.is_some_and(|time| begin.elapsed() >= time) {
            return Ok(());
        }
        if !is_busy {
            std::thread::sleep(GLANCE);
        }
    }
}

/// Completes the file and reports its contents.
fn finish(
    mut recorder: Recorder,
    collector: &Collector,
    about: About,
    seconds: f64,
    path: &Path,
    faults: bool,
) -> anyhow::Result<Option<Summary>> {
    let summary = collector.summary();
    let Summary { calls, processes, .. } = summary;
    for (path, why) in collector.missed() {
        output::tell(format_args!("nigh: not recorded: {path} ({why})"));
    }
    if calls == 0 {
        recorder.discard()?;
        anyhow::ensure!(processes > 0, "nothing was recorded: the program did not load the recording library");
        let why = match (summary.lost, summary.missed) {
            (0, 0) => "the program read and wrote no files: there is nothing to record".to_owned(),
            (0, _) => "no call of the programs that could be recorded was one for a file".to_owned(),
            (lost, _) => format!("all {} were lost", counted(lost, "call")),
        };
        output::tell(format_args!("nigh: {why}; no recording was written"));
        return Ok(None);
    }
    recorder.set_gaps(collector.gaps());
    if let Err(error) = recorder.describe(about) {
        return Err(salvaged(recorder, path, error));
    }
    completed(recorder, path)?;
    let running = match collector.running() {
        0 => String::new(),
        1 => "; 1 program still runs, and is no longer recorded".to_owned(),
        running => format!("; {} still run, and are no longer recorded", counted(running as u64, "program")),
    };
    output::tell(format_args!("nigh: {}{running}", said(&summary, seconds)));
    if !faults && is_mostly_mapped(&summary) {
        let mapped = human_bytes(summary.bytes_mapped);
        output::tell(format_args!(
            "nigh: note: {mapped} of files were mapped: --faults also records page faults in mappings"
        ));
    }
    Ok(Some(summary))
}

/// Whether most of the recorded programs' accesses may be missing, because they were through mappings.
fn is_mostly_mapped(summary: &Summary) -> bool {
    summary.faults == 0 && summary.bytes_mapped > summary.bytes_read
}

/// The next commands to type. A recording without most accesses is not what to plan with.
pub(super) fn next(file: &Path, summary: &Summary) -> String {
    if is_mostly_mapped(summary) {
        let file = file.with_extension("faults.parquet");
        return format!("next:\n  nigh record --faults -o {} -- PROGRAM ...\n", file.display());
    }
    let file = file.display();
    format!("next:\n  nigh trace info {file}\n  nigh patterns {file}\n  nigh plan {file}\n")
}

/// Summary of the recording.
pub(super) fn said(summary: &Summary, seconds: f64) -> String {
    let Summary { calls, processes, files, bytes_read, bytes_written, faults, lost, missed, .. } = *summary;
    let lost = match lost {
        0 if missed > 0 => format!("{} not recorded, or in part", counted(missed, "program")),
        0 => "no calls lost".to_owned(),
        lost if faults > 0 => format!("{} lost", counted(lost, "event")),
        lost => format!("{} lost", counted(lost, "call")),
    };
    let touched = if faults > 0 { format!(" and {}", counted(faults, "page fault")) } else { String::new() };
    format!(
        "recorded {}{touched} of {} in {seconds:.1} s: {}, {} read, {} written; {lost}",
        counted(calls - faults, "call"),
        counted(processes, "program"),
        counted(files, "file"),
        human_bytes(bytes_read),
        human_bytes(bytes_written),
    )
}

/// As `find`, for a program that loads no library too.
#[cfg(target_arch = "x86_64")]
pub(super) fn find_any(name: &OsString) -> anyhow::Result<Program> {
    match Program::find(&name.to_string_lossy()) {
        Err(Unrecordable::Static { path }) => Ok(Program { path }),
        found => Ok(found?),
    }
}

/// Finds the program that is called `name`.
pub(crate) fn find(name: &OsString) -> anyhow::Result<Program> {
    Program::find(&name.to_string_lossy()).map_err(|error| advised(error, name))
}

/// The error with what to do instead.
fn advised(error: Unrecordable, name: &OsString) -> anyhow::Error {
    match error {
        Unrecordable::Static { .. } => anyhow::anyhow!("{error}: record it with --ptrace, which is slower"),
        Unrecordable::SetUser { .. } => {
            let name = name.to_string_lossy();
            anyhow::anyhow!(
                "{error}: record it with `strace -f -y -ttt -e trace=file,desc -o FILE.strace {name} ...`, which nigh reads too, or \
                 record its disk with --disk"
            )
        }
        error => error.into(),
    }
}
