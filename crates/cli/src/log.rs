//! The log of programs that keep running.

use anyhow::anyhow;

/// Writes what happens to standard error from now on, down to `level`.
pub(crate) fn start(level: &str) -> anyhow::Result<()> {
    let level: tracing::Level =
        level.parse().map_err(|_| anyhow!("'{level}' is no level: error, warn, info, debug or trace"))?;
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_ansi(false);
    log.with_writer(std::io::stderr).init();
    Ok(())
}
