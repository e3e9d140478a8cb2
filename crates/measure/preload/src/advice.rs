//! Advice to the kernel's page cache for the reads of this process, by the class of the code that reads.
//!
//! The adviser's state is in memory that all processes of the program share, because they share what is cached.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use nigh_advise::{Adviser, CHUNK, Class, Hint, Read, Table};
use nigh_ring::{Board, FRAMES, ROOM_BYTES, Tally};

use crate::call::{Call, Errno};
use crate::kernel::{self, CACHESTAT};
use crate::stack::roomy;
use crate::thread::{self, Here};
use crate::{board, files, frames};

static PID: AtomicU32 = AtomicU32::new(0);

/// Reads that skip the lock while others hold it for long (a stopped process).
const SKIPPED_MOST: u32 = 10_000;
static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// `WILLNEED` is given for this many bytes at a time: the kernel's default read-ahead, to which it truncates a longer one.
const FETCHED_AT_ONCE: u64 = 128 << 10;

/// Hints that wait until the lock is free again.
const HINTS: usize = 40;

/// This is another process than before.
pub(crate) fn forked() {
    // SAFETY: a plain call.
    PID.store(unsafe { kernel::call(libc::SYS_getpid, []) } as u32, Ordering::Relaxed);
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
    let board = board::get()?;
    let open = files::open(call.fd)?;
    let file = open.key()?;
    let told = board.told();
    let mut frames = [0; FRAMES];
    let room = frames.get_mut(..told.frames as usize)?;
    let used = frames::walk(&here.writer, call.rsp, call.rbp, room);
    room.iter_mut().for_each(|frame| *frame = frames::token(*frame));
    let depth = told.depth.then(|| thread::depth(call.rsp).into());
    let code = nigh_pattern::pc(frames.get(..used.into())?, depth);
    let found = Table::mapped(board.table()).entry(code, file);
    let found = found.and_then(|(entry, class)| Some((board.tallies().get(entry)?, class)));
    let has_advice = |tally: &Tally| tally.has_ended.load(Ordering::Relaxed) == 0;
    let class = found.and_then(|(tally, class)| class.filter(|_| has_advice(tally)));
    let is_random = class == Some(Class::Random);
    if open.set_random(is_random) != is_random {
        let advice = if is_random { libc::POSIX_FADV_RANDOM } else { libc::POSIX_FADV_NORMAL };
        advise(call.fd, 0, 0, advice);
    }
    let (tally, _) = found?;
    thread::device_bytes(0);
    let Some(class) = class.filter(|_| !is_random) else { return Some(Advised(tally)) };
    let offset = call.offset()?;
    let size = open.size(call.fd, offset.saturating_add(call.asked));
    open.set_advised();
    let read = Read { reader: reader(file), file, size, offset, length: call.asked, class };
    roomy(|| {
        let mut hints = Hints::new(call.fd, tally, board.is_short());
        ask(&board, here, |adviser| {
            adviser.set_budget(board.budget());
            adviser.read(&read, |range| is_resident(call.fd, range), |hint| hints.add(hint));
        });
        hints.give();
    });
    Some(Advised(tally))
}

/// `fd` is about to be closed.
pub(crate) fn closes(fd: c_int) {
    let Some(open) = files::open(fd).filter(|open| open.is_advised()) else { return };
    let (Some(board), Some(file)) = (board::get(), open.key()) else { return };
    let errno = Errno::save();
    if let (Some(here), Some(tally)) = (Here::enter(), board.tallies().first()) {
        let size = open.size(fd, 0);
        roomy(|| {
            let mut hints = Hints::new(fd, tally, board.is_short());
            ask(&board, &here, |adviser| adviser.close(reader(file), size, |hint| hints.add(hint)));
            hints.give();
        });
    }
    errno.restore();
}

/// Runs `ask` with the adviser of all processes, unless others have it for long.
fn ask(board: &Board, here: &Here, ask: impl FnOnce(&mut Adviser)) {
    const { assert!(size_of::<Adviser>() <= ROOM_BYTES && align_of::<Adviser>() <= 4096) }
    // Too large for the stack of some threads.
    static NEW: Adviser = Adviser::new();
    let adviser = board.room().cast::<Adviser>();
    // The lock looks for its owner by it.
    if !kernel::may(libc::SYS_tkill) {
        return;
    }
    if let Some(left) = SKIPPED.load(Ordering::Relaxed).checked_sub(1) {
        SKIPPED.store(left, Ordering::Relaxed);
        return;
    }
    let got = board.locked(here.tid(), || {
        // SAFETY: the room is large enough, begins with a page, and nobody else uses it while this thread has the lock.
        if board.prepare_once(|| unsafe { adviser.copy_from_nonoverlapping(&NEW, 1) }) {
            // SAFETY: as above; and it has an adviser, which this same library wrote.
            ask(unsafe { &mut *adviser });
        }
    });
    if got.is_none() {
        SKIPPED.store(SKIPPED_MOST, Ordering::Relaxed);
    }
}

/// The number of this process's reads of a file.
fn reader(file: u64) -> u64 {
    nigh_advise::file(PID.load(Ordering::Relaxed).into(), file)
}

/// Whether data of this range is in the page cache. If the kernel does not report that, it is taken for resident, so that nothing
/// is dropped that others need.
fn is_resident(fd: c_int, range: Range<u64>) -> bool {
    if range.is_empty() {
        return false;
    }
    let asked = [range.start, range.end - range.start];
    // Cached, dirty, under writeback, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    // SAFETY: both have the layouts of the kernel's `cachestat_range` and `cachestat`.
    let refused = unsafe { kernel::call(CACHESTAT, [fd.into(), asked.as_ptr() as i64, pages.as_mut_ptr() as i64, 0]) };
    let [cached, ..] = pages;
    // Before Linux 6.5.
    if refused != 0 { is_mapped_resident(fd, range) } else { cached > 0 }
}

/// As `is_resident` for a part of one chunk, by `mincore`. It reports files of other users as resident unless this user may write them.
fn is_mapped_resident(fd: c_int, Range { start, end }: Range<u64>) -> bool {
    const PAGE_BYTES: u64 = 4096;
    let mut pages = [0_u8; (CHUNK / PAGE_BYTES) as usize];
    let length = end - start;
    if length > CHUNK {
        return true;
    }
    // SAFETY: a new mapping at an address that the kernel chooses.
    let mapped = unsafe {
        let (protection, flags) = (libc::PROT_NONE.into(), libc::MAP_PRIVATE.into());
        kernel::call(libc::SYS_mmap, [0, length as i64, protection, flags, fd.into(), start as i64])
    };
    if (-4095..0).contains(&mapped) {
        return true;
    }
    // SAFETY: the range is that of the mapping, and `pages` has a byte for each page of it; no reference to it is left.
    let refused = unsafe {
        let refused = kernel::call(libc::SYS_mincore, [mapped, length as i64, pages.as_mut_ptr() as i64]);
        kernel::call(libc::SYS_munmap, [mapped, length as i64]);
        refused
    };
    refused != 0 || pages.iter().any(|page| page & 1 != 0)
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

    /// Keeps `hint` for [`Hints::give`], as long as there is room: others wait for the lock.
    fn add(&mut self, hint: Hint) {
        // As long as memory is left, data that is dropped may be missed later.
        if matches!(hint, Hint::Drop(_)) && !self.is_short {
            return;
        }
        if let Some(place) = self.waiting.iter_mut().find(|place| place.is_none()) {
            *place = Some(hint);
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
        }
    }
}

fn advise(fd: c_int, offset: u64, length: u64, advice: c_int) {
    // SAFETY: numbers only. A hint that the kernel refuses is no loss.
    unsafe { kernel::call(libc::SYS_fadvise64, [fd.into(), offset as i64, length as i64, advice.into()]) };
}
