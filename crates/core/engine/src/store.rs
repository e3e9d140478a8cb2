//! The traffic of levels: clean blocks that leave memory are offered to levels, loads look there first, and changed
//! blocks are invalidated there before anything else.

use std::ops::Range;

use crate::arena::Shared;
use crate::counters::LevelCounters;
use crate::engine::Engine;
use crate::error::ConfigError;
use crate::frames::{DIRTY, LOADING, TRANSIT};
use crate::level::{Batch, Entry, LOOKS, Level, LevelConfig, LevelState, Stored};
use crate::levels::LEVELS;
use crate::record::{Carry, Record, Store};
use crate::request::{Fault, Volume};
use crate::slots::Key;
use crate::worth::LeftOut;

/// The most places of a level that one call examines while a long range is removed from it.
const SWEEP: u32 = 1024;

impl Engine {
    /// Adds a level below the existing ones, and returns its number. Must be called before volumes are opened. The
    /// level is empty, unless [`Engine::restore`] fills it.
    pub fn add_level(&mut self, config: LevelConfig) -> Result<usize, ConfigError> {
        let wrong = |what| Err(ConfigError::Impossible { what });
        if self.ports.get(config.port).is_none() {
            return Err(ConfigError::NoPort(config.port.0));
        }
        if self.levels.all.len() == LEVELS || self.levels.openings > 0 {
            return wrong("a cache can have at most two levels, and they must be added before volumes are opened");
        }
        if config.blocks == 0 || config.blocks == u32::MAX || config.faults == 0 {
            return wrong("a level must have from 1 to 2^32 - 2 blocks, and a limit of at least 1 fault");
        }
        if !config.offset.is_multiple_of(u64::from(self.config.block_bytes)) {
            return wrong("a level must begin at a block boundary");
        }
        if self.config.storing == 0 {
            return wrong("a cache with levels needs frames for storing");
        }
        if self.levels.unified
            && (config.elastic || self.config.levels.get(self.levels.all.len()) != Some(&config.blocks))
        {
            return wrong("a policy that decides for levels must know their sizes, and none may be of encoded blocks");
        }
        self.ports.state_mut(config.port).users += 1;
        let level = Level::new(config, self.levels.unified);
        self.levels.all.push(LevelState::new(level));
        Ok(self.levels.all.len() - 1)
    }

    /// Drops the contents of `level`, which takes no more blocks. Its port can be detached when its operations are
    /// complete.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn drop_level(&mut self, level: usize) {
        self.levels.all[level].level.switch_off();
        self.note_if_off(level);
        if std::mem::take(&mut self.levels.all[level].attached) {
            let port = self.levels.all[level].level.config.port;
            self.ports.state_mut(port).users -= 1;
        }
    }

    /// The counters of `level`, if it exists, and whether it is switched off.
    pub fn level_counters(&self, level: usize) -> Option<(LevelCounters, bool)> {
        self.levels.all.get(level).map(|state| (state.level.counters, state.level.off))
    }

    /// The number of blocks in `level`, if it exists.
    pub fn level_blocks(&self, level: usize) -> Option<u32> {
        self.levels.all.get(level).map(|state| state.level.len())
    }

    /// Looks at `most` places of `level`, evenly spread. Returns how many of them have a block, and how many of these blocks are in memory or in a level
    /// above, too.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn level_duplicates(&self, level: usize, most: u32) -> (u32, u32) {
        let of = &self.levels.all[level].level;
        let step = of.config.blocks.div_ceil(most.max(1)).max(1);
        let (mut looked, mut twice) = (0, 0);
        for place in (0..of.config.blocks).step_by(step as usize) {
            let Some(entry) = of.settled(place) else { continue };
            looked += 1;
            let volume =
                self.levels.volume_of.get(&entry.opening()).filter(|&&volume| self.volumes.is_opening(volume, entry));
            let in_memory =
                |&volume: &Volume| self.memory.current(&self.slots, Key::new(volume, entry.block())).is_some();
            let is_above = || self.levels.all[..level].iter().any(|above| above.level.find(entry).is_some());
            twice += u32::from(volume.is_some_and(in_memory) || is_above());
        }
        (looked, twice)
    }

    /// Whether nothing is on its way to or from `level`, which must have its port for itself.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn is_level_idle(&self, level: usize) -> bool {
        let LevelState { level, batch, full, .. } = &self.levels.all[level];
        let port = self.ports.state(level.config.port);
        batch.is_none() && full.is_empty() && port.at_device == 0 && port.queue.len() == 0
    }

    /// Evicts up to `count` blocks of an elastic level, which examines a limited number of places. Returns how many left: fewer,
    /// where the next call may find more.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn shed_level(&mut self, level: usize, count: u32) -> u32 {
        self.levels.all[level].level.shed(count)
    }

    /// The places of an elastic level from which blocks left, at most `most`. The host returns each with
    /// [`Engine::return_places`] when nothing of its block is left.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn take_left_places(&mut self, level: usize, most: usize) -> Vec<u32> {
        self.levels.all[level].level.take_left(most)
    }

    /// Places from [`Engine::take_left_places`] can be used again.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn return_places(&mut self, level: usize, places: &[u32]) {
        self.levels.all[level].level.return_places(places);
    }

    /// The block at `place` of an elastic level found no room: to be called for a store that was completed just before, in the
    /// same turn.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn reject_place(&mut self, level: usize, place: u32) {
        self.levels.all[level].level.reject(place);
    }

    /// From now on, a level takes one of `one_of` blocks that are offered.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn thin_level(&mut self, level: usize, one_of: u32) {
        self.levels.all[level].level.thin(one_of);
    }

    /// The place of a block in `level`, if it is there.
    ///
    /// # Panics
    /// If there is no such level, or the volume is not open.
    pub fn level_place(&self, level: usize, volume: Volume, block: u64) -> Option<u32> {
        self.levels.all[level].level.find(self.volumes.entry(Key::new(volume, block)))
    }

    /// Memory of the index of `level`, for places that were used.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn level_index_bytes(&self, level: usize) -> usize {
        self.levels.all[level].level.touched_bytes()
    }

    /// The blocks of `level` at `places`, of volumes that are open or were last closed without `discard`. To be saved
    /// over a restart: valid as long as neither the level nor those volumes change. No operation of the level may be
    /// under way.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn stored(&self, level: usize, places: Range<u32>) -> Vec<Stored> {
        let level = &self.levels.all[level].level;
        let places = places.start..places.end.min(level.config.blocks);
        let stored = places.filter_map(|place| {
            let entry = level.entry(place)?;
            let volume = *self.levels.volume_of.get(&entry.opening())?;
            Some(Stored { place, volume, block: entry.block(), sum: level.sum(place) })
        });
        stored.collect()
    }

    /// Fills `level` with the blocks that it holds from an earlier run; the volumes must be open. Returns how many of
    /// `blocks` it accepted; none after anything was stored, written or discarded, because they may no longer be valid.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn restore(&mut self, level: usize, blocks: &[Stored]) -> Option<u32> {
        let mut taken = 0;
        for stored in blocks {
            let state = self.volumes.get(stored.volume);
            let size = state.map_or(0, |state| state.bytes.div_ceil(u64::from(self.config.block_bytes)));
            let of = &self.levels.all[level].level;
            if of.touched || of.off {
                return None;
            }
            if let Some(state) = state.filter(|_| stored.block < size && stored.place < of.config.blocks) {
                let entry = Entry::new(state.opening, stored.block);
                let is_free = of.entry(stored.place).is_none() && of.find(entry).is_none();
                if is_free && (!self.levels.unified || self.know_restored(level, stored)) {
                    let of = &mut self.levels.all[level].level;
                    of.insert(stored.place, entry, stored.sum);
                    // It was worth keeping: newer blocks do not replace it before the hand has passed.
                    of.note_use(stored.place);
                    taken += 1;
                }
            }
        }
        Some(taken)
    }

    /// The policy learns of a block that `level` holds from an earlier run. Returns whether it belongs there.
    fn know_restored(&mut self, level: usize, stored: &Stored) -> bool {
        let key = Key::new(stored.volume, stored.block);
        if self.slots.find(key).is_some() || self.slots.is_full() {
            return false;
        }
        let slot = self.slots.find_or_add(key);
        let belongs = self.policy.unified_mut().is_none_or(|unified| unified.restore(slot, level + 1));
        if !belongs {
            self.slots.remove(slot);
        }
        belongs
    }

    /// `frame`, clean, has the contents of `key`, which is leaving memory: each level that does not hold it, or that to which it
    /// belongs, may store it. That never makes a request wait: if there is no room, the level does not store it.
    pub(crate) fn offer(&mut self, key: Key, frame: u32) {
        if self.levels.all.is_empty() {
            return;
        }
        let levels = match self.levels.unified {
            false => 0..self.levels.all.len(),
            true => match self.status(key) {
                Some(level) => level.saturating_sub(1)..level,
                None => return,
            },
        };
        for at in levels {
            self.offer_to(at, key, frame);
        }
    }

    /// As `offer`, to one level.
    pub(crate) fn offer_to(&mut self, at: usize, key: Key, frame: u32) {
        let entry = self.volumes.entry(key);
        let most = (self.config.limits.operation_bytes >> self.shift) as usize;
        let has_room = self.levels.has_room_to_store(self.config.storing, at)
            && self.levels.takes_stores(&self.volumes, at, key.volume());
        let LevelState { level, storing, batch, .. } = &mut self.levels.all[at];
        if level.is_storing(entry) || level.off && !self.levels.unified {
            return;
        }
        if let Some(place) = level.find(entry) {
            level.note_use(place);
            return;
        }
        if level.leaves_out() {
            return;
        }
        let place = if has_room && !level.off { level.begin_store(entry) } else { None };
        let Some(place) = place else {
            level.counters.drops += 1;
            if self.levels.unified {
                self.give_up(key);
            }
            return;
        };
        self.levels.storing += 1;
        *storing += 1;
        let joins = |batch: &Batch| batch.blocks.len() < most && batch.place + batch.blocks.len() as u32 == place;
        let full = if batch.as_ref().is_some_and(joins) { None } else { batch.take() };
        let batch = batch.get_or_insert_with(|| Batch {
            place,
            blocks: Vec::new(),
            frames: Vec::new(),
            held: Shared::new(&self.memory.arena),
        });
        batch.blocks.push((key, entry));
        batch.frames.push(frame);
        batch.held.push(frame);
        if let Some(full) = full {
            self.levels.all[at].full.push(full);
        }
    }

    /// The load or the write of `key`, which a request asked for, is over. If the block left memory meanwhile, it is offered now.
    pub(crate) fn offer_if_outside(&mut self, key: Key, frame: u32) {
        if !self.levels.all.is_empty()
            && !self.levels.unified
            && !self.memory.frames.has(frame, DIRTY | LOADING)
            && self.memory.outside.get(&key) == Some(&frame)
        {
            self.offer(key, frame);
        }
    }

    /// Queues the stores, and continues the removal of ranges.
    pub(crate) fn go_on_storing(&mut self, now: u64) {
        self.go_on_carrying(now);
        for at in 0..self.levels.all.len() {
            let state = &mut self.levels.all[at];
            if !state.is_due() {
                continue;
            }
            let gone = state.level.sweep(SWEEP);
            if self.levels.unified {
                gone.into_iter().for_each(|entry| self.note_entry_gone(entry, at));
            }
            let state = &mut self.levels.all[at];
            for batch in std::mem::take(&mut state.full).into_iter().chain(state.batch.take()) {
                self.levels.queue_store(&mut self.ports, at, batch, false, now);
            }
        }
    }

    /// The next level that is left out for a volume because reads take too long there, or that is used again.
    pub fn next_left_out(&mut self) -> Option<LeftOut> {
        self.levels.all.iter_mut().find_map(|level| level.left_out.pop_front())
    }

    /// The level's device has finished `store`, whose frames it no longer holds. Without checksums, nothing was stored.
    pub(crate) fn complete_store(&mut self, store: Store, sums: &[u64], result: Result<(), Fault>) {
        let Store { level, place, blocks, frames, carried, .. } = store;
        self.levels.storing -= blocks.len() as u32;
        self.levels.all[level].storing -= blocks.len() as u32;
        self.note_level_result(level, result);
        let of = &mut self.levels.all[level].level;
        if of.is_away(result) {
            of.note_away();
        }
        for (at, &(_, entry)) in blocks.iter().enumerate() {
            of.end_store(place + at as u32, entry, sums.get(at).copied().filter(|_| result.is_ok()));
        }
        for (at, (&(key, entry), &frame)) in blocks.iter().zip(&frames).enumerate() {
            match carried {
                true => self.memory.frames.put(frame),
                false => self.memory.free_if_clean(self.config.spare, &mut self.volumes, key, frame),
            }
            if self.levels.unified && self.volumes.is_opening(key.volume(), entry) {
                self.settle(key);
            } else if self.levels.unified && self.levels.all[level].level.entry(place + at as u32) == Some(entry) {
                // Its volume was closed meanwhile.
                self.levels.all[level].level.release(place + at as u32);
            }
        }
    }

    /// The frames of blocks that levels pass on, and of what is late.
    pub(crate) fn carried_frames(&self) -> impl Iterator<Item = u32> {
        let operations = self.ports.operations.values().flat_map(|record| match record {
            Record::Carry(Carry { frame, .. }) => std::slice::from_ref(frame),
            Record::Store(Store { frames, carried: true, .. }) | Record::Late { frames, .. } => frames,
            _ => &[],
        });
        operations.copied()
    }

    /// The contents of `blocks` change.
    pub(crate) fn invalidate_range(&mut self, volume: Volume, blocks: &Range<u64>) {
        let opening = self.volumes.state_mut(volume).opening;
        let mut done = true;
        if self.levels.unified && blocks.end - blocks.start <= u64::from(LOOKS) {
            for block in blocks.clone() {
                let key = Key::new(volume, block);
                self.levels.invalidate(&self.volumes, key);
                self.give_up(key);
            }
            return;
        }
        for state in &mut self.levels.all {
            done &= state.level.invalidate_range(opening, blocks.clone());
        }
        if !done {
            // Its blocks become those of another opening, of which levels hold nothing.
            self.volumes.state_mut(volume).opening = self.levels.next_opening(volume);
        }
    }

    /// As [`Engine::check`], for levels.
    pub(crate) fn check_levels(&self) {
        let mut storing = 0;
        for state in &self.levels.all {
            state.level.check();
            storing += state.full.iter().chain(&state.batch).map(|batch| batch.blocks.len()).sum::<usize>();
        }
        for record in self.ports.operations.values() {
            match record {
                Record::Store(store) => storing += store.blocks.len(),
                Record::Carry(_) => storing += 1,
                _ => {}
            }
        }
        storing += self.levels.carries.len();
        // Its place below may have been taken away since, which is noted when it is read.
        let is_carried = |entry: Entry| {
            let is_it = |record: &Record| matches!(record, Record::Carry(carry) if carry.entry == entry);
            self.ports.operations.values().any(is_it) || self.levels.carries.iter().any(|carry| carry.entry == entry)
        };
        for (at, state) in self.levels.all.iter().enumerate().filter(|_| self.levels.unified) {
            for entry in state.level.kept() {
                let volume = self
                    .levels
                    .volume_of
                    .get(&entry.opening())
                    .filter(|&&volume| self.volumes.is_opening(volume, entry));
                let key = Key::new(*volume.expect("a place is kept for a volume that is gone"), entry.block());
                let is_loading =
                    self.memory.current(&self.slots, key).is_some_and(|frame| self.memory.frames.has(frame, LOADING));
                let status = self.status(key);
                // It was on its way there.
                let is_off = status.is_some_and(|status| status > 0 && self.levels.all[status - 1].level.off);
                let is_storing = self.levels.all.iter().any(|state| state.level.is_storing(entry));
                let is_moving = is_loading || is_off || is_storing || is_carried(entry);
                assert!(is_moving || status == Some(at + 1), "a place is kept for a block that belongs to {status:?}");
            }
        }
        assert_eq!(storing as u32, self.levels.storing);
        assert!(self.levels.storing <= self.config.storing);
        for (&key, &frame) in &self.memory.outside {
            let clean = !self.memory.frames.has(frame, DIRTY | LOADING);
            let waits = self.memory.arena.held(frame) || self.memory.frames.has(frame, TRANSIT);
            assert!(!clean || waits || self.memory.lingering.contains(&(Some(key), frame)));
        }
    }
}
