//! The columns of a Parquet file that nobody described and that has no column `offset`: guessed as those of CSV, from names and
//! from the values of the first rows.

use std::fs::File;
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::file::reader::FileReader;
use parquet::schema::types::ColumnDescriptor;

use super::Problem;
use super::read::{Pages, ParquetReader, check_chunk, is_signed, timestamp_ns};
use crate::format::csv::guess::{Guess, Table, of_table};
use crate::units::{ROWS, Unknown};
use crate::{Error, Field};

/// Stands for a timestamp, whose unit is in the type of its column.
const DATE: &[u8] = b"1970-01-01T00:00:00";

impl ParquetReader {
    /// Opens a `file` without a column `offset` by a guess; `None` if its columns cannot be guessed.
    pub(super) fn guessed(file: File, path: &Path, block_bytes: Option<u32>) -> crate::Result<Option<ParquetReader>> {
        let again = file.try_clone().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let sample = ParquetReader::from_file_with(file, path, block_bytes, &|_| Ok(Vec::new()))?;
        let guess = guess(&sample).map_err(|problem| Error::Parquet { path: path.to_owned(), problem })?;
        let Some(guess) = guess else { return Ok(None) };
        let guess = guess.map_err(|unknown| unknown.of(path))?;
        match ParquetReader::described(again, path, block_bytes, &guess.columns) {
            Ok(mut reader) => {
                reader.notes.insert(0, guess.note);
                Ok(Some(reader))
            }
            Err(Error::Parquet { path, problem }) => {
                Err(Error::Parquet { path, problem: Problem::Guessed { problem: Box::new(problem), note: guess.note } })
            }
            Err(error) => Err(error),
        }
    }
}

/// A description of the columns of the file, without a unit that cannot be guessed; `None` if they cannot be guessed.
fn guess(of: &ParquetReader) -> Result<Option<Result<Guess, Unknown>>, Problem> {
    let groups = of.file.metadata().row_groups();
    let Some(first) = groups.iter().position(|group| group.num_rows() > 0) else { return Ok(None) };
    let group = of.file.get_row_group(first)?;
    let rows = usize::try_from(group.metadata().num_rows()).map_or(ROWS, |rows| rows.min(ROWS));
    let schema = of.file.metadata().file_metadata().schema_descr();
    let (mut names, mut columns, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for (leaf, descriptor) in schema.columns().iter().enumerate() {
        names.push(descriptor.path().string().into_bytes());
        let values = match is_readable(descriptor) {
            true => {
                check_chunk(group.metadata().column(leaf), group.metadata().num_rows(), of.whole_bytes)?;
                match Pages::open(&*group, leaf)?.texts(rows, descriptor) {
                    // It cannot be read as a part of requests.
                    Err(Problem::Null { .. }) => Vec::new(),
                    values => values?,
                }
            }
            false => Vec::new(),
        };
        if descriptor.physical_type() == Physical::BYTE_ARRAY {
            texts.push(leaf);
        }
        columns.push(match timestamp_ns(descriptor) {
            Some(_) => vec![DATE.to_vec(); values.len()],
            None => values,
        });
    }
    let row = |row| columns.iter().map(|column| column.get(row).map(Vec::as_slice).unwrap_or_default()).collect();
    let table = Table { rows: (0..rows).map(row).collect(), unnamed: 0, texts };
    let header: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    Ok(of_table(&table, Some(&header)))
}

/// Whether a column can be one of a description.
fn is_readable(column: &ColumnDescriptor) -> bool {
    let is_flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
    let is_text = column.physical_type() == Physical::BYTE_ARRAY;
    is_flat && (is_text || timestamp_ns(column).is_some() || is_signed(Field::Offset, column).is_ok())
}
