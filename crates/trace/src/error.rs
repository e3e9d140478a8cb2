//! What can be wrong with a trace.

use std::fmt;
use std::path::PathBuf;

use crate::Format;

/// What can be wrong with a trace, where, and what was expected.
///
/// The message of an error that has a source ends before the source's own: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system could not open, read or write a file.
    #[error("{}", path.display())]
    Io {
        /// The file, or `-` for standard input or output.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A compressed file ends early or its bytes are damaged.
    #[error("{}: the {compression} data is {}", path.display(), if *truncated { "cut short" } else { "damaged" })]
    Compressed {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// `gzip`, `zstd` or `xz`.
        compression: &'static str,
        /// Whether it ends before its own end mark.
        truncated: bool,
        /// What the decompressor said.
        source: std::io::Error,
    },
    /// A line or record is not what its format says.
    #[error("{}: {place}: found {found}, expected {expected}", path.display())]
    Malformed {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// Where in it, after decompression.
        place: Place,
        /// What is there, shortened and with control characters escaped.
        found: String,
        /// What belongs there.
        expected: String,
    },
    /// There is no request in the trace.
    #[error("{}: no requests", path.display())]
    Empty {
        /// The file, or `-` for standard input.
        path: PathBuf,
    },
    /// The content is like no known format.
    #[error("{}: the format is not recognized; name it: {}", path.display(), names(Format::all()))]
    Unrecognized {
        /// The file, or `-` for standard input.
        path: PathBuf,
    },
    /// The content is like several formats, and the file's name does not decide.
    #[error("{}: the format could be {}; name the right one", path.display(), names(candidates))]
    Ambiguous {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// The formats it could be.
        candidates: Vec<Format>,
    },
    /// A name or a setting that does not exist.
    #[error("no {what} is called `{given}`; there are {known}{}", nigh_text::did_you_mean(*nearest))]
    UnknownName {
        /// What was to be named.
        what: &'static str,
        /// The name given.
        given: String,
        /// The known name most like it, if one is.
        nearest: Option<&'static str>,
        /// All names.
        known: String,
    },
    /// The description of a file's columns cannot be used.
    #[error("columns: `{given}`: expected {expected}")]
    Columns {
        /// The part that is wrong.
        given: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Nothing shows in which unit a file counts.
    #[error("{}: nothing shows the unit of the {what}, such as {example}; add {setting} to the columns", path.display())]
    UnknownUnit {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// What has the unit: `times`, `offsets` or `lengths`.
        what: &'static str,
        /// The setting that states it, with its values.
        setting: &'static str,
        /// One of the numbers.
        example: u64,
    },
    /// Binary records cannot be read without a description of their columns.
    #[error("{}: records need a description of their columns, such as record=24,time=0:u64,offset=8:u64", path.display())]
    NotDescribed {
        /// The file, or `-` for standard input.
        path: PathBuf,
    },
    /// The block size is 0 or above [`crate::BLOCK_BYTES_MAX`].
    #[error("a block of {0} bytes: expected 1 to {max}", max = crate::BLOCK_BYTES_MAX)]
    BlockBytes(u32),
    /// This build cannot read or write the format.
    #[error("{}: this build has no support of {format}: build nigh with the feature `{format}`", path.display())]
    NotBuilt {
        /// The file.
        path: PathBuf,
        /// The format, whose name is that of the feature.
        format: Format,
    },
    /// A Parquet file cannot be read as requests.
    #[cfg(feature = "parquet")]
    #[error("{}: {problem}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: crate::format::parquet::Problem,
    },
    /// The format can only be read.
    #[error("{format} can only be read; what can be written is {}", names(&crate::write::FORMATS))]
    NotWritable {
        /// The format.
        format: Format,
    },
    /// A compressed file of a format that is read from many places of a file, and is compressed within.
    #[error("{}: {format} is compressed within; leave out the ending of the name", path.display())]
    NotCompressible {
        /// The file.
        path: PathBuf,
        /// The format.
        format: Format,
    },
    /// Neither is the format to write given, nor does the file's name end in one.
    #[error("{}: the name does not say what to write; name the format: {}", path.display(), names(&crate::write::FORMATS))]
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
    /// Two extents of a list claim the same bytes.
    #[error("{}: {overlap}", path.display())]
    Overlap {
        /// The list.
        path: PathBuf,
        /// Which do.
        overlap: crate::layout::Overlap,
    },
    /// The description of a generator cannot be followed.
    #[error(transparent)]
    Generator(#[from] crate::generate::SpecError),
}

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte of the decompressed content, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// The result of reading or writing a trace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn names(formats: &[Format]) -> String {
    formats.iter().map(Format::to_string).collect::<Vec<_>>().join(", ")
}

/// The error for a `given` name that is not among `known`.
pub(crate) fn unknown_name(what: &'static str, given: &str, known: &[&'static str]) -> Error {
    let nearest = nigh_text::nearest(given, known.iter().copied());
    Error::UnknownName { what, given: given.to_owned(), nearest, known: known.join(", ") }
}

/// What is wrong with one line or record, before its place is known.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) found: String,
    pub(crate) expected: &'static str,
}

impl Bad {
    /// Longest part of a wrong field that is shown, in characters.
    const SHOWN: usize = 40;

    /// `found` quoted, shortened and escaped.
    #[cold]
    pub(crate) fn field(found: &[u8], expected: &'static str) -> Bad {
        let text = String::from_utf8_lossy(found);
        let mut shown: String = text.chars().take(Self::SHOWN).flat_map(char::escape_debug).collect();
        if text.chars().nth(Self::SHOWN).is_some() {
            shown.push('…');
        }
        Bad { found: format!("`{shown}`"), expected }
    }

    #[cold]
    pub(crate) fn end_of_line(expected: &'static str) -> Bad {
        Bad { found: "the end of the line".to_owned(), expected }
    }

    pub(crate) fn at(self, path: PathBuf, place: Place) -> Error {
        Error::Malformed { path, place, found: self.found, expected: self.expected.to_owned() }
    }
}
