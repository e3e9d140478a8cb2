//! What can be wrong with a trace.

use std::path::PathBuf;

/// What can be wrong with a trace, where, and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system could not open, read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file, or `-` for standard input or output.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

/// The result of reading or writing a trace.
pub type Result<T> = std::result::Result<T, Error>;
