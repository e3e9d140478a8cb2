//! The least that a FUSE file system over a folder does, with direct I/O and without a cache; and, with a delay, a slow source.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

/// Mounts `source` at `at` for reading, until it is unmounted. Each request takes `delay`.
pub(crate) fn run(source: &Path, at: &Path, delay: Duration, threads: usize) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("minimal".into()), MountOption::RO];
    config.n_threads = Some(threads);
    config.clone_fd = true;
    let paths = Paths { by_number: vec![PathBuf::new(), source.to_owned()], numbers: HashMap::new() };
    let tree = Minimal { delay, paths: Mutex::new(paths), files: RwLock::default() };
    Ok(fuser::mount(tree, at, &config)?)
}

struct Paths {
    by_number: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

struct Minimal {
    delay: Duration,
    paths: Mutex<Paths>,
    files: RwLock<HashMap<u64, Arc<File>>>,
}

impl Minimal {
    fn wait(&self) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }

    fn path(&self, number: INodeNo) -> PathBuf {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).by_number[number.0 as usize].clone()
    }

    fn number(&self, path: PathBuf) -> u64 {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let next = paths.by_number.len() as u64;
        if let Some(number) = paths.numbers.get(&path) {
            return *number;
        }
        paths.by_number.push(path.clone());
        paths.numbers.insert(path, next);
        next
    }
}

fn attributes(number: u64, found: &fs::Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32);
    let kind = if found.is_dir() { FileType::Directory } else { FileType::RegularFile };
    FileAttr {
        ino: INodeNo(number),
        size: found.size(),
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (found.mode() & 0o7777) as u16,
        nlink: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn code(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

impl Filesystem for Minimal {
    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        let path = self.path(folder).join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) => {
                let number = self.number(path);
                reply.entry(&Duration::ZERO, &attributes(number, &found), Generation(0));
            }
            Err(error) => reply.error(code(&error)),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        match fs::symlink_metadata(self.path(number)) {
            Ok(found) => reply.attr(&Duration::ZERO, &attributes(number.0, &found)),
            Err(error) => reply.error(code(&error)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.wait();
        match File::open(self.path(number)) {
            Ok(file) => {
                self.files.write().unwrap_or_else(PoisonError::into_inner).insert(number.0, Arc::new(file));
                reply.opened(FileHandle(number.0), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(code(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait();
        let file = self.files.read().unwrap_or_else(PoisonError::into_inner).get(&number.0).cloned();
        let Some(file) = file else { return reply.error(Errno::EBADF) };
        let mut bytes = vec![0; size as usize];
        match file.read_at(&mut bytes, offset) {
            Ok(read) => reply.data(&bytes[..read]),
            Err(error) => reply.error(code(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.wait();
        let path = self.path(number);
        let mut entries: Vec<_> = match fs::read_dir(&path) {
            Ok(entries) => entries.flatten().collect(),
            Err(error) => return reply.error(code(&error)),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
            let number = self.number(entry.path());
            if reply.add(INodeNo(number), at as u64 + 1, kind, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }
}
