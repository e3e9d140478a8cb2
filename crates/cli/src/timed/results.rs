//! Results of a timed simulation, as tables, as JSON (docs/json.md) and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use nigh_content::BLOCK_BYTES;
use nigh_control::Statistics;
use nigh_device::Profile;
use nigh_sim::TraceSummary;
use nigh_sim::rows::{ratio, rounded};
use nigh_sim::timed::{
    EncodedOutcome, Figures, IN_FLIGHT, Latency, LevelOutcome, Outcome, Pace, Program, Subject, seconds,
};
use serde::Serialize;

use crate::grid::{Column, Details, Grid, Line};
use crate::leaders;
use crate::results::{distinct, heading, peak_memory_bytes, unpublished};
use crate::size::{human_bytes, human_time, percent};
use crate::wrap::wrapped;

/// The version of the JSON and CSV that [`Results`] becomes.
const SCHEMA: u32 = 1;

/// A column of the details.
struct Detail {
    name: &'static str,
    /// Of closed loops, of open ones.
    shown: [bool; 2],
    /// In which order it is left out.
    rank: u8,
    cell: fn(&Row) -> String,
}

const BOTH: [bool; 2] = [true, true];
const CLOSED: [bool; 2] = [true, false];
const OPEN: [bool; 2] = [false, true];

const fn detail(name: &'static str, shown: [bool; 2], rank: u8, cell: fn(&Row) -> String) -> Detail {
    Detail { name, shown, rank, cell }
}

const DETAILS: [Detail; 20] = [
    detail("policy", BOTH, 0, Row::label),
    detail("memory", BOTH, 0, |row| human_bytes(row.figures.size_bytes)),
    detail("time s", CLOSED, 0, |row| format!("{:.3}", row.figures.execution_s)),
    detail("mean", OPEN, 0, |row| human_time(row.figures.latency_mean_us)),
    detail("p50", BOTH, 3, |row| human_time(row.figures.latency_p50_us)),
    detail("p90", OPEN, 13, |row| human_time(row.all.map(|all| all.p90_us))),
    detail("p95", OPEN, 14, |row| human_time(row.all.map(|all| all.p95_us))),
    detail("p99", BOTH, 1, |row| human_time(row.figures.latency_p99_us)),
    detail("p99.9", OPEN, 4, |row| human_time(row.figures.latency_p999_us)),
    detail("idle %", CLOSED, 4, |row| percent(row.figures.idle_share)),
    detail("device s", CLOSED, 6, |row| format!("{:.3}", row.figures.device_busy_s)),
    detail("busy %", OPEN, 2, |row| percent(row.busiest())),
    detail("hits %", BOTH, 2, |row| format!("{:.2}", 100.0 * row.figures.hit_ratio)),
    detail("reads %", BOTH, 5, |row| {
        row.figures.read_hit_ratio.map_or("-".to_owned(), |share| format!("{:.2}", 100.0 * share))
    }),
    detail("requests", BOTH, 7, |row| row.figures.device_requests.to_string()),
    detail("KiB each", BOTH, 8, |row| format!("{:.1}", row.figures.mean_request_bytes / 1024.0)),
    detail("ahead %", BOTH, 9, |row| {
        let Figures { prefetch_issued, misses, .. } = row.figures;
        percent(Some(prefetch_issued as f64 / (prefetch_issued + misses).max(1) as f64))
    }),
    detail("used %", BOTH, 10, |row| percent(row.figures.prefetch_accuracy)),
    detail("seq. mean", BOTH, 11, |row| {
        row.figures.mean_sequence_blocks.map_or("-".to_owned(), |mean| format!("{mean:.1}"))
    }),
    detail("seq. 50%", BOTH, 12, |row| {
        let median = row.sequences.share.iter().position(|&share| share >= 0.5);
        median.map_or("-".to_owned(), |at| row.sequences.size_blocks[at].to_string())
    }),
];

const LEGEND_CLOSED: &str =
    "p50, p99: of the time from a request to its reply; idle: share of the programs' time that they do not wait; ";
const LEGEND_OPEN: &str = "mean, p50, p90, p95, p99, p99.9: of the time from a request to its reply; busy: share of the time in which the \
     busiest device worked; ";
const LEGEND: &str = "hits: blocks found in the cache or on the way, reads: of those that are read; ahead: share of the blocks read before \
     any program waited for them, and of these used; seq. mean: blocks read one behind the other on the disk; seq. 50%: half of the \
     blocks read are in sequences of at most so many";

/// The most volumes that have a line each.
const VOLUMES_MOST: usize = 4;

/// When requests are issued.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Issue {
    /// How requests follow each other: `closed`, one after the reply to the other; `open`, at their times; or `mixed`.
    #[serde(rename = "loop")]
    loops: &'static str,
    /// Of closed loops.
    think: Option<String>,
    /// Of open loops: how many times as fast as recorded.
    speed: Option<f64>,
}

impl Issue {
    pub(super) fn new(programs: &[Program], think: Option<String>, speed: f64) -> Issue {
        let [closed, open] = [Pace::Closed, Pace::Open].map(|pace| programs.iter().any(|program| program.pace == pace));
        Issue {
            loops: match (closed, open) {
                (true, true) => "mixed",
                (_, false) => "closed",
                (false, true) => "open",
            },
            think: closed.then(|| think.unwrap_or_else(|| "100%".to_owned())),
            speed: open.then_some(speed),
        }
    }

    /// In words.
    fn text(&self) -> String {
        let open = self.speed.map(|speed| match speed {
            1.0 => "open loop: each request is issued at its time in the trace".to_owned(),
            speed => format!("open loop: requests are issued {speed} times as fast as in the trace"),
        });
        let closed = self.think.as_ref().map(|think| {
            let of_trace = if think.ends_with('%') { " of that in the trace" } else { "" };
            format!(
                "closed loop: each program issues a request when it has the reply to the one before, after a think time of \
                 {think}{of_trace}"
            )
        });
        match (open, closed) {
            (Some(open), Some(closed)) => format!("{open}; programs and traces without times, in a {closed}"),
            (one, other) => one.or(other).unwrap_or_default(),
        }
    }
}

/// Everything one `nigh sim --device` found. Nothing in it depends on how long that took.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Results {
    schema: u32,
    pub(super) trace: TraceSummary,
    /// All devices together.
    pub(super) device: DeviceSummary,
    /// By disk.
    pub(super) devices: Vec<DeviceSummary>,
    pub(super) levels: Vec<LevelSummary>,
    pub(super) readahead: String,
    pub(super) scheduler: String,
    #[serde(flatten)]
    issue: Issue,
    seed: u64,
    pub(super) results: Vec<Row>,
    pub(super) notes: Vec<String>,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceSummary {
    /// Whose it is; nothing for several together.
    pub(super) volume: Option<u32>,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) bytes: u64,
    /// How long its profile is, where the trace reaches farther.
    pub(super) profile_bytes: Option<u64>,
}

/// A level's device, and how much of it is used.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LevelSummary {
    pub(super) name: String,
    title: String,
    pub(super) size_bytes: u64,
}

impl LevelSummary {
    pub(super) fn new(name: &str, profile: &Profile, size_bytes: u64) -> LevelSummary {
        LevelSummary { name: name.to_owned(), title: profile.title().to_owned(), size_bytes }
    }

    /// Its size and its device.
    pub(super) fn label(&self) -> String {
        format!("{} on {} ({})", human_bytes(self.size_bytes), self.name, self.title)
    }
}

/// One policy at one size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// How long after its last request was due a program in an open loop had its last reply: the most of all.
    behind_s: f64,
    /// How long reads and writes took.
    #[serde(skip)]
    all: Option<Latency>,
    #[serde(rename = "read_latency")]
    reads: Option<Latency>,
    #[serde(rename = "write_latency")]
    writes: Option<Latency>,
    /// Whether as many requests as there may be were in progress at a time.
    #[serde(skip)]
    was_held: bool,
    /// How contents are used; nothing where they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoded: Option<EncodedRow>,
    /// By disk.
    pub(super) disks: Vec<DiskRow>,
    pub(super) levels: Vec<LevelRow>,
    pub(super) programs: Vec<ProgramRow>,
    pub(super) sequences: Sequences,
}

/// One disk's device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskRow {
    pub(super) device_busy_s: f64,
    pub(super) device_requests: u64,
    device_seeks: u64,
    device_bytes: u64,
}

/// One level. Counts are of blocks, unless their names have another unit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LevelRow {
    pub(super) hits: u64,
    pub(super) stores: u64,
    carried: u64,
    drops: u64,
    invalidations: u64,
    pub(super) evictions: u64,
    /// Operations.
    device_reads: u64,
    device_read_bytes: u64,
    device_writes: u64,
    device_written_bytes: u64,
    pub(super) device_busy_s: f64,
}

/// Use of a level.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct OfLevel {
    /// Blocks that were loaded into memory.
    pub(crate) loads: u64,
    /// Those of them that the level had.
    pub(crate) hits: u64,
    pub(crate) written_bytes: u64,
}

/// Encoded blocks: what they did, and what there was at the end.
#[derive(Clone, Debug, Serialize)]
struct EncodedRow {
    /// The memory that they had. Frames had the rest.
    bytes: u64,
    blocks: u64,
    contents: u32,
    differences: u32,
    one_of: u32,
    encoded: u64,
    encode_s: f64,
    rejected: u64,
    dropped: u64,
    evictions: u64,
    decoded: u64,
    decode_s: f64,
    missing: u64,
}

impl EncodedRow {
    fn new(of: &EncodedOutcome) -> EncodedRow {
        EncodedRow {
            bytes: of.lent_pages * BLOCK_BYTES as u64,
            blocks: of.blocks,
            contents: of.contents,
            differences: of.differences,
            one_of: of.one_of,
            encoded: of.encoded,
            encode_s: seconds(of.encode_ns),
            rejected: of.rejected,
            dropped: of.cache.drops.saturating_sub(of.rejected),
            evictions: of.cache.evictions,
            decoded: of.decoded,
            decode_s: seconds(of.decode_ns),
            missing: of.missing,
        }
    }
}

/// One program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProgramRow {
    pub(super) name: String,
    pub(super) execution_s: f64,
    pub(super) waited_s: f64,
    /// If programs are tenants.
    #[serde(flatten)]
    pub(super) ahead: Option<Ahead>,
}

/// The blocks fetched ahead for one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ahead {
    pub(super) prefetch_issued: u64,
    prefetch_used: u64,
    prefetch_late: u64,
    prefetch_wasted: u64,
    /// Used by issued.
    pub(super) prefetch_accuracy: Option<f64>,
    /// Wasted by issued.
    pub(super) prefetch_waste: Option<f64>,
    /// Late by used.
    pub(super) prefetch_lateness: Option<f64>,
}

/// Which share of the blocks read was in sequences of at most this many blocks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sequences {
    pub(super) size_blocks: Vec<u64>,
    pub(super) share: Vec<f64>,
}

impl Ahead {
    fn new(of: &Statistics) -> Ahead {
        Ahead {
            prefetch_issued: of.prefetched,
            prefetch_used: of.used,
            prefetch_late: of.late,
            prefetch_wasted: of.wasted,
            prefetch_accuracy: ratio(of.used, of.prefetched),
            prefetch_waste: ratio(of.wasted, of.prefetched),
            prefetch_lateness: ratio(of.late, of.used),
        }
    }
}

impl LevelRow {
    fn new(outcome: &LevelOutcome) -> LevelRow {
        let LevelOutcome { cache, device } = outcome;
        LevelRow {
            hits: cache.hits,
            stores: cache.stores,
            carried: cache.carried,
            drops: cache.drops,
            invalidations: cache.invalidations,
            evictions: cache.evictions,
            device_reads: cache.reads,
            device_read_bytes: cache.read_bytes,
            device_writes: cache.writes,
            device_written_bytes: cache.written_bytes,
            device_busy_s: seconds(device.busy_ns),
        }
    }
}

impl Row {
    /// `content` is how the cache uses contents.
    pub(super) fn new(subject: Subject, content: Option<&str>, names: &[&str], outcome: &Outcome) -> Row {
        let figures = Figures::new(subject, outcome);
        let times = outcome.ends_ns.iter().zip(&outcome.waited_ns);
        let programs = (0..).zip(names).zip(times).map(|((number, name), (&end_ns, &waited_ns))| ProgramRow {
            name: (*name).to_owned(),
            execution_s: seconds(end_ns),
            waited_s: seconds(waited_ns),
            ahead: outcome.tenants.get::<usize>(number).map(Ahead::new),
        });
        let (size_blocks, share) = outcome.sequences.cumulative().map(|(size, share)| (size, rounded(share))).unzip();
        let levels = outcome.levels.iter().map(LevelRow::new).collect();
        let disks = outcome.disks.iter().map(|of| DiskRow {
            device_busy_s: seconds(of.busy_ns),
            device_requests: of.requests,
            device_seeks: of.seeks,
            device_bytes: of.bytes,
        });
        Row {
            figures,
            behind_s: seconds(outcome.behind_ns),
            all: Latency::new(&outcome.latencies()),
            reads: Latency::new(&outcome.reads),
            writes: Latency::new(&outcome.writes),
            was_held: outcome.was_held,
            content: content.map(str::to_owned),
            encoded: outcome.encoded.as_ref().map(EncodedRow::new),
            disks: disks.collect(),
            levels,
            programs: programs.collect(),
            sequences: Sequences { size_blocks, share },
        }
    }

    /// Label for comparisons: the policy, and how contents are used.
    pub(super) fn label(&self) -> String {
        let Figures { policy, .. } = &self.figures;
        match self.content.as_deref() {
            None | Some("none") => policy.clone(),
            Some(content) => format!("{policy}, {content}"),
        }
    }

    /// Whether all programs wait for replies.
    pub(super) fn is_closed(&self) -> bool {
        self.figures.idle_share.is_some()
    }

    /// The share of the time in which the busiest device worked, those of levels included.
    fn busiest(&self) -> Option<f64> {
        let disks = self.disks.iter().map(|disk| disk.device_busy_s);
        let busy_s = disks.chain(self.levels.iter().map(|level| level.device_busy_s)).fold(0.0, f64::max);
        // Requests in progress at the end count in full.
        ratio_of(busy_s, self.figures.execution_s).map(|share| share.min(1.0))
    }

    /// Use of the first level.
    pub(super) fn of_level(&self) -> Option<OfLevel> {
        let LevelRow { hits, device_written_bytes, .. } = *self.levels.first()?;
        let loads = self.figures.misses + self.figures.prefetch_issued;
        Some(OfLevel { loads, hits, written_bytes: device_written_bytes })
    }

    /// How long its programs waited for replies, together.
    pub(super) fn waited_s(&self) -> f64 {
        self.programs.iter().map(|program| program.waited_s).sum()
    }
}

/// A part of a time, 0 to 1 as long as it is shorter; nothing of no time.
fn ratio_of(part_s: f64, whole_s: f64) -> Option<f64> {
    (whole_s > 0.0).then(|| part_s / whole_s)
}

impl Results {
    #[expect(clippy::too_many_arguments, reason = "each is a field")]
    pub(super) fn new(
        trace: TraceSummary,
        device: DeviceSummary,
        devices: Vec<DeviceSummary>,
        levels: Vec<LevelSummary>,
        [readahead, scheduler]: [String; 2],
        issue: Issue,
        seed: u64,
        results: Vec<Row>,
    ) -> Results {
        let notes = DeviceSummary::notes(&devices).into_iter().collect();
        Results { schema: SCHEMA, trace, device, devices, levels, readahead, scheduler, issue, seed, results, notes }
    }

    /// The same without times.
    pub(super) fn untimed(self) -> crate::results::Results {
        let rows: Vec<nigh_sim::Row> = self.results.iter().map(|row| row.figures.untimed()).collect();
        crate::results::Results {
            readahead: Some(self.readahead),
            best_by_size: leaders::leaders(&rows),
            results: rows,
            notes: self.notes,
            peak_memory_bytes: peak_memory_bytes(),
            ..crate::results::Results::new(self.trace, 1)
        }
    }

    /// Whether some requests come at times of their own.
    pub(super) fn is_open(&self) -> bool {
        !self.results.iter().all(Row::is_closed)
    }

    /// The policies in the order in which they were asked for; each with each use of contents.
    pub(super) fn labels(&self) -> Vec<String> {
        let labels: Vec<String> = self.results.iter().map(Row::label).collect();
        distinct(labels.iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
    }

    pub(super) fn of<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Row> {
        self.results.iter().filter(move |row| row.label() == label)
    }

    /// Execution times, a row for each size and a column for each policy; then what led to them. In `width` columns.
    pub(super) fn table(&self, width: usize) -> String {
        let mut text = String::new();
        wrapped(&mut text, &self.heading(), width);
        let labels = self.labels();
        let policies: Vec<&str> = labels.iter().map(String::as_str).collect();
        let sizes: BTreeMap<u64, u64> =
            self.results.iter().map(|row| (row.figures.size_blocks, row.figures.size_bytes)).collect();
        let star = if policies.len() > 1 { "; * is the shortest at its size" } else { "" };
        let is_closed = !self.is_open();
        let what = if is_closed { "execution time in s" } else { "mean time from a request to its reply" };
        wrapped(&mut text, &self.overload(), width);
        let _ = writeln!(text, "\n{what}{star}");
        let mut grid = Grid::new(&policies);
        for (&blocks, &bytes) in &sizes {
            let at = |policy| self.of(policy).find(|row| row.figures.size_blocks == blocks);
            let time = |row: &Row| {
                if is_closed { row.figures.execution_s } else { row.figures.latency_mean_us.unwrap_or_default() }
            };
            let rows: Vec<Option<&Row>> = policies.iter().map(|policy| at(policy)).collect();
            let times: Vec<Option<f64>> = rows.iter().map(|row| row.map(time)).collect();
            let best = times.iter().flatten().copied().min_by(f64::total_cmp);
            let differ = times.iter().flatten().any(|time| Some(*time) > best);
            let cell = |row: &Row| {
                let shown = if is_closed { format!("{:.3}", time(row)) } else { human_time(Some(time(row))) };
                let star = if differ && Some(time(row)) == best { "*" } else { "" };
                let overload = if row.figures.overloaded { "!" } else { "" };
                format!("{overload}{star}{shown}")
            };
            grid.size(blocks, bytes, rows.iter().map(|row| row.map_or(String::new(), cell)));
        }
        grid.show(&mut text, width);
        text.push('\n');
        let details = || DETAILS.iter().filter(|detail| detail.shown[usize::from(!is_closed)]);
        let columns = details().map(|&Detail { name, rank, .. }| Column { name, rank }).collect();
        let lines = self.lines(|row| details().map(|detail| (detail.cell)(row)).collect());
        Details { columns, lines }.show(&mut text, width);
        let legend = [if is_closed { LEGEND_CLOSED } else { LEGEND_OPEN }, LEGEND].concat();
        wrapped(&mut text, &legend, width.min(120));
        for note in &self.notes {
            wrapped(&mut text, &format!("note: {note}"), width);
        }
        wrapped(&mut text, &unpublished(&policies), width);
        text
    }

    /// A warning with the number of cells in which requests came faster than they could be replied to; empty if there are none.
    fn overload(&self) -> String {
        let overloaded: Vec<&Row> = self.results.iter().filter(|row| row.figures.overloaded).collect();
        let Some(most) = overloaded.iter().map(|row| row.behind_s).max_by(f64::total_cmp) else { return String::new() };
        let cells = if overloaded.len() == self.results.len() {
            "with any policy and size here".to_owned()
        } else {
            format!("in {} of the {} cells, marked !", overloaded.len(), self.results.len())
        };
        format!(
            "! {} cannot keep up {cells}: the last reply comes up to {} after its request. Such latencies grow with the length of the \
             trace; --pace closed, or a lower rate such as --pace 0.5x, shows more.",
            self.device.name,
            human_time(Some(most * 1e6))
        )
    }

    /// A line of `cells` for each row, and remarks.
    /// A line for the device of each volume, or of many for the busiest ones and one for the rest; none if there is one volume.
    fn volumes(&self, row: &Row) -> impl Iterator<Item = String> {
        let mut all: Vec<_> = self.devices.iter().zip(&row.disks).collect();
        let several = all.len() > 1;
        let shown = if all.len() > VOLUMES_MOST {
            all.sort_by(|(_, one), (_, other)| other.device_busy_s.total_cmp(&one.device_busy_s));
            VOLUMES_MOST - 1
        } else {
            all.len()
        };
        let share = |busy_s: f64| percent(ratio_of(busy_s, row.figures.execution_s));
        let rest = all[shown..].first().map(|(_, busiest)| {
            let (count, share) = (all.len() - shown, share(busiest.device_busy_s));
            format!("{count} other volumes: the busiest of them for {share} % of the time (--json lists all)")
        });
        let each = all[..shown].iter().filter(|_| several).map(|(device, disk)| {
            let (volume, name) = (device.volume.unwrap_or_default(), &device.name);
            let (busy_s, requests) = (disk.device_busy_s, disk.device_requests);
            let share = share(busy_s);
            format!(
                "volume {volume} on {name}: busy for {busy_s:.3} s ({share} % of the time) with {requests} requests"
            )
        });
        each.chain(rest).collect::<Vec<_>>().into_iter()
    }

    fn lines(&self, cells: impl Fn(&Row) -> Vec<String>) -> Vec<Line> {
        let mut lines = Vec::new();
        for row in &self.results {
            let figures = &row.figures;
            lines.push(Line::Cells(cells(row)));
            if let (false, Some(reads), Some(writes)) = (row.is_closed(), row.reads, row.writes) {
                let words = |of: Latency| {
                    let [mean, p50, p99, p999] =
                        [of.mean_us, of.p50_us, of.p99_us, of.p999_us].map(|us| human_time(Some(us)));
                    format!("mean {mean}, p50 {p50}, p99 {p99}, p99.9 {p999}")
                };
                lines.push(Line::Remark(format!("reads: {}; writes: {}", words(reads), words(writes))));
            }
            let behind = human_time(Some(row.behind_s * 1e6));
            if figures.overloaded {
                lines.push(Line::Remark(format!("cannot keep up: the last reply came {behind} after its request")));
            } else if row.was_held {
                lines.push(Line::Remark(format!(
                    "in a burst, {IN_FLIGHT} requests were in progress, and others waited to be issued; the last reply came {behind} \
                     after its request"
                )));
            }
            lines.extend(self.volumes(row).map(Line::Remark));
            if let Some(encoded) = &row.encoded {
                let EncodedRow { bytes, blocks, contents, encoded, encode_s, decoded, decode_s, .. } = encoded;
                let share = percent(ratio(*decoded, figures.references));
                lines.push(Line::Remark(format!(
                    "{decoded} blocks decoded in {decode_s:.3} s ({share} % of the references), {encoded} encoded in {encode_s:.3} s; at \
                     the end {blocks} blocks with {contents} contents in {}",
                    human_bytes(*bytes)
                )));
            }
            for (level, LevelRow { hits, stores, evictions, device_busy_s, .. }) in self.levels.iter().zip(&row.levels)
            {
                let misses = percent(ratio(*hits, figures.misses + figures.prefetch_issued));
                lines.push(Line::Remark(format!(
                    "level of {} on {}: busy for {device_busy_s:.3} s; {hits} blocks read from it ({misses} % of the loads), \
                     {stores} stored, {evictions} gave way; {} device reads remain",
                    human_bytes(level.size_bytes),
                    level.name,
                    figures.device_reads
                )));
            }
            let fetched = |program: &ProgramRow| program.ahead.as_ref().is_some_and(|ahead| ahead.prefetch_issued > 0);
            if row.programs.len() > 1 || row.programs.iter().any(fetched) {
                for program in &row.programs {
                    let ProgramRow { name, execution_s, waited_s, .. } = program;
                    let mut remark = format!("{name}: {execution_s:.3} s, waiting {waited_s:.3}");
                    if let Some(ahead) = program.ahead.as_ref().filter(|_| fetched(program)) {
                        let shares = [ahead.prefetch_accuracy, ahead.prefetch_lateness, ahead.prefetch_waste];
                        let [used, late, wasted] = shares.map(percent);
                        let blocks = ahead.prefetch_issued;
                        let _ = write!(remark, "; {blocks} ahead: used {used} %, late {late} %, wasted {wasted} %");
                    }
                    lines.push(Line::Remark(remark));
                }
            }
        }
        lines
    }

    fn heading(&self) -> String {
        let device = &self.device;
        let levels = self.levels.iter().map(|level| format!("; level of {}", level.label()));
        format!(
            "{}\non {} ({}), {}{}; read-ahead {}, scheduler {}, seed {}\n{}",
            heading(&self.trace),
            device.name,
            device.title,
            human_bytes(device.bytes),
            levels.collect::<String>(),
            self.readahead,
            self.scheduler,
            self.seed,
            self.issue.text()
        )
    }
}
