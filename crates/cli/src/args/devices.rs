//! Flags of `nigh devices`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::completion;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DevicesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DevicesCommand>,
    /// Print this device's profile, with the sources of its figures: one that is listed, or an array of them, such as raid5-4x-hdd-7200
    #[arg(value_name = "NAME", add = completion::devices())]
    pub(crate) name: Option<String>,
    /// List the disks of the papers, too, of 1990 to 2000
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevicesCommand {
    /// Measure a device by reads that bypass the page cache, never by writes, and fit a profile to it; or fit one to the latencies of a recording
    Fit(FitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// A block device, or a regular file on it; with --recording, a trace
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Fit to the latencies in this recording, without reading a device: PATH, or PATH,columns=... as for 'nigh sim'
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) recording: bool,
    /// The disk in the recording [default: that of most requests]
    #[arg(long, value_name = "NUMBER", requires = "recording")]
    pub(crate) volume: Option<u32>,
    /// Write the profile here (TOML) [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the profile if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Approximate duration of the reads, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}
