//! Blocks that become readable without the lock, and reads of such blocks that the policy gets afterwards.

use nigh_policy::Kind;

use crate::engine::Engine;
use crate::frames::{LOADING, PREFETCHED};
use crate::published::{Noted, Published};
use crate::slots::{Key, NONE};

impl Engine {
    /// The blocks that can be read without the engine's lock.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// Publishes the block `key`, which is resident in `frame` with its contents.
    #[inline]
    pub(crate) fn publish(&mut self, key: Key, frame: u32) {
        if !self.memory.arena.is_published(frame) {
            // The last block of a volume may be longer than the volume.
            if (key.index() + 1) << self.shift > self.volumes.state(key.volume()).bytes {
                return;
            }
            self.memory.arena.publish(frame, key.word());
        }
        // Another block may have taken the place of its hint.
        self.published.add(key, frame);
    }

    /// Reports the references of `noted` to the policy, and empties it. Blocks that left since then are counted as hits, but the policy does not
    /// get their references.
    pub fn take_notice(&mut self, noted: &mut Noted) {
        let &mut Noted { volume, tenant, stream, reads, bytes, .. } = noted;
        let Some(state) = self.volumes.get_mut(volume) else {
            noted.blocks.clear();
            (noted.reads, noted.bytes) = (0, 0);
            return;
        };
        state.counters.reads += u64::from(reads);
        state.counters.read_bytes += bytes;
        state.counters.hits += noted.blocks.len() as u64;
        (noted.reads, noted.bytes) = (0, 0);
        if self.config.verify > 0 {
            self.checks.unchecked += reads;
        }
        noted.blocks.iter().for_each(|&block| self.slots.prefetch(Key::new(volume, block)));
        for block in noted.blocks.drain(..) {
            let key = Key::new(volume, block);
            let Some(slot) = self.slots.find(key) else { continue };
            let frame = self.slots.frame(slot);
            // It left and is being loaded again.
            if frame == NONE || self.memory.frames.has(frame, LOADING | PREFETCHED) {
                continue;
            }
            let access = self.access(key, Kind::Read, tenant, stream);
            self.policy.hit(slot, &access);
            self.measure(&access);
        }
    }

    /// As [`Engine::check`], for published blocks.
    pub(crate) fn check_published(&self) {
        if !self.published.is_used() {
            return;
        }
        let frames = self.config.capacity_max + self.config.spare + self.config.storing;
        for frame in (0..frames).filter(|&frame| self.memory.arena.is_published(frame)) {
            let key = Key::from_word(self.memory.arena.key(frame));
            let slot = self.slots.find(key).expect("a published block is in the index");
            assert_eq!(self.slots.frame(slot), frame, "a published frame has its block");
            assert!(!self.memory.frames.has(frame, LOADING | PREFETCHED), "a published frame can be read");
        }
    }
}
