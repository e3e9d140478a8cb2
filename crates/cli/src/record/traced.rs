//! `nigh record --ptrace -- PROGRAM` and `nigh record --pid PROCESS`: programs that are stopped at each system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use nigh_record::{Tracer, Writer, now_ns};
use nigh_trace::Taken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::kept::{CHECKPOINT, Limits, begin, completed, limits, salvaged};
use super::program::{find_any, next, said};
use crate::args::RecordArgs;
use crate::output;

pub(super) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let (limits, to) = limits(args)?;
    let begin_ns = now_ns();
    let mut tracer = Tracer::new(begin_ns, args.private);
    let program =
        args.program.split_first().map(|(name, arguments)| Ok::<_, anyhow::Error>((find_any(name)?, arguments)));
    let program = program.transpose()?;
    let recorder = begin(&to, Taken::Above)?;
    // Ctrl-C is for a program that was started, too; the recording ends with it.
    let stop = Arc::new(AtomicBool::new(false));
    let ends: &[i32] = if program.is_some() { &[SIGINT] } else { &[SIGINT, SIGTERM, SIGHUP] };
    for &signal in ends {
        let flag = if program.is_some() { Arc::default() } else { stop.clone() };
        signal_hook::flag::register(signal, flag).context("cannot watch signals")?;
    }
    let begun = match (&program, args.pid) {
        (Some((program, arguments)), _) => {
            tracer.start(program, arguments).map(Some).with_context(|| program.path.display().to_string())
        }
        (None, process) => {
            let process = process.unwrap_or_default();
            let refused = |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::PermissionDenied => anyhow::anyhow!(
                    "process {process}: {error}: it must be of the same user and without a debugger, and \
                     /proc/sys/kernel/yama/ptrace_scope may allow it for root only"
                ),
                _ => anyhow::Error::from(error).context(format!("process {process}")),
            };
            tracer.attach(process).map(|()| None).map_err(refused)
        }
    };
    let mut child = match begun {
        Ok(child) => child,
        Err(error) => {
            recorder.discard()?;
            return Err(error);
        }
    };
    let start = Instant::now();
    let mut writer = Writer::new(recorder, limits.calls, begin_ns);
    let traced = trace(&mut tracer, &mut writer, &limits, &stop);
    tracer.detach(&mut writer);
    let (mut recorder, written) = writer.end();
    recorder.set_gaps(tracer.gaps());
    let summary = tracer.summary();
    tracer.gaps().unseen.iter().for_each(|what| output::tell(format_args!("nigh: not recorded: {what}")));
    let finished = match written {
        Ok(()) if summary.calls == 0 => {
            recorder.discard()?;
            // A program that was started has a code of its own.
            ensure!(
                program.is_some(),
                "process {} read and wrote no file: {} was not written; what it reads through mappings is recorded when nigh \
                 starts it: nigh record --faults -- PROGRAM",
                args.pid.unwrap_or_default(),
                args.file.display()
            );
            output::tell(format_args!("nigh: no file was read or written: {} was not written", args.file.display()));
            Ok(())
        }
        Ok(()) => completed(recorder, &args.file).map(|()| {
            output::tell(format_args!("nigh: {}", said(&summary, start.elapsed().as_secs_f64())));
            output::tell_part(next(&args.file, &summary));
        }),
        Err(error) => Err(salvaged(recorder, &args.file, error)),
    };
    let code = match (tracer.code(), &mut child) {
        (None, Some(child)) => child.wait().context("waiting for the program")?.code().unwrap_or(1),
        (code, _) => code.unwrap_or(0),
    };
    traced?;
    finished?;
    if code == 0 { Ok(()) } else { std::process::exit(code) }
}

/// Records until the program ends, or what is traced, or a limit is reached.
fn trace(tracer: &mut Tracer, writer: &mut Writer, limits: &Limits, stop: &AtomicBool) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut checkpoint = begin;
    loop {
        let is_any = tracer.trace(writer).context("tracing the program")?;
        if checkpoint.elapsed() > CHECKPOINT {
            checkpoint = Instant::now();
            writer.checkpoint(tracer.gaps());
        }
        let is_over = writer.is_over() || writer.bytes() >= limits.bytes || stop.load(Ordering::Relaxed);
        let is_late = limits.time.is_some_and(|time| begin.elapsed() >= time);
        if !is_any || tracer.code().is_some() || is_over || is_late {
            return Ok(());
        }
        // Tracing is slower than writing, so the writer is never behind.
    }
}
