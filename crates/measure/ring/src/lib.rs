//! The memory that a recorded program shares with its recorder: layout, and both ends of its rings.

#![doc = include_str!("../README.md")]
#![allow(unsafe_code)]

mod board;
mod mapping;
mod reader;
mod submitted;
mod writer;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use board::{BOARD_VARIABLE, Board, ROOM_BYTES, Tally, Told};
pub use reader::Reader;
pub use submitted::{BLOCK_BYTES, Bytes, Submitted};
pub use writer::{Claim, Writer, forbid_memory};

/// The environment variable with the folder for shared files.
pub const FOLDER_VARIABLE: &str = "NIGH_RECORD";

/// The environment variable with the number of filters on the system calls of the recorder (seccomp).
pub const FILTERS_VARIABLE: &str = "NIGH_RECORD_FILTERS";

/// How many filters on system calls a process has by its `/proc/self/status`; before Linux 5.9, 2 for any. It allocates nothing.
pub fn filters(status: &[u8]) -> Option<u64> {
    let value = |name: &[u8]| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()?.trim().parse().ok()
    };
    value(b"Seccomp_filters:").or_else(|| value(b"Seccomp:"))
}

/// The first bytes of a shared file, with the version of its layout.
pub const MAGIC: u64 = u64::from_be_bytes(*b"nighrec5");

/// Return addresses in a record.
pub const FRAMES: usize = 16;

/// Rings of a process that belong to one thread each. One more is for all other threads.
pub const RINGS: usize = 64;

/// Records in a ring.
pub const SLOTS: usize = 8192;

/// Modules (programs and libraries) of a process.
pub const MODULES: usize = 256;

/// The name of the module that is the program itself.
pub const PROGRAM: &[u8] = b"program";

/// Bytes of a module's or a program's path.
pub const NAME_BYTES: usize = 240;

/// A frame is the number of its module, shifted by this, and the offset within it.
pub const MODULE_SHIFT: u32 = 48;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A read.
    Read = 1,
    /// A write.
    Write = 2,
    /// `fsync` and `fdatasync`.
    Sync = 3,
    /// A mapping.
    Map = 4,
    /// `posix_fadvise`.
    Advise = 5,
    /// The name of a file: `file` is its number, `offset` its device, `result` its inode, and its path is in the frames of
    /// this and the next records, `asked` bytes in all. `device_pages` is the number of its names, and `latency_ns` and `depth` are
    /// when it was created ([`Record::born_ns`]).
    File = 6,
    /// A process executes another program. Its path is in the frames as that of a file is; `tid` is the process, which need not
    /// be the one that writes this (`vfork`); `result` is one of `EXEC_`.
    Exec = 7,
    /// The file with this device and inode has another name: as in `File`, without a number.
    Rename = 8,
    /// The file with this device and inode has no name any more: as in `File`, without a number and a path.
    Unlink = 9,
}

/// Activity of a process that is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Unseen {
    /// A child of it has no shared file, or the library cannot see the calls of the process.
    Process = 1,
    /// It limits its system calls (seccomp), so that some of its calls could not be looked at.
    Limited = 2,
    /// Its requests by io_uring are not known.
    Ring = 4,
}

impl Unseen {
    /// All of them.
    pub const ALL: [Unseen; 3] = [Unseen::Process, Unseen::Limited, Unseen::Ring];
}

/// The environment of an executed program does not name the recorder's folder.
pub const EXEC_WITHOUT_LIBRARY: i64 = 0;
/// It does.
pub const EXEC_WITH_LIBRARY: i64 = 1;
/// The program could not be executed.
pub const EXEC_FAILED: i64 = -1;

impl Kind {
    /// The kind with this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{Advise, Exec, File, Map, Read, Rename, Sync, Unlink, Write};
        [Read, Write, Sync, Map, Advise, File, Exec, Rename, Unlink].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// One call, or a part of a file's name.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Record {
    /// When the call began, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// First byte of the file.
    pub offset: u64,
    /// Result of the call, or -errno.
    pub result: i64,
    /// How long it took.
    pub latency_ns: u32,
    /// Bytes asked for.
    pub asked: u32,
    /// The thread.
    pub tid: u32,
    /// The number of the file in this process.
    pub file: u32,
    /// Bytes of stack below the call.
    pub depth: u32,
    /// A [`Kind`].
    pub kind: u8,
    /// How many of `frames` there are.
    pub frames_used: u8,
    /// Pages of 4 KiB that devices read for the thread since its last record with such pages; the most that fits.
    pub device_pages: u16,
    /// Return addresses, innermost first.
    pub frames: [u64; FRAMES],
}

impl Record {
    /// When the file that this announces was created, in nanoseconds; 0 if that is not known.
    pub fn born_ns(&self) -> u64 {
        u64::from(self.depth) << 32 | u64::from(self.latency_ns)
    }

    /// This record with that time.
    pub fn born(self, ns: u64) -> Record {
        Record { depth: (ns >> 32) as u32, latency_ns: ns as u32, ..self }
    }
}

/// Bytes of a path in one record.
pub const PATH_BYTES: usize = FRAMES * 8;

/// The ring of one thread. Only that thread writes records and `head`; only the recorder writes `tail`.
#[repr(C)]
struct Ring {
    /// Records written so far.
    head: AtomicU32,
    /// Records read so far.
    tail: AtomicU32,
    /// The thread that has it; 0 for none.
    taken: AtomicU32,
    /// Slots that have memory: the first ones. Only the thread that has the ring uses it.
    ready: AtomicU32,
    slots: UnsafeCell<[Record; SLOTS]>,
}

/// A module's path.
#[repr(C)]
struct Module {
    bytes: UnsafeCell<[u8; NAME_BYTES]>,
    /// The length, written last; 0 until then.
    length: AtomicU32,
    pad: u32,
}

/// A shared file.
#[repr(C)]
struct Shared {
    /// [`MAGIC`], written last.
    magic: AtomicU64,
    pid: AtomicU32,
    modules_used: AtomicU32,
    /// Rings that were used at all: the first ones.
    rings_used: AtomicU32,
    /// 1 when nobody reads the rings any more.
    abandoned: AtomicU32,
    /// 1 if calls are lost when a ring is full, instead of waiting.
    lossy: AtomicU32,
    /// 1 since a call waited in vain, until the recorder reads again.
    stalled: AtomicU32,
    /// Calls that were not recorded.
    lost: AtomicU64,
    /// Activity that is not recorded, as bits of [`Unseen`].
    unseen: AtomicU64,
    program: Module,
    modules: [Module; MODULES],
    /// The last one is common.
    rings: [Ring; RINGS + 1],
}

/// Bytes of a shared file. Parts that are not used take no memory.
pub const BYTES: usize = size_of::<Shared>();

/// A path of limited length.
struct Name {
    bytes: [u8; NAME_BYTES],
    length: usize,
}

impl Name {
    /// The name of `module`, if it has one by now.
    fn of(module: &Module) -> Option<Name> {
        let length = module.length.load(Ordering::Acquire) as usize;
        // SAFETY: the name is written before its length, and copied as it is: another process may change it.
        let bytes = unsafe { module.bytes.get().read_volatile() };
        (1..=NAME_BYTES).contains(&length).then_some(Name { bytes, length })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn filters_are_counted_by_old_and_new_kernels() {
        assert_eq!(super::filters(b"Name:\ta\nSeccomp:\t2\nSeccomp_filters:\t5\nMems:\t1\n"), Some(5));
        assert_eq!(super::filters(b"Seccomp:\t2\n"), Some(2));
        assert_eq!(super::filters(b"Name:\tSeccomp:\n"), None);
    }
}
