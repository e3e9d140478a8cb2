//! Samples: differences between two readings of `/proc` and the cgroups.
//!
//! Groups that faulted recently are read at every tick. The others take turns if they are many, so that a thousand
//! groups at rest cost little: see [`TURN_TICKS`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::procfs::{Counters, MachineTime, Procfs};
use crate::sample::{Group, GroupSample, Sample};
use crate::tree::{Refaults, Scope, Tree, Version};

/// Every group is read at least once in this many ticks. After a fault it is read at every tick until it has had none
/// for this many ticks. A group that begins to fault is thus detected at most this many ticks late.
const TURN_TICKS: usize = 10;
/// The number of groups at rest that are read at each tick: if there are no more, nothing is detected late.
const RESTING_A_TICK: usize = 64;

/// Stores the previous reading.
#[derive(Debug)]
pub(crate) struct Sampler {
    ticks_per_second: u64,
    at: Option<Duration>,
    machine: MachineTime,
    members: HashMap<Group, Member>,
    /// The groups read at each tick, and those at rest, least recently read first.
    active: Vec<Group>,
    resting: VecDeque<Group>,
    /// Stalled microseconds, by pressure file.
    full_us: HashMap<PathBuf, u64>,
}

/// A group that competes.
#[derive(Debug, Default)]
struct Member {
    /// The number of its scope.
    scope: usize,
    /// The number of ticks for which it is still read at each.
    watched_ticks: usize,
    /// The time of the last reading; `None` if there was none.
    at: Option<Duration>,
    /// Its processes at that time, by number.
    processes: Vec<(u32, Counters)>,
    /// How long the threads of each had waited for a processor until then, where this was read: in the same order.
    waited_ns: Vec<Option<u64>>,
    /// Its refaults when they were last read; `None` before, and if the kernel does not count them.
    refaults: Option<Refaults>,
}

/// Counts of a group since its previous reading.
struct Read {
    faults: u64,
    user_ticks: u64,
    waiting_s: f64,
}

impl Sampler {
    pub(crate) fn new() -> Sampler {
        Sampler {
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            at: None,
            machine: MachineTime::default(),
            members: HashMap::new(),
            active: Vec::new(),
            resting: VecDeque::new(),
            full_us: HashMap::new(),
        }
    }

    /// After a pause without ticks: the next reading starts a sample and returns none.
    pub(crate) fn pause(&mut self) {
        self.at = None;
    }

    /// The group of this path, if it had processes at its last reading.
    pub(crate) fn known(&self, group: &str) -> Option<Group> {
        let (group, member) = self.members.get_key_value(group)?;
        (!member.processes.is_empty()).then(|| group.clone())
    }

    /// From now on reads the candidates of `scopes` only. New ones are read first.
    pub(crate) fn follow(&mut self, scopes: &[Scope]) {
        let mut before = std::mem::take(&mut self.members);
        let mut new = Vec::new();
        for (scope, group) in
            scopes.iter().enumerate().flat_map(|(at, scope)| scope.candidates.iter().map(move |group| (at, group)))
        {
            let member = before.remove(group).unwrap_or_else(|| {
                new.push(group.clone());
                Member::default()
            });
            self.members.insert(group.clone(), Member { scope, ..member });
        }
        self.active.retain(|group| self.members.contains_key(group));
        self.resting.retain(|group| self.members.contains_key(group));
        new.into_iter().rev().for_each(|group| self.resting.push_front(group));
    }

    /// A sample of each of the `scopes`, at `now` of a monotonic clock; none from the first reading. It contains the
    /// groups whose turn it was, with their counts since the last turn spread evenly over the ticks. Memory is measured
    /// for groups that faulted and for those in `measured`, which are read at every tick.
    pub(crate) fn read(
        &mut self,
        now: Duration,
        tree: &Tree,
        procfs: &mut Procfs,
        scopes: &[Scope],
        measured: &[Group],
    ) -> io::Result<Option<Vec<Sample>>> {
        let machine = procfs.machine_time()?;
        let elapsed_s = self.at.map(|at| now.saturating_sub(at).as_secs_f64()).filter(|elapsed| *elapsed > 0.0);
        let span = machine.all.saturating_sub(self.machine.all).max(1);
        let machine_cpu = 1.0 - machine.idle.saturating_sub(self.machine.idle) as f64 / span as f64;
        let pressure = procfs.root().join("pressure/io");
        let machine_io_full = self.io_full(procfs, pressure, elapsed_s);
        let uptime_s = procfs.uptime_s()?;
        let mut samples = Vec::with_capacity(scopes.len());
        for scope in scopes {
            // If scopes have no accounting of their own, that of the machine is used.
            let own = tree.file(&scope.group, "io.pressure");
            let has_own = tree.version() == Version::V2 && !scope.group.is_empty() && own.exists();
            let io_full = if has_own { self.io_full(procfs, own, elapsed_s) } else { machine_io_full };
            let elapsed_s = elapsed_s.unwrap_or(0.0);
            samples.push(Sample { elapsed_s, machine_cpu, io_full, groups: Vec::new() });
        }
        for group in self.turn(measured) {
            let Some(member) = self.members.get_mut(&group) else { continue };
            let span_s = member.at.map(|at| now.saturating_sub(at).as_secs_f64());
            let born_after_ticks = ((uptime_s - span_s.unwrap_or(0.0)) * self.ticks_per_second as f64) as u64;
            let Read { faults, user_ticks, waiting_s } =
                member.read(now, procfs, &tree.processes(&group), born_after_ticks);
            let (faults, of_files) =
                if faults > 0 { member.among_refaults(faults, tree.refaults(&group)) } else { (0, None) };
            // A group without processes no longer competes.
            if !member.processes.is_empty() {
                let (mut resident, mut swapped) = (0, 0);
                if faults > 0 || measured.contains(&group) {
                    for (pid, _) in &member.processes {
                        let memory = procfs.memory(*pid);
                        resident = u64::saturating_add(resident, memory.resident);
                        swapped = u64::saturating_add(swapped, memory.swapped);
                    }
                    // Shared pages are counted once for each process, so the sum is limited to the memory charged to
                    // the group.
                    resident = resident.min(tree.held(&group).unwrap_or(u64::MAX));
                }
                let share = elapsed_s.map_or(1.0, |elapsed_s| elapsed_s / span_s.unwrap_or(0.0).max(elapsed_s));
                let faults = (faults as f64 * share).ceil() as u64;
                let user_s = user_ticks as f64 * share / self.ticks_per_second as f64;
                let (group, waiting_s) = (group.clone(), waiting_s * share);
                samples[member.scope].groups.push(GroupSample {
                    group,
                    faults,
                    of_files,
                    user_s,
                    waiting_s,
                    resident,
                    swapped,
                    eligible: true,
                });
            }
            if member.watched_ticks > 0 { self.active.push(group) } else { self.resting.push_back(group) }
        }
        (self.at, self.machine) = (Some(now), machine);
        Ok(elapsed_s.map(|_| samples))
    }

    /// The groups whose turn it is.
    fn turn(&mut self, measured: &[Group]) -> Vec<Group> {
        let mut turn = std::mem::take(&mut self.active);
        for group in measured {
            if let Some(at) = self.resting.iter().position(|resting| resting == group) {
                turn.extend(self.resting.remove(at));
            }
        }
        let most = RESTING_A_TICK.max(self.resting.len().div_ceil(TURN_TICKS)).min(self.resting.len());
        turn.extend(self.resting.drain(..most));
        turn
    }

    /// The share of time in which everything was stalled by I/O, from a pressure file; 0 without one.
    fn io_full(&mut self, procfs: &mut Procfs, file: PathBuf, elapsed_s: Option<f64>) -> f64 {
        let Some(total) = procfs.full_us(&file) else { return 0.0 };
        let before = self.full_us.insert(file, total).unwrap_or(total);
        elapsed_s.map_or(0.0, |elapsed_s| (total.saturating_sub(before) as f64 / 1e6 / elapsed_s).min(1.0))
    }
}

impl Member {
    /// Reads the counters of the processes `pids`: what was counted since the previous reading, or zero if this is the first.
    fn read(&mut self, now: Duration, procfs: &mut Procfs, pids: &[u32], born_after_ticks: u64) -> Read {
        let mut processes: Vec<_> = pids.iter().filter_map(|pid| Some((*pid, procfs.counters(*pid)?))).collect();
        processes.sort_unstable_by_key(|(pid, _)| *pid);
        processes.shrink_to_fit();
        let (mut faults, mut user_ticks) = (0, 0);
        let is_first = self.at.is_none();
        // Thrashing is looked for only in groups that fault, so those at rest need not be asked.
        let asked = is_first || self.watched_ticks > 0;
        let waited_ns: Vec<Option<u64>> = processes
            .iter()
            .map(|(pid, counters)| asked.then(|| procfs.waited_ns(*pid, counters.threads)).flatten())
            .collect();
        let waiting_ns = processes.iter().zip(&waited_ns).filter_map(|((pid, _), waited_ns)| {
            let at = self.processes.binary_search_by_key(pid, |(pid, _)| *pid).ok()?;
            Some((*waited_ns)?.saturating_sub(self.waited_ns[at]?))
        });
        let waiting_s = waiting_ns.fold(0, u64::saturating_add) as f64 / 1e9;
        for (pid, counters) in processes.iter().filter(|_| !is_first) {
            let before = self.before(*pid, *counters, born_after_ticks);
            faults = u64::saturating_add(faults, counters.major_faults.saturating_sub(before.major_faults));
            user_ticks = u64::saturating_add(user_ticks, counters.user_ticks.saturating_sub(before.user_ticks));
        }
        self.watched_ticks = match self.watched_ticks {
            _ if faults > 0 => TURN_TICKS,
            // The next tick can compare with this.
            _ if is_first => 1,
            ticks => ticks.saturating_sub(1),
        };
        (self.at, self.processes, self.waited_ns) = (Some(now), processes, waited_ns);
        Read { faults, user_ticks, waiting_s }
    }

    /// The part of `faults` that reclaim can have caused: a page that is read for the first time is a major fault, but no
    /// refault; a page that is read ahead is a refault, but no fault. Refaults are read only after major faults, so their
    /// difference may include some from before these; the part is then too large, but no larger than `faults`. The first
    /// reading compares with none, and counts nothing. Also returns which share of the refaults is of files.
    fn among_refaults(&mut self, faults: u64, refaults: Option<Refaults>) -> (u64, Option<f64>) {
        let before = std::mem::replace(&mut self.refaults, refaults);
        let Some(now) = refaults else { return (faults, None) };
        let before = before.unwrap_or(now);
        let all = now.all.saturating_sub(before.all);
        let of_files = now.of_files.zip(before.of_files).filter(|_| all > 0);
        (faults.min(all), of_files.map(|(now, before)| now.saturating_sub(before) as f64 / all as f64))
    }

    /// The values to subtract from a process's counters: those of the previous reading; zero if it started since then;
    /// its own if it is only new in the group.
    fn before(&self, pid: u32, counters: Counters, born_after_ticks: u64) -> Counters {
        let known = self.processes.binary_search_by_key(&pid, |(pid, _)| *pid).map(|at| self.processes[at].1);
        match known {
            Ok(before) if before.started_ticks == counters.started_ticks => before,
            _ if counters.started_ticks >= born_after_ticks => Counters { user_ticks: 0, ..counters },
            _ => counters,
        }
    }
}
