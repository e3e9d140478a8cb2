//! Levels whose devices take too long: requests do not wait for them, and they are used again once they answer.

use crate::engine::Engine;
use crate::frames::{LOADING, PREFETCHED};
use crate::level::Entry;
use crate::record::{Fetch, Record};
use crate::request::Fault;
use crate::slots::{Key, NONE};

impl Engine {
    /// Whether the device of `level` takes longer for an operation than [`LevelConfig::patience_us`](crate::LevelConfig::patience_us).
    ///
    /// # Panics
    /// If there is no such level.
    pub fn is_level_late(&self, level: usize) -> bool {
        self.levels.all[level].late
    }

    /// The next level that became late (`true`), or is no longer late (`false`).
    pub fn next_late(&mut self) -> Option<(usize, bool)> {
        let at = self.levels.all.iter().position(|state| state.late != state.told_late)?;
        let state = &mut self.levels.all[at];
        state.told_late = state.late;
        Some((at, state.late))
    }

    /// Loads what levels take too long for from below, as far as there are frames for it.
    pub(crate) fn pass_late_levels(&mut self, now: u64) {
        for at in 0..self.levels.all.len() {
            let state = &mut self.levels.all[at];
            let is_late = state.late_at().is_some_and(|time| time <= now);
            state.level.counters.late += u64::from(is_late && !state.late);
            state.late = is_late;
            if is_late {
                self.pass_late(at, now);
            }
        }
    }

    /// As `pass_late_levels`, for one that is late.
    fn pass_late(&mut self, level: usize, now: u64) {
        let port = usize::from(self.levels.port(level).0);
        let records = &self.ports.operations;
        let is_fetch = |id: &u64| matches!(&records[id], Record::Fetch(fetch) if fetch.level == level);
        let queue = &mut self.ports.all[port].as_mut().expect("the port of a level").queue;
        let queued = queue.take_reads(|id| is_fetch(&id));
        let at_device = self.levels.all[level].at_device.iter().map(|&(id, _)| id);
        let at_device: Vec<u64> = at_device.filter(is_fetch).collect();
        self.ports.queued -= queued.len() as u32;
        let is_over = !queued.is_empty() || !at_device.is_empty();
        for id in queued {
            let Some(Record::Fetch(fetch)) = self.ports.operations.remove(&id) else { unreachable!("it is one") };
            let blocks: Vec<(u64, u32)> = (fetch.first.index()..).zip(fetch.frames.iter().copied()).collect();
            self.end_fetch(&fetch);
            self.load_below(fetch.first.volume(), blocks, level, now);
        }
        for id in at_device {
            if !self.abandon(id, now) {
                break;
            }
        }
        if is_over {
            self.pump(now);
        }
    }

    /// The volume of `fetch` does not wait for it any more.
    fn end_fetch(&mut self, fetch: &Fetch) {
        let state = self.volumes.state_mut(fetch.first.volume());
        state.operations -= 1;
        state.unlockable = true;
        if fetch.leaves {
            // Perhaps the level has read them already, and forgets them.
            for (place, block) in (fetch.place..).zip(fetch.first.index()..).take(fetch.frames.len()) {
                self.levels.all[fetch.level].level.drop_entry(place, Entry::new(fetch.opening, block));
            }
        }
    }

    /// Loads the blocks of the fetch `id`, which is at its device, into other frames. Returns false if there are not enough.
    fn abandon(&mut self, id: u64, now: u64) -> bool {
        let Some(Record::Fetch(fetch)) = self.ports.operations.remove(&id) else { unreachable!("it is one") };
        let (volume, count) = (fetch.first.volume(), fetch.frames.len() as u32);
        if !self.has_room(count) && !self.shed_for(count, 4 * count) {
            self.ports.operations.insert(id, Record::Fetch(fetch));
            return false;
        }
        if let Some(since) = self.levels.all[fetch.level].since(id) {
            self.levels.note_time(&mut self.volumes, fetch.level, volume, now.saturating_sub(since), now);
        }
        self.end_fetch(&fetch);
        let mut moved = Vec::new();
        for (block, &frame) in (fetch.first.index()..).zip(&fetch.frames) {
            let key = Key::new(volume, block);
            if self.memory.current(&self.slots, key) == Some(frame) {
                moved.push((block, self.move_load(key, frame)));
            } else {
                self.take_load(key, frame, false, now);
            }
            self.memory.frames.clear(frame, LOADING | PREFETCHED);
        }
        self.load_below(volume, moved, fetch.level, now);
        self.ports.operations.insert(id, Record::Late { level: fetch.level, frames: fetch.frames });
        true
    }

    /// `key`, which is being loaded into `frame`, is loaded into another frame, which is returned.
    fn move_load(&mut self, key: Key, frame: u32) -> u32 {
        let to = self.memory.frames.take();
        self.memory.frames.set(to, LOADING);
        if self.memory.frames.has(frame, PREFETCHED) {
            self.memory.frames.set(to, PREFETCHED);
        }
        let load = self.memory.loads.remove(&frame).expect("a frame being loaded has a load");
        for &(id, at) in &load.waiters {
            let active = self.requests.all[id as usize].as_mut().expect("a request that waits");
            if active.held.is_some() {
                active.frames[at as usize] = to;
            }
        }
        self.memory.loads.insert(to, load);
        match self.slots.find(key).filter(|&slot| self.slots.frame(slot) != NONE) {
            Some(slot) => self.memory.assign(&mut self.slots, slot, to),
            None => _ = self.memory.outside.insert(key, to),
        }
        to
    }

    /// The device of `level` has finished a fetch that it took too long for.
    pub(crate) fn complete_late(&mut self, level: usize, frames: &[u32], result: Result<(), Fault>) {
        self.note_level_result(level, result);
        frames.iter().for_each(|&frame| self.memory.retire(frame));
    }
}
