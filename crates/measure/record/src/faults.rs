//! Page faults in mappings of files, from the kernel's performance events.
//!
//! The kernel maps the cached pages around the one that a program touches, up to 64 KiB (since Linux 6.18 sometimes up to 2 MiB, if one
//! call wrote or read them), so most accesses through a mapping cause no fault: those that are reported are a sample. Not reported are faults during system calls (a `write` of mapped memory), and the end of
//! mappings, so that memory in their place may be taken for the file until something else is mapped there.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::ops::Bound::{Included, Unbounded};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, OnceLock};

use nigh_pattern::module_token;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::files::{Found, Inode};
use crate::program::base_name;

const PAGE_BYTES: u64 = 4096;

/// Bytes of each processor's ring, of which users that are not root may lock 516 KiB by default.
const RING_BYTES: usize = 512 << 10;

/// The flag of a new name that a process got by executing a program (`PERF_RECORD_MISC_COMM_EXEC`).
const EXECUTES: u16 = 1 << 13;

/// Page faults of programs that are started by this thread, and of their children.
pub(crate) struct Faults {
    rings: Vec<Sampler>,
    events: VecDeque<Event>,
    processes: HashMap<u32, Process>,
    lost: u64,
}

/// The event.
pub(crate) enum Seen {
    Mapped(Arc<Mapped>),
    Fault(Fault),
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
    /// As in [`Found`].
    born_ns: u64,
    names: u64,
    /// Its name as a module, and the hash of that.
    pub(crate) name: String,
    pub(crate) token: u64,
    /// Its number in the recording, which the recorder sets when it is mapped: later, it may have no name any more.
    pub(crate) number: OnceLock<Option<u32>>,
}

#[derive(Clone)]
struct Process {
    /// Up to 15 bytes of its name.
    program: Arc<str>,
    threads: u32,
    /// By their first addresses.
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Clone)]
struct Mapping {
    end: u64,
    /// The place in the file of the first address.
    offset: u64,
    /// Address at which the beginning of the file is mapped.
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
        Ok(Faults { rings, events: VecDeque::new(), processes: HashMap::new(), lost: 0 })
    }

    /// Events that were not reported, because they came faster than they were read: faults, and mappings whose faults are then
    /// missing.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads what the kernel reported up to here.
    pub(crate) fn read(&mut self) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                // Newer kernels may have records that the crate cannot parse.
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
        self.events.make_contiguous().sort_by_key(|event| event.time_ns);
    }

    /// The next fault, or the next file that was mapped, before a time. Later events wait: an earlier event of another processor
    /// may not have been read yet.
    pub(crate) fn next(&mut self, before_ns: u64) -> Option<Seen> {
        while self.events.front().is_some_and(|event| event.time_ns < before_ns) {
            let Event { time_ns, pid, what } = self.events.pop_front()?;
            match what {
                What::Map { begin, mapping } => {
                    let Some(process) = self.processes.get_mut(&pid) else { continue };
                    let file = mapping.file.clone();
                    process.map(begin, mapping);
                    if let Some(file) = file {
                        return Some(Seen::Mapped(file));
                    }
                }
                What::Fork { parent } if parent == pid => {
                    self.processes.entry(pid).and_modify(|process| process.threads += 1);
                }
                What::Fork { parent } => {
                    if let Some(process) = self.processes.get(&parent).cloned() {
                        self.processes.insert(pid, Process { threads: 1, ..process });
                    }
                }
                What::Execute { program } => {
                    self.processes.insert(pid, Process { program, threads: 1, mappings: BTreeMap::new() });
                }
                What::Exit => {
                    let Some(process) = self.processes.get_mut(&pid) else { continue };
                    process.threads = process.threads.saturating_sub(1);
                    if process.threads == 0 {
                        self.processes.remove(&pid);
                    }
                }
                What::Fault { tid, address, code } => {
                    let Some(process) = self.processes.get(&pid) else { continue };
                    let Some((file, begin, mapping)) = process.find(address) else { continue };
                    let offset = (mapping.offset + (address - begin)) / PAGE_BYTES * PAGE_BYTES;
                    let code = process.find(code).map(|(file, _, mapping)| (file.clone(), code - mapping.base));
                    let program = process.program.clone();
                    return Some(Seen::Fault(Fault { time_ns, pid, tid, program, file: file.clone(), offset, code }));
                }
            }
        }
        None
    }
}

impl Mapped {
    pub(crate) fn found(&self) -> Found {
        Found { inode: self.inode, path: self.path.clone(), born_ns: self.born_ns, names: self.names }
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
        // Parts outside of what it covers stay.
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
        Record::Fork(fork) => Some(Event { time_ns, pid: fork.pid, what: What::Fork { parent: fork.ppid } }),
        Record::Comm(comm) if executes => {
            let program = String::from_utf8_lossy(&comm.comm).into();
            Some(Event { time_ns, pid: comm.pid, what: What::Execute { program } })
        }
        Record::Exit(exit) => Some(Event { time_ns, pid: exit.pid, what: What::Exit }),
        _ => None,
    }
}

/// The file of a mapping; `None` if it is none, or what the kernel reports of itself.
fn mapped(major: u32, minor: u32, inode: u64, path: &[u8]) -> Option<Mapped> {
    const OTHER: [&str; 7] = ["/dev/", "/proc/", "/sys/", "/memfd:", "/SYSV", "/anon_hugepage", "/["];
    let path = String::from_utf8_lossy(path).into_owned();
    if inode == 0 || !path.starts_with('/') {
        return None;
    }
    let found = fs::metadata(&path).ok().filter(|found| found.ino() == inode);
    let is_file = match &found {
        Some(found) => found.is_file() || found.file_type().is_block_device(),
        // It has no name any more.
        None => !OTHER.iter().any(|other| path.starts_with(other)),
    };
    // Programs, and the recording library, may see another number than the device's: that of a subvolume.
    let device = found.as_ref().map_or_else(|| libc::makedev(major, minor), MetadataExt::dev);
    let (born_ns, names) = found.map_or((0, 0), |found| {
        let found = Found::new(&found, String::new());
        (found.born_ns, found.names)
    });
    let name = base_name(path.as_bytes());
    let token = module_token(name.as_bytes());
    is_file.then(|| Mapped { inode: (device, inode), path, born_ns, names, name, token, number: OnceLock::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of file `inode` from page `offset` of it on.
    fn mapping(inode: u64, begin: u64, end: u64, offset: u64) -> Mapping {
        let number = OnceLock::new();
        let (path, name) = (String::new(), String::new());
        let file = Mapped { inode: (1, inode), path, born_ns: 0, names: 1, name, token: 0, number };
        Mapping { end, offset, base: begin, file: (inode > 0).then(|| Arc::new(file)) }
    }

    fn process(mappings: &[(u64, u64, u64, u64)]) -> Process {
        let mut process = Process { program: "p".into(), threads: 1, mappings: BTreeMap::new() };
        for &(inode, begin, end, offset) in mappings {
            process.map(begin, mapping(inode, begin, end, offset));
        }
        process
    }

    /// The file and its byte at an address, and where its first part is mapped.
    fn at(process: &Process, address: u64) -> Option<(u64, u64, u64)> {
        let (file, begin, mapping) = process.find(address)?;
        Some((file.inode.1, mapping.offset + address - begin, mapping.base))
    }

    #[test]
    fn a_mapping_replaces_what_it_covers() {
        let process = process(&[(1, 100, 200, 0), (2, 120, 150, 10)]);
        assert_eq!([99, 100, 119].map(|address| at(&process, address)), [None, Some((1, 0, 100)), Some((1, 19, 100))]);
        assert_eq!([120, 149].map(|address| at(&process, address)), [Some((2, 10, 120)), Some((2, 39, 120))]);
        assert_eq!(
            [150, 199, 200].map(|address| at(&process, address)),
            [Some((1, 50, 100)), Some((1, 99, 100)), None]
        );
        let process = self::process(&[(1, 100, 200, 0), (2, 300, 400, 0), (0, 150, 350, 0)]);
        assert_eq!(
            [149, 150, 349, 350].map(|address| at(&process, address)),
            [Some((1, 49, 100)), None, None, Some((2, 50, 300))],
            "memory without a file"
        );
    }

    /// As the dynamic linker maps libraries: all of it, and then its parts over that.
    #[test]
    fn parts_of_a_library_have_its_beginning() {
        let process = process(&[(7, 1000, 2000, 0), (7, 1200, 1500, 200), (7, 1500, 1800, 500), (0, 1800, 2000, 0)]);
        assert_eq!(
            [1000, 1300, 1600, 1900].map(|address| at(&process, address)),
            [Some((7, 0, 1000)), Some((7, 300, 1000)), Some((7, 600, 1000)), None]
        );
    }
}
