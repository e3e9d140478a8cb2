//! The page of a timed simulation.

use nigh_report::{Curve, Point, Report, Timed, TimedCurve, TimedLevel, TimedPoint, TimedProgram, Verdict};
use nigh_sim::References;
use nigh_sim::timed::Figures;

use super::results::{LevelRow, LevelSummary, ProgramRow, Results, Row};
use crate::page::of_trace;
use crate::page::verdict::{Comparison, Score};
use crate::size::human_bytes;
use crate::timed;

pub(super) fn page(results: &Results, references: &References) -> Report {
    Report {
        curves: results.labels().iter().map(|label| curve(results, label)).collect(),
        verdict: verdict(results),
        timed: Some(Timed {
            is_open: results.is_open(),
            device: results.device.title.clone(),
            levels: results.levels.iter().map(LevelSummary::label).collect(),
            readahead: results.readahead.clone(),
            scheduler: results.scheduler.clone(),
            curves: results.labels().iter().map(|label| timed_curve(results, label)).collect(),
        }),
        ..of_trace(&results.trace, references)
    }
}

/// Whose programs or requests wait least where waiting times differ most. How long programs compute is the same for all.
fn verdict(results: &Results) -> Option<Verdict> {
    let labels: Vec<String> = results.results.iter().map(Row::label).collect();
    let rows = results.results.iter().zip(&labels);
    let scores: Vec<Score> = rows
        .map(|(row, label)| Score { policy: label, bytes: row.figures.size_bytes, value: -row.waited_s() })
        .collect();
    let comparison = Comparison::new(&scores)?;
    let Comparison { bytes, present, best, .. } = comparison;
    let at = |label: &str| results.results.iter().find(|row| row.label() == label && row.figures.size_bytes == bytes);
    let (before, after) = (at(present)?, at(best)?);
    let size = human_bytes(bytes);
    let [wait, wait_before] = [after, before].map(Row::waited_s);
    let [took, took_before] =
        [after, before].map(|row| timed::wait(row.is_closed(), row.waited_s(), row.figures.latency_mean_us));
    let waits = if results.is_open() { "a request takes a mean of" } else { "programs wait for" };
    let next = comparison.next(&results.trace, &format!(" --device {}", results.device.name));
    if best == present {
        let headline = format!("With {size}, {waits} {took_before} with {present}, and with no other policy less.");
        return Some(Verdict { headline, facts: Vec::new(), next });
    }
    let headline = format!(
        "With {size}, {waits} {took} with {best} and {took_before} with {present}: {:.1} % less.",
        100.0 * (1.0 - wait / wait_before)
    );
    let mut facts: Vec<(String, String)> = comparison.memory().into_iter().collect();
    let both = |what: &str, unit: &str, figure: fn(&Figures) -> f64| {
        let [after, before] = [after, before].map(|row| figure(&row.figures));
        (what.to_owned(), format!("{after:.3} {unit} with {best}, {before:.3} {unit} with {present}."))
    };
    if !results.is_open() {
        facts.push(both("execution", "s", |figures| figures.execution_s));
    }
    facts.push(both("device busy", "s", |figures| figures.device_busy_s));
    if let [Some(p99), Some(p99_before)] = [after, before].map(|row| row.figures.latency_p99_us) {
        let sentence =
            format!("99 % of the requests take at most {p99:.0} µs with {best}, {p99_before:.0} µs with {present}.");
        facts.push(("latency".to_owned(), sentence));
    }
    let [hits, hits_before] = [after, before].map(|row| 100.0 * row.figures.hit_ratio);
    let sentence = format!("{best} hits {hits:.2} % of the references, {present} {hits_before:.2} %.");
    facts.push(("hits".to_owned(), sentence));
    Some(Verdict { headline, facts, next })
}

/// The hit ratios.
fn curve(results: &Results, label: &str) -> Curve {
    let points = results.of(label).map(|row| {
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
    Curve { policy: label.to_owned(), clairvoyant: false, points: points.collect() }
}

fn timed_curve(results: &Results, label: &str) -> TimedCurve {
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
            latency_mean_us: figures.latency_mean_us,
            latency_p50_us: figures.latency_p50_us,
            latency_p99_us: figures.latency_p99_us,
            prefetch_accuracy: figures.prefetch_accuracy,
            sequences: sequences.collect(),
            programs: row.programs.iter().map(program).collect(),
        }
    };
    TimedCurve { policy: label.to_owned(), points: results.of(label).map(point).collect() }
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
