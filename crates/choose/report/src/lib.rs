//! Results of each replacement policy, as one HTML page that needs neither network nor server.
//!
//! The simulator fills a [`Report`]; [`Report::write_html`] writes the page.

mod levels;
mod page;
mod traces;

use serde::{Deserialize, Serialize};

pub use levels::{Levels, LevelsFigures, LevelsIntervals, LevelsScheme};
pub use page::live_page;
pub use traces::{Panel, Reduction, Reductions, Traces};

/// Everything the page shows. Sections whose data is empty or absent do not appear.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Headline, such as the name of the workload.
    pub title: String,
    /// Command line that produced the results.
    pub command: String,
    /// Program and version that produced the results, such as `nigh 0.1.0`.
    pub generator: String,
    /// The conclusion: the box with which the page opens.
    pub verdict: Option<Verdict>,
    /// The trace.
    pub trace: Trace,
    /// One curve per policy, in the order of the legend.
    pub curves: Vec<Curve>,
    /// Measurements of each policy in service, if that was tried.
    pub served: Vec<Served>,
    /// How long programs took, if that was simulated.
    pub timed: Option<Timed>,
    /// Several traces, if they were replayed side by side; `trace` is then left out.
    pub traces: Option<Traces>,
    /// Results of schemes for several cache levels, if they were replayed.
    pub levels: Option<Levels>,
    /// Time-space map of the references.
    pub map: Option<Map>,
    /// How the inner quantities of policies changed over time.
    pub internals: Vec<Internals>,
    /// Warnings and remarks, one sentence each.
    pub notes: Vec<String>,
}

/// The conclusion from the results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer in one sentence.
    pub headline: String,
    /// The subject of each further answer, and the answer.
    pub facts: Vec<(String, String)>,
    /// The command to type next; empty for none.
    pub next: String,
}

/// Measurements of one policy in service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// The policy.
    pub policy: String,
    /// Hits per request, 0 to 1.
    pub hit_ratio: f64,
    /// Median latency of a request, in microseconds.
    pub p50_us: f64,
    /// The latency that 99 % of the requests do not exceed, in microseconds.
    pub p99_us: f64,
    /// Reads of the devices.
    pub device_reads: u64,
    /// Until the last request was replied to, in seconds.
    pub elapsed_s: f64,
}

/// Summary of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// File name, or the generator's description.
    pub name: String,
    /// Name of the trace format.
    pub format: String,
    /// Block references after requests were split into blocks.
    pub references: u64,
    /// Different blocks among the references.
    pub distinct_blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Requests in the trace.
    pub requests: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Seconds from the first request to the last, if the format has times.
    pub duration_s: Option<f64>,
}

/// Miss ratio curve of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The policy as asked for, such as `lirs:hir=1%`.
    pub policy: String,
    /// Whether the policy knows the future, and so is a bound rather than a choice.
    pub clairvoyant: bool,
    /// One point per cache size, in any order, no size twice. An exact curve may have thousands.
    pub points: Vec<Point>,
}

/// Outcome of one policy at one cache size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Size of the cache in blocks.
    pub size_blocks: u64,
    /// Size of the cache in bytes.
    pub size_bytes: u64,
    /// References replayed; with sampling, the sampled ones.
    pub references: u64,
    /// References among them that hit.
    pub hits: u64,
    /// Hits per reference, 0 to 1; with sampling, the estimate for the whole trace.
    pub hit_ratio: f64,
    /// `1 - hit_ratio`.
    pub miss_ratio: f64,
    /// Estimated absolute error of both ratios, if they come from a sample.
    pub error: Option<f64>,
    /// Bytes that had to come from the device.
    pub bytes_missed: u64,
    /// Blocks that left the cache, if they were counted.
    pub evictions: Option<u64>,
    /// CPU time of the replay in seconds, if this size had a replay of its own.
    pub cpu_s: Option<f64>,
}

/// Times of programs or requests at a cache on a modelled device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Whether some requests came at times of their own. Latencies are then charted, and otherwise execution times.
    pub is_open: bool,
    /// The device.
    pub device: String,
    /// The levels between memory and that device: their devices and sizes.
    pub levels: Vec<String>,
    /// The read-ahead.
    pub readahead: String,
    /// In which order requests went to the device.
    pub scheduler: String,
    /// One per policy, in the order of the legend.
    pub curves: Vec<TimedCurve>,
}

/// Execution times of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedCurve {
    /// The policy as asked for.
    pub policy: String,
    /// One point per cache size, in any order, no size twice.
    pub points: Vec<TimedPoint>,
}

/// Results of one policy at one cache size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedPoint {
    /// Size of the cache in blocks.
    pub size_blocks: u64,
    /// Size of the cache in bytes.
    pub size_bytes: u64,
    /// Until the last program ended, in seconds.
    pub execution_s: f64,
    /// During which the device worked, in seconds.
    pub device_busy_s: f64,
    /// Requests to the device.
    pub device_requests: u64,
    /// Of these, reads.
    pub device_reads: u64,
    /// Results of each level.
    pub levels: Vec<TimedLevel>,
    /// Bytes of a read or write of the device, on average.
    pub mean_request_bytes: f64,
    /// Blocks that were read one behind the other, on average, if any were read.
    pub mean_sequence_blocks: Option<f64>,
    /// References that found their block in the cache or on its way, 0 to 1.
    pub hit_ratio: f64,
    /// Mean latency of a request, in microseconds, if there were any.
    pub latency_mean_us: Option<f64>,
    /// Median latency of a request, in microseconds, if there were any.
    pub latency_p50_us: Option<f64>,
    /// The latency that 99 % of the requests do not exceed, in microseconds.
    pub latency_p99_us: Option<f64>,
    /// Prefetched blocks that were used, 0 to 1, if there were any.
    pub prefetch_accuracy: Option<f64>,
    /// Lengths of sequences in blocks, ascending, and the share of the blocks read from the device in sequences of
    /// at most that length.
    pub sequences: Vec<(u64, f64)>,
    /// Each program.
    pub programs: Vec<TimedProgram>,
}

/// Results of one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedLevel {
    /// Blocks that were read from it.
    pub hits: u64,
    /// Blocks that were stored in it.
    pub stores: u64,
}

/// Times of one program, and the fate of the blocks fetched ahead for it, if that was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedProgram {
    /// Its name.
    pub name: String,
    /// Until it ended, in seconds.
    pub execution_s: f64,
    /// During which it waited for replies, in seconds.
    pub waited_s: f64,
    /// Blocks fetched ahead.
    pub prefetch_issued: Option<u64>,
    /// Of those, used, 0 to 1.
    pub prefetch_accuracy: Option<f64>,
    /// Of those used, still on the way then, 0 to 1.
    pub prefetch_lateness: Option<f64>,
    /// Of those fetched ahead, gone unused, 0 to 1.
    pub prefetch_waste: Option<f64>,
}

/// Density of references over virtual time (x) and logical block number (y), reads and writes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Cells along virtual time.
    pub columns: u32,
    /// Cells along block numbers.
    pub rows: u32,
    /// References per cell: `columns * rows` counts, row by row from the lowest block numbers up, each row from the
    /// first reference on.
    pub counts: Vec<u32>,
    /// Virtual times covered: first reference, and one past the last.
    pub references: [u64; 2],
    /// Block numbers covered: lowest, and one past the highest.
    pub blocks: [u64; 2],
    /// Volume and address in bytes at which each row begins, and where the last ends: `rows + 1` entries, or none.
    pub addresses: Vec<(u32, u64)>,
}

/// Inner quantities of one policy at one cache size over virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Internals {
    /// The policy as asked for.
    pub policy: String,
    /// Size of the cache in blocks.
    pub size_blocks: u64,
    /// The quantities, in the order of the legend.
    pub series: Vec<Series>,
}

/// One inner quantity, such as the size of LIRS's stack S or the target of CLOCK-Pro's cold blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The policy's name for it.
    pub name: String,
    /// Its meaning, in a phrase.
    pub about: String,
    /// Index of the reference, and the quantity in blocks after it, by increasing index. The page shows the quantity
    /// as a share of the cache.
    pub samples: Vec<(u64, f64)>,
}
