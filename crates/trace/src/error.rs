//! What can be wrong with a trace.

use std::path::PathBuf;

use crate::Format;

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
    /// A Parquet file cannot be read as requests.
    #[error("{}: {problem}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: crate::format::parquet::Problem,
    },
    /// The format can only be read.
    #[error("{format} can only be read; what can be written is {}", crate::write::writable())]
    NotWritable {
        /// The format.
        format: Format,
    },
    /// Neither the format to write is given, nor does the file's name end in one.
    #[error("{}: the name does not say what to write; name the format: {}", path.display(), crate::write::writable())]
    OutputFormat {
        /// The file, or `-` for standard output.
        path: PathBuf,
    },
    /// A request has a value that the format written cannot hold, and that cannot be left out.
    #[error("{}: request {number}: {format} cannot hold {what}", path.display())]
    Unrepresentable {
        /// The file, or `-` for standard output.
        path: PathBuf,
        /// The format.
        format: Format,
        /// Which request, counted from 0.
        number: u64,
        /// What cannot be held.
        what: &'static str,
    },
    /// The description of a generator cannot be followed.
    #[error(transparent)]
    Generator(#[from] crate::generate::SpecError),
}

/// The result of reading or writing a trace.
pub type Result<T> = std::result::Result<T, Error>;
