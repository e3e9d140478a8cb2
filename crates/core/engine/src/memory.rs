//! Frames, and blocks that are in memory without a slot of the policy.
//!
//! 1. A frame is free, or promised (`reserved`), or taken for a block that is loaded or written.
//! 2. A block that leaves the policy takes its frame along: free at once if the frame is clean and not held, or else `outside`.
//! 3. A frame that is still held is in `lingering`, and becomes free when `reclaim`, or `let_go` before a reference to its block, finds its last hold released.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use nigh_policy::Slot;
use smallvec::SmallVec;

use crate::arena::Arena;
use crate::frames::{DIRTY, Frames, LOADING, PREFETCHED, TRANSIT, UNFLUSHED};
use crate::record::Reading;
use crate::request::Volume;
use crate::slots::{Key, NONE, Slots};
use crate::volumes::Volumes;

/// A waiter for a load: a request, and the position of the block within its part.
pub(crate) type LoadWaiters = SmallVec<[(u32, u32); 2]>;

/// The load of one frame.
pub(crate) struct Load {
    /// The operation that loads it.
    pub(crate) operation: u64,
    pub(crate) waiters: LoadWaiters,
    /// The reason why it was started.
    pub(crate) reading: Reading,
}

/// Frames, their contents, and the blocks outside of the policy.
pub(crate) struct Memory {
    pub(crate) arena: Arc<Arena>,
    pub(crate) frames: Frames,
    /// Contents of blocks that left the policy while they were dirty, held or being loaded.
    pub(crate) outside: HashMap<Key, u32>,
    /// Frames that become free when their last hold is released: of blocks in `outside`, or of none. Entries can be out
    /// of date.
    pub(crate) lingering: Vec<(Option<Key>, u32)>,
    /// By frame.
    pub(crate) loads: HashMap<u32, Load>,
    /// Frames reserved for writes that may have to load blocks that they overwrite in part, and for reads that are being started.
    pub(crate) reserved: u32,
    /// Whether frames without holders were freed while the line is served.
    pub(crate) reclaimed: bool,
}

impl Memory {
    pub(crate) fn new(arena: Arc<Arena>, frames: Frames) -> Memory {
        let (outside, loads) = (HashMap::new(), HashMap::new());
        Memory { arena, frames, outside, lingering: Vec::new(), loads, reserved: 0, reclaimed: false }
    }

    /// Whether `count` frames can be taken, beyond those that are reserved.
    pub(crate) fn has(&self, count: u32) -> bool {
        self.frames.available() >= self.reserved + count
    }

    /// Gives the block of `slot` another `frame`, or none with `NONE`, and withdraws the one that it had.
    #[inline]
    pub(crate) fn assign(&self, slots: &mut Slots, slot: Slot, frame: u32) {
        let before = slots.frame(slot);
        if before != NONE {
            self.arena.withdraw(before);
        }
        slots.set_frame(slot, frame);
    }

    /// `frame` no longer has the contents of any block.
    pub(crate) fn retire(&mut self, frame: u32) {
        self.frames.clear(frame, DIRTY | LOADING | PREFETCHED | UNFLUSHED | TRANSIT);
        if self.arena.held(frame) {
            self.lingering.push((None, frame));
        } else {
            self.frames.put(frame);
        }
    }

    /// The frame of `key` leaves memory.
    pub(crate) fn note_unflushed(&mut self, volumes: &mut Volumes, key: Key, frame: u32) {
        // A dirty block may have been written before it was changed, from another frame.
        if self.frames.has(frame, DIRTY | UNFLUSHED) {
            volumes.state_mut(key.volume()).unflushed(key.index()).leave(key.index());
        }
    }

    /// The block of `key` is no longer outside, if it was; its frame.
    pub(crate) fn take_outside(&mut self, volumes: &mut Volumes, key: Key) -> Option<u32> {
        if self.outside.is_empty() {
            return None;
        }
        let frame = self.outside.remove(&key)?;
        self.frames.clear(frame, TRANSIT);
        volumes.state_mut(key.volume()).outside -= 1;
        Some(frame)
    }

    /// Frees the frame of `key` if the block left the policy and the last hold of it was released: it is not in the cache any more.
    pub(crate) fn let_go(&mut self, volumes: &mut Volumes, key: Key) {
        let Some(&frame) = self.outside.get(&key) else { return };
        if !self.frames.has(frame, DIRTY | LOADING | TRANSIT) && !self.arena.held(frame) {
            self.take_outside(volumes, key);
            self.note_unflushed(volumes, key, frame);
            self.frames.put(frame);
        }
    }

    /// Frees the frames without holders.
    pub(crate) fn reclaim(&mut self, volumes: &mut Volumes) {
        let mut lingering = std::mem::take(&mut self.lingering);
        lingering.retain(|&(key, frame)| {
            let is_held = self.arena.held(frame);
            let Some(key) = key else {
                if !is_held {
                    self.frames.put(frame);
                }
                return is_held;
            };
            let Entry::Occupied(outside) = self.outside.entry(key) else { return false };
            // The block has returned to the policy, or is dirty again, or is in the transit buffer, which frees its frames itself.
            if *outside.get() != frame || self.frames.has(frame, DIRTY | LOADING | TRANSIT) {
                return false;
            }
            if !is_held {
                outside.remove();
                volumes.state_mut(key.volume()).outside -= 1;
                self.note_unflushed(volumes, key, frame);
                self.frames.put(frame);
            }
            is_held
        });
        self.lingering = lingering;
    }

    /// The frame that has, or will have, the contents of `key`.
    pub(crate) fn current(&self, slots: &Slots, key: Key) -> Option<u32> {
        let resident = slots.find(key).map(|slot| slots.frame(slot)).filter(|&frame| frame != NONE);
        resident.or_else(|| self.outside.get(&key).copied())
    }

    /// Whether some of `blocks` may have a frame; if not, `current` need not be asked for each.
    pub(crate) fn may_have(&self, volumes: &Volumes, slots: &Slots, volume: Volume, blocks: &Range<u64>) -> bool {
        let outside = volumes.get(volume).map_or(0, |state| state.outside);
        outside > 0 || slots.occupied(volume, blocks.clone()).next().is_some()
    }

    /// `frame` has the contents of `key`, which left the policy: it becomes free when it is clean and has no holder.
    pub(crate) fn free_if_clean(&mut self, spare: u32, volumes: &mut Volumes, key: Key, frame: u32) {
        if self.frames.has(frame, DIRTY | LOADING | TRANSIT) || self.outside.get(&key) != Some(&frame) {
            return;
        }
        if self.arena.held(frame) {
            self.lingering.push((Some(key), frame));
            if self.lingering.len() > 2 * spare as usize {
                self.reclaim(volumes);
            }
        } else {
            self.take_outside(volumes, key);
            self.note_unflushed(volumes, key, frame);
            self.frames.put(frame);
        }
    }

    /// Whether the cache can become smaller: not while frames that the last step withdrew are in use, for dirty blocks in them wait to be written.
    pub(crate) fn can_shrink(&self) -> bool {
        !self.frames.is_overdrawn(self.reserved)
    }

    /// The block of `frame`, resident, is referenced. Returns whether this is the reference for which it was
    /// prefetched.
    #[inline]
    pub(crate) fn first_use(&mut self, volumes: &mut Volumes, volume: Volume, frame: u32) -> bool {
        if !self.frames.has(frame, PREFETCHED) {
            return false;
        }
        self.frames.clear(frame, PREFETCHED);
        let late = self.frames.has(frame, LOADING);
        let counters = &mut volumes.state_mut(volume).counters;
        counters.prefetch_used += 1;
        counters.prefetch_late += u64::from(late);
        true
    }

    /// The block of `frame` leaves: if it was prefetched and not referenced since, the prefetch was wasted.
    pub(crate) fn note_leaving(&mut self, volumes: &mut Volumes, volume: Volume, frame: u32) {
        if self.frames.has(frame, PREFETCHED) {
            self.frames.clear(frame, PREFETCHED);
            volumes.state_mut(volume).counters.prefetch_wasted += 1;
        }
    }

    /// Whether `count` frames can be taken, beyond those that are reserved. If not, threads that release frames have to call `poll`. While the
    /// line is `serving`, lingering frames are looked at once.
    pub(crate) fn has_room(&mut self, volumes: &mut Volumes, serving: bool, count: u32) -> bool {
        if self.has(count) || self.reclaimed {
            return self.has(count);
        }
        self.reclaim(volumes);
        if !self.has(count) {
            self.arena.want(true);
            self.reclaim(volumes);
            self.reclaimed = serving;
        }
        self.has(count)
    }
}
