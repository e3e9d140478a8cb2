//! Flags of the commands that record, study and advise programs.

use std::path::PathBuf;

use clap::Args;

use super::{ControlArgs, InputArgs, RecordingArgs, parse_count};

pub(super) const ADVISE_HELP: &str = "\
The first run of a program, without a profile, is recorded without advice. Later runs get hints: data that is read once leaves the page cache behind the \
reader; of loops that do not fit, the part that fits is kept; short files are fetched at once; and random reads get no read-ahead. If advice does not \
reduce the device reads of a piece of code, that code gets none from then on, and after three runs without gain the program runs as without nigh. \
Delete the profile to begin anew.";

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Profile of the program. If there is no such file, this run is recorded without advice, and the file is written
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: PathBuf,
    /// Record the calls for one of eight files, and improve the profile by what they show
    #[arg(long, requires = "program")]
    pub(crate) learn: bool,
    /// Show what each piece of code read, with advice and without; without a program, as far as the profile knows
    #[arg(long)]
    pub(crate) report: bool,
    /// Bytes that loops keep in the page cache, such as 500M [default: what the memory cgroup of the program has left]
    #[arg(long, value_name = "SIZE", requires = "program")]
    pub(crate) keep: Option<String>,
    /// Start this program
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "report")]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PatternsArgs {
    /// The trace: a recording of programs, or another trace with streams
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How many pieces of code to list, the most referenced first
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "20", value_parser = parse_count)]
    pub(crate) top: u64,
    /// Write what is found of the program as a profile for 'nigh advise'
    #[arg(long, value_name = "FILE", conflicts_with_all = ["top", "json"])]
    pub(crate) profile: Option<PathBuf>,
    /// Replace the profile if it exists
    #[arg(long, requires = "profile")]
    pub(crate) force: bool,
    /// Print one JSON object, with all code
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The trace to write, .parquet. A server writes the file itself, also as .csv, and with .zst, .gz or .xz appended
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Record this disk or partition, such as vdb or /dev/vdb1, by the kernel's block tracepoints (root)
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["export", "sample"])]
    pub(crate) disk: Option<PathBuf>,
    /// End the recording of a program or a disk when the file has this size, such as 1G
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["export", "sample"])]
    pub(crate) max_size: Option<String>,
    /// Write hashes instead of the paths of files. They are different in each recording
    #[arg(long, conflicts_with_all = ["disk", "export", "sample"])]
    pub(crate) private: bool,
    /// Record page faults in mappings of files, too, by the kernel's performance events. They are replayed as reads
    #[arg(long, requires = "program", conflicts_with_all = ["disk", "ptrace", "pid"])]
    pub(crate) faults: bool,
    /// Drop calls instead of delaying the program when it makes them faster than they can be recorded
    #[arg(long, requires = "program", conflicts_with_all = ["disk", "ptrace", "pid"])]
    pub(crate) lossy: bool,
    /// Stop the program at each of its system calls instead of loading a library into it: slower, but also for static programs
    #[arg(long, requires = "program", conflicts_with_all = ["disk", "pid"])]
    pub(crate) ptrace: bool,
    /// Record this process and its future children, as with --ptrace
    #[arg(long, value_name = "PROCESS", conflicts_with_all = ["program", "disk", "export", "sample"])]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) server: ControlArgs,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
    /// Start this program and record what it and its children read and write, and which code asked for it
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["disk", "export", "sample"])]
    pub(crate) program: Vec<std::ffi::OsString>,
}
