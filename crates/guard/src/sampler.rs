//! Samples: differences between two readings of `/proc` and the cgroups.
//!
//! Groups that faulted lately are read at every tick. The others take turns where they are many, so that a thousand groups at rest
//! cost little: see [`TURN_TICKS`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::procfs::{Counters, MachineTime, Procfs};
use crate::sample::{Group, GroupSample, Sample};
use crate::tree::{Scope, Tree, Version};

/// Every group is read at least once in so many ticks, and at each until it has had no fault for as long: one that begins to fault
/// is seen so many ticks late at most.
const TURN_TICKS: usize = 10;
/// So many groups at rest are read at each tick: where there are no more, nothing is seen late.
const RESTING_A_TICK: usize = 64;

/// Remembers the reading before.
#[derive(Debug)]
pub(crate) struct Sampler {
    ticks_per_second: u64,
    at: Option<Duration>,
    machine: MachineTime,
    groups: BTreeMap<Group, Reading>,
    /// Lost microseconds, by pressure file.
    full_us: HashMap<PathBuf, u64>,
}

/// What was read of a group.
#[derive(Debug)]
struct Reading {
    at: Duration,
    /// Ticks for which it is still read at each.
    watched_ticks: usize,
    /// Its processes, by number.
    processes: Vec<(u32, Counters)>,
}

impl Sampler {
    pub(crate) fn new() -> Sampler {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let (groups, full_us) = (BTreeMap::new(), HashMap::new());
        Sampler { ticks_per_second, at: None, machine: MachineTime::default(), groups, full_us }
    }

    /// No ticks for a while: the next reading is the first of a sample, and gives none.
    pub(crate) fn pause(&mut self) {
        self.at = None;
    }

    /// Forgets groups that are no candidates of `scopes`.
    pub(crate) fn forget_others(&mut self, scopes: &[Scope]) {
        let candidates: HashSet<&Group> = scopes.iter().flat_map(|scope| &scope.candidates).collect();
        self.groups.retain(|group, _| candidates.contains(group));
    }

    /// A sample of each scope, at `now` of a clock that never goes back; none from the first reading. It has the groups whose turn it
    /// was; what was counted since they had it last is shared out evenly. Memory is measured of groups that faulted and of those in
    /// `measured`, which always have their turn.
    pub(crate) fn read(
        &mut self,
        now: Duration,
        tree: &Tree,
        procfs: &mut Procfs,
        scopes: &[Scope],
        measured: impl Fn(&Group) -> bool,
    ) -> io::Result<Option<Vec<Sample>>> {
        let (machine, processors) = procfs.machine_time()?;
        let elapsed_s = self.at.map(|at| now.saturating_sub(at).as_secs_f64()).filter(|elapsed| *elapsed > 0.0);
        let span = machine.all.saturating_sub(self.machine.all).max(1);
        let machine_cpu = 1.0 - machine.idle.saturating_sub(self.machine.idle) as f64 / span as f64;
        let pressure = procfs.root().join("pressure/io");
        let machine_io_full = self.io_full(procfs, pressure, elapsed_s);
        let uptime_s = procfs.uptime_s()?;
        let last_at_rest = self.last_at_rest(scopes);
        let mut samples = Vec::with_capacity(scopes.len());
        for scope in scopes {
            // Where scopes have no account of their own, the machine's is everybody's.
            let own = tree.file(&scope.group, "io.pressure");
            let has_own = tree.version() == Version::V2 && !scope.group.is_empty() && own.exists();
            let io_full = if has_own { self.io_full(procfs, own, elapsed_s) } else { machine_io_full };
            let mut groups = Vec::new();
            for group in &scope.candidates {
                let before = self.groups.get(group);
                let is_at_rest = before.is_none_or(|before| before.watched_ticks == 0);
                let turn = (before.map(|before| before.at), group);
                if is_at_rest && last_at_rest.as_ref().is_some_and(|(at, last)| turn > (*at, last)) && !measured(group)
                {
                    continue;
                }
                let (reading, faults, user_ticks) = self.group(now, uptime_s, procfs, &tree.processes(group), before);
                // A group without processes any more does not compete.
                if !reading.processes.is_empty() {
                    let (mut resident, mut swapped) = (0, 0);
                    if faults > 0 || measured(group) {
                        for (pid, _) in &reading.processes {
                            let memory = procfs.memory(*pid);
                            resident = u64::saturating_add(resident, memory.resident);
                            swapped = u64::saturating_add(swapped, memory.swapped);
                        }
                        // Shared pages are counted once for each process: together they are not more than the group is charged.
                        resident = resident.min(tree.held(group).unwrap_or(u64::MAX));
                    }
                    let span_s = before.map_or(0.0, |before| now.saturating_sub(before.at).as_secs_f64());
                    let share = elapsed_s.map_or(1.0, |elapsed_s| elapsed_s / span_s.max(elapsed_s));
                    let faults = (faults as f64 * share).ceil() as u64;
                    let user_s = user_ticks as f64 * share / self.ticks_per_second as f64;
                    groups.push(GroupSample {
                        group: group.clone(),
                        faults,
                        user_s,
                        resident,
                        swapped,
                        eligible: true,
                    });
                }
                self.groups.insert(group.clone(), reading);
            }
            let elapsed_s = elapsed_s.unwrap_or(0.0);
            samples.push(Sample { elapsed_s, machine_cpu, io_full, processors, groups });
        }
        (self.at, self.machine) = (Some(now), machine);
        Ok(elapsed_s.map(|_| samples))
    }

    /// The last of the groups at rest that have their turn, with the time of its reading before: those that were never read are
    /// first, then those read longest ago. None where all of them have it.
    fn last_at_rest(&self, scopes: &[Scope]) -> Option<(Option<Duration>, Group)> {
        let candidates = scopes.iter().flat_map(|scope| &scope.candidates);
        let mut at_rest: Vec<_> = candidates
            .map(|group| (self.groups.get(group), group))
            .filter(|(reading, _)| reading.is_none_or(|reading| reading.watched_ticks == 0))
            .map(|(reading, group)| (reading.map(|reading| reading.at), group))
            .collect();
        let most = RESTING_A_TICK.max(at_rest.len().div_ceil(TURN_TICKS));
        if at_rest.len() <= most {
            return None;
        }
        let (_, (at, group), _) = at_rest.select_nth_unstable(most - 1);
        Some((*at, (*group).clone()))
    }

    /// A reading of a group with the processes `pids`, and the faults and user ticks since the one `before`.
    fn group(
        &self,
        now: Duration,
        uptime_s: f64,
        procfs: &mut Procfs,
        pids: &[u32],
        before: Option<&Reading>,
    ) -> (Reading, u64, u64) {
        let mut processes: Vec<_> = pids.iter().filter_map(|pid| Some((*pid, procfs.counters(*pid)?))).collect();
        processes.sort_unstable_by_key(|(pid, _)| *pid);
        processes.shrink_to_fit();
        let (mut faults, mut user_ticks) = (0, 0);
        if let Some(before) = before {
            let span_s = now.saturating_sub(before.at).as_secs_f64();
            let born_after_ticks = ((uptime_s - span_s) * self.ticks_per_second as f64) as u64;
            for (pid, counters) in &processes {
                let before = before.of(*pid, *counters, born_after_ticks);
                faults = u64::saturating_add(faults, counters.major_faults.saturating_sub(before.major_faults));
                user_ticks = u64::saturating_add(user_ticks, counters.user_ticks.saturating_sub(before.user_ticks));
            }
        }
        let watched_ticks = match before {
            _ if faults > 0 => TURN_TICKS,
            Some(before) => before.watched_ticks.saturating_sub(1),
            // There is something to compare with at the next tick.
            None => 1,
        };
        (Reading { at: now, watched_ticks, processes }, faults, user_ticks)
    }

    /// The share of time that everything there lost to I/O, by a pressure file; 0 without one.
    fn io_full(&mut self, procfs: &mut Procfs, file: PathBuf, elapsed_s: Option<f64>) -> f64 {
        let Some(total) = procfs.full_us(&file) else { return 0.0 };
        let before = self.full_us.insert(file, total).unwrap_or(total);
        elapsed_s.map_or(0.0, |elapsed_s| (total.saturating_sub(before) as f64 / 1e6 / elapsed_s).min(1.0))
    }
}

impl Reading {
    /// What to subtract from a process's counters: those of this reading; nothing, if it was born since then; themselves, if it is
    /// only new in the group.
    fn of(&self, pid: u32, counters: Counters, born_after_ticks: u64) -> Counters {
        let known = self.processes.binary_search_by_key(&pid, |(pid, _)| *pid).map(|at| self.processes[at].1);
        match known {
            Ok(before) if before.started_ticks == counters.started_ticks => before,
            _ if counters.started_ticks >= born_after_ticks => Counters { major_faults: 0, user_ticks: 0, ..counters },
            _ => counters,
        }
    }
}
