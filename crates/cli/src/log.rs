//! The log of programs that keep running.

use anyhow::anyhow;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// Lines that wait for whoever reads standard error. Further ones are lost: nobody waits for the log.
const LINES: usize = 1024;

/// Writes what happens to standard error from now on, down to `level`. What is not written when the result is dropped is written then,
/// unless nobody reads it.
pub(crate) fn start(level: &str) -> anyhow::Result<WorkerGuard> {
    let level: tracing::Level =
        level.parse().map_err(|_| anyhow!("'{level}' is no level: error, warn, info, debug or trace"))?;
    let lines = NonBlockingBuilder::default().buffered_lines_limit(LINES).lossy(true).thread_name("log");
    let (writer, guard) = lines.finish(std::io::stderr());
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_ansi(false);
    log.with_writer(writer).init();
    Ok(guard)
}
