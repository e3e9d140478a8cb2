//! References to blocks, and blocks that arrive in memory or leave it.
//!
//! 1. A reference goes to the policy, which may evict a block for the incoming one.
//! 2. A block that departs leaves its frame free, or outside of the policy until it is clean and not held. Levels may store it.
//! 3. A block that the policy forgets loses its slot.

use std::ops::Range;

use nigh_control::Index;
use nigh_policy::{Access, Kind, Slot, Stream, Tenant};

use crate::engine::{Engine, Place};
use crate::frames::{DIRTY, LOADING, PREFETCHED, TRANSIT};
use crate::request::Volume;
use crate::slots::{Key, NONE};

/// The transit buffer has room for a sixty-fourth as many blocks as memory, but at least for as many as in the pure scheme.
const TRANSIT_LEAST: u32 = 64;
const TRANSIT_MOST: u32 = 512;

impl Engine {
    #[inline]
    pub(crate) fn access(&mut self, key: Key, kind: Kind, tenant: Tenant, stream: Stream) -> Access {
        let tick = self.tick;
        self.tick += 1;
        let block = if self.config.tenants.is_none() { key.block() } else { self.name_block(key, kind, tenant) };
        Access { block, tenant, stream, kind, tick }
    }

    /// Counts a reference that the policy has received for the curve.
    #[inline(always)]
    pub(crate) fn measure(&mut self, access: &Access) {
        if self.curves.takes(access) {
            self.curves.reference(access, &*self.policy, &self.config.policy, &self.size);
        }
    }

    /// Reports a reference to `key` to the policy, unless it is the first one after a prefetch of `key` that was
    /// reported. Returns where the block is kept afterwards, its frame if there is one (otherwise the caller must `place` one),
    /// and whether it was resident.
    pub(crate) fn reference(
        &mut self,
        key: Key,
        kind: Kind,
        tenant: Tenant,
        stream: Stream,
    ) -> (Place, Option<u32>, bool) {
        let access = self.access(key, kind, tenant, stream);
        self.drain_forgotten();
        let known = self.slots.find(key);
        if let Some(slot) = known {
            let frame = self.slots.frame(slot);
            if frame != NONE {
                self.note_late(slot, frame, tenant);
                if !self.memory.first_use(&mut self.volumes, key.volume(), frame) || self.policy.counts_first_use() {
                    self.policy.hit(slot, &access);
                    self.measure(&access);
                    if self.levels.unified {
                        self.follow_orders();
                    }
                }
                return (Place::Resident(slot), Some(frame), true);
            }
        }
        if self.levels.unified
            && let Some(&frame) = self.memory.outside.get(&key)
            && kind != Kind::Prefetch
            && self.memory.first_use(&mut self.volumes, key.volume(), frame)
        {
            return (Place::Passing(key), Some(frame), true);
        }
        let slot = known.unwrap_or_else(|| self.slots.add(key));
        if self.levels.unified || self.slots.resident == self.size.capacity {
            let victim = self.policy.evict(slot, &access);
            self.follow_orders();
            assert_ne!(victim, Some(slot), "the incoming block is not resident and cannot leave");
            if let Some(victim) = victim {
                self.depart(victim);
                self.drain_forgotten();
            }
            if self.policy.unified().is_some_and(|unified| !unified.stays(slot)) {
                let frame = self.memory.outside.get(&key).copied();
                if let Some(frame) = frame.filter(|&frame| !self.memory.frames.has(frame, LOADING)) {
                    self.settle(key);
                    self.levels.pass(&mut self.memory, key, frame);
                }
                return (Place::Passing(key), frame, false);
            }
        }
        self.policy.insert(slot, &access);
        self.measure(&access);
        let (decider, known) = self.deciding();
        decider.go_on(&access, &|slot| known.block(slot));
        self.slots.resident += 1;
        let frame = self.memory.take_outside(&mut self.volumes, key);
        if let Some(frame) = frame {
            self.memory.assign(&mut self.slots, slot, frame);
            if self.levels.unified && !self.memory.frames.has(frame, LOADING) {
                self.settle(key);
            }
        }
        (Place::Resident(slot), frame, false)
    }

    /// Frees the slots of the blocks that the policy no longer remembers.
    pub(crate) fn drain_forgotten(&mut self) {
        self.follow_orders();
        while let Some(slot) = self.policy.take_forgotten() {
            if self.levels.unified {
                self.levels.release_copies(&self.volumes, self.slots.key(slot));
            }
            self.slots.remove(slot);
        }
    }

    /// The policy evicted `victim`: its frame is free, or stays in use outside of the policy.
    pub(crate) fn depart(&mut self, victim: Slot) {
        let (key, frame) = (self.slots.key(victim), self.slots.frame(victim));
        assert_ne!(frame, NONE, "the victim is resident");
        self.memory.assign(&mut self.slots, victim, NONE);
        self.slots.resident -= 1;
        let unused = self.memory.frames.has(frame, PREFETCHED);
        self.memory.note_leaving(&mut self.volumes, key.volume(), frame);
        let dirty = self.memory.frames.has(frame, DIRTY);
        self.volumes.state_mut(key.volume()).counters.evictions += 1;
        let has_lower = self.levels.unified || !self.levels.all.is_empty();
        if !has_lower && !self.memory.frames.has(frame, DIRTY | LOADING) && !self.memory.arena.held(frame) {
            // Nobody has its contents, or gets them: it is free at once.
            self.memory.note_unflushed(&mut self.volumes, key, frame);
            return self.memory.frames.put(frame);
        }
        let state = self.volumes.state_mut(key.volume());
        state.outside += 1;
        if dirty {
            self.cleaner.departed.push(key);
        }
        let before = self.memory.outside.insert(key, frame);
        assert_eq!(before, None, "a block is either resident or outside");
        if !self.memory.frames.has(frame, DIRTY | LOADING) {
            match unused {
                false => self.offer(key, frame),
                true if self.levels.unified => self.give_up(key),
                true => {}
            }
        }
        self.memory.free_if_clean(self.config.spare, &mut self.volumes, key, frame);
    }

    /// The block that entered the transit buffer first leaves it, to its level if it belongs to one. Returns whether there was one.
    pub(crate) fn leave_transit(&mut self) -> bool {
        self.leave_transit_of(self.levels.transit.is_empty())
    }

    /// As `leave_transit`, from the buffer for prefetched blocks or the other one.
    pub(crate) fn leave_transit_of(&mut self, ahead: bool) -> bool {
        let first = if ahead { &mut self.levels.ahead } else { &mut self.levels.transit }.pop_front();
        let Some((key, frame)) = first else { return false };
        if self.memory.outside.get(&key) == Some(&frame) && self.memory.frames.has(frame, TRANSIT) {
            self.memory.frames.clear(frame, TRANSIT);
            self.memory.note_leaving(&mut self.volumes, key.volume(), frame);
            if !self.memory.frames.has(frame, DIRTY | LOADING) {
                self.offer(key, frame);
            }
            self.memory.free_if_clean(self.config.spare, &mut self.volumes, key, frame);
        }
        true
    }

    /// The places of the shared level number `at` have nothing any more, nor get what is being stored there: they are of another device now, or of one that
    /// starts empty.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn empty_places(&mut self, at: usize, places: &[u32]) {
        for &place in places {
            self.levels.all[at].level.cancel(place);
            self.note_left(at, place);
        }
        self.drain_forgotten();
    }

    /// Notes what the host of the shared level number `at` reported: the places from which blocks left, the blocks that fit in before
    /// others have to leave, and how long ago the block that would leave next was referenced.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn note_shared(&mut self, now: u64, at: usize, left: &[u32], free: u32, oldest_us: Option<u64>) {
        left.iter().for_each(|&place| self.note_left(at, place));
        if at + 1 == self.levels.all.len()
            && let Some(unified) = self.policy.unified_mut()
        {
            unified.share(now, free, oldest_us);
        }
        self.drain_forgotten();
    }

    /// The block at `place` of the level number `at` is not there any more.
    pub(crate) fn note_left(&mut self, at: usize, place: u32) {
        let level = &mut self.levels.all[at].level;
        let Some(entry) = level.settled(place) else { return };
        level.discard(place);
        if self.levels.unified {
            self.note_entry_gone(entry, at);
        }
    }

    /// Whether `count` frames can be taken, beyond those that are reserved, if the transit buffer releases its own. If not, threads
    /// that release frames have to call `poll`.
    pub(crate) fn has_room(&mut self, count: u32) -> bool {
        while !self.memory.has(count) && self.leave_transit() {}
        self.memory.has_room(&mut self.volumes, self.line.serving, count)
    }

    /// The load or the write of `key`, whose contents are in `frame`, is over.
    pub(crate) fn arrive(&mut self, key: Key, frame: u32) {
        if !self.levels.unified {
            return self.memory.free_if_clean(self.config.spare, &mut self.volumes, key, frame);
        }
        let resident = self.slots.find(key).filter(|&slot| self.slots.frame(slot) == frame);
        if let Some(slot) = resident.filter(|_| !self.memory.frames.has(frame, DIRTY | LOADING))
            && self.policy.unified_mut().is_some_and(|unified| unified.let_go(slot))
        {
            // It stayed until it was written.
            self.memory.assign(&mut self.slots, slot, NONE);
            self.slots.resident -= 1;
            self.place(Place::Passing(key), frame);
        }
        self.settle(key);
        self.levels.pass(&mut self.memory, key, frame);
        let most = (self.size.capacity / 64).clamp(TRANSIT_LEAST, TRANSIT_MOST).min(self.config.spare / 2) as usize;
        while self.levels.transit.len() > most || self.levels.ahead.len() > self.config.limits.prefetching as usize {
            self.leave_transit_of(self.levels.transit.len() <= most);
        }
    }

    /// Drops the contents of the block `key`, which need not be written any more, and is neither being written nor waited for.
    pub(crate) fn drop_block(&mut self, key: Key) {
        let frame = match self.slots.find(key).filter(|&slot| self.slots.frame(slot) != NONE) {
            Some(slot) => self.forget(slot),
            None => match self.memory.take_outside(&mut self.volumes, key) {
                Some(frame) => {
                    if self.levels.unified {
                        self.give_up(key);
                    }
                    frame
                }
                None => return,
            },
        };
        self.memory.note_leaving(&mut self.volumes, key.volume(), frame);
        self.memory.note_unflushed(&mut self.volumes, key, frame);
        match self.memory.loads.get(&frame) {
            // The frame becomes free when the device has finished with it.
            Some(load) => assert!(load.waiters.is_empty(), "a block in use is not dropped"),
            None => self.memory.retire(frame),
        }
    }

    /// Drops the contents of all blocks of `volume` in `blocks`. None of them is being written or waited for.
    pub(crate) fn drop_blocks(&mut self, volume: Volume, blocks: Range<u64>) {
        let gone = self.volumes.state_mut(volume).dirty.discard(blocks.clone());
        self.cleaner.dirty -= gone.len() as u32;
        self.volumes.note_unwanted(volume);
        let inside = |key: &Key| key.volume() == volume && blocks.contains(&key.index());
        let mut keys: Vec<Key> = if blocks.end - blocks.start <= u64::from(self.slots.numbers()) {
            let parts = self.slots.occupied(volume, blocks.clone());
            parts.flatten().map(|block| Key::new(volume, block)).collect()
        } else {
            self.slots.used().into_iter().map(|slot| self.slots.key(slot)).filter(inside).collect()
        };
        if self.volumes.state_mut(volume).outside > 0 {
            keys.extend(self.memory.outside.keys().filter(|key| inside(key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| self.drop_block(key));
    }

    /// Takes the resident `slot` out of the policy. Returns its frame, which belongs to no block then.
    pub(crate) fn forget(&mut self, slot: Slot) -> u32 {
        self.drain_forgotten();
        let frame = self.slots.frame(slot);
        self.policy.remove(slot);
        if self.levels.unified {
            self.levels.release_copies(&self.volumes, self.slots.key(slot));
        }
        if frame != NONE {
            self.memory.assign(&mut self.slots, slot, NONE);
            self.slots.resident -= 1;
        }
        self.slots.remove(slot);
        frame
    }
}
