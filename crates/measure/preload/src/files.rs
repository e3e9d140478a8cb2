//! Which file a descriptor is, and its name for the recorder.
//!
//! A descriptor is looked at when it is first used, and forgotten when it is closed or replaced.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nigh_ring::{FRAMES, Kind, PATH_BYTES, Record};

use crate::board;
use crate::clock::now_ns;
use crate::kernel;
use crate::stack::roomy;
use crate::thread::Here;

/// Descriptors that are remembered; higher ones are not recorded.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// Nothing is known yet.
const UNKNOWN: u32 = 0;
/// No file: a pipe, a socket, a terminal, the kernel's own state.
const OTHER: u32 = 1;
/// A file whose calls are not recorded.
pub(crate) const QUIET: u32 = 2;
/// The number of the first file.
const FIRST: u32 = 3;

static KNOWN: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(UNKNOWN) }; DESCRIPTORS];
static NEXT: AtomicU32 = AtomicU32::new(FIRST);

/// The longest path that is recorded.
const PATH_MOST: usize = 4 * PATH_BYTES;

/// The number of the file behind `fd`; `None` if it is none.
pub(crate) fn number(here: &Here, fd: c_int) -> Option<u32> {
    let known = KNOWN.get(usize::try_from(fd).ok()?)?;
    match known.load(Ordering::Relaxed) {
        UNKNOWN => {
            let number = roomy(|| look(here, fd));
            if let Some(number) = number {
                known.store(number, Ordering::Relaxed);
            }
            number.filter(|&number| number != OTHER)
        }
        OTHER => None,
        number => Some(number),
    }
}

/// `fd` is another file from now on, or none.
pub(crate) fn forget(fd: c_int) {
    open(fd).into_iter().for_each(Open::forget);
    if let Some(known) = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd)) {
        known.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// As `forget`, for a range of descriptors.
pub(crate) fn forget_range(first: u32, last: u32) {
    let range = first as usize..(last as usize).saturating_add(1).min(DESCRIPTORS);
    if board::get().is_some() {
        OPEN.get(range.clone()).into_iter().flatten().for_each(Open::forget);
    }
    KNOWN.get(range).into_iter().flatten().for_each(|known| known.store(UNKNOWN, Ordering::Relaxed));
}

/// All files are announced anew: after `fork`, to another recorder's file.
pub(crate) fn forget_all() {
    KNOWN.iter().for_each(|known| known.store(UNKNOWN, Ordering::Relaxed));
    NEXT.store(FIRST, Ordering::Relaxed);
    OPENED.store(0, Ordering::Relaxed);
}

/// State of an open file for advice. The key is 0 if the descriptor is none, or was not examined.
pub(crate) struct Open {
    key: AtomicU64,
    bytes: AtomicU64,
    is_advised: AtomicBool,
    /// Whether its read-ahead is switched off.
    is_random: AtomicBool,
}

static OPEN: [Open; DESCRIPTORS] = [const {
    Open {
        key: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        is_advised: AtomicBool::new(false),
        is_random: AtomicBool::new(false),
    }
}; DESCRIPTORS];

/// Files that an advised process opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// This many of these are recorded in any case, if any are.
const RECORDED_LEAST: u32 = 16;

pub(crate) fn open(fd: c_int) -> Option<&'static Open> {
    OPEN.get(usize::try_from(fd).ok()?)
}

impl Open {
    /// The number of the file, as profiles and advisers know it.
    pub(crate) fn key(&self) -> Option<u64> {
        Some(self.key.load(Ordering::Acquire)).filter(|&key| key != 0)
    }

    /// The length of the file in bytes, looked up again if a read goes on to `end`, beyond what is known.
    pub(crate) fn size(&self, fd: c_int, end: u64) -> u64 {
        let known = self.bytes.load(Ordering::Relaxed);
        if end <= known {
            return known;
        }
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `status` has room for the answer.
        if unsafe { kernel::call(libc::SYS_fstat, [fd.into(), status.as_mut_ptr() as i64]) } != 0 {
            return known;
        }
        // SAFETY: the call succeeded.
        let now = unsafe { status.assume_init() }.st_size.max(0) as u64;
        self.bytes.store(now, Ordering::Relaxed);
        now
    }

    /// Whether there was advice for the file.
    pub(crate) fn is_advised(&self) -> bool {
        self.is_advised.load(Ordering::Relaxed)
    }

    pub(crate) fn set_advised(&self) {
        self.is_advised.store(true, Ordering::Relaxed);
    }

    /// Returns what it was before.
    pub(crate) fn set_random(&self, is_random: bool) -> bool {
        let before = self.is_random.load(Ordering::Relaxed);
        if before != is_random {
            self.is_random.store(is_random, Ordering::Relaxed);
        }
        before
    }

    fn forget(&self) {
        self.is_random.store(false, Ordering::Relaxed);
        self.key.store(0, Ordering::Release);
        self.is_advised.store(false, Ordering::Relaxed);
    }
}

/// `fd` is the file that `status` describes. Whether its calls are recorded.
fn opens(fd: c_int, status: &libc::stat) -> bool {
    let Some(board) = board::get() else { return true };
    let (key, bytes) = (nigh_advise::file(status.st_dev, status.st_ino), status.st_size.max(0) as u64);
    if let Some(open) = open(fd) {
        open.bytes.store(bytes, Ordering::Relaxed);
        open.key.store(key, Ordering::Release);
        board.advises(status.st_dev, bytes);
    }
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    match board.told().recorded {
        0 => false,
        share => number < RECORDED_LEAST || key.is_multiple_of(share.into()),
    }
}

/// Looks at `fd`, and announces it if it is a file. `None` if that could not be recorded.
fn look(here: &Here, fd: c_int) -> Option<u32> {
    // Before its path is looked up, which may change.
    let time_ns = now_ns();
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` has room for the answer.
    match unsafe { kernel::call(libc::SYS_fstat, [fd.into(), status.as_mut_ptr() as i64]) } {
        0 => {}
        // The program's call fails, too.
        error if error == -i64::from(libc::EBADF) => return None,
        _ => {
            here.lose();
            return None;
        }
    }
    // SAFETY: the call succeeded.
    let status = unsafe { status.assume_init() };
    if ![libc::S_IFREG, libc::S_IFBLK].contains(&(status.st_mode & libc::S_IFMT)) {
        return Some(OTHER);
    }
    let mut path = [0u8; PATH_MOST];
    let length = path_of(fd.into(), &mut path);
    let Some(path) = length.and_then(|length| path.get(..length)) else {
        here.lose();
        return None;
    };
    if [&b"/proc/"[..], b"/sys/"].iter().any(|folder| path.starts_with(folder)) {
        return Some(OTHER);
    }
    if !opens(fd, &status) {
        return Some(QUIET);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let about = Record {
        time_ns,
        kind: Kind::File as u8,
        file: number,
        offset: status.st_dev,
        result: status.st_ino as i64,
        device_pages: u16::try_from(status.st_nlink).unwrap_or(u16::MAX),
        ..Record::default()
    };
    let about = about.born(born_ns(fd.into()));
    announce(here, about, path).then_some(number)
}

/// When the file behind `fd` was created, in nanoseconds; 0 if that is not known.
fn born_ns(fd: i64) -> u64 {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (flags, wanted) = (libc::AT_EMPTY_PATH.into(), libc::STATX_BTIME.into());
    // SAFETY: the path is a C string, and `status` has room for the answer; zeros are valid.
    let status = unsafe {
        kernel::call(libc::SYS_statx, [fd, c"".as_ptr() as i64, flags, wanted, status.as_mut_ptr() as i64]);
        status.assume_init()
    };
    let known = status.stx_mask & libc::STATX_BTIME != 0;
    let ns = (status.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(status.stx_btime.tv_nsec.into());
    if known { ns } else { 0 }
}

/// Looks at all descriptors, before that is forbidden.
pub(crate) fn look_at_all() {
    const LOOKED_AT: c_int = 1024;
    let Some(here) = Here::enter() else { return };
    here.prepare();
    for fd in 0..LOOKED_AT {
        let _ = number(&here, fd);
    }
}

/// The process becomes the program at `path`: `how` is one of `EXEC_` of the crate nigh-ring.
pub(crate) fn executes(here: &Here, path: &CStr, how: i64) {
    // Nobody reads it otherwise.
    if board::get().is_none_or(|board| board.told().recorded > 0) {
        roomy(|| announce_program(here, path, how));
    }
}

fn announce_program(here: &Here, path: &CStr, how: i64) {
    let mut folder = [0u8; PATH_MOST];
    let mut length = 0;
    if !path.to_bytes().starts_with(b"/") {
        // SAFETY: the buffer has this room.
        let got = unsafe { kernel::call(libc::SYS_getcwd, [folder.as_mut_ptr() as i64, PATH_MOST as i64 - 1]) };
        // With the zero behind it, which becomes a slash.
        length = usize::try_from(got).unwrap_or(0);
        if let Some(end) = length.checked_sub(1).and_then(|end| folder.get_mut(end)) {
            *end = b'/';
        }
    }
    let path = path.to_bytes();
    let whole = folder.get_mut(length..length + path.len()).map(|rest| rest.copy_from_slice(path));
    // SAFETY: a plain call.
    let process = unsafe { kernel::call(libc::SYS_getpid, []) } as u32;
    let kind = Kind::Exec as u8;
    let about = Record { kind, time_ns: now_ns(), tid: process, result: how, ..Record::default() };
    match whole.and_then(|()| folder.get(..length + path.len())) {
        Some(path) => drop(announce(here, about, path)),
        None => here.lose(),
    }
}

/// A regular file whose name may change. It holds a descriptor that only names the file, until `close`.
pub(crate) struct Named {
    fd: i64,
    device: u64,
    inode: u64,
}

impl Named {
    /// `None` if there is no such regular file, or if no call for it would be recorded.
    pub(crate) fn open(folder: c_int, path: *const c_char) -> Option<Named> {
        if board::get().is_some_and(|board| board.told().recorded == 0) {
            return None;
        }
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the kernel checks the path; the others are numbers.
        let fd = unsafe { kernel::call(libc::SYS_openat, [folder.into(), path as i64, flags.into()]) };
        if fd < 0 {
            return None;
        }
        let mut named = Named { fd, device: 0, inode: 0 };
        let Some(status) = named.status().filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG) else {
            named.close();
            return None;
        };
        (named.device, named.inode) = (status.st_dev, status.st_ino);
        Some(named)
    }

    fn status(&self) -> Option<libc::stat> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `status` has room for the answer, which is complete if the call succeeds.
        unsafe {
            let got = kernel::call(libc::SYS_fstat, [self.fd, status.as_mut_ptr() as i64]);
            (got == 0).then(|| status.assume_init())
        }
    }

    /// Its name has changed, or it has none any more.
    pub(crate) fn changed(&self, here: &Here) {
        let is_gone = self.status().is_none_or(|status| status.st_nlink == 0);
        let kind = if is_gone { Kind::Unlink } else { Kind::Rename };
        let about = Record {
            time_ns: now_ns(),
            kind: kind as u8,
            offset: self.device,
            result: self.inode as i64,
            ..Record::default()
        };
        let mut path = [0u8; PATH_MOST];
        let length = if is_gone { Some(0) } else { path_of(self.fd, &mut path) };
        let path = length.and_then(|length| path.get(..length));
        // It has lost one of several names: others lead to it as before.
        match path {
            Some(path) if path.ends_with(b" (deleted)") => {}
            Some(path) => drop(announce(here, about, path)),
            None => here.lose(),
        }
    }

    pub(crate) fn close(&self) {
        // SAFETY: a descriptor of this library's own.
        unsafe { kernel::call(libc::SYS_close, [self.fd]) };
    }
}

/// The path of the file behind `fd`, and its length.
fn path_of(fd: i64, path: &mut [u8; PATH_MOST]) -> Option<usize> {
    let mut link = [0u8; 32];
    let mut rest = &mut link[..];
    write!(rest, "/proc/self/fd/{fd}\0").ok()?;
    let arguments = [libc::AT_FDCWD.into(), link.as_ptr() as i64, path.as_mut_ptr() as i64, PATH_MOST as i64];
    // SAFETY: the name ends in zero, and `path` has this room.
    let length = unsafe { kernel::call(libc::SYS_readlinkat, arguments) };
    usize::try_from(length).ok()
}

/// Whether `fd` is for requests by io_uring.
pub(crate) fn is_ring(fd: c_int) -> bool {
    let mut path = [0u8; PATH_MOST];
    path_of(fd.into(), &mut path)
        .and_then(|length| path.get(..length))
        .is_some_and(|path| path == b"anon_inode:[io_uring]")
}

/// Writes `about` with a path in its frames and those of further records. If there was no room, it is counted as lost.
fn announce(here: &Here, about: Record, path: &[u8]) -> bool {
    let mut records = [Record::default(); PATH_MOST / PATH_BYTES];
    let count = path.len().div_ceil(PATH_BYTES).max(1);
    let mut parts = path.chunks(PATH_BYTES);
    for record in records.iter_mut().take(count) {
        let mut bytes = [0u8; PATH_BYTES];
        let part = parts.next().unwrap_or_default();
        bytes.iter_mut().zip(part).for_each(|(to, &byte)| *to = byte);
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        *record = Record { asked: path.len() as u32, frames: [0; FRAMES].map(|_| words.next().unwrap_or(0)), ..about };
    }
    records.get(..count).is_some_and(|records| here.write(records))
}
