//! nigh's canonical form: Apache Parquet with one column per field of a request.
//!
//! | column | type | encoding |
//! |---|---|---|
//! | `time_ns` | uint64 | delta |
//! | `op` | string: `read`, `write`, `trim`, `flush` | dictionary |
//! | `volume` | uint32 | dictionary |
//! | `offset` | uint64, bytes | plain |
//! | `length` | uint32, bytes | dictionary |
//! | `tenant` | uint32 | dictionary |
//! | `stream` | uint64 | dictionary |
//! | `latency_ns` | uint64; 0 where it is not known | dictionary |
//! | `content` | uint64; 0 where it is not known | dictionary |
//!
//! No column has nulls. Pages are compressed with zstd; on every recorded block trace tried, plain offsets compress to
//! fewer bytes than deltas. Row groups have 2^20 rows. The file's metadata has `nigh.schema` = `1`, `nigh.block_bytes`,
//! the block size of the recording or the generator, and for recordings `nigh.taken`, where they were taken
//! ([`crate::Taken`]), `nigh.lost`, the number of events that the recorder lost, if there are any, and `nigh.unseen`, a line for
//! each program or kind of call that could not be recorded. Recordings have more columns ([`Recorder`]), and their `op` is `map` or `advise` in rows that are no
//! requests; readers leave these out and report their number.
//!
//! Any flat Parquet file with a column `offset` can be read; of others, the columns are guessed as in CSV, and a note reports that. Other columns have defaults if they are missing (`length`:
//! one block), columns with other names are ignored, and integers can have either width and sign if the values fit, and be floating-point numbers if they are whole. If columns
//! are described ([`crate::Columns`]), they can have any names, units and words for operations, and tenants, streams and
//! volumes can be names, as in CSV.
//!
//! Pages can be compressed with zstd, Snappy, gzip, LZ4 or Brotli.

mod groups;
mod guess;
mod names;
mod pages;
mod prefix;
mod read;
mod recorder;
mod write;

pub use crate::gaps::Gaps;
pub use names::{ByProgram, Code, Names};
pub(crate) use prefix::is_without_rows;
pub use read::ParquetReader;
pub use recorder::{About, Call, Context, Did, Recorder};
pub use write::ParquetWriter;

use std::fs::File;

use crate::input::Input;
use crate::{Error, Format, Note, Opened, ReadOptions, Request, Requests, Result};

/// Reads `input`.
pub(crate) fn open(mut input: Input, options: &ReadOptions) -> Result<Opened> {
    let path = input.path().to_owned();
    let file = match input.is_plain_file() {
        true => File::open(&path).map_err(|source| Error::Io { path: path.clone(), source })?,
        false => input.spool()?,
    };
    let again = || file.try_clone().map_err(|source| Error::Io { path: path.clone(), source });
    let reader = match &options.columns {
        Some(columns) => ParquetReader::described(file, &path, options.block_bytes, columns)?,
        None => match ParquetReader::from_file(again()?, &path, options.block_bytes, options.stream) {
            Err(error @ Error::Parquet { problem: Problem::NoOffset { .. }, .. }) if options.stream.is_none() => {
                ParquetReader::guessed(file, &path, options.block_bytes)?.ok_or(error)?
            }
            reader => reader?,
        },
    };
    let (block_bytes, taken) = (reader.block_bytes(), reader.taken());
    let requests = Box::new(Limited { requests: reader, left: options.limit.unwrap_or(u64::MAX) });
    Ok(Opened { format: Format::Parquet, block_bytes, taken, requests })
}

/// The first `left` requests of a reader that decodes whole batches.
struct Limited<R> {
    requests: R,
    left: u64,
}

impl<R: Requests> Requests for Limited<R> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        if self.left == 0 {
            batch.clear();
            return Ok(());
        }
        self.requests.next_batch(batch)?;
        batch.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= batch.len() as u64;
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        self.requests.progress()
    }

    fn notes(&self) -> Vec<Note> {
        self.requests.notes()
    }
}

/// The value of `nigh.schema`.
const SCHEMA: &str = "1";
const SCHEMA_KEY: &str = "nigh.schema";
const BLOCK_BYTES_KEY: &str = "nigh.block_bytes";
const TAKEN_KEY: &str = "nigh.taken";

/// The operations of rows that are no requests: a mapping, and advice to the kernel.
pub(crate) const LEFT_OUT: [&str; 2] = ["map", "advise"];

/// The name of these rows in notes.
pub(crate) const LEFT_OUT_CALLS: &str = "calls that transfer nothing (mappings, advice to the kernel)";

/// The operation of rows that are page faults in mappings, which are read as reads.
pub(crate) const FAULT: &str = "fault";

/// The columns of recordings that are no fields of a request.
pub(crate) const RECORDED_FIELDS: [&str; 12] =
    ["program", "path", "tid", "asked", "result", "ra0", "pc5", "pc8", "pc16", "depth", "stack", "device_bytes"];

/// Why a Parquet file cannot be read as requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is damaged, incomplete, or not a Parquet file.
    #[error(transparent)]
    Damaged(#[from] ::parquet::errors::ParquetError),
    /// It is shorter than the fixed parts of every Parquet file.
    #[error("{}", if *bytes == 0 { "the file is empty".to_owned() } else { format!("cut short after {bytes} bytes") })]
    Short {
        /// Its length.
        bytes: u64,
    },
    /// Its parts contradict each other.
    #[error("damaged: {0}")]
    Inconsistent(&'static str),
    /// It has no column for the stream that was chosen.
    #[error("no column `{column}`: it does not record this identity of the issuing code")]
    NoStream {
        /// The column.
        column: &'static str,
    },
    /// It has no column that the description names.
    #[error("no column `{column}`; the columns are {found}")]
    NoColumn {
        /// The column, by its name or number.
        column: String,
        /// The columns of the file.
        found: String,
    },
    /// It has no column `offset`.
    #[error(
        "no column `offset`; the columns are {found}: describe them, as in --columns offset=NAME,length=NAME,op=NAME"
    )]
    NoOffset {
        /// The columns of the file.
        found: String,
    },
    /// The columns were guessed, and cannot be read so.
    #[error("{problem}; {note}")]
    Guessed {
        /// Why not.
        problem: Box<Problem>,
        /// The guess.
        note: Note,
    },
    /// A column has a type that does not match its field.
    #[error("column `{column}` has type {found}, expected {expected}")]
    Type {
        /// The column.
        column: String,
        /// Its type in the file.
        found: String,
        /// The types that can be read.
        expected: &'static str,
    },
    /// A column has no value in some row.
    #[error("column `{column}` has nulls")]
    Null {
        /// The column.
        column: String,
    },
    /// A value is invalid for its field.
    #[error("row {row}: column `{column}`: found {found}, expected {expected}")]
    Value {
        /// The column.
        column: String,
        /// The row, counted from 0.
        row: u64,
        /// The value.
        found: String,
        /// The values expected.
        expected: &'static str,
    },
    /// A version of nigh's schema that this program does not know.
    #[error("nigh.schema is {found:?}; this program reads {SCHEMA:?}")]
    Schema {
        /// The version in the file.
        found: String,
    },
}
