//! The file of each descriptor of each process, and the position of its next access.

use std::collections::HashMap;

use super::calls::{Call, Descriptor};
use crate::error::Bad;
use crate::numbering::Numbering;
use crate::text::extent_of;
use crate::{Note, Op, Request};

/// The most open descriptors, and the most processes, that are held in memory.
const ENTRIES_MOST: usize = 1 << 20;

/// An open file: descriptors of several processes can share it and its position.
struct Opened {
    /// The volume; `None` if it is not a file.
    file: Option<u32>,
    position: u64,
    appends: bool,
    /// Descriptors that refer to it.
    users: usize,
}

/// The descriptors of a process, or of several that share them.
#[derive(Default)]
struct Table {
    /// Keys of `Descriptors::opened`.
    entries: HashMap<u32, u64>,
    /// Processes that use it.
    users: usize,
}

#[derive(Default)]
pub(super) struct Descriptors {
    /// Keys of `tables`, by process.
    processes: HashMap<u32, u64>,
    tables: HashMap<u64, Table>,
    opened: HashMap<u64, Opened>,
    /// The next key of `tables` and `opened`.
    next: u64,
    /// Entries of all tables.
    entries: usize,
    files: Numbering,
    /// The ends of the farthest accesses, by file.
    ends: HashMap<u32, u64>,
    left_out: u64,
    before: u64,
}

/// The effect of a call that moves data.
struct Transfer<'a> {
    descriptor: Descriptor<'a>,
    op: Op,
    /// `None` for the file's own position.
    at: Option<u64>,
}

impl Descriptors {
    pub(super) fn knows(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        let what = "reads and writes of descriptors that are not known to be files";
        let left_out = (self.left_out > 0).then_some(Note::LeftOut { count: self.left_out, what });
        let before = (self.before > 0).then_some(Note::Positions { count: self.before });
        left_out.into_iter().chain(before).collect()
    }

    fn key(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A new process, created by `parent`; it may share the table of its parent.
    pub(super) fn begin(&mut self, process: u32, parent: Option<(u32, bool)>) -> Result<(), Bad> {
        if self.processes.len() >= ENTRIES_MOST {
            return Err(Bad::field(process.to_string().as_bytes(), "fewer than 2^20 processes at a time"));
        }
        let inherited = parent.and_then(|(parent, shares)| Some((*self.processes.get(&parent)?, shares)));
        let key = match inherited {
            Some((key, true)) => key,
            other => {
                let entries = other
                    .and_then(|(key, _)| self.tables.get(&key))
                    .map(|table| table.entries.clone())
                    .unwrap_or_default();
                self.has_room(entries.len())?;
                for opened in entries.values() {
                    if let Some(opened) = self.opened.get_mut(opened) {
                        opened.users += 1;
                    }
                }
                self.entries += entries.len();
                let key = self.key();
                self.tables.insert(key, Table { entries, users: 0 });
                key
            }
        };
        if let Some(table) = self.tables.get_mut(&key) {
            table.users += 1;
        }
        self.processes.insert(process, key);
        Ok(())
    }

    /// A process ends.
    pub(super) fn exit(&mut self, process: u32) {
        let Some(key) = self.processes.remove(&process) else { return };
        let Some(table) = self.tables.get_mut(&key) else { return };
        table.users -= 1;
        if table.users == 0
            && let Some(table) = self.tables.remove(&key)
        {
            self.entries -= table.entries.len();
            table.entries.into_values().for_each(|opened| self.release(opened));
        }
    }

    fn has_room(&self, more: usize) -> Result<(), Bad> {
        if self.entries + more > ENTRIES_MOST {
            return Err(Bad { found: format!("{more} more"), expected: "fewer than 2^20 open descriptors" });
        }
        Ok(())
    }

    fn release(&mut self, key: u64) {
        if let Some(opened) = self.opened.get_mut(&key) {
            opened.users -= 1;
            if opened.users == 0 {
                self.opened.remove(&key);
            }
        }
    }

    fn table(&mut self, process: u32) -> Option<&mut Table> {
        self.tables.get_mut(self.processes.get(&process)?)
    }

    fn close(&mut self, process: u32, descriptor: u32) {
        let closed = self.table(process).and_then(|table| table.entries.remove(&descriptor));
        if let Some(key) = closed {
            self.entries -= 1;
            self.release(key);
        }
    }

    /// Makes `descriptor` refer to `key`, which counts it already.
    fn set(&mut self, process: u32, descriptor: u32, key: u64) -> Result<(), Bad> {
        self.close(process, descriptor);
        self.has_room(1)?;
        if let Some(table) = self.table(process) {
            table.entries.insert(descriptor, key);
            self.entries += 1;
        }
        Ok(())
    }

    fn open(&mut self, process: u32, descriptor: u32, path: &[u8], appends: bool) -> Result<u64, Bad> {
        let file = if is_file(path) { Some(self.files.number(path)?) } else { None };
        let key = self.key();
        self.opened.insert(key, Opened { file, position: 0, appends, users: 1 });
        self.set(process, descriptor, key)?;
        Ok(key)
    }

    /// The target of `descriptor`. A file that was open before the trace began is identified by its path, if -y shows
    /// that, or by number if the call `positions` it, which works only for files.
    fn find(&mut self, process: u32, descriptor: Descriptor, positions: bool) -> Result<Option<u64>, Bad> {
        let known = self.table(process).and_then(|table| table.entries.get(&descriptor.number)).copied();
        if known.is_some() {
            return Ok(known);
        }
        let name = match descriptor.path {
            Some(path) => path.to_owned(),
            None if positions => format!("/descriptor {} of process {process}", descriptor.number).into_bytes(),
            None => return Ok(None),
        };
        self.before += u64::from(is_file(&name));
        self.open(process, descriptor.number, &name, false).map(Some)
    }

    /// Processes a call of `process`; returns its request, if it is one, without time and process.
    pub(super) fn apply(&mut self, process: u32, call: &Call) -> Result<Option<Request>, Bad> {
        let own = |op| call.descriptor(0).map(|descriptor| Transfer { descriptor, op, at: None });
        let placed = |op| {
            let at = call.number(3);
            call.descriptor(0).map(|descriptor| Transfer { descriptor, op, at })
        };
        let result = u32::try_from(call.result).ok();
        let transfer = match call.name {
            b"read" | b"readv" => own(Op::Read),
            b"write" | b"writev" => own(Op::Write),
            b"pread" | b"pread64" | b"preadv" | b"preadv2" => placed(Op::Read),
            b"pwrite" | b"pwrite64" | b"pwritev" | b"pwritev2" => placed(Op::Write),
            // The offset is an address, shown with its content: [from] or [from] => [to].
            b"sendfile" | b"sendfile64" => {
                let at = bracketed(call.argument(2));
                call.descriptor(1).map(|descriptor| Transfer { descriptor, op: Op::Read, at })
            }
            b"copy_file_range" => {
                let at = bracketed(call.argument(1));
                call.descriptor(0).map(|descriptor| Transfer { descriptor, op: Op::Read, at })
            }
            b"fsync" | b"fdatasync" => return self.flush(process, call),
            b"fallocate" => return self.punch(process, call),
            _ => {
                self.follow(process, call, result)?;
                None
            }
        };
        match transfer {
            Some(transfer) => self.transfer(process, &transfer, call.result),
            None => Ok(None),
        }
    }

    /// Processes a call that moves no data.
    fn follow(&mut self, process: u32, call: &Call, result: Option<u32>) -> Result<(), Bad> {
        match (call.name, result) {
            (b"open" | b"creat", Some(new)) => {
                let path = call.result_path.unwrap_or(call.text(0));
                self.open(process, new, path, call.has_flag(1, b"O_APPEND"))?;
            }
            (b"openat" | b"openat2", Some(new)) => {
                let path = call.result_path.unwrap_or(call.text(1));
                let appends = memchr::memmem::find(call.argument(2), b"O_APPEND").is_some();
                self.open(process, new, path, appends)?;
            }
            (b"close", _) => {
                if let Some(descriptor) = call.descriptor(0) {
                    self.close(process, descriptor.number);
                }
            }
            (b"lseek", _) => {
                if let Some(descriptor) = call.descriptor(0)
                    && let Some(key) = self.find(process, descriptor, true)?
                    && let Some(opened) = self.opened.get_mut(&key)
                {
                    opened.position = call.result;
                }
            }
            (b"dup" | b"dup2" | b"dup3", Some(new)) => self.duplicate(process, call, new)?,
            (b"fcntl" | b"fcntl64", Some(new)) if call.argument(1).starts_with(b"F_DUPFD") => {
                self.duplicate(process, call, new)?;
            }
            (b"pipe" | b"pipe2" | b"socketpair", _) => {
                let pair = call.argument(if call.name == b"socketpair" { 3 } else { 0 });
                let inside = pair.strip_prefix(b"[").and_then(|pair| pair.strip_suffix(b"]")).unwrap_or_default();
                for word in inside.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    let digits = word.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(word.len());
                    let end = word.get(..digits).and_then(crate::text::number).and_then(|end| u32::try_from(end).ok());
                    if let Some(end) = end {
                        self.open(process, end, b"", false)?;
                    }
                }
            }
            (
                b"socket" | b"accept" | b"accept4" | b"eventfd2" | b"epoll_create1" | b"timerfd_create" | b"signalfd4"
                | b"inotify_init1" | b"memfd_create",
                Some(new),
            ) => {
                self.open(process, new, b"", false)?;
            }
            (b"clone" | b"clone3" | b"fork" | b"vfork", Some(child)) if !self.knows(child) => {
                let shares = (0..3).any(|index| super::calls::shares_files(call.argument(index)));
                self.begin(child, Some((process, shares)))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn duplicate(&mut self, process: u32, call: &Call, new: u32) -> Result<(), Bad> {
        let Some(old) = call.descriptor(0) else { return Ok(()) };
        if old.number == new {
            return Ok(());
        }
        match self.find(process, old, false)? {
            Some(key) => {
                if let Some(opened) = self.opened.get_mut(&key) {
                    opened.users += 1;
                }
                self.set(process, new, key)
            }
            None => {
                self.close(process, new);
                Ok(())
            }
        }
    }

    fn transfer(&mut self, process: u32, transfer: &Transfer, bytes: u64) -> Result<Option<Request>, Bad> {
        if bytes == 0 {
            return Ok(None);
        }
        let Transfer { descriptor, op, at } = transfer;
        let key = self.find(process, *descriptor, at.is_some())?;
        let Some(opened) = key.and_then(|key| self.opened.get_mut(&key)) else {
            self.left_out += 1;
            return Ok(None);
        };
        let Some(file) = opened.file else {
            self.left_out += 1;
            return Ok(None);
        };
        let end = self.ends.entry(file).or_insert(0);
        let first = match at {
            Some(at) => *at,
            None if opened.appends && *op == Op::Write => *end,
            None => opened.position,
        };
        let found = bytes.to_string();
        let (offset, length) = extent_of(found.as_bytes(), first, bytes, 1)?;
        if at.is_none() {
            opened.position = offset + u64::from(length);
        }
        *end = (*end).max(offset + u64::from(length));
        Ok(Some(Request { offset, length, op: *op, volume: file, ..Request::default() }))
    }

    fn file(&mut self, process: u32, call: &Call) -> Result<Option<u32>, Bad> {
        let Some(descriptor) = call.descriptor(0) else { return Ok(None) };
        let key = self.find(process, descriptor, true)?;
        Ok(key.and_then(|key| self.opened.get(&key)).and_then(|opened| opened.file))
    }

    fn flush(&mut self, process: u32, call: &Call) -> Result<Option<Request>, Bad> {
        let file = self.file(process, call)?;
        Ok(file.map(|volume| Request { op: Op::Flush, volume, ..Request::default() }))
    }

    /// A hole in a file is a trim; other uses of `fallocate` move no data.
    fn punch(&mut self, process: u32, call: &Call) -> Result<Option<Request>, Bad> {
        let (true, Some(first), Some(count)) =
            (call.has_flag(1, b"FALLOC_FL_PUNCH_HOLE"), call.number(2), call.number(3))
        else {
            return Ok(None);
        };
        let Some(volume) = self.file(process, call)? else { return Ok(None) };
        // A hole can be longer than a request can be.
        let (offset, length) = extent_of(call.argument(3), first, count.min(u32::MAX.into()), 1)?;
        Ok(Some(Request { op: Op::Trim, volume, offset, length, ..Request::default() }))
    }
}

/// The first number in brackets.
fn bracketed(argument: &[u8]) -> Option<u64> {
    let inside = argument.strip_prefix(b"[")?;
    crate::text::number(inside.get(..memchr::memchr(b']', inside)?)?)
}

/// Whether `path` is that of a file whose content can be cached: not a pipe or socket, not a device other than a disk,
/// and not a file that the kernel generates.
fn is_file(path: &[u8]) -> bool {
    const NOT: [&[u8]; 9] = [
        b"/proc/",
        b"/sys/",
        b"/dev/tty",
        b"/dev/pts/",
        b"/dev/null",
        b"/dev/zero",
        b"/dev/full",
        b"/dev/random",
        b"/dev/urandom",
    ];
    let is_kind = [&b"pipe:"[..], b"socket:", b"anon_inode:"].iter().any(|kind| path.starts_with(kind));
    let bracket = memchr::memchr(b':', path).is_some_and(|at| path.get(at + 1) == Some(&b'['));
    !(path.is_empty() || is_kind || bracket && !path.starts_with(b"/") || NOT.iter().any(|not| path.starts_with(not)))
}
