//! Reads the rings of all processes, and turns records into calls of a recording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nigh_pattern::{module_token, pc};
use nigh_ring::{
    EXEC_FAILED, EXEC_WITH_LIBRARY, FRAMES, Kind, MODULE_SHIFT, PATH_BYTES, PROGRAM, Reader, Record, SLOTS, Unseen,
};
use nigh_trace::format::parquet::{Call, Context, Did};
use nigh_trace::{Gaps, Op, Request};

use crate::faults::{Fault, Faults, Mapped, Seen};
use crate::files::{Files, Found};
use crate::program::{Program, Unrecordable, base_name, is_program};
use crate::session::{TAKEN, shared_file};
use crate::{Writer, build_id, now_ns};

/// How many return addresses identify the code of `ra0`, `pc5`, `pc8` and `pc16`.
pub(crate) const DEPTHS: [usize; 4] = [1, 5, 8, 16];

/// How many of them the stream has, as in the paper's section 4.1.
pub(crate) const STREAM_DEPTH: usize = 5;

/// The longest path that a process announces.
const PATH_MOST: u32 = 4 * PATH_BYTES as u32;

/// The most programs that are listed as not recorded.
const MISSED_MOST: usize = 100;

/// Why a program that should load the library is not recorded.
const UNREACHED: &str = "it could not use nigh's folder: no room there, a limit on its files or on its system calls (seccomp), or \
                         another user";

/// Why calls of a program are missing.
const LIMITED: &str = "in part: it limits its system calls (seccomp)";

/// The most programs that are expected to appear.
const EXPECTED_MOST: usize = 4096;

/// Programs with this many records in a ring at a time may fill it before the next round.
const BUSY: usize = SLOTS / 16;

/// Why calls of a program are missing.
const SHORTENED: &str = "in part: the file that it shares with the recorder was shortened";

/// Why requests of a program are missing.
const UNSEEN_RING: &str = "in part: its requests by io_uring are not seen; with --ptrace they are";

/// How long after the start of a process its descriptors are looked at, and how that time grows.
const LOOK_NS: u64 = 5_000_000;
const LOOK_GROWS: u64 = 2;
const LOOK_NS_MOST: u64 = 2_000_000_000;

/// Bytes that a page fault makes accessible, at least.
const PAGE_BYTES: u32 = 4096;

/// Counts of the recording so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Calls in the recording, and page faults.
    pub calls: u64,
    /// Processes that loaded the library: one for each program that is executed.
    pub processes: u64,
    /// Files that were accessed.
    pub files: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes of files that were mapped.
    pub bytes_mapped: u64,
    /// Pages of mappings that programs touched, as far as recorded.
    pub faults: u64,
    /// Calls and page faults that were not recorded, because a program made them faster than they were read, or because there was no
    /// memory for them.
    pub lost: u64,
    /// Programs that were not recorded, or only in part, up to 100.
    pub missed: u64,
}

/// Collects the calls of all processes whose shared files appear in a folder.
pub struct Collector {
    folder: PathBuf,
    processes: Vec<Process>,
    /// The process of each shared file, and when it was created.
    known: BTreeSet<(u32, u64)>,
    files: Files,
    contexts: HashMap<Stack, (u32, u64)>,
    /// When the recording began.
    begin_ns: u64,
    summary: Summary,
    /// The paths of programs and libraries whose code called.
    modules: Modules,
    /// Programs that were not recorded, and why.
    missed: BTreeMap<String, &'static str>,
    /// By process, the program that it executed last and that has no shared file yet, and when.
    expected: BTreeMap<u32, (u64, String)>,
    faults: Option<Faults>,
    is_lossy: bool,
    /// Changes of files' names that were not taken in yet.
    named: Vec<Named>,
    /// Records of the ring that is being read.
    records: Vec<Record>,
    calls: Vec<Call>,
}

/// The paths of programs and libraries.
type Modules = BTreeSet<String>;

/// The return addresses of a call as tokens, and the depth.
type Stack = (Vec<u64>, u32);

/// The return addresses as a process records them, with their number, and the depth.
type Frames = ([u64; FRAMES], u8, u32);

/// The most contexts of a process that are looked up by their frames.
const FRAMES_MOST: usize = 1 << 16;

/// A file of a process, or a change of a file's name.
struct Named {
    time_ns: u64,
    found: Found,
    event: Event,
}

enum Event {
    /// The process with this identity has the file under this number.
    File {
        process: u64,
        number: u32,
    },
    Renamed,
    Removed,
}

struct Process {
    path: PathBuf,
    reader: Reader,
    pid: u32,
    /// Tells it from all others.
    number: u64,
    /// The name of its program, and the number of it in the recording.
    name: String,
    program: u32,
    /// The number in the recording of each file of the process.
    files: HashMap<u32, u32>,
    /// The name of each module, and the hash of it.
    modules: HashMap<u16, (String, u64)>,
    /// Results of `contexts` for frames that were seen before.
    contexts: HashMap<Frames, (u32, u64), foldhash::fast::RandomState>,
    /// Calls whose file is not known yet.
    early: Vec<Record>,
    /// Whether it uses io_uring, and when that is looked at again.
    has_ring: bool,
    look_ns: u64,
    /// How long until the look after that.
    pause_ns: u64,
    /// When it was seen that it has ended.
    ended_ns: Option<u64>,
    lost: u64,
}

impl Process {
    /// Calls that were not recorded. The program may write any number.
    fn lost(&self) -> u64 {
        self.reader.lost().saturating_add(self.lost)
    }
}

impl Summary {
    /// One more call.
    pub(crate) fn add(&mut self, call: &Call) {
        let bytes = u64::from(call.request.length);
        self.calls += 1;
        match call.did {
            Did::Request(Op::Read) => self.bytes_read += bytes,
            Did::Request(Op::Write) => self.bytes_written += bytes,
            Did::Map => self.bytes_mapped += bytes,
            Did::Fault => self.faults += 1,
            _ => {}
        }
    }
}

impl Collector {
    /// A collector of what appears in `folder`; times count from `begin_ns` of the monotonic clock. Paths of files are
    /// hashed if they are `private`, with a key that is not kept: the hashes of another recording are different.
    pub fn new(folder: PathBuf, begin_ns: u64, private: bool) -> Collector {
        Collector {
            folder,
            modules: Modules::new(),
            missed: BTreeMap::new(),
            expected: BTreeMap::new(),
            faults: None,
            is_lossy: false,
            named: Vec::new(),
            processes: Vec::new(),
            known: BTreeSet::new(),
            files: Files::new(private),
            contexts: HashMap::new(),
            begin_ns,
            summary: Summary::default(),
            records: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Records page faults in mappings of files, too, of the programs that this thread starts from now on.
    ///
    /// # Errors
    /// The kernel does not report them, or not to this user.
    pub fn record_faults(&mut self) -> io::Result<()> {
        self.faults = Some(Faults::of_children()?);
        Ok(())
    }

    /// Has calls lost when a program makes them faster than they are read, instead of having it wait.
    pub fn be_lossy(&mut self) {
        self.is_lossy = true;
    }

    /// Reads what all processes recorded into `writer`. Names change in the order of time, so what happened to them after this
    /// began waits for the next round: another process, whose rings were read before, may have changed them earlier. Returns whether there
    /// was so much that programs may wait for the next round.
    pub fn collect(&mut self, writer: &mut Writer) -> bool {
        self.round(now_ns(), writer)
    }

    /// As `collect`, for the last time.
    pub fn collect_rest(&mut self, writer: &mut Writer) {
        let _ = self.round(u64::MAX, writer);
    }

    fn round(&mut self, before_ns: u64, writer: &mut Writer) -> bool {
        // Checked before new shared files are: a process that has ended creates none.
        let ended: Vec<u32> = self.expected.keys().copied().filter(|&process| has_ended(process)).collect();
        self.discover(writer);
        let mut most = 0;
        for at in 0..self.processes.len() {
            most = most.max(self.read(at, writer));
        }
        self.miss(&ended, before_ns == u64::MAX);
        self.take_names(before_ns, writer);
        for at in 0..self.processes.len() {
            self.take_early(at, before_ns, writer);
        }
        self.take_faults(before_ns, writer);
        self.forget_ended(before_ns);
        let taken = writer.push(&self.calls);
        self.calls.iter().take(taken).for_each(|call| self.summary.add(call));
        self.calls.clear();
        most >= BUSY
    }

    /// Counts of the recording so far, with the losses of running processes.
    pub fn summary(&self) -> Summary {
        let running = self.processes.iter().map(Process::lost).fold(0, u64::saturating_add);
        let faults = self.faults.as_ref().map_or(0, Faults::lost);
        Summary {
            lost: self.summary.lost.saturating_add(running).saturating_add(faults),
            missed: self.missed.len() as u64,
            files: self.files.count(),
            ..self.summary
        }
    }

    /// Finds the shared files of new processes.
    fn discover(&mut self, writer: &mut Writer) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('-'));
            let Some(begun) = parts.and_then(|(process, ns)| Some((process.parse().ok()?, ns.parse().ok()?))) else {
                continue;
            };
            if self.known.contains(&begun) {
                continue;
            }
            let path = entry.path();
            // It appears before it is complete.
            let Some(reader) = shared_file(&path).and_then(|file| Reader::open(&file).ok().flatten()) else { continue };
            if self.is_lossy {
                reader.be_lossy();
            }
            self.known.insert(begun);
            // Programs do not find it any more.
            let taken = self.folder.with_file_name(TAKEN).join(&name);
            let path = fs::rename(&path, &taken).map_or(path, |()| taken);
            self.summary.processes += 1;
            let name = base_name(&reader.program());
            let program = writer.program(&name);
            self.processes.push(Process {
                path,
                name,
                pid: reader.pid(),
                reader,
                number: self.summary.processes,
                program,
                files: HashMap::new(),
                modules: HashMap::new(),
                contexts: HashMap::default(),
                early: Vec::new(),
                has_ring: false,
                look_ns: now_ns() + LOOK_NS,
                pause_ns: LOOK_NS,
                ended_ns: None,
                lost: 0,
            });
        }
    }

    /// Reads all rings of a process, and returns how many records were in the fullest one.
    fn read(&mut self, at: usize, writer: &mut Writer) -> usize {
        let pid = self.processes[at].pid;
        let is_due = !self.processes[at].has_ring && self.processes[at].look_ns < now_ns();
        // It may be another program by now.
        let has_ring = is_due && !self.processes[at + 1..].iter().any(|later| later.pid == pid) && has_ring(pid);
        let process = &mut self.processes[at];
        if is_due {
            process.has_ring = has_ring;
            process.pause_ns = (process.pause_ns * LOOK_GROWS).min(LOOK_NS_MOST);
            process.look_ns = now_ns() + process.pause_ns;
        }
        if process.ended_ns.is_none() && has_ended(process.pid) {
            // Seen before its rings are read: what it wrote before its end is in them.
            process.ended_ns = Some(now_ns());
        }
        let mut records = std::mem::take(&mut self.records);
        let now = now_ns();
        let mut most = 0;
        for ring in 0..self.processes[at].reader.rings() {
            self.processes[at].reader.read(ring, &mut records);
            most = most.max(records.len());
            // Whatever a process writes, nothing waits for ever.
            records.iter_mut().for_each(|record| record.time_ns = record.time_ns.min(now));
            let mut rest = records.iter();
            while let Some(record) = rest.next() {
                let kind = Kind::of(record.kind);
                let event = match kind {
                    Some(Kind::File) => Some(Event::File { process: self.processes[at].number, number: record.file }),
                    Some(Kind::Rename) => Some(Event::Renamed),
                    Some(Kind::Unlink) => Some(Event::Removed),
                    _ => None,
                };
                if event.is_none() && kind != Some(Kind::Exec) {
                    if !self.take(record, kind, at, writer) {
                        self.processes[at].early.push(*record);
                    }
                    continue;
                }
                let more = (record.asked.min(PATH_MOST) as usize).div_ceil(PATH_BYTES).max(1) - 1;
                let path = path(std::iter::once(record).chain(rest.by_ref().take(more)), record.asked);
                match event {
                    Some(event) => {
                        let inode = (record.offset, record.result as u64);
                        let (born_ns, names) = (record.born_ns(), record.device_pages.into());
                        let found = Found { inode, path, born_ns, names };
                        self.named.push(Named { time_ns: record.time_ns, found, event });
                    }
                    None => self.executes(record, path),
                }
            }
            records.clear();
        }
        self.records = records;
        most
    }

    /// Takes in files, and what happened to their names, up to a time.
    fn take_names(&mut self, before_ns: u64, writer: &mut Writer) {
        self.named.sort_by_key(|named| named.time_ns);
        let ready = self.named.partition_point(|named| named.time_ns < before_ns);
        for Named { found, event, .. } in self.named.drain(..ready) {
            match event {
                Event::Renamed => self.files.renamed(found.inode, found.path),
                Event::Removed => self.files.removed(found.inode),
                Event::File { process, number } => {
                    // A name that ends in "(deleted)" was of a file that has none any more, and which may be another one.
                    let file = self.files.number(found, writer);
                    let process = self.processes.iter_mut().find(|known| known.number == process);
                    if let (Some(process), Some(file)) = (process, file) {
                        process.files.insert(number, file);
                    }
                }
            }
        }
    }

    /// Takes in the calls of a process that waited for their files. The file of a call is announced before the call begins.
    fn take_early(&mut self, at: usize, before_ns: u64, writer: &mut Writer) {
        let mut early = std::mem::take(&mut self.processes[at].early);
        early.retain(|record| {
            let taken = self.take(record, Kind::of(record.kind), at, writer);
            let waits = !taken && record.time_ns >= before_ns;
            self.processes[at].lost += u64::from(!taken && !waits);
            waits
        });
        self.processes[at].early = early;
    }

    /// Takes in page faults up to a time.
    fn take_faults(&mut self, before_ns: u64, writer: &mut Writer) {
        let Some(mut faults) = self.faults.take() else { return };
        faults.read();
        while let Some(seen) = faults.next(before_ns) {
            match seen {
                Seen::Mapped(file) => drop(self.number(&file, writer)),
                Seen::Fault(fault) => self.take_fault(fault, writer),
            }
        }
        self.faults = Some(faults);
    }

    /// The number of a file that is mapped; `None` if it is the recorder's own, or if there are too many.
    fn number(&mut self, file: &Mapped, writer: &mut Writer) -> Option<u32> {
        let is_own = || self.folder.parent().is_some_and(|folder| Path::new(&file.path).starts_with(folder));
        *file.number.get_or_init(|| if is_own() { None } else { self.files.number(file.found(), writer) })
    }

    fn take_fault(&mut self, fault: Fault, writer: &mut Writer) {
        let Fault { time_ns, pid, tid, program, file, offset, code } = fault;
        let Some(volume) = self.number(&file, writer) else { return };
        let is_it = |process: &&Process| process.pid == pid && process.name.starts_with(&*program);
        let known = self.processes.iter().rev().find(is_it).map(|process| process.program);
        let program = known.unwrap_or_else(|| writer.program(&program));
        let tokens: Vec<u64> = code.iter().map(|(module, offset)| nigh_pattern::token(module.token, *offset)).collect();
        let (context, stream) = *self.contexts.entry((tokens, 0)).or_insert_with_key(|(tokens, _)| {
            let stack = code.map(|(module, offset)| format!("{}+0x{offset:x}", module.name)).unwrap_or_default();
            let same = pc(tokens, None);
            (writer.context(Context { pcs: DEPTHS.map(|_| same), depth: 0, stack }), same)
        });
        let time_ns = time_ns.saturating_sub(self.begin_ns);
        let request = Request {
            time_ns,
            offset,
            length: PAGE_BYTES,
            volume,
            tenant: pid,
            op: Op::Read,
            stream,
            ..Request::default()
        };
        let (did, result) = (Did::Fault, i64::from(PAGE_BYTES));
        self.calls.push(Call { request, did, program, context, tid, asked: PAGE_BYTES, result, device_bytes: 0 });
    }

    /// Forgets processes that ended before a time: what they did is taken in.
    fn forget_ended(&mut self, before_ns: u64) {
        let summary = &mut self.summary;
        self.processes.retain(|process| {
            let is_over = process.ended_ns.is_some_and(|ended_ns| ended_ns < before_ns);
            if is_over {
                summary.lost = summary.lost.saturating_add(process.lost()).saturating_add(process.early.len() as u64);
                let _ = fs::remove_file(&process.path);
            }
            !is_over
        });
    }

    /// Takes in the record of a call; false if its file is not known.
    fn take(&mut self, record: &Record, kind: Option<Kind>, at: usize, writer: &mut Writer) -> bool {
        let process = &mut self.processes[at];
        let (Some(kind), Some(&volume)) = (kind, process.files.get(&record.file)) else { return false };
        let (context, stream) = context(process, &mut self.contexts, &mut self.modules, record, writer);
        self.calls.push(call(record, kind, process, volume, context, stream, self.begin_ns));
        true
    }

    /// Takes in a record of `execve`: of the program at `path`, or of its failure.
    fn executes(&mut self, record: &Record, path: String) {
        if record.result == EXEC_FAILED {
            self.expected.remove(&record.tid);
            return;
        }
        // A file that is not executable, such as each of those that are tried along the PATH, is no program.
        if self.missed.len() >= MISSED_MOST || self.missed.contains_key(&path) || !is_program(Path::new(&path)) {
            return;
        }
        let why = match Program::find(&path) {
            Ok(_) if record.result == EXEC_WITH_LIBRARY => {
                if self.expected.len() < EXPECTED_MOST {
                    self.expected.insert(record.tid, (record.time_ns, path));
                }
                return;
            }
            Ok(_) => "started with another environment",
            Err(Unrecordable::Static { .. }) => "statically linked",
            Err(Unrecordable::SetUser { .. }) => "setuid or setgid",
            Err(_) => return,
        };
        self.missed.insert(path, why);
    }

    /// Notes expected programs that have no shared file as not recorded: those whose process has `ended`, and all in the last round.
    fn miss(&mut self, ended: &[u32], is_last: bool) {
        let mut missed = Vec::new();
        self.expected.retain(|&process, (time_ns, path)| {
            let has_begun = self.known.range((process, *time_ns)..=(process, u64::MAX)).next().is_some();
            let is_missed = !has_begun && (is_last || ended.contains(&process));
            if is_missed {
                missed.push(std::mem::take(path));
            }
            !has_begun && !is_missed
        });
        let mut missed: Vec<(String, &str)> = missed.into_iter().map(|path| (path, UNREACHED)).collect();
        for Process { reader, name, has_ring, .. } in &self.processes {
            missed.extend(reader.is_shortened().then(|| (name.clone(), SHORTENED)));
            missed.extend((*has_ring || reader.has(Unseen::Ring)).then(|| (name.clone(), UNSEEN_RING)));
            for (unseen, of, why) in
                [(Unseen::Process, " or children of it", UNREACHED), (Unseen::Limited, "", LIMITED)]
            {
                missed.extend(reader.has(unseen).then(|| (format!("{name}{of}"), why)));
            }
        }
        for (path, why) in missed {
            if self.missed.len() < MISSED_MOST {
                self.missed.entry(path).or_insert(why);
            }
        }
    }

    /// Gaps of the recording up to here.
    pub fn gaps(&self) -> Gaps {
        let unseen = self.missed().map(|(path, why)| format!("{path} ({why})")).collect();
        Gaps { lost: Some(self.summary().lost), unseen }
    }

    /// Programs that were executed and not recorded, or only in part, and why.
    pub fn missed(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.missed.iter().map(|(path, why)| (path.as_str(), *why))
    }

    /// The paths and build ids of programs and libraries whose code called. Those without a build id are not there.
    pub fn modules(&self) -> Vec<(String, String)> {
        // At the end, because this takes time in which rings would run full.
        let known = self.modules.iter().filter_map(|path| Some((path.clone(), build_id(Path::new(path))?)));
        if self.files.is_private() { Vec::new() } else { known.collect() }
    }

    /// Programs that run, and are recorded.
    pub fn running(&self) -> usize {
        self.processes.len()
    }
}

/// Whether a process has ended. One that its parent did not wait for yet has no program any more.
fn has_ended(pid: u32) -> bool {
    let is_gone = |path: PathBuf| {
        fs::read_link(path.join("exe")).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    // Other threads go on if only the first one has ended.
    let threads = || fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    is_gone(process.clone()) && threads().all(|thread| is_gone(thread.path()))
}

/// Whether a process has a descriptor for requests by io_uring.
fn has_ring(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .into_iter()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.as_os_str() == "anon_inode:[io_uring]"))
}

/// The path in the frames of `parts`.
fn path<'a>(parts: impl Iterator<Item = &'a Record>, bytes: u32) -> String {
    let mut path: Vec<u8> = parts.flat_map(|part| part.frames.into_iter().flat_map(u64::to_ne_bytes)).collect();
    path.truncate(bytes as usize);
    String::from_utf8_lossy(&path).into_owned()
}

/// The number of a record's issuing code in the recording, and its stream.
fn context(
    process: &mut Process,
    contexts: &mut HashMap<Stack, (u32, u64)>,
    modules: &mut Modules,
    record: &Record,
    writer: &mut Writer,
) -> (u32, u64) {
    let same: Frames = (record.frames, record.frames_used, record.depth);
    if let Some(&known) = process.contexts.get(&same) {
        return known;
    }
    if process.contexts.len() >= FRAMES_MOST {
        process.contexts.clear();
    }
    let found = new_context(process, contexts, modules, record, writer);
    process.contexts.insert(same, found);
    found
}

/// As `context`, for frames that the process has not recorded lately.
fn new_context(
    process: &mut Process,
    contexts: &mut HashMap<Stack, (u32, u64)>,
    modules: &mut Modules,
    record: &Record,
    writer: &mut Writer,
) -> (u32, u64) {
    let frames = &record.frames[..usize::from(record.frames_used).min(FRAMES)];
    let tokens: Vec<u64> = frames.iter().map(|&frame| token(process, modules, frame)).collect();
    let key = (tokens, record.depth);
    if let Some(&known) = contexts.get(&key) {
        return known;
    }
    let (tokens, depth) = &key;
    let prefix = |length: usize| &tokens[..tokens.len().min(length)];
    let stack: Vec<String> = frames
        .iter()
        .map(|&frame| {
            let offset = frame & ((1 << MODULE_SHIFT) - 1);
            let module = process.modules.get(&((frame >> MODULE_SHIFT) as u16));
            format!("{}+0x{offset:x}", module.map_or("?", |(name, _)| name))
        })
        .collect();
    let pcs = DEPTHS.map(|length| pc(prefix(length), None));
    let stream = pc(prefix(STREAM_DEPTH), Some((*depth).into()));
    let number = writer.context(Context { pcs, depth: *depth, stack: stack.join(";") });
    contexts.insert(key, (number, stream));
    (number, stream)
}

/// A return address as a number that is equal in every run of the same build.
fn token(process: &mut Process, modules: &mut Modules, frame: u64) -> u64 {
    let number = (frame >> MODULE_SHIFT) as u16;
    let reader = &process.reader;
    let module = process.modules.entry(number).or_insert_with(|| {
        let path = reader.module(number);
        // The program itself has no name among the modules.
        let path = path.filter(|path| path != PROGRAM).unwrap_or_else(|| reader.program());
        modules.insert(String::from_utf8_lossy(&path).into_owned());
        let name = base_name(&path);
        let hash = module_token(name.as_bytes());
        (name, hash)
    });
    nigh_pattern::token(module.1, frame & ((1 << MODULE_SHIFT) - 1))
}

fn call(record: &Record, kind: Kind, process: &Process, volume: u32, context: u32, stream: u64, begin_ns: u64) -> Call {
    let transferred = u32::try_from(record.result.max(0)).unwrap_or(u32::MAX);
    let (did, length) = match kind {
        Kind::Write => (Did::Request(Op::Write), transferred),
        Kind::Sync => (Did::Request(Op::Flush), 0),
        Kind::Map => (Did::Map, record.asked),
        Kind::Advise => (Did::Advise, record.asked),
        Kind::Read | Kind::File | Kind::Exec | Kind::Rename | Kind::Unlink => (Did::Request(Op::Read), transferred),
    };
    let op = if let Did::Request(op) = did { op } else { Op::Read };
    // A file ends below 2^63.
    let offset = record.offset.min(u64::MAX >> 1);
    let time_ns = record.time_ns.saturating_sub(begin_ns);
    let latency_ns = record.latency_ns.into();
    let request = Request { time_ns, offset, length, volume, tenant: process.pid, op, stream, latency_ns, content: 0 };
    let (program, tid, asked, result) = (process.program, record.tid, record.asked, record.result);
    let device_bytes = u32::from(record.device_pages) * 4096;
    Call { request, did, program, context, tid, asked, result, device_bytes }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use nigh_trace::Taken;
    use nigh_trace::format::parquet::Recorder;
    use nigh_trace::write::Destination;

    use super::*;

    /// Programs write anything into their shared files: here, as many lost calls as the field can have.
    #[test]
    fn lost_calls_of_several_programs_do_not_overflow() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        for name in ["1-1", "2-2"] {
            let file = fs::File::create_new(shared.join(name)).unwrap();
            file.set_len(nigh_ring::BYTES as u64).unwrap();
            file.write_all_at(&nigh_ring::MAGIC.to_ne_bytes(), 0).unwrap();
            file.write_all_at(&u64::MAX.to_ne_bytes(), 32).unwrap();
        }
        let to = Destination::new(&folder.path().join("a.parquet"), true, &[]).unwrap();
        let mut writer = Writer::new(Recorder::create(&to, Taken::Above, 4096).unwrap(), u64::MAX, 0);
        let mut collector = Collector::new(shared, 0, false);
        collector.collect(&mut writer);
        assert_eq!(collector.summary().lost, u64::MAX, "while they run");
        collector.collect_rest(&mut writer);
        assert_eq!(collector.summary().lost, u64::MAX, "when they have ended");
    }
}
