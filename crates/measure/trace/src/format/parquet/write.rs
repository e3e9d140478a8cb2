//! The canonical form, written a row group at a time.

// There is no parsing here.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::groups::Groups;
use super::{BLOCK_BYTES_KEY, SCHEMA, SCHEMA_KEY, TAKEN_KEY};
use crate::{Field, Gaps, Op, Request, Taken};

/// The columns of a request.
pub(super) const COLUMNS: &str = "
    required int64 time_ns (INTEGER(64, false));
    required binary op (STRING);
    required int32 volume (INTEGER(32, false));
    required int64 offset (INTEGER(64, false));
    required int32 length (INTEGER(32, false));
    required int32 tenant (INTEGER(32, false));
    required int64 stream (INTEGER(64, false));
    required int64 latency_ns (INTEGER(64, false));
    required int64 content (INTEGER(64, false));
";

const GROUP_ROWS: usize = 1 << 20;

/// The number of values passed to a column at a time.
const CHUNK_ROWS: usize = 4096;

const ZSTD_LEVEL: i32 = 3;

/// Writes requests into a Parquet file. It buffers up to a row group of them, 48 MiB.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// Since the last full group.
    rows: Vec<Request>,
    groups: Groups,
    gaps: Gaps,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file in `out`, for a trace generated, or recorded at a place, with blocks of `block_bytes`.
    pub fn new(out: W, block_bytes: u32, taken: Option<Taken>) -> io::Result<ParquetWriter<W>> {
        let schema = Arc::new(parse_message_type(&format!("message request {{ {COLUMNS} }}")).map_err(io_error)?);
        let properties = properties(block_bytes, taken).map_err(io_error)?.build();
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(io_error)?;
        Ok(ParquetWriter { file, rows: Vec::new(), groups: Groups::default(), gaps: Gaps::default() })
    }

    /// Appends `requests`.
    pub fn push(&mut self, mut requests: &[Request]) -> io::Result<()> {
        while !requests.is_empty() {
            let (now, later) = requests.split_at(requests.len().min(GROUP_ROWS - self.rows.len()));
            self.rows.extend_from_slice(now);
            requests = later;
            if self.rows.len() == GROUP_ROWS {
                self.write_group().map_err(io_error)?;
            }
        }
        Ok(())
    }

    /// Writes the buffered requests and a footer: the file can be read up to here, whatever happens next. A file with checkpoints is
    /// complete after the last one, and has no [`finish`](ParquetWriter::finish).
    pub(crate) fn checkpoint(&mut self) -> io::Result<()> {
        if self.rows.len() > self.groups.rows_small() {
            self.write_group().map_err(io_error)?;
        }
        let gaps = pairs(self.gaps.pairs());
        self.groups.write_footer(&mut self.file, gaps).map_err(io_error)
    }

    /// Sets what is missing, for the footers from now on.
    pub(crate) fn set_gaps(&mut self, gaps: Gaps) {
        self.gaps = gaps;
    }

    /// Writes the buffered requests and the footer, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.rows.is_empty() {
            self.write_group().map_err(io_error)?;
        }
        pairs(self.gaps.pairs()).for_each(|pair| self.file.append_key_value_metadata(pair));
        self.file.into_inner().map_err(io_error)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let ops = Op::ALL.map(|op| ByteArray::from(op.name()));
        let rows = &self.rows[self.groups.begin(self.rows.len())..];
        let mut group = self.file.next_row_group()?;
        write_fields(&mut group, rows, |row| row, |row| ops[row.op as usize].clone())?;
        let is_full = rows.len() == GROUP_ROWS;
        self.groups.add(rows.len(), group.close()?, is_full);
        if is_full {
            self.rows.clear();
        }
        Ok(())
    }
}

/// The properties of every file: the encodings of a request's columns, and where the trace comes from.
pub(super) fn properties(block_bytes: u32, taken: Option<Taken>) -> Result<WriterPropertiesBuilder, ParquetError> {
    let mut pairs = vec![(SCHEMA_KEY, SCHEMA.to_owned()), (BLOCK_BYTES_KEY, block_bytes.to_string())];
    pairs.extend(taken.map(|taken| (TAKEN_KEY, taken.name().to_owned())));
    let pairs = self::pairs(pairs).collect();
    let delta = ColumnPath::from(Field::Time.name());
    let plain = ColumnPath::from(Field::Offset.name());
    Ok(WriterProperties::builder()
        .set_created_by(concat!("nigh ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_column_dictionary_enabled(delta.clone(), false)
        .set_column_encoding(delta, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(plain.clone(), false)
        .set_column_encoding(plain, Encoding::PLAIN)
        .set_key_value_metadata(Some(pairs)))
}

pub(super) fn pairs(pairs: impl IntoIterator<Item = (&'static str, String)>) -> impl Iterator<Item = KeyValue> {
    pairs.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value))
}

/// Writes the columns of the requests of `rows`, with the words that `op` has for their operations.
pub(super) fn write_fields<R, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[R],
    request: impl Fn(&R) -> &Request,
    op: impl Fn(&R) -> ByteArray,
) -> Result<(), ParquetError> {
    for field in Field::ALL {
        match field {
            Field::Time => write_column::<Int64Type, _, W>(group, rows, |row| request(row).time_ns as i64),
            Field::Op => write_column::<ByteArrayType, _, W>(group, rows, &op),
            Field::Volume => write_column::<Int32Type, _, W>(group, rows, |row| request(row).volume as i32),
            Field::Offset => write_column::<Int64Type, _, W>(group, rows, |row| request(row).offset as i64),
            Field::Length => write_column::<Int32Type, _, W>(group, rows, |row| request(row).length as i32),
            Field::Tenant => write_column::<Int32Type, _, W>(group, rows, |row| request(row).tenant as i32),
            Field::Stream => write_column::<Int64Type, _, W>(group, rows, |row| request(row).stream as i64),
            Field::Latency => write_column::<Int64Type, _, W>(group, rows, |row| request(row).latency_ns as i64),
            Field::Content => write_column::<Int64Type, _, W>(group, rows, |row| request(row).content as i64),
        }?;
    }
    Ok(())
}

/// Writes the next column of the schema.
pub(super) fn write_column<T: DataType, R, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[R],
    value: impl Fn(&R) -> T::T,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has this column");
    let mut values = Vec::with_capacity(CHUNK_ROWS);
    for chunk in rows.chunks(CHUNK_ROWS) {
        values.clear();
        values.extend(chunk.iter().map(&value));
        column.typed::<T>().write_batch(&values, None, None)?;
    }
    column.close()
}

pub(super) fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
