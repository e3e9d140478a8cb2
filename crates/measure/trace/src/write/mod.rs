//! Writing traces: the formats that can be written, one file each, and the creation of their files.
//!
//! A file appears under its name when it is complete, or not at all. A recording is `FILE.part` until then.

// There is no parsing here.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod compressed;
mod csv;
mod lirs;
mod oracle_general;
mod vscsi;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nigh_output::Draft;

use crate::format::parquet::{ParquetWriter, is_without_rows};
use crate::{BLOCK_BYTES_MAX, Error, Field, Format, Gaps, Op, Request, Taken};
use compressed::{Compressed, Compression};

pub use nigh_output::Destination;

/// The formats that can be written.
pub const FORMATS: [Format; 5] = [Format::Parquet, Format::Csv, Format::Lirs, Format::OracleGeneral, Format::Vscsi];

/// How to write a trace.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// The format; if `None`, the one that the file's name ends in, before `.zst`, `.gz` or `.xz`.
    pub format: Option<Format>,
    /// The size of a block in bytes, 1 to [`BLOCK_BYTES_MAX`]: the unit of formats that count in blocks.
    pub block_bytes: u32,
    /// The level at which the requests were recorded; only Parquet keeps it.
    pub taken: Option<Taken>,
}

/// Contents of the file, and omissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Requests in the file.
    pub requests: u64,
    /// Lines, records or rows of the file: in formats that count in blocks, one for each block that a request accesses.
    pub records: u64,
    /// Requests that were left out, because the format has only references to blocks: trims, flushes, and reads and
    /// writes of length 0.
    pub skipped: u64,
    /// Fields with values that the file does not contain exactly: the format has no such column, or counts in larger
    /// units.
    pub lost: Vec<Field>,
}

/// A trace that is being written. Dropped before [`Writer::finish`], it leaves no file, unless it is a recording.
pub struct Writer {
    path: PathBuf,
    format: Format,
    block_bytes: u32,
    sink: Box<dyn Sink + Send>,
    seen: u64,
    records: u64,
    skipped: u64,
    /// Whether [`Field::ALL`]'s fields have lost a value.
    lost: [bool; Field::ALL.len()],
}

/// A file in one of the formats that is being written.
trait Sink {
    /// Appends `request`, and returns the number of lines, records or rows.
    fn push(&mut self, request: &Request) -> Result<u64, Failure>;

    /// Completes the file up to here, in formats of recordings.
    fn checkpoint(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sets what is missing; returns whether the format keeps it.
    fn set_gaps(&mut self, _: &Gaps) -> bool {
        false
    }

    /// Writes the buffered requests and returns the output.
    fn finish(self: Box<Self>) -> io::Result<Compressed>;
}

/// Why a request could not be written.
enum Failure {
    Io(io::Error),
    Unrepresentable(&'static str),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl Writer {
    /// Begins a trace, which is compressed if its name ends in `.zst`, `.gz` or `.xz`.
    pub fn create(to: &Destination, options: &WriteOptions) -> crate::Result<Writer> {
        let format = Writer::format_of(to.path(), options)?;
        Writer::begin(to.path(), to.draft()?, None, format, options)
    }

    /// Begins a recording, Parquet or CSV, compressed as above. If this process is killed, `FILE.part` remains, complete up to the last
    /// [`Writer::checkpoint`]. Returns also the new name of such a file that another process left.
    pub fn record(to: &Destination, options: &WriteOptions) -> crate::Result<(Writer, Option<PathBuf>)> {
        let format = Writer::format_of(to.path(), options)?;
        if !matches!(format, Format::Parquet | Format::Csv) {
            return Err(Error::NotRecorded { path: to.path().to_owned() });
        }
        let draft = to.grow(is_without_rows)?;
        let set_aside = draft.set_aside().map(Path::to_owned);
        let growing = draft.file().filter(|_| format == Format::Parquet).map(File::try_clone).transpose();
        let growing = growing.map_err(|source| Error::Io { path: to.path().to_owned(), source })?;
        let mut writer = Writer::begin(to.path(), draft, growing, format, options)?;
        writer.checkpoint()?;
        Ok((writer, set_aside))
    }

    fn format_of(path: &Path, options: &WriteOptions) -> crate::Result<Format> {
        if !(1..=BLOCK_BYTES_MAX).contains(&options.block_bytes) {
            return Err(Error::BlockBytes(options.block_bytes));
        }
        let format = match options.format {
            Some(format) => format,
            None => named(path).ok_or_else(|| Error::OutputFormat { path: path.to_owned() })?,
        };
        if !FORMATS.contains(&format) {
            return Err(Error::NotWritable { format });
        }
        if format == Format::Parquet && Compression::named(path).is_some() {
            return Err(Error::NotCompressible { path: path.to_owned(), format });
        }
        Ok(format)
    }

    /// Begins a trace in `draft`; in `growing`, the same file, if it is a recording as Parquet.
    fn begin(
        path: &Path,
        draft: Draft,
        growing: Option<File>,
        format: Format,
        options: &WriteOptions,
    ) -> crate::Result<Writer> {
        let begin = || -> io::Result<Box<dyn Sink + Send>> {
            let output = Compressed::new(draft, path)?;
            Ok(match format {
                Format::Lirs => Box::new(lirs::Lirs::new(output, options.block_bytes)),
                Format::OracleGeneral => Box::new(oracle_general::OracleGeneral::new(output, options.block_bytes)?),
                Format::Vscsi => Box::new(vscsi::Vscsi::new(output)),
                Format::Csv => Box::new(csv::Csv::new(output)?),
                Format::Parquet => match growing {
                    Some(file) => {
                        let file = ParquetWriter::new(file, options.block_bytes, options.taken)?;
                        Box::new(Growing { file, output })
                    }
                    None => Box::new(ParquetWriter::new(output, options.block_bytes, options.taken)?),
                },
                _ => unreachable!("it is among those that are written"),
            })
        };
        let sink = begin().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let (path, block_bytes) = (path.to_owned(), options.block_bytes);
        let lost = [false; Field::ALL.len()];
        Ok(Writer { path, format, block_bytes, sink, seen: 0, records: 0, skipped: 0, lost })
    }

    /// The format that is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Appends `requests`.
    pub fn push(&mut self, requests: &[Request]) -> crate::Result<()> {
        for request in requests {
            self.push_one(request).map_err(|failure| match failure {
                Failure::Io(source) => Error::Io { path: self.path.clone(), source },
                Failure::Unrepresentable(what) => {
                    Error::Unrepresentable { path: self.path.clone(), format: self.format, number: self.seen, what }
                }
            })?;
            self.seen += 1;
        }
        Ok(())
    }

    fn push_one(&mut self, request: &Request) -> Result<(), Failure> {
        let touches_blocks = matches!(request.op, Op::Read | Op::Write) && request.length > 0;
        if counts_in_blocks(self.format) && !touches_blocks {
            self.skipped += 1;
            return Ok(());
        }
        for (field, lost) in Field::ALL.into_iter().zip(&mut self.lost) {
            *lost = *lost || loses(self.format, field, request, self.block_bytes);
        }
        self.records += self.sink.push(request)?;
        Ok(())
    }

    /// Sets the gaps of the trace, for what is written from now on. Returns whether the file keeps them: only Parquet does.
    pub fn set_gaps(&mut self, gaps: &Gaps) -> bool {
        self.sink.set_gaps(gaps)
    }

    /// Completes the file up to here: what was pushed can be read whatever happens next, unless the machine loses power.
    pub fn checkpoint(&mut self) -> crate::Result<()> {
        self.sink.checkpoint().map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// Completes the file, makes it durable and renames it to its final name.
    pub fn finish(self) -> crate::Result<Written> {
        let path = self.path;
        let draft = self.sink.finish().and_then(Compressed::finish).map_err(|source| Error::Io { path, source })?;
        draft.commit()?;
        let lost = Field::ALL.into_iter().zip(self.lost).filter(|(_, lost)| *lost).map(|(field, _)| field).collect();
        Ok(Written { requests: self.seen - self.skipped, records: self.records, skipped: self.skipped, lost })
    }
}

/// The format that the name of `path` ends in, before that of a compression.
fn named(path: &Path) -> Option<Format> {
    let plain = if Compression::named(path).is_some() { Path::new(path.file_stem()?) } else { path };
    plain.extension()?.to_str()?.parse().ok()
}

/// Whether the format consists of references to blocks.
fn counts_in_blocks(format: Format) -> bool {
    matches!(format, Format::Lirs | Format::OracleGeneral)
}

/// Whether a reader of `format` would get another value of `field`.
fn loses(format: Format, field: Field, request: &Request, block_bytes: u32) -> bool {
    if matches!(format, Format::Parquet | Format::Csv) {
        return false;
    }
    match field {
        Field::Time => match format {
            Format::OracleGeneral => !request.time_ns.is_multiple_of(oracle_general::SECOND_NS),
            Format::Vscsi => !request.time_ns.is_multiple_of(vscsi::MICROSECOND_NS),
            _ => request.time_ns != 0,
        },
        Field::Op => counts_in_blocks(format) && request.op != Op::Read,
        Field::Volume => format != Format::OracleGeneral && request.volume != 0,
        Field::Offset => counts_in_blocks(format) && !request.offset.is_multiple_of(block_bytes.into()),
        Field::Length => counts_in_blocks(format) && request.length != block_bytes,
        Field::Tenant => request.tenant != 0,
        Field::Stream => request.stream != 0,
        Field::Latency => request.latency_ns != 0,
        Field::Content => request.content != 0,
    }
}

/// How the numbers of blocks and volumes are combined: block `b` of volume `v` is `v * 2^block_bits + b`.
#[derive(Clone, Copy)]
struct Numbering {
    block_bytes: u32,
    block_bits: u32,
    /// Of the whole number.
    bits: u32,
}

impl Numbering {
    /// The numbers of the blocks that `request`, which is at least one byte long, accesses.
    fn blocks(self, request: &Request) -> Result<impl Iterator<Item = u64> + use<>, Failure> {
        let block_bytes = u64::from(self.block_bytes);
        let first = request.offset / block_bytes;
        let last = request.offset.saturating_add(u64::from(request.length) - 1) / block_bytes;
        if last >> self.block_bits != 0 {
            return Err(Failure::Unrepresentable("a block number this high"));
        }
        let volume = u64::from(request.volume);
        if volume >> (self.bits - self.block_bits) != 0 {
            return Err(Failure::Unrepresentable("a volume number this high"));
        }
        Ok((first..=last).map(move |block| volume << self.block_bits | block))
    }
}

/// A recording as Parquet. The output names and completes its file.
struct Growing {
    file: ParquetWriter<File>,
    output: Compressed,
}

impl Sink for Growing {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        self.file.push(std::slice::from_ref(request))?;
        Ok(1)
    }

    fn checkpoint(&mut self) -> io::Result<()> {
        self.file.checkpoint()
    }

    fn set_gaps(&mut self, gaps: &Gaps) -> bool {
        self.file.set_gaps(gaps.clone());
        true
    }

    fn finish(mut self: Box<Self>) -> io::Result<Compressed> {
        self.file.checkpoint()?;
        Ok(self.output)
    }
}

impl Sink for ParquetWriter<Compressed> {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        ParquetWriter::push(self, std::slice::from_ref(request))?;
        Ok(1)
    }

    fn set_gaps(&mut self, gaps: &Gaps) -> bool {
        ParquetWriter::set_gaps(self, gaps.clone());
        true
    }

    fn finish(self: Box<Self>) -> io::Result<Compressed> {
        ParquetWriter::finish(*self)
    }
}
