//! Errors of lists, jobs and results.

use std::path::PathBuf;

/// Why a sweep, or one of its jobs, cannot run.
///
/// If an error has a source, its message ends before that of the source: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that is not TOML, or not JSON.
    #[error("{0}")]
    Syntax(String),
    /// A key that does not exist.
    #[error("unknown key `{key}`: expected one of {known}{}", nigh_text::did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The key.
        key: String,
        /// The most similar known key, if there is one.
        nearest: Option<String>,
        /// All known keys.
        known: String,
    },
    /// A key that must be there is not.
    #[error("`{0}` is missing")]
    Missing(String),
    /// The value of a key.
    #[error("{key} = {given}: {problem}")]
    Value {
        /// The key.
        key: String,
        /// Its value as it was given.
        given: String,
        /// The error, or the expected form.
        problem: String,
    },
    /// A trace that is named by a URI.
    #[error("{0}: URIs need the Python package: run python3 -m nigh sweep, or add --dask ADDRESS")]
    Uri(String),
    /// No file matches a pattern.
    #[error("{0}: no file matches this pattern")]
    NoMatch(String),
    /// A pattern that is none.
    #[error("{pattern}: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The error.
        problem: String,
    },
    /// The name of a file that is not UTF-8.
    #[error("{}: the name is not UTF-8: rename the file", .0.display())]
    Name(PathBuf),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] nigh_trace::Error),
    /// The settings and the trace do not go together.
    #[error("{name}")]
    Replay {
        /// The trace.
        name: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// None of a trace's requests counts.
    #[error("{name}: nothing to replay: none of its {requests} requests {what}")]
    Nothing {
        /// The trace.
        name: String,
        /// Its requests.
        requests: u64,
        /// The operation that they would need.
        what: &'static str,
    },
    /// A trace is not the one that the job was made for.
    #[error("{0}: here this is another file than where the sweep was started")]
    OtherContent(String),
    /// The job was stopped.
    #[error("stopped")]
    Stopped,
    /// The operating system could not read or write a file.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
