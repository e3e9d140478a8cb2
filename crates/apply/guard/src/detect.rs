//! Detection: the three states of the dissertation, section 4.4.3 and figure 4.7, over samples of one second.
//!
//! Deviations from the dissertation, in every profile:
//! * Groups take the place of processes, because a stock kernel can protect cgroups.
//! * Faults are counted per sample, not one by one. A group enters `high_PF_proc` when its rate over a sample exceeds
//!   PF_High. The dissertation's kernel starts its count with a fault, so a burst across the border of two samples can
//!   be missed here.
//! * Footnote 2 counts faults from swap only. Here, a major fault counts if the kernel also counted a refault, the return
//!   of a page that was reclaimed, for the group (`sampler.rs`): pages of files that are reclaimed and read again are
//!   thrashing, too, and those that are read for the first time are not. If the kernel does not count refaults, all
//!   major faults of a group count. For the machine, the guard also uses the pages read from swap (`guard.rs`).
//!
//! And in every profile with a longest lease:
//! * If a group was released before its lease expired, and it faults above PF_High within what is left of the lease, it
//!   is protected again at once, for that rest. Neither a low utilization nor the agreement of several samples is
//!   needed: both were found when the lease began. It was released too early, so the next release needs twice as long.
//!
//! And in the default profile:
//! * A group that needs little memory, and faults above PF_High, is protected whatever the utilization is, and as long as others
//!   fault much or its lease lasts. To protect it costs the others little, and it may be what somebody waits for, while a large
//!   group keeps the processors busy.

use std::collections::BTreeSet;

use crate::choose::choose;
use crate::profile::{CpuOf, Profile};
use crate::sample::{Group, GroupSample, Sample};

/// A state of figure 4.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// At most one group faults much.
    Normal,
    /// Several groups fault much: utilization is measured.
    Monitoring,
    /// One of them is protected.
    Protection,
}

/// Why a protection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its fault rate fell below PF_Low: the working set is in memory.
    Stable,
    /// Utilization rose above CPU_High.
    Busy,
    /// The longest lease has expired.
    Lease,
    /// The group no longer exists.
    Gone,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Why::Stable => "its fault rate is below PF_Low",
            Why::Busy => "processor utilization is above CPU_High",
            Why::Lease => "its lease has expired",
            Why::Gone => "the group no longer exists",
        })
    }
}

/// The action after a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Protect this group.
    Protect(Group),
    /// End its protection.
    Release(Group, Why),
    /// The groups that fault thrash, and none of them can be protected: fewer programs must run (section 4.5.2, question 3).
    LoadControl,
}

/// The state machine of one scope.
///
/// **Invariant:** in the state of protection exactly one group is protected; in other states none is.
#[derive(Clone, Debug)]
pub struct Detector {
    profile: Profile,
    state: State,
    /// `high_PF_proc`: entered above PF_High, left below PF_Low.
    high: BTreeSet<Group>,
    protected: Option<Protected>,
    /// Samples in a row in which utilization was too low.
    low: u32,
    /// Samples in a row in which a small group faulted much.
    small: u32,
    /// The groups that could not be protected since monitoring began.
    refused: BTreeSet<Group>,
    /// The group protected last until its lease expired: others take precedence.
    had_lease: Option<Group>,
    /// The group released last, while its lease has not expired.
    released: Option<Protected>,
}

#[derive(Clone, Debug)]
struct Protected {
    group: Group,
    /// Since the lease began.
    seconds: f64,
    /// The time, up to now, in which protection was not needed.
    calm_s: f64,
    /// How often it was protected again within this lease.
    again: i32,
}

impl Detector {
    /// A machine in the normal state.
    pub fn new(profile: Profile) -> Detector {
        let (high, refused) = (BTreeSet::new(), BTreeSet::new());
        Detector {
            profile,
            state: State::Normal,
            high,
            protected: None,
            low: 0,
            small: 0,
            refused,
            had_lease: None,
            released: None,
        }
    }

    /// The state after the last sample.
    pub fn state(&self) -> State {
        self.state
    }

    /// The group that is protected.
    pub fn protected(&self) -> Option<&Group> {
        self.protected.as_ref().map(|protected| &protected.group)
    }

    /// `high_PF_proc`: the groups that fault much.
    pub fn faulting(&self) -> impl Iterator<Item = &Group> + Clone {
        self.high.iter()
    }

    /// Processes one sample of a scope with a limit of `limit` bytes, and follows at most one edge of figure 4.7.
    pub fn tick(&mut self, sample: &Sample, limit: u64) -> Option<Action> {
        self.update_list(sample);
        self.rest(sample.elapsed_s);
        match self.state {
            State::Normal if self.high.len() >= 2 => {
                self.state = State::Monitoring;
                // In the dissertation utilization is measured only once the detection routine is awake. If several
                // samples must agree, the one that woke it is the first of them.
                if self.profile.agree > 1 {
                    self.count_low(sample);
                    self.count_small(sample, limit);
                }
                None
            }
            State::Normal => None,
            State::Monitoring if self.high.len() < 2 => {
                self.state = State::Normal;
                (self.low, self.small) = (0, 0);
                self.refused.clear();
                self.had_lease = None;
                None
            }
            State::Monitoring => {
                self.count_low(sample);
                self.count_small(sample, limit);
                if let Some(group) = self.grant_again(sample, limit) {
                    return Some(Action::Protect(group));
                }
                let fit = if self.low >= self.profile.agree {
                    self.profile.fit
                } else if self.small >= self.profile.agree {
                    self.profile.small
                } else {
                    return None;
                };
                let Some(group) = self.choose(sample, fit, limit) else {
                    self.low = 0;
                    return Some(Action::LoadControl);
                };
                self.protected = Some(Protected { group: group.clone(), seconds: 0.0, calm_s: 0.0, again: 0 });
                self.released = None;
                self.state = State::Protection;
                Some(Action::Protect(group))
            }
            State::Protection => {
                let why = self.release(sample, limit)?;
                let protected = self.protected.take().expect("the invariant");
                self.state = State::Monitoring;
                (self.low, self.small) = (0, 0);
                self.had_lease = (why == Why::Lease).then(|| protected.group.clone());
                let group = protected.group.clone();
                let has_rest = matches!(why, Why::Stable | Why::Busy) && self.profile.lease_s.is_some();
                self.released = Some(protected).filter(|_| has_rest);
                Some(Action::Release(group, why))
            }
        }
    }

    /// `elapsed_s` seconds of a lease pass, with or without a sample.
    pub fn rest(&mut self, elapsed_s: f64) {
        let most = self.profile.lease_s.unwrap_or(0.0);
        self.released = self.released.take().filter(|released| released.seconds + elapsed_s < most);
        if let Some(released) = &mut self.released {
            released.seconds += elapsed_s;
        }
    }

    /// The group released last, if it faults much again within its lease: it is protected for the rest of that.
    fn grant_again(&mut self, sample: &Sample, limit: u64) -> Option<Group> {
        let released = self.released.as_ref()?;
        let seen = sample.groups.iter().find(|seen| seen.group == released.group)?;
        if rate(seen, sample) <= self.profile.pf_high || self.refused.contains(&seen.group) {
            return None;
        }
        let group = choose(std::iter::once(seen), self.profile.fit, limit, None)?;
        self.protected =
            self.released.take().map(|released| Protected { calm_s: 0.0, again: released.again + 1, ..released });
        self.state = State::Protection;
        Some(group)
    }

    /// The selected group cannot be protected: selects another one, if there is one.
    pub fn refused(&mut self) {
        if let Some(protected) = self.protected.take() {
            self.refused.insert(protected.group);
            self.state = State::Monitoring;
        }
    }

    /// Ends everything, as at the end of the service. Returns the group that was protected.
    pub fn stop(&mut self) -> Option<Group> {
        self.state = State::Normal;
        self.high.clear();
        (self.low, self.small) = (0, 0);
        self.released = None;
        self.protected.take().map(|protected| protected.group)
    }

    /// Section 4.4.1: updates `high_PF_proc`.
    fn update_list(&mut self, sample: &Sample) {
        self.high.retain(|group| {
            sample.groups.iter().any(|seen| seen.group == *group && rate(seen, sample) >= self.profile.pf_low)
        });
        let entering = sample.groups.iter().filter(|seen| rate(seen, sample) > self.profile.pf_high);
        self.high.extend(entering.map(|seen| seen.group.clone()));
    }

    fn count_low(&mut self, sample: &Sample) {
        let lost = self.profile.io_full.is_some_and(|most| sample.io_full > most);
        let low = self.utilization(sample) < self.profile.cpu_low || lost;
        self.low = if low { self.low + 1 } else { 0 };
    }

    /// Of the groups that fault much and were not refused, the one to protect, if one needs at most the share `fit` of the limit.
    fn choose(&self, sample: &Sample, fit: Option<f64>, limit: u64) -> Option<Group> {
        let listed = sample.groups.iter().filter(|seen| self.high.contains(&seen.group));
        let candidates = listed.filter(|seen| !self.refused.contains(&seen.group));
        choose(candidates, fit, limit, self.had_lease.as_ref())
    }

    fn count_small(&mut self, sample: &Sample, limit: u64) {
        let has_one = self.profile.small.is_some_and(|small| self.choose(sample, Some(small), limit).is_some());
        self.small = if has_one { self.small + 1 } else { 0 };
    }

    /// The processor utilization in a sample that the profile compares with its thresholds, 0 to 1.
    pub(crate) fn utilization(&self, sample: &Sample) -> f64 {
        match self.profile.cpu_of {
            CpuOf::Machine => sample.machine_cpu,
            CpuOf::Candidates => {
                let candidates = sample.groups.iter().filter(|seen| self.high.contains(&seen.group));
                let idle: f64 = candidates.map(|seen| 1.0 - seen.ready(sample.elapsed_s)).product();
                1.0 - idle
            }
        }
    }

    /// Whether the protection ends with this sample.
    fn release(&mut self, sample: &Sample, limit: u64) -> Option<Why> {
        let protected = self.protected.as_mut()?;
        protected.seconds += sample.elapsed_s;
        let Some(seen) = sample.groups.iter().find(|seen| seen.group == protected.group) else {
            return Some(Why::Gone);
        };
        // The default profile checks whether the protected group itself makes progress: its rivals wait for I/O
        // meanwhile.
        let cpu = match self.profile.cpu_of {
            CpuOf::Machine => sample.machine_cpu,
            CpuOf::Candidates => seen.ready(sample.elapsed_s),
        };
        let why = if rate(seen, sample) < self.profile.pf_low {
            Some(Why::Stable)
        } else if cpu > self.profile.cpu_high {
            Some(Why::Busy)
        } else {
            None
        };
        // It needs little, and would lose that to those that still fault.
        let is_small = self.profile.small.is_some_and(|small| seen.demand() as f64 <= small * limit as f64);
        let why = why.filter(|_| !is_small || self.high.iter().all(|group| *group == seen.group));
        protected.calm_s = if why.is_some() { protected.calm_s + sample.elapsed_s } else { 0.0 };
        if why.is_some() && protected.calm_s >= self.profile.calm_s * 2f64.powi(protected.again) {
            return why;
        }
        self.profile.lease_s.is_some_and(|most| protected.seconds >= most).then_some(Why::Lease)
    }
}

/// Major faults a second.
fn rate(seen: &GroupSample, sample: &Sample) -> f64 {
    seen.faults as f64 / sample.elapsed_s
}
