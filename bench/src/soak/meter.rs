//! Resources of a process, by `/proc`.

use anyhow::Context;

/// Figures, with their units.
pub(super) const FIGURES: [&str; 3] = ["memory, MiB", "descriptors", "threads"];

/// Each of `FIGURES`.
pub(super) type Figures = [f64; 3];

pub(super) fn figures(process: u32) -> anyhow::Result<Figures> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a field of /proc/PID/status")?;
        Ok(line.trim_start_matches(':').split_whitespace().next().context("a number")?.parse()?)
    };
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))?.count();
    Ok([field("VmRSS")? / 1024.0, descriptors as f64, field("Threads")?])
}
