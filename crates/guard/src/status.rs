//! What a guard tells of itself: JSON, and text for Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::detect::State;
use crate::tree::Version;

/// A guard at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The profile of detection.
    pub profile: &'static str,
    /// The kernel's interface.
    pub controller: Version,
    /// Whether it only says what it would do.
    pub dry_run: bool,
    /// The scopes watched when there was pressure last.
    pub scopes: Vec<ScopeStatus>,
    /// What happened since the start.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One scope.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeStatus {
    /// The group with the limit; empty for the machine.
    pub scope: String,
    /// Its limit in bytes.
    pub limit: u64,
    /// How many groups compete.
    pub groups: usize,
    /// The state of detection.
    pub state: State,
    /// The groups that fault much.
    pub faulting: Vec<String>,
    /// The group that is protected.
    pub protected: Option<String>,
    /// How.
    pub mechanism: Option<&'static str>,
    /// Since how many seconds.
    pub protected_s: Option<f64>,
    /// The group whose protection grows weaker.
    pub fading: Option<String>,
    /// Whether groups stand still for a moment.
    pub frozen: bool,
}

/// What happened since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Major faults of the machine while there was pressure.
    pub faults: u64,
    /// Protections granted.
    pub protections: u64,
    /// Seconds of protection in sum.
    pub protected_s: f64,
    /// Protections that the kernel or a limit refused.
    pub refusals: u64,
    /// Times that no group fitted.
    pub load_controls: u64,
}

impl Status {
    /// As text for Prometheus.
    pub fn metrics(&self) -> String {
        let Counts { faults, protections, protected_s, refusals, load_controls } = self.counts;
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
        let faults_help = "Major faults of the machine while there was pressure";
        registry.register("faults", faults_help, ConstCounter::new(faults));
        registry.register("protections", "Protections granted", ConstCounter::new(protections));
        registry.register("protected_seconds", "Seconds of protection", ConstCounter::new(protected_s));
        registry.register("refusals", "Protections that the kernel or a limit refused", ConstCounter::new(refusals));
        registry.register("load_controls", "Times that no group fitted", ConstCounter::new(load_controls));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        text
    }
}
