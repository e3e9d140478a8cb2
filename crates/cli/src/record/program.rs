//! `nigh record -- PROGRAM`: what a program and its children read and write, and which code asked for it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nigh_record::{Collector, Program, Session, Summary, Unrecordable, Writer};
use nigh_trace::Taken;
use nigh_trace::format::parquet::Recorder;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::kept::{BLOCK_BYTES, CHECKPOINT, Limits, completed, limits, salvaged};
use crate::args::RecordArgs;
use crate::results::grouped;
use crate::size::human_bytes;

/// How often the rings are read. A thread's ring has room for 4 million calls a second.
const GLANCE: Duration = Duration::from_millis(2);

/// The exit code of a program that a signal ended is this and the signal's number, as in a shell.
const SIGNALLED: i32 = 128;

pub(super) fn run(name: &OsString, arguments: &[OsString], args: &RecordArgs) -> anyhow::Result<()> {
    let limits = limits(args)?;
    let program = Program::find(&name.to_string_lossy()).map_err(|error| advised(error, name))?;
    let session = Session::new().context("a folder to share with the program")?;
    let mut command = session.command(&program)?;
    let recorder = Recorder::create(&args.file, Taken::Above, BLOCK_BYTES)?;
    let begin = Instant::now();
    let mut collector = Collector::new(session.shared(), now_ns(), args.private);
    // Ctrl-C is for the program, which the terminal sends it to; other signals are passed on.
    let signals = [SIGINT, SIGTERM, SIGHUP].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
    for (signal, flag) in &signals {
        signal_hook::flag::register(*signal, flag.clone()).context("cannot watch signals")?;
    }
    let mut child = match command.args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            recorder.discard()?;
            return Err(error).context(program.path.display().to_string());
        }
    };
    let mut writer = Writer::new(recorder, limits.calls);
    record(&mut child, &mut collector, &mut writer, &limits, &signals[1..]);
    let seconds = begin.elapsed().as_secs_f64();
    let (recorder, written) = writer.end();
    let finished = match written {
        Ok(()) => finish(recorder, &collector, seconds, args),
        Err(error) => Err(salvaged(recorder, &args.file, error)),
    };
    if let Err(error) = &finished {
        eprintln!("nigh: {error:#}");
    }
    // Programs that still run need not report their calls any more.
    drop(collector);
    let status = wait(&mut child, &signals[1..])?;
    session.end().context("the folder shared with the program")?;
    match code(status) {
        0 if finished.is_ok() => Ok(()),
        0 => std::process::exit(2),
        code => std::process::exit(code),
    }
}

/// Records until the program ends or a limit is reached.
fn record(
    child: &mut Child,
    collector: &mut Collector,
    writer: &mut Writer,
    limits: &Limits,
    signals: &[(i32, Arc<AtomicBool>)],
) {
    let begin = Instant::now();
    let mut checkpoint = begin;
    loop {
        pass_on(child, signals);
        // Before the rings are read: what it did until its end is in them.
        let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
        let is_behind = writer.is_behind();
        if !is_behind {
            collector.collect(writer);
        }
        if checkpoint.elapsed() > CHECKPOINT {
            checkpoint = Instant::now();
            writer.checkpoint();
        }
        let is_over = writer.is_over() || writer.bytes() >= limits.bytes;
        if (has_ended && !is_behind) || is_over || limits.time.is_some_and(|time| begin.elapsed() >= time) {
            return;
        }
        std::thread::sleep(GLANCE);
    }
}

/// Completes the file and says what is in it.
fn finish(recorder: Recorder, collector: &Collector, seconds: f64, args: &RecordArgs) -> anyhow::Result<()> {
    let Summary { calls, processes, files, bytes_read, bytes_written, lost } = collector.summary();
    let file = args.file.display();
    for (path, why) in collector.missed() {
        eprintln!("nigh: not recorded: {path} ({why})");
    }
    if calls == 0 {
        recorder.discard()?;
        anyhow::ensure!(processes > 0, "nothing was recorded: the program did not load the recording library");
        eprintln!("nigh: the program read and wrote no files: there is nothing to record, and {file} was not written");
        return Ok(());
    }
    completed(recorder, &args.file)?;
    let lost = match lost {
        0 => "no calls lost".to_owned(),
        lost => format!("{} calls lost", grouped(lost)),
    };
    let running = match collector.running() {
        0 => String::new(),
        running => format!("; {} programs still run, and are no longer recorded", grouped(running as u64)),
    };
    eprintln!(
        "nigh: recorded {} calls of {} programs in {seconds:.1} s: {} files, {} read, {} written; {lost}{running}\nnext:\n  nigh \
         trace info {file}\n  nigh sim {file} --policy lru,lirs,aoio,opt",
        grouped(calls),
        grouped(processes),
        grouped(files),
        human_bytes(bytes_read),
        human_bytes(bytes_written),
    );
    Ok(())
}

/// Waits for the end of a program that is not recorded any more.
fn wait(child: &mut Child, signals: &[(i32, Arc<AtomicBool>)]) -> anyhow::Result<ExitStatus> {
    loop {
        pass_on(child, signals);
        if let Some(status) = child.try_wait().context("waiting for the program")? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pass_on(child: &Child, signals: &[(i32, Arc<AtomicBool>)]) {
    for (signal, flag) in signals {
        if flag.swap(false, Ordering::Relaxed)
            && let Some(signal) = rustix::process::Signal::from_named_raw(*signal)
        {
            // It may have ended.
            let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), signal);
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0))
}

/// The error with what to do instead.
fn advised(error: Unrecordable, name: &OsString) -> anyhow::Error {
    match error {
        Unrecordable::Static { .. } | Unrecordable::SetUser { .. } => {
            let name = name.to_string_lossy();
            anyhow::anyhow!(
                "{error}: record it with `strace -f -y -ttt -e trace=file,desc -o FILE.strace {name} ...`, which nigh reads too, or \
                 record its disk with --disk"
            )
        }
        error => error.into(),
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
