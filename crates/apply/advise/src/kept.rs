//! The chunks that loops keep in the page cache.

use core::ops::Range;

use crate::Hint;

/// Sets of the table and entries of a set.
const SETS: usize = 2048;
const WAYS: usize = 8;

/// A kept chunk is given up if loops passed this many times the budget since it was read: its loop has ended.
const STALE: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    file: u64,
    chunk: u64,
    /// 0 if the entry is free.
    bytes: u64,
    /// `Kept::passed` when it was read last.
    read_at: u64,
}

/// The kept chunks: those that a loop reads first, as long as the budget lasts. The others are dropped behind the
/// reader, so the kept ones stay although the kernel's own order would evict each before it is read again.
#[derive(Debug)]
pub(crate) struct Kept {
    entries: [[Entry; WAYS]; SETS],
    budget: u64,
    bytes: u64,
    /// Bytes that loops read and did not keep.
    passed: u64,
    /// The next set to be searched for entries to drop.
    hand: usize,
}

impl Kept {
    pub(crate) const fn new() -> Kept {
        let free = Entry { file: 0, chunk: 0, bytes: 0, read_at: 0 };
        Kept { entries: [[free; WAYS]; SETS], budget: 0, bytes: 0, passed: 0, hand: 0 }
    }

    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
        for entry in self.entries.as_flattened_mut() {
            if self.bytes <= self.budget {
                break;
            }
            self.bytes -= core::mem::take(&mut entry.bytes);
        }
    }

    /// Whether to keep this chunk of `bytes`, which is about to be read.
    pub(crate) fn keep(&mut self, file: u64, chunk: u64, bytes: u64) -> bool {
        self.give_up_stale();
        let set = &mut self.entries[hash(file, chunk) % SETS];
        let own = |entry: &&mut Entry| entry.bytes > 0 && entry.file == file && entry.chunk == chunk;
        if let Some(entry) = set.iter_mut().find(own) {
            // The file may have grown or shrunk.
            self.bytes -= entry.bytes;
            let fits = self.bytes + bytes <= self.budget;
            entry.bytes = if fits { bytes } else { 0 };
            entry.read_at = self.passed;
            self.bytes += entry.bytes;
            return fits;
        }
        if self.bytes + bytes > self.budget {
            return false;
        }
        let Some(free) = set.iter_mut().find(|entry| entry.bytes == 0) else { return false };
        *free = Entry { file, chunk, bytes, read_at: self.passed };
        self.bytes += bytes;
        true
    }

    /// Gives the hint to drop these bytes of a chunk, none if the file has become shorter.
    pub(crate) fn drop_chunk(&mut self, bytes: Range<u64>, give: &mut impl FnMut(Hint)) {
        if !bytes.is_empty() {
            self.passed += bytes.end - bytes.start;
            give(Hint::Drop(bytes));
        }
    }

    /// Searches one set for chunks whose loop has ended.
    fn give_up_stale(&mut self) {
        let oldest = self.passed.saturating_sub(STALE * self.budget);
        for entry in &mut self.entries[self.hand] {
            if entry.read_at < oldest {
                self.bytes -= core::mem::take(&mut entry.bytes);
            }
        }
        self.hand = (self.hand + 1) % SETS;
    }
}

/// Fibonacci hashing: the upper bits of a product with 2^64 divided by the golden ratio.
fn hash(file: u64, chunk: u64) -> usize {
    const RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    (((file ^ chunk.wrapping_mul(RATIO)).wrapping_mul(RATIO)) >> 32) as usize
}
