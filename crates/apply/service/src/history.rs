//! The last hour in memory, for the page of the server: a point per second for five minutes, and one per 15 seconds for the hour.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use nigh_host::DiskStatistics;
use nigh_host::front::lock;
use serde::Serialize;

use crate::counts::Counts;

/// The time between two calls of [`History::note`].
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Ticks of a point, and the most points.
const SPANS: [(u32, usize); 2] = [(1, 300), (15, 240)];
/// The most exports with points of their own: those that were opened first. All of them count in the total.
pub(crate) const EXPORTS_MAX: usize = 128;

/// The value of a column for an interval, from its counts, its length in seconds, and the dirty bytes at its end.
type Column = fn(&Counts, f64, u64) -> Option<f64>;

/// The columns, as documents name them. Rates are per second.
const COLUMNS: [(&str, Column); 11] = [
    ("reads_per_s", |of, seconds, _| Some(of.reads as f64 / seconds)),
    ("writes_per_s", |of, seconds, _| Some(of.writes as f64 / seconds)),
    ("read_bytes_per_s", |of, seconds, _| Some(of.read_bytes as f64 / seconds)),
    ("written_bytes_per_s", |of, seconds, _| Some(of.written_bytes as f64 / seconds)),
    ("hit_ratio", |of, _, _| of.hit_ratio()),
    ("p50_us", |of, _, _| of.quantile_us(0.5).map(|us| us as f64)),
    ("p99_us", |of, _, _| of.quantile_us(0.99).map(|us| us as f64)),
    ("device_read_bytes_per_s", |of, seconds, _| Some(of.device_read_bytes as f64 / seconds)),
    ("device_written_bytes_per_s", |of, seconds, _| Some(of.device_written_bytes as f64 / seconds)),
    ("level_hits_per_s", |of, seconds, _| Some(of.level_hits as f64 / seconds)),
    ("dirty_bytes", |_, _, dirty| Some(dirty as f64)),
];

/// A value for each column; NaN for none.
type Point = [f32; COLUMNS.len()];

fn point(counts: &Counts, seconds: f64, dirty: u64) -> Point {
    COLUMNS.map(|(_, column)| column(counts, seconds, dirty).map_or(f32::NAN, |value| value as f32))
}

/// The points of one interval.
struct Moment {
    /// Its end, in milliseconds since 1970.
    at_ms: u64,
    total: Point,
    /// By name, in the order of the names.
    exports: Vec<(Arc<str>, Point)>,
}

/// Counts of disks since their start, at one moment.
struct Note {
    at: Instant,
    counts: BTreeMap<Arc<str>, Counts>,
}

/// Moments of one length, the oldest first.
struct Span {
    ticks: u32,
    most: usize,
    /// Ticks since the last moment.
    passed: u32,
    before: Option<Note>,
    moments: VecDeque<Moment>,
}

impl Span {
    /// Another tick, with what disks counted until now, and their dirty bytes.
    fn tick(&mut self, at: Instant, at_ms: u64, disks: &[(Arc<str>, Counts, u64)]) {
        self.passed += 1;
        if self.before.is_some() && self.passed < self.ticks {
            return;
        }
        self.passed = 0;
        if let Some(Note { at: begin, counts: before }) = &self.before {
            let seconds = at.saturating_duration_since(*begin).as_secs_f64().max(1e-3);
            let (mut total, mut dirty) = (Counts::default(), 0);
            let mut exports = Vec::with_capacity(disks.len().min(EXPORTS_MAX));
            for (name, counts, own_dirty) in disks {
                // Counts from before the first sample of a disk belong to no interval.
                let since = before.get(name).map(|before| counts.clone().since(Some(before))).unwrap_or_default();
                total.add(&since);
                dirty += own_dirty;
                if exports.len() < EXPORTS_MAX {
                    exports.push((name.clone(), point(&since, seconds, *own_dirty)));
                }
            }
            exports.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            if self.moments.len() == self.most {
                self.moments.pop_front();
            }
            self.moments.push_back(Moment { at_ms, total: point(&total, seconds, dirty), exports });
        }
        let counts = disks.iter().map(|(name, counts, _)| (name.clone(), counts.clone())).collect();
        self.before = Some(Note { at, counts });
    }
}

/// The points of the last hour.
pub(crate) struct History(Mutex<State>);

struct State {
    spans: [Span; SPANS.len()],
    /// The exports with points of their own, as they were at the last tick.
    exports: Vec<Arc<str>>,
}

impl Default for History {
    fn default() -> History {
        let span = |(ticks, most)| Span { ticks, most, passed: 0, before: None, moments: VecDeque::new() };
        History(Mutex::new(State { spans: SPANS.map(span), exports: Vec::new() }))
    }
}

/// The document of the page.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    /// The export of the points; `None` for all exports together.
    export: Option<&'a str>,
    exports: Vec<&'a str>,
    spans: Vec<SpanDocument>,
}

#[derive(Serialize)]
struct SpanDocument {
    seconds: u64,
    times_ms: Vec<u64>,
    columns: BTreeMap<&'static str, Vec<Option<f32>>>,
}

impl History {
    /// Notes what disks, in the order in which they were opened, counted until now.
    pub(crate) fn note(&self, now: Instant, clock: SystemTime, disks: &[DiskStatistics]) {
        let at_ms = clock.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut state = lock(&self.0);
        let names = disks.iter().map(|disk| {
            let known = state.exports.iter().find(|name| ***name == *disk.name);
            known.cloned().unwrap_or_else(|| Arc::from(disk.name.as_str()))
        });
        let disks = names.zip(disks).map(|(name, disk)| (name, Counts::of(disk), disk.dirty_bytes));
        let disks: Vec<_> = disks.collect();
        state.exports = disks.iter().take(EXPORTS_MAX).map(|(name, ..)| name.clone()).collect();
        state.spans.iter_mut().for_each(|span| span.tick(now, at_ms, &disks));
    }

    /// As a JSON object, the points of an export or those of all together; `None` if the export is not known.
    pub(crate) fn json(&self, export: Option<&str>) -> Option<String> {
        let state = lock(&self.0);
        if export.is_some_and(|name| !state.exports.iter().any(|known| **known == *name)) {
            return None;
        }
        let spans = state.spans.iter().map(|span| {
            let of = |moment: &Moment| match export {
                None => Some(moment.total),
                Some(name) => {
                    let at = moment.exports.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
                    Some(moment.exports[at].1)
                }
            };
            let points: Vec<Option<Point>> = span.moments.iter().map(of).collect();
            let column = |at: usize| {
                let values = points.iter().map(|point| point.map(|point| point[at]).filter(|value| !value.is_nan()));
                values.map(|value| value.map(rounded)).collect()
            };
            SpanDocument {
                seconds: u64::from(span.ticks) * TICK.as_secs(),
                times_ms: span.moments.iter().map(|moment| moment.at_ms).collect(),
                columns: COLUMNS.iter().enumerate().map(|(at, (name, _))| (*name, column(at))).collect(),
            }
        });
        let document = Document {
            schema: 1,
            export,
            exports: state.exports.iter().map(|name| &**name).collect(),
            spans: spans.collect(),
        };
        Some(serde_json::to_string(&document).expect("points are plain data"))
    }
}

/// A value with the digits that a chart shows.
fn rounded(value: f32) -> f32 {
    if value.abs() >= 1000.0 { value.round() } else { (value * 1e4).round() / 1e4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, reads: u64, hits: u64, dirty: u64) -> DiskStatistics {
        let latency = |count: u64| serde_json::json!({ "count": count, "p50_us": 10, "p99_us": 10, "p999_us": 10, "buckets": [[10, count]] });
        let mut of = serde_json::json!({
            "name": name, "target": "memory:1M", "size": 1 << 20, "dirty_bytes": dirty, "reads": reads, "read_bytes": 4096 * reads,
            "hits": hits, "misses": reads - hits, "hit_latency": latency(hits), "miss_latency": latency(reads - hits),
            "write_latency": latency(0), "flush_latency": latency(0), "device_read_bytes": 4096 * (reads - hits),
        });
        let zero =
            ["joined", "writes", "written_bytes", "evictions", "prefetch_issued", "prefetch_used", "prefetch_late"];
        let device = [
            "prefetch_wasted",
            "device_reads",
            "device_writes",
            "device_written_bytes",
            "device_flushes",
            "device_faults",
        ];
        zero.iter().chain(&device).for_each(|name| of[*name] = 0.into());
        serde_json::from_value(of).unwrap()
    }

    fn document(history: &History, export: Option<&str>) -> serde_json::Value {
        serde_json::from_str(&history.json(export).unwrap()).unwrap()
    }

    /// Ticks of a second each, with the disks that `disks` makes of the number of the tick.
    fn run(history: &History, ticks: std::ops::Range<u64>, disks: impl Fn(u64) -> Vec<DiskStatistics>) {
        let (begin, clock) = (Instant::now(), SystemTime::UNIX_EPOCH);
        for tick in ticks {
            let after = Duration::from_secs(tick);
            history.note(begin + after, clock + after, &disks(tick));
        }
    }

    #[test]
    fn points_are_rates_of_their_interval() {
        let history = History::default();
        run(&history, 0..31, |tick| vec![disk("a", 100 * tick, 75 * tick, 8192), disk("b", 10 * tick, 0, 0)]);
        let of = document(&history, None);
        assert_eq!(of["exports"], serde_json::json!(["a", "b"]));
        let [fine, coarse] = [&of["spans"][0], &of["spans"][1]];
        assert_eq!([&fine["seconds"], &coarse["seconds"]], [1, 15]);
        assert_eq!(fine["times_ms"].as_array().unwrap().len(), 30);
        assert_eq!(coarse["times_ms"], serde_json::json!([15_000, 30_000]));
        for span in [fine, coarse] {
            let last = |name: &str| span["columns"][name].as_array().unwrap().last().unwrap().as_f64();
            assert_eq!(last("reads_per_s"), Some(110.0));
            assert_eq!(last("device_read_bytes_per_s"), Some(35.0 * 4096.0));
            assert!((last("hit_ratio").unwrap() - 75.0 / 110.0).abs() < 1e-4);
            assert_eq!(last("p50_us"), Some(10.0));
            assert_eq!(last("dirty_bytes"), Some(8192.0));
        }
        let of = document(&history, Some("b"));
        assert_eq!(of["spans"][0]["columns"]["hit_ratio"][0], 0.0);
        assert_eq!(of["spans"][1]["columns"]["reads_per_s"], serde_json::json!([10.0, 10.0]));
        assert!(history.json(Some("c")).is_none());
    }

    #[test]
    fn an_export_that_comes_later_or_begins_anew_has_no_false_rates() {
        let history = History::default();
        let all = |tick| match tick {
            0..5 => vec![disk("a", 1000 * tick, 0, 0)],
            5..10 => vec![disk("a", 1000 * tick, 0, 0), disk("late", 1_000_000, 0, 0)],
            // Removed, and added again.
            _ => vec![disk("a", 0, 0, 0), disk("late", 1_000_000, 0, 0)],
        };
        run(&history, 0..12, all);
        let reads = |export| document(&history, export)["spans"][0]["columns"]["reads_per_s"].clone();
        let null = serde_json::Value::Null;
        let late = reads(Some("late"));
        assert_eq!(late.as_array().unwrap()[..4], [null.clone(), null.clone(), null.clone(), null]);
        assert_eq!(late[4], 0.0, "its million reads were before it was known");
        assert_eq!(reads(Some("a"))[9], 0.0);
        assert!(reads(None).as_array().unwrap().iter().all(|rate| rate.as_f64() <= Some(1000.0)));
    }

    #[test]
    fn memory_is_bounded_by_time_and_exports() {
        let history = History::default();
        let names: Vec<String> = (0..EXPORTS_MAX + 20).map(|at| format!("export{at:03}")).collect();
        run(&history, 0..3700, |tick| {
            // Most ticks with one disk, so that the test is quick.
            let count = if tick % 100 < 2 { names.len() } else { 1 };
            names[..count].iter().map(|name| disk(name, tick, 0, 4096)).collect()
        });
        let state = lock(&history.0);
        let lengths = state.spans.each_ref().map(|span| span.moments.len());
        assert_eq!(lengths, [300, 240]);
        let most = state.spans.iter().flat_map(|span| &span.moments).map(|moment| moment.exports.len()).max();
        assert_eq!(most, Some(EXPORTS_MAX));
        drop(state);
        // An hour of the most exports, in bytes.
        let moment = size_of::<Moment>() + EXPORTS_MAX * size_of::<(Arc<str>, Point)>();
        let all: usize = SPANS.iter().map(|(_, most)| most * moment).sum();
        assert!(all < 5 << 20, "{all}");
        let document = history.json(None).unwrap();
        assert!(document.len() < 64 << 10, "{}", document.len());
    }
}
