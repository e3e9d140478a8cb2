//! Blocks whose contents change in memory although nobody wrote them. With `Config::verify`, each frame has a checksum,
//! computed when a device has filled it or its write is committed. It is compared before the frame is written to any
//! device, before a partial write takes over the rest of a block, and at every `Config::verify`th read.
//!
//! A damaged block that its device has is loaded again. A dirty one is *lost*: its device does not get it, its volume is
//! condemned, and it cannot be read until it is overwritten.

use crate::arena::{Exclusive, Shared};
use crate::engine::Engine;
use crate::frames::{DIRTY, LOADING};
use crate::request::{Damage, Fault, Outcome, Request, Volume};
use crate::requests::Step;
use crate::slots::Key;

impl Engine {
    /// The next block that was found to be damaged in memory.
    pub fn next_damage(&mut self) -> Option<Damage> {
        self.checks.damages.pop_front()
    }

    /// The lost blocks of `volume` that were not overwritten since, in ascending order, at most `most`.
    pub fn damaged(&self, volume: Volume, most: usize) -> Vec<u64> {
        let state = self.volumes.get(volume);
        state.map_or_else(Vec::new, |state| state.damaged.iter().take(most).copied().collect())
    }

    /// Flips a bit of a block in memory, as damaged memory does (tests only). Returns false if the block is not there, or
    /// in use.
    pub fn flip_bit(&mut self, volume: Volume, block: u64, bit: usize) -> bool {
        let frame = self.memory.current(&self.slots, Key::new(volume, block));
        let Some(frame) = frame.filter(|&frame| !self.memory.frames.has(frame, LOADING)) else { return false };
        self.memory.arena.withdraw(frame);
        if self.memory.arena.held(frame) {
            return false;
        }
        let mut held = Exclusive::of(&self.memory.arena, &[frame], 0, self.config.block_bytes as usize);
        held.slices_mut().for_each(|bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        true
    }

    /// Whether the blocks of this read are to be checked.
    #[inline]
    pub(crate) fn is_check_due(&mut self) -> bool {
        let due = self.config.verify > 0 && self.checks.unchecked + 1 >= self.config.verify;
        if due {
            self.checks.unchecked = 0;
        } else {
            self.checks.unchecked += u32::from(self.config.verify > 0);
        }
        due
    }

    /// Checks the blocks of a read that are present. Those that are damaged are no longer present afterwards; the fault if
    /// that is not possible at the moment.
    #[cold]
    pub(crate) fn inspect(&mut self, request: &Request, now: u64) -> Result<(), Fault> {
        let blocks = self.blocks(&(request.offset..request.offset + request.length));
        blocks.into_iter().try_for_each(|block| self.inspect_block(Key::new(request.volume, block), now))
    }

    /// As `inspect`, for one block.
    pub(crate) fn inspect_block(&mut self, key: Key, now: u64) -> Result<(), Fault> {
        let frame = self.memory.current(&self.slots, key).filter(|&frame| !self.memory.frames.has(frame, LOADING));
        let Some(frame) = frame.filter(|&frame| self.is_damaged(frame)) else { return Ok(()) };
        if !self.memory.frames.has(frame, DIRTY) {
            self.drop_block(key);
            self.checks.report(&mut self.volumes, key, false);
            return Ok(());
        }
        if self.volumes.state_mut(key.volume()).dirty.is_writing(key.index()..key.index() + 1) {
            return Err(Fault::DAMAGED);
        }
        self.lose(key, now);
        Ok(())
    }

    fn is_damaged(&self, frame: u32) -> bool {
        !Shared::of(&self.memory.arena, &[frame], 0, self.config.block_bytes as usize).damaged().is_empty()
    }

    /// The newest contents of `key`, which is dirty and not being written, are damaged.
    pub(crate) fn lose(&mut self, key: Key, now: u64) {
        let (volume, block) = (key.volume(), key.index());
        let (first, waiters) = self.volumes.state_mut(volume).dirty.lose(block);
        self.cleaner.dirty -= 1;
        self.volumes.note_unwanted(volume);
        self.drop_block(key);
        let state = self.volumes.state_mut(volume);
        state.damaged.insert(block);
        state.unlockable = true;
        self.condemn(volume, Fault::DAMAGED);
        self.checks.report(&mut self.volumes, key, true);
        for waiter in waiters {
            let active = self.requests.active(waiter.request);
            active.storing -= 1;
            active.fault = active.fault.or(Some(Fault::DAMAGED));
            if active.storing == 0 && active.step == Step::Storing {
                self.store(waiter.request, now);
            }
        }
        let mut failed = Vec::new();
        self.volumes.state_mut(volume).flushing.flushes.retain(|flush| {
            let covered = flush.version >= first;
            failed.extend(covered.then_some(flush.request));
            !covered
        });
        failed.into_iter().for_each(|id| self.finish(id, Outcome::Failed(Fault::DAMAGED)));
        self.cleaner.make_due(&mut self.volumes, volume);
        self.drained(volume, now);
    }

    /// As [`Engine::check`], for lost blocks.
    pub(crate) fn check_damaged(&self) {
        for (volume, state) in self.volumes.numbered() {
            for &block in &state.damaged {
                let frame = self.memory.current(&self.slots, Key::new(volume, block));
                assert!(frame.is_none_or(|frame| self.memory.frames.has(frame, LOADING)), "a lost block is in memory");
                assert!(state.flushing.lost.is_some());
            }
        }
    }
}
