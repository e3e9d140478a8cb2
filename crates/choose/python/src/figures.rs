//! The figures of timed runs as an Arrow table.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use nigh_sim::timed::Figures;

/// The figures of timed runs as a table of one batch: a column for each field of [`Figures`].
pub(crate) fn table(rows: &[Figures]) -> RecordBatch {
    let count = |of: fn(&Figures) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let number = |of: fn(&Figures) -> f64| Arc::new(Float64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let some = |of: fn(&Figures) -> Option<f64>| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let policies = StringArray::from_iter_values(rows.iter().map(|row| &row.policy));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("policy", Arc::new(policies), false),
        ("size_blocks", count(|row| row.size_blocks), false),
        ("size_bytes", count(|row| row.size_bytes), false),
        ("execution_s", number(|row| row.execution_s), false),
        ("device_busy_s", number(|row| row.device_busy_s), false),
        ("device_requests", count(|row| row.device_requests), false),
        ("device_seeks", count(|row| row.device_seeks), false),
        ("device_reads", count(|row| row.device_reads), false),
        ("device_read_bytes", count(|row| row.device_read_bytes), false),
        ("device_writes", count(|row| row.device_writes), false),
        ("device_written_bytes", count(|row| row.device_written_bytes), false),
        ("mean_request_bytes", number(|row| row.mean_request_bytes), false),
        ("mean_sequence_blocks", some(|row| row.mean_sequence_blocks), true),
        ("references", count(|row| row.references), false),
        ("hits", count(|row| row.hits), false),
        ("joined", count(|row| row.joined), false),
        ("misses", count(|row| row.misses), false),
        ("hit_ratio", number(|row| row.hit_ratio), false),
        ("latency_mean_us", some(|row| row.latency_mean_us), true),
        ("latency_p50_us", some(|row| row.latency_p50_us), true),
        ("latency_p99_us", some(|row| row.latency_p99_us), true),
        ("latency_p999_us", some(|row| row.latency_p999_us), true),
        ("idle_share", some(|row| row.idle_share), true),
        ("overloaded", Arc::new(rows.iter().map(|row| Some(row.overloaded)).collect::<BooleanArray>()), false),
        ("writes", count(|row| row.writes), false),
        ("write_hits", count(|row| row.write_hits), false),
        ("read_hit_ratio", some(|row| row.read_hit_ratio), true),
        ("write_hit_ratio", some(|row| row.write_hit_ratio), true),
        ("evictions", count(|row| row.evictions), false),
        ("prefetch_issued", count(|row| row.prefetch_issued), false),
        ("prefetch_used", count(|row| row.prefetch_used), false),
        ("prefetch_late", count(|row| row.prefetch_late), false),
        ("prefetch_wasted", count(|row| row.prefetch_wasted), false),
        ("prefetch_dropped", count(|row| row.prefetch_dropped), false),
        ("prefetch_accuracy", some(|row| row.prefetch_accuracy), true),
        ("encoded_hits", count(|row| row.encoded_hits), false),
        ("level_1_hits", count(|row| row.level_1_hits), false),
        ("level_2_hits", count(|row| row.level_2_hits), false),
        ("ghosts", Arc::new(rows.iter().map(|row| row.ghosts).collect::<UInt32Array>()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).expect("the columns are equally long")
}
