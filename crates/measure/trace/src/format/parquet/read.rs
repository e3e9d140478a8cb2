//! Parquet files, read in batches.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::{ConvertedType as Converted, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::pages::CheckedPages;
use super::prefix::{Prefix, whole_part};
use super::{BLOCK_BYTES_KEY, FAULT, LEFT_OUT, LEFT_OUT_CALLS, Problem, SCHEMA, SCHEMA_KEY, TAKEN_KEY};
use crate::columns::{Column as Given, Columns, ROLE_NAMES};
use crate::error::Bad;
use crate::format::csv::{Names, OPERATION, known_op};
use crate::text::digest;
use crate::units::{self, Offsets, Row, Stamp, Stated, Unit, Units};
use crate::{BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, Error, Field, Gaps, Note, Op, Request, Requests, Stream, Taken};

/// Rows in a batch.
pub(super) const BATCH: u64 = 4096;

/// Bytes before the first column chunk and after the footer: the magic number, and after the footer also its length.
const HEAD_BYTES: u64 = 4;
const TAIL_BYTES: u64 = 8;

/// Requests from a Parquet file, in the order of its rows.
///
/// Counts, places and types in the footer are checked against each other and against the file's size before anything is
/// read, and pages before they are decoded. A changed byte inside a page that can still be decoded is not detected:
/// neither nigh nor most other programs write checksums of pages.
pub struct ParquetReader {
    pub(super) path: PathBuf,
    pub(super) file: SerializedFileReader<Prefix>,
    pub(super) columns: Vec<Column>,
    /// Of the row group that is being read, one for each of `columns`.
    pub(super) chunks: Vec<Chunk>,
    pub(super) next_group: usize,
    pub(super) left_in_group: u64,
    rows: u64,
    pub(super) rows_read: u64,
    block_bytes: u32,
    taken: Option<Taken>,
    /// Whether the stream is the file.
    file_is_stream: bool,
    /// Bytes up to the end of the last footer, and behind it.
    pub(super) whole_bytes: u64,
    cut_bytes: u64,
    /// Rows that are no requests: of the batch that is being read, and how many so far.
    pub(super) no_requests: Vec<usize>,
    left_out: u64,
    /// How texts are read if the columns are described.
    pub(super) described: Option<Described>,
    pub(super) notes: Vec<Note>,
    /// Of the first rows of a file that nigh did not write and nobody described.
    offsets: Option<Offsets>,
}

/// The words for operations, and the numbers of names.
pub(super) struct Described {
    words: Vec<(String, Op)>,
    tenants: Names,
    streams: Names,
    volumes: Names,
    /// Of objects, if offsets are keys.
    keys: Option<Names>,
}

impl Described {
    fn new(columns: &Columns) -> Described {
        Described {
            words: columns.words.clone(),
            tenants: Names::new(Some(Names::BASE_32)),
            streams: Names::new(Some(Names::BASE_64)),
            volumes: Names::new(Some(Names::BASE_32)),
            keys: Names::of_keys(columns),
        }
    }

    /// The place of the object with this key, which has `room` bytes; `None` if offsets are no keys.
    fn place(&mut self, key: &[u8], room: u64) -> Option<Result<u64, Bad>> {
        let number = self.keys.as_mut()?.key(key);
        Some(number.and_then(|number| number.checked_mul(room).ok_or_else(|| Bad::field(key, "fewer objects"))))
    }

    fn op(&self, word: &[u8]) -> Option<Op> {
        let named = self.words.iter().find(|(name, _)| name.as_bytes() == word);
        named.map(|(_, op)| *op).or_else(|| known_op(word))
    }

    /// Puts the text of a column into the field of `request`.
    fn put(&mut self, column: Column, request: &mut Request, text: &[u8]) -> Result<(), Bad> {
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Bad::field(text, "a number below 2^32"));
        match column.field {
            Field::Op => request.op = self.op(text).ok_or_else(|| Bad::field(text, OPERATION))?,
            Field::Tenant => request.tenant = narrow(self.tenants.number(Some(text))?)?,
            Field::Volume => request.volume = narrow(self.volumes.number(Some(text))?)?,
            Field::Stream => request.stream = self.streams.number(Some(text))?,
            Field::Content => request.content = digest(text),
            Field::Offset => {
                let numbers = || Bad::field(text, "a column of numbers, or offset-unit=keys");
                request.offset = self.place(text, column.scale).ok_or_else(numbers)??;
            }
            Field::Time | Field::Length | Field::Latency => return Err(Bad::field(text, "a column of numbers")),
        }
        Ok(())
    }
}

/// The column of a field, and the interpretation of its numbers.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) field: Field,
    leaf: usize,
    signed: bool,
    /// Whether they are floating-point numbers.
    floating: bool,
    /// Of the field's unit, in that of the column.
    scale: u64,
}

/// One column of one row group.
pub(super) struct Chunk {
    column: Column,
    /// The column in the file.
    name: String,
    pages: Pages,
    levels: Vec<i16>,
}

pub(super) enum Pages {
    Int32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Int64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Float(ColumnReaderImpl<FloatType>, Vec<f32>),
    Double(ColumnReaderImpl<DoubleType>, Vec<f64>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<parquet::data_type::ByteArray>),
}

impl ParquetReader {
    /// Opens the file at `path` and checks that its columns can be read as requests. `block_bytes` overrides the block
    /// size in the file, and `stream` chooses another column than `stream`.
    pub fn open(
        path: impl AsRef<Path>,
        block_bytes: Option<u32>,
        stream: Option<Stream>,
    ) -> crate::Result<ParquetReader> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        ParquetReader::from_file(file, path, block_bytes, stream)
    }

    /// Opens a `file` whose columns are described; `path` is used only in errors.
    pub(super) fn described(
        file: File,
        path: &Path,
        block_bytes: Option<u32>,
        given: &Columns,
    ) -> crate::Result<ParquetReader> {
        let again = file.try_clone().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        // The first rows, whose numbers are as in the file.
        let mut sample = ParquetReader::from_file_with(file, path, block_bytes, &|metadata| {
            given_columns(metadata, given, &Units::OWN)
        })?;
        sample.described = Some(Described::new(given));
        let mut rows = Vec::new();
        if sample.rows > 0 {
            sample.next_batch(&mut rows)?;
        }
        let find = |field: Field| sample.columns.iter().find(|column| column.field == field);
        let (time, has_length) = (find(Field::Time), find(Field::Length).is_some());
        let stamp = if time.is_some_and(|column| column.floating) { Stamp::Fraction } else { Stamp::Whole };
        let rows: Vec<Row> = rows
            .iter()
            .take(units::ROWS)
            .map(|row| Row {
                time: time.map(|_| stamp(row.time_ns)),
                offset: Some(row.offset),
                length: has_length.then_some(row.length.into()),
            })
            .collect();
        let stated = stated(sample.file.metadata(), &sample.columns, given.stated);
        let (units, notes) = units::find(stated, &rows, sample.block_bytes).map_err(|unknown| unknown.of(path))?;
        let mut reader = ParquetReader::from_file_with(again, path, block_bytes, &|metadata| {
            given_columns(metadata, given, &units)
        })?;
        reader.described = Some(Described::new(given));
        reader.offsets = None;
        reader.notes.extend(notes);
        Ok(reader)
    }

    /// As `open`, for a file that is already open; `path` is used only in errors.
    pub(crate) fn from_file(
        file: File,
        path: &Path,
        block_bytes: Option<u32>,
        stream: Option<Stream>,
    ) -> crate::Result<ParquetReader> {
        let reader = ParquetReader::from_file_with(file, path, block_bytes, &|metadata| columns(metadata, stream))?;
        Ok(ParquetReader { file_is_stream: stream == Some(Stream::File), ..reader })
    }

    /// As `from_file`, with the columns that `columns` finds.
    pub(super) fn from_file_with(
        file: File,
        path: &Path,
        block_bytes: Option<u32>,
        columns: &dyn Fn(&ParquetMetaData) -> Result<Vec<Column>, Problem>,
    ) -> crate::Result<ParquetReader> {
        let path = path.to_owned();
        let bytes = file.metadata().map_err(|source| Error::Io { path: path.clone(), source })?.len();
        if bytes < HEAD_BYTES + TAIL_BYTES {
            return Err(Error::Parquet { path, problem: Problem::Short { bytes } });
        }
        let io = |source| Error::Io { path: path.clone(), source };
        let again = file.try_clone().map_err(io)?;
        let (reader, whole_bytes) = match SerializedFileReader::new(Prefix { file, bytes }) {
            Ok(reader) => (reader, bytes),
            Err(error) => match whole_part(&again, bytes).map_err(io)? {
                Some(found) => found,
                None => return Err(Error::Parquet { path, problem: error.into() }),
            },
        };
        let lengths = (whole_bytes, bytes);
        ParquetReader::new(reader, lengths, path.clone(), block_bytes, columns)
            .map_err(|problem| Error::Parquet { path, problem })
    }

    /// `file` is the whole part, the first `bytes`, of a file of `file_bytes`.
    fn new(
        file: SerializedFileReader<Prefix>,
        (bytes, file_bytes): (u64, u64),
        path: PathBuf,
        block_bytes: Option<u32>,
        columns: &dyn Fn(&ParquetMetaData) -> Result<Vec<Column>, Problem>,
    ) -> Result<ParquetReader, Problem> {
        let metadata = file.metadata();
        let text = |key: &str| {
            let pairs = metadata.file_metadata().key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        if let Some(found) = text(SCHEMA_KEY).filter(|found| *found != SCHEMA) {
            return Err(Problem::Schema { found: found.to_owned() });
        }
        let named = || text(BLOCK_BYTES_KEY)?.parse().ok().filter(|bytes| (1..=BLOCK_BYTES_MAX).contains(bytes));
        let block_bytes = block_bytes.or_else(named).unwrap_or(BLOCK_BYTES_DEFAULT);
        let taken = text(TAKEN_KEY).and_then(Taken::named);
        let gaps = Gaps::read(|key| text(key).map(str::to_owned));
        let columns = columns(metadata)?;
        let rows = check(metadata, &columns, bytes)?;
        Ok(ParquetReader {
            path,
            columns,
            chunks: Vec::new(),
            next_group: 0,
            left_in_group: 0,
            rows,
            rows_read: 0,
            block_bytes,
            taken,
            file_is_stream: false,
            described: None,
            notes: gaps.notes().collect(),
            offsets: text(SCHEMA_KEY).is_none().then(Offsets::default),
            whole_bytes: bytes,
            cut_bytes: file_bytes - bytes,
            no_requests: Vec::new(),
            left_out: 0,
            file,
        })
    }

    /// The number of requests in the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The block size: the one given, or the file's own, or [`BLOCK_BYTES_DEFAULT`].
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The level at which the trace was recorded, if the file has it.
    pub fn taken(&self) -> Option<Taken> {
        self.taken
    }

    pub(super) fn open_group(&mut self) -> Result<(), Problem> {
        let group = self.file.get_row_group(self.next_group)?;
        self.left_in_group = group.metadata().num_rows() as u64;
        self.chunks.clear();
        for &column in &self.columns {
            let name = group.metadata().column(column.leaf).column_descr_ptr().name().to_owned();
            let pages = Pages::open(&*group, column.leaf)?;
            self.chunks.push(Chunk { column, name, pages, levels: Vec::new() });
        }
        self.next_group += 1;
        Ok(())
    }

    fn read(&mut self, batch: &mut Vec<Request>) -> Result<(), Problem> {
        // A batch of rows that are no requests is not the end.
        while batch.is_empty() {
            while self.left_in_group == 0 {
                if self.next_group == self.file.metadata().num_row_groups() {
                    return Ok(());
                }
                self.open_group()?;
            }
            self.read_rows(batch)?;
        }
        Ok(())
    }

    pub(super) fn read_rows(&mut self, batch: &mut Vec<Request>) -> Result<(), Problem> {
        let rows = self.left_in_group.min(BATCH);
        batch.resize(rows as usize, Request { length: self.block_bytes, ..Request::default() });
        self.no_requests.clear();
        for chunk in &mut self.chunks {
            chunk.fill(batch, self.rows_read, &mut self.no_requests, self.described.as_mut())?;
        }
        for (row, request) in batch.iter().enumerate() {
            if request.offset.checked_add(request.length.into()).is_none() {
                return Err(Problem::Value {
                    column: Field::Offset.name().to_owned(),
                    row: self.rows_read + row as u64,
                    found: request.offset.to_string(),
                    expected: "a request that ends below 2^64 bytes",
                });
            }
        }
        if let Some(offsets) = self.offsets.as_mut().filter(|_| self.rows_read == 0) {
            batch.iter().for_each(|request| offsets.see(request.offset, request.length.into()));
        }
        self.left_in_group -= rows;
        self.rows_read += rows;
        if self.file_is_stream {
            batch.iter_mut().for_each(|request| request.stream = request.volume.into());
        }
        if !self.no_requests.is_empty() {
            self.left_out += self.no_requests.len() as u64;
            let (mut row, mut others) = (0, self.no_requests.iter().copied().peekable());
            batch.retain(|_| {
                let is_other = others.next_if_eq(&row).is_some();
                row += 1;
                !is_other
            });
        }
        Ok(())
    }
}

impl Requests for ParquetReader {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> crate::Result<()> {
        batch.clear();
        if self.rows == 0 {
            return Err(Error::Empty { path: self.path.clone() });
        }
        self.read(batch).map_err(|problem| {
            batch.clear();
            Error::Parquet { path: self.path.clone(), problem }
        })
    }

    fn progress(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.rows_read as f64 / self.rows as f64)
    }

    fn notes(&self) -> Vec<Note> {
        let cut = (self.cut_bytes > 0).then_some(Note::CutBytes { bytes: self.cut_bytes });
        let left_out = (self.left_out > 0).then_some(Note::LeftOut { count: self.left_out, what: LEFT_OUT_CALLS });
        let doubtful = self.offsets.and_then(|offsets| offsets.note("offset-unit"));
        self.notes.iter().cloned().chain(doubtful).chain(cut).chain(left_out).collect()
    }
}

/// Finds the column of each field, and rejects types that do not match the field.
fn columns(metadata: &ParquetMetaData, stream: Option<Stream>) -> Result<Vec<Column>, Problem> {
    let schema = metadata.file_metadata().schema_descr();
    let mut columns = Vec::new();
    for field in Field::ALL {
        let chosen = stream.filter(|stream| field == Field::Stream && *stream != Stream::File).map(Stream::name);
        let wanted = chosen.unwrap_or(field.name());
        let named = |leaf: &usize| schema.column(*leaf).path().parts().first().is_some_and(|name| name == wanted);
        match (0..schema.num_columns()).find(named) {
            Some(leaf) => {
                let descriptor = schema.column(leaf);
                let (signed, floating) = (is_signed(field, &descriptor)?, is_floating(&descriptor));
                columns.push(Column { field, leaf, signed, floating, scale: 1 });
            }
            None if field == Field::Offset => return Err(Problem::NoOffset { found: all_names(metadata) }),
            None => {
                if let Some(column) = chosen {
                    return Err(Problem::NoStream { column });
                }
            }
        }
    }
    Ok(columns)
}

/// The names of all columns.
fn all_names(metadata: &ParquetMetaData) -> String {
    let columns = metadata.file_metadata().schema_descr().columns().iter();
    columns.map(|column| column.path().string()).collect::<Vec<_>>().join(", ")
}

/// The field of a role in a description of columns.
fn field_of(role: &str) -> Option<Field> {
    Field::ALL.into_iter().find(|field| field.name().strip_suffix("_ns").unwrap_or(field.name()) == role)
}

/// The columns that a description names, with values in these units.
fn given_columns(metadata: &ParquetMetaData, given: &Columns, units: &Units) -> Result<Vec<Column>, Problem> {
    let schema = metadata.file_metadata().schema_descr();
    let has_keys = given.stated.offset == Some(Unit::Keys);
    let mut columns = Vec::new();
    for (column, role) in given.columns().iter().zip(ROLE_NAMES) {
        let (Some(column), Some(field)) = (column, field_of(role)) else { continue };
        let (leaf, name) = match column {
            Given::Index(index) => (Some(*index).filter(|index| *index < schema.num_columns()), index.to_string()),
            Given::Name(name) => {
                let is_named = |leaf: &usize| schema.column(*leaf).path().string().eq_ignore_ascii_case(name);
                ((0..schema.num_columns()).find(is_named), name.clone())
            }
            Given::Bytes(_) => (None, role.to_owned()),
        };
        let Some(leaf) = leaf else { return Err(Problem::NoColumn { column: name, found: all_names(metadata) }) };
        let descriptor = schema.column(leaf);
        let is_text = descriptor.physical_type() == Physical::BYTE_ARRAY;
        let may_be_text = matches!(field, Field::Op | Field::Tenant | Field::Stream | Field::Volume | Field::Content);
        let is_flat = descriptor.max_rep_level() == 0 && descriptor.path().parts().len() == 1;
        let signed = match field {
            _ if is_text && may_be_text && is_flat => false,
            Field::Offset if has_keys && is_text && is_flat => false,
            Field::Offset if has_keys && is_floating(&descriptor) => {
                let found = descriptor.physical_type().to_string();
                return Err(Problem::Type { column: name, found, expected: "keys that are strings or integers" });
            }
            Field::Time if timestamp_ns(&descriptor).is_some() && is_flat => true,
            // A number for an operation is one of the words.
            Field::Op => is_signed(Field::Content, &descriptor)?,
            _ => is_signed(field, &descriptor)?,
        };
        let scale = match field {
            Field::Time => units.time_ns.unwrap_or(1),
            Field::Offset => units.offset_bytes,
            Field::Length => units.length_bytes,
            Field::Latency => units.latency_ns,
            _ => 1,
        };
        columns.push(Column { field, leaf, signed, floating: is_floating(&descriptor), scale });
    }
    Ok(columns)
}

/// The unit of a column of timestamps, in nanoseconds.
pub(super) fn timestamp_ns(column: &ColumnDescriptor) -> Option<u64> {
    if column.physical_type() != Physical::INT64 {
        return None;
    }
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(stamp)), _) => Some(match stamp.unit {
            TimeUnit::MILLIS => 1_000_000,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1,
        }),
        (None, Converted::TIMESTAMP_MILLIS) => Some(1_000_000),
        (None, Converted::TIMESTAMP_MICROS) => Some(1_000),
        _ => None,
    }
}

/// The units that are given, and those in the types and names of columns.
fn stated(metadata: &ParquetMetaData, columns: &[Column], given: Stated) -> Stated {
    let schema = metadata.file_metadata().schema_descr();
    let descriptor = |field: Field| {
        let column = columns.iter().find(|column| column.field == field)?;
        Some(schema.column(column.leaf))
    };
    let [time, offset, length, latency] = [Field::Time, Field::Offset, Field::Length, Field::Latency].map(descriptor);
    let time_ns = given.time_ns.or_else(|| timestamp_ns(time.as_ref()?));
    let name =
        |column: &Option<std::sync::Arc<ColumnDescriptor>>| column.as_ref().map(|column| column.name().to_owned());
    let names = [name(&time), name(&offset), name(&length), name(&latency)];
    Stated { time_ns, ..given }.or_named(names.each_ref().map(|name| name.as_ref().map(String::as_bytes)))
}

/// Whether a column has floating-point numbers: pandas makes them of integers where a value is missing.
fn is_floating(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Physical::FLOAT | Physical::DOUBLE)
}

/// Whether the column's numbers are signed; an error if its type does not match `field`.
pub(super) fn is_signed(field: Field, column: &ColumnDescriptor) -> Result<bool, Problem> {
    let logical = column.logical_type_ref();
    let flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
    let (allowed, signed) = match (column.physical_type(), logical) {
        // Some programs, such as DuckDB, write only the older kind of annotation.
        (Physical::INT32 | Physical::INT64, None) => match column.converted_type() {
            Converted::UINT_8 | Converted::UINT_16 | Converted::UINT_32 | Converted::UINT_64 => {
                (field != Field::Op, false)
            }
            Converted::NONE | Converted::INT_8 | Converted::INT_16 | Converted::INT_32 | Converted::INT_64 => {
                (field != Field::Op, true)
            }
            _ => (false, true),
        },
        (Physical::INT32 | Physical::INT64, Some(LogicalType::Integer(int))) => (field != Field::Op, int.is_signed),
        (Physical::INT64, Some(LogicalType::Timestamp(stamp))) => {
            (field == Field::Time && stamp.unit == TimeUnit::NANOS, true)
        }
        (Physical::FLOAT | Physical::DOUBLE, None) => (field != Field::Op, true),
        (Physical::BYTE_ARRAY, _) => (field == Field::Op, false),
        _ => (false, false),
    };
    if flat && allowed {
        return Ok(signed);
    }
    let logical = logical.map_or_else(String::new, |logical| format!(" ({logical:?})"));
    Err(Problem::Type {
        column: column.path().parts().first().cloned().unwrap_or_default(),
        found: if flat { format!("{}{logical}", column.physical_type()) } else { "list or struct".to_owned() },
        expected: match field {
            Field::Op => "string",
            Field::Time => "an integer of 32 or 64 bits, or a timestamp in nanoseconds",
            _ => "an integer of 32 or 64 bits",
        },
    })
}

/// Checks the footer's counts and places, and returns the number of rows.
fn check(metadata: &ParquetMetaData, columns: &[Column], file_bytes: u64) -> Result<u64, Problem> {
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    let mut rows = 0u64;
    for group in metadata.row_groups() {
        let count = u64::try_from(group.num_rows()).map_err(|_| Problem::Inconsistent("a negative number of rows"))?;
        rows = rows.checked_add(count).ok_or(Problem::Inconsistent("more than 2^64 rows"))?;
        if group.num_columns() != leaves {
            return Err(Problem::Inconsistent("a row group lacks columns of the schema"));
        }
        for column in columns {
            check_chunk(group.column(column.leaf), group.num_rows(), file_bytes)?;
        }
    }
    if u64::try_from(metadata.file_metadata().num_rows()) != Ok(rows) {
        return Err(Problem::Inconsistent("the row groups do not add up to the file's rows"));
    }
    Ok(rows)
}

pub(super) fn check_chunk(chunk: &ColumnChunkMetaData, rows: i64, file_bytes: u64) -> Result<(), Problem> {
    if chunk.file_path().is_some() {
        return Err(Problem::Inconsistent("a column is kept in another file"));
    }
    if chunk.num_values() != rows {
        return Err(Problem::Inconsistent("a column has fewer or more values than there are rows"));
    }
    // The size counts from the chunk's first page, which is the dictionary if there is one.
    let starts = [Some(chunk.data_page_offset()), chunk.dictionary_page_offset()];
    let bytes = u64::try_from(chunk.compressed_size()).ok();
    let first = starts.into_iter().flatten().min().and_then(|start| u64::try_from(start).ok());
    let end = first.filter(|&first| first >= HEAD_BYTES).zip(bytes).and_then(|(first, bytes)| first.checked_add(bytes));
    match end {
        Some(end) if end.checked_add(TAIL_BYTES).is_some_and(|end| end <= file_bytes) => Ok(()),
        _ => Err(Problem::Inconsistent("a column lies outside of the file")),
    }
}

impl Pages {
    /// Those of a column of the types that can be read.
    pub(super) fn open(group: &dyn RowGroupReader, leaf: usize) -> Result<Pages, Problem> {
        let descriptor = group.metadata().column(leaf).column_descr_ptr();
        let checked = Box::new(CheckedPages::new(group.get_column_page_reader(leaf)?, &descriptor));
        Ok(match descriptor.physical_type() {
            Physical::INT32 => Pages::Int32(ColumnReaderImpl::new(descriptor, checked), Vec::new()),
            Physical::INT64 => Pages::Int64(ColumnReaderImpl::new(descriptor, checked), Vec::new()),
            Physical::FLOAT => Pages::Float(ColumnReaderImpl::new(descriptor, checked), Vec::new()),
            Physical::DOUBLE => Pages::Double(ColumnReaderImpl::new(descriptor, checked), Vec::new()),
            _ => Pages::Text(ColumnReaderImpl::new(descriptor, checked), Vec::new()),
        })
    }

    /// The next values as CSV would have them.
    pub(super) fn texts(&mut self, rows: usize, column: &ColumnDescriptor) -> Result<Vec<Vec<u8>>, Problem> {
        fn shown<T: DataType<T: ToString>>(
            reader: &mut ColumnReaderImpl<T>,
            values: &mut Vec<T::T>,
            rows: usize,
            column: &str,
        ) -> Result<Vec<Vec<u8>>, Problem> {
            read_values(reader, rows, &mut Vec::new(), values, column)?;
            Ok(values.iter().map(|value| value.to_string().into_bytes()).collect())
        }
        let name = column.name();
        match self {
            Pages::Int32(reader, values) => shown(reader, values, rows, name),
            Pages::Int64(reader, values) => shown(reader, values, rows, name),
            Pages::Float(reader, values) => shown(reader, values, rows, name),
            Pages::Double(reader, values) => shown(reader, values, rows, name),
            Pages::Text(reader, values) => {
                read_values(reader, rows, &mut Vec::new(), values, name)?;
                Ok(values.iter().map(|text| text.data().to_vec()).collect())
            }
        }
    }
}

impl Chunk {
    /// Puts the next values into `batch`, whose first request is row `first_row`.
    /// Rows that are no requests are added to `no_requests`.
    pub(super) fn fill(
        &mut self,
        batch: &mut [Request],
        first_row: u64,
        no_requests: &mut Vec<usize>,
        mut described: Option<&mut Described>,
    ) -> Result<(), Problem> {
        let (column, name, levels) = (self.column, &*self.name, &mut self.levels);
        match &mut self.pages {
            Pages::Int32(reader, values) => {
                read_values(reader, batch.len(), levels, values, name)?;
                let integers =
                    values.iter().map(|&value| if column.signed { value.into() } else { value as u32 as i64 });
                put_all(column, name, batch, integers, first_row, described)
            }
            Pages::Int64(reader, values) => {
                read_values(reader, batch.len(), levels, values, name)?;
                put_all(column, name, batch, values.iter().copied(), first_row, described)
            }
            Pages::Float(reader, values) => {
                read_values(reader, batch.len(), levels, values, name)?;
                put_floats(column, name, batch, values.iter().copied().map(f64::from), first_row, described)
            }
            Pages::Double(reader, values) => {
                read_values(reader, batch.len(), levels, values, name)?;
                put_floats(column, name, batch, values.iter().copied(), first_row, described)
            }
            Pages::Text(reader, values) => {
                read_values(reader, batch.len(), levels, values, name)?;
                for (row, (request, text)) in batch.iter_mut().zip(values.iter()).enumerate() {
                    if let Some(described) = &mut described {
                        let put = described.put(column, request, text.data());
                        put.map_err(|Bad { found, expected }| Problem::Value {
                            column: name.to_owned(),
                            row: first_row + row as u64,
                            found,
                            expected,
                        })?;
                        continue;
                    }
                    if LEFT_OUT.iter().any(|word| word.as_bytes() == text.data()) {
                        no_requests.push(row);
                        continue;
                    }
                    let word = if text.data() == FAULT.as_bytes() { Op::Read.name().as_bytes() } else { text.data() };
                    request.op = Op::named(word).ok_or_else(|| Problem::Value {
                        column: name.to_owned(),
                        row: first_row + row as u64,
                        found: format!("{:?}", String::from_utf8_lossy(text.data().get(..40).unwrap_or(text.data()))),
                        expected: "read, write, trim or flush",
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Reads exactly `rows` values.
pub(super) fn read_values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
    column: &str,
) -> Result<(), Problem> {
    values.clear();
    levels.clear();
    let (records, present, _) = reader.read_records(rows, Some(levels), None, values)?;
    if records != rows {
        return Err(Problem::Inconsistent("a column ends early"));
    }
    if present != rows { Err(Problem::Null { column: column.to_owned() }) } else { Ok(()) }
}

/// Puts integers, as the bits of an `i64`, into the field of `column`.
fn put_all(
    column: Column,
    name: &str,
    batch: &mut [Request],
    integers: impl Iterator<Item = i64>,
    first_row: u64,
    mut described: Option<&mut Described>,
) -> Result<(), Problem> {
    for (row, (request, integer)) in batch.iter_mut().zip(integers).enumerate() {
        put(column, request, integer, described.as_deref_mut()).ok_or_else(|| Problem::Value {
            column: name.to_owned(),
            row: first_row + row as u64,
            found: if column.signed { integer.to_string() } else { (integer as u64).to_string() },
            expected: match column.field {
                Field::Op => "one of the numbers that the columns give for operations",
                Field::Time | Field::Offset | Field::Stream | Field::Latency | Field::Content => {
                    "a number from 0 to 2^64 - 1"
                }
                _ => "a number from 0 to 2^32 - 1",
            },
        })?;
    }
    Ok(())
}

/// As `put_all`, for floating-point numbers: times and latencies can have fractions.
fn put_floats(
    column: Column,
    name: &str,
    batch: &mut [Request],
    numbers: impl Iterator<Item = f64>,
    first_row: u64,
    mut described: Option<&mut Described>,
) -> Result<(), Problem> {
    /// 2^63.
    const END: f64 = (1_u64 << 63) as f64;
    let is_time = matches!(column.field, Field::Time | Field::Latency);
    let integer = |number: f64| {
        let (whole, fraction) = (number as u64, number.fract());
        let is_whole = fraction == 0.0;
        if !(0.0..END).contains(&number) || !(is_time || is_whole) {
            return None;
        }
        // Scaled apart, because the product has too few bits for dates in nanoseconds.
        let rest = (fraction * column.scale as f64).round() as u64;
        whole.checked_mul(column.scale)?.checked_add(rest).map(|scaled| scaled as i64)
    };
    let scaled = Column { scale: 1, signed: false, ..column };
    for (row, (request, number)) in batch.iter_mut().zip(numbers).enumerate() {
        integer(number).and_then(|integer| put(scaled, request, integer, described.as_deref_mut())).ok_or_else(
            || Problem::Value {
                column: name.to_owned(),
                row: first_row + row as u64,
                found: number.to_string(),
                expected: match column.field {
                    Field::Time | Field::Latency => "a time below 2^64 ns",
                    Field::Offset | Field::Stream | Field::Content => "a whole number from 0 to 2^63",
                    _ => "a whole number from 0 to 2^32 - 1",
                },
            },
        )?;
    }
    Ok(())
}

fn put(column: Column, request: &mut Request, integer: i64, mut described: Option<&mut Described>) -> Option<()> {
    let number = if column.signed { u64::try_from(integer).ok()? } else { integer as u64 };
    if column.field == Field::Offset
        && let Some(place) =
            described.as_deref_mut().and_then(|described| described.place(number.to_string().as_bytes(), column.scale))
    {
        request.offset = place.ok()?;
        return Some(());
    }
    let value = number.checked_mul(column.scale)?;
    match column.field {
        Field::Time => request.time_ns = value,
        Field::Offset => request.offset = value,
        Field::Stream => request.stream = value,
        Field::Latency => request.latency_ns = value,
        Field::Content => request.content = value,
        Field::Volume => request.volume = value.try_into().ok()?,
        Field::Length => request.length = value.try_into().ok()?,
        Field::Tenant => request.tenant = value.try_into().ok()?,
        Field::Op => request.op = described?.op(number.to_string().as_bytes())?,
    }
    Some(())
}
