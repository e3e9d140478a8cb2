//! The page of a simulation: what `nigh-report` shows, from what `nigh-sim` found.

mod gauges;
pub(crate) mod verdict;

use nigh_report::{Curve, Internals, Map, Panel, Point, Reduction, Reductions, Report, Series, Trace, Traces};
use nigh_sim::{References, Row, TraceSummary};

use crate::compare::{Comparison, Standing};
use crate::results::{Found, Results};

const GENERATOR: &str = concat!("nigh ", env!("CARGO_PKG_VERSION"));
/// Cells of the time-space map.
const MAP_COLUMNS: usize = 800;
const MAP_ROWS: usize = 400;
/// Points that an exact curve is thinned to; more cannot be distinguished on a screen.
const CURVE_POINTS_MOST: usize = 2_000;

pub(crate) fn page(found: &Found, references: &References) -> Report {
    let results = &found.results;
    Report {
        curves: results.policies().into_iter().map(|policy| curve(results, policy)).collect(),
        internals: found.internals.iter().map(internals).collect(),
        notes: results.notes.clone(),
        verdict: verdict::of_replay(results),
        ..of_trace(&results.trace, references)
    }
}

/// The page of several traces.
pub(crate) fn of_comparison(comparison: &Comparison) -> Report {
    let panel = |results: &Results| Panel {
        trace: trace_of(&results.trace),
        curves: results.policies().into_iter().map(|policy| curve(results, policy)).collect(),
    };
    let reduction = |standing: &Standing| {
        let found = standing.reduction.as_ref()?;
        Some(Reduction {
            policy: standing.policy.clone(),
            clairvoyant: verdict::is_offline(&standing.policy),
            mean: found.mean,
            worst: found.worst,
            p10: found.p10,
            p25: found.p25,
            median: found.median,
            p75: found.p75,
            p90: found.p90,
        })
    };
    let traces = &comparison.traces;
    let policies: Vec<Reduction> = comparison.standings.iter().filter_map(reduction).collect();
    Report {
        title: format!("{} traces", traces.len()),
        command: command(),
        generator: GENERATOR.to_owned(),
        verdict: verdict::of_comparison(comparison),
        traces: Some(Traces {
            panels: traces.iter().map(panel).collect(),
            reductions: comparison.against.clone().map(|against| Reductions {
                against,
                cells: comparison.standings.iter().map(|standing| standing.cells).max().unwrap_or(0),
                policies,
            }),
        }),
        notes: comparison.notes().collect(),
        ..Report::default()
    }
}

/// The command line.
fn command() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// The part that the page of every simulation of a trace has.
pub(crate) fn of_trace(trace: &TraceSummary, references: &References) -> Report {
    Report {
        title: trace.name.clone(),
        command: command(),
        generator: GENERATOR.to_owned(),
        trace: trace_of(trace),
        map: Some(map(references)),
        ..Report::default()
    }
}

fn trace_of(trace: &TraceSummary) -> Trace {
    Trace {
        name: trace.name.clone(),
        format: trace.format.clone(),
        references: trace.references,
        distinct_blocks: trace.distinct_blocks,
        block_bytes: u64::from(trace.block_bytes),
        requests: trace.requests,
        reads: trace.reads,
        writes: trace.writes,
        duration_s: trace.duration_s,
    }
}

/// The time-space map.
fn map(references: &References) -> Map {
    let map = nigh_sim::map::map(references, MAP_COLUMNS, MAP_ROWS);
    let address = |block: &nigh_policy::Block| block.index.saturating_mul(u64::from(references.block_bytes));
    Map {
        columns: map.columns as u32,
        rows: map.rows as u32,
        counts: map.counts,
        references: [0, references.ids.len() as u64],
        blocks: [0, u64::from(references.distinct())],
        addresses: map.blocks.iter().map(|block| (block.volume, address(block))).collect(),
    }
}

fn curve(results: &Results, policy: &str) -> Curve {
    let rows = results.results.iter().filter(|row| row.policy == policy);
    let mut points: Vec<Point> = rows.map(point).collect();
    if let Some(exact) = results.curves.iter().find(|curve| curve.policy == policy)
        && results.trace.sample.is_none()
    {
        let step = exact.size_blocks.len().div_ceil(CURVE_POINTS_MOST).max(1);
        let block_bytes = u64::from(results.trace.block_bytes);
        let corners = exact.size_blocks.iter().zip(&exact.hits).step_by(step);
        let known: Vec<u64> = points.iter().map(|point| point.size_blocks).collect();
        for (&size, &hits) in corners.filter(|(size, _)| !known.contains(size)) {
            let hit_ratio = hits as f64 / exact.references as f64;
            points.push(Point {
                size_blocks: size,
                size_bytes: size * block_bytes,
                references: exact.references,
                hits,
                hit_ratio,
                miss_ratio: 1.0 - hit_ratio,
                error: None,
                bytes_missed: (exact.references - hits) * block_bytes,
                evictions: None,
                cpu_s: None,
            });
        }
        points.sort_unstable_by_key(|point| point.size_blocks);
    }
    Curve { policy: policy.to_owned(), clairvoyant: verdict::is_offline(policy), points }
}

fn point(row: &Row) -> Point {
    Point {
        size_blocks: row.size_blocks,
        size_bytes: row.size_bytes,
        references: row.references,
        hits: row.hits,
        hit_ratio: row.hit_ratio,
        miss_ratio: row.miss_ratio,
        error: row.error,
        bytes_missed: row.bytes_missed,
        evictions: row.evictions,
        cpu_s: row.cpu_s,
    }
}

fn internals((policy, size_blocks, series): &(String, u64, nigh_sim::replay::Series)) -> Internals {
    let of_name = |at: usize, name: &&'static str| Series {
        name: (*name).to_owned(),
        about: gauges::about(policy, name).to_owned(),
        samples: series.points.iter().map(|(reference, values)| (*reference, values[at] as f64)).collect(),
    };
    Internals {
        policy: policy.clone(),
        size_blocks: *size_blocks,
        series: series.names.iter().enumerate().map(|(at, name)| of_name(at, name)).collect(),
    }
}
