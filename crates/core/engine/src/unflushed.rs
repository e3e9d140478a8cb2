//! Changes that a device may lose: those since its last good flush.

use std::mem;
use std::ops::Range;

use hashbrown::HashSet;

/// Changes that one device flush covers.
#[derive(Default)]
struct Changes {
    /// Blocks that were written and are in memory, with the written contents or newer ones.
    blocks: HashSet<u64>,
    /// Blocks that were written, including those that left memory; a block counts once for each write.
    written: u32,
    /// Whether there is a change whose bytes are not in memory: a block that left it, or a range that was zeroed.
    gone: bool,
}

impl Changes {
    /// Adds those of `other`, which has none then.
    fn take(&mut self, other: &mut Changes) {
        match self.blocks.is_empty() {
            true => mem::swap(&mut self.blocks, &mut other.blocks),
            false => self.blocks.extend(other.blocks.drain()),
        }
        self.written = self.written.saturating_add(mem::take(&mut other.written));
        self.gone |= mem::take(&mut other.gone);
    }

    /// `block` leaves memory.
    fn leave(&mut self, block: u64) {
        self.gone |= self.blocks.remove(&block);
    }
}

/// The unflushed changes of a volume at one port.
#[derive(Default)]
pub(crate) struct Unflushed {
    /// Covered by the flush at the device, if it succeeds.
    before: Changes,
    /// Changes that were completed since it began.
    since: Changes,
}

impl Unflushed {
    /// `block`, which is in memory, was written.
    pub(crate) fn write(&mut self, block: u64) {
        self.since.blocks.insert(block);
        self.since.written = self.since.written.saturating_add(1);
    }

    /// The number of written blocks that no flush at the device covers.
    pub(crate) fn since(&self) -> u32 {
        self.since.written
    }

    /// The number of written blocks that the device may lose.
    pub(crate) fn written(&self) -> u32 {
        self.before.written.saturating_add(self.since.written)
    }

    /// Its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.before.blocks.allocation_size() + self.since.blocks.allocation_size()
    }

    /// A range was zeroed.
    pub(crate) fn zero(&mut self) {
        self.since.gone = true;
    }

    /// `block` leaves memory.
    pub(crate) fn leave(&mut self, block: u64) {
        self.before.leave(block);
        self.since.leave(block);
    }

    /// The contents of `blocks` are no longer needed.
    pub(crate) fn forget(&mut self, blocks: &Range<u64>) {
        for set in [&mut self.before.blocks, &mut self.since.blocks] {
            match blocks.end - blocks.start < set.len() as u64 {
                true => blocks.clone().for_each(|block| _ = set.remove(&block)),
                false => set.retain(|block| !blocks.contains(block)),
            }
        }
    }

    /// A flush is passed to the device.
    pub(crate) fn begin_flush(&mut self) {
        self.before.take(&mut self.since);
    }

    /// That flush succeeded.
    pub(crate) fn end_flush(&mut self) {
        let blocks = &mut self.before.blocks;
        // While writes continue, the memory is used again.
        let blocks = if self.since.written == 0 { HashSet::default() } else { mem::take(blocks) };
        self.before = Changes { blocks, ..Changes::default() };
        self.before.blocks.clear();
    }

    /// The device may have lost all of it. Returns the blocks, in ascending order, and whether they are all.
    pub(crate) fn take(&mut self) -> (Vec<u64>, bool) {
        self.begin_flush();
        let Changes { blocks, gone, .. } = mem::take(&mut self.before);
        let mut blocks: Vec<u64> = blocks.into_iter().collect();
        blocks.sort_unstable();
        (blocks, !gone)
    }

    /// The blocks, for `Engine::check`.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.before.blocks.iter().chain(&self.since.blocks).copied()
    }
}
