//! Results of schemes for several cache levels.

use serde::{Deserialize, Serialize};

/// Several cache levels, by scheme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    /// Sizes of the levels in bytes, the first one first. Several clients share the last one; each has the others for itself.
    pub size_bytes: Vec<u64>,
    /// The schemes, in the order of the page.
    pub schemes: Vec<LevelsScheme>,
}

/// Results of one scheme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelsScheme {
    /// The scheme as asked for.
    pub scheme: String,
    /// Counts of all clients together.
    pub figures: LevelsFigures,
    /// At the end, bytes of the copies of blocks beyond the first one of each.
    pub duplicated_bytes: u64,
    /// Name of each of several clients, and what was counted for it.
    pub clients: Vec<(String, LevelsFigures)>,
    /// Counts over time.
    pub intervals: LevelsIntervals,
    /// CPU time of the replay in seconds.
    pub cpu_s: f64,
}

/// Counts of all references.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelsFigures {
    /// References.
    pub references: u64,
    /// Hits of each level.
    pub hits: Vec<u64>,
    /// References to blocks that no level had.
    pub misses: u64,
    /// Blocks demoted from each level but the last to the next one.
    pub demotions: Vec<u64>,
    /// Bytes of all demotions.
    pub demoted_bytes: u64,
    /// Bytes of the blocks that came from levels below the first.
    pub fetched_bytes: u64,
    /// Mean access time in milliseconds, if times of hits and misses were given.
    pub mean_ms: Option<f64>,
}

/// Counts in each of equal intervals, in columns of the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelsIntervals {
    /// Index of the reference with which the first interval begins.
    pub start: u64,
    /// Indices one past the last reference of each interval.
    pub end: Vec<u64>,
    /// Hits, by level.
    pub hits: Vec<Vec<u64>>,
    /// References to blocks that no level had.
    pub misses: Vec<u64>,
    /// Demotions, by the upper level of each boundary.
    pub demotions: Vec<Vec<u64>>,
    /// Bytes of the copies of blocks beyond the first one of each, at the end of each interval; nothing if that was not counted.
    pub duplicated_bytes: Vec<u64>,
}
