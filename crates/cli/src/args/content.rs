//! Flags of `nigh content`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

pub(super) const CONTENT_HELP: &str = "\
Schemes, each with the memory that keeps the blocks, and the processor time to store and to read one:
  none         blocks as they are
  dedup        equal blocks once
  lz4, zstd    each block compressed, if that saves a quarter of it
  dedup+lz4, dedup+zstd
               both
  sketch       equal blocks once, similar ones as their difference to another block, the rest with lz4

An extent of 1 MiB that is read is read from all files, at the same offset. A sample finds fewer equal and similar blocks \
than there are: the whole has a higher share of them.";

#[derive(Debug, Args)]
pub(crate) struct ContentArgs {
    /// Raw images of disks, or block devices; they are only read
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Read only this share of the data, such as 10% [default: as much as makes 4 GiB]
    #[arg(long, value_name = "RATE")]
    pub(crate) sample: Option<String>,
    /// Name the best scheme for a cache with this memory, such as 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print one JSON object (its schema is in docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}
