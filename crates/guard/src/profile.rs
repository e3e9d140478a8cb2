//! The conditions and parameters of detection.

use std::str::FromStr;

/// Whose processor time tells whether work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOf {
    /// The whole machine's, from its idle time, as the dissertation has it.
    Machine,
    /// The competing groups' own, in user mode: others neither hide thrashing nor imitate it, and reclaim is not work.
    Candidates,
}

/// Conditions and parameters of detection. Rates are major faults a second, shares are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What the profile is called.
    pub name: &'static str,
    /// The lowest processor utilization that is tolerated.
    pub cpu_low: f64,
    /// The utilization that ends a protection.
    pub cpu_high: f64,
    /// The fault rate above which a group counts as one that may thrash.
    pub pf_high: f64,
    /// The fault rate below which a group is taken off the list, and loses its protection.
    pub pf_low: f64,
    /// Whose utilization is compared.
    pub cpu_of: CpuOf,
    /// A share of time lost to I/O that counts as low utilization, too.
    pub io_full: Option<f64>,
    /// Samples in a row that must agree before a group is protected, and before it is released.
    pub agree: u32,
    /// The longest protection in seconds; then the choice is made again.
    pub lease_s: Option<f64>,
    /// The largest share of the limit that the demand of a protected group may have.
    pub fit: Option<f64>,
}

impl Profile {
    /// The dissertation's: section 4.4.1, with the values of section 4.5.1.
    pub const DISSERTATION: Profile = Profile {
        name: "dissertation",
        cpu_low: 0.40,
        cpu_high: 0.80,
        pf_high: 10.0,
        pf_low: 1.0,
        cpu_of: CpuOf::Machine,
        io_full: None,
        agree: 1,
        lease_s: None,
        fit: None,
    };

    /// The dissertation's with what today's kernels and machines need: the candidates' own processor time, I/O pressure
    /// beside it, agreement of two samples, a longest lease, and no protection of what does not fit.
    pub const MODERN: Profile = Profile {
        name: "default",
        cpu_of: CpuOf::Candidates,
        io_full: Some(0.60),
        agree: 2,
        lease_s: Some(15.0),
        fit: Some(0.85),
        ..Profile::DISSERTATION
    };
}

/// A profile that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no profile: expected default or dissertation")]
pub struct NoProfile(String);

impl FromStr for Profile {
    type Err = NoProfile;

    fn from_str(name: &str) -> Result<Profile, NoProfile> {
        let known = [Profile::MODERN, Profile::DISSERTATION];
        known.into_iter().find(|profile| profile.name == name).ok_or_else(|| NoProfile(name.to_owned()))
    }
}
