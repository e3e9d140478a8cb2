//! The virtual disk on which all files lie: which file has which part of it.
//!
//! 1. A file gets parts of the disk as it is used ([`Volume::allot`]). A part's size is a power of two.
//! 2. The last block of a part belongs to no file. No operation of the cache therefore concerns two files.
//! 3. The parts of a file that is gone serve other files once the cache has forgotten their blocks, and nobody has the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use nigh_host::BLOCK;
use nigh_host::front::lock;

/// Size of the disk in bytes: the largest that the engine has.
pub(crate) const BYTES: u64 = 1 << 46;
/// The smallest part and the largest one, as powers of two.
const CLASS_LEAST: u32 = 16;
const CLASS_MOST: u32 = 30;
const CLASSES: usize = (CLASS_MOST - CLASS_LEAST + 1) as usize;

/// The size of a part: 64 KiB to 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u32);

impl Class {
    /// The least that has room for `bytes` of a file, or the largest.
    pub(crate) fn of(bytes: u64) -> Class {
        let needed = bytes.saturating_add(BLOCK).checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
        Class(needed.clamp(CLASS_LEAST, CLASS_MOST))
    }

    /// Bytes of a file that a part has room for.
    pub(crate) fn room(self) -> u64 {
        (1 << self.0) - BLOCK
    }

    fn list(self) -> usize {
        (self.0 - CLASS_LEAST) as usize
    }
}

/// A part of the disk that belongs to a file.
struct Owner<F> {
    file: Weak<F>,
    /// The range of the file.
    range: Range<u64>,
}

/// The disk of files `F`.
pub(crate) struct Volume<F> {
    /// By their starts on the disk.
    owners: RwLock<BTreeMap<u64, Owner<F>>>,
    free: Mutex<Free>,
}

impl<F> Default for Volume<F> {
    fn default() -> Volume<F> {
        Volume { owners: RwLock::default(), free: Mutex::default() }
    }
}

#[derive(Default)]
struct Free {
    /// The start of what nobody has had.
    unused: u64,
    /// Starts of parts that nobody has any more, by class.
    parts: [Vec<u64>; CLASSES],
}

impl Free {
    fn take(&mut self, class: Class) -> Option<u64> {
        if let Some(start) = self.parts[class.list()].pop() {
            return Some(start);
        }
        let end = self.unused + (1 << class.0);
        (end <= BYTES).then(|| std::mem::replace(&mut self.unused, end))
    }
}

impl<F> Volume<F> {
    /// Gives `file` a part of the disk for its `range`, for which a part of this class has room, and returns the start of the part. `None`
    /// if the disk is full.
    pub(crate) fn allot(&self, file: &Arc<F>, range: &Range<u64>, class: Class) -> Option<u64> {
        let start = lock(&self.free).take(class)?;
        let owner = Owner { file: Arc::downgrade(file), range: range.clone() };
        self.owners.write().unwrap_or_else(PoisonError::into_inner).insert(start, owner);
        Some(start)
    }

    /// The part that begins at `start` has no file any more. It serves again if nobody can read it any more.
    pub(crate) fn forget(&self, start: u64, class: Class, is_unused: bool) {
        self.owners.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
        if is_unused {
            lock(&self.free).parts[class.list()].push(start);
        }
    }

    /// The file that has the bytes `range` of the disk, and their start in the file.
    pub(crate) fn find(&self, range: &Range<u64>) -> Option<(Arc<F>, u64)> {
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        let (start, owner) = owners.range(..=range.start).next_back()?;
        let at = owner.range.start + (range.start - start);
        let fits = at + (range.end - range.start) <= owner.range.end;
        Some((owner.file.upgrade()?, at)).filter(|_| fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_room() {
        for (bytes, class) in [(0, 16), (1, 16), (61440, 16), (61441, 17), (1 << 30, 30), (u64::MAX, 30)] {
            assert_eq!(Class::of(bytes), Class(class), "{bytes}");
        }
        assert_eq!(Class(16).room(), 61440);
    }

    #[test]
    fn parts_are_apart_and_serve_again() {
        let mut free = Free::default();
        let (small, large) = (Class(16), Class(20));
        assert_eq!(
            (free.take(small), free.take(large), free.take(small)),
            (Some(0), Some(1 << 16), Some((1 << 20) + (1 << 16)))
        );
        free.parts[large.list()].push(1 << 16);
        assert_eq!(free.take(large), Some(1 << 16));
        free.unused = BYTES - (1 << 16);
        assert_eq!((free.take(large), free.take(small), free.take(small)), (None, Some(BYTES - (1 << 16)), None));
    }
}
