//! Resources of a child process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};

/// A finished process.
pub(crate) struct Finished {
    /// User and system time of all its threads, in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) stdout: String,
}

/// Runs `command` to its end. One process at a time: the times of all children are one account.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Finished> {
    let before = children_cpu_s()?;
    let shown = format!("{command:?}").replace('"', "");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {shown}"))?;
    ensure!(output.status.success(), "{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Finished { cpu_s: children_cpu_s()? - before, stdout })
}

fn children_cpu_s() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// A trace beside the repository; prints a line if it is not there.
pub(crate) fn recorded(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(name);
    if !path.exists() {
        println!("skipped: {name}: it is not in ../shared/traces");
    }
    path.exists().then_some(path)
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

/// Folder for the builds and generated files of benches.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = target.unwrap_or_else(|| root.join("target")).join("bench");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// The release build of nigh, which `cargo xtask bench` makes before it starts a bench.
pub(crate) fn nigh() -> anyhow::Result<Command> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("nigh");
    ensure!(path.exists(), "{} is not built: run `cargo xtask bench`", path.display());
    Ok(Command::new(path))
}

/// Generates a workload into `name` of the folder of benches, unless it is there.
pub(crate) fn generated(name: &str, spec: &str, requests: u64) -> anyhow::Result<PathBuf> {
    let path = folder()?.join(name);
    if !path.exists() {
        let mut generate = nigh()?;
        generate.args(["trace", "generate", spec]).arg(&path).args(["--requests", &requests.to_string()]);
        run(&mut generate)?;
    }
    Ok(path)
}

/// The load of the machine, for the head of every report: `1.20 1.31 0.98 on 2 processors`.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = load.split(' ').take(3).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} on {processors} processors", averages.join(" "))
}
