//! A device in this process as a file, by FUSE: every read, write and sync of another process comes to it at once.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

/// The name of the file.
const NAME: &str = "image";
const FILE: INodeNo = INodeNo(2);
/// `fallocate`'s flags for holes and zeros (linux/falloc.h).
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// Behaviour of a file. Calls come from several threads; each may take as long as it likes.
pub trait Device: Send + Sync + 'static {
    /// Bytes.
    fn length(&self) -> u64;
    /// At most `length` bytes from `offset` on.
    ///
    /// # Errors
    /// The result for the caller.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>>;
    /// Returns how many of the bytes were written.
    ///
    /// # Errors
    /// The result for the caller.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// `fsync` and `fdatasync`.
    ///
    /// # Errors
    /// The result for the caller.
    fn sync(&self) -> io::Result<()>;
}

/// A mounted device; unmounted when dropped, once nobody uses it.
pub struct Mounted {
    file: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts it on a folder, with this many threads.
    ///
    /// # Errors
    /// If this system lets this process mount no FUSE file system.
    pub fn new(folder: &Path, device: Arc<impl Device>, threads: usize) -> io::Result<Mounted> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("nigh-test".into())];
        config.n_threads = Some(threads);
        let session = fuser::spawn_mount(Files(device), folder, &config)?;
        Ok(Mounted { file: folder.join(NAME), session: Some(session) })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error means that it is in use, and then there is nothing else to be done.
        let _ = self.session.take().map(BackgroundSession::umount_and_join);
    }
}

struct Files<D>(Arc<D>);

impl<D: Device> Files<D> {
    fn attributes(&self, file: INodeNo) -> FileAttr {
        let (kind, perm, size) = match file {
            FILE => (FileType::RegularFile, 0o600, self.0.length()),
            _ => (FileType::Directory, 0o700, 0),
        };
        FileAttr {
            ino: file,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

impl<D: Device> Filesystem for Files<D> {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&Duration::ZERO, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attributes(file));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel caches nothing.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(offset, data) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (PUNCH_HOLE | ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.0.write(offset, &vec![0; length as usize]) {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.sync() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
