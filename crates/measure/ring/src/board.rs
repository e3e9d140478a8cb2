//! Memory that an advised program shares with nigh: the classes of its code, the budget, and the effects of advice.
//!
//! One file for all processes of a program. Behind the header, each on a page of its own: a [`Tally`] for each entry of
//! the table of classes, the table, and room for the adviser's state.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::mapping;

/// The environment variable with the path of the board.
pub const BOARD_VARIABLE: &str = "NIGH_ADVISE";

/// The first bytes of a board, with the version of its layout.
const MAGIC: u64 = u64::from_be_bytes(*b"nighadv1");

/// Bytes in which processes keep what their adviser remembers.
pub const ROOM_BYTES: usize = 1 << 20;

const PAGE: usize = 4096;

/// How often a process tries to get the lock before it looks whether the owner still runs.
const TRIES: u32 = 2000;

/// Settings of the adviser of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// How many return addresses identify the code.
    pub frames: u32,
    /// Whether the depth of the stack does, too.
    pub depth: bool,
    /// One of this many files is recorded; 0 for none.
    pub recorded: u32,
}

/// Effects of advice for an entry of the table.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads.
    pub calls: AtomicU64,
    /// Bytes that they returned.
    pub bytes: AtomicU64,
    /// Bytes that devices read for them.
    pub device_bytes: AtomicU64,
    /// Bytes that the kernel was asked to drop.
    pub dropped: AtomicU64,
    /// Bytes that the kernel was asked to fetch.
    pub fetched: AtomicU64,
    /// Whether advice has ended, because it gains nothing: not 0.
    pub has_ended: AtomicU64,
}

#[repr(C)]
struct Head {
    magic: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU32,
    table_bytes: AtomicU32,
    frames: AtomicU32,
    depth: AtomicU32,
    recorded: AtomicU32,
    is_short: AtomicU32,
    budget: AtomicU64,
    device: AtomicU64,
    largest: AtomicU64,
    /// The thread that has the lock; 0 for none.
    owner: AtomicU32,
    /// 0: there is nothing in the room; 1: a process prepares it; 2: it is ready.
    room: AtomicU32,
}

/// A board. It is mapped until the process ends.
#[derive(Clone, Copy)]
pub struct Board(NonNull<Head>);

// SAFETY: the mapping belongs to no thread, and all that several write in it is atomic.
unsafe impl Send for Board {}

impl Board {
    /// Creates the board at `path`, with a table of `entries` entries.
    pub fn create(path: &Path, told: Told, entries: usize, table: &[u8]) -> io::Result<Board> {
        let [_, table_at, room_at] = places(entries, table.len());
        let bytes = room_at + ROOM_BYTES;
        let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Programs that write where there is no memory would be killed.
        // SAFETY: a descriptor that is open, and numbers.
        let refused = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        file.write_all(&vec![0; table_at])?;
        file.write_all(table)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let board = Board(NonNull::new(mapped.cast::<Head>()).ok_or(io::ErrorKind::InvalidData)?);
        mapping::enter(mapped as usize, bytes);
        let head = board.head();
        let number = |number: usize| u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge);
        head.bytes.store(bytes as u64, Ordering::Relaxed);
        head.entries.store(number(entries)?, Ordering::Relaxed);
        head.table_bytes.store(number(table.len())?, Ordering::Relaxed);
        head.frames.store(told.frames, Ordering::Relaxed);
        head.depth.store(told.depth.into(), Ordering::Relaxed);
        head.recorded.store(told.recorded, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// Maps the board at `path`. It makes system calls only.
    pub fn open(path: &CStr) -> Option<Board> {
        // SAFETY: the path is a C string; the other arguments are numbers.
        let mapped = unsafe {
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return None;
            }
            let length = libc::syscall(libc::SYS_lseek, fd, 0_i64, libc::SEEK_END);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let mapped = if length < PAGE as i64 {
                -1
            } else {
                libc::syscall(libc::SYS_mmap, 0_i64, length, protection, libc::MAP_SHARED, fd, 0_i64)
            };
            libc::syscall(libc::SYS_close, fd);
            mapped
        };
        if (-4095..0).contains(&mapped) {
            return None;
        }
        let board = Board(NonNull::new(mapped as *mut Head)?);
        (board.head().magic.load(Ordering::Acquire) == MAGIC).then_some(board)
    }

    /// A pointer that stands for it.
    pub fn into_raw(self) -> *mut libc::c_void {
        self.0.as_ptr().cast()
    }

    /// The board that `raw` stands for; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or comes from `into_raw` in this process.
    pub unsafe fn from_raw(raw: *mut libc::c_void) -> Option<Board> {
        NonNull::new(raw.cast()).map(Board)
    }

    fn head(&self) -> &'static Head {
        // SAFETY: it is mapped until the process ends, and all of it is atomic.
        unsafe { self.0.as_ref() }
    }

    fn place(&self, number: usize) -> *mut u8 {
        let head = self.head();
        let (entries, table) = (head.entries.load(Ordering::Relaxed), head.table_bytes.load(Ordering::Relaxed));
        let place = places(entries as usize, table as usize).get(number).copied().unwrap_or_default();
        // SAFETY: the file is as long as these numbers, which nobody writes after `create`.
        unsafe { self.0.as_ptr().cast::<u8>().add(place) }
    }

    /// The adviser's settings.
    pub fn told(&self) -> Told {
        let head = self.head();
        Told {
            frames: head.frames.load(Ordering::Relaxed),
            depth: head.depth.load(Ordering::Relaxed) != 0,
            recorded: head.recorded.load(Ordering::Relaxed),
        }
    }

    /// A tally for each entry of the table.
    pub fn tallies(&self) -> &'static [Tally] {
        let entries = self.head().entries.load(Ordering::Relaxed) as usize;
        // SAFETY: the tallies are mapped until the process ends, and all of them is atomic.
        unsafe { std::slice::from_raw_parts(self.place(0).cast(), entries) }
    }

    /// The table of classes.
    pub fn table(&self) -> &'static [u8] {
        let bytes = self.head().table_bytes.load(Ordering::Relaxed) as usize;
        // SAFETY: the table is mapped until the process ends, and nobody writes it after `create`.
        unsafe { std::slice::from_raw_parts(self.place(1), bytes) }
    }

    /// Room for what the adviser remembers: [`ROOM_BYTES`] of zeros at first, beginning with a page.
    pub fn room(&self) -> *mut u8 {
        self.place(2)
    }

    /// Whether the room is ready, after `prepare` if nobody did that yet. Called with the lock.
    pub fn prepare_once(&self, prepare: impl FnOnce()) -> bool {
        match self.head().room.compare_exchange(0, 1, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                prepare();
                self.head().room.store(2, Ordering::Release);
                true
            }
            // At 1, a process ended while it prepared the room.
            Err(state) => state == 2,
        }
    }

    /// The most bytes that loops keep.
    pub fn budget(&self) -> u64 {
        self.head().budget.load(Ordering::Relaxed)
    }

    /// Sets the budget, and whether memory is short: data is dropped only then.
    pub fn set_budget(&self, bytes: u64, is_short: bool) {
        self.head().budget.store(bytes, Ordering::Relaxed);
        self.head().is_short.store(is_short.into(), Ordering::Relaxed);
    }

    /// Whether memory is short.
    pub fn is_short(&self) -> bool {
        self.head().is_short.load(Ordering::Relaxed) != 0
    }

    /// A file of `bytes` on `device` gets advice.
    pub fn advises(&self, device: u64, bytes: u64) {
        self.head().device.store(device, Ordering::Relaxed);
        self.head().largest.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The device of the last file that gets advice, if there is one, and the length of the largest such file.
    pub fn advised(&self) -> (Option<u64>, u64) {
        let device = Some(self.head().device.load(Ordering::Relaxed)).filter(|&device| device > 0);
        (device, self.head().largest.load(Ordering::Relaxed))
    }

    /// Runs `critical` while no other thread of any process does; `None` if others have the lock for long. `thread` is the
    /// number of this thread. A lock whose owner was killed is taken over.
    pub fn locked<R>(&self, thread: u32, critical: impl FnOnce() -> R) -> Option<R> {
        let owner = &self.head().owner;
        let take = |from: u32| owner.compare_exchange(from, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let mut is_own = false;
        for _ in 0..TRIES {
            is_own = take(0);
            if is_own {
                break;
            }
            std::hint::spin_loop();
        }
        if !is_own {
            let other = owner.load(Ordering::Relaxed);
            let gone = other != 0 && !is_thread(other);
            is_own = gone && take(other);
        }
        if !is_own {
            return None;
        }
        let result = critical();
        owner.store(0, Ordering::Release);
        Some(result)
    }
}

/// Whether this thread exists.
fn is_thread(thread: u32) -> bool {
    // SAFETY: numbers only; no signal is sent.
    let sent = unsafe { libc::syscall(libc::SYS_tkill, i64::from(thread), 0_i64) };
    // SAFETY: the pointer is valid in every thread.
    sent == 0 || unsafe { *libc::__errno_location() } != libc::ESRCH
}

/// Beginnings of tallies, table and room.
fn places(entries: usize, table_bytes: usize) -> [usize; 3] {
    let tallies = size_of::<Head>().next_multiple_of(PAGE);
    let table = (tallies + entries * size_of::<Tally>()).next_multiple_of(PAGE);
    [tallies, table, (table + table_bytes).next_multiple_of(PAGE)]
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    const TOLD: Told = Told { frames: 5, depth: true, recorded: 0 };

    fn board() -> (tempfile::TempDir, Board, Board) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = Board::create(&path, TOLD, 3, &[7; 96]).unwrap();
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        (folder, board, Board::open(&path).unwrap())
    }

    #[test]
    fn both_sides_see_the_same() {
        let (_folder, nigh, process) = board();
        assert_eq!((process.told(), process.table()), (TOLD, &[7; 96][..]));
        process.tallies()[2].bytes.fetch_add(5, Ordering::Relaxed);
        assert_eq!(nigh.tallies().len(), 3);
        assert_eq!(nigh.tallies()[2].bytes.load(Ordering::Relaxed), 5);
        assert_eq!(nigh.advised(), (None, 0));
        process.advises(8, 100);
        process.advises(9, 50);
        assert_eq!(nigh.advised(), (Some(9), 100));
        nigh.set_budget(1000, true);
        assert_eq!((process.budget(), process.is_short()), (1000, true));
        // SAFETY: the room has this length, and nobody else uses it.
        let room = unsafe { std::slice::from_raw_parts(process.room(), ROOM_BYTES) };
        assert!(room.iter().all(|&byte| byte == 0) && (room.as_ptr() as usize).is_multiple_of(PAGE));
    }

    #[test]
    fn the_room_is_prepared_once() {
        let (_folder, one, other) = board();
        let mut prepared = 0;
        assert!(one.prepare_once(|| prepared += 1) && other.prepare_once(|| prepared += 1));
        assert_eq!(prepared, 1);
    }

    #[test]
    fn locks_of_threads_that_ended_are_taken_over() {
        let (_folder, one, other) = board();
        // SAFETY: a plain call.
        let own = unsafe { libc::gettid() } as u32;
        assert_eq!(one.locked(own, || other.locked(own, || ())), Some(None), "it is taken");
        // No thread has this number.
        one.head().owner.store(1 << 30, Ordering::Relaxed);
        assert_eq!(other.locked(own, || 7), Some(7));
        assert_eq!(one.locked(own, || 8), Some(8));
    }

    #[test]
    fn incomplete_6_a_board_that_is_shortened_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = Board::create(&path, TOLD, 3, &[7; 96]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!((board.budget(), board.is_short(), board.tallies().len()), (0, false, 0));
        board.set_budget(5, true);
        assert_eq!(board.budget(), 5);
    }

    #[test]
    fn other_files_are_no_boards() {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents) in [("empty", vec![]), ("zeros", vec![0; 1 << 16])] {
            let path = folder.path().join(name);
            std::fs::write(&path, contents).unwrap();
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            assert!(Board::open(&path).is_none(), "{name}");
        }
    }
}
