//! Decides which hints the kernel's page cache gets for the reads of a program, by the class of the code that reads.

#![doc = include_str!("../README.md")]
#![no_std]

mod kept;
#[cfg(feature = "profile")]
pub mod profile;
mod streams;
mod table;

use core::ops::Range;

pub use table::{ENTRY_BYTES, NoTable, Table, entry};

use kept::Kept;
use streams::Streams;

/// Bytes of a chunk, the unit in which data is kept or dropped: the largest folio. The kernel ignores
/// `POSIX_FADV_DONTNEED` for a part of a folio.
pub const CHUNK: u64 = 2 << 20;

/// The most chunks of one read that are looked at, so that it takes no long time.
const CHUNKS_MOST: usize = 32;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Runs that are longer are not fetched at the first read of a file: the device's own read-ahead follows them as well.
const FETCH_MOST: u64 = 8 << 20;

/// The most that the kernel reads in one call (`MAX_RW_COUNT`), rounded up.
const READ_MOST: u64 = 1 << 31;

/// The class of the code that reads: how the data that it reads is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Data is read once, in order.
    Sequential,
    /// Data is read again after much other data, in the same order.
    Loop,
    /// A loop over little of each file: short files, or a short run in each of many files.
    Short {
        /// Bytes that are read of a file, from the first read on; `u64::MAX` for all.
        run: u64,
    },
    /// Data is read in no order. The caller switches read-ahead off, and on again for other reads, because the kernel keeps this
    /// setting per open file (`POSIX_FADV_RANDOM`, `POSIX_FADV_NORMAL`).
    Random,
}

/// A read, before the program makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The reader of a file: the same number for all reads of the file by a process.
    pub reader: u64,
    /// The file. The same number means the same data, in whichever process.
    pub file: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Beginning of the read, in bytes.
    pub offset: u64,
    /// The most bytes that it returns.
    pub length: u64,
    /// The class of the code that makes it.
    pub class: Class,
}

/// A hint for the file that is read or closed. Ranges are in bytes and not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `POSIX_FADV_DONTNEED`: the data will not be read again soon.
    Drop(Range<u64>),
    /// `POSIX_FADV_WILLNEED`: the data is about to be read. It may be cached already, which costs the kernel less than a
    /// look-up. At most [`CHUNK`] bytes, because the kernel truncates it to
    /// the device's read-ahead; the caller divides it further if that is shorter.
    Fetch(Range<u64>),
}

/// Decides hints. Its memory is fixed: it allocates nothing, and it can be a static.
#[derive(Debug)]
pub struct Adviser {
    streams: Streams,
    kept: Kept,
}

impl Adviser {
    /// An adviser that has seen nothing and keeps nothing.
    pub const fn new() -> Adviser {
        Adviser { streams: Streams::new(), kept: Kept::new() }
    }

    /// From now on, loops keep at most this many bytes in the page cache: the limit of the cgroup, less its
    /// anonymous memory and twice the device's read-ahead. With 0, which is the initial budget, loops get no hints.
    pub fn set_budget(&mut self, bytes: u64) {
        self.kept.set_budget(bytes);
    }

    /// Bytes that loops keep.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.bytes()
    }

    /// Passes the hints for `read` to `give`, which issues them at once; the read follows.
    ///
    /// `is_resident` returns whether data of this range is in the page cache (`cachestat`, `mincore`; a read with `RWF_NOWAIT` is
    /// no way to find out, because it begins read-ahead). It is called for sequential reads, some chunks ahead of the
    /// reader.
    pub fn read(&mut self, read: &Read, mut is_resident: impl FnMut(Range<u64>) -> bool, mut give: impl FnMut(Hint)) {
        let end = read.offset.saturating_add(read.length.min(READ_MOST)).min(read.size);
        if read.offset >= end {
            return;
        }
        if read.class == Class::Random {
            return;
        }
        let (stream, is_new) = self.streams.of(read.reader);
        if read.class != Class::Sequential && self.kept.budget() == 0 {
            return;
        }
        let run = if let Class::Short { run } = read.class { run } else { u64::MAX };
        let run_end = read.offset.saturating_add(run).min(read.size);
        if is_new && matches!(read.class, Class::Short { .. }) && run_end - read.offset <= FETCH_MOST {
            for start in (read.offset..run_end).step_by(CHUNK as usize) {
                give(Hint::Fetch(start..start.saturating_add(CHUNK).min(run_end)));
            }
        }
        let first = read.offset / CHUNK;
        for chunk in (first..=(end - 1) / CHUNK).take(CHUNKS_MOST) {
            if !stream.enter(chunk) {
                continue;
            }
            let keeps = match read.class {
                Class::Sequential => stream.was_resident(chunk, |chunk| is_resident(range(chunk, read.size))),
                _ => self.kept.keep(
                    read.file,
                    chunk,
                    memory(chunk, read.size).min(run.div_ceil(PAGE).saturating_mul(PAGE)),
                ),
            };
            if !keeps
                && let Some(left) = stream.leave_later(chunk)
                // The bytes that this read is about to return are not dropped before.
                && !(first..=chunk).contains(&left)
            {
                self.kept.drop_chunk(range(left, read.size), &mut give);
            }
        }
    }

    /// `reader` closes its file, of `size` bytes: passes the hints for what is still cached of it to `give`, which issues
    /// them before the descriptor is closed.
    pub fn close(&mut self, reader: u64, size: u64, mut give: impl FnMut(Hint)) {
        let Some(stream) = self.streams.take(reader) else { return };
        for chunk in stream.left() {
            self.kept.drop_chunk(range(chunk, size), &mut give);
        }
    }
}

/// The budget of a program in a cgroup: the bytes that its loops can keep.
///
/// `limit` and `anonymous` are the limit of the cgroup and what of it is not file pages, `read_ahead` is the read-ahead
/// of the device, and `largest` the length of the largest file, all in bytes.
pub const fn budget(limit: u64, anonymous: u64, read_ahead: u64, largest: u64) -> u64 {
    // Data ahead of the reader and behind it: no more than the file has.
    let (ahead, behind) = (2 * read_ahead, streams::WINDOW as u64 * CHUNK);
    let around = if ahead + behind < largest { ahead + behind } else { largest };
    limit.saturating_sub(anonymous).saturating_sub(around)
}

impl Default for Adviser {
    fn default() -> Adviser {
        Adviser::new()
    }
}

/// The number of a file, above 0: `inode` on `device`.
pub const fn file(device: u64, inode: u64) -> u64 {
    const RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = (device.wrapping_mul(RATIO) ^ inode).wrapping_mul(RATIO);
    (mixed ^ (mixed >> 32)).rotate_left(1) | 1
}

/// The bytes of `chunk` in a file of `size` bytes; empty beyond its end.
fn range(chunk: u64, size: u64) -> Range<u64> {
    let start = chunk.saturating_mul(CHUNK).min(size);
    start..start.saturating_add(CHUNK).min(size)
}

/// The memory that `chunk` takes: whole pages.
fn memory(chunk: u64, size: u64) -> u64 {
    let Range { start, end } = range(chunk, size);
    (end - start).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests;
