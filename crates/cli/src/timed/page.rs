//! The page of a timed simulation.

use nigh_report::{Curve, Point, Report, Timed, TimedCurve, TimedLevel, TimedPoint, TimedProgram};
use nigh_sim::References;

use super::results::{LevelRow, LevelSummary, ProgramRow, Results, Row};
use crate::page::of_trace;

pub(super) fn page(results: &Results, references: &References) -> Report {
    Report {
        curves: results.policies().into_iter().map(|policy| curve(results, policy)).collect(),
        timed: Some(Timed {
            device: results.device.title.clone(),
            levels: results.levels.iter().map(LevelSummary::label).collect(),
            readahead: results.readahead.clone(),
            scheduler: results.scheduler.clone(),
            curves: results.policies().into_iter().map(|policy| timed_curve(results, policy)).collect(),
        }),
        ..of_trace(&results.trace, references)
    }
}

/// The hit ratios.
fn curve(results: &Results, policy: &str) -> Curve {
    let points = results.of(policy).map(|row| {
        let figures = &row.figures;
        Point {
            size_blocks: figures.size_blocks,
            size_bytes: figures.size_bytes,
            references: figures.references,
            hits: figures.references - figures.misses,
            hit_ratio: figures.hit_ratio,
            miss_ratio: 1.0 - figures.hit_ratio,
            error: None,
            bytes_missed: figures.misses * u64::from(results.trace.block_bytes),
            evictions: Some(figures.evictions),
            cpu_s: None,
        }
    });
    Curve { policy: policy.to_owned(), clairvoyant: false, points: points.collect() }
}

fn timed_curve(results: &Results, policy: &str) -> TimedCurve {
    let point = |row: &Row| {
        let figures = &row.figures;
        let sequences = row.sequences.size_blocks.iter().copied().zip(row.sequences.share.iter().copied());
        TimedPoint {
            size_blocks: figures.size_blocks,
            size_bytes: figures.size_bytes,
            execution_s: figures.execution_s,
            device_busy_s: figures.device_busy_s,
            device_requests: figures.device_requests,
            device_reads: figures.device_reads,
            levels: row.levels.iter().map(|&LevelRow { hits, stores, .. }| TimedLevel { hits, stores }).collect(),
            mean_request_bytes: figures.mean_request_bytes,
            mean_sequence_blocks: figures.mean_sequence_blocks,
            hit_ratio: figures.hit_ratio,
            prefetch_accuracy: figures.prefetch_accuracy,
            sequences: sequences.collect(),
            programs: row.programs.iter().map(program).collect(),
        }
    };
    TimedCurve { policy: policy.to_owned(), points: results.of(policy).map(point).collect() }
}

fn program(row: &ProgramRow) -> TimedProgram {
    let ahead = row.ahead.as_ref();
    TimedProgram {
        name: row.name.clone(),
        execution_s: row.execution_s,
        waited_s: row.waited_s,
        prefetch_issued: ahead.map(|ahead| ahead.prefetch_issued),
        prefetch_accuracy: ahead.and_then(|ahead| ahead.prefetch_accuracy),
        prefetch_lateness: ahead.and_then(|ahead| ahead.prefetch_lateness),
        prefetch_waste: ahead.and_then(|ahead| ahead.prefetch_waste),
    }
}
