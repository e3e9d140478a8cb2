//! The description of a trace beside the rows of its replay.

use crate::References;

/// The replayed trace.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TraceSummary {
    /// The trace.
    pub name: String,
    /// Its format, in a word.
    pub format: String,
    /// Requests of every kind.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// References, before sampling.
    pub references: u64,
    /// Distinct blocks; an estimate where the trace was sampled.
    pub distinct_blocks: u64,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// From the first request to the last, in seconds; nothing where the format has no time.
    pub duration_s: Option<f64>,
    /// The sample, if the trace was sampled.
    pub sample: Option<SampleSummary>,
}

/// Which part of a trace was replayed in place of the whole.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SampleSummary {
    /// The share of the blocks that was aimed at.
    pub rate: f64,
    /// References to the blocks of the sample.
    pub references: u64,
    /// Blocks of the sample.
    pub distinct_blocks: u64,
}

impl TraceSummary {
    /// Of `references`, from the trace `name` in `format`.
    pub fn new(name: &str, format: &str, references: &References) -> TraceSummary {
        let totals = &references.totals;
        let (first, last) = totals.time_ns;
        TraceSummary {
            name: name.to_owned(),
            format: format.to_owned(),
            requests: totals.requests,
            reads: totals.reads,
            writes: totals.writes,
            bytes: totals.bytes,
            references: totals.references,
            distinct_blocks: references.distinct_in_trace(),
            block_bytes: references.block_bytes,
            duration_s: (last > first).then(|| (last - first) as f64 / 1e9),
            sample: references.sample.map(|sample| SampleSummary {
                rate: sample.rate(),
                references: references.ids.len() as u64,
                distinct_blocks: u64::from(references.distinct()),
            }),
        }
    }
}
