//! The requests of the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nigh_host::front::lock;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags as Renaming, SeekFrom, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, linkat, mkdirat, mknodat, renameat_with, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno as Code;

use crate::attributes::{Id, attributes, device_of, kind};
use crate::caller::as_caller;
use crate::directory::{Directory, Entry};
use crate::file::File;
use crate::handle::Handle;
use crate::inodes::{Inode, is_described};
use crate::shared::Shared;
use crate::source;
use crate::writing::Written;

/// For how long the kernel may use names of folders, and attributes, at least.
const BRIEF: Duration = Duration::from_secs(1);
/// Largest write that the kernel sends at once.
const WRITE_MOST: u32 = 1 << 20;
/// Flags of `open` that concern the source. Whether a program appends is decided for each write.
const KEPT_FLAGS: i32 = (OFlags::SYNC.bits() | OFlags::DSYNC.bits()) as i32;
const GENERATION: Generation = Generation(0);

/// The mounted files.
pub(crate) struct Tree(pub(crate) Arc<Shared>);

fn code(error: io::Error) -> Errno {
    error.into()
}

/// Replies with the result, or its error.
macro_rules! answer {
    ($reply:expr, $result:expr, |$value:pat_param| $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(error) => $reply.error(code(error)),
        }
    };
}

impl Shared {
    /// For how long the kernel may use the name of a file of this kind.
    fn name_counts(&self, kind: FileType) -> Duration {
        if kind == FileType::Directory { self.rules.fresh.max(BRIEF) } else { self.rules.fresh }
    }

    fn attributes_count(&self) -> Duration {
        self.rules.fresh.max(BRIEF)
    }

    /// Finds `name` in a folder, and counts that.
    fn find(&self, folder: u64, name: &OsStr) -> io::Result<(Arc<Inode>, Stat)> {
        let folder = self.inodes.get(folder)?;
        let path = source::find(&folder.path, name)?;
        let stat = source::stat(&path)?;
        let inode = self.inodes.add(&folder, name, path, &stat);
        if self.inodes.are_many() {
            // It is awake already if this fails.
            let _ = self.too_many.try_send(());
        }
        Ok((inode, stat))
    }

    fn entry(&self, reply: ReplyEntry, found: io::Result<(Arc<Inode>, Stat)>) {
        answer!(reply, found, |(inode, stat)| {
            let (attributes_count, name_counts) = (self.attributes_count(), self.name_counts(inode.kind));
            reply.entry_with_ttls(&attributes_count, &name_counts, &attributes(inode.number, &stat), GENERATION);
        });
    }

    fn forget(&self, number: u64, lookups: u64) {
        let Some(inode) = self.inodes.forget(number, lookups) else { return };
        // Nobody holds its number any more.
        let is_gone = !self.keeps_numbers || inode.is_gone();
        let gone = if is_gone { self.files.remove(inode.id) } else { None };
        let gone = gone.or_else(|| self.files.rest(inode.id));
        if is_gone && let Some(file) = self.files.known(inode.id) {
            // Somebody is about to close it, or has found it again.
            file.distrust();
        }
        if let Some(file) = gone {
            file.retire(&self.session, &self.volume);
        }
    }

    /// The present attributes of a file. If it is cached, a change of the source is noticed.
    fn stat(&self, inode: &Inode) -> io::Result<Stat> {
        match self.files.known(inode.id).filter(|_| inode.kind == FileType::RegularFile) {
            Some(file) => match file.fresh(&self.rules) {
                Some(stat) => Ok(stat),
                None => file.look(&self.rules, &self.session, || inode.stat()),
            },
            None => inode.stat(),
        }
    }

    /// Whether the file is one that is not cached.
    fn is_uncached(&self, inode: &Inode, file: &File) -> bool {
        !self.uncached.is_empty()
            && *file.is_uncached.get_or_init(|| is_described(&self.uncached, &inode.path_below_source()))
    }

    /// Has the kernel read and write a file that is not cached by itself, if it can. All that have it open share what `register` returns.
    fn pass_through(
        &self,
        handle: u64,
        register: impl FnOnce(&OwnedFd) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let handle = self.handles.get(handle).ok()?;
        let opened = handle.opened.as_ref().filter(|_| handle.session.is_none())?;
        if !self.passes_through.load(Ordering::Relaxed) {
            return None;
        }
        let mut shared = lock(&handle.file.backing);
        let backing = match shared.upgrade() {
            Some(backing) => backing,
            None => match register(opened) {
                Ok(backing) => Arc::new(backing),
                Err(error) => {
                    if self.passes_through.swap(false, Ordering::Relaxed) {
                        tracing::warn!(%error, "files that are not cached are read and written by this process");
                    }
                    return None;
                }
            },
        };
        *shared = Arc::downgrade(&backing);
        Some(handle.backing.get_or_init(|| backing).clone())
    }

    /// Opens a file that the kernel knows.
    fn open(&self, number: u64, flags: OpenFlags) -> io::Result<(u64, FopenFlags)> {
        let inode = self.inodes.get(number)?;
        let file = self.files.get(inode.id);
        file.set_path(&inode.path);
        let is_read = flags.acc_mode() == OpenAccMode::O_RDONLY;
        if is_read && !self.is_uncached(&inode, &file) && file.fresh(&self.rules).is_some() {
            let handle = self.handle(&inode, flags, None)?;
            return Ok((self.handles.add(handle), self.open_flags(&inode, &file)));
        }
        let source_flags = OFlags::from_bits_retain((flags.0 & (libc_access() | KEPT_FLAGS)) as u32);
        let opened = Arc::new(source::reopen(&inode.path, source_flags)?);
        file.look(&self.rules, &self.session, || source::stat(&opened))?;
        let handle = self.handle(&inode, flags, Some(opened))?;
        Ok((self.handles.add(handle), self.open_flags(&inode, &file)))
    }

    /// The flags of the reply to an open. Without `KEEP_CACHE`, the kernel drops the pages of mappings.
    fn open_flags(&self, inode: &Inode, file: &File) -> FopenFlags {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        if file.note_open() {
            return flags | FopenFlags::FOPEN_KEEP_CACHE;
        }
        self.invalidate(inode.number);
        flags
    }

    fn handle(&self, inode: &Inode, flags: OpenFlags, opened: Option<Arc<OwnedFd>>) -> io::Result<Handle> {
        let file = self.files.get(inode.id);
        let mode = flags.acc_mode();
        let (can_read, can_write) = (mode != OpenAccMode::O_WRONLY, mode != OpenAccMode::O_RDONLY);
        let session = if self.is_uncached(inode, &file) { None } else { Some(self.new_session(inode.number)?) };
        let append = match &opened {
            Some(opened) if can_write && flags.0 & OFlags::APPEND.bits() as i32 != 0 => {
                let kept = OFlags::from_bits_retain((flags.0 & KEPT_FLAGS) as u32);
                Some(source::reopen(opened, OFlags::WRONLY | OFlags::APPEND | kept)?)
            }
            _ => None,
        };
        if let Some(opened) = opened.as_ref().filter(|_| can_read) {
            file.add_reader(opened);
        }
        let backing = OnceLock::new();
        Ok(Handle { number: inode.number, file, opened, append, session, backing, can_read, can_write })
    }

    /// Creates a file, and opens it.
    fn create(
        &self,
        request: &Request,
        folder: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    ) -> io::Result<(Arc<Inode>, Stat, u64, FopenFlags)> {
        let folder = self.inodes.get(folder)?;
        let created = OFlags::EXCL | OFlags::TRUNC;
        let kept = libc_access() | KEPT_FLAGS | created.bits() as i32;
        let source_flags = OFlags::from_bits_retain((flags.0 & kept) as u32);
        let opened = as_caller(request, umask, || source::create(&folder.path, name, source_flags, mode & 0o7777))?;
        let path = source::reopen(&opened, OFlags::PATH)?;
        let stat = source::stat(&opened)?;
        let inode = self.inodes.add(&folder, name, path, &stat);
        let open = || {
            let file = self.files.get(inode.id);
            file.set_path(&inode.path);
            let opened = Arc::new(opened);
            let stat = file.look(&self.rules, &self.session, || source::stat(&opened))?;
            let handle = self.handle(&inode, flags, Some(opened))?;
            Ok((inode.clone(), stat, self.handles.add(handle), self.open_flags(&inode, &file)))
        };
        open().inspect_err(|_| self.forget(inode.number, 1))
    }

    #[expect(clippy::too_many_arguments, reason = "as many attributes can change at once")]
    fn set_attributes(
        &self,
        request: &Request,
        number: u64,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        size: Option<u64>,
        times: (Option<TimeOrNow>, Option<TimeOrNow>),
        handle: Option<FileHandle>,
    ) -> io::Result<Stat> {
        let inode = self.inodes.get(number)?;
        if let Some(size) = size {
            let handle = handle.map(|handle| self.handles.get(handle.0)).transpose()?;
            // The kernel has checked a caller that is not root, and leaves these bits to us.
            let clears = request.uid() != 0;
            self.truncate(&inode, handle.as_deref(), size, clears)?;
        }
        self.keeping(&inode, || {
            if owner != (None, None) {
                let (user, group) = (owner.0.map(Uid::from_raw), owner.1.map(Gid::from_raw));
                chownat(&inode.path, "", user, group, AtFlags::EMPTY_PATH)?;
            }
            if let Some(mode) = mode {
                if inode.kind == FileType::Symlink {
                    return Err(Code::OPNOTSUPP.into());
                }
                chmodat(CWD, source::path(&inode.path), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
            }
            if times.0.is_some() || times.1.is_some() {
                let times = Timestamps { last_access: timespec(times.0), last_modification: timespec(times.1) };
                utimensat(&inode.path, "", &times, AtFlags::EMPTY_PATH)?;
            }
            Ok(())
        })?;
        inode.stat()
    }

    fn make(
        &self,
        request: &Request,
        folder: u64,
        name: &OsStr,
        umask: u32,
        make: impl FnOnce(&Inode) -> io::Result<()>,
    ) -> io::Result<(Arc<Inode>, Stat)> {
        let parent = self.inodes.get(folder)?;
        as_caller(request, umask, || make(&parent))?;
        self.find(folder, name)
    }

    fn remove(&self, folder: u64, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        let folder = self.inodes.get(folder)?;
        let inode = self.named(&folder, name);
        unlinkat(&folder.path, name, flags)?;
        if let Some(inode) = inode {
            inode.note_unlinked();
        }
        Ok(())
    }

    /// The file `name` in `folder`, if the kernel knows it.
    fn named(&self, folder: &Inode, name: &OsStr) -> Option<Arc<Inode>> {
        let stat = source::stat_at(&folder.path, name).ok()?;
        self.inodes.known(Id::of(&stat))
    }

    fn rename(&self, (from, name): (u64, &OsStr), (to, new_name): (u64, &OsStr), flags: RenameFlags) -> io::Result<()> {
        let (from, to) = (self.inodes.get(from)?, self.inodes.get(to)?);
        let flags = Renaming::from_bits(flags.bits()).ok_or(Code::INVAL)?;
        let replaced = self.named(&to, new_name);
        let rename = || Ok(renameat_with(&from.path, name, &to.path, new_name, flags)?);
        match self.named(&from, name) {
            Some(inode) => self.keeping(&inode, rename)?,
            None => rename()?,
        }
        if let Some(inode) = replaced {
            inode.note_unlinked();
        }
        Ok(())
    }

    fn link(&self, number: u64, folder: u64, name: &OsStr) -> io::Result<(Arc<Inode>, Stat)> {
        let (inode, parent) = (self.inodes.get(number)?, self.inodes.get(folder)?);
        self.keeping(&inode, || {
            Ok(linkat(CWD, source::path(&inode.path), &parent.path, name, AtFlags::SYMLINK_FOLLOW)?)
        })?;
        self.find(folder, name)
    }

    /// The path by which extended attributes of a file are reached.
    fn attribute_path(&self, number: u64) -> io::Result<(Arc<Inode>, String)> {
        let inode = self.inodes.get(number)?;
        if inode.kind == FileType::Symlink {
            return Err(Code::OPNOTSUPP.into());
        }
        let path = source::path(&inode.path);
        Ok((inode, path))
    }

    fn list(
        &self,
        directory: &Directory,
        offset: u64,
        mut add: impl FnMut(u64, u64, FileType, &OsStr) -> bool,
    ) -> io::Result<()> {
        let entries = directory.entries(offset == 0)?;
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let number = self.inodes.number(entry.id);
            if add(number, at as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        Ok(())
    }

    /// Finds an entry of a folder that was just listed, and counts that. A file that the kernel knows is not looked up again.
    fn find_listed(&self, folder: u64, entry: &Entry) -> io::Result<(Arc<Inode>, Stat)> {
        let Some(inode) = self.inodes.again(entry.id) else { return self.find(folder, &entry.name) };
        match self.stat(&inode) {
            Ok(stat) => Ok((inode, stat)),
            Err(error) => {
                self.forget(inode.number, 1);
                Err(error)
            }
        }
    }

    /// Lists a folder, with the attributes of its files, each of which counts as found.
    fn list_attributes(
        &self,
        folder: u64,
        directory: &Directory,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> io::Result<()> {
        let entries = directory.entries(offset == 0)?;
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let next = at as u64 + 1;
            let mut add = |attributes: &FileAttr, counts: Duration| {
                reply.add(attributes.ino, next, &entry.name, &counts, attributes, GENERATION)
            };
            if entry.is_dots() {
                let stat = source::stat(directory.opened()?)?;
                if add(&attributes(self.inodes.number(entry.id), &stat), Duration::ZERO) {
                    break;
                }
                continue;
            }
            // One that was removed meanwhile is left out.
            let Ok((inode, stat)) = self.find_listed(folder, entry) else { continue };
            if add(&attributes(inode.number, &stat), self.name_counts(inode.kind)) {
                self.forget(inode.number, 1);
                break;
            }
        }
        Ok(())
    }
}

/// The bits of `open`'s flags that distinguish reading and writing.
fn libc_access() -> i32 {
    OFlags::RWMODE.bits() as i32
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() },
            Err(before) => {
                let before = before.duration();
                let (seconds, nanoseconds) = (before.as_secs() as i64, i64::from(before.subsec_nanos()));
                match nanoseconds {
                    0 => Timespec { tv_sec: -seconds, tv_nsec: 0 },
                    _ => Timespec { tv_sec: -seconds - 1, tv_nsec: (1_000_000_000 - nanoseconds) as _ },
                }
            }
        },
    }
}

/// Replies with the value of an extended attribute, or of their list, or with its length.
fn reply_value(reply: ReplyXattr, size: u32, get: impl Fn(&mut [u8]) -> io::Result<usize>) {
    let mut value = vec![0; size as usize];
    match get(&mut value) {
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&value[..length.min(value.len())]),
        Err(error) => reply.error(code(error)),
    }
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_PARALLEL_DIROPS;
        if !self.0.rules.fresh.is_zero() {
            // Otherwise, names of files are looked up again at their first use, and their attributes in the list are asked for in vain.
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.0.has_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        let offered = config.capabilities();
        // Only root may, and only on a file system that does not itself stand on another one.
        let passes_through = !self.0.uncached.is_empty() && offered.contains(InitFlags::FUSE_PASSTHROUGH);
        if passes_through && config.set_max_stack_depth(1).is_ok() {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
            self.0.passes_through.store(true, Ordering::Relaxed);
        }
        // They are offered.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(WRITE_MOST);
        // Requests that nobody waits for, such as those of read-ahead for mappings.
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.entry(reply, self.0.find(folder.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let stat = self.0.inodes.get(number.0).map_err(Into::into).and_then(|inode| self.0.stat(&inode));
        answer!(reply, stat, |stat| reply.attr(&self.0.attributes_count(), &attributes(number.0, &stat)));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let times = (accessed, modified);
        let set = self.0.set_attributes(request, number.0, mode, (user, group), size, times, handle);
        answer!(reply, set, |stat| reply.attr(&self.0.attributes_count(), &attributes(number.0, &stat)));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let inode = self.0.inodes.get(number.0).map_err(io::Error::from);
        let target = inode.and_then(|inode| Ok(rustix::fs::readlinkat(&inode.path, "", Vec::new())?));
        answer!(reply, target, |target| reply.data(target.as_bytes()));
    }

    fn mknod(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.make(request, folder.0, name, umask, |folder| {
            let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
            Ok(mknodat(&folder.path, name, kind, mode, device_of(device))?)
        });
        self.0.entry(reply, made);
    }

    fn mkdir(&self, request: &Request, folder: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.0.make(request, folder.0, name, umask, |folder| {
            Ok(mkdirat(&folder.path, name, Mode::from_raw_mode(mode & 0o7777))?)
        });
        self.0.entry(reply, made);
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(folder.0, name, AtFlags::empty()), |()| reply.ok());
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(folder.0, name, AtFlags::REMOVEDIR), |()| reply.ok());
    }

    fn symlink(&self, request: &Request, folder: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.0.make(request, folder.0, name, 0, |folder| Ok(symlinkat(target, &folder.path, name)?));
        self.0.entry(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        from: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.rename((from.0, name), (to.0, new_name), flags), |()| reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.entry(reply, self.0.link(number.0, folder.0, name));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.0.open(number.0, flags), |(handle, flags)| {
            match self.0.pass_through(handle, |opened| reply.open_backing(opened)) {
                Some(backing) => reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing),
                None => reply.opened(FileHandle(handle), flags),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.handles.get(handle.0) {
            Ok(handle) => self.0.read(&handle, offset, size, reply),
            Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = Written {
            offset,
            bytes,
            is_mapped: flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            clears_rights: flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let handle = self.0.handles.get(handle.0).map_err(io::Error::from);
        let written = handle.and_then(|handle| self.0.write(&handle, &written));
        answer!(reply, written, |length| reply.written(length));
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let handle = self.0.handles.get(handle.0).map_err(io::Error::from);
        answer!(reply, handle.and_then(|handle| self.0.close(&handle)), |()| reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.0.handles.remove(handle.0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, only_data: bool, reply: ReplyEmpty) {
        let handle = self.0.handles.get(handle.0).map_err(io::Error::from);
        answer!(reply, handle.and_then(|handle| self.0.sync(&handle, only_data)), |()| reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let open = || {
            let inode = self.0.inodes.get(number.0)?;
            let directory = Directory::new(&inode.path, inode.id.device);
            if self.0.rules.fresh.is_zero() {
                directory.opened()?;
            }
            Ok(self.0.directories.add(directory))
        };
        // The kernel keeps the list for as long as it keeps the attributes.
        let kept = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        let flags = if self.0.rules.fresh.is_zero() { FopenFlags::empty() } else { kept };
        answer!(reply, open(), |handle| reply.opened(FileHandle(handle), flags));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.0.directories.get(handle.0).map_err(io::Error::from).and_then(|directory| {
            self.0.list(&directory, offset, |number, next, of, name| reply.add(INodeNo(number), next, kind(of), name))
        });
        answer!(reply, listed, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.0.directories.get(handle.0).map_err(io::Error::from);
        let listed = listed.and_then(|directory| self.0.list_attributes(number.0, &directory, offset, &mut reply));
        answer!(reply, listed, |()| reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        drop(self.0.directories.remove(handle.0));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, only_data: bool, reply: ReplyEmpty) {
        let sync = |directory: Arc<Directory>| match only_data {
            true => Ok(rustix::fs::fdatasync(directory.opened()?)?),
            false => Ok(rustix::fs::fsync(directory.opened()?)?),
        };
        let synced = self.0.directories.get(handle.0).map_err(io::Error::from).and_then(sync);
        answer!(reply, synced, |()| reply.ok());
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let inode = self.0.inodes.get(number.0);
        let stat = inode.and_then(|inode| rustix::fs::fstatvfs(inode.path.as_fd())).map_err(io::Error::from);
        answer!(reply, stat, |stat| reply.statfs(
            stat.f_blocks,
            stat.f_bfree,
            stat.f_bavail,
            stat.f_files,
            stat.f_ffree,
            stat.f_bsize as u32,
            stat.f_namemax as u32,
            stat.f_frsize as u32,
        ));
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.0.attribute_path(number.0).and_then(|(inode, path)| {
            let flags = XattrFlags::from_bits(flags as u32).ok_or(Code::INVAL)?;
            self.0.keeping(&inode, || Ok(rustix::fs::setxattr(&path, name, value, flags)?))
        });
        answer!(reply, set, |()| reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer!(reply, self.0.attribute_path(number.0), |(_, path)| {
            reply_value(reply, size, |value| Ok(rustix::fs::getxattr(&path, name, value)?));
        });
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.0.attribute_path(number.0), |(_, path)| {
            reply_value(reply, size, |value| Ok(rustix::fs::listxattr(&path, value)?));
        });
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .0
            .attribute_path(number.0)
            .and_then(|(inode, path)| self.0.keeping(&inode, || Ok(rustix::fs::removexattr(&path, name)?)));
        answer!(reply, removed, |()| reply.ok());
    }

    fn create(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.0.create(request, folder.0, name, mode, umask, OpenFlags(flags));
        answer!(reply, created, |(inode, stat, handle, flags)| {
            let (counts, attributes) = (self.0.attributes_count(), attributes(inode.number, &stat));
            let number = FileHandle(handle);
            match self.0.pass_through(handle, |opened| reply.open_backing(opened)) {
                Some(backing) => {
                    let flags = FopenFlags::empty();
                    reply.created_passthrough(&counts, &attributes, GENERATION, number, flags, &backing);
                }
                None => reply.created(&counts, &attributes, GENERATION, number, flags),
            }
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let handle = self.0.handles.get(handle.0).map_err(io::Error::from);
        let allocated = handle.and_then(|handle| self.0.allocate(&handle, offset, length, mode as u32));
        answer!(reply, allocated, |()| reply.ok());
    }

    fn lseek(&self, _: &Request, number: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let seek = || {
            let handle = self.0.handles.get(handle.0)?;
            let to = match whence {
                SEEK_DATA => SeekFrom::Data(offset as u64),
                SEEK_HOLE => SeekFrom::Hole(offset as u64),
                _ => return Err(io::Error::from(Code::INVAL)),
            };
            let opened = match &handle.opened {
                Some(opened) => opened.clone(),
                None => Arc::new(source::reopen(&self.0.inodes.get(number.0)?.path, OFlags::RDONLY)?),
            };
            Ok(rustix::fs::seek(&opened, to)?)
        };
        answer!(reply, seek(), |found| reply.offset(found as i64));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copy = || {
            let (from, to) = (self.0.handles.get(from.0)?, self.0.handles.get(to.0)?);
            self.0.copy((&from, from_offset), (&to, to_offset), length, flags)
        };
        answer!(reply, copy(), |length| reply.written(length));
    }
}

/// As in linux/fs.h.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
