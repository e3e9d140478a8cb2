//! Errors of reading, writing and generating traces.

use std::fmt;
use std::path::PathBuf;

use crate::Format;

/// An error in a trace, with its place and the input that was expected.
///
/// If an error has a source, its message ends before that of the source: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system could not open, read or write a file.
    #[error("{}", path.display())]
    Io {
        /// The file, or `-` for standard input or output.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A compressed file ends early or its bytes are damaged.
    #[error("{}: the {compression} data is {}", path.display(), if *truncated { "cut short" } else { "damaged" })]
    Compressed {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// `gzip`, `zstd` or `xz`.
        compression: &'static str,
        /// Whether the file ends before its end mark.
        truncated: bool,
        /// The error of the decompressor.
        source: std::io::Error,
    },
    /// A file is compressed in a way that cannot be read.
    #[error("{0}: it is compressed in a way that nigh does not read (gzip, zstd and xz are read): decompress it, as in {program} {0} | nigh sim -", path.display())]
    ForeignCompression {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// The command that decompresses it.
        program: &'static str,
    },
    /// A line or record does not match its format.
    #[error("{}: {place}: found {found}, expected {expected}", path.display())]
    Malformed {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// The place in the file, after decompression.
        place: Place,
        /// The text found, shortened and with control characters escaped.
        found: String,
        /// The input expected.
        expected: String,
    },
    /// The trace contains no requests.
    #[error("{}: no requests", path.display())]
    Empty {
        /// The file, or `-` for standard input.
        path: PathBuf,
    },
    /// The content matches no known format.
    #[error("{}: the format is not recognized: give it, as in --format lirs, or the columns of a CSV file, as in \
             --columns offset=0,length=1,op=2; the formats are {}", path.display(), names(Format::all()))]
    Unrecognized {
        /// The file, or `-` for standard input.
        path: PathBuf,
    },
    /// The content matches several formats, and the file's name does not decide.
    #[error("{}: the format is not certain: add --format {likelier} if that is right{}", path.display(), others(candidates, *likelier))]
    Ambiguous {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// The formats it matches.
        candidates: Vec<Format>,
        /// The likelier of them.
        likelier: Format,
    },
    /// A name or a setting that does not exist.
    #[error("unknown {what} `{given}`: expected one of {known}{}", nigh_text::did_you_mean(*nearest))]
    UnknownName {
        /// The kind of name.
        what: &'static str,
        /// The name given.
        given: String,
        /// The most similar known name, if there is one.
        nearest: Option<&'static str>,
        /// All known names.
        known: String,
    },
    /// The description of a file's columns is invalid.
    #[error("columns: `{given}`: expected {expected}")]
    Columns {
        /// The invalid part.
        given: String,
        /// The form expected.
        expected: &'static str,
    },
    /// The unit of a column is neither given nor detectable.
    #[error("{}: the unit of the {what}, such as {example}, cannot be detected: add {setting} to {}", path.display(), match guessed {
        Some(columns) => format!("--columns {columns}"),
        None => "the columns".to_owned(),
    })]
    UnknownUnit {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// The column: `times`, `offsets` or `lengths`.
        what: &'static str,
        /// The setting that gives the unit, with its values.
        setting: &'static str,
        /// One of the numbers.
        example: u64,
        /// The columns and their other units, if they are not given but guessed.
        guessed: Option<String>,
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
    /// A setting that the trace's format does not know.
    #[error("{setting} is for {formats}, not for {format}")]
    NotOfFormat {
        /// The setting, as the flag that has its name.
        setting: &'static str,
        /// The formats that it is for.
        formats: &'static str,
        /// The format of the trace.
        format: Format,
    },
    /// A Parquet file cannot be read as requests.
    #[error("{}: {problem}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: crate::format::parquet::Problem,
    },
    /// The format can only be read.
    #[error("{format} cannot be written: choose one of {}", names(&crate::write::FORMATS))]
    NotWritable {
        /// The format.
        format: Format,
    },
    /// A compressed file of a format that needs random access and has compression of its own.
    #[error("{}: {format} has compression of its own: leave out the ending of the name", path.display())]
    NotCompressible {
        /// The file.
        path: PathBuf,
        /// The format.
        format: Format,
    },
    /// The format to write is not given, and the file's name does not end in one.
    #[error("{}: the name does not show the format to write: give one of {}", path.display(), names(&crate::write::FORMATS))]
    OutputFormat {
        /// The file, or `-` for standard output.
        path: PathBuf,
    },
    /// A request has a value that the output format cannot represent or leave out.
    #[error("{}: request {number}: {format} cannot hold {what}", path.display())]
    Unrepresentable {
        /// The file, or `-` for standard output.
        path: PathBuf,
        /// The format.
        format: Format,
        /// The number of the request, from 0.
        number: u64,
        /// The value.
        what: &'static str,
    },
    /// Two extents of a list overlap.
    #[error("{}: {overlap}", path.display())]
    Overlap {
        /// The list.
        path: PathBuf,
        /// The extents.
        overlap: crate::layout::Overlap,
    },
    /// The format cannot be read before it is complete, or has too little of a request.
    #[error("{}: a recording is .parquet, or .csv with or without .zst, .gz or .xz", path.display())]
    NotRecorded {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Output(#[from] nigh_output::Error),
    /// The description of a generator is invalid.
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

/// The formats but for the likelier one, as the end of a sentence.
fn others(candidates: &[Format], likelier: Format) -> String {
    let others: Vec<Format> = candidates.iter().copied().filter(|format| *format != likelier).collect();
    if others.is_empty() { String::new() } else { format!(" (it could also be {})", names(&others)) }
}

/// The error for a `given` name that is not in `known`.
pub(crate) fn unknown_name(what: &'static str, given: &str, known: &[&'static str]) -> Error {
    let nearest = nigh_text::nearest(given, known.iter().copied());
    Error::UnknownName { what, given: given.to_owned(), nearest, known: known.join(", ") }
}

/// An error in a line or record whose place is not known yet.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) found: String,
    pub(crate) expected: &'static str,
}

impl Bad {
    /// The longest part of an invalid field that is shown, in characters.
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
