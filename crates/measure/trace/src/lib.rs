//! Recorded accesses: one file per format, generators, and nigh's own canonical form.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod clock;
pub mod columns;
mod detect;
pub mod error;
pub mod format;
mod gaps;
pub mod generate;
mod input;
pub mod layout;
mod loss;
pub mod note;
mod numbering;
mod records;
pub mod request;
pub mod rwbs;
mod skip;
pub mod stream;
pub mod taken;
mod text;
mod time;
mod units;
mod utf16;
pub mod write;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use columns::Columns;
pub use error::{Error, Result};
pub use format::Format;
pub use gaps::Gaps;
pub use note::Note;
pub use request::{Field, Op, Request, Requests};
pub use stream::Stream;
pub use taken::Taken;
pub use units::Offsets;

use clock::Clock;
use input::Input;

/// The block size of traces whose format has none, in bytes.
pub const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// The largest block size, in bytes: 1 GiB.
pub const BLOCK_BYTES_MAX: u32 = 1 << 30;

/// How to read a trace. The default detects the format and follows its conventions.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; if `None`, it is detected by content, then by name.
    pub format: Option<Format>,
    /// The meaning of the columns of a CSV file, of Parquet, or of binary records. If they are given and `format` is not, the
    /// format is one of these.
    pub columns: Option<Columns>,
    /// The size of a block in bytes, 1 to [`BLOCK_BYTES_MAX`]: the unit of formats that count in blocks.
    pub block_bytes: Option<u32>,
    /// Which identity is the stream, in the formats that record several. If `None`, it is `pc8` in the `pc` format, and
    /// the column `stream` in Parquet.
    pub stream: Option<Stream>,
    /// The events of a `blkparse`, `blktrace` or `perf` trace that are read as requests. If `None`, these are the first of
    /// queued, issued and completed ones that the trace contains at its beginning.
    pub action: Option<format::blkparse::Action>,
    /// Whether the recorded size is the length of a request in formats that record objects by id; otherwise each object
    /// is one block. A request longer than a block then overlaps the place of the objects with the next ids.
    pub recorded_sizes: bool,
    /// Whether lines and records that do not match the format are left out and counted ([`Note::Skipped`]), instead of ending
    /// the reading with an error. Not for Parquet.
    pub skip_bad: bool,
    /// The most requests to read; the rest of the file is not examined.
    pub limit: Option<u64>,
}

/// An open trace.
pub struct Opened {
    /// The format given or detected.
    pub format: Format,
    /// The block size in bytes: the one given, or the format's own, or [`BLOCK_BYTES_DEFAULT`].
    pub block_bytes: u32,
    /// The level at which it was recorded, if that is known.
    pub taken: Option<Taken>,
    /// The requests in recorded order. The first batch of a trace without any is [`Error::Empty`].
    pub requests: Box<dyn Requests + Send>,
}

/// Opens the trace in a file, or on standard input for `-`; plain or compressed by gzip, zstd or xz.
/// Parquet needs random access: a compressed file or standard input is first copied in full, decompressed, to an
/// unnamed file in the system's folder for temporary files.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Opened> {
    if path == Path::new("-") {
        return read(Input::new(std::io::stdin(), path, None)?, options);
    }
    let io = |source| Error::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    read(Input::new(file, path, metadata.is_file().then_some(metadata.len()))?, options)
}

/// Reads a trace from any source; `name` is used in errors, and its extension helps to detect the format.
pub fn from_reader(source: impl Read + Send + 'static, name: &Path, options: &ReadOptions) -> Result<Opened> {
    read(Input::new(source, name, None)?, options)
}

fn read(mut input: Input, options: &ReadOptions) -> Result<Opened> {
    if let Some(bytes) = options.block_bytes.filter(|bytes| !(1..=BLOCK_BYTES_MAX).contains(bytes)) {
        return Err(Error::BlockBytes(bytes));
    }
    let format = match options.format {
        Some(format) => format,
        None => match &options.columns {
            Some(columns) if columns.record.is_some() => Format::Records,
            Some(_) if detect::is_parquet(&mut input)? => Format::Parquet,
            Some(_) => Format::Csv,
            None => detect::detect(&mut input)?,
        },
    };
    options.check(format)?;
    let opened = format::open(format, input, options)?;
    let tolerance_ns = match opened.taken {
        Some(Taken::Above | Taken::Database | Taken::Server) => clock::JITTER_NS,
        Some(Taken::Below) | None => 0,
    };
    Ok(Opened { requests: Box::new(Clock::new(opened.requests, tolerance_ns)), ..opened })
}

impl ReadOptions {
    /// Refuses settings that mean nothing in `format`.
    fn check(&self, format: Format) -> Result<()> {
        use Format::{Blkparse, Blktrace, Lcs, OracleGeneral, Parquet, Pc, Perf};
        if self.columns.is_some() && !matches!(format, Format::Csv | Format::Records | Parquet) {
            return Err(Error::NotOfFormat { setting: "columns", formats: "CSV, records and Parquet", format });
        }
        if self.columns.is_some() && self.stream.is_some() && format == Parquet {
            return Err(Error::NotOfFormat { setting: "stream", formats: "recordings without --columns", format });
        }
        if self.skip_bad && format == Parquet {
            return Err(Error::NotOfFormat { setting: "skip-bad", formats: "text and binary records", format });
        }
        let settings: [(_, _, _, &[Format]); 3] = [
            ("stream", self.stream.is_some(), "the formats pc and parquet", &[Pc, Parquet]),
            ("action", self.action.is_some(), "the formats blkparse, blktrace and perf", &[Blkparse, Blktrace, Perf]),
            ("recorded-sizes", self.recorded_sizes, "formats that record objects", &[OracleGeneral, Lcs]),
        ];
        match settings.into_iter().find(|(_, given, _, of)| *given && !of.contains(&format)) {
            Some((setting, _, formats, _)) => Err(Error::NotOfFormat { setting, formats, format }),
            None => Ok(()),
        }
    }
}
