//! The contents of one file of the source: where they lie on the virtual disk, how many there are, and whether the cache has them as they are.
//!
//! 1. `seen` is the stamp of the source when the cache's blocks were certainly right. [`File::look`] compares it with the present one, and
//!    drops the blocks if they differ.
//! 2. A change through the mount begins with such a look, and ends with the stamp that it left ([`File::begin`], [`Change::end`]). Only the
//!    first and the last of several at a time look.
//! 3. A file system may give two changes in a row the same times. A stamp that is younger than that is not trusted later ([`Rules`]).
//!
//! **Invariant:** a block is cached only if it ends within `reach`, rounded up. `reach` never decreases.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use fuser::BackingId;
use nigh_host::front::lock;
use nigh_host::{BLOCK, HostError, Session};
use rustix::fs::{OFlags, Stat};
use rustix::io::{Errno, preadv};

use crate::attributes::Stamp;
use crate::ranges::Ranges;
use crate::source;
use crate::volume::{Class, Volume};

/// Most slices of a call of the kernel (IOV_MAX).
const SLICES_MOST: usize = 1024;

/// How far stamps of the source can be trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Two changes within this time may leave the same stamp.
    pub(crate) tick: Duration,
    /// The same for stamps in whole seconds.
    pub(crate) whole_tick: Duration,
    /// For how long a look counts.
    pub(crate) fresh: Duration,
}

/// A part of a file, and its place on the disk. Whole blocks.
#[derive(Clone, Debug)]
struct Part {
    file: Range<u64>,
    disk: u64,
    class: Class,
}

struct Seen {
    /// The attributes of which the stamp is, if there was a look.
    stat: Option<Stat>,
    /// Whether another change would have left another stamp.
    is_settled: bool,
    /// Whether a change failed half-way, so that nobody knows which blocks are right.
    is_doubted: bool,
    /// Changes through the mount that are in progress.
    changes: u32,
    /// How often the blocks were dropped, because the source was changed by others.
    drops: u64,
    /// `drops` at the last open.
    opened: Option<u64>,
    /// The last look.
    at: Option<Instant>,
}

impl Seen {
    fn doubt(&mut self) {
        self.is_doubted = true;
        self.at = None;
    }
}

#[derive(Default)]
struct Open {
    path: Weak<OwnedFd>,
    /// Descriptors for reading that programs keep open.
    readers: Vec<Weak<OwnedFd>>,
}

/// A file.
pub(crate) struct File {
    /// Its size for reads through the mount.
    size: AtomicU64,
    /// No byte from here on was ever read or written.
    reach: AtomicU64,
    /// By their places in the file.
    parts: RwLock<Vec<Part>>,
    seen: Mutex<Seen>,
    open: Mutex<Open>,
    /// Whether it is one that is not cached, from its first open on.
    pub(crate) is_uncached: OnceLock<bool>,
    /// The file that the kernel reads and writes by itself, while somebody has it open.
    pub(crate) backing: Mutex<Weak<BackingId>>,
    /// Ranges that are being changed.
    pub(crate) ranges: Ranges,
}

/// The place of a byte on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) disk: u64,
    /// The number of bytes of the file that lie there in sequence.
    pub(crate) bytes: u64,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is the first one.
    New,
    Same,
    /// The file was changed, or may have been: its blocks were dropped.
    Changed,
}

/// A change in progress. If it is dropped, the next look drops the file's blocks.
pub(crate) struct Change<'a> {
    file: &'a File,
    rules: Rules,
}

impl File {
    pub(crate) fn new() -> File {
        File {
            size: AtomicU64::new(0),
            reach: AtomicU64::new(0),
            parts: RwLock::default(),
            seen: Mutex::new(Seen {
                stat: None,
                is_settled: false,
                is_doubted: false,
                changes: 0,
                drops: 0,
                opened: None,
                at: None,
            }),
            open: Mutex::default(),
            is_uncached: OnceLock::new(),
            backing: Mutex::default(),
            ranges: Ranges::default(),
        }
    }

    /// Its size in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// It has at least `size` bytes.
    pub(crate) fn grow(&self, size: u64) {
        self.size.fetch_max(size, Ordering::AcqRel);
    }

    /// Reads through the mount find `size` bytes from now on.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Bytes up to `end` will be read or written.
    #[inline]
    pub(crate) fn extend_reach(&self, end: u64) {
        if self.reach.load(Ordering::Relaxed) < end {
            self.reach.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// It can be reopened by `path`.
    pub(crate) fn set_path(&self, path: &Arc<OwnedFd>) {
        lock(&self.open).path = Arc::downgrade(path);
    }

    /// `reader` can be read as long as it is open.
    pub(crate) fn add_reader(&self, reader: &Arc<OwnedFd>) {
        let mut open = lock(&self.open);
        open.readers.retain(|reader| reader.strong_count() > 0);
        open.readers.push(Arc::downgrade(reader));
    }

    /// A descriptor that can be read.
    pub(crate) fn reader(&self) -> io::Result<Arc<OwnedFd>> {
        let path = {
            let open = lock(&self.open);
            if let Some(reader) = open.readers.iter().rev().find_map(Weak::upgrade) {
                return Ok(reader);
            }
            open.path.upgrade().ok_or(Errno::STALE)?
        };
        source::reopen(path, OFlags::RDONLY).map(Arc::new)
    }

    /// Reads from `at` on until `slices` are full; zeros beyond the end.
    pub(crate) fn load(&self, mut at: u64, mut slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let reader = self.reader()?;
        while !slices.is_empty() {
            let most = slices.len().min(SLICES_MOST);
            let read = preadv(&reader, &mut slices[..most], at)?;
            if read == 0 {
                slices.iter_mut().for_each(|slice| slice.fill(0));
                break;
            }
            at += read as u64;
            IoSliceMut::advance_slices(&mut slices, read);
        }
        Ok(())
    }

    /// The place of the byte at `at` on the disk. `None` if the disk is full.
    #[inline]
    pub(crate) fn place(self: &Arc<File>, volume: &Volume<File>, at: u64) -> Option<Place> {
        let found = |parts: &[Part]| {
            let next = parts.partition_point(|part| part.file.start <= at);
            let part = parts[..next].last().filter(|part| at < part.file.end)?;
            Some(Place { disk: part.disk + (at - part.file.start), bytes: part.file.end - at })
        };
        if let Some(place) = found(&self.parts.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(place);
        }
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = found(&parts) {
            return Some(place);
        }
        let (range, class) = next_part(&parts, at, self.size());
        let disk = volume.allot(self, &range, class)?;
        let next = parts.partition_point(|part| part.file.start < range.start);
        parts.insert(next, Part { file: range, disk, class });
        found(&parts)
    }

    /// The parts of the disk that have bytes of `range`, in whole blocks, as far as there can be any in the cache.
    fn cached(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let end = range.end.min(self.reach.load(Ordering::Acquire).next_multiple_of(BLOCK));
        let start = range.start / BLOCK * BLOCK;
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let cut = |part: &Part| {
            let (from, to) = (start.max(part.file.start), end.next_multiple_of(BLOCK).min(part.file.end));
            (from < to).then(|| part.disk + (from - part.file.start)..part.disk + (to - part.file.start))
        };
        parts.iter().filter_map(cut).collect()
    }

    /// Has the cache forget all blocks that contain bytes of `range`. Nothing is written.
    pub(crate) fn forget(&self, session: &Session, range: Range<u64>) -> Result<(), HostError> {
        self.cached(range).into_iter().try_for_each(|blocks| session.trim(blocks))
    }

    /// Has the cache and the disk forget the file, which nobody finds any more.
    pub(crate) fn retire(self: Arc<File>, session: &Session, volume: &Volume<File>) {
        // Fails only where the cache ends.
        let is_forgotten = self.forget(session, 0..u64::MAX).is_ok();
        let is_unused = is_forgotten && Arc::strong_count(&self) == 1;
        for part in self.parts.write().unwrap_or_else(PoisonError::into_inner).drain(..) {
            volume.forget(part.disk, part.class, is_unused);
        }
    }

    /// A program opens it. Returns whether others have not changed it since the last time, so that what the kernel knows of it is right.
    pub(crate) fn note_open(&self) -> bool {
        let mut seen = lock(&self.seen);
        let drops = seen.drops;
        seen.opened.replace(drops) == Some(drops)
    }

    /// The next look drops its blocks.
    pub(crate) fn distrust(&self) {
        lock(&self.seen).doubt();
    }

    /// Its attributes, if the last look still counts.
    pub(crate) fn fresh(&self, rules: &Rules) -> Option<Stat> {
        if rules.fresh.is_zero() {
            return None;
        }
        let seen = lock(&self.seen);
        let counts = seen.changes == 0 && seen.at.is_some_and(|at| at.elapsed() < rules.fresh);
        seen.stat.filter(|_| counts)
    }

    /// Compares the source, whose attributes `stat` returns, with the stamp of the cached blocks. While the mount changes the file, nothing
    /// is compared.
    pub(crate) fn look(
        &self,
        rules: &Rules,
        session: &Session,
        stat: impl FnOnce() -> io::Result<Stat>,
    ) -> io::Result<Stat> {
        let mut seen = lock(&self.seen);
        let stat = stat()?;
        if seen.changes == 0 {
            self.compare(&mut seen, rules, session, &stat)?;
        }
        Ok(stat)
    }

    fn compare(&self, seen: &mut Seen, rules: &Rules, session: &Session, stat: &Stat) -> io::Result<()> {
        let stamp = Stamp::of(stat);
        let look = match seen.stat.as_ref().map(Stamp::of) {
            _ if seen.is_doubted => Look::Changed,
            None => Look::New,
            Some(old) if old == stamp && seen.is_settled => Look::Same,
            Some(_) => Look::Changed,
        };
        if look == Look::Changed {
            self.forget(session, 0..u64::MAX).map_err(failed)?;
            seen.drops += 1;
        }
        if look != Look::Same {
            self.note(seen, rules, stat);
        }
        seen.stat = Some(*stat);
        seen.at = Some(Instant::now());
        Ok(())
    }

    fn note(&self, seen: &mut Seen, rules: &Rules, stat: &Stat) {
        let stamp = Stamp::of(stat);
        let tick = if stamp.is_whole() { rules.whole_tick } else { rules.tick };
        let settles = stamp.changed().checked_add(tick);
        seen.is_settled = tick.is_zero() || settles.is_some_and(|at| at < SystemTime::now());
        seen.stat = Some(*stat);
        seen.is_doubted = false;
        self.set_size(stat.st_size as u64);
    }

    /// Begins a change through the mount.
    pub(crate) fn begin(
        &self,
        rules: &Rules,
        session: &Session,
        stat: impl FnOnce() -> io::Result<Stat>,
    ) -> io::Result<Change<'_>> {
        let mut seen = lock(&self.seen);
        if seen.changes == 0 {
            let stat = stat()?;
            self.compare(&mut seen, rules, session, &stat)?;
        }
        seen.changes += 1;
        Ok(Change { file: self, rules: *rules })
    }
}

impl Change<'_> {
    /// The change is made, and the cache has it.
    pub(crate) fn end(self, stat: impl FnOnce() -> io::Result<Stat>) {
        let (file, rules) = (self.file, self.rules);
        std::mem::forget(self);
        let mut seen = lock(&file.seen);
        seen.changes -= 1;
        if seen.changes > 0 {
            return;
        }
        match stat() {
            Ok(stat) if !seen.is_doubted => file.note(&mut seen, &rules, &stat),
            Ok(_) => {}
            Err(_) => seen.doubt(),
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut seen = lock(&self.file.seen);
        seen.changes -= 1;
        seen.doubt();
    }
}

/// The range of a new part with the byte at `at`, and its class, for a file of `size` bytes with these `parts`, none of which has the byte.
fn next_part(parts: &[Part], at: u64, size: u64) -> (Range<u64>, Class) {
    let next = parts.partition_point(|part| part.file.start <= at);
    let (before, behind) = parts.split_at(next);
    let begin = before.last().map_or(0, |part| part.file.end);
    let limit = behind.first().map_or(u64::MAX / BLOCK * BLOCK, |part| part.file.start);
    let has: u64 = parts.iter().map(|part| part.file.end - part.file.start).sum();
    // A file that grows gets parts that double; one with large holes only where it has bytes.
    let class = Class::of(if parts.is_empty() { size } else { has.saturating_add(BLOCK) });
    let start = if at - begin < class.room() { begin } else { at / BLOCK * BLOCK };
    (start..start.saturating_add(class.room()).min(limit), class)
}

/// The error of a request to the cache, as the source or the system would report it.
pub(crate) fn failed(error: HostError) -> io::Error {
    match error {
        HostError::Device(fault) => io::Error::from_raw_os_error(fault.0),
        HostError::ReadOnly => Errno::ROFS.into(),
        _ => Errno::IO.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(parts: &mut Vec<Part>, (file, class): (Range<u64>, Class)) {
        let next = parts.partition_point(|part| part.file.start < file.start);
        parts.insert(next, Part { file, disk: 0, class });
    }

    #[test]
    fn parts_cover_any_byte_and_never_overlap() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let size = 1 << random.u32(0..50);
            let mut parts: Vec<Part> = Vec::new();
            for step in 0..60 {
                let at = random.u64(..1 << 63) >> random.u32(0..63);
                if parts.iter().any(|part| part.file.contains(&at)) {
                    continue;
                }
                let (range, class) = next_part(&parts, at, size);
                assert!(range.contains(&at), "seed {seed}, step {step}: {range:?} without {at}");
                assert!(range.start % BLOCK == 0 && range.end % BLOCK == 0, "seed {seed}, step {step}: {range:?}");
                assert!(range.end - range.start <= class.room());
                let is_apart = |part: &Part| part.file.end <= range.start || range.end <= part.file.start;
                assert!(parts.iter().all(is_apart), "seed {seed}, step {step}: {range:?} in {parts:?}");
                add(&mut parts, (range, class));
            }
        }
        // One file that grows a block at a time has few parts.
        let mut parts: Vec<Part> = Vec::new();
        for block in 0..(1 << 18) {
            if parts.last().is_none_or(|part| part.file.end <= block * BLOCK) {
                let part = next_part(&parts, block * BLOCK, 0);
                add(&mut parts, part);
            }
        }
        assert!(parts.len() <= 16, "{} parts for 1 GiB", parts.len());
    }
}
