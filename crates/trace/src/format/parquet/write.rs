//! The canonical form, written a row group at a time.

// There is no parsing here.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{BLOCK_BYTES_KEY, SCHEMA, SCHEMA_KEY};
use crate::{Field, Op, Request};

const MESSAGE: &str = "message request {
    required int64 time_ns (INTEGER(64, false));
    required binary op (STRING);
    required int32 volume (INTEGER(32, false));
    required int64 offset (INTEGER(64, false));
    required int32 length (INTEGER(32, false));
    required int32 tenant (INTEGER(32, false));
    required int64 stream (INTEGER(64, false));
    required int64 latency_ns (INTEGER(64, false));
}";

const GROUP_ROWS: usize = 1 << 20;

/// The number of values passed to a column at a time.
const CHUNK_ROWS: usize = 4096;

const ZSTD_LEVEL: i32 = 3;

/// Writes requests into a Parquet file. It buffers up to a row group of them, 48 MiB.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: Vec<Request>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file in `out`, for a trace recorded or generated with blocks of `block_bytes`.
    pub fn new(out: W, block_bytes: u32) -> io::Result<ParquetWriter<W>> {
        let schema = Arc::new(parse_message_type(MESSAGE).map_err(io_error)?);
        let pairs = [(SCHEMA_KEY, SCHEMA.to_owned()), (BLOCK_BYTES_KEY, block_bytes.to_string())];
        let delta = ColumnPath::from(Field::Time.name());
        let plain = ColumnPath::from(Field::Offset.name());
        let properties = WriterProperties::builder()
            .set_created_by(concat!("nigh ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).map_err(io_error)?))
            .set_column_dictionary_enabled(delta.clone(), false)
            .set_column_encoding(delta, Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(plain.clone(), false)
            .set_column_encoding(plain, Encoding::PLAIN)
            .set_key_value_metadata(Some(pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value)).into()))
            .build();
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(io_error)?;
        Ok(ParquetWriter { file, rows: Vec::new() })
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

    /// Writes the buffered requests and the footer, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.rows.is_empty() {
            self.write_group().map_err(io_error)?;
        }
        self.file.into_inner().map_err(io_error)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let ops = Op::ALL.map(|op| ByteArray::from(op.name()));
        let rows = &self.rows[..];
        let mut group = self.file.next_row_group()?;
        for field in Field::ALL {
            match field {
                Field::Time => write_column::<Int64Type, W>(&mut group, rows, |row| row.time_ns as i64),
                Field::Op => write_column::<ByteArrayType, W>(&mut group, rows, |row| ops[row.op as usize].clone()),
                Field::Volume => write_column::<Int32Type, W>(&mut group, rows, |row| row.volume as i32),
                Field::Offset => write_column::<Int64Type, W>(&mut group, rows, |row| row.offset as i64),
                Field::Length => write_column::<Int32Type, W>(&mut group, rows, |row| row.length as i32),
                Field::Tenant => write_column::<Int32Type, W>(&mut group, rows, |row| row.tenant as i32),
                Field::Stream => write_column::<Int64Type, W>(&mut group, rows, |row| row.stream as i64),
                Field::Latency => write_column::<Int64Type, W>(&mut group, rows, |row| row.latency_ns as i64),
            }?;
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Request],
    value: impl Fn(&Request) -> T::T,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has a column for each field");
    let mut values = Vec::with_capacity(CHUNK_ROWS);
    for chunk in rows.chunks(CHUNK_ROWS) {
        values.clear();
        values.extend(chunk.iter().map(&value));
        column.typed::<T>().write_batch(&values, None, None)?;
    }
    column.close()
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
