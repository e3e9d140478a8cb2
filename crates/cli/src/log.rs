//! The log of programs that keep running. Nobody waits for its reader.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, anyhow};

/// Lines that wait for the reader of standard error. Further ones are lost.
const LINES: usize = 1024;
/// How long the end waits for lines that are left.
const FAREWELL: Duration = Duration::from_secs(1);

/// When it is dropped, it waits for up to [`FAREWELL`] until the lines that are left are written, unless there are too many.
pub(crate) struct Log {
    lines: SyncSender<Vec<u8>>,
    /// An empty line was written.
    written: Mutex<Receiver<()>>,
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.lines.try_send(Vec::new()).is_ok() {
            let written = self.written.get_mut().unwrap_or_else(|error| error.into_inner());
            let _ = written.recv_timeout(FAREWELL);
        }
    }
}

/// One line at a time.
struct Writer {
    lines: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

impl Write for &Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(shown(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line whose names, which others may have chosen, do not control a terminal.
fn shown(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let mut shown = nigh_text::printable(text.trim_end_matches('\n')).into_owned().into_bytes();
    shown.push(b'\n');
    shown
}

/// Writes what happens to standard error from now on, down to `level`, on a thread of its own.
pub(crate) fn start(level: &str) -> anyhow::Result<Log> {
    let level: tracing::Level =
        level.parse().map_err(|_| anyhow!("'{level}' is no level: error, warn, info, debug or trace"))?;
    // Without the lock of `std::io::Stderr`, for which panics and the last words of the program would wait.
    let output = io::stderr().as_fd().try_clone_to_owned().context("standard error")?;
    let (lines, queue) = sync_channel(LINES);
    let (done, written) = sync_channel(1);
    let lost = Arc::new(AtomicU64::new(0));
    let log = Log { lines: lines.clone(), written: Mutex::new(written) };
    let writer = Writer { lines, lost: lost.clone() };
    let write = move || write_all(&mut File::from(output), &queue, &lost, &done);
    Builder::new().name("log".into()).spawn(write).context("no thread for the log")?;
    let format = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_ansi(false);
    format.with_writer(Arc::new(writer)).init();
    Ok(log)
}

fn write_all(output: &mut impl Write, queue: &Receiver<Vec<u8>>, lost: &AtomicU64, done: &SyncSender<()>) {
    for line in queue {
        // The reader may be gone.
        let _ = output.write_all(&line);
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(output, "{lost} lines of the log were lost: standard error was not read in time");
        }
        if line.is_empty() {
            let _ = done.try_send(());
        }
    }
}
