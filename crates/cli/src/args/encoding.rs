//! Flags of encoded blocks.

use clap::Args;

// No doc comment: clap would head the help of `serve` with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EncodingArgs {
    /// Keep evicted blocks in a part of --memory, as long as that pays, in encoded form: dedup (equal blocks once), dedup+lz4 or
    /// dedup+zstd (also compressed), or sketch or sketch+zstd (also similar blocks as differences). Disks share blocks only with
    /// those of their tenant or of the same share=GROUP [default: none]
    #[arg(long, value_name = "SCHEME")]
    pub(crate) content: Option<String>,
    /// Processor time for encoding, as a share of one processor [default: 25%]
    #[arg(long, value_name = "SHARE")]
    pub(crate) content_cpu: Option<String>,
}
