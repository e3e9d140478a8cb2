//! Samples: differences between two readings of `/proc` and the cgroups.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::procfs::{Counters, MachineTime, Procfs};
use crate::sample::{Group, GroupSample, Sample};
use crate::tree::{Scope, Tree, Version};

/// Remembers the reading before.
#[derive(Debug)]
pub(crate) struct Sampler {
    ticks_per_second: u64,
    at: Option<Duration>,
    machine: MachineTime,
    processes: HashMap<u32, Counters>,
    /// Lost microseconds, by pressure file.
    full_us: HashMap<PathBuf, u64>,
}

impl Sampler {
    pub(crate) fn new() -> Sampler {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        let (processes, full_us) = (HashMap::new(), HashMap::new());
        Sampler { ticks_per_second, at: None, machine: MachineTime::default(), processes, full_us }
    }

    /// Forgets the reading before: the next one starts anew.
    pub(crate) fn forget(&mut self) {
        *self = Sampler::new();
    }

    /// A sample of each scope, at `now` of a clock that never goes back; none from the first reading. Memory is measured of groups
    /// that faulted and of those in `measured`.
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
        let born_after_ticks = elapsed_s.map(|elapsed_s| {
            let ago_ticks = elapsed_s * self.ticks_per_second as f64;
            procfs.uptime_s().map(|uptime_s| (uptime_s * self.ticks_per_second as f64 - ago_ticks) as u64)
        });
        let born_after_ticks = born_after_ticks.transpose()?;
        let mut seen = HashMap::with_capacity(self.processes.len());
        let mut samples = Vec::with_capacity(scopes.len());
        for scope in scopes {
            // Where scopes have no account of their own, the machine's is everybody's.
            let own = tree.file(&scope.group, "io.pressure");
            let has_own = tree.version() == Version::V2 && !scope.group.is_empty() && own.exists();
            let io_full = if has_own { self.io_full(procfs, own, elapsed_s) } else { machine_io_full };
            let mut groups = Vec::with_capacity(scope.candidates.len());
            for group in &scope.candidates {
                let processes = tree.processes(group);
                let (mut faults, mut user_ticks) = (0, 0);
                for pid in &processes {
                    let Some(counters) = procfs.counters(*pid) else { continue };
                    let before = self.before(*pid, counters, born_after_ticks);
                    faults += counters.major_faults.saturating_sub(before.major_faults);
                    user_ticks += counters.user_ticks.saturating_sub(before.user_ticks);
                    seen.insert(*pid, counters);
                }
                // A group without processes any more does not compete.
                if processes.is_empty() {
                    continue;
                }
                let (mut resident, mut swapped) = (0, 0);
                if faults > 0 || measured(group) {
                    for pid in &processes {
                        let memory = procfs.memory(*pid);
                        resident += memory.resident;
                        swapped += memory.swapped;
                    }
                    // Shared pages are counted once for each process: together they are not more than the group is charged.
                    resident = resident.min(tree.held(group).unwrap_or(u64::MAX));
                }
                let user_s = user_ticks as f64 / self.ticks_per_second as f64;
                groups.push(GroupSample { group: group.clone(), faults, user_s, resident, swapped, eligible: true });
            }
            let elapsed_s = elapsed_s.unwrap_or(0.0);
            samples.push(Sample { elapsed_s, machine_cpu, io_full, processors, groups });
        }
        (self.at, self.machine, self.processes) = (Some(now), machine, seen);
        Ok(elapsed_s.map(|_| samples))
    }

    /// What to subtract from a process's counters: those of the reading before; nothing, if it was born since then; themselves, if
    /// it is only new here.
    fn before(&self, pid: u32, counters: Counters, born_after_ticks: Option<u64>) -> Counters {
        match self.processes.get(&pid) {
            Some(before) if before.started_ticks == counters.started_ticks => *before,
            _ if born_after_ticks.is_some_and(|ticks| counters.started_ticks >= ticks) => {
                Counters { major_faults: 0, user_ticks: 0, ..counters }
            }
            _ => counters,
        }
    }

    /// The share of time that everything there lost to I/O, by a pressure file; 0 without one.
    fn io_full(&mut self, procfs: &mut Procfs, file: PathBuf, elapsed_s: Option<f64>) -> f64 {
        let Some(total) = procfs.full_us(&file) else { return 0.0 };
        let before = self.full_us.insert(file, total).unwrap_or(total);
        elapsed_s.map_or(0.0, |elapsed_s| (total.saturating_sub(before) as f64 / 1e6 / elapsed_s).min(1.0))
    }
}
