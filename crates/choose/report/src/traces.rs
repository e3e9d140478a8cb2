//! Results of several traces, each replayed by itself.

use serde::{Deserialize, Serialize};

use crate::{Curve, Trace};

/// Several traces: a chart for each, and one of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traces {
    /// One per trace.
    pub panels: Vec<Panel>,
    /// By how much policies reduce the misses of another one, if one of those replayed is compared with.
    pub reductions: Option<Reductions>,
}

/// One trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The trace.
    pub trace: Trace,
    /// One per policy.
    pub curves: Vec<Curve>,
}

/// Reductions of the misses of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reductions {
    /// The policy whose misses others are compared with.
    pub against: String,
    /// Traces times sizes.
    pub cells: usize,
    /// One per other policy.
    pub policies: Vec<Reduction>,
}

/// The share of the misses by which a policy has fewer than the one it is compared with, over all traces and sizes: 0.25 is a quarter
/// fewer, and a negative number is more misses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// The policy.
    pub policy: String,
    /// Whether the policy knows the future, and so is a bound rather than a choice.
    pub clairvoyant: bool,
    /// Over all cells.
    pub mean: f64,
    /// The least.
    pub worst: f64,
    /// Tenth percentile.
    pub p10: f64,
    /// First quartile.
    pub p25: f64,
    /// The median.
    pub median: f64,
    /// Third quartile.
    pub p75: f64,
    /// Ninetieth percentile.
    pub p90: f64,
}
