//! Rows of a replay as an Arrow table.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use nigh_sim::Row;

/// The rows as a table of one batch. There is a column for each field of [`Row`] but the two of time, so the same job
/// gives the same bytes.
pub fn of_rows(rows: &[Row]) -> RecordBatch {
    let count = |of: fn(&Row) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let ratio = |of: fn(&Row) -> f64| Arc::new(Float64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let some = |of: fn(&Row) -> Option<f64>| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let policies = StringArray::from_iter_values(rows.iter().map(|row| &row.policy));
    let columns: Vec<(&str, bool, ArrayRef)> = vec![
        ("policy", false, Arc::new(policies)),
        ("size_blocks", false, count(|row| row.size_blocks)),
        ("size_bytes", false, count(|row| row.size_bytes)),
        ("references", false, count(|row| row.references)),
        ("hits", false, count(|row| row.hits)),
        ("misses", false, count(|row| row.misses)),
        ("hit_ratio", false, ratio(|row| row.hit_ratio)),
        ("miss_ratio", false, ratio(|row| row.miss_ratio)),
        ("writes", false, count(|row| row.writes)),
        ("write_hits", false, count(|row| row.write_hits)),
        ("read_hit_ratio", true, some(|row| row.read_hit_ratio)),
        ("write_hit_ratio", true, some(|row| row.write_hit_ratio)),
        ("bytes_missed", false, count(|row| row.bytes_missed)),
        ("evictions", true, Arc::new(rows.iter().map(|row| row.evictions).collect::<UInt64Array>())),
        ("error", true, some(|row| row.error)),
        ("ghosts", true, Arc::new(rows.iter().map(|row| row.ghosts).collect::<UInt32Array>())),
    ];
    let field = |(name, nullable, column): &(&str, bool, ArrayRef)| {
        let data_type: DataType = column.data_type().clone();
        Field::new(*name, data_type, *nullable)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, _, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).expect("the columns are as long and of the types of the schema")
}
