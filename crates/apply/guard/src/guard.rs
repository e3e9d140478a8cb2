//! The guard: once a second, and more often while groups may be thrashing, it samples, decides and acts.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::detect::{Action, Detector, State};
use crate::gain::{Baseline, Gain};
use crate::journal::{ApplyError, Journal, JournalError, Outcome, Restored};
use crate::mechanism::{Freeze, Grant, Low, Mechanism, Refusal, Setting, Squeeze, Swappiness};
use crate::prefetch::Prefetch;
use crate::procfs::{MachineFaults, Procfs};
use crate::profile::Profile;
use crate::sample::{Group, GroupSample, Sample};
use crate::sampler::Sampler;
use crate::status::{Counts, GroupStatus, Rates, ScopeStatus, Status};
use crate::tree::{Scope, Tree, Version};

/// The longest freeze of the others.
pub const FREEZE_MOST: Duration = Duration::from_secs(3);

/// The interval at which the tree of groups is scanned again while there is something to watch: about as often as each
/// group at rest is read, and as costly. It begins short and doubles, because whatever woke the guard may just be starting.
const WALK_EVERY: Duration = Duration::from_secs(10);
const WALK_FIRST: Duration = Duration::from_secs(1);
/// The time between two ticks, except while several groups fault much.
const TICK: Duration = Duration::from_secs(1);
/// The number of quiet ticks after which the guard sleeps.
const QUIET_TICKS: u32 = 5;
/// The share of its demand that a fading protection loses in a second, until nothing is left.
const FADE: f64 = 0.1;
/// Ticks between two freezes when no group fits.
const LOAD_CONTROL_EVERY: u32 = 10;

/// The configuration of a guard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The conditions of protection.
    pub profile: Profile,
    /// Groups that may be protected, together with those below them; empty for all.
    pub allow: Vec<String>,
    /// Groups that are neither protected nor limited, together with those below them.
    pub deny: Vec<String>,
    /// The only mechanism to use; if `None`, the first that works.
    pub mechanism: Option<MechanismName>,
    /// Whether the protected group's pages are fetched from swap.
    pub prefetch: bool,
    /// How long the others are frozen at the start of a protection, at most [`FREEZE_MOST`].
    pub freeze: Duration,
    /// The last part of the name of the group whose protections are counted separately: that of a command beside which
    /// this guard runs.
    pub command: Option<String>,
}

/// A mechanism that a user can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MechanismName {
    /// [`Low`]
    Low,
    /// [`Swappiness`]
    Swappiness,
    /// [`Squeeze`]
    Squeeze,
}

/// In the order in which they are tried, each with the version of the kernel's interface that it needs.
const MECHANISMS: [(MechanismName, Version, &dyn Mechanism); 3] = [
    (MechanismName::Low, Version::V2, &Low),
    (MechanismName::Swappiness, Version::V1, &Swappiness),
    (MechanismName::Squeeze, Version::V2, &Squeeze),
];

/// When to call the guard again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Guard::tick`] so much later.
    Tick(Duration),
    /// There is no pressure: call it when there is pressure again.
    Sleep,
}

/// Watches a tree of groups, and protects groups in it.
#[derive(Debug)]
pub struct Guard {
    settings: Settings,
    tree: Tree,
    procfs: Procfs,
    /// `None` in a dry run.
    journal: Option<Journal>,
    memory_total: u64,
    sampler: Sampler,
    walked_at: Option<Duration>,
    walk_every: Duration,
    scopes: Vec<Scope>,
    watched: HashMap<Group, Watched>,
    faults: Option<(Duration, MachineFaults)>,
    quiet: u32,
    /// The time of the latest tick.
    now: Duration,
    counts: Counts,
    rates: Rates,
    command_protected: Duration,
    refusal: Option<String>,
}

/// A scope and its state.
#[derive(Debug)]
struct Watched {
    detector: Detector,
    active: Option<Active>,
    fading: Option<Fading>,
    /// Ticks since the advice to run fewer programs; `None` without such advice.
    load_control: Option<u32>,
    /// The group frozen because no group fits.
    frozen: Option<Group>,
    last: Option<Sample>,
    baseline: Baseline,
}

/// A protection.
#[derive(Debug)]
struct Active {
    /// `None` if the others are only frozen.
    mechanism: Option<&'static dyn Mechanism>,
    since: Duration,
    frozen_until: Option<Duration>,
    gain: Gain,
    _prefetch: Option<Prefetch>,
}

/// A released protection that fades.
#[derive(Debug)]
struct Fading {
    group: GroupSample,
    mechanism: &'static dyn Mechanism,
    strength: f64,
}

impl Guard {
    /// First restores the values that a previous run left in the journal. Without a journal it is a dry run: it decides
    /// and logs, but changes nothing.
    ///
    /// # Errors
    /// If the journal cannot be written, or `/proc` cannot be read.
    pub fn new(
        settings: Settings,
        tree: Tree,
        mut procfs: Procfs,
        mut journal: Option<Journal>,
    ) -> Result<Guard, GuardError> {
        let path = procfs.root().to_owned();
        let readable = procfs.machine_faults().and_then(|_| procfs.memory_total());
        let memory_total = readable.map_err(|source| GuardError::Proc { path, source })?;
        if let Some(journal) = &mut journal {
            tell(&journal.restore_all()?, "left by a previous run");
        }
        Ok(Guard {
            settings,
            tree,
            procfs,
            journal,
            memory_total,
            sampler: Sampler::new(),
            walked_at: None,
            walk_every: WALK_FIRST,
            scopes: Vec::new(),
            watched: HashMap::new(),
            faults: None,
            quiet: 0,
            now: Duration::ZERO,
            counts: Counts::default(),
            rates: Rates::default(),
            command_protected: Duration::ZERO,
            refusal: None,
        })
    }

    /// Samples, decides and acts, at `now` of a monotonic clock.
    ///
    /// # Errors
    /// If `/proc` cannot be read or the journal cannot be written; nothing is protected then.
    pub fn tick(&mut self, now: Duration) -> Result<Next, GuardError> {
        self.now = now;
        let next = self.try_tick(now);
        if next.is_err() {
            // The first error is the one to report.
            let _ = self.release_all("the guard failed");
        }
        next
    }

    fn try_tick(&mut self, now: Duration) -> Result<Next, GuardError> {
        if let Some(journal) = &mut self.journal {
            tell(&journal.restore_due()?, "could not be restored before");
        }
        let total = self.procfs.machine_faults().map_err(|source| self.proc_error(source))?;
        let before = self.faults.replace((now, total));
        let rate = |count: fn(MachineFaults) -> Option<u64>| {
            let (at, before) = before?;
            let elapsed_s = Some(now.saturating_sub(at).as_secs_f64()).filter(|elapsed_s| *elapsed_s > 0.0)?;
            Some(count(total)?.saturating_sub(count(before)?) as f64 / elapsed_s)
        };
        let rates = Rates { major: rate(|faults| Some(faults.major)), from_swap: rate(|faults| faults.from_swap) };
        let is_low = |rate: Option<f64>| rate.is_some_and(|rate| rate <= self.settings.profile.pf_high);
        let is_calm = is_low(rates.major);
        // Programs that map files also fault much on a machine with enough memory (section 4.4.1, footnote 2).
        let swaps_little = is_low(rates.from_swap);
        if before.is_some() {
            self.rates = rates;
        }
        self.counts.faults += before.map_or(0, |(_, before)| total.major.saturating_sub(before.major));
        // With so few faults in total nothing thrashes, and no group has to be read.
        if is_calm && self.watched.values().all(Watched::is_idle) {
            self.sampler.pause();
            let elapsed_s = before.map_or(0.0, |(at, _)| now.saturating_sub(at).as_secs_f64());
            for watched in self.watched.values_mut() {
                watched.last = None;
                watched.detector.rest(elapsed_s);
            }
            self.quiet += 1;
            let sleeps = self.quiet >= QUIET_TICKS && !self.journal.as_ref().is_some_and(Journal::has_due);
            if sleeps {
                (self.walked_at, self.faults, self.quiet) = (None, None, 0);
                self.sampler = Sampler::new();
            }
            return Ok(if sleeps { Next::Sleep } else { Next::Tick(TICK) });
        }
        self.quiet = 0;
        if self.walked_at.is_none_or(|at| now.saturating_sub(at) >= self.walk_every) {
            let is_first = self.walked_at.is_none();
            self.walk_every = if is_first { WALK_FIRST } else { (self.walk_every * 2).min(WALK_EVERY) };
            self.walk(now)?;
        }
        let measured: Vec<Group> = self.watched.values().filter_map(|it| it.detector.protected()).cloned().collect();
        let samples = self.sampler.read(now, &self.tree, &mut self.procfs, &self.scopes, &measured);
        let samples = samples.map_err(|source| self.proc_error(source))?;
        let is_first = samples.is_none();
        let scopes = std::mem::take(&mut self.scopes);
        let mut done = Ok(());
        for (scope, mut sample) in scopes.iter().zip(samples.unwrap_or_default()) {
            for seen in &mut sample.groups {
                seen.eligible = self.may_protect(&seen.group);
                if swaps_little && scope.limit >= self.memory_total {
                    seen.faults = 0;
                }
            }
            let mut watched = self.watched.remove(&scope.group).expect("every scope is watched");
            done = done.and(self.scope(now, scope, &mut watched, &sample));
            watched.last = Some(sample);
            self.watched.insert(scope.group.clone(), watched);
        }
        self.scopes = scopes;
        done?;
        // A first reading has nothing to compare with.
        let is_urgent = is_first || self.watched.values().any(|watched| watched.detector.state() != State::Normal);
        Ok(Next::Tick(if is_urgent { self.settings.profile.sample_every } else { TICK }))
    }

    /// Restores everything, as at the end of the service.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn release_all(&mut self, why: &str) -> Result<(), GuardError> {
        let mut ended = Vec::new();
        for (scope, watched) in &mut self.watched {
            ended.extend(watched.active.take().zip(watched.detector.protected().cloned()));
            watched.fading = None;
            watched.frozen = None;
            if let Some(group) = watched.detector.stop() {
                tracing::info!(scope = shown(scope), group = &*group, why, "released");
            }
        }
        for (active, group) in ended {
            self.count_end(self.now, &active, &group);
        }
        if let Some(journal) = &mut self.journal {
            tell(&journal.restore_all()?, why);
        }
        Ok(())
    }

    /// Scans for competing groups now, without waiting for faults of the machine.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn survey(&mut self, now: Duration) -> Result<(), GuardError> {
        self.walk(now)
    }

    /// The time for which the group of the command in [`Settings`] was protected.
    pub fn command_protected(&self) -> Duration {
        self.command_protected
    }

    /// Why the latest protection was rejected, or why none was possible.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Counts a protection of `group` that ends.
    fn count_end(&mut self, now: Duration, active: &Active, group: &Group) {
        let protected = now.saturating_sub(active.since);
        self.counts.protected_s += protected.as_secs_f64();
        self.counts.saved_s += if self.journal.is_some() { active.gain.least_saved_s() } else { 0.0 };
        if self.settings.command.as_deref() == group.rsplit('/').next() {
            self.command_protected += protected;
        }
    }

    /// The present status, for people and machines.
    pub fn status(&self, now: Duration) -> Status {
        let mut counts = self.counts.clone();
        let active = self.watched.values().filter_map(|watched| watched.active.as_ref());
        for active in active {
            counts.protected_s += now.saturating_sub(active.since).as_secs_f64();
        }
        let scopes = self.scopes.iter().filter_map(|scope| {
            let watched = self.watched.get(&scope.group)?;
            let mechanism = watched.active.as_ref().and_then(|active| active.mechanism);
            let last = watched.last.as_ref();
            Some(ScopeStatus {
                scope: scope.group.to_string(),
                limit: scope.limit,
                groups: scope.candidates.len(),
                state: watched.detector.state(),
                faulting: watched.detector.faulting().map(ToString::to_string).collect(),
                utilization: last.map(|sample| watched.detector.utilization(sample)),
                io_full: last.map(|sample| sample.io_full),
                busiest: last.map(GroupStatus::busiest).unwrap_or_default(),
                protected: watched.detector.protected().map(ToString::to_string),
                mechanism: mechanism.map(Mechanism::name),
                protected_s: watched.active.as_ref().map(|active| now.saturating_sub(active.since).as_secs_f64()),
                fading: watched.fading.as_ref().map(|fading| fading.group.group.to_string()),
                frozen: watched.frozen.is_some() || watched.active.as_ref().is_some_and(|it| it.frozen_until.is_some()),
            })
        });
        Status {
            profile: self.settings.profile.name,
            controller: self.tree.version(),
            dry_run: self.journal.is_none(),
            rates: self.rates,
            refusal: self.refusal.clone(),
            scopes: scopes.collect(),
            counts,
        }
    }

    fn proc_error(&self, source: io::Error) -> GuardError {
        GuardError::Proc { path: self.procfs.root().to_owned(), source }
    }

    /// Scans for scopes. A protection in a scope that no longer exists is released.
    fn walk(&mut self, now: Duration) -> Result<(), GuardError> {
        self.walked_at = Some(now);
        self.scopes = self.tree.scopes(self.memory_total, |group| self.sampler.known(group));
        self.sampler.follow(&self.scopes);
        for scope in &self.scopes {
            let profile = &self.settings.profile;
            self.watched.entry(scope.group.clone()).or_insert_with(|| Watched::new(profile.clone()));
        }
        let gone: Vec<Group> = self
            .watched
            .keys()
            .filter(|group| self.scopes.iter().all(|scope| scope.group != **group))
            .cloned()
            .collect();
        for group in gone {
            let watched = self.watched.remove(&group).expect("it is a key");
            let owners = [watched.detector.protected(), watched.fading.as_ref().map(|fading| &fading.group.group)];
            for owner in owners.into_iter().flatten().chain(&watched.frozen) {
                tracing::info!(
                    scope = shown(&group),
                    group = &**owner,
                    "released: no other group is left to compete with"
                );
                self.restore(owner, "released")?;
            }
            if let Some((active, group)) = watched.active.as_ref().zip(watched.detector.protected()) {
                self.count_end(now, active, group);
            }
        }
        Ok(())
    }

    fn may_protect(&self, group: &str) -> bool {
        let below = |list: &[String]| list.iter().any(|above| is_below(group, above));
        (self.settings.allow.is_empty() || below(&self.settings.allow)) && !below(&self.settings.deny)
    }

    /// Whether `group`, with all groups below it, may be limited or frozen to protect `protected`. A group with the
    /// guard itself or the first process may not: nothing could undo it then.
    fn may_hinder(&self, group: &str, protected: Option<&Group>) -> bool {
        let is_denied = self.settings.deny.iter().any(|denied| is_below(group, denied) || is_below(denied, group));
        let is_above = protected.is_some_and(|protected| is_below(protected, group));
        let vital = [std::process::id(), 1];
        !is_denied && !is_above && matches!(self.tree.holds(group, &vital), Ok(false))
    }

    /// One tick of one scope.
    fn scope(
        &mut self,
        now: Duration,
        scope: &Scope,
        watched: &mut Watched,
        sample: &Sample,
    ) -> Result<(), GuardError> {
        let action = watched.detector.tick(sample, scope.limit);
        if watched.active.is_none() && watched.detector.faulting().nth(1).is_some() {
            watched.baseline.add(sample, watched.detector.faulting());
        }
        if let Some(active) = &mut watched.active {
            active.gain.add(sample);
        }
        match action {
            Some(Action::Protect(group)) => {
                self.end_fade(watched)?;
                self.thaw(watched)?;
                self.protect(now, scope, watched, sample, &group)?;
            }
            Some(Action::Release(group, why)) => {
                tracing::info!(scope = shown(&scope.group), group = &*group, %why, "released");
                self.release(now, watched, sample, &group)?;
            }
            Some(Action::LoadControl) => self.load_control(scope, watched, sample)?,
            None => {
                self.thaw(watched)?;
                if watched.active.is_some() {
                    self.refresh(now, scope, watched, sample)?;
                }
            }
        }
        if watched.detector.state() == State::Normal {
            watched.load_control = None;
            watched.baseline.clear();
        }
        watched.load_control = watched.load_control.map(|ticks| ticks + 1);
        self.fade(scope, watched, sample.elapsed_s)
    }

    fn protect(
        &mut self,
        now: Duration,
        scope: &Scope,
        watched: &mut Watched,
        sample: &Sample,
        group: &Group,
    ) -> Result<(), GuardError> {
        let seen = sample.groups.iter().find(|seen| seen.group == *group).expect("it was chosen from the sample");
        let others = self.others(watched, sample, Some(group));
        let grant = grant(&self.tree, self.memory_total, scope, seen, &others);
        let version = self.tree.version();
        let wanted = |(name, needs, _): &&(MechanismName, Version, _)| match self.settings.mechanism {
            Some(wanted) => wanted == *name,
            None => version == *needs,
        };
        let freeze = self.settings.freeze.min(FREEZE_MOST);
        let frozen = if freeze.is_zero() { Vec::new() } else { Freeze.settings(&grant, 1.0).unwrap_or_default() };
        let mut reasons = Vec::new();
        let mechanisms = MECHANISMS.iter().filter(wanted).map(|(_, _, mechanism)| Some(*mechanism));
        // If no mechanism works, a short freeze of the others still helps.
        for mechanism in mechanisms.chain((!frozen.is_empty()).then_some(None)) {
            let settings = mechanism.map_or(Ok(Vec::new()), |mechanism| mechanism.settings(&grant, 1.0));
            let settings: Vec<Setting> = match settings {
                Ok(settings) => settings.into_iter().chain(frozen.iter().cloned()).collect(),
                Err(refusal) => {
                    reasons.push(format!("{}: {refusal}", mechanism.map_or("freeze", Mechanism::name)));
                    continue;
                }
            };
            let name = mechanism.map_or("freeze", Mechanism::name);
            let dry_run = self.journal.is_none();
            match apply(&mut self.journal, group, &settings) {
                Ok(()) => {}
                Err(ApplyError::Journal(error)) => return Err(error.into()),
                Err(error) => {
                    reasons.push(format!("{name}: {error}"));
                    continue;
                }
            }
            let files: Vec<_> = settings.iter().map(|setting| setting.file.display().to_string()).collect();
            tracing::info!(
                scope = shown(&scope.group),
                group = &**group,
                name,
                faults = seen.faults,
                demand_mib = seen.demand() >> 20,
                swapped_mib = seen.swapped >> 20,
                limit_mib = scope.limit >> 20,
                files = files.join(" "),
                "{}: of {} groups that fault much, it needs the least additional memory",
                if dry_run { "would be protected" } else { "protected" },
                watched.detector.faulting().count()
            );
            let prefetch = (self.settings.prefetch && !dry_run)
                .then(|| Prefetch::start(self.procfs.root(), self.tree.file(group, "cgroup.procs")))
                .transpose();
            let prefetch = prefetch.inspect_err(|error| tracing::warn!("no prefetch: {error}")).ok().flatten();
            let frozen_until = (!frozen.is_empty()).then(|| now + freeze);
            let gain = Gain::new(&watched.baseline, watched.detector.faulting());
            watched.active = Some(Active { mechanism, since: now, frozen_until, gain, _prefetch: prefetch });
            self.counts.protections += 1;
            return Ok(());
        }
        let reasons = reasons.join("; ");
        tracing::warn!(scope = shown(&scope.group), group = &**group, reasons, "not protected");
        self.counts.refusals += 1;
        self.refusal = Some(reasons);
        watched.detector.refused();
        Ok(())
    }

    /// Adapts an active protection to the group's demand; ends it if it is no longer possible.
    fn refresh(
        &mut self,
        now: Duration,
        scope: &Scope,
        watched: &mut Watched,
        sample: &Sample,
    ) -> Result<(), GuardError> {
        let Some(active) = &mut watched.active else { return Ok(()) };
        let group = watched.detector.protected().expect("a protection is of a group").clone();
        let seen = sample.groups.iter().find(|seen| seen.group == group).expect("a group that is gone is released");
        if active.frozen_until.is_some_and(|until| now >= until) {
            active.frozen_until = None;
            tracing::info!(scope = shown(&scope.group), group = &*group, "the others run again");
        }
        let Some(journal) = &self.journal else { return Ok(()) };
        let (mechanism, is_frozen) = (active.mechanism, active.frozen_until.is_some());
        let frozen = if is_frozen { journal.frozen(&group) } else { Vec::new() };
        let others = self.others(watched, sample, Some(&group));
        let grant = grant(&self.tree, self.memory_total, scope, seen, &others);
        let settings = mechanism.map_or(Ok(Vec::new()), |mechanism| mechanism.settings(&grant, 1.0));
        let settings = settings.map(|mut settings| {
            // Frozen groups do not fault: those that were frozen stay so, whether or not they are still among the
            // others.
            settings.extend(frozen);
            settings
        });
        let problem = match settings {
            Ok(settings) => match apply(&mut self.journal, &group, &settings) {
                Ok(()) => return Ok(()),
                Err(ApplyError::Journal(error)) => return Err(error.into()),
                Err(error) => error.to_string(),
            },
            // The others no longer fault, or the few pages that the group still loses are of files: the present values stay until the group
            // is released.
            Err(Refusal::NobodyElse | Refusal::PagesOfFiles(_)) => return Ok(()),
            Err(refusal) => refusal.to_string(),
        };
        tracing::warn!(scope = shown(&scope.group), group = &*group, why = problem, "released");
        self.counts.refusals += 1;
        self.refusal = Some(problem);
        watched.detector.refused();
        self.release(now, watched, sample, &group)?;
        self.end_fade(watched)
    }

    fn release(
        &mut self,
        now: Duration,
        watched: &mut Watched,
        sample: &Sample,
        group: &Group,
    ) -> Result<(), GuardError> {
        let Some(active) = watched.active.take() else { return Ok(()) };
        self.count_end(now, &active, group);
        if self.journal.is_none() {
            return Ok(());
        }
        let seen = sample.groups.iter().find(|seen| seen.group == *group);
        match (active.mechanism, seen) {
            (Some(mechanism), Some(seen)) if mechanism.fades() => {
                watched.fading = Some(Fading { group: seen.clone(), mechanism, strength: 1.0 });
            }
            _ => self.restore(group, "released")?,
        }
        Ok(())
    }

    /// The next step of a release: the protection shrinks gradually, so that the others do not reclaim everything at
    /// once.
    fn fade(&mut self, scope: &Scope, watched: &mut Watched, elapsed_s: f64) -> Result<(), GuardError> {
        let Some(fading) = &mut watched.fading else { return Ok(()) };
        fading.strength -= FADE * elapsed_s;
        if fading.strength > FADE / 2.0 {
            let fading = watched.fading.as_ref().expect("it is there");
            let grant = grant(&self.tree, self.memory_total, scope, &fading.group, &[]);
            if let Ok(settings) = fading.mechanism.settings(&grant, fading.strength) {
                match apply(&mut self.journal, &fading.group.group, &settings) {
                    Ok(()) => return Ok(()),
                    Err(ApplyError::Journal(error)) => return Err(error.into()),
                    Err(error) => tracing::info!(group = &*fading.group.group, "fading stopped: {error}"),
                }
            }
        }
        self.end_fade(watched)
    }

    fn end_fade(&mut self, watched: &mut Watched) -> Result<(), GuardError> {
        if let Some(fading) = watched.fading.take() {
            self.restore(&fading.group.group, "faded")?;
        }
        Ok(())
    }

    /// None of the groups can be protected: logs this once, and freezes one of them for a moment, if that is allowed.
    fn load_control(&mut self, scope: &Scope, watched: &mut Watched, sample: &Sample) -> Result<(), GuardError> {
        if watched.load_control.is_some_and(|ticks| ticks < LOAD_CONTROL_EVERY) {
            return self.thaw(watched);
        }
        if watched.load_control.is_none() {
            let groups: Vec<&str> = watched.detector.faulting().map(|group| &**group).collect();
            let groups = groups.join(" ");
            tracing::warn!(
                scope = shown(&scope.group),
                groups,
                "no group can be protected: run fewer programs at a time (load control)"
            );
            self.counts.load_controls += 1;
        }
        watched.load_control = Some(0);
        let general = || "no thrashing group can be protected: run fewer programs at a time".to_owned();
        self.refusal.get_or_insert_with(general);
        if self.settings.freeze.is_zero() || self.journal.is_none() {
            return Ok(());
        }
        // Freeze the group with the most memory in swap.
        let mut others = self.others(watched, sample, None);
        others.sort_by_key(|seen| seen.swapped);
        let Some(resting) = others.pop() else { return Ok(()) };
        let grant = grant(&self.tree, self.memory_total, scope, &resting, std::slice::from_ref(&resting));
        if let Ok(settings) = Freeze.settings(&grant, 1.0) {
            match apply(&mut self.journal, &resting.group, &settings) {
                Ok(()) => {
                    tracing::info!(scope = shown(&scope.group), group = &*resting.group, "frozen for a moment");
                    watched.frozen = Some(resting.group);
                }
                Err(ApplyError::Journal(error)) => return Err(error.into()),
                Err(error) => tracing::warn!("not frozen: {error}"),
            }
        }
        Ok(())
    }

    /// Thaws the group that was frozen because no group fits.
    fn thaw(&mut self, watched: &mut Watched) -> Result<(), GuardError> {
        if let Some(group) = watched.frozen.take() {
            self.restore(&group, "the freeze is over")?;
        }
        Ok(())
    }

    fn restore(&mut self, owner: &Group, why: &str) -> Result<(), JournalError> {
        if let Some(journal) = &mut self.journal {
            tell(&journal.restore(owner)?, why);
        }
        Ok(())
    }

    /// The groups that fault much and may be limited, without `group`.
    fn others(&self, watched: &Watched, sample: &Sample, group: Option<&Group>) -> Vec<GroupSample> {
        let faulting = |seen: &&GroupSample| watched.detector.faulting().any(|other| *other == seen.group);
        let others = sample.groups.iter().filter(faulting).filter(|seen| Some(&seen.group) != group);
        others.filter(|seen| self.may_hinder(&seen.group, group)).cloned().collect()
    }
}

fn grant<'a>(
    tree: &'a Tree,
    memory_total: u64,
    scope: &'a Scope,
    group: &'a GroupSample,
    others: &'a [GroupSample],
) -> Grant<'a> {
    let chain = tree.between(&group.group, &scope.group).into_iter().chain([&*group.group]);
    let limit = chain.filter_map(|group| tree.limit(group, scope.limit)).min().unwrap_or(scope.limit);
    Grant { tree, scope, is_machine: scope.limit >= memory_total, group, limit, others }
}

/// Makes `settings` the settings of `owner`; does nothing in a dry run.
fn apply(journal: &mut Option<Journal>, owner: &Group, settings: &[Setting]) -> Result<(), ApplyError> {
    journal.as_mut().map_or(Ok(()), |journal| journal.apply(owner, settings))
}

impl Watched {
    fn new(profile: Profile) -> Watched {
        Watched {
            detector: Detector::new(profile),
            active: None,
            fading: None,
            load_control: None,
            frozen: None,
            last: None,
            baseline: Baseline::default(),
        }
    }

    fn is_idle(&self) -> bool {
        self.detector.state() == State::Normal && self.fading.is_none() && self.frozen.is_none()
    }
}

/// Whether `group` is `above`, or below it.
fn is_below(group: &str, above: &str) -> bool {
    let (group, above) = (group.trim_matches('/'), above.trim_matches('/'));
    group.strip_prefix(above).is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// The name of a group in logs and errors, because that of the root is empty.
fn shown(group: &str) -> &str {
    if group.is_empty() { "/" } else { group }
}

/// Logs the outcome of restoring files.
pub(crate) fn tell(restored: &[Restored], why: &str) {
    for Restored { file, original, outcome } in restored {
        let file = file.display();
        match outcome {
            Outcome::Original => tracing::info!(%file, original, why, "restored"),
            Outcome::Gone => tracing::info!(%file, why, "its group was removed"),
            Outcome::Foreign(value) => tracing::warn!(%file, value, "not restored: another program has set it"),
            Outcome::Refused(error) => tracing::error!(%file, original, "not restored: {error}"),
        }
    }
}

/// Why the guard cannot run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// `/proc` cannot be read.
    #[error("{}: {source}", path.display())]
    Proc {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Changes could not be undone later, so none is made.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
