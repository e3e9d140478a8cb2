//! `nigh record`: what clients ask a running server, what a disk is asked, or what a program reads and writes, as a trace.

mod disk;
pub(crate) mod kept;
pub(crate) mod program;
#[cfg(target_arch = "x86_64")]
mod traced;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nigh_service::{Command, ControlClient, Recording, RecordingStatus};
use nigh_sim::Sample;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{RecordArgs, RecordingArgs};
use crate::results::grouped;
use crate::{asked, controlled, output};

/// How often the server is asked how far it is.
const GLANCE: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    match (&args.disk, &args.program[..]) {
        (Some(device), _) => return disk::run(device, args),
        #[cfg(target_arch = "x86_64")]
        _ if args.ptrace || args.pid.is_some() => return traced::run(args),
        (None, [program, arguments @ ..]) => return program::run(program, arguments, args),
        (None, []) => {
            ensure!(args.max_size.is_none(), "--max-size is for recordings of programs and disks");
            ensure!(!args.private, "--private is for recordings of programs");
        }
    }
    let recording = recording(&args.file, &args.recording, "--sample")?;
    let (mut client, path) = controlled::connect(&args.server)?;
    let stop = stop_by_signal()?;
    client.ask(&Command::Record { recording }).context(path)?;
    let status = follow(&mut client, &stop)?;
    let text = summary(&status)?;
    output::print(text.as_bytes())
}

/// Is set by a signal that ends the recording, such as Ctrl-C, but not this program.
fn stop_by_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot watch signals")?;
    }
    Ok(stop)
}

/// Waits until the recording ends, or ends it when `stop` is set.
fn follow(client: &mut ControlClient, stop: &AtomicBool) -> anyhow::Result<RecordingStatus> {
    let shows = std::io::stderr().is_terminal();
    loop {
        if stop.load(Ordering::Relaxed) {
            let answer = client.ask(&Command::StopRecording {})?;
            return answer.recording.context("the answer has no recording");
        }
        let status = client.status()?.recording.context("the server does not record")?;
        if shows {
            let requests = grouped(status.requests);
            output::tell_part(format_args!(
                "\r{requests} requests in {:.0} s; Ctrl-C ends the recording ",
                status.seconds
            ));
            if !status.running {
                output::tell("");
            }
        }
        if !status.running {
            return Ok(status);
        }
        std::thread::sleep(GLANCE);
    }
}

/// Summary of the recording, and the next command to type.
pub(crate) fn summary(status: &RecordingStatus) -> anyhow::Result<String> {
    let RecordingStatus { file, running, requests, lost, seconds, error, ended: _ } = status;
    if let Some(error) = error {
        bail!("the recording ended after {} requests: {error}", grouped(*requests));
    }
    ensure!(!running, "{} is still being written; 'nigh ctl status' reports when it is complete", file.display());
    let lost = match lost {
        0 => String::new(),
        lost => format!("; {} more were lost, because the file was written too slowly", grouped(*lost)),
    };
    Ok(format!(
        "recorded {} requests in {seconds:.1} s{lost}\nnext:\n  nigh plan {}\n",
        grouped(*requests),
        file.display()
    ))
}

/// The recording into `file`, which the server writes. `sample_flag` is the flag that the sample was given with.
pub(crate) fn recording(file: &Path, args: &RecordingArgs, sample_flag: &str) -> anyhow::Result<Recording> {
    let RecordingArgs { export, sample, limit, force, .. } = args;
    Ok(Recording {
        file: std::path::absolute(file).with_context(|| file.display().to_string())?,
        force: *force,
        exports: export.clone(),
        sample: sample.as_deref().map(|text| asked::parse_sample(sample_flag, text)).transpose()?.map(Sample::rate),
        seconds: seconds(args)?,
        limit: limit.as_deref().map(asked::parse_limit).transpose()?,
    })
}

/// After how many seconds the recording ends.
fn seconds(args: &RecordingArgs) -> anyhow::Result<Option<f64>> {
    let seconds = |text: &String| {
        let seconds = nigh_text::seconds(text).filter(|&seconds| seconds > 0.0);
        seconds.with_context(|| format!("--for {text}: expected a time with its unit, such as 90s, 10m or 2h"))
    };
    args.time.as_ref().map(seconds).transpose()
}
