//! Machines made of files: cgroups and `/proc` as the guard meets them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nigh_guard::{
    Detector, Group, GroupSample, Guard, GuardError, Journal, Next, Procfs, Profile, Sample, Settings, Tree, Version,
    Writer,
};

pub(crate) const MIB: u64 = 1 << 20;

/// A sample of a second of the default machine.
pub(crate) fn sample(machine_cpu: f64, groups: &[(&str, u64, u64)]) -> Sample {
    let groups = groups.iter().map(|(group, faults, swapped_mib)| GroupSample {
        group: Group::from(*group),
        faults: *faults,
        of_files: None,
        user_s: 0.05,
        waiting_s: 0.0,
        resident: 100 * MIB,
        swapped: swapped_mib * MIB,
        eligible: true,
    });
    Sample { elapsed_s: 1.0, machine_cpu, io_full: 0.0, groups: groups.collect() }
}

pub(crate) fn settings() -> Settings {
    Settings {
        profile: Profile::MODERN,
        allow: Vec::new(),
        deny: Vec::new(),
        mechanism: None,
        prefetch: false,
        freeze: Duration::ZERO,
        command: None,
    }
}

/// `detector` with `sample`s until it protects; panics if it does not in ten.
pub(crate) fn until_protected(detector: &mut Detector, sample: &Sample, limit: u64) -> Group {
    for _ in 0..10 {
        detector.tick(sample, limit);
        if let Some(group) = detector.protected() {
            return group.clone();
        }
    }
    panic!("nothing is protected: {detector:?}");
}

/// A process of a fake machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) group: String,
    pub(crate) faults: u64,
    pub(crate) user_ticks: u64,
    /// Time that each of its threads waited for a processor; without threads, the kernel does not count it.
    pub(crate) waited_ms: Vec<u64>,
    pub(crate) resident_mib: u64,
    pub(crate) swapped_mib: u64,
}

/// A kernel made of files.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    version: Version,
    pub(crate) processes: BTreeMap<u32, Process>,
    seconds: u64,
    faults: u64,
    /// Major faults read from files, of all: the others are from swap.
    pub(crate) file_faults: u64,
}

impl Machine {
    pub(crate) fn new(version: Version) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { folder, version, processes: BTreeMap::new(), seconds: 1000, faults: 0, file_faults: 0 };
        fs::create_dir_all(machine.proc().join("pressure")).unwrap();
        fs::create_dir_all(machine.memory("")).unwrap();
        match version {
            Version::V1 => fs::create_dir_all(machine.cgroups().join("freezer")).unwrap(),
            Version::V2 => fs::write(machine.memory("cgroup.controllers"), "cpu io memory\n").unwrap(),
        }
        machine.group("", None);
        machine.write_proc();
        machine
    }

    /// Two programs of `scope`, which is limited to 256 MiB, that need about 40 % more: gz with much in swap (process 10), vx with little (11).
    pub(crate) fn thrashing(version: Version) -> Machine {
        let mut machine = Machine::new(version);
        machine.group("box", Some(256 * MIB));
        machine.process(10, "box/gz", 149, 61);
        machine.process(11, "box/vx", 96, 20);
        machine
    }

    pub(crate) fn cgroups(&self) -> PathBuf {
        self.folder.path().join("cgroup")
    }

    pub(crate) fn proc(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("run/journal")
    }

    /// A file of the memory controller, such as `box/gz/memory.low`.
    pub(crate) fn memory(&self, file: &str) -> PathBuf {
        match self.version {
            Version::V1 => self.cgroups().join("memory").join(file),
            Version::V2 => self.cgroups().join(file),
        }
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.memory(file)).unwrap_or_else(|error| panic!("{file}: {error}")).trim().to_owned()
    }

    pub(crate) fn write(&self, file: &str, value: &str) {
        fs::write(self.memory(file), value).unwrap();
    }

    /// A group with the files of its version.
    pub(crate) fn group(&self, group: &str, limit: Option<u64>) {
        fs::create_dir_all(self.memory(group)).unwrap();
        let files: &[(&str, &str)] = match self.version {
            Version::V1 => &[
                ("memory.limit_in_bytes", "9223372036854771712"),
                ("memory.usage_in_bytes", "0"),
                ("memory.swappiness", "60"),
                ("cgroup.procs", ""),
            ],
            Version::V2 => &[
                ("memory.max", "max"),
                ("memory.high", "max"),
                ("memory.low", "0"),
                ("memory.min", "0"),
                ("memory.current", "0"),
                ("cgroup.freeze", "0"),
                ("cgroup.procs", ""),
            ],
        };
        for (name, value) in files {
            // The root has no limits of its own.
            if !(group.is_empty() && self.version == Version::V2 && name.starts_with("memory.")) {
                fs::write(self.memory(group).join(name), format!("{value}\n")).unwrap();
            }
        }
        if let Some(limit) = limit {
            let name = if self.version == Version::V1 { "memory.limit_in_bytes" } else { "memory.max" };
            self.write(&format!("{group}/{name}"), &limit.to_string());
        }
        if self.version == Version::V1 {
            let freezer = self.cgroups().join("freezer").join(group);
            fs::create_dir_all(&freezer).unwrap();
            fs::write(freezer.join("freezer.state"), "THAWED\n").unwrap();
        }
    }

    /// A process in a group of its own.
    pub(crate) fn process(&mut self, pid: u32, group: &str, resident_mib: u64, swapped_mib: u64) {
        self.group(group, None);
        fs::write(self.memory(group).join("cgroup.procs"), format!("{pid}\n")).unwrap();
        let usage = if self.version == Version::V1 { "memory.usage_in_bytes" } else { "memory.current" };
        self.write(&format!("{group}/{usage}"), &(resident_mib * MIB).to_string());
        let process = Process { group: group.to_owned(), resident_mib, swapped_mib, ..Process::default() };
        self.processes.insert(pid, process);
        self.write_process(pid);
    }

    /// A group vanishes, as `rmdir` makes it.
    pub(crate) fn vanish(&mut self, group: &str) {
        fs::remove_dir_all(self.memory(group)).unwrap();
        self.processes.retain(|_, process| process.group != group);
    }

    fn write_proc(&self) {
        let proc = self.proc();
        let total = self.seconds * 100;
        replace(proc.join("stat"), format!("cpu  {} 0 0 {} 0 0 0 0 0 0\ncpu0 0 0 0 0\n", total / 5, total - total / 5));
        let (faults, from_swap) = (self.faults, self.faults - self.file_faults);
        let vmstat = format!("pgfault 5\nworkingset_refault_anon {from_swap}\npgmajfault {faults}\n");
        replace(proc.join("vmstat"), vmstat);
        replace(proc.join("uptime"), format!("{}.00 1.00\n", self.seconds));
        replace(proc.join("meminfo"), format!("MemTotal: {} kB\n", 8 << 20));
    }

    fn write_process(&self, pid: u32) {
        let folder = self.proc().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let Process { faults, user_ticks, waited_ms, resident_mib, swapped_mib, .. } = &self.processes[&pid];
        let threads = waited_ms.len().max(1);
        let stat = format!("{pid} (a) b) R 1 1 1 0 -1 0 7 0 {faults} 0 {user_ticks} 3 0 0 20 0 {threads} 0 500 0 0\n");
        replace(folder.join("stat"), stat);
        for (thread, waited_ms) in (pid..).zip(waited_ms) {
            let task = folder.join(format!("task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            let schedstat = format!("77000000 {} 5\n", waited_ms * 1_000_000);
            replace(task.join("schedstat"), schedstat.clone());
            // That of a process is that of its first thread.
            if thread == pid {
                replace(folder.join("schedstat"), schedstat);
            }
        }
        let (resident_kib, swapped_kib) = (resident_mib << 10, swapped_mib << 10);
        let status = format!("Name:\ta\nVmRSS:\t{resident_kib} kB\nVmSwap:\t{swapped_kib} kB\n");
        replace(folder.join("status"), status);
    }

    /// A second in which each process has this many major faults.
    pub(crate) fn second(&mut self, faults: &[(u32, u64)]) {
        self.seconds += 1;
        for (pid, more) in faults {
            self.faults += more;
            if let Some(process) = self.processes.get_mut(pid) {
                process.faults += more;
                process.user_ticks += 1;
                self.write_process(*pid);
            }
        }
        self.write_proc();
    }

    /// Such a second, and the guard's tick after it.
    pub(crate) fn tick(&mut self, guard: &mut Guard, faults: &[(u32, u64)]) -> Result<Next, GuardError> {
        self.second(faults);
        guard.tick(self.now())
    }

    /// Seconds in which both of the thrashing programs fault.
    pub(crate) fn thrash(&mut self, guard: &mut Guard, seconds: u32) {
        for _ in 0..seconds {
            self.tick(guard, &[(10, 333), (11, 340)]).unwrap();
        }
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::open(&self.cgroups(), "").unwrap()
    }

    pub(crate) fn open_journal(&self) -> Journal {
        Journal::open(&self.journal(), Writer::Files).unwrap()
    }

    pub(crate) fn guard(&self, settings: Settings) -> Guard {
        Guard::new(settings, self.tree(), Procfs::new(&self.proc()), Some(self.open_journal())).unwrap()
    }

    pub(crate) fn dry_guard(&self, settings: Settings) -> Guard {
        Guard::new(settings, self.tree(), Procfs::new(&self.proc()), None).unwrap()
    }

    /// The group that is protected in the only scope where one is.
    pub(crate) fn protected(&self, guard: &Guard) -> Option<String> {
        let status = guard.status(self.now());
        let mut protected: Vec<_> = status.scopes.into_iter().filter_map(|scope| scope.protected).collect();
        assert!(protected.len() <= 1, "{protected:?}");
        protected.pop()
    }

    /// Everything that the memory and freezer controllers hold: file and value.
    pub(crate) fn values(&self) -> BTreeMap<PathBuf, String> {
        let mut values = BTreeMap::new();
        collect(&self.cgroups(), &mut values);
        values
    }
}

/// Calls of `read` that this thread has made, where the kernel counts them.
pub(crate) fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok())
}

/// A file's new content at once: a guard may read meanwhile.
fn replace(path: PathBuf, text: String) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn collect(folder: &Path, values: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, values);
        } else {
            let value = fs::read_to_string(&path).unwrap().trim().to_owned();
            values.insert(path, value);
        }
    }
}
