//! Errors in the text of a target and at its opening.

use std::io;
use std::path::PathBuf;

use nigh_text::did_you_mean;

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is empty.
    #[error("a target is missing")]
    Empty,
    /// The word before the first colon is no kind of target.
    #[error("`{word}` is no kind of target; a file of that name is written `./{word}:…`{}", did_you_mean(*.nearest))]
    Kind {
        /// The word.
        word: String,
        /// The kind that is written similarly.
        nearest: Option<&'static str>,
    },
    /// It wraps a target that wraps a target, and so on.
    #[error("a target wraps {most} others at most")]
    Nested {
        /// The limit.
        most: usize,
    },
    /// A wrapper has no target.
    #[error("`{kind}:` lacks a part: it is written `{form}`")]
    Form {
        /// Which wrapper.
        kind: &'static str,
        /// How it is written.
        form: &'static str,
    },
    /// It is not the URI of an NBD server's export.
    #[error("`{text}`: {error}")]
    Uri {
        /// The text as given.
        text: String,
        /// Its error.
        error: nigh_nbd::uri::UriError,
    },
    /// An option of a wrapper has no such name.
    #[error("`{kind}:` has no option `{word}`; it takes {takes}{}", did_you_mean(*.nearest))]
    Option {
        /// Which wrapper.
        kind: &'static str,
        /// The option.
        word: String,
        /// The option that is written similarly.
        nearest: Option<&'static str>,
        /// The options that the wrapper has.
        takes: &'static str,
    },
    /// No profile of a device has that name.
    #[error("there is no profile `{name}`; `nigh devices` lists them, and a file's path has a `/` or ends with `.toml`{}", did_you_mean(*.nearest))]
    Profile {
        /// The requested name.
        name: String,
        /// The name that is written similarly.
        nearest: Option<&'static str>,
    },
    /// A size, time, rate or count is not written as such.
    #[error("`{text}` is not {what}")]
    Value {
        /// The text as given.
        text: String,
        /// The expected form, with an example.
        what: &'static str,
    },
}

/// Kind of an error at an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// There is no such file.
    NotFound,
    /// The file may not be opened so.
    Denied,
    /// Somebody else uses it.
    Busy,
    /// It is no regular file or block device.
    Unsuitable,
    /// The system refused for another reason.
    System,
}

/// Why a target cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct OpenError {
    /// Its kind.
    pub kind: OpenErrorKind,
    /// The operation that failed.
    pub action: &'static str,
    /// To what.
    pub path: PathBuf,
    /// The system's error, or the holder of the file.
    pub source: io::Error,
}
