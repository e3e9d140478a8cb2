//! Rows of a replay as an Arrow table.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use nigh_sim::Row;

/// The rows as a table of one batch. There is a column for each field of [`Row`] but the two of time, so the same job
/// gives the same bytes.
pub fn of_rows(rows: &[Row]) -> RecordBatch {
    let count = |of: fn(&Row) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let ratio = |of: fn(&Row) -> f64| Arc::new(Float64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let some = |of: fn(&Row) -> Option<f64>| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let policies = StringArray::from_iter_values(rows.iter().map(|row| &row.policy));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("policy", Arc::new(policies), false),
        ("size_blocks", count(|row| row.size_blocks), false),
        ("size_bytes", count(|row| row.size_bytes), false),
        ("references", count(|row| row.references), false),
        ("hits", count(|row| row.hits), false),
        ("misses", count(|row| row.misses), false),
        ("hit_ratio", ratio(|row| row.hit_ratio), false),
        ("miss_ratio", ratio(|row| row.miss_ratio), false),
        ("writes", count(|row| row.writes), false),
        ("write_hits", count(|row| row.write_hits), false),
        ("read_hit_ratio", some(|row| row.read_hit_ratio), true),
        ("write_hit_ratio", some(|row| row.write_hit_ratio), true),
        ("bytes_missed", count(|row| row.bytes_missed), false),
        ("evictions", Arc::new(rows.iter().map(|row| row.evictions).collect::<UInt64Array>()), true),
        ("error", some(|row| row.error), true),
        ("ghosts", Arc::new(rows.iter().map(|row| row.ghosts).collect::<UInt32Array>()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).expect("the columns are equally long")
}
