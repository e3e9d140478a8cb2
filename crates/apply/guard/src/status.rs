//! The status of a guard: JSON, and text for Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};

use crate::detect::State;
use crate::sample::{GroupSample, Sample};
use crate::tree::Version;

/// The status of a guard at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The profile of detection.
    pub profile: &'static str,
    /// The version of the kernel's interface.
    pub controller: Version,
    /// Whether it only reports what it would do.
    pub dry_run: bool,
    /// Faults of the machine at the latest tick.
    #[serde(flatten)]
    pub rates: Rates,
    /// Why the latest protection was rejected, or why none was possible.
    pub refusal: Option<String>,
    /// The scopes that were watched during the latest pressure.
    pub scopes: Vec<ScopeStatus>,
    /// Counts since the start.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The status of a scope.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeStatus {
    /// The group with the limit; empty for the machine.
    pub scope: String,
    /// Its limit in bytes.
    pub limit: u64,
    /// The number of competing groups.
    pub groups: usize,
    /// The state of detection.
    pub state: State,
    /// The groups that fault much.
    pub faulting: Vec<String>,
    /// The processor utilization that detection compares with its thresholds, 0 to 1: [`CpuOf`](crate::CpuOf).
    pub utilization: Option<f64>,
    /// The share of time in which everything waited for I/O, 0 to 1.
    pub io_full: Option<f64>,
    /// The groups with the most faults in the latest sample, at most [`GroupStatus::MOST`].
    pub busiest: Vec<GroupStatus>,
    /// The group that is protected.
    pub protected: Option<String>,
    /// The mechanism.
    pub mechanism: Option<&'static str>,
    /// The seconds since its start.
    pub protected_s: Option<f64>,
    /// The group whose protection fades.
    pub fading: Option<String>,
    /// Whether groups are frozen.
    pub frozen: bool,
}

/// The status of a group of a scope.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    /// Its path.
    pub group: String,
    /// Major faults a second.
    pub faults_per_s: f64,
    /// Resident bytes.
    pub resident: u64,
    /// Bytes in swap.
    pub swapped: u64,
}

impl GroupStatus {
    /// The most groups of a scope that are reported.
    pub const MOST: usize = 8;

    /// The groups with the most faults in `sample`; those without any are left out.
    pub(crate) fn busiest(sample: &Sample) -> Vec<GroupStatus> {
        let mut seen: Vec<_> = sample.groups.iter().filter(|seen| seen.faults > 0).collect();
        seen.sort_by_key(|seen| std::cmp::Reverse(seen.faults));
        let status = |seen: &&GroupSample| GroupStatus {
            group: seen.group.to_string(),
            faults_per_s: seen.faults as f64 / sample.elapsed_s,
            resident: seen.resident,
            swapped: seen.swapped,
        };
        seen.iter().take(GroupStatus::MOST).map(status).collect()
    }
}

/// Faults of the whole machine a second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rates {
    /// Major faults; `None` before the second tick.
    #[serde(rename = "faults_per_s")]
    pub major: Option<f64>,
    /// Pages read back from swap; `None` if the kernel does not report them.
    #[serde(rename = "from_swap_per_s")]
    pub from_swap: Option<f64>,
}

/// Counts since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Major faults of the machine under memory pressure.
    pub faults: u64,
    /// The number of protections.
    pub protections: u64,
    /// The total seconds of protection.
    pub protected_s: f64,
    /// The seconds saved by protections that have ended, at least: `gain.rs`.
    pub saved_s: f64,
    /// Protections rejected by the kernel or a limit.
    pub refusals: u64,
    /// Times when no group fitted in the limit.
    pub load_controls: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, more: &Counts) {
        self.faults += more.faults;
        self.protections += more.protections;
        self.protected_s += more.protected_s;
        self.saved_s += more.saved_s;
        self.refusals += more.refusals;
        self.load_controls += more.load_controls;
    }

    /// The differences from `before`.
    pub(crate) fn since(&self, before: &Counts) -> Counts {
        Counts {
            faults: self.faults.saturating_sub(before.faults),
            protections: self.protections.saturating_sub(before.protections),
            protected_s: (self.protected_s - before.protected_s).max(0.0),
            saved_s: (self.saved_s - before.saved_s).max(0.0),
            refusals: self.refusals.saturating_sub(before.refusals),
            load_controls: self.load_controls.saturating_sub(before.load_controls),
        }
    }
}

impl Status {
    /// As text for Prometheus.
    pub fn metrics(&self) -> String {
        let Counts { faults, protections, protected_s, saved_s, refusals, load_controls } = self.counts;
        let mut registry = Registry::with_prefix("nigh_guard");
        let states = Family::<Vec<(&str, String)>, Gauge>::default();
        let groups = Family::<Vec<(&str, String)>, Gauge>::default();
        for scope in &self.scopes {
            let label = vec![("scope", format!("/{}", scope.scope))];
            states.get_or_create(&label).set(scope.state as i64);
            groups.get_or_create(&label).set(scope.faulting.len() as i64);
        }
        registry.register("state", "0 normal, 1 monitoring, 2 protection", states);
        registry.register("faulting_groups", "Groups that fault much", groups);
        let faults_help = "Major faults of the machine under memory pressure";
        registry.register("faults", faults_help, ConstCounter::new(faults));
        registry.register("protections", "Protections granted", ConstCounter::new(protections));
        registry.register("protected_seconds", "Seconds of protection", ConstCounter::new(protected_s));
        registry.register("saved_seconds", "Seconds saved by protections, at least", ConstCounter::new(saved_s));
        registry.register("refusals", "Protections rejected by the kernel or a limit", ConstCounter::new(refusals));
        registry.register("load_controls", "Times when no group fitted in the limit", ConstCounter::new(load_controls));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        text
    }
}
