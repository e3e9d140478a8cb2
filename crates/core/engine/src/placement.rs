//! With unified level-aware caching, blocks are where they belong: those that pass through memory, and those that a level passes on
//! to the next one.

use crate::arena::Shared;
use crate::engine::{Engine, Place};
use crate::level::{Batch, Entry};
use crate::queue::Class;
use crate::record::{Carry, Record};
use crate::request::Fault;
use crate::slots::{Key, NONE};
use crate::unified::Unified;

impl Engine {
    /// `frame`, which was just taken, is for the block that was referenced.
    pub(crate) fn place(&mut self, place: Place, frame: u32) {
        match place {
            Place::Resident(slot) => self.memory.assign(&mut self.slots, slot, frame),
            Place::Passing(key) => {
                self.volumes.state_mut(key.volume()).outside += 1;
                let before = self.memory.outside.insert(key, frame);
                assert_eq!(before, None, "a block that has a frame needs no other");
            }
        }
    }

    /// Carries out what was decided for blocks in levels.
    pub(crate) fn follow_orders(&mut self) {
        while let Some(slot) = self.policy.unified_mut().and_then(Unified::next_order) {
            self.settle(self.slots.key(slot));
        }
    }

    /// The place of `key`: 0 is memory, others are levels, counted from 1.
    pub(crate) fn status(&self, key: Key) -> Option<usize> {
        self.policy.unified()?.level(self.slots.find(key)?)
    }

    /// Whether `key` belongs above the level number `at`.
    pub(crate) fn is_above(&self, key: Key, at: usize) -> bool {
        self.status(key).is_some_and(|status| status <= at)
    }

    /// How long ago `key` was referenced.
    pub(crate) fn age_us(&self, key: Key, now: u64) -> u64 {
        let age_us = || Some(self.policy.unified()?.age_us(self.slots.find(key)?, now));
        age_us().unwrap_or(0)
    }

    /// Has the copies of `key` follow its level status. A copy below its level may stay until its place is needed: if the block is
    /// demoted to there again, it need not be stored again. A copy above its level is passed on. Without a status, no copy
    /// stays.
    pub(crate) fn settle(&mut self, key: Key) {
        let status = self.status(key);
        let entry = self.volumes.entry(key);
        let mut above = None;
        for at in 0..self.levels.all.len() {
            let level = &mut self.levels.all[at].level;
            let Some(place) = level.find(entry) else { continue };
            match status {
                Some(status) if status == at + 1 => level.keep(place),
                Some(status) if status <= at && level.config.shared => level.discard(place),
                Some(status) if status <= at => level.release(place),
                Some(_) if above.is_none() => above = Some((at, place)),
                _ => level.discard(place),
            }
        }
        let Some(to) = status.and_then(|status| status.checked_sub(1)) else { return };
        let is_coming = |at: usize| self.levels.all[at].level.is_storing(entry);
        let is_there = self.levels.all[to].level.find(entry).is_some() || is_coming(to);
        match above {
            Some((at, place)) if is_there => self.levels.all[at].level.discard(place),
            Some((at, place)) => self.carry(key, at, place, to),
            // A store in progress at another level is settled afterwards.
            None if !is_there
                && self.memory.current(&self.slots, key).is_none()
                && !(0..self.levels.all.len()).any(is_coming) =>
            {
                self.note_gone(key, to);
            }
            None => {}
        }
    }

    /// The level number `at`, to which `key` belongs, does not have it.
    pub(crate) fn note_gone(&mut self, key: Key, at: usize) {
        if let Some(slot) = self.slots.find(key)
            && let Some(unified) = self.policy.unified_mut()
        {
            unified.lose(slot, at + 1);
        }
    }

    /// As `note_gone`, for an entry of an opening that may be over.
    pub(crate) fn note_entry_gone(&mut self, entry: Entry, at: usize) {
        if let Some(&volume) = self.levels.volume_of.get(&entry.opening())
            && self.volumes.is_opening(volume, entry)
        {
            self.note_gone(Key::new(volume, entry.block()), at);
        }
    }

    /// `key` does not get to the level to which it belongs, if that does not have it.
    pub(crate) fn give_up(&mut self, key: Key) {
        let entry = self.volumes.entry(key);
        if let Some(at) = self.status(key).and_then(|status| status.checked_sub(1))
            && self.levels.all[at].level.find(entry).is_none()
        {
            self.note_gone(key, at);
        }
        self.settle(key);
    }

    /// Passes the block at `place` of level `at` on to level `to`: Demote(b, i, j). Nothing waits for that; if too much is under way,
    /// the block is dropped.
    fn carry(&mut self, key: Key, at: usize, place: u32, to: usize) {
        let entry = self.volumes.entry(key);
        let is_taken = [at, to].into_iter().all(|level| self.levels.takes_stores(&self.volumes, level, key.volume()));
        let target = if self.levels.has_room_to_store(self.config.storing, to) && is_taken {
            self.levels.all[to].level.begin_store(entry)
        } else {
            None
        };
        let Some(target) = target else {
            self.levels.all[at].level.discard(place);
            self.levels.all[to].level.counters.drops += 1;
            return self.note_gone(key, to);
        };
        self.levels.storing += 1;
        self.levels.all[to].storing += 1;
        let sum = self.levels.all[at].level.sum(place);
        self.levels.carries.push(Carry { at, place, to, target, key, entry, frame: NONE, sum });
    }

    /// Queues what is to be passed on. Requests have taken their frames before.
    pub(crate) fn go_on_carrying(&mut self, now: u64) {
        for mut carry in std::mem::take(&mut self.levels.carries) {
            if self.memory.has(1) {
                carry.frame = self.memory.frames.take();
                let (at, places) = (carry.at, carry.place..carry.place + 1);
                self.levels.queue(&mut self.ports, at, Class::Prefetch, places, Record::Carry(carry), now);
            } else {
                self.levels.all[carry.to].level.counters.drops += 1;
                self.end_carry(&carry, true);
            }
        }
    }

    /// The block of `carry` does not arrive. With `leaves`, its level does not keep it either.
    fn end_carry(&mut self, carry: &Carry, leaves: bool) {
        let &Carry { at, place, to, target, key, entry, frame, .. } = carry;
        self.levels.storing -= 1;
        self.levels.all[to].storing -= 1;
        self.levels.all[to].level.end_store(target, entry, None);
        if frame != NONE {
            self.memory.frames.put(frame);
        }
        let upper = &mut self.levels.all[at].level;
        if leaves && upper.entry(place) == Some(entry) {
            upper.discard(place);
        }
        if self.volumes.is_opening(key.volume(), entry) {
            self.settle(key);
        }
    }

    /// The device of the upper level has read the block into its frame.
    pub(crate) fn complete_carry(&mut self, carry: Carry, sums: &[u64], result: Result<(), Fault>, now: u64) {
        let Carry { at, place, to, target, key, entry, frame, sum } = carry;
        self.note_level_result(at, result);
        let is_good = result.is_ok() && sums == [sum];
        let belongs = self.volumes.is_opening(key.volume(), entry) && self.status(key) == Some(to + 1);
        let is_wanted = is_good && belongs && self.levels.all[to].level.is_storing_at(entry, target);
        let upper = &mut self.levels.all[at].level;
        let is_there = upper.entry(place) == Some(entry);
        upper.counters.mismatches += u64::from(is_there && result.is_ok() && !is_good);
        if is_wanted && is_there {
            upper.discard(place);
        }
        if !is_wanted {
            return self.end_carry(&carry, !is_good);
        }
        let mut held = Shared::new(&self.memory.arena);
        held.push(frame);
        self.levels.all[to].level.counters.carried += 1;
        let batch = Batch { place: target, blocks: vec![(key, entry)], frames: vec![frame], held };
        self.levels.queue_store(&mut self.ports, to, batch, true, now);
    }

    /// An operation of a level is over. If it is switched off for too many failures, nothing belongs there any more.
    pub(crate) fn note_level_result(&mut self, at: usize, result: Result<(), Fault>) {
        let level = &mut self.levels.all[at].level;
        if !level.is_away(result) {
            level.note_result(result.is_err());
        }
        self.note_if_off(at);
    }

    pub(crate) fn note_if_off(&mut self, at: usize) {
        if self.levels.all[at].level.off
            && let Some(unified) = self.policy.unified_mut()
        {
            unified.lose_level(at + 1);
            self.size.stepping = true;
        }
    }
}
