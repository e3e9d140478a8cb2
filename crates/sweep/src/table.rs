//! Rows of a replay as an Arrow table.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use nigh_sim::Row;
use nigh_sim::timed::Figures;

/// The rows as a table of one batch. There is a column for each field of [`Row`] but the two of time, so the same job
/// gives the same bytes.
pub fn of_rows(rows: &[Row]) -> RecordBatch {
    let count = |of: fn(&Row) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let ratio = |of: fn(&Row) -> f64| Arc::new(Float64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let some = |of: fn(&Row) -> Option<f64>| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let policies = StringArray::from_iter_values(rows.iter().map(|row| &row.policy));
    let columns: Vec<Column> = vec![
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
    batch(columns)
}

/// The figures of timed runs as a table of one batch: a column for each field of [`Figures`].
pub fn of_figures(rows: &[Figures]) -> RecordBatch {
    let count = |of: fn(&Figures) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let number = |of: fn(&Figures) -> f64| Arc::new(Float64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let some = |of: fn(&Figures) -> Option<f64>| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let policies = StringArray::from_iter_values(rows.iter().map(|row| &row.policy));
    batch(vec![
        ("policy", false, Arc::new(policies)),
        ("size_blocks", false, count(|row| row.size_blocks)),
        ("size_bytes", false, count(|row| row.size_bytes)),
        ("execution_s", false, number(|row| row.execution_s)),
        ("device_busy_s", false, number(|row| row.device_busy_s)),
        ("device_requests", false, count(|row| row.device_requests)),
        ("device_seeks", false, count(|row| row.device_seeks)),
        ("device_reads", false, count(|row| row.device_reads)),
        ("device_read_bytes", false, count(|row| row.device_read_bytes)),
        ("device_writes", false, count(|row| row.device_writes)),
        ("device_written_bytes", false, count(|row| row.device_written_bytes)),
        ("mean_request_bytes", false, number(|row| row.mean_request_bytes)),
        ("mean_sequence_blocks", true, some(|row| row.mean_sequence_blocks)),
        ("references", false, count(|row| row.references)),
        ("hits", false, count(|row| row.hits)),
        ("joined", false, count(|row| row.joined)),
        ("misses", false, count(|row| row.misses)),
        ("hit_ratio", false, number(|row| row.hit_ratio)),
        ("latency_p50_us", true, some(|row| row.latency_p50_us)),
        ("latency_p99_us", true, some(|row| row.latency_p99_us)),
        ("idle_share", false, number(|row| row.idle_share)),
        ("writes", false, count(|row| row.writes)),
        ("write_hits", false, count(|row| row.write_hits)),
        ("read_hit_ratio", true, some(|row| row.read_hit_ratio)),
        ("write_hit_ratio", true, some(|row| row.write_hit_ratio)),
        ("evictions", false, count(|row| row.evictions)),
        ("prefetch_issued", false, count(|row| row.prefetch_issued)),
        ("prefetch_used", false, count(|row| row.prefetch_used)),
        ("prefetch_late", false, count(|row| row.prefetch_late)),
        ("prefetch_wasted", false, count(|row| row.prefetch_wasted)),
        ("prefetch_dropped", false, count(|row| row.prefetch_dropped)),
        ("prefetch_accuracy", true, some(|row| row.prefetch_accuracy)),
        ("level_1_hits", false, count(|row| row.level_1_hits)),
        ("level_2_hits", false, count(|row| row.level_2_hits)),
        ("ghosts", true, Arc::new(rows.iter().map(|row| row.ghosts).collect::<UInt32Array>())),
    ])
}

/// A column: its name, whether values may be missing, and its values.
type Column = (&'static str, bool, ArrayRef);

fn batch(columns: Vec<Column>) -> RecordBatch {
    let field = |(name, nullable, column): &Column| {
        let data_type: DataType = column.data_type().clone();
        Field::new(*name, data_type, *nullable)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, _, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).expect("the columns are as long and of the types of the schema")
}
