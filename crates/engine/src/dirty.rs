//! The dirty blocks of one volume: the order of their writes, and which versions have reached the device.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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
    waiters: Vec<Waiter>,
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

/// The dirty blocks of one volume.
#[derive(Default)]
pub(crate) struct Dirty {
    blocks: BTreeMap<u64, Entry>,
    /// (`first`, block) of each.
    order: BTreeSet<(u64, u64)>,
    /// Blocks to be written soon: they left the policy and occupy a spare frame, or a request waits for them.
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
            let waiters = Vec::new();
            Entry { frame, writing: false, captured: 0, first: version, last: version, since: now, waiters }
        });
        entry.frame = frame;
        entry.last = version;
    }

    /// The contents of `block` in `frame` were written, but the device may have lost them: whatever its newest version,
    /// a flush waits until it is written again. `version` is that of no later write.
    pub(crate) fn write_again(&mut self, block: u64, frame: u32, version: u64, now: u64) {
        let entry = self.blocks.entry(block).or_insert_with(|| {
            let waiters = Vec::new();
            Entry { frame, writing: false, captured: 0, first: OLDEST, last: version, since: now, waiters }
        });
        self.order.remove(&(entry.first, block));
        entry.first = OLDEST;
        self.order.insert((OLDEST, block));
    }

    /// `request` waits until the newest version of `block`, which is dirty, is on the device.
    pub(crate) fn wait(&mut self, block: u64, request: u32) {
        let entry = self.blocks.get_mut(&block).expect("the block was just written");
        entry.waiters.push(Waiter { version: entry.last, request });
        self.hurry(block);
    }

    /// Marks `block` to be written soon, if it is dirty and its newest contents are not being written.
    pub(crate) fn hurry(&mut self, block: u64) {
        if self.blocks.get(&block).is_some_and(|entry| !entry.writing || entry.captured != entry.last) {
            self.urgent.insert(block);
        }
    }

    /// The version that has waited longest for its write, and since when.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let &(first, block) = self.order.first()?;
        Some((first, self.blocks[&block].since))
    }

    /// The next run of at most `most` blocks to write, outside of `closed`; with `urgent`, only around urgent blocks.
    /// All its blocks are within the range that `region` returns for one of them. They count as being written until
    /// `written`.
    pub(crate) fn next_run(
        &mut self,
        urgent: bool,
        most: usize,
        closed: &[Range<u64>],
        region: impl Fn(u64) -> Range<u64>,
    ) -> Option<Run> {
        let free = |block: u64, entry: &Entry| !entry.writing && !closed.iter().any(|range| range.contains(&block));
        let pressing = self.urgent.iter().copied().find(|block| free(*block, &self.blocks[block]));
        let mut block = match pressing {
            Some(block) => block,
            None if urgent => return None,
            None => {
                let after = self.blocks.range(self.cursor..).chain(self.blocks.range(..self.cursor));
                after.filter(|&(&block, entry)| free(block, entry)).map(|(&block, _)| block).next()?
            }
        };
        let region = region(block);
        let mut before = self.blocks.range(region.start..block).rev();
        let mut most_before = most - 1;
        while let Some((&lower, entry)) = before.next()
            && most_before > 0
            && lower + 1 == block
            && free(lower, entry)
        {
            block = lower;
            most_before -= 1;
        }
        let mut frames = Vec::new();
        for (next, (&at, entry)) in (block..).zip(self.blocks.range_mut(block..region.end).take(most)) {
            if at != next || !free(at, entry) {
                break;
            }
            entry.writing = true;
            entry.captured = entry.last;
            frames.push(entry.frame);
            self.urgent.remove(&at);
        }
        self.cursor = block + frames.len() as u64;
        Some(Run { block, frames })
    }

    /// The write of `block` is over.
    pub(crate) fn written(&mut self, block: u64, succeeded: bool, now: u64) -> Written {
        let entry = self.blocks.get_mut(&block).expect("a block being written is dirty");
        assert!(entry.writing);
        entry.writing = false;
        let (frame, first, captured) = (entry.frame, entry.first, entry.captured);
        let waiters = entry.waiters.extract_if(.., |waiter| waiter.version <= captured).collect();
        let clean = succeeded && entry.last == captured;
        if succeeded {
            self.order.remove(&(first, block));
            if clean {
                self.blocks.remove(&block);
                self.urgent.remove(&block);
            } else {
                entry.first = captured + 1;
                entry.since = now;
                self.order.insert((captured + 1, block));
            }
        }
        Written { clean, frame, first, waiters }
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
        for block in &gone {
            let entry = self.blocks.remove(block).expect("just listed");
            assert!(!entry.writing && entry.waiters.is_empty(), "a block in use is not discarded");
            self.order.remove(&(entry.first, *block));
            self.urgent.remove(block);
        }
        gone
    }

    /// Recounts.
    pub(crate) fn check(&self) {
        assert_eq!(self.order.len(), self.blocks.len());
        for (block, entry) in &self.blocks {
            assert!(self.order.contains(&(entry.first, *block)));
            assert!(entry.first <= entry.last);
            assert!(!entry.writing || entry.captured <= entry.last);
            let served = |waiter: &Waiter| entry.writing && waiter.version <= entry.captured;
            assert!(entry.waiters.iter().all(served) || self.urgent.contains(block), "a waiter that nobody serves");
        }
        assert!(self.urgent.iter().all(|block| self.blocks.contains_key(block)));
    }

    /// The dirty blocks with their frames, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.blocks.iter().map(|(&block, entry)| (block, entry.frame))
    }
}
