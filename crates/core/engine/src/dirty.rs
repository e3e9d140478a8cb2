//! The dirty blocks of one volume: the order of their writes, and which versions have reached the device.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

/// The version that every flush after a write waits for.
const OLDEST: u64 = 1;

/// A request that waits until its version of a block is on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) version: u64,
    pub(crate) request: u32,
}

/// A block whose newest contents may not have reached the device.
struct Entry {
    /// The frame with the newest contents.
    frame: u32,
    /// Whether a write of it is queued or at the device.
    writing: bool,
    /// The version of that write.
    captured: u64,
    /// All versions before this one have reached the device.
    first: u64,
    /// The newest version.
    last: u64,
    /// When it became dirty, in µs.
    since: u64,
    /// If its last write failed.
    failed: Option<Failed>,
    waiters: Vec<Waiter>,
}

impl Entry {
    /// A block that became dirty now.
    fn new(frame: u32, versions: RangeInclusive<u64>, now: u64) -> Entry {
        let (first, last) = versions.into_inner();
        let waiters = Vec::new();
        Entry { frame, writing: false, captured: 0, first, last, since: now, failed: None, waiters }
    }
}

/// A block whose last write failed. Times are in µs.
#[derive(Clone, Copy)]
struct Failed {
    /// The time of its first failure since its last good write.
    since: u64,
    /// When it is tried again, unless a request waits for it.
    retry_at: u64,
}

/// The effect of a completed write on a block.
pub(crate) struct Written {
    /// The device has the newest contents, those of `frame`.
    pub(crate) clean: bool,
    pub(crate) frame: u32,
    /// The oldest version that was missing.
    pub(crate) first: u64,
    /// Requests that no longer wait.
    pub(crate) waiters: Vec<Waiter>,
}

/// A run of neighbouring dirty blocks to be written.
pub(crate) struct Run {
    pub(crate) block: u64,
    pub(crate) frames: Vec<u32>,
}

/// The dirty blocks that may be written now, besides those that requests wait for.
pub(crate) struct Reasons {
    /// All whose write did not fail.
    pub(crate) sweep: bool,
    /// Those whose write failed, if they are to be tried again at this time or before, in µs;
    pub(crate) retry: Option<u64>,
    /// or if they have a version that is not newer than this one;
    pub(crate) version: u64,
    /// and no more of them in one run.
    pub(crate) retry_most: usize,
}

impl Reasons {
    /// Whether `entry`, whose write failed, may be tried again.
    fn retry(&self, entry: &Entry, failed: Failed) -> bool {
        entry.first <= self.version || self.retry.is_some_and(|time| failed.retry_at <= time)
    }
}

/// The dirty blocks of one volume.
#[derive(Default)]
pub(crate) struct Dirty {
    blocks: BTreeMap<u64, Entry>,
    /// (`first`, block) of each whose write did not fail.
    order: BTreeSet<(u64, u64)>,
    /// (`first`, block) of each whose last write failed.
    failed: BTreeSet<(u64, u64)>,
    /// Those of `failed` that are not being written: (`retry_at`, block).
    retries: BTreeSet<(u64, u64)>,
    /// Those whose write did not fail and that are not being written.
    ready: BTreeSet<u64>,
    /// Blocks to be written soon: they left the policy and no longer wait for others, or a request waits for them. If their
    /// last write failed, only the latter.
    urgent: BTreeSet<u64>,
    /// Write-back continues upwards from here.
    cursor: u64,
}

impl Dirty {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// `block` has new contents in `frame`, with `version`, which is greater than all before.
    pub(crate) fn write(&mut self, block: u64, frame: u32, version: u64, now: u64) {
        let entry = self.blocks.entry(block).or_insert_with(|| {
            self.order.insert((version, block));
            Entry::new(frame, version..=version, now)
        });
        if !entry.writing && entry.failed.is_none() {
            self.ready.insert(block);
        }
        entry.frame = frame;
        entry.last = version;
    }

    /// The contents of `block` in `frame` were written, but the device may have lost them: whatever its newest version,
    /// a flush waits until it is written again. `version` is that of no later write.
    pub(crate) fn write_again(&mut self, block: u64, frame: u32, version: u64, now: u64) {
        // The oldest version shows since when blocks are dirty.
        let now = self.dirty_since().map_or(now, |since| since.min(now));
        let entry = self.blocks.entry(block).or_insert_with(|| Entry::new(frame, OLDEST..=version, now));
        entry.since = entry.since.min(now);
        if !entry.writing && entry.failed.is_none() {
            self.ready.insert(block);
        }
        let order = if entry.failed.is_some() { &mut self.failed } else { &mut self.order };
        order.remove(&(entry.first, block));
        entry.first = OLDEST;
        order.insert((OLDEST, block));
    }

    /// `request` waits until the newest version of `block`, which is dirty, is on the device.
    pub(crate) fn wait(&mut self, block: u64, request: u32) {
        let entry = self.blocks.get_mut(&block).expect("the block was just written");
        entry.waiters.push(Waiter { version: entry.last, request });
        self.hurry(block);
    }

    /// Marks `block` to be written soon, if it is dirty and its newest contents are not being written. Unless a request
    /// waits for it, a block whose last write failed is tried again at its time.
    pub(crate) fn hurry(&mut self, block: u64) {
        let is_due = |entry: &Entry| {
            (!entry.writing || entry.captured != entry.last) && (entry.failed.is_none() || !entry.waiters.is_empty())
        };
        if self.blocks.get(&block).is_some_and(is_due) {
            self.urgent.insert(block);
        }
    }

    /// The version that has waited longest for its write.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.order.first().into_iter().chain(self.failed.first()).map(|&(first, _)| first).min()
    }

    /// Since when the oldest block whose write did not fail is dirty, in µs.
    pub(crate) fn dirty_since(&self) -> Option<u64> {
        let (_, block) = self.order.first()?;
        Some(self.blocks[block].since)
    }

    /// The number of blocks whose last write failed.
    pub(crate) fn failed_len(&self) -> usize {
        self.failed.len()
    }

    /// Whether the last write of a block failed, with a version that is not newer than this one.
    pub(crate) fn has_failed_version(&self, version: u64) -> bool {
        self.failed.first().is_some_and(|&(first, _)| first <= version)
    }

    /// When the next block whose write failed is to be tried again, in µs.
    pub(crate) fn retry_at(&self) -> Option<u64> {
        self.retries.first().map(|&(time, _)| time)
    }

    /// Whether a write of a block of `range` failed at `time` or before, and none succeeded since.
    pub(crate) fn has_failed_since(&self, range: Range<u64>, time: u64) -> bool {
        let failed = |entry: &Entry| entry.failed.is_some_and(|failed| failed.since <= time);
        self.blocks.range(range).any(|(_, entry)| failed(entry))
    }

    /// The blocks of `range` that are dirty.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        self.blocks.range(range).map(|(&block, _)| block)
    }

    /// The first runs of blocks whose last write failed, at most `most`.
    pub(crate) fn failed_runs(&self, most: usize) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&block, _) in self.blocks.iter().filter(|(_, entry)| entry.failed.is_some()) {
            let full = runs.len() == most;
            match runs.last_mut().filter(|run| run.end == block) {
                Some(run) => run.end += 1,
                None if full => break,
                None => runs.push(block..block + 1),
            }
        }
        runs
    }

    /// The next run of at most `most` blocks to write, outside of `closed`, for one of `reasons` or because it is urgent.
    /// Blocks whose last write failed are in runs of their own. All blocks of a run are within the range that `region`
    /// returns for one of them. They count as being written until `written`.
    pub(crate) fn next_run(
        &mut self,
        reasons: &Reasons,
        most: usize,
        closed: &[Range<u64>],
        region: impl Fn(u64) -> Range<u64>,
    ) -> Option<Run> {
        let free = |block: u64, entry: &Entry| !entry.writing && !closed.iter().any(|range| range.contains(&block));
        let pressing = self.urgent.iter().copied().find(|block| free(*block, &self.blocks[block]));
        let sweep = || {
            let mut ready = self.ready.range(self.cursor..).chain(self.ready.range(..self.cursor)).copied();
            ready.find(|block| free(*block, &self.blocks[block]))
        };
        let retry = || {
            let covered = self.failed.range(..=(reasons.version, u64::MAX));
            let due = reasons.retry.map(|time| self.retries.range(..=(time, u64::MAX)));
            let mut failed = covered.chain(due.into_iter().flatten()).map(|&(_, block)| block);
            failed.find(|block| free(*block, &self.blocks[block]))
        };
        let next = pressing.or_else(|| if reasons.sweep { sweep() } else { None });
        let block = next.or_else(retry)?;
        let is_retry = self.blocks[&block].failed.is_some();
        let most = if is_retry { most.min(reasons.retry_most) } else { most };
        let joins = |at: u64, entry: &Entry| match entry.failed {
            None => !is_retry && free(at, entry),
            Some(failed) => is_retry && (at == block || reasons.retry(entry, failed)) && free(at, entry),
        };
        let region = region(block);
        let mut first = block;
        let mut before = self.blocks.range(region.start..block).rev();
        let mut most_before = most - 1;
        while let Some((&lower, entry)) = before.next()
            && most_before > 0
            && lower + 1 == first
            && joins(lower, entry)
        {
            first = lower;
            most_before -= 1;
        }
        let run = self.blocks.range(first..region.end).take(most).zip(first..);
        let count = run.take_while(|&((&at, entry), next)| at == next && joins(at, entry)).count();
        let mut frames = Vec::with_capacity(count);
        for (&at, entry) in self.blocks.range_mut(first..).take(count) {
            entry.writing = true;
            entry.captured = entry.last;
            frames.push(entry.frame);
            self.urgent.remove(&at);
            self.ready.remove(&at);
            if let Some(failed) = entry.failed {
                self.retries.remove(&(failed.retry_at, at));
            }
        }
        if !is_retry {
            self.cursor = first + count as u64;
        }
        Some(Run { block: first, frames })
    }

    /// The write of `block` is over. If it failed, the block is tried again at `retry_at`; if that is `None`, it was passed
    /// to the device too early.
    pub(crate) fn written(&mut self, block: u64, result: Result<(), Option<u64>>, now: u64) -> Written {
        let entry = self.blocks.get_mut(&block).expect("a block being written is dirty");
        assert!(entry.writing);
        entry.writing = false;
        let (frame, first, captured) = (entry.frame, entry.first, entry.captured);
        let waiters = entry.waiters.extract_if(.., |waiter| waiter.version <= captured).collect();
        let clean = result.is_ok() && entry.last == captured;
        let (failed, failed_before) = match result {
            Ok(()) => (None, entry.failed.take()),
            Err(retry_at) => {
                let before = entry.failed;
                let since = before.map_or(now, |failed| failed.since);
                entry.failed = retry_at.map(|retry_at| Failed { since, retry_at }).or(before);
                (entry.failed, before)
            }
        };
        let before = if failed_before.is_some() { &mut self.failed } else { &mut self.order };
        before.remove(&(first, block));
        if clean {
            self.blocks.remove(&block);
            self.urgent.remove(&block);
            return Written { clean, frame, first, waiters };
        }
        if result.is_ok() {
            entry.first = captured + 1;
            entry.since = now;
        }
        if let Some(failed) = failed {
            self.failed.insert((entry.first, block));
            self.retries.insert((failed.retry_at, block));
            if entry.waiters.is_empty() {
                self.urgent.remove(&block);
            }
        } else {
            self.order.insert((entry.first, block));
            self.ready.insert(block);
        }
        Written { clean, frame, first, waiters }
    }

    /// The write of `block` was not begun.
    pub(crate) fn put_back(&mut self, block: u64) {
        let entry = self.blocks.get_mut(&block).expect("a block being written is dirty");
        assert!(entry.writing);
        entry.writing = false;
        match entry.failed {
            Some(failed) => _ = self.retries.insert((failed.retry_at, block)),
            None => _ = self.ready.insert(block),
        }
        if entry.failed.is_none() || !entry.waiters.is_empty() {
            self.urgent.insert(block);
        }
    }

    /// The newest contents of `block`, which is not being written, are lost. Returns its oldest version that the device
    /// does not have, and all requests that wait.
    pub(crate) fn lose(&mut self, block: u64) -> (u64, Vec<Waiter>) {
        let entry = self.remove(block);
        assert!(!entry.writing);
        (entry.first, entry.waiters)
    }

    /// Takes out `block`, which is dirty.
    fn remove(&mut self, block: u64) -> Entry {
        let entry = self.blocks.remove(&block).expect("a dirty block");
        match entry.failed {
            None => {
                self.order.remove(&(entry.first, block));
                self.ready.remove(&block);
            }
            Some(failed) => {
                self.failed.remove(&(entry.first, block));
                self.retries.remove(&(failed.retry_at, block));
            }
        }
        self.urgent.remove(&block);
        entry
    }

    /// Whether a block of `range` is being written.
    pub(crate) fn is_writing(&self, range: Range<u64>) -> bool {
        self.blocks.range(range).any(|(_, entry)| entry.writing)
    }

    /// The blocks that are neither being written nor waited for, if requests wait for versions up to `flushing`.
    pub(crate) fn unwanted(&self, flushing: u64) -> Vec<u64> {
        let wanted = |entry: &Entry| entry.writing || !entry.waiters.is_empty() || entry.first <= flushing;
        self.blocks.iter().filter(|(_, entry)| !wanted(entry)).map(|(&block, _)| block).collect()
    }

    /// The blocks of `range` need not be written any more; none of them is being written. Returns these blocks.
    pub(crate) fn discard(&mut self, range: Range<u64>) -> Vec<u64> {
        let gone: Vec<u64> = self.blocks.range(range).map(|(&block, _)| block).collect();
        for &block in &gone {
            let entry = self.remove(block);
            assert!(!entry.writing && entry.waiters.is_empty(), "a block in use is not discarded");
        }
        gone
    }

    /// Recounts.
    pub(crate) fn check(&self) {
        assert_eq!(self.order.len() + self.failed.len(), self.blocks.len());
        let (mut retries, mut ready) = (0, 0);
        for (block, entry) in &self.blocks {
            let order = if entry.failed.is_some() { &self.failed } else { &self.order };
            assert!(order.contains(&(entry.first, *block)));
            if let Some(failed) = entry.failed.filter(|_| !entry.writing) {
                assert!(self.retries.contains(&(failed.retry_at, *block)));
                retries += 1;
            }
            let is_ready = !entry.writing && entry.failed.is_none();
            assert_eq!(self.ready.contains(block), is_ready);
            ready += usize::from(is_ready);
            assert!(entry.first <= entry.last);
            assert!(!entry.writing || entry.captured <= entry.last);
            let served = |waiter: &Waiter| entry.writing && waiter.version <= entry.captured;
            assert!(entry.waiters.iter().all(served) || self.urgent.contains(block), "a waiter that nobody serves");
        }
        assert_eq!((self.retries.len(), self.ready.len()), (retries, ready));
        assert!(self.urgent.iter().all(|block| self.blocks.contains_key(block)));
    }

    /// The dirty blocks with their frames, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.blocks.iter().map(|(&block, entry)| (block, entry.frame))
    }
}
