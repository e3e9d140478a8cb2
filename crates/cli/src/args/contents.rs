//! Flags of replays that depend on what blocks contain.

use std::path::PathBuf;

use clap::Args;

use super::Processor;

// No doc comment: clap would head the help of `sim` with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContentsArgs {
    /// Contents of the trace's blocks: a file that names images, or describes generated disks (docs/content.md).
    /// The policy is lru unless --policy names others
    #[arg(long, value_name = "FILE")]
    pub(crate) contents: Option<PathBuf>,
    /// How the cache uses contents: none, dedup (equal blocks are stored once), dedup+lz4 or dedup+zstd (equal blocks once, all
    /// compressed), or sketch or sketch+zstd (similar ones as differences, too); without --device also lpu (as published) or
    /// lpu-dedup (lpu, with equal blocks stored once before a scan finds them). With --device, it is what 'nigh serve
    /// --content' does, with one share=GROUP [default: none,dedup,lpu,lpu-dedup,dedup+lz4,sketch; with --device,
    /// none,dedup+lz4,sketch]
    #[arg(long, value_name = "SCHEME,...", value_delimiter = ',', requires = "contents")]
    pub(crate) content: Vec<String>,
    /// With --device, processor time for encoding, as a share of one processor [default: 25%]
    #[arg(long, value_name = "SHARE", requires_all = ["contents", "device"])]
    pub(crate) content_cpu: Option<Processor>,
}
