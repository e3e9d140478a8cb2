//! The blocks of a store by slot: where their contents are: in memory, in a file, or in both.
//!
//! A block enters in memory. Those that were used longest ago are written to the file, each at the place with the number of its slot,
//! and leave memory. The caller reads and writes the file, while nothing is locked. A *turn* distinguishes a block of a slot from those before and after it.
//!
//! **Invariant:** a place is written only while its slot has no block that is in the file, by one writer. The bytes read at a place are therefore the block, if
//! its turn is the same before and after.

use std::num::{NonZeroU32, NonZeroU64};

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use crate::frames::{Frame, Frames, NoRoom};

/// The most room in memory that is kept for blocks that arrive while others are being written, in blocks; an eighth of a smaller memory.
const RESERVE: u32 = 4096;

/// A block in a slot.
struct Stored {
    turn: NonZeroU32,
    /// The checksum of what the file has of it.
    sum: Option<NonZeroU64>,
    /// Its contents in memory.
    frame: Option<Frame>,
}

/// A block that is to be written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// Its place.
    pub place: u32,
    turn: NonZeroU32,
}

/// A block that is to be read from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filed {
    /// Its place.
    pub place: u32,
    turn: NonZeroU32,
    /// The checksum of its contents, as the caller computed it.
    pub sum: NonZeroU64,
}

pub(crate) struct Contents {
    slots: Vec<Option<Stored>>,
    free: Vec<Slot>,
    frames: Frames,
    /// The blocks in memory, the one that was used last first.
    links: Links,
    recent: List,
    /// The most of them.
    memory: u32,
    turn: NonZeroU32,
}

impl Contents {
    pub(crate) fn new(slots: u32, memory: u32, block_bytes: u32) -> Result<Contents, NoRoom> {
        let (links, [recent]) = Links::new(slots);
        Ok(Contents {
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            frames: Frames::new(memory, block_bytes)?,
            links,
            recent,
            memory,
            turn: NonZeroU32::MIN,
        })
    }

    fn get(&self, slot: Slot) -> Option<&Stored> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(crate) fn has_block(&self, slot: Slot) -> bool {
        self.get(slot).is_some()
    }

    /// A slot for another block.
    pub(crate) fn take_free(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Whether another block fits into memory; one that the file has, too, makes room.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.recent.len() < self.memory {
            return true;
        }
        let last = self.recent.back(&self.links);
        last.is_some_and(|slot| self.unload(slot))
    }

    /// The contents of `slot`, if they are in memory.
    pub(crate) fn in_memory(&self, slot: Slot) -> Option<&[u8]> {
        Some(self.frames.get(self.get(slot)?.frame?))
    }

    fn next_turn(&mut self) {
        self.turn = self.turn.checked_add(1).unwrap_or(NonZeroU32::MIN);
    }

    /// Puts a block, for which there is room in memory, into `slot`, which was taken, or has an earlier state of the same block.
    pub(crate) fn put(&mut self, slot: Slot, data: &[u8]) {
        self.leave_memory(slot);
        self.next_turn();
        let frame = self.frames.put(data);
        assert!(frame.is_some(), "there is no room in memory");
        let new = Stored { turn: self.turn, sum: None, frame };
        if let Some(stored) = self.slots.get_mut(slot.index()) {
            *stored = Some(new);
            self.recent.push_front(&mut self.links, slot);
        }
    }

    /// The block of `slot` is used, and in memory.
    pub(crate) fn touch(&mut self, slot: Slot) {
        self.recent.move_to_front(&mut self.links, slot);
    }

    /// The place of the block of `slot` in the file.
    pub(crate) fn filed(&self, slot: Slot) -> Option<Filed> {
        let Stored { turn, sum, .. } = self.get(slot)?;
        Some(Filed { place: slot.0, turn: *turn, sum: (*sum)? })
    }

    /// Whether `filed` is still the block of its slot.
    pub(crate) fn has(&self, filed: Filed) -> bool {
        self.get(Slot(filed.place)).is_some_and(|stored| stored.turn == filed.turn)
    }

    /// The block of `slot`, which the file has, is in memory, too, from now on, if there is room.
    pub(crate) fn load(&mut self, slot: Slot, data: &[u8]) {
        if !self.has_room() {
            return;
        }
        if let Some(Some(stored)) = self.slots.get_mut(slot.index())
            && stored.frame.is_none()
            && let Some(frame) = self.frames.put(data)
        {
            stored.frame = Some(frame);
            self.recent.push_front(&mut self.links, slot);
        }
    }

    /// Takes the contents of `slot` out of memory, if the file has them.
    fn unload(&mut self, slot: Slot) -> bool {
        self.filed(slot).is_some() && self.leave_memory(slot)
    }

    /// Takes the contents of `slot` out of memory, wherever else they are. Returns whether they were there.
    fn leave_memory(&mut self, slot: Slot) -> bool {
        let Some(Some(stored)) = self.slots.get_mut(slot.index()) else { return false };
        let Some(frame) = stored.frame.take() else { return false };
        self.frames.release(frame);
        self.recent.unlink(&mut self.links, slot);
        true
    }

    /// Empties `slot`.
    pub(crate) fn vacate(&mut self, slot: Slot) {
        self.leave_memory(slot);
        if self.slots.get_mut(slot.index()).and_then(Option::take).is_some() {
            self.free.push(slot);
        }
    }

    /// The number of blocks in memory from which on the coldest are written to the file.
    fn limit(&self) -> u32 {
        self.memory - (self.memory / 8).clamp(1, RESERVE)
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.recent.len() > self.limit()
    }

    /// At most `most` blocks that are to be written to the file, so that there is room in memory.
    pub(crate) fn cold(&mut self, most: usize) -> Vec<Cold> {
        let mut cold = Vec::new();
        let mut left = self.recent.len().saturating_sub(self.limit());
        let mut next = self.recent.back(&self.links);
        while let Some(slot) = next.filter(|_| left > 0 && cold.len() < most) {
            next = self.recent.before(&self.links, slot);
            left -= 1;
            if !self.unload(slot)
                && let Some(&Stored { turn, .. }) = self.get(slot)
            {
                cold.push(Cold { place: slot.0, turn });
            }
        }
        cold
    }

    /// Blocks that only memory has, the one that was used last first.
    pub(crate) fn unfiled(&self, most: usize) -> Vec<Cold> {
        let mut next = self.recent.front(&self.links);
        let all = std::iter::from_fn(|| {
            let slot = next?;
            next = self.recent.after(&self.links, slot);
            Some(slot)
        });
        let unfiled = all.filter_map(|slot| match self.get(slot)? {
            &Stored { turn, sum: None, .. } => Some(Cold { place: slot.0, turn }),
            _ => None,
        });
        unfiled.take(most).collect()
    }

    /// The contents of `cold`, unless it left memory.
    pub(crate) fn of(&self, cold: &Cold) -> Option<&[u8]> {
        self.in_memory(self.slot_of(cold)?)
    }

    /// The file has `cold`, with this checksum.
    pub(crate) fn note_filed(&mut self, cold: &Cold, sum: NonZeroU64) {
        let slot = Slot(cold.place);
        let is_crowded = self.is_crowded();
        let Some(Some(stored)) = self.slots.get_mut(slot.index()) else { return };
        if stored.turn == cold.turn {
            stored.sum = Some(sum);
            if is_crowded {
                self.unload(slot);
            }
        }
    }

    /// The slot of `cold`, if it has no other block by now.
    pub(crate) fn slot_of(&self, cold: &Cold) -> Option<Slot> {
        let slot = Slot(cold.place);
        self.get(slot).filter(|stored| stored.turn == cold.turn).map(|_| slot)
    }

    /// Puts a block of an earlier run, which the file has, into the slot with the number of its place. Returns false if the slot is taken or there is none.
    /// `restored` follows.
    pub(crate) fn restore(&mut self, place: u32, sum: NonZeroU64) -> bool {
        self.next_turn();
        let Some(slot @ None) = self.slots.get_mut(place as usize) else { return false };
        *slot = Some(Stored { turn: self.turn, sum: Some(sum), frame: None });
        true
    }

    /// All blocks of an earlier run are there.
    pub(crate) fn restored(&mut self) {
        self.free.retain(|slot| self.slots.get(slot.index()).is_some_and(Option::is_none));
    }

    /// Recounts. Returns the number of blocks.
    pub(crate) fn check(&self) -> usize {
        let stored = self.slots.iter().flatten().count();
        assert_eq!(self.free.len(), self.slots.len() - stored, "slots are lost");
        let recent = self.recent.checked(&self.links);
        let in_memory = self.slots.iter().flatten().filter(|stored| stored.frame.is_some()).count();
        assert_eq!(recent.len(), in_memory, "blocks in memory are miscounted");
        assert!(recent.iter().all(|&slot| self.in_memory(slot).is_some()));
        assert_eq!(self.frames.used(), in_memory, "frames are lost");
        assert!(self.recent.len() <= self.memory, "there is too much in memory");
        let exists = |stored: &Stored| stored.frame.is_some() || stored.sum.is_some();
        assert!(self.slots.iter().flatten().all(exists), "a block is nowhere");
        stored
    }
}
