//! Recordings by ptrace: of static programs, and of processes that already run.
//!
//! The kernel stops the program at each system call. That costs some microseconds for each, where the library costs a fifth of one.
//! Return addresses are found by frame pointers, which Go's programs have.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nigh_pattern::{module_token, pc, token};
use nigh_ring::{BLOCK_BYTES, Bytes, Submitted};
use nigh_trace::format::parquet::{Call, Context, Did};
use nigh_trace::{Gaps, Op, Request};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::collect::{DEPTHS, STREAM_DEPTH};
use crate::files::{Files, Found, Inode};
use crate::program::base_name;
use crate::ptrace::{self, Stop};
use crate::uring::{self, Missing, Of, Passed, Rings};
use crate::{Program, SIGNALLED, Summary, Writer, now_ns};

/// Return addresses of a call.
const FRAMES: usize = 16;

/// Bytes of the stack that are read for them, at most.
const STACK_BYTES: usize = 16 << 10;

/// How often a tracer looks for the next stop before it sleeps.
const LOOKS: u32 = 300;
/// The most stops before calls are written, and the caller has its turn: programs may stop all the time for calls that are not recorded.
const STOPS_MOST: u32 = 8192;
const SLEEP_LEAST: Duration = Duration::from_micros(50);
const SLEEP_MOST: Duration = Duration::from_millis(2);

/// The most parts of a vector of buffers.
const PARTS_MOST: u64 = 1024;

/// The most contexts that are remembered.
const REMEMBERED_MOST: usize = 1 << 20;

/// Traces programs and records their calls. It belongs to one thread.
pub struct Tracer {
    begin_ns: u64,
    /// The program that was started, and its exit code.
    started: Option<i32>,
    code: Option<i32>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    files: Files,
    rings: Rings,
    contexts: HashMap<Vec<u64>, (u32, u64)>,
    calls: Vec<Call>,
    summary: Summary,
    /// Calls that could not be looked at.
    lost: u64,
    /// Programs and calls that were not recorded, and why.
    unseen: BTreeSet<String>,
    sleep: Duration,
}

/// A thread that is traced.
struct Thread {
    process: i32,
    call: Option<Pending>,
}

/// A call that has begun.
struct Pending {
    number: u64,
    arguments: [u64; 6],
    begin_ns: u64,
    context: (u32, u64),
    /// The files whose names it may change.
    named: Vec<Named>,
    /// Requests that it passes by io_uring.
    passed: Vec<Passed>,
}

/// A thread with its call.
#[derive(Clone, Copy)]
struct Caller<'a> {
    thread: i32,
    process: i32,
    call: &'a Pending,
}

/// A regular file whose name may change.
struct Named {
    /// Only names the file.
    file: File,
    inode: Inode,
}

#[derive(Default)]
struct Process {
    name: String,
    program: u32,
    /// The number of the file behind each descriptor; `None` if it is no file.
    descriptors: HashMap<u64, Option<u32>>,
    modules: Vec<Module>,
}

/// A mapped program or library.
struct Module {
    begin: u64,
    end: u64,
    /// Address at which its file is mapped from offset 0.
    base: u64,
    name: String,
    token: u64,
}

/// Effect of a system call on a file, with the positions of its descriptor, its length and its offset among the arguments.
struct Kind {
    did: Did,
    descriptor: usize,
    length: Length,
    offset: Option<usize>,
}

enum Length {
    /// The result of the call.
    Returned,
    Argument(usize),
    None,
}

/// The file operations of system call `number`.
fn kinds(number: u64) -> &'static [Kind] {
    const fn of(did: Did, descriptor: usize, length: Length, offset: Option<usize>) -> Kind {
        Kind { did, descriptor, length, offset }
    }
    const READ: Did = Did::Request(Op::Read);
    const WRITE: Did = Did::Request(Op::Write);
    const FLUSH: Did = Did::Request(Op::Flush);
    match number as i64 {
        libc::SYS_read | libc::SYS_readv => const { &[of(READ, 0, Length::Returned, None)] },
        libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2 => const { &[of(READ, 0, Length::Returned, Some(3))] },
        libc::SYS_write | libc::SYS_writev => const { &[of(WRITE, 0, Length::Returned, None)] },
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            const { &[of(WRITE, 0, Length::Returned, Some(3))] }
        }
        libc::SYS_sendfile => const { &[of(READ, 1, Length::Returned, None)] },
        libc::SYS_copy_file_range | libc::SYS_splice => {
            const { &[of(READ, 0, Length::Returned, None), of(WRITE, 2, Length::Returned, None)] }
        }
        libc::SYS_fsync | libc::SYS_fdatasync => const { &[of(FLUSH, 0, Length::None, None)] },
        libc::SYS_mmap => const { &[of(Did::Map, 4, Length::Argument(1), Some(5))] },
        libc::SYS_fadvise64 => const { &[of(Did::Advise, 0, Length::Argument(2), Some(1))] },
        _ => &[],
    }
}

impl Tracer {
    /// A tracer whose times count from `begin_ns` of the monotonic clock. Paths are hashed if they are `private`, as
    /// [`crate::Collector`] does.
    pub fn new(begin_ns: u64, private: bool) -> Tracer {
        Tracer {
            begin_ns,
            started: None,
            code: None,
            threads: HashMap::new(),
            processes: HashMap::new(),
            files: Files::new(private),
            rings: Rings::default(),
            contexts: HashMap::new(),
            calls: Vec::new(),
            summary: Summary::default(),
            lost: 0,
            unseen: BTreeSet::new(),
            sleep: SLEEP_LEAST,
        }
    }

    /// Starts a program and traces it.
    pub fn start(&mut self, program: &Program, arguments: &[OsString]) -> io::Result<Child> {
        // It stops itself, so that nothing of the program is missed.
        let stopped = "kill -STOP $$; exec \"$0\" \"$@\"";
        let mut child = Command::new("/bin/sh").args(["-c", stopped]).arg(&program.path).args(arguments).spawn()?;
        let process = Pid::from_child(&child);
        self.started = Some(child.id() as i32);
        let begun = match waitpid(Some(process), WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => self.attach(child.id()),
            _ => Err(io::Error::other("the shell that starts the program ended")),
        };
        let begun = begun.and_then(|()| Ok(kill_process(process, Signal::CONT)?));
        if begun.is_err() {
            // It does not begin to run after this reported that it cannot.
            let _ = child.kill();
            let _ = child.wait();
        }
        begun.map(|()| child)
    }

    /// The exit code of the program that was started, as a shell reports it, once it has ended.
    pub fn code(&self) -> Option<i32> {
        self.code
    }

    /// Traces all threads of a process, and the children that it will have.
    pub fn attach(&mut self, process: u32) -> io::Result<()> {
        let mut is_any = false;
        // Threads may begin others while they are listed.
        loop {
            let mut is_new = false;
            let threads =
                fs::read_dir(format!("/proc/{process}/task")).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
            for entry in threads {
                let name = entry?.file_name();
                let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
                if self.threads.contains_key(&thread) {
                    continue;
                }
                match ptrace::seize(thread).and_then(|()| ptrace::interrupt(thread)) {
                    Ok(()) => {}
                    // It has ended, or its parent was traced when it began, and it is, too.
                    Err(_) if is_any => continue,
                    Err(error) => return Err(error),
                }
                self.threads.insert(thread, Thread { process: process as i32, call: None });
                (is_any, is_new) = (true, true);
            }
            if !is_new {
                return Ok(());
            }
        }
    }

    /// Records until the programs stop for nothing any more for a moment. Returns whether any is left.
    pub fn trace(&mut self, writer: &mut Writer) -> io::Result<bool> {
        let (mut looks, mut stops) = (0, 0);
        while looks < LOOKS && stops < STOPS_MOST {
            match ptrace::wait(false) {
                Ok(None) => looks += 1,
                Ok(Some((thread, stop))) => {
                    self.stopped(thread, stop, writer)?;
                    (looks, self.sleep) = (0, SLEEP_LEAST);
                    stops += 1;
                }
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                    self.threads.clear();
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.write(writer);
        if looks >= LOOKS {
            std::thread::sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(SLEEP_MOST);
        }
        Ok(!self.threads.is_empty())
    }

    fn write(&mut self, writer: &mut Writer) {
        let written = writer.push(&self.calls);
        self.calls.drain(..).take(written).for_each(|call| self.summary.add(&call));
    }

    /// Lets all programs go on without being traced.
    pub fn detach(&mut self, writer: &mut Writer) {
        for thread in self.threads.keys() {
            // It may have ended.
            let _ = ptrace::interrupt(*thread);
        }
        while !self.threads.is_empty() {
            let Ok(Some((thread, stop))) = ptrace::wait(true) else { break };
            self.seen(thread, stop);
            let signal = if let Stop::Signal { signal } = stop { signal } else { 0 };
            // Of those that ended, this fails.
            let _ = ptrace::detach(thread, signal);
            self.threads.remove(&thread);
        }
        self.write(writer);
    }

    /// Counts of the recording so far.
    pub fn summary(&self) -> Summary {
        Summary { files: self.files.count(), lost: self.lost, missed: self.unseen.len() as u64, ..self.summary }
    }

    /// Gaps of the recording up to here.
    pub fn gaps(&self) -> Gaps {
        Gaps { lost: Some(self.lost), unseen: self.unseen.iter().cloned().collect() }
    }

    fn stopped(&mut self, thread: i32, stop: Stop, writer: &mut Writer) -> io::Result<()> {
        self.seen(thread, stop);
        let resumed = match stop {
            Stop::Exited { .. } | Stop::Killed { .. } => return Ok(()),
            Stop::Call => {
                self.at_call(thread, writer);
                ptrace::resume(thread, 0)
            }
            // It was stopped by a signal, and stays so.
            Stop::Event { event: libc::PTRACE_EVENT_STOP, signal } if signal != libc::SIGTRAP => ptrace::listen(thread),
            Stop::Event { .. } => ptrace::resume(thread, 0),
            Stop::Signal { signal } => ptrace::resume(thread, signal),
        };
        match resumed {
            // It was killed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            resumed => resumed,
        }
    }

    /// Takes in which threads there are.
    fn seen(&mut self, thread: i32, stop: Stop) {
        match stop {
            Stop::Exited { .. } | Stop::Killed { .. } => {
                if self.started == Some(thread) {
                    self.code = match stop {
                        Stop::Exited { code } => Some(code),
                        Stop::Killed { signal } => Some(SIGNALLED + signal),
                        _ => None,
                    };
                }
                self.threads.remove(&thread);
                self.processes.remove(&thread);
                self.rings.end(thread);
            }
            Stop::Event { event: libc::PTRACE_EVENT_EXEC, .. } => {
                // Its other threads have ended, and its first one's number is this one's from now on.
                let process = self.thread(thread).process;
                self.processes.remove(&process);
                self.rings.end(process);
                self.threads.retain(|other, known| *other == thread || known.process != process);
                self.thread(thread).call = None;
            }
            Stop::Event {
                event: libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE,
                ..
            } => {
                self.thread(thread);
                if let Some(begun) = ptrace::begun(thread) {
                    self.thread(begun);
                }
            }
            _ => drop(self.thread(thread)),
        }
    }

    fn thread(&mut self, thread: i32) -> &mut Thread {
        self.threads.entry(thread).or_insert_with(|| {
            let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
            let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
            Thread { process: group.unwrap_or(thread), call: None }
        })
    }

    /// A system call begins or ends.
    fn at_call(&mut self, thread: i32, writer: &mut Writer) {
        let Ok(registers) = ptrace::registers(thread) else { return };
        let process = self.thread(thread).process;
        let Some(pending) = self.thread(thread).call.take() else {
            // Otherwise it ends, and began before it was traced.
            if registers.rax as i64 == -i64::from(libc::ENOSYS) {
                let arguments =
                    [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
                let number = registers.orig_rax;
                let submits = [libc::SYS_io_submit, libc::SYS_io_uring_enter].contains(&(number as i64));
                let context = if kinds(number).is_empty() && !submits {
                    (0, 0)
                } else {
                    self.context(process, registers.rip, registers.rsp, registers.rbp, writer)
                };
                let named = named(thread, number, &arguments);
                let passed = self.passed(thread, process, number, &arguments, writer);
                self.thread(thread).call =
                    Some(Pending { number, arguments, begin_ns: now_ns(), context, named, passed });
            }
            return;
        };
        let result = registers.rax as i64;
        let caller = Caller { thread, process, call: &pending };
        for kind in kinds(pending.number) {
            self.record(caller, kind, result, writer);
        }
        if let Ok(result) = u64::try_from(result) {
            self.succeeded(caller, result, writer);
        }
        self.note(process, &pending, result);
        if result >= 0 {
            self.rename(&pending.named);
        }
    }

    /// Takes in files that were renamed or deleted.
    fn rename(&mut self, named: &[Named]) {
        for Named { file, inode } in named {
            if file.metadata().is_ok_and(|found| found.nlink() == 0) {
                self.files.removed(*inode);
            } else if let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
                // It has lost one of several names: others lead to it as before.
                && !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")
            {
                self.files.renamed(*inode, path.to_string_lossy().into_owned());
            }
        }
    }

    /// Descriptors that are other files from now on.
    fn note(&mut self, process: i32, pending: &Pending, result: i64) {
        let Some(known) = self.processes.get_mut(&process) else { return };
        match pending.number as i64 {
            libc::SYS_close => {
                known.descriptors.remove(&pending.arguments[0]);
                self.rings.close(process, pending.arguments[0]);
            }
            libc::SYS_dup2 | libc::SYS_dup3 => drop(known.descriptors.remove(&pending.arguments[1])),
            libc::SYS_close_range => known.descriptors.clear(),
            libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat if result >= 0 => {
                known.descriptors.remove(&(result as u64));
            }
            _ => {}
        }
    }

    fn record(&mut self, caller: Caller<'_>, kind: &Kind, result: i64, writer: &mut Writer) {
        let Caller { thread, process, call: pending } = caller;
        let descriptor = pending.arguments[kind.descriptor];
        let Some(volume) = self.file(process, thread, descriptor, writer) else { return };
        let latency_ns = now_ns().saturating_sub(pending.begin_ns);
        let returned = u32::try_from(result.max(0)).unwrap_or(u32::MAX);
        let argument = |at: usize| u32::try_from(pending.arguments[at]).unwrap_or(u32::MAX);
        let (length, asked) = match kind.length {
            Length::Returned => (returned, argument(2).max(returned)),
            Length::Argument(at) => (argument(at), argument(at)),
            Length::None => (0, 0),
        };
        let offset = match kind.offset {
            Some(at) => pending.arguments[at],
            None if matches!(kind.length, Length::None) => 0,
            None => position(thread, descriptor).saturating_sub(u64::from(returned)),
        };
        let request = Request { offset: offset.min(u64::MAX >> 1), length, volume, latency_ns, ..Request::default() };
        self.push(caller, kind.did, request, asked, result, writer);
    }

    /// Takes in requests that a call submitted, and what it changed of rings.
    fn succeeded(&mut self, caller: Caller<'_>, result: u64, writer: &mut Writer) {
        let Caller { thread, process, call } = caller;
        let arguments = &call.arguments;
        match call.number as i64 {
            libc::SYS_io_submit => {
                for at in 0..result {
                    match submitted(thread, arguments[2].wrapping_add(at * 8)) {
                        Some(block) => {
                            if let Some(request) = Submitted::parse(&block) {
                                let file = self.file(process, thread, request.descriptor.into(), writer);
                                self.submit(caller, request, file, writer);
                            }
                        }
                        None => self.lost += 1,
                    }
                }
            }
            libc::SYS_io_uring_setup => {
                let mut params = [0; uring::PARAMS_BYTES];
                let begun = match memory(thread, arguments[1], &mut params) {
                    true => self.rings.begin(thread, process, result, &params),
                    false => Err(Missing::Unknown),
                };
                begun.unwrap_or_else(|missing| self.miss(process, missing, writer));
            }
            libc::SYS_io_uring_register => {
                let memory = |at: u64, bytes: &mut [u8]| memory(thread, at, bytes);
                let Some((ring, numbered)) = self.rings.register(thread, arguments, result, &memory) else {
                    return;
                };
                let descriptors = numbered.descriptors.iter();
                let files = descriptors
                    .map(|&descriptor| self.file(process, thread, u64::try_from(descriptor).ok()?, writer))
                    .collect();
                self.rings.number(process, ring, &numbered, files);
            }
            libc::SYS_io_uring_enter => {
                for &passed in call.passed.iter().take(result as usize) {
                    self.pass(caller, passed, writer);
                }
            }
            libc::SYS_mmap => self.rings.map(process, arguments[4], arguments[5], result),
            _ => {}
        }
    }

    /// The requests that a call is about to pass by io_uring. The kernel may reuse their memory before the call returns.
    fn passed(
        &mut self,
        thread: i32,
        process: i32,
        number: u64,
        arguments: &[u64; 6],
        writer: &mut Writer,
    ) -> Vec<Passed> {
        if number as i64 != libc::SYS_io_uring_enter {
            return Vec::new();
        }
        let memory = |at: u64, bytes: &mut [u8]| memory(thread, at, bytes);
        self.rings.entered(thread, process, arguments, &memory, &|of| position(thread, of)).unwrap_or_else(|missing| {
            self.miss(process, missing, writer);
            Vec::new()
        })
    }

    fn pass(&mut self, caller: Caller<'_>, passed: Passed, writer: &mut Writer) {
        let Caller { thread, process, .. } = caller;
        let (of, request) = match passed {
            Passed::Transfer { of, request } => (of, request),
            Passed::Close(descriptor) => {
                self.process(process, writer).descriptors.remove(&descriptor);
                self.rings.close(process, descriptor);
                return;
            }
            Passed::NotSeen(missing) => return self.miss(process, missing, writer),
            Passed::Other => return,
            Passed::Unreadable => return self.lost += 1,
        };
        let file = match of {
            Of::Descriptor(descriptor) => self.file(process, thread, descriptor, writer),
            Of::File(file) => file,
            Of::Unknown => return self.lost += 1,
        };
        self.submit(caller, request, file, writer);
    }

    /// Requests of this process are missing.
    fn miss(&mut self, process: i32, missing: Missing, writer: &mut Writer) {
        let program = self.process(process, writer).name.clone();
        self.unseen.insert(format!("{program} ({})", missing.why()));
    }

    /// Takes in a request that ends later: it is taken to transfer all.
    fn submit(&mut self, caller: Caller<'_>, request: Submitted, file: Option<u32>, writer: &mut Writer) {
        let Some(volume) = file else { return };
        let asked = match request.bytes {
            Bytes::Of(bytes) => bytes,
            Bytes::OfVector { at, parts } => {
                let length = |part: u64| word(caller.thread, at.wrapping_add(16 * part + 8));
                (0..parts.min(PARTS_MOST)).filter_map(length).fold(0, u64::saturating_add)
            }
        };
        let did = match request.kind {
            nigh_ring::Kind::Write => Did::Request(Op::Write),
            nigh_ring::Kind::Sync => Did::Request(Op::Flush),
            _ => Did::Request(Op::Read),
        };
        let length = u32::try_from(asked).unwrap_or(u32::MAX);
        let request = Request { offset: request.offset.min(u64::MAX >> 1), length, volume, ..Request::default() };
        self.push(caller, did, request, length, length.into(), writer);
    }

    fn push(&mut self, caller: Caller<'_>, did: Did, request: Request, asked: u32, result: i64, writer: &mut Writer) {
        let Caller { thread, process, call: pending } = caller;
        let op = if let Did::Request(op) = did { op } else { Op::Read };
        let time_ns = pending.begin_ns.saturating_sub(self.begin_ns);
        let request = Request { time_ns, tenant: process as u32, op, stream: pending.context.1, ..request };
        let program = self.process(process, writer).program;
        let (context, tid) = (pending.context.0, thread as u32);
        self.calls.push(Call { request, did, program, context, tid, asked, result, device_bytes: 0 });
    }

    fn process(&mut self, process: i32, writer: &mut Writer) -> &mut Process {
        let summary = &mut self.summary;
        self.processes.entry(process).or_insert_with(|| {
            summary.processes += 1;
            let path = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            let program = writer.program(&base_name(path.as_os_str().as_encoded_bytes()));
            let name = base_name(path.as_os_str().as_encoded_bytes());
            Process { program, name, ..Process::default() }
        })
    }

    /// The number of the file behind a descriptor; `None` if it is none.
    fn file(&mut self, process: i32, thread: i32, descriptor: u64, writer: &mut Writer) -> Option<u32> {
        if let Some(&known) = self.process(process, writer).descriptors.get(&descriptor) {
            return known;
        }
        let link = PathBuf::from(format!("/proc/{thread}/fd/{descriptor}"));
        let found = fs::metadata(&link).ok().filter(|found| found.is_file() || found.file_type().is_block_device());
        let path =
            fs::read_link(&link).ok().filter(|path| !["/proc", "/sys"].iter().any(|folder| path.starts_with(folder)));
        let number = found.zip(path).and_then(|(found, path)| {
            self.files.number(Found::new(&found, path.to_string_lossy().into_owned()), writer)
        });
        self.process(process, writer).descriptors.insert(descriptor, number);
        number
    }

    /// The issuing code, and its stream.
    fn context(&mut self, process: i32, rip: u64, rsp: u64, rbp: u64, writer: &mut Writer) -> (u32, u64) {
        let addresses = addresses(process, rip, rsp, rbp);
        let known = self.process(process, writer);
        if !addresses.iter().all(|&address| find(&known.modules, address).is_some()) {
            known.modules = modules(process);
        }
        let frames: Vec<(u64, String)> = addresses
            .iter()
            .map_while(|&address| find(&known.modules, address).map(|module| (module, address - module.base)))
            .map(|(module, offset)| (token(module.token, offset), format!("{}+0x{offset:x}", module.name)))
            .collect();
        let tokens: Vec<u64> = frames.iter().map(|(token, _)| *token).collect();
        if let Some(&known) = self.contexts.get(&tokens) {
            return known;
        }
        let prefix = |length: usize| tokens.get(..length).unwrap_or(&tokens);
        let stack: Vec<String> = frames.into_iter().map(|(_, text)| text).collect();
        let stream = pc(prefix(STREAM_DEPTH), None);
        let pcs = DEPTHS.map(|length| pc(prefix(length), None));
        let number = writer.context(Context { pcs, depth: 0, stack: stack.join(";") });
        if self.contexts.len() < REMEMBERED_MOST {
            self.contexts.insert(tokens, (number, stream));
        }
        (number, stream)
    }
}

/// The files whose names system call `number` may change; one that is replaced comes first, because it may lose its last name.
fn named(thread: i32, number: u64, arguments: &[u64; 6]) -> Vec<Named> {
    const HERE: u64 = libc::AT_FDCWD as u64;
    let [first, second, third, fourth, ..] = *arguments;
    let paths: &[(u64, u64)] = match number as i64 {
        libc::SYS_rename => &[(HERE, second), (HERE, first)],
        libc::SYS_renameat | libc::SYS_renameat2 => &[(third, fourth), (first, second)],
        libc::SYS_unlink => &[(HERE, first)],
        libc::SYS_unlinkat => &[(first, second)],
        _ => &[],
    };
    paths.iter().filter_map(|&(folder, path)| open(thread, folder, path)).collect()
}

/// The regular file at a path of the thread, relative to one of its folders.
fn open(thread: i32, folder: u64, path: u64) -> Option<Named> {
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let read = ptrace::read(thread, path, &mut bytes);
    bytes.truncate(read);
    let path = CStr::from_bytes_until_nul(&bytes).ok()?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    // Numbers of descriptors have 32 bits.
    let from = match (path.strip_prefix("/"), folder as i32) {
        (Ok(path), _) => Path::new("/proc").join(thread.to_string()).join("root").join(path),
        (Err(_), libc::AT_FDCWD) => Path::new("/proc").join(thread.to_string()).join("cwd").join(path),
        (Err(_), folder) => PathBuf::from(format!("/proc/{thread}/fd/{folder}")).join(path),
    };
    let file = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(from).ok()?;
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    Some(Named { inode: (found.dev(), found.ino()), file })
}

/// Fills `bytes` from the memory of a thread; false if it cannot.
fn memory(thread: i32, at: u64, bytes: &mut [u8]) -> bool {
    ptrace::read(thread, at, bytes) == bytes.len()
}

fn word(thread: i32, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory(thread, at, &mut bytes).then(|| u64::from_ne_bytes(bytes))
}

/// The request of `io_submit` whose address is at `at`.
fn submitted(thread: i32, at: u64) -> Option<[u8; BLOCK_BYTES]> {
    let mut block = [0; BLOCK_BYTES];
    memory(thread, word(thread, at)?, &mut block).then_some(block)
}

fn find(modules: &[Module], address: u64) -> Option<&Module> {
    modules.iter().find(|module| (module.begin..module.end).contains(&address))
}

/// Address of the call, and the return addresses that frame pointers lead to.
fn addresses(process: i32, rip: u64, rsp: u64, rbp: u64) -> Vec<u64> {
    let mut found = vec![rip];
    let mut stack = vec![0; STACK_BYTES];
    // A stack that ends earlier is read in part.
    let read = ptrace::read(process, rsp, &mut stack);
    let (words, _) = stack.as_slice()[..read].as_chunks::<8>();
    let word = |address: u64| {
        let at = address.checked_sub(rsp).filter(|at| at.is_multiple_of(8))? / 8;
        words.get(usize::try_from(at).ok()?).map(|&bytes| u64::from_ne_bytes(bytes))
    };
    let mut frame = rbp;
    while found.len() < FRAMES {
        let (Some(next), Some(address)) = (word(frame), word(frame.wrapping_add(8))) else { break };
        found.push(address);
        if next <= frame {
            break;
        }
        frame = next;
    }
    found
}

/// The code that a process has mapped.
fn modules(process: i32) -> Vec<Module> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut bases: HashMap<&str, u64> = HashMap::new();
    let mut modules = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(path)) = (fields.next(), fields.next(), fields.nth(3)) else { continue };
        let Some((begin, end)) = range.split_once('-') else { continue };
        let (Ok(begin), Ok(end)) = (u64::from_str_radix(begin, 16), u64::from_str_radix(end, 16)) else { continue };
        let base = *bases.entry(path).or_insert(begin);
        if rights.contains('x') && path.starts_with('/') {
            let name = base_name(Path::new(path).as_os_str().as_encoded_bytes());
            modules.push(Module { begin, end, base, token: module_token(name.as_bytes()), name });
        }
    }
    modules
}

/// Position of a descriptor in its file.
fn position(thread: i32, descriptor: u64) -> u64 {
    let about = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).unwrap_or_default();
    about.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok()).unwrap_or(0)
}
