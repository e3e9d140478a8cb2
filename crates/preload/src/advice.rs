//! Advice to the kernel's page cache for the reads of this process, by the class of the code that reads.
//!
//! What the adviser remembers is in memory that all processes of the program share, because they share what is cached.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use nigh_advise::{Adviser, Hint, Read, Table};
use nigh_ring::{Board, FRAMES, ROOM_BYTES, Tally};

use crate::hooks::{Call, Errno};
use crate::thread::{self, Here};
use crate::{files, frames};

/// The board, or null.
static BOARD: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

static PID: AtomicU32 = AtomicU32::new(0);

/// An open file. The key is 0 if the descriptor is none, or was not looked at.
struct Open {
    key: AtomicU64,
    bytes: AtomicU64,
    is_advised: AtomicBool,
}

static OPEN: [Open; files::DESCRIPTORS] =
    [const { Open { key: AtomicU64::new(0), bytes: AtomicU64::new(0), is_advised: AtomicBool::new(false) } };
        files::DESCRIPTORS];

/// Of the files that a process opens, so many are recorded in any case.
const RECORDED_LEAST: u32 = 16;

/// Files that were opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// `WILLNEED` is given for so many bytes at a time: the kernel's default read-ahead, to which it truncates a longer one.
const FETCHED_AT_ONCE: u64 = 128 << 10;

/// Hints that wait until the lock is free again.
const HINTS: usize = 8;

/// Begins with the board at `path`.
pub(crate) fn begin(path: Option<&CStr>) {
    let board = path.and_then(Board::open).filter(|board| Table::new(board.table()).is_ok());
    BOARD.store(board.map_or(std::ptr::null_mut(), Board::into_raw), Ordering::Release);
    forked();
}

/// This is another process.
pub(crate) fn forked() {
    // SAFETY: a plain call.
    PID.store(unsafe { libc::syscall(libc::SYS_getpid) } as u32, Ordering::Relaxed);
    OPENED.store(0, Ordering::Relaxed);
}

fn board() -> Option<Board> {
    // SAFETY: it is null, or was a board, which is never unmapped.
    unsafe { Board::from_raw(BOARD.load(Ordering::Acquire)) }
}

fn open(fd: c_int) -> Option<&'static Open> {
    OPEN.get(usize::try_from(fd).ok()?)
}

/// `fd` is the file that `status` describes. Whether its calls are recorded.
pub(crate) fn opens(fd: c_int, status: &libc::stat) -> bool {
    let Some(board) = board() else { return true };
    let key = nigh_advise::file(status.st_dev, status.st_ino);
    if let Some(open) = open(fd) {
        open.bytes.store(status.st_size.max(0) as u64, Ordering::Relaxed);
        open.key.store(key, Ordering::Release);
        board.advises(status.st_dev, status.st_size.max(0) as u64);
    }
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    match board.told().recorded {
        0 => false,
        share => number < RECORDED_LEAST || key.is_multiple_of(share.into()),
    }
}

/// `fd` is another file from now on, or none.
pub(crate) fn forget(fd: c_int) {
    open(fd).into_iter().for_each(Open::forget);
}

/// As `forget`, for a range of descriptors.
pub(crate) fn forget_range(first: usize, end: usize) {
    if board().is_some() {
        OPEN.get(first..end).into_iter().flatten().for_each(Open::forget);
    }
}

impl Open {
    fn forget(&self) {
        self.key.store(0, Ordering::Release);
        self.is_advised.store(false, Ordering::Relaxed);
    }
}

/// A read for which there is advice.
pub(crate) struct Advised(&'static Tally);

impl Advised {
    /// The read returned `bytes`, and devices read `device_bytes` for it.
    pub(crate) fn count(&self, bytes: u64, device_bytes: u64) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.device_bytes.fetch_add(device_bytes, Ordering::Relaxed);
    }
}

/// Gives the kernel the hints for a read that is about to be made.
pub(crate) fn before(here: &Here, call: &Call) -> Option<Advised> {
    let board = board()?;
    let open = open(call.fd)?;
    let file = open.key.load(Ordering::Acquire);
    if file == 0 {
        return None;
    }
    let told = board.told();
    let mut frames = [0; FRAMES];
    let room = frames.get_mut(..told.frames as usize)?;
    let used = frames::walk(&here.writer, call.rsp, call.rbp, room);
    room.iter_mut().for_each(|frame| *frame = frames::token(*frame));
    let depth = told.depth.then(|| thread::depth(call.rsp).into());
    let code = nigh_pattern::pc(frames.get(..used.into())?, depth);
    let (entry, class) = Table::mapped(board.table()).entry(code, file)?;
    let tally = board.tallies().get(entry)?;
    thread::device_bytes(0);
    let Some(class) = class.filter(|_| tally.has_ended.load(Ordering::Relaxed) == 0) else {
        return Some(Advised(tally));
    };
    let offset = call.offset();
    let size = size(open, call.fd, offset.saturating_add(call.asked));
    open.is_advised.store(true, Ordering::Relaxed);
    let read = Read { reader: reader(file), file, size, offset, length: call.asked, class };
    let mut hints = Hints::new(call.fd, tally, board.is_short());
    board.locked(here.tid(), || {
        if let Some(adviser) = adviser(&board) {
            adviser.set_budget(board.budget());
            adviser.read(&read, |range| is_resident(call.fd, range), |hint| hints.add(hint));
        }
    });
    hints.give();
    Some(Advised(tally))
}

/// `fd` is about to be closed.
pub(crate) fn closes(fd: c_int) {
    let Some(open) = open(fd).filter(|open| open.is_advised.load(Ordering::Relaxed)) else { return };
    let (Some(board), file) = (board(), open.key.load(Ordering::Acquire)) else { return };
    let errno = Errno::save();
    if let (Some(here), Some(tally)) = (Here::enter(), board.tallies().first()) {
        let size = open.bytes.load(Ordering::Relaxed);
        let mut hints = Hints::new(fd, tally, board.is_short());
        board.locked(here.tid(), || {
            if let Some(adviser) = adviser(&board) {
                adviser.close(reader(file), size, |hint| hints.add(hint));
            }
        });
        hints.give();
    }
    errno.restore();
}

/// The adviser of all processes; called with the lock.
fn adviser(board: &Board) -> Option<&mut Adviser> {
    const { assert!(size_of::<Adviser>() <= ROOM_BYTES && align_of::<Adviser>() <= 4096) }
    let adviser = board.room().cast::<Adviser>();
    // Too large for the stack of some threads.
    static NEW: Adviser = Adviser::new();
    // SAFETY: the room is large enough, and begins with a page.
    let is_ready = board.prepare_once(|| unsafe { adviser.copy_from_nonoverlapping(&NEW, 1) });
    // SAFETY: the room has an adviser, which this same library wrote, and nobody else uses it while this thread has the
    // lock.
    is_ready.then(|| unsafe { &mut *adviser })
}

/// The number of this process's reads of a file.
fn reader(file: u64) -> u64 {
    nigh_advise::file(PID.load(Ordering::Relaxed).into(), file)
}

/// The length of the file, looked up again if a read goes on to `end`, beyond what is known.
fn size(open: &Open, fd: c_int, end: u64) -> u64 {
    let known = open.bytes.load(Ordering::Relaxed);
    if end <= known {
        return known;
    }
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` has room for the answer.
    if unsafe { libc::syscall(libc::SYS_fstat, fd, status.as_mut_ptr()) } != 0 {
        return known;
    }
    // SAFETY: the call succeeded.
    let now = unsafe { status.assume_init() }.st_size.max(0) as u64;
    open.bytes.store(now, Ordering::Relaxed);
    now
}

/// Whether data of this range is in the page cache. Where the kernel does not say (before Linux 6.5), it is taken for
/// resident, so that nothing is dropped that others need.
fn is_resident(fd: c_int, range: Range<u64>) -> bool {
    const CACHESTAT: i64 = 451;
    if range.is_empty() {
        return false;
    }
    let range = [range.start, range.end - range.start];
    // Cached, dirty, under writeback, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    // SAFETY: both have the layouts of the kernel's `cachestat_range` and `cachestat`.
    let asked = unsafe { libc::syscall(CACHESTAT, i64::from(fd), range.as_ptr(), pages.as_mut_ptr(), 0_i64) };
    let [cached, ..] = pages;
    asked != 0 || cached > 0
}

/// Hints on their way to the kernel.
struct Hints<'a> {
    fd: c_int,
    tally: &'a Tally,
    is_short: bool,
    waiting: [Option<Hint>; HINTS],
}

impl Hints<'_> {
    fn new(fd: c_int, tally: &Tally, is_short: bool) -> Hints<'_> {
        Hints { fd, tally, is_short, waiting: [const { None }; HINTS] }
    }

    /// Keeps `hint` for [`Hints::give`]; without room, the kernel gets it at once.
    fn add(&mut self, hint: Hint) {
        // As long as memory is left, data that is dropped may be missed later.
        if matches!(hint, Hint::Drop(_)) && !self.is_short {
            return;
        }
        match self.waiting.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(hint),
            None => self.tell(hint),
        }
    }

    fn give(mut self) {
        for at in 0..HINTS {
            if let Some(hint) = self.waiting.get_mut(at).and_then(Option::take) {
                self.tell(hint);
            }
        }
    }

    fn tell(&self, hint: Hint) {
        match hint {
            Hint::Drop(Range { start, end }) => {
                self.tally.dropped.fetch_add(end - start, Ordering::Relaxed);
                advise(self.fd, start, end - start, libc::POSIX_FADV_DONTNEED);
            }
            Hint::Fetch(Range { start, end }) => {
                self.tally.fetched.fetch_add(end - start, Ordering::Relaxed);
                for at in (start..end).step_by(FETCHED_AT_ONCE as usize) {
                    advise(self.fd, at, FETCHED_AT_ONCE.min(end - at), libc::POSIX_FADV_WILLNEED);
                }
            }
            Hint::Random => advise(self.fd, 0, 0, libc::POSIX_FADV_RANDOM),
            Hint::Normal => advise(self.fd, 0, 0, libc::POSIX_FADV_NORMAL),
        }
    }
}

fn advise(fd: c_int, offset: u64, length: u64, advice: c_int) {
    // SAFETY: numbers only. A hint that the kernel refuses is no loss.
    unsafe { libc::syscall(libc::SYS_fadvise64, i64::from(fd), offset, length, i64::from(advice)) };
}
