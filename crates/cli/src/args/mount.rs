//! Flags of `nigh mount`.

use std::path::PathBuf;

use clap::Args;

use super::{CacheArgs, RecordArg, WatchArgs};

pub(super) const MOUNT_HELP: &str = "\
  nigh mount /mnt/nfs /mnt/fast --memory 4G --control /run/nigh.ctl
  nigh top --control /run/nigh.ctl

Files are read through the cache. What is written is in the source before the write returns. A file that was changed behind the mount is read
again from its next open on, as on NFS. Read-ahead is within a file. A --level starts empty. Flags that 'nigh serve' has, too, are described by its help. docs/mount.md has a tutorial, and states what is guaranteed.

SIGTERM and SIGINT unmount and end the server. Programs that still have files open can finish for as long as --stop-within.";

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The folder whose files are cached
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// An existing folder outside of it, at which its files appear
    #[arg(value_name = "FOLDER")]
    pub(crate) at: PathBuf,
    /// Trust names, attributes and contents for this long after checking the source, from 0s to 24h: faster, if nobody changes
    /// files behind the mount, or if changes may be seen later. With 0s, the source is checked at each open
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) fresh: String,
    /// Do not cache files with these names, such as '*.log', or, with a slash, with these paths below the source, such as 'logs/**'
    #[arg(long, value_name = "GLOB")]
    pub(crate) no_cache: Vec<String>,
    /// Reject all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users use the mount, by the permissions of the source's files; for a user who is not root, /etc/fuse.conf has to allow it
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Threads that take requests: as many can wait for the source at a time, besides reads of files
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: u16,
    /// The name of the files in 'nigh top' and 'nigh ctl' [default: the last part of SOURCE]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Record all reads and writes as a trace, from start to end ('nigh record' records for a given time)
    ///
    /// With sample=RATE, such as 1%, only that share of the blocks.
    #[arg(long, value_name = "FILE[,sample=RATE]")]
    pub(crate) record: Option<RecordArg>,
    /// Least severe messages on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}
