//! The conditions and parameters of detection.

use std::str::FromStr;
use std::time::Duration;

/// The processor time that shows whether work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOf {
    /// That of the whole machine, from its idle time, as in the dissertation.
    Machine,
    /// That of one processor that only the competing groups would share: its idle time is when all of them are blocked, as if they were
    /// blocked independently of each other. Thus neither other groups nor more processors hide thrashing or imitate it: one group that
    /// is protected makes progress at the speed of one processor, and if all together already do, there is nothing to gain. Reclaim does
    /// not count as work.
    Candidates,
}

/// Conditions and parameters of detection. Rates are in major faults a second, shares are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name of the profile.
    pub name: &'static str,
    /// The lowest tolerated processor utilization.
    pub cpu_low: f64,
    /// The utilization that ends a protection.
    pub cpu_high: f64,
    /// The fault rate above which a group may be thrashing.
    pub pf_high: f64,
    /// The fault rate below which a group leaves the list and loses its protection.
    pub pf_low: f64,
    /// The utilization that is compared.
    pub cpu_of: CpuOf,
    /// The share of time lost to I/O that also counts as low utilization.
    pub io_full: Option<f64>,
    /// Samples in a row that must agree before a group is protected.
    pub agree: u32,
    /// Seconds in a row in which protection must not be needed before a group is released; 0 for one sample. Twice as long each
    /// time that the group is protected again within its lease.
    pub calm_s: f64,
    /// The longest protection in seconds; then a group is chosen again.
    pub lease_s: Option<f64>,
    /// The largest demand of a protected group, as a share of the limit.
    pub fit: Option<f64>,
    /// The largest demand, as a share of the limit, of a group that is protected whatever the utilization is.
    pub small: Option<f64>,
    /// The time between two samples while several groups fault much.
    pub sample_every: Duration,
}

impl Profile {
    /// The profile of the dissertation: section 4.4.1, with the values of section 4.5.1.
    pub const DISSERTATION: Profile = Profile {
        name: "dissertation",
        cpu_low: 0.40,
        cpu_high: 0.80,
        pf_high: 10.0,
        pf_low: 1.0,
        cpu_of: CpuOf::Machine,
        io_full: None,
        agree: 1,
        calm_s: 0.0,
        lease_s: None,
        fit: None,
        small: None,
        sample_every: Duration::from_secs(1),
    };

    /// The dissertation's profile, adapted to today's kernels and machines: the candidates' own processor time, I/O
    /// pressure in addition, agreement of two samples, a longest lease, no protection of groups that do not fit, and
    /// protection of small ones.
    pub const MODERN: Profile = Profile {
        name: "default",
        cpu_of: CpuOf::Candidates,
        io_full: Some(0.60),
        agree: 2,
        calm_s: 2.0,
        lease_s: Some(15.0),
        fit: Some(0.85),
        small: Some(0.25),
        sample_every: Duration::from_millis(250),
        ..Profile::DISSERTATION
    };
}

/// A profile that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("unknown profile '{0}': expected default or dissertation")]
pub struct NoProfile(String);

impl FromStr for Profile {
    type Err = NoProfile;

    fn from_str(name: &str) -> Result<Profile, NoProfile> {
        let known = [Profile::MODERN, Profile::DISSERTATION];
        known.into_iter().find(|profile| profile.name == name).ok_or_else(|| NoProfile(name.to_owned()))
    }
}
