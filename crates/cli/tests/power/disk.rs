//! A disk in this process, as a file that FUSE serves: what was written to it is volatile until it is synced.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use fastrand::Rng;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use rustix::fs::FallocateFlags;

/// Bytes of a sector: a power cut tears writes between sectors, not within.
pub(crate) const SECTOR: usize = 512;
/// The name of the file.
pub(crate) const NAME: &str = "image";
/// How long the kernel may keep names and sizes.
const TTL: Duration = Duration::from_secs(60);
const FILE: INodeNo = INodeNo(2);
/// The longest that a write or sync takes, in microseconds.
const DELAY_US: u64 = 300;

type Sector = [u8; SECTOR];

/// What a write left in a sector.
struct Version {
    bytes: Sector,
    /// The number of the write.
    write: u64,
}

/// What a disk did since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    pub(crate) failed_syncs: u64,
    /// Sectors that were volatile when the power failed, and those of them that did not get their last version.
    pub(crate) volatile: u64,
    pub(crate) lost: u64,
}

struct Platter {
    stable: Vec<u8>,
    /// What reads return: the page cache.
    current: Vec<u8>,
    /// What each sector may have instead of its stable contents after a power cut, oldest first.
    unsynced: HashMap<usize, Vec<Version>>,
    /// Writes that were received; those that were not replied to are also in `open`.
    writes: u64,
    open: Vec<u64>,
    /// How often the power failed.
    epoch: u64,
    is_off: bool,
    /// How many of a hundred syncs fail.
    failing: u64,
    /// Whether something that reads return never becomes stable.
    has_forgotten: bool,
    counts: Counts,
    random: Rng,
}

impl Platter {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> u64 {
        self.writes += 1;
        self.open.push(self.writes);
        self.counts.writes += 1;
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        for sector in offset / SECTOR..(offset + bytes.len()).div_ceil(SECTOR) {
            let bytes = self.current[sector * SECTOR..][..SECTOR].try_into().expect("a sector");
            self.unsynced.entry(sector).or_default().push(Version { bytes, write: self.writes });
        }
        self.writes
    }

    /// The last version of each sector whose write was replied to becomes stable; what is in progress is not covered.
    fn sync(&mut self, before: u64, open: &[u64]) {
        let is_covered = |version: &Version| version.write <= before && !open.contains(&version.write);
        let stable = &mut self.stable;
        self.unsynced.retain(|sector, versions| {
            if let Some(last) = versions.iter().rposition(is_covered) {
                stable[sector * SECTOR..][..SECTOR].copy_from_slice(&versions[last].bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// A sync fails, and the system takes for synced what is not: reads still return it, but it never becomes stable.
    fn forget(&mut self, before: u64, open: &[u64]) {
        self.has_forgotten = true;
        self.unsynced.retain(|_, versions| {
            versions.retain(|version| version.write > before || open.contains(&version.write));
            !versions.is_empty()
        });
    }

    /// Some of what is volatile reaches the platter, in any order and torn between sectors; the rest is gone.
    fn cut(&mut self) {
        // All, nothing, or anything between.
        let share = [0, 100, 50, self.random.u64(1..100)][self.random.usize(..4)];
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            self.counts.volatile += 1;
            let kept = (self.random.u64(..100) < share).then(|| match self.random.bool() {
                true => versions.len() - 1,
                false => self.random.usize(..versions.len()),
            });
            if let Some(kept) = kept {
                self.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&versions[kept].bytes);
            }
            self.counts.lost += u64::from(kept != Some(versions.len() - 1));
        }
        self.current.copy_from_slice(&self.stable);
        self.open.clear();
        self.epoch += 1;
        (self.is_off, self.has_forgotten) = (true, false);
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.random.u64(..DELAY_US))
    }
}

struct Files {
    platter: Arc<Mutex<Platter>>,
    length: u64,
}

/// A mounted disk; unmounted when dropped.
pub(crate) struct Disk {
    platter: Arc<Mutex<Platter>>,
    session: Option<BackgroundSession>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Servers have ended: nothing uses it.
        let _ = self.session.take().map(BackgroundSession::umount_and_join);
    }
}

impl Disk {
    /// Mounts a disk of zeros on a folder.
    pub(crate) fn new(folder: &Path, length: usize, seed: u64) -> io::Result<Disk> {
        let platter = Platter {
            stable: vec![0; length],
            current: vec![0; length],
            unsynced: HashMap::new(),
            writes: 0,
            open: Vec::new(),
            epoch: 0,
            is_off: false,
            failing: 0,
            has_forgotten: false,
            counts: Counts::default(),
            random: Rng::with_seed(seed),
        };
        let platter = Arc::new(Mutex::new(platter));
        let files = Files { platter: platter.clone(), length: length as u64 };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("nigh-test".into())];
        config.n_threads = Some(4);
        Ok(Disk { platter, session: Some(fuser::spawn_mount(files, folder, &config)?) })
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().unwrap()
    }

    /// From now on, every request fails, and what the platter has is final.
    pub(crate) fn cut(&self) {
        self.platter().cut();
    }

    /// The power is back; so many of a hundred syncs fail.
    pub(crate) fn start(&self, failing: u64) {
        let mut platter = self.platter();
        (platter.is_off, platter.failing) = (false, failing);
    }

    /// A copy of what is stable.
    pub(crate) fn stable(&self) -> Vec<u8> {
        self.platter().stable.clone()
    }

    /// A copy of what reads return.
    pub(crate) fn current(&self) -> Vec<u8> {
        self.platter().current.clone()
    }

    /// Whether something that reads return never becomes stable, because a sync failed.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.platter().has_forgotten
    }

    /// What sectors may have instead of what reads return, if the power fails.
    pub(crate) fn older(&self) -> HashMap<usize, Vec<Vec<u8>>> {
        let platter = self.platter();
        let older = |(sector, versions): (&usize, &Vec<Version>)| {
            let stable = platter.stable[sector * SECTOR..][..SECTOR].to_vec();
            let others = versions.iter().map(|version| version.bytes.to_vec());
            (*sector, std::iter::once(stable).chain(others).collect())
        };
        platter.unsynced.iter().map(older).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        std::mem::take(&mut self.platter().counts)
    }
}

impl Files {
    fn attributes(&self, file: INodeNo) -> FileAttr {
        let is_file = file == FILE;
        FileAttr {
            ino: file,
            size: if is_file { self.length } else { 0 },
            blocks: if is_file { self.length / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().unwrap()
    }

    /// Writes, and takes its time before it says so; `false` if the power failed meanwhile.
    fn write_slowly(&self, offset: u64, bytes: &[u8]) -> bool {
        let (write, epoch, delay) = {
            let mut platter = self.platter();
            if platter.is_off {
                return false;
            }
            (platter.write(offset as usize, bytes), platter.epoch, platter.delay())
        };
        std::thread::sleep(delay);
        let mut platter = self.platter();
        platter.open.retain(|open| *open != write);
        platter.epoch == epoch
    }

    fn is_inside(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length)
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&TTL, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(file));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Every write comes here at once: `current` is the page cache.
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
        let platter = self.platter();
        if platter.is_off {
            return reply.error(Errno::EIO);
        }
        let start = self.length.min(offset) as usize;
        let end = self.length.min(offset.saturating_add(u64::from(size))) as usize;
        reply.data(&platter.current[start..end]);
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
        if !self.is_inside(offset, data.len() as u64) {
            reply.error(Errno::ENOSPC);
        } else if self.write_slowly(offset, data) {
            reply.written(data.len() as u32);
        } else {
            reply.error(Errno::EIO);
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
        let zeroes = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !FallocateFlags::from_bits_retain(mode as u32).intersects(zeroes) || !self.is_inside(offset, length) {
            reply.error(Errno::EOPNOTSUPP);
        } else if self.write_slowly(offset, &vec![0; length as usize]) {
            reply.ok();
        } else {
            reply.error(Errno::EIO);
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let (before, open, epoch, delay) = {
            let mut platter = self.platter();
            if platter.is_off {
                return reply.error(Errno::EIO);
            }
            platter.counts.syncs += 1;
            (platter.writes, platter.open.clone(), platter.epoch, platter.delay())
        };
        std::thread::sleep(delay);
        let mut platter = self.platter();
        if platter.epoch != epoch {
            reply.error(Errno::EIO);
        } else if platter.random.u64(..100) < platter.failing {
            platter.counts.failed_syncs += 1;
            platter.forget(before, &open);
            reply.error(Errno::EIO);
        } else {
            platter.sync(before, &open);
            reply.ok();
        }
    }
}
