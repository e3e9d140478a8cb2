//! The levels: where a block is, which of them a volume uses, and operations on their devices.
//!
//! Each opening of a volume has a number, by which levels know its blocks: what a closed volume leaves behind is found by no other.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::frames::{DIRTY, LOADING, PREFETCHED, TRANSIT};
use crate::level::{Batch, LevelState, OPENINGS};
use crate::memory::Memory;
use crate::port::Ports;
use crate::queue::{Class, Waiting};
use crate::record::{Carry, Record, Store};
use crate::request::{Port, Volume};
use crate::slots::Key;
use crate::volume::VolumeState;
use crate::volumes::Volumes;
use crate::worth::LeftOut;

/// The most levels of an engine.
pub(crate) const LEVELS: usize = 2;

/// The levels of an engine.
#[derive(Default)]
pub(crate) struct Levels {
    /// The highest first.
    pub(crate) all: Vec<LevelState>,
    /// Size of a block, as a power of two.
    shift: u32,
    /// Blocks on their way to levels.
    pub(crate) storing: u32,
    /// Whether the policy decides for levels, too.
    pub(crate) unified: bool,
    /// Then: blocks that passed through, and their frames, the first to leave first, and those that were prefetched. Entries can be
    /// out of date.
    pub(crate) transit: VecDeque<(Key, u32)>,
    pub(crate) ahead: VecDeque<(Key, u32)>,
    /// Blocks that levels are about to pass on.
    pub(crate) carries: Vec<Carry>,
    /// The number of times that volumes were opened.
    pub(crate) openings: u32,
    /// If there are levels: the volume of each opening, and the last opening of each volume.
    pub(crate) volume_of: HashMap<u32, Volume>,
    opening_of: HashMap<Volume, u32>,
}

impl Levels {
    pub(crate) fn new(unified: bool, shift: u32) -> Levels {
        Levels { unified, shift, ..Levels::default() }
    }

    pub(crate) fn port(&self, level: usize) -> Port {
        self.all[level].level.config.port
    }

    /// The ports of levels with something to do.
    pub(crate) fn users(&self) -> impl Iterator<Item = Port> {
        self.all.iter().filter(|state| state.attached).map(|state| state.level.config.port)
    }

    /// Counts an operation of `level` that is passed to its device.
    pub(crate) fn count(&mut self, level: usize, is_read: bool, bytes: u64) {
        let counters = &mut self.all[level].level.counters;
        if is_read {
            counters.reads += 1;
            counters.read_bytes += bytes;
        } else {
            counters.writes += 1;
            counters.written_bytes += bytes;
        }
    }

    /// The position of `place` of `level` on its device.
    pub(crate) fn offset(&self, level: usize, place: u32) -> u64 {
        self.all[level].level.config.offset + (u64::from(place) << self.shift)
    }

    /// Memory of the indexes of levels.
    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|state| state.level.bytes()).sum()
    }

    /// Whether one more block may be on its way to `level`: one that is slow leaves room for the other.
    pub(crate) fn has_room_to_store(&self, most: u32, level: usize) -> bool {
        let share = most.div_ceil(self.all.len() as u32);
        self.storing < most && self.all[level].storing < share
    }

    /// Whether blocks of `volume` are stored in `level`: it answers, and is not left out.
    pub(crate) fn takes_stores(&self, volumes: &Volumes, level: usize, volume: Volume) -> bool {
        let state = volumes.get(volume);
        !self.all[level].late && state.is_some_and(|state| state.worths[level].takes_stores())
    }

    /// The levels from number `from` on that answer, and from which reads of `volume` do not take too long.
    pub(crate) fn asked(
        &mut self,
        volumes: &mut Volumes,
        volume: Volume,
        from: usize,
        now: u64,
    ) -> SmallVec<[usize; LEVELS]> {
        let asked = (from..self.all.len()).filter(|&at| !self.all[at].late);
        let asked: SmallVec<[usize; LEVELS]> = asked.collect();
        let worths = &mut volumes.state_mut(volume).worths;
        asked.into_iter().filter(|&at| worths[at].takes_read(now)).collect()
    }

    /// The levels from number `from` on that answer and have one of `blocks`, but are not `asked`, as bits.
    pub(crate) fn passed(
        &self,
        volumes: &Volumes,
        volume: Volume,
        blocks: &[(u64, u32)],
        from: usize,
        asked: &[usize],
    ) -> u8 {
        let has = |at: usize, block| self.all[at].level.find(volumes.entry(Key::new(volume, block))).is_some();
        (from..self.all.len())
            .filter(|&at| !self.all[at].late && !asked.contains(&at))
            .filter(|&at| blocks.iter().any(|&(block, _)| has(at, block)))
            .fold(0, |bits, at| bits | 1 << at)
    }

    /// The place of `block` of `volume` in the highest of `levels` that holds it.
    pub(crate) fn locate(
        &self,
        volumes: &Volumes,
        volume: Volume,
        block: u64,
        levels: &[usize],
    ) -> Option<(usize, u32)> {
        let entry = volumes.entry(Key::new(volume, block));
        levels.iter().find_map(|&at| Some((at, self.all[at].level.find(entry)?)))
    }

    /// A number for an opening of `volume`, which identifies its blocks in levels.
    pub(crate) fn next_opening(&mut self, volume: Volume) -> u32 {
        self.openings += 1;
        assert!(self.openings < OPENINGS, "more openings of volumes than can be numbered");
        if !self.all.is_empty() {
            if let Some(before) = self.opening_of.insert(volume, self.openings) {
                self.volume_of.remove(&before);
            }
            self.volume_of.insert(self.openings, volume);
        }
        self.openings
    }

    /// Invalidates all blocks of `volume` in levels.
    pub(crate) fn forget_opening(&mut self, volume: Volume) {
        if let Some(opening) = self.opening_of.remove(&volume) {
            self.volume_of.remove(&opening);
        }
    }

    pub(crate) fn judge(&mut self, volumes: &mut Volumes, level: usize, volume: Volume, now: u64) {
        let VolumeState { worths, times, .. } = volumes.state_mut(volume);
        if let Some((for_us, level_us, home_us)) = worths[level].judge(times, now) {
            self.all[level].note_left_out(LeftOut { level, volume, for_us, level_us, home_us });
        }
    }

    /// Notes the time of a read of `volume` from `level`.
    pub(crate) fn note_time(&mut self, volumes: &mut Volumes, level: usize, volume: Volume, us: u64, now: u64) {
        volumes.state_mut(volume).worths[level].note(us);
        self.judge(volumes, level, volume, now);
    }

    /// Notes the time of a read from a device of `volume`; `passed` are levels that have blocks of it, as bits.
    pub(crate) fn note_home_time(&mut self, volumes: &mut Volumes, volume: Volume, us: u64, passed: u8, now: u64) {
        if self.all.is_empty() {
            return;
        }
        let VolumeState { worths, times, .. } = volumes.state_mut(volume);
        times.note(us);
        for (_, worth) in worths.iter_mut().enumerate().filter(|(at, _)| passed >> at & 1 != 0) {
            worth.note_instead(us);
        }
        (0..self.all.len()).for_each(|level| self.judge(volumes, level, volume, now));
    }

    /// The contents of `key` change: levels must not return their copies of it.
    pub(crate) fn invalidate(&mut self, volumes: &Volumes, key: Key) {
        if self.all.is_empty() {
            return;
        }
        let entry = volumes.entry(key);
        self.all.iter_mut().for_each(|state| state.level.invalidate(entry));
    }

    /// Copies of `key`, of which nothing is known any more, may be replaced.
    pub(crate) fn release_copies(&mut self, volumes: &Volumes, key: Key) {
        if volumes.get(key.volume()).is_none() {
            return;
        }
        let entry = volumes.entry(key);
        for state in &mut self.all {
            if let Some(place) = state.level.find(entry) {
                state.level.release(place);
            }
        }
    }

    /// If `key` passes through memory and its contents are in `frame`, it enters the transit buffer, tempLRU of section 5.3.2.1.
    /// Blocks that were prefetched have one of their own, so that others do not push them out before they are asked for.
    pub(crate) fn pass(&mut self, memory: &mut Memory, key: Key, frame: u32) {
        if memory.outside.get(&key) != Some(&frame) || memory.frames.has(frame, DIRTY | LOADING) {
            return;
        }
        if !memory.frames.has(frame, TRANSIT) {
            memory.frames.set(frame, TRANSIT);
            let is_ahead = memory.frames.has(frame, PREFETCHED);
            if is_ahead { &mut self.ahead } else { &mut self.transit }.push_back((key, frame));
        }
    }

    /// Queues an operation on `places` of a level. Returns its number.
    pub(crate) fn queue(
        &mut self,
        ports: &mut Ports,
        level: usize,
        class: Class,
        places: Range<u32>,
        record: Record,
        now: u64,
    ) -> u64 {
        let config = self.all[level].level.config;
        let block = (config.offset >> self.shift) + u64::from(places.start);
        let blocks = u64::from(places.end - places.start);
        let waiting = Waiting { id: ports.made, block, blocks, since: now, region: u64::MAX, alone: true };
        ports.add(config.port, class, waiting, record)
    }

    /// Queues a store; with `carried`, the frames belong to it.
    pub(crate) fn queue_store(&mut self, ports: &mut Ports, level: usize, batch: Batch, carried: bool, now: u64) {
        let Batch { place, blocks, frames, held } = batch;
        let places = place..place + blocks.len() as u32;
        let store = Store { level, place, blocks, frames, held: Some(held), carried };
        self.queue(ports, level, Class::Write, places, Record::Store(store), now);
    }
}
