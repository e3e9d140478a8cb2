//! Files and block devices: how they are opened, and what is known of them from then on.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, fstatfs, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::device::Extent;
use crate::error::{OpenError, OpenErrorKind};
use crate::kernel::is_read_only;
use crate::lock::{check, in_use, lock_image, unlock_image};
use crate::stamp::{self, Stamp};

/// A page of the page cache, in bytes: direct and buffered transfers never share one.
const PAGE: u64 = 4096;
/// The alignment that O_DIRECT is assumed to need if the system does not report it.
const USUAL_ALIGN: u64 = 4096;

/// The type of file systems in user space, as `statfs` reports it. A process that has direct operations there does not end before
/// they do, even if it is killed.
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// How a target is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Writes are refused, and others may read the file meanwhile.
    pub read_only: bool,
    /// The block size of the engines, in bytes: operations begin at its multiples, and frames are aligned to it.
    pub block_bytes: u32,
    /// How many operations the kernel works on at a time, 1 to 4096.
    pub depth: u32,
    /// Threads that call pread and pwrite, also where io_uring is available.
    pub threads: bool,
    /// Files are neither locked nor refused if others have locked them.
    pub unlocked: bool,
    /// A disk in an object store is taken from another writer that seems to live.
    pub take_over: bool,
    /// A file with a write log is opened with that: otherwise it is refused.
    pub has_log: bool,
    /// The disk that the target belongs to, for the log.
    pub name: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            block_bytes: 4096,
            depth: 128,
            threads: false,
            unlocked: false,
            take_over: false,
            has_log: false,
            name: String::new(),
        }
    }
}

/// An open file or block device. It is locked while it is open, unless it is to be unlocked.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    pub(crate) buffered: File,
    /// The same, past the page cache.
    pub(crate) direct: Option<Direct>,
    pub(crate) block_device: bool,
    pub(crate) read_only: bool,
    /// As last seen.
    size: AtomicU64,
    /// How often the size was seen to change.
    resizes: AtomicU32,
    /// Whether it was seen to have no name any more.
    deleted: AtomicBool,
}

/// A file opened with O_DIRECT.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) file: File,
    /// Multiples of which offsets and lengths are, in bytes.
    align: u64,
}

/// The error of doing `action` with `path`.
fn fail<'a>(path: &'a Path, action: &'static str) -> impl Fn(io::Error) -> OpenError + 'a {
    move |source| {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => OpenErrorKind::NotFound,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => OpenErrorKind::Denied,
            io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => OpenErrorKind::Busy,
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => OpenErrorKind::Unsuitable,
            _ => OpenErrorKind::System,
        };
        OpenError { kind, action, path: path.to_owned(), source }
    }
}

/// Opens a regular file, or with more flags a block device. Returns whether it is a block device.
fn open_plain(path: &Path, read_only: bool, flags_of_device: i32) -> Result<(File, bool), OpenError> {
    let metadata = std::fs::metadata(path).map_err(fail(path, "open"))?;
    let block_device = metadata.file_type().is_block_device();
    if !block_device && !metadata.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device");
        return Err(fail(path, "use")(source));
    }
    let action = if read_only { "open" } else { "open for writing" };
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only).custom_flags(if block_device { flags_of_device } else { 0 });
    let file = options.open(path).map_err(fail(path, action))?;
    if block_device && !read_only && is_read_only(&file).map_err(|error| fail(path, action)(error.into()))? {
        // The kernel opens it for writing all the same, and may drop what is written.
        let text = "the block device is read-only: serve it with `read-only`, or change it with blockdev --setrw";
        return Err(fail(path, action)(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text)));
    }
    Ok((file, block_device))
}

fn size_of(file: &File, block_device: bool) -> io::Result<u64> {
    match block_device {
        true => (&*file).seek(SeekFrom::End(0)),
        false => Ok(file.metadata()?.len()),
    }
}

impl OpenFile {
    /// The error of opening it, without looking at locks. Returns its size in bytes.
    pub(crate) fn check(path: &Path, read_only: bool) -> Result<u64, OpenError> {
        let (file, block_device) = open_plain(path, read_only, 0)?;
        size_of(&file, block_device).map_err(fail(path, "get the size of"))
    }

    pub(crate) fn open(path: &Path, options: &Options) -> Result<OpenFile, OpenError> {
        let fail = |action| fail(path, action);
        // With O_EXCL, a block device that is mounted is not opened.
        let exclusive = if options.read_only { 0 } else { libc::O_EXCL };
        let (buffered, block_device) = open_plain(path, options.read_only, exclusive)?;
        // The engine reads ahead. If the advice is not taken, nothing is lost.
        let _ = fadvise(&buffered, 0, None, Advice::Random);
        let direct = match open_direct(&buffered, options) {
            Ok(direct) => Some(direct),
            Err(error) => {
                tracing::info!(path = %path.display(), %error, "no O_DIRECT: through the page cache");
                None
            }
        };
        let file = OpenFile {
            path: path.to_owned(),
            buffered,
            direct,
            block_device,
            read_only: options.read_only,
            size: AtomicU64::new(0),
            resizes: AtomicU32::new(0),
            deleted: AtomicBool::new(false),
        };
        let locked = if options.unlocked { Ok(()) } else { lock_image(file.way(), options.read_only) };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let metadata = file.way().metadata().map_err(fail("lock"))?;
                return Err(fail("lock")(in_use(&metadata)));
            }
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = %path.display(), %error, "not all locks can be taken: others may open the file, too");
            }
        }
        let size = file.present_size().map_err(fail("get the size of"))?;
        file.size.store(size, Ordering::Relaxed);
        Ok(file)
    }

    /// The error if another process has `path` locked, which is then named. Whatever else is wrong with the file is reported
    /// when it is opened.
    pub(crate) fn check_locks(path: &Path, read_only: bool) -> Result<(), OpenError> {
        let Ok(file) = OpenOptions::new().read(true).write(!read_only).open(path) else { return Ok(()) };
        let locked = |source| OpenError { kind: OpenErrorKind::Busy, action: "lock", path: path.to_owned(), source };
        check(&file, read_only).map_err(locked)
    }

    /// The file of most operations. It has the lock: if the process is killed, the lock stays until the kernel has finished the
    /// operations that the process had under way there.
    pub(crate) fn way(&self) -> &File {
        self.direct.as_ref().map_or(&self.buffered, |direct| &direct.file)
    }

    /// The file for an operation on `range`: the one with O_DIRECT if all of the range can be transferred directly.
    pub(crate) fn way_of(&self, range: &Range<u64>) -> &File {
        match &self.direct {
            Some(direct) if self.direct_bytes(range) == range.end - range.start => &direct.file,
            _ => &self.buffered,
        }
    }

    /// Whether the kernel accepts an operation and reports at once that it would have to wait. On other files, such as those of
    /// file systems in user space, io_uring itself may wait for the file.
    pub(crate) fn knows_no_wait(&self) -> bool {
        let mut byte = [0];
        let read = preadv2(self.way(), &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
        read != Err(Errno::OPNOTSUPP)
    }

    fn present_size(&self) -> io::Result<u64> {
        size_of(&self.buffered, self.block_device)
    }

    /// How often the size was seen to change.
    pub(crate) fn resizes(&self) -> u32 {
        self.resizes.load(Ordering::Acquire)
    }

    /// How many of the bytes of `range`, from its beginning, can be transferred directly. The others have to go through
    /// the page cache: those beyond the last whole page, so that the two ways never meet in one page, and what does
    /// not fill the unit of O_DIRECT.
    pub(crate) fn direct_bytes(&self, range: &Range<u64>) -> u64 {
        let Some(Direct { align, .. }) = self.direct else { return 0 };
        if !range.start.is_multiple_of(align) {
            return 0;
        }
        let unit = align.max(PAGE);
        let last = self.size.load(Ordering::Relaxed) / unit * unit;
        (range.end.min(last) / align * align).saturating_sub(range.start)
    }

    /// The extent at `offset`, up to its end or that of the file.
    pub(crate) fn extent(&self, offset: u64) -> io::Result<Extent> {
        let size = self.size.load(Ordering::Relaxed).max(offset + 1);
        let data = |end| Ok(Extent { range: offset..end, hole: false });
        if self.block_device {
            return data(size);
        }
        match rustix::fs::seek(&self.buffered, rustix::fs::SeekFrom::Data(offset)) {
            Ok(start) if start > offset => Ok(Extent { range: offset..start.min(size), hole: true }),
            Ok(_) => {
                data(rustix::fs::seek(&self.buffered, rustix::fs::SeekFrom::Hole(offset))?.clamp(offset + 1, size))
            }
            // No data up to the end, or the file has become shorter than `offset`.
            Err(Errno::NXIO) => {
                let end = self.buffered.metadata()?.len();
                if end > offset { Ok(Extent { range: offset..end, hole: true }) } else { data(size) }
            }
            Err(Errno::INVAL | Errno::OPNOTSUPP) => data(size),
            Err(error) => Err(error.into()),
        }
    }

    /// Its present size in bytes, which counts from now on.
    pub(crate) fn look_at_size(&self) -> io::Result<u64> {
        let size = self.present_size()?;
        let before = self.size.swap(size, Ordering::AcqRel);
        if before != size {
            self.resizes.fetch_add(1, Ordering::Release);
        }
        if size < before {
            let path = self.path.display();
            tracing::warn!(%path, before, size, "the file has become shorter: writes beyond its end fail");
        }
        Ok(size)
    }

    /// Whether writes to `range` leave the file as long as it was when its size was last looked at. Those of a disk do, unless
    /// somebody else made the file shorter.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        range.end <= self.size.load(Ordering::Relaxed)
    }

    /// Checks whether another process changed it, and logs that. A check that is not possible now is repeated later.
    pub(crate) fn watch(&self) {
        let _ = self.look_at_size();
        let is_gone = !self.block_device && self.buffered.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        if is_gone && !self.deleted.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            tracing::warn!(%path, "the file was deleted or replaced: the old one is served, and is gone when its disk is closed");
        }
    }

    /// Whether it was seen to have no name any more.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// As `Geometry::extents`.
    pub(crate) fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < most {
            let extent = self.extent(at)?;
            at = extent.range.end;
            extents.push(extent);
        }
        Ok(extents)
    }

    /// As `Geometry::stamp`.
    pub(crate) fn stamp(&self) -> io::Result<Option<Stamp>> {
        stamp::of(&self.buffered, self.size.load(Ordering::Relaxed))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A ring that is being taken down may hold the file a while longer.
        unlock_image(self.way());
    }
}

/// Opens `file` once more with O_DIRECT, if blocks and frames fit its alignment.
fn open_direct(file: &File, options: &Options) -> io::Result<Direct> {
    if fstatfs(file)?.f_type == FUSE {
        let reason = "operations past it cannot be interrupted where the file system is in user space";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let (memory, align) = match known {
        true => (u64::from(stat.stx_dio_mem_align), u64::from(stat.stx_dio_offset_align)),
        false => (USUAL_ALIGN, USUAL_ALIGN),
    };
    if align == 0 {
        return Err(Errno::OPNOTSUPP.into());
    }
    let block = u64::from(options.block_bytes);
    if !block.is_multiple_of(align) || memory > block.min(4096) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("blocks are not aligned to {align} bytes")));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(Direct { file, align })
}
