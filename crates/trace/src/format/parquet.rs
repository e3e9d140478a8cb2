//! nigh's own form, in Apache Parquet.

/// What a file starts with.
pub(crate) const MAGIC: &[u8] = b"PAR1";
