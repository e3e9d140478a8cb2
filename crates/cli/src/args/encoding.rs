//! Flags of encoded blocks.

use clap::Args;

// No doc comment: clap would head the help of `serve` with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EncodingArgs {
    /// Keep blocks that leave memory there in an encoded form, equal blocks once: dedup (no more than that), dedup+lz4 or dedup+zstd
    /// (compressed), or sketch or sketch+zstd (similar blocks as differences, too). It takes part of --memory, as long as that
    /// pays. Disks share blocks only with their tenant's or those of the same share=GROUP [default: none]
    #[arg(long, value_name = "SCHEME")]
    pub(crate) content: Option<String>,
    /// Processor time for encoding, as a share of one processor [default: 25%]
    #[arg(long, value_name = "SHARE")]
    pub(crate) content_cpu: Option<String>,
}
