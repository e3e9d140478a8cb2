//! `nigh record --disk`: what a disk is asked, by the kernel's block tracepoints.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use nigh_output::Destination;
use nigh_trace::format::parquet::{Call, Context, Did, Recorder};
use nigh_trace::{Gaps, Op, Request, Taken};
use nigh_tracefs::{Disk, Error, Io, SECTOR_BYTES, Tracer};

use super::kept::{CHECKPOINT, begin, completed, limits, salvaged};
use super::stop_by_signal;
use crate::args::RecordArgs;
use crate::output;
use crate::results::grouped;
use crate::size::human_bytes;

/// How often the kernel's buffers are read. At 100,000 requests a second, 1.4 MB are waiting by then.
const GLANCE: Duration = Duration::from_millis(50);

/// The kernel's buffer for each processor: more than a second at 100,000 requests a second.
const BUFFER_KB: u32 = 32 << 10;

/// Events of each request.
const EVENTS: u64 = 2;

pub(super) fn run(device: &Path, args: &RecordArgs) -> anyhow::Result<()> {
    let (limits, to) = limits(args)?;
    // Disks are known by the names of their files.
    let in_dev = Path::new("/dev").join(device);
    let device = if device.components().count() == 1 { &in_dev } else { device };
    let disk = Disk::open(device).map_err(|error| advised(error, device))?;
    let stop = stop_by_signal()?;
    let mut tracer = Tracer::start(&disk, BUFFER_KB).map_err(|error| advised(error, device))?;
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if Disk::below(folder).is_some_and(|below| below.number == disk.number) {
        output::tell(format_args!(
            "nigh: note: {} is on the recorded disk: its own writes are recorded too",
            args.file.display()
        ));
    }
    let mut writing = Writing::begin(&to, device, disk)?;

    let begin = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let mut checkpoint = begin;
    let mut ios = Vec::new();
    loop {
        tracer.read(&mut ios)?;
        if let Err(error) = writing.push(&ios, limits.calls) {
            return Err(writing.salvaged(error));
        }
        ios.clear();
        if checkpoint.elapsed() > CHECKPOINT {
            checkpoint = Instant::now();
            writing.set_lost(tracer.lost()?);
            if let Err(error) = writing.recorder.checkpoint() {
                return Err(writing.salvaged(error));
            }
        }
        let calls = writing.recorder.calls();
        if shows {
            let seconds = begin.elapsed().as_secs();
            output::tell_part(format_args!("\r{} requests in {seconds} s; Ctrl-C ends the recording ", grouped(calls)));
        }
        let is_over = stop.load(Ordering::Relaxed)
            || limits.time.is_some_and(|time| begin.elapsed() >= time)
            || calls >= limits.calls
            || writing.recorder.bytes() >= limits.bytes;
        if is_over {
            break;
        }
        std::thread::sleep(GLANCE);
    }
    if shows {
        output::tell("");
    }
    let seconds = begin.elapsed().as_secs_f64();
    let lost = tracer.finish(&mut ios)?;
    if let Err(error) = writing.push(&ios, limits.calls) {
        return Err(writing.salvaged(error));
    }
    let text = writing.finish(seconds, lost)?;
    output::print(text.as_bytes())
}

/// The error with what to do instead.
fn advised(error: Error, device: &Path) -> anyhow::Error {
    let device = device.display();
    match error {
        Error::NotPermitted => anyhow::anyhow!("{error}: run it as root, or on the host if this is a container"),
        Error::NoTracefs | Error::NoEvent { .. } => anyhow::anyhow!(
            "{error}: if it has blktrace, record with `blktrace -d {device} -o - | blkparse -i - > disk.blkparse`, \
             which nigh reads too"
        ),
        error => error.into(),
    }
}

/// The recording that is written.
struct Writing<'a> {
    file: &'a Path,
    device: &'a Path,
    disk: Disk,
    recorder: Recorder,
    volume: u32,
    context: u32,
    /// When the first request was issued.
    first_ns: Option<u64>,
    bytes_read: u64,
    bytes_written: u64,
}

impl<'a> Writing<'a> {
    fn begin(to: &'a Destination, device: &'a Path, disk: Disk) -> anyhow::Result<Writing<'a>> {
        let (file, mut recorder) = (to.path(), begin(to, Taken::Below)?);
        let volume = recorder.file(&device.to_string_lossy());
        let context = recorder.context(Context::default());
        let (first_ns, bytes_read, bytes_written) = (None, 0, 0);
        Ok(Writing { file, device, disk, recorder, volume, context, first_ns, bytes_read, bytes_written })
    }

    /// Appends `ios`, up to `limit` in all.
    fn push(&mut self, ios: &[Io], limit: u64) -> nigh_trace::Result<()> {
        let left = usize::try_from(limit - self.recorder.calls()).unwrap_or(usize::MAX);
        for io in ios.iter().take(left) {
            let first_ns = *self.first_ns.get_or_insert(io.time_ns);
            let length = match io.op {
                Op::Flush => 0,
                _ => u32::try_from(u64::from(io.sectors) * SECTOR_BYTES).unwrap_or(u32::MAX),
            };
            match io.op {
                Op::Read => self.bytes_read += u64::from(length),
                Op::Write => self.bytes_written += u64::from(length),
                Op::Trim | Op::Flush => {}
            }
            let request = Request {
                time_ns: io.time_ns.saturating_sub(first_ns),
                offset: if io.op == Op::Flush { 0 } else { self.disk.offset(io.sector) },
                length,
                volume: self.volume,
                tenant: io.tid,
                op: io.op,
                stream: 0,
                latency_ns: io.latency_ns,
                content: 0,
            };
            let name = io.name.split(|&byte| byte == 0).next().unwrap_or_default();
            let program = self.recorder.program(&String::from_utf8_lossy(name));
            self.recorder.push(Call {
                request,
                did: Did::Request(io.op),
                program,
                context: self.context,
                tid: io.tid,
                asked: length,
                result: if io.result == 0 { length.into() } else { io.result.into() },
                // Requests above the disk are not known.
                device_bytes: 0,
            })?;
        }
        Ok(())
    }

    fn salvaged(self, error: nigh_trace::Error) -> anyhow::Error {
        salvaged(self.recorder, self.file, error)
    }

    fn set_lost(&mut self, events: u64) {
        self.recorder.set_gaps(Gaps { lost: Some(events.div_ceil(EVENTS)), ..Gaps::default() });
    }

    fn finish(mut self, seconds: f64, lost: u64) -> anyhow::Result<String> {
        let calls = self.recorder.calls();
        if calls == 0 {
            self.recorder.discard()?;
            bail!("{} was asked nothing in {seconds:.1} s: nothing was recorded", self.device.display());
        }
        let file = self.file.display();
        self.set_lost(lost);
        completed(self.recorder, self.file)?;
        let lost = match lost {
            0 => "no events lost".to_owned(),
            lost => format!("{} events lost, two for each request", grouped(lost)),
        };
        Ok(format!(
            "recorded {} requests of {} in {seconds:.1} s: {} read, {} written; {lost}\nnext:\n  nigh trace info {file}\n  \
             nigh plan {file}\n",
            grouped(calls),
            self.device.display(),
            human_bytes(self.bytes_read),
            human_bytes(self.bytes_written),
        ))
    }
}
