//! The state of a virtual block, and the room for data blocks and deltas.

use nigh_policy::Slot;

use super::{Contents, DELTA_BLOCK_BYTES, Lpu, NONE, State, UNKNOWN, Virtual};
use crate::{BLOCK_BYTES, Content};

impl Lpu {
    pub(super) fn of(&self, slot: Slot) -> &Virtual {
        &self.virtuals[slot.index()]
    }

    pub(super) fn of_mut(&mut self, slot: Slot) -> &mut Virtual {
        &mut self.virtuals[slot.index()]
    }

    /// Whether the content of a block in the queue is in the cache.
    pub(super) fn is_cached(&self, slot: Slot) -> bool {
        let of = self.of(slot);
        of.data || (of.state == State::Associate && self.of(Slot(of.partner)).data)
    }

    /// Makes an independent block, which has a data block, an associate block.
    pub(super) fn refer(&mut self, slot: Slot, reference: Slot, delta_blocks: u16) {
        if self.of(reference).state == State::Independent {
            self.of_mut(reference).state = State::Reference;
            self.counts.references += 1;
        }
        self.counts.associates += 1;
        self.release_data(slot);
        let first = std::mem::replace(&mut self.of_mut(reference).partner, slot.0);
        if first != NONE {
            self.of_mut(Slot(first)).prev = slot.0;
        }
        let of = self.of_mut(slot);
        (of.state, of.partner, of.next, of.prev) = (State::Associate, reference.0, first, NONE);
        of.delta_blocks = delta_blocks;
        self.move_to_front(reference);
    }

    /// Takes this many delta blocks, of other blocks if there are not enough; returns whether they could be had.
    pub(super) fn reserve_delta(&mut self, blocks: u16) -> bool {
        while self.delta_free < u32::from(blocks) {
            // "LPU searches from the end of the LPU queue, replaces the first block that has delta and is not a
            // reference. Both the data block and the delta block are released." (2.2)
            let Some(victim) = self.with_delta.back(&self.links) else { return false };
            self.counts.delta_replaced += 1;
            self.forget(victim);
        }
        self.delta_free -= u32::from(blocks);
        true
    }

    /// Delta blocks of the difference of two contents; `None` if it is longer than `bytes_most`, which for a whole
    /// block means that the block is kept instead.
    pub(super) fn encode(
        &mut self,
        content: Content,
        base: Content,
        bytes_most: u32,
        contents: &mut impl Contents,
    ) -> Option<u16> {
        if content == base {
            return Some(0);
        }
        self.counts.encodes += 1;
        let bytes = contents.delta_bytes(content, base).min(BLOCK_BYTES as u32);
        (bytes <= bytes_most).then(|| bytes.div_ceil(DELTA_BLOCK_BYTES) as u16)
    }

    pub(super) fn release_delta(&mut self, slot: Slot) {
        let blocks = std::mem::take(&mut self.of_mut(slot).delta_blocks);
        if blocks > 0 && self.of(slot).state == State::Associate {
            self.with_delta.unlink(&mut self.links, slot);
        }
        self.delta_free += u32::from(blocks);
    }

    /// Makes an associate block independent, without data block.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.release_delta(slot);
        let Virtual { partner, next, prev, .. } = *self.of(slot);
        if next != NONE {
            self.of_mut(Slot(next)).prev = prev;
        }
        if prev != NONE {
            self.of_mut(Slot(prev)).next = next;
        } else {
            self.of_mut(Slot(partner)).partner = next;
            if next == NONE {
                self.bereft.push(Slot(partner));
            }
        }
        let of = self.of_mut(slot);
        (of.state, of.partner, of.next, of.prev) = (State::Independent, NONE, NONE, NONE);
    }

    /// Replaces the virtual block of a block that is no reference block.
    pub(super) fn forget(&mut self, slot: Slot) {
        if self.of(slot).state == State::Associate {
            self.leave(slot);
        }
        if self.of(slot).data {
            self.release_data(slot);
        }
        self.queue.unlink(&mut self.queue_links, slot);
        *self.of_mut(slot) = UNKNOWN;
    }

    pub(super) fn move_to_front(&mut self, slot: Slot) {
        self.queue.move_to_front(&mut self.queue_links, slot);
        let of = self.virtuals[slot.index()];
        if of.data {
            self.with_data.move_to_front(&mut self.links, slot);
        } else if of.state == State::Associate && of.delta_blocks > 0 {
            self.with_delta.move_to_front(&mut self.links, slot);
        }
    }

    pub(super) fn release_data(&mut self, slot: Slot) {
        self.with_data.unlink(&mut self.links, slot);
        self.of_mut(slot).data = false;
        self.data_free += 1;
        self.holders.remove(&(self.of(slot).base, slot));
    }
}
