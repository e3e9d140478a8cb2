//! The row groups of a file that can be read while it grows.
//!
//! Each checkpoint appends a group, and then a footer for all groups so far. Rows that are in a small group are written again with those
//! behind them, in a group twice as large, so that there are few groups, and a footer is short: the number of small groups is at most the
//! logarithm of the rows in a full one. Groups that a larger one replaces remain in the file, where no later footer names them.

use std::io::Write;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaDataPtr};
use parquet::file::writer::SerializedFileWriter;

#[derive(Default)]
pub(super) struct Groups {
    full: Vec<RowGroupMetaDataPtr>,
    /// With the rows of each, a smaller group behind each larger one.
    small: Vec<(usize, RowGroupMetaDataPtr)>,
    rows_full: u64,
    /// Rows in the groups of the last footer.
    rows_whole: u64,
}

impl Groups {
    /// Of the rows since the last full group, those that are in small groups.
    pub(super) fn rows_small(&self) -> usize {
        self.small.iter().map(|(rows, _)| rows).sum()
    }

    /// Rows in full groups.
    pub(super) fn rows_full(&self) -> u64 {
        self.rows_full
    }

    /// Rows in the groups of the last footer.
    pub(super) fn rows_whole(&self) -> u64 {
        self.rows_whole
    }

    /// Of `rows` since the last full group, the first that the next group has: it replaces the small groups that are not larger than what
    /// follows them.
    pub(super) fn begin(&mut self, rows: usize) -> usize {
        let mut begin = self.rows_small();
        while let Some((last, _)) = self.small.pop_if(|(last, _)| *last <= rows - begin) {
            begin -= last;
        }
        begin
    }

    /// Takes in a group of `rows` rows, which begins as [`begin`](Groups::begin) returned.
    pub(super) fn add(&mut self, rows: usize, group: RowGroupMetaDataPtr, is_full: bool) {
        if is_full {
            self.small.clear();
            self.full.push(group);
            self.rows_full += rows as u64;
        } else {
            self.small.push((rows, group));
        }
    }

    /// Writes a footer for the groups so far. `more` is added to the pairs of the file.
    pub(super) fn write_footer<W: Write + Send>(
        &mut self,
        file: &mut SerializedFileWriter<W>,
        more: impl IntoIterator<Item = KeyValue>,
    ) -> Result<(), ParquetError> {
        let properties = file.properties();
        let mut pairs = properties.key_value_metadata().cloned().unwrap_or_default();
        pairs.extend(more);
        let rows = self.rows_full + self.rows_small() as u64;
        let about = FileMetaData::new(
            properties.writer_version().as_num(),
            rows as i64,
            Some(properties.created_by().to_owned()),
            Some(pairs),
            Arc::new(file.schema_descr().clone()),
            None,
        );
        let groups = self.full.iter().chain(self.small.iter().map(|(_, group)| group));
        let metadata = ParquetMetaData::new(about, groups.map(|group| (**group).clone()).collect());
        let mut bytes = Vec::new();
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish()?;
        file.write_all(&bytes)?;
        file.flush()?;
        self.rows_whole = rows;
        Ok(())
    }
}
