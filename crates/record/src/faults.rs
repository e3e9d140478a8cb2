//! Page faults in mappings of files, from the kernel's performance events.
//!
//! The kernel maps the cached pages around the one that a program touches, up to 64 KiB, so most accesses through a mapping cause no
//! fault: those that are reported are a sample.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::Bound::{Included, Unbounded};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nigh_pattern::module_token;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::files::Inode;
use crate::program::base_name;

const PAGE_BYTES: u64 = 4096;

/// Bytes of each processor's ring, of which users that are not root may lock 516 KiB by default.
const RING_BYTES: usize = 512 << 10;

/// The flag of a new name that a process got by executing a program (`PERF_RECORD_MISC_COMM_EXEC`).
const EXECUTES: u16 = 1 << 13;

/// Page faults of programs that are started by this thread, and of their children.
pub(crate) struct Faults {
    rings: Vec<Sampler>,
    events: Vec<Event>,
    processes: HashMap<u32, Process>,
    lost: u64,
}

/// A page that a program touched.
pub(crate) struct Fault {
    pub(crate) time_ns: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Up to 15 bytes of the program's name.
    pub(crate) program: Arc<str>,
    pub(crate) file: Arc<Mapped>,
    pub(crate) offset: u64,
    /// The module whose code touched it, and the offset of this code.
    pub(crate) code: Option<(Arc<Mapped>, u64)>,
}

/// A file that is mapped.
pub(crate) struct Mapped {
    pub(crate) inode: Inode,
    pub(crate) path: String,
    /// Its name as a module, and the hash of that.
    pub(crate) name: String,
    pub(crate) token: u64,
}

#[derive(Clone)]
struct Process {
    /// Up to 15 bytes of its name.
    program: Arc<str>,
    /// By their first addresses.
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Clone)]
struct Mapping {
    end: u64,
    /// The place in the file of the first address.
    offset: u64,
    /// Where the file is mapped at its beginning.
    base: u64,
    file: Option<Arc<Mapped>>,
}

struct Event {
    time_ns: u64,
    pid: u32,
    what: What,
}

enum What {
    Map { begin: u64, mapping: Mapping },
    Fork { parent: u32 },
    Execute { program: Arc<str> },
    Exit,
    Fault { tid: u32, address: u64, code: u64 },
}

impl Faults {
    /// Faults of the programs that this thread starts from now on.
    pub(crate) fn of_children() -> io::Result<Faults> {
        let mut event = Builder::new(Software::PAGE_FAULTS);
        let samples = SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::ADDR;
        event.observe_self().inherit(true).enabled(false).enable_on_exec(true).exclude_kernel(true).sample_period(1);
        event.sample(samples).sample_id_all(true).clockid(Clock::MONOTONIC);
        event.mmap(true).mmap2(true).mmap_data(true).task(true).comm(true).comm_exec(true);
        let rings = processors()?.into_iter().map(|number| event.one_cpu(number).build()?.sampled(RING_BYTES));
        let rings = rings.collect::<io::Result<_>>()?;
        Ok(Faults { rings, events: Vec::new(), processes: HashMap::new(), lost: 0 })
    }

    /// Faults that were not reported, because they came faster than they were read.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls `each` with the faults before a time, in their order. What came later waits: an earlier event of another processor may
    /// not have been read yet.
    pub(crate) fn take(&mut self, before_ns: u64, mut each: impl FnMut(Fault)) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                // Whatever cannot be parsed is of a kernel that is newer than the parser.
                let Ok(parsed) = record.parse_record() else { continue };
                if let Record::Lost(lost) = parsed {
                    self.lost += lost.lost;
                    continue;
                }
                // All events but samples end with their thread and their time.
                let bytes = record.to_contiguous();
                let time_ns = bytes.last_chunk().map_or(0, |time| u64::from_ne_bytes(*time));
                let executes = record.misc() & EXECUTES != 0;
                self.events.extend(event(parsed, executes, time_ns));
            }
        }
        self.events.sort_by_key(|event| event.time_ns);
        let ready = self.events.partition_point(|event| event.time_ns < before_ns);
        for Event { time_ns, pid, what } in self.events.drain(..ready) {
            match what {
                What::Map { begin, mapping } => {
                    if let Some(process) = self.processes.get_mut(&pid) {
                        process.map(begin, mapping);
                    }
                }
                What::Fork { parent } => {
                    if let Some(process) = self.processes.get(&parent).cloned() {
                        self.processes.insert(pid, process);
                    }
                }
                What::Execute { program } => {
                    self.processes.insert(pid, Process { program, mappings: BTreeMap::new() });
                }
                What::Exit => drop(self.processes.remove(&pid)),
                What::Fault { tid, address, code } => {
                    let Some(process) = self.processes.get(&pid) else { continue };
                    let Some((file, begin, mapping)) = process.find(address) else { continue };
                    let offset = (mapping.offset + (address - begin)) / PAGE_BYTES * PAGE_BYTES;
                    let code = process.find(code).map(|(file, _, mapping)| (file.clone(), code - mapping.base));
                    let program = process.program.clone();
                    each(Fault { time_ns, pid, tid, program, file: file.clone(), offset, code });
                }
            }
        }
    }
}

impl Process {
    /// The mapping of a file at an address, with the file and where the mapping begins.
    fn find(&self, address: u64) -> Option<(&Arc<Mapped>, u64, &Mapping)> {
        let (&begin, mapping) = self.mappings.range((Unbounded, Included(address))).next_back()?;
        let file = mapping.file.as_ref().filter(|_| address < mapping.end)?;
        Some((file, begin, mapping))
    }

    fn map(&mut self, begin: u64, mut mapping: Mapping) {
        // Parts of one file are mapped one after the other.
        if let Some((_, before)) = self.mappings.range(..begin).next_back()
            && let (Some(file), Some(other)) = (&mapping.file, &before.file)
            && (file.inode == other.inode && mapping.offset > 0)
        {
            mapping.base = before.base;
        }
        // What it replaces is over, but for the ends.
        let end = mapping.end;
        let overlapping = |(_, other): &(&u64, &Mapping)| other.end > begin;
        let replaced: Vec<u64> = self.mappings.range(..end).rev().take_while(overlapping).map(|(&at, _)| at).collect();
        for at in replaced {
            let Some(mut other) = self.mappings.remove(&at) else { continue };
            if other.end > end {
                let rest = Mapping { offset: other.offset + (end - at), ..other.clone() };
                self.mappings.insert(end, rest);
            }
            if at < begin {
                other.end = begin;
                self.mappings.insert(at, other);
            }
        }
        self.mappings.insert(begin, mapping);
    }
}

/// The numbers of the processors that run, as the kernel lists them: `0-3,8`.
fn processors() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    let numbers = ranges.map(|ranges| ranges.into_iter().flatten().collect());
    numbers.ok_or_else(|| io::Error::other(format!("unexpected processors: {text:?}")))
}

fn event(record: Record, executes: bool, time_ns: u64) -> Option<Event> {
    match record {
        Record::Sample(sample) => {
            let (pid, tid) = (sample.pid()?, sample.tid()?);
            let what = What::Fault { tid, address: sample.addr()?, code: sample.ip()? };
            Some(Event { time_ns: sample.time()?, pid, what })
        }
        Record::Mmap2(map) => {
            let mapping = Mapping {
                end: map.addr.checked_add(map.len)?,
                offset: map.pgoff,
                base: map.addr,
                file: mapped(map.maj()?, map.min()?, map.ino()?, &map.filename).map(Arc::new),
            };
            Some(Event { time_ns, pid: map.pid, what: What::Map { begin: map.addr, mapping } })
        }
        Record::Fork(fork) if fork.pid != fork.ppid => {
            Some(Event { time_ns, pid: fork.pid, what: What::Fork { parent: fork.ppid } })
        }
        Record::Comm(comm) if executes => {
            let program = String::from_utf8_lossy(&comm.comm).trim_end_matches('\0').into();
            Some(Event { time_ns, pid: comm.pid, what: What::Execute { program } })
        }
        Record::Exit(exit) if exit.pid == exit.tid => Some(Event { time_ns, pid: exit.pid, what: What::Exit }),
        _ => None,
    }
}

/// The file of a mapping; `None` if it is none, or what the kernel reports of itself.
fn mapped(major: u32, minor: u32, inode: u64, path: &[u8]) -> Option<Mapped> {
    let path = String::from_utf8_lossy(path.split(|&byte| byte == 0).next()?).into_owned();
    let is_file = inode != 0
        && path.starts_with('/')
        && !["/proc/", "/sys/", "/memfd:", "/SYSV"].iter().any(|other| path.starts_with(other));
    if !is_file {
        return None;
    }
    // Programs, and the recording library, may see another number than the device's: that of a subvolume.
    let known = fs::metadata(&path).ok().filter(|found| found.ino() == inode);
    let device = known.map_or_else(|| libc::makedev(major, minor), |found| found.dev());
    let name = base_name(path.as_bytes());
    let token = module_token(name.as_bytes());
    Some(Mapped { inode: (device, inode), path, name, token })
}
