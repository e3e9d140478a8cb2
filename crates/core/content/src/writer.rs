//! The writer of an [`Area`]: it encodes the blocks that leave the frames of a cache, makes room for them, and moves memory
//! between frames and encoded blocks. The live host and the simulation drive it, each in its own time.
//!
//! Its life:
//! 1. [`Writer::store`]: blocks left the frames, and the cache gave each a place in its level of encoded blocks. The place loses
//!    its former content and gets that of the block.
//! 2. If there is no room, [`Lending`](crate::Lending) decides. Either the area gets pages of the frames, or the parts of the cache
//!    evict blocks in turn, or all encoded blocks are dropped because they do not pay.
//! 3. The host completes the store in its engine, and reports the places that `store` returned: their blocks found no room.
//! 4. [`Writer::settle`]: contents of blocks that left the level are released, and their places can be used again. Contents whose
//!    base has no owners are encoded anew, if such bases take too much memory.
//! 5. [`Writer::debt`]: the host pauses until the writer's share of a processor allows more.
//! 6. [`Writer::begin_anew`]: the size of the memory changed. All encoded blocks are dropped.

use std::time::Duration;

use crate::budget::Budget;
use crate::lending::Room;
use crate::{Area, Block, Choice, ContentId, Encoder, Refused};

/// How many blocks are evicted at a time.
const SHED: u32 = 16;
/// How many places that blocks left are taken at a time.
const LEFT: usize = 256;
/// How often room is made for one block.
const TRIES: u32 = 64;

/// The cache of a [`Writer`]: its area, its frames, and its level of encoded blocks, which has a number of parts. No call waits for
/// long. Parts that have failed hold nothing.
pub trait Host {
    /// Calls `look` with the area, beside other readers.
    fn read<R>(&self, look: impl FnOnce(&Area) -> R) -> R;

    /// Calls `change` with exclusive access to the area, for about a microsecond.
    fn write<R>(&mut self, change: impl FnOnce(&mut Area) -> R) -> R;

    /// A block was encoded, thoroughly or not; `None` if an equal one was found.
    fn planned(&mut self, _is_thorough: bool, _choice: Option<Choice>) {}

    /// From now on, the level takes one of `one_of` blocks.
    fn thin(&mut self, one_of: u32);

    /// Evicts up to `count` blocks from a part of the level. Returns how many left.
    fn shed(&mut self, part: u32, count: u32) -> u32;

    /// Evicts all blocks from a part of the level.
    fn shed_all(&mut self, part: u32);

    /// Takes at most `most` places that blocks left in a part of the level.
    fn take_left(&mut self, part: u32, most: usize) -> Vec<u32>;

    /// These places can be used again.
    fn return_places(&mut self, part: u32, places: &[u32]);

    /// Gives the frames the pages that encoded blocks do not have. Returns whether that was possible.
    fn adapt_frames(&mut self) -> bool;
}

/// Changes an area. Nothing else does, except that hosts change the size of the memory before [`Writer::begin_anew`], and remove
/// damaged contents.
pub struct Writer {
    encoder: Encoder,
    budget: Budget,
    rooms: Rooms,
}

/// Makes room.
struct Rooms {
    parts: u32,
    /// The part that evicts next.
    turn: u32,
    /// The level takes one of this many blocks.
    one_of: u32,
}

impl Writer {
    /// For `area`, with a share of one processor.
    pub fn new(area: &Area, share: f64) -> Writer {
        let rooms = Rooms { parts: area.parts(), turn: 0, one_of: 1 };
        Writer { encoder: Encoder::new(area.scheme().rules()), budget: Budget::new(share), rooms }
    }

    /// Stores blocks at the places of a part from `first` on, each with its domain. A block without one is not stored. Returns the
    /// places of blocks that are not there, in ascending order.
    pub fn store<'b>(
        &mut self,
        host: &mut impl Host,
        part: u32,
        first: u32,
        blocks: impl Iterator<Item = (Option<u32>, &'b Block)>,
    ) -> Vec<u32> {
        // While encoding does not pay, blocks are encoded only to notice when it does.
        let is_thorough = self.budget.is_ample() && self.rooms.one_of == 1;
        self.encoder.set_thorough(is_thorough);
        let mut end = first;
        for (domain, block) in blocks {
            host.write(|area| area.release(part, end));
            if let Some(id) = domain.and_then(|domain| self.insert(host, domain, block, is_thorough)) {
                host.write(|area| area.put(part, end, id));
            }
            end += 1;
        }
        // Some of those that found room were dropped with all others since.
        host.write(|area| {
            let rejected: Vec<u32> = (first..end).filter(|&place| area.id(part, place).is_none()).collect();
            area.rejected += rejected.len() as u64;
            rejected
        })
    }

    /// Stores the content of a block.
    fn insert(&mut self, host: &mut impl Host, domain: u32, block: &Block, is_thorough: bool) -> Option<ContentId> {
        host.write(|area| {
            area.encoded += 1;
            area.lending.note_store();
        });
        let mut tries = 0;
        while tries < TRIES {
            let encoder = &mut self.encoder;
            let plan = host.read(move |area| area.store.plan(encoder, domain, block));
            host.planned(is_thorough, plan.encoded());
            let mut applied = host.write(|area| area.store.apply(&plan));
            while applied == Err(Refused::Full) && tries < TRIES {
                self.rooms.make_room(host);
                applied = host.write(|area| area.store.apply(&plan));
                tries += 1;
            }
            if let Ok(id) = applied {
                return Some(id);
            }
            // A content that it builds on left to make room.
            tries += 1;
        }
        None
    }

    /// Releases the contents of blocks that left a part of the level. Encodes contents anew that alone keep others in memory, when
    /// those take too much.
    pub fn settle(&mut self, host: &mut impl Host, part: u32) {
        release_left(host, part);
        loop {
            let encoder = &mut self.encoder;
            let Some(rebase) = host.read(move |area| area.store.plan_rebase(encoder)) else { return };
            host.write(|area| area.store.apply_rebase(&rebase));
        }
    }

    /// How long to pause, if the processor time `used` is more than the share of the time `now`, both since the start.
    pub fn debt(&mut self, now: Duration, used: Duration) -> Option<Duration> {
        self.budget.debt(now, used)
    }

    /// Drops all encoded blocks. Their memory, except for a small share, goes back to the frames.
    pub fn begin_anew(&mut self, host: &mut impl Host) {
        self.rooms.begin_anew(host);
    }
}

impl Rooms {
    /// The store is full: it gets more memory if that is worth it, or blocks leave.
    fn make_room(&mut self, host: &mut impl Host) {
        let (before, room, one_of) = host.write(|area| {
            let before = area.lending;
            let room = area.lending.full(area.store.counts().owners, area.pages_in_use());
            (before, room, area.lending.one_of())
        });
        if std::mem::replace(&mut self.one_of, one_of) != one_of {
            host.thin(one_of);
        }
        match room {
            Room::Lent if move_memory(host) => {}
            Room::Lent => {
                host.write(|area| area.lending.take_back(before));
                self.evict(host);
            }
            Room::GiveBack => self.begin_anew(host),
            Room::Evict => self.evict(host),
        }
    }

    /// Evicts some blocks, of each part in turn.
    fn evict(&mut self, host: &mut impl Host) {
        for _ in 0..self.parts {
            let part = self.turn;
            self.turn = (part + 1) % self.parts;
            let shed = host.shed(part, SHED);
            release_left(host, part);
            if shed > 0 {
                return;
            }
        }
    }

    fn begin_anew(&self, host: &mut impl Host) {
        let store = host.read(Area::empty_store);
        let former = host.write(|area| area.begin_anew(store));
        drop(former);
        // Until these blocks have left the index, too, they are loaded from below.
        for part in 0..self.parts {
            host.shed_all(part);
            release_left(host, part);
        }
        // If it is not possible, frames are fewer than they could be.
        move_memory(host);
    }
}

/// Adapts frames and store to the pages that are lent. Returns whether that was possible.
fn move_memory(host: &mut impl Host) -> bool {
    let is_possible = host.adapt_frames();
    if is_possible {
        host.write(|area| area.store.allow(area.lending.lent() as u32));
    }
    is_possible
}

/// Releases the contents of blocks that left a part of the level.
fn release_left(host: &mut impl Host, part: u32) {
    loop {
        let places = host.take_left(part, LEFT);
        if places.is_empty() {
            return;
        }
        places.iter().for_each(|&place| host.write(|area| area.release(part, place)));
        host.return_places(part, &places);
    }
}

#[cfg(test)]
mod tests;
