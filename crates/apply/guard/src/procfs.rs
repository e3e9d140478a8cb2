//! Reads `/proc`: the counters of the machine and its processes.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A mounted `/proc`, or a tree of files with its structure, and a buffer for its files.
#[derive(Debug)]
pub struct Procfs {
    root: PathBuf,
    path: String,
    text: Vec<u8>,
}

/// The most threads of a process that are read one by one.
const THREADS_MOST: u32 = 64;

/// The counters of one process that detection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) major_faults: u64,
    /// User mode, in clock ticks.
    pub(crate) user_ticks: u64,
    pub(crate) threads: u32,
    /// Its start, in clock ticks since the machine started.
    pub(crate) started_ticks: u64,
}

/// The machine's processor time since it started, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTime {
    pub(crate) idle: u64,
    pub(crate) all: u64,
}

/// Fault counts of the machine since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineFaults {
    /// Major faults.
    pub(crate) major: u64,
    /// Pages read back from swap; `None` if the kernel does not report them.
    pub(crate) from_swap: Option<u64>,
}

/// Memory of one process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) swapped: u64,
}

impl Procfs {
    /// The `/proc` mounted at `root`.
    pub fn new(root: &Path) -> Procfs {
        Procfs { root: root.to_owned(), path: String::new(), text: Vec::new() }
    }

    /// Its mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The memory of the machine in bytes.
    pub fn memory_total(&mut self) -> io::Result<u64> {
        let text = self.read("meminfo")?;
        kibibytes(text, "MemTotal:").ok_or_else(|| unexpected("meminfo"))
    }

    /// Faults of the whole machine.
    pub(crate) fn machine_faults(&mut self) -> io::Result<MachineFaults> {
        let text = self.read("vmstat")?;
        let number = |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let major = number("pgmajfault ").ok_or_else(|| unexpected("vmstat"))?;
        // Before 5.9 the kernel counted only pages from devices, not those from zswap.
        let from_swap = number("workingset_refault_anon ").or_else(|| number("pswpin "));
        Ok(MachineFaults { major, from_swap })
    }

    /// Processor time of the machine.
    pub(crate) fn machine_time(&mut self) -> io::Result<MachineTime> {
        let text = self.read("stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).ok_or_else(|| unexpected("stat"))?;
        // user nice system idle iowait irq softirq steal; guests are part of user.
        let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, idle, iowait, ..] = ticks[..] else { return Err(unexpected("stat")) };
        let all = ticks.iter().copied().fold(0, u64::saturating_add);
        Ok(MachineTime { idle: idle.saturating_add(iowait), all })
    }

    /// Seconds since the machine started.
    pub(crate) fn uptime_s(&mut self) -> io::Result<f64> {
        let text = self.read("uptime")?;
        text.split(' ').next().and_then(|word| word.parse().ok()).ok_or_else(|| unexpected("uptime"))
    }

    /// The counters of a process, if it still exists.
    pub(crate) fn counters(&mut self, pid: u32) -> Option<Counters> {
        let text = self.read_process(pid, "stat").ok()?;
        // The name can contain anything, including a parenthesis or a line end.
        let behind_name = text.rsplit_once(')')?.1;
        let mut words = behind_name.split_ascii_whitespace();
        let major_faults = words.nth(12 - 3)?.parse().ok()?;
        let user_ticks = words.nth(1)?.parse().ok()?;
        let threads = words.nth(20 - 14 - 1)?.parse().ok()?;
        let started_ticks = words.nth(22 - 20 - 1)?.parse().ok()?;
        Some(Counters { major_faults, user_ticks, threads, started_ticks })
    }

    /// Nanoseconds for which the `threads` threads of a process were ready and waited for a processor; `None` if the kernel does not
    /// count them, and for more than [`THREADS_MOST`] threads.
    pub(crate) fn waited_ns(&mut self, pid: u32, threads: u32) -> Option<u64> {
        let waited_ns = |text: &str| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
        match threads {
            0 | 1 => waited_ns(self.read_process(pid, "schedstat").ok()?),
            2..=THREADS_MOST => {
                let tasks = std::fs::read_dir(self.root.join(format!("{pid}/task"))).ok()?.flatten();
                // A thread that ended meanwhile is not counted.
                tasks
                    .filter_map(|task| waited_ns(read_into(&mut self.text, &task.path().join("schedstat")).ok()?))
                    .reduce(u64::saturating_add)
            }
            _ => None,
        }
    }

    /// The memory of a process; zero if it has ended.
    pub(crate) fn memory(&mut self, pid: u32) -> Memory {
        let Ok(text) = self.read_process(pid, "status") else { return Memory::default() };
        let bytes = |name| kibibytes(text, name).unwrap_or(0);
        Memory { resident: bytes("VmRSS:"), swapped: bytes("VmSwap:") }
    }

    /// Microseconds in which all non-idle tasks were stalled: the total of the line `full` of a pressure file.
    pub(crate) fn full_us(&mut self, file: &Path) -> Option<u64> {
        let text = read_into(&mut self.text, file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
    }

    fn read(&mut self, name: &str) -> io::Result<&str> {
        read_into(&mut self.text, &self.root.join(name))
    }

    fn read_process(&mut self, pid: u32, name: &str) -> io::Result<&str> {
        self.path.clear();
        // Writing to a string does not fail.
        let _ = write!(self.path, "{}/{pid}/{name}", self.root.display());
        read_into(&mut self.text, Path::new(&self.path))
    }
}

/// The file's text, up to the first byte that is not UTF-8: only names of processes contain such bytes, and these are
/// never used.
fn read_into<'a>(text: &'a mut Vec<u8>, path: &Path) -> io::Result<&'a str> {
    /// Longer files are not read to their end: everything needed comes before.
    const MOST: u64 = 64 << 10;
    text.clear();
    File::open(path)?.take(MOST).read_to_end(text)?;
    if std::str::from_utf8(text).is_err() {
        let clean = String::from_utf8_lossy(text).into_owned();
        *text = clean.into_bytes();
    }
    Ok(std::str::from_utf8(text).unwrap_or_default())
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

fn unexpected(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} has an unexpected format"))
}
