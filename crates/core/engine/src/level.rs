//! A level holds blocks that left memory, so that they need not be read from their home device. This file has its index
//! and its replacement rule; `store.rs` moves blocks in and out.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use crate::arena::Shared;
use crate::counters::LevelCounters;
use crate::request::{Fault, Port, Volume};
use crate::slots::Key;
use crate::worth::LeftOut;

/// The most reports for the host of a level that is left out, or used again.
const REPORTS: usize = 64;

/// The configuration of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelConfig {
    /// The port of its device. Several levels, of different engines, may share a device.
    pub port: Port,
    /// Its start on the device, in bytes; a multiple of the block size.
    pub offset: u64,
    /// Its size in blocks.
    pub blocks: u32,
    /// After this many failed operations in a row it is switched off.
    pub faults: u32,
    /// While its device takes longer than this for an operation, in µs, no fetch or store is begun there, and what is being fetched
    /// is loaded from below.
    pub patience_us: u64,
    /// Whether others use it, too, and with a policy that decides for levels, it forgets what is fetched for a higher one. The host reports which blocks left
    /// ([`Engine::note_shared`](crate::Engine::note_shared)).
    pub shared: bool,
    /// Whether the host reports when it is full ([`Engine::shed_level`](crate::Engine::shed_level)), because its blocks take
    /// different amounts of memory. A place from which a block left is used again once the host has returned it
    /// ([`Engine::return_places`](crate::Engine::return_places)), or, if there is no other, for a store that replaces the block.
    pub elastic: bool,
}

impl LevelConfig {
    /// For a level whose device is a disk, or on another host.
    pub const PATIENCE_US: u64 = 2_000_000;
}

/// A block that a level holds, in the form saved while no engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place, counted in blocks from the beginning of the level.
    pub place: u32,
    /// The volume of the block.
    pub volume: Volume,
    /// The index of the block in the volume.
    pub block: u64,
    /// The checksum of its contents.
    pub sum: u64,
}

/// A block of one opening of a volume: a volume that is opened again has another number here. Therefore, nobody searches for
/// blocks that a closed volume leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry(u64);

const INDEX_BITS: u32 = 36;
/// Limit of the numbers of openings of volumes.
pub(crate) const OPENINGS: u32 = 1 << (64 - INDEX_BITS);

impl Entry {
    #[inline]
    pub(crate) fn new(opening: u32, block: u64) -> Entry {
        debug_assert!(block < (1 << INDEX_BITS) - 1 && opening < OPENINGS);
        Entry(u64::from(opening) << INDEX_BITS | block)
    }

    pub(crate) fn opening(self) -> u32 {
        (self.0 >> INDEX_BITS) as u32
    }

    pub(crate) fn block(self) -> u64 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }
}

/// Blocks that are no longer valid, and are removed from the index step by step.
struct Mask {
    opening: u32,
    blocks: Range<u64>,
    /// The number of places that are still to be looked at.
    left: u32,
}

/// The most places that are searched for one that can be used again.
pub(crate) const LOOKS: u32 = 64;
/// The most places that one call examines to evict blocks of an elastic level.
const SHED_LOOKS: u32 = 1024;
/// The most ranges that can be invalidated step by step at a time; of a directed level, and one more for each volume.
const MASKS: usize = 16;
/// Blocks that are left out after one could not be stored, because the device was away.
const LEFT_OUT: u32 = 256;
/// The end of a chain of places.
const END: u32 = u32::MAX;

/// One level: which block is at which place, and which place is used next: a free one, as long as there is any. After that, a clock
/// hand moves around the places, and skips each place that was used since its last round, once. If the policy decides for levels,
/// too, places are used in the order in which it no longer needs their blocks.
///
/// A place costs 24 bytes: entry 8, checksum 8, two links of the hash table's chains 8, and two or three bits.
pub(crate) struct Level {
    pub(crate) config: LevelConfig,
    /// Whether the policy decides which blocks it has.
    directed: bool,
    /// By place: the entry plus one, 0 if there is none.
    entries: Vec<u64>,
    sums: Vec<u64>,
    /// The chains of places whose entries have the same hash: the first place of each chain, and by place the next.
    /// Both are the place plus one, and 0 at the end of a chain, so that memory is touched only when it is used.
    heads: Vec<u32>,
    next: Vec<u32>,
    /// By place: whether it was used since the hand passed. Of a directed level: whether its block belongs there.
    used: Vec<u64>,
    /// By place: whether it is being written.
    busy: Vec<u64>,
    hand: u32,
    len: u32,
    /// Chained by `next`: the places from which blocks left and that are free; of an elastic level, those that its host returned.
    free: u32,
    /// Of an elastic level, chained likewise: the places from which blocks left since.
    left: u32,
    /// Its places from here on were never used.
    fresh: u32,
    /// Of a directed level: the places that can be used, the next first, and by place whether it is among them. Entries can be out of
    /// date.
    spare: VecDeque<u32>,
    listed: Vec<u64>,
    /// An elastic level takes one of this many blocks that are offered.
    one_of: u32,
    /// Blocks offered since it last took one.
    offered: u32,
    /// Number of the next blocks to leave out, because the device was away.
    left_out: u32,
    hasher: RandomState,
    /// The blocks being stored, and their places.
    underway: HashMap<Entry, u32>,
    masks: Vec<Mask>,
    /// The next place to be looked at for `masks`.
    sweep: u32,
    /// Failed operations in a row.
    faults: u32,
    pub(crate) off: bool,
    /// Whether anything was stored or became invalid since the level was added.
    pub(crate) touched: bool,
    pub(crate) counters: LevelCounters,
}

fn bit(bits: &[u64], at: u32) -> bool {
    bits[at as usize / 64] >> (at % 64) & 1 != 0
}

fn set_bit(bits: &mut [u64], at: u32, value: bool) {
    let word = &mut bits[at as usize / 64];
    *word = *word & !(1 << (at % 64)) | u64::from(value) << (at % 64);
}

impl Level {
    pub(crate) fn new(config: LevelConfig, directed: bool) -> Level {
        let count = config.blocks as usize;
        Level {
            config,
            directed,
            spare: VecDeque::new(),
            listed: if directed { vec![0; count.div_ceil(64)] } else { Vec::new() },
            entries: vec![0; count],
            sums: vec![0; count],
            heads: vec![0; count],
            next: vec![0; count],
            used: vec![0; count.div_ceil(64)],
            busy: vec![0; count.div_ceil(64)],
            hand: 0,
            len: 0,
            free: 0,
            left: 0,
            fresh: 0,
            one_of: 1,
            offered: 0,
            left_out: 0,
            hasher: RandomState::default(),
            underway: HashMap::new(),
            masks: Vec::new(),
            sweep: 0,
            faults: 0,
            off: false,
            touched: false,
            counters: LevelCounters::default(),
        }
    }

    /// Its number of blocks.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn head(&self, entry: Entry) -> usize {
        let hash = self.hasher.hash_one(entry.0);
        ((u128::from(hash) * self.heads.len() as u128) >> 64) as usize
    }

    fn link(raw: u32) -> u32 {
        raw.wrapping_sub(1)
    }

    fn raw(link: u32) -> u32 {
        link.wrapping_add(1)
    }

    fn is_masked(&self, entry: Entry) -> bool {
        !self.masks.is_empty()
            && self.masks.iter().any(|mask| mask.opening == entry.opening() && mask.blocks.contains(&entry.block()))
    }

    /// The place of `entry`.
    pub(crate) fn find(&self, entry: Entry) -> Option<u32> {
        if self.off || self.len == 0 {
            return None;
        }
        let mut place = Level::link(self.heads[self.head(entry)]);
        while place != END && self.entries[place as usize] != entry.0 + 1 {
            place = Level::link(self.next[place as usize]);
        }
        (place != END && !self.is_masked(entry)).then_some(place)
    }

    pub(crate) fn sum(&self, place: u32) -> u64 {
        self.sums[place as usize]
    }

    /// Marks `place` as used: its block is evicted from memory again.
    pub(crate) fn note_use(&mut self, place: u32) {
        set_bit(&mut self.used, place, true);
    }

    /// The block at `place` is fetched. An elastic level, which takes memory from the frames, can do without it while it
    /// is in a frame.
    pub(crate) fn note_fetch(&mut self, place: u32) {
        if !self.directed {
            set_bit(&mut self.used, place, !self.config.elastic);
        }
    }

    /// The blocks that belong here, by the last directions.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Entry> {
        let places = if self.off { 0 } else { self.config.blocks };
        (0..places).filter(|&place| bit(&self.used, place)).filter_map(|place| self.entry(place))
    }

    /// The block at `place`, unless that is being written.
    pub(crate) fn settled(&self, place: u32) -> Option<Entry> {
        if place >= self.config.blocks || self.off || bit(&self.busy, place) { None } else { self.entry(place) }
    }

    /// The store in progress at `place`, if any, will have no effect.
    pub(crate) fn cancel(&mut self, place: u32) {
        if place < self.config.blocks && !self.off && bit(&self.busy, place) {
            self.underway.retain(|_, &mut at| at != place);
        }
    }

    /// The block at `place` of a directed level belongs there.
    pub(crate) fn keep(&mut self, place: u32) {
        set_bit(&mut self.used, place, true);
    }

    /// The block at `place` of a directed level stays until the place is needed.
    pub(crate) fn release(&mut self, place: u32) {
        set_bit(&mut self.used, place, false);
        self.list(place);
    }

    /// The block at `place` of a directed level is dropped.
    pub(crate) fn discard(&mut self, place: u32) {
        self.take_out(place);
        self.counters.evictions += 1;
    }

    fn list(&mut self, place: u32) {
        if !bit(&self.listed, place) {
            set_bit(&mut self.listed, place, true);
            self.spare.push_back(place);
        }
    }

    pub(crate) fn entry(&self, place: u32) -> Option<Entry> {
        let entry = self.entries.get(place as usize)?.checked_sub(1).map(Entry)?;
        (!self.is_masked(entry)).then_some(entry)
    }

    /// Puts `entry`, which has no place, at `place`, which is free.
    pub(crate) fn insert(&mut self, place: u32, entry: Entry, sum: u64) {
        let head = self.head(entry);
        self.next[place as usize] = self.heads[head];
        self.heads[head] = Level::raw(place);
        self.entries[place as usize] = entry.0 + 1;
        self.sums[place as usize] = sum;
        set_bit(&mut self.used, place, self.directed);
        self.len += 1;
    }

    /// Removes the block at `place`.
    fn take_out(&mut self, place: u32) {
        self.remove(place);
        self.vacate(place);
    }

    /// As `take_out`, for a place that is used again at once.
    fn remove(&mut self, place: u32) {
        let entry = Entry(self.entries[place as usize] - 1);
        let head = self.head(entry);
        let after = self.next[place as usize];
        let mut at = Level::link(self.heads[head]);
        if at == place {
            self.heads[head] = after;
        } else {
            while Level::link(self.next[at as usize]) != place {
                at = Level::link(self.next[at as usize]);
            }
            self.next[at as usize] = after;
        }
        self.next[place as usize] = 0;
        self.entries[place as usize] = 0;
        self.len -= 1;
    }

    /// `place` has no block any more.
    fn vacate(&mut self, place: u32) {
        if self.directed {
            self.list(place);
        } else if place < self.fresh {
            // Those behind are found as fresh ones.
            let chain = if self.config.elastic { &mut self.left } else { &mut self.free };
            self.next[place as usize] = std::mem::replace(chain, Level::raw(place));
        }
    }

    /// Takes the places of an elastic level from which blocks left, at most `most`.
    pub(crate) fn take_left(&mut self, most: usize) -> Vec<u32> {
        let mut places = Vec::new();
        while self.left != 0 && places.len() < most {
            let place = Level::link(self.left);
            self.left = std::mem::take(&mut self.next[place as usize]);
            places.push(place);
        }
        places
    }

    /// Places that were taken with `take_left` can be used again.
    pub(crate) fn return_places(&mut self, places: &[u32]) {
        for &place in places.iter().filter(|_| !self.off) {
            self.next[place as usize] = std::mem::replace(&mut self.free, Level::raw(place));
        }
    }

    /// From now on, takes one of `one_of` offered blocks. A directed level takes all blocks that it is directed to take.
    pub(crate) fn thin(&mut self, one_of: u32) {
        self.one_of = if self.directed { 1 } else { one_of.max(1) };
    }

    /// The device could not be reached for a store. Each attempt costs a block that the device may still have, so the next ones are left out, except those that
    /// the policy directs.
    pub(crate) fn note_away(&mut self) {
        self.left_out = if self.directed { 0 } else { LEFT_OUT };
    }

    /// Whether the next block that is offered is left out.
    pub(crate) fn leaves_out(&mut self) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return true;
        }
        self.offered += 1;
        let takes = self.offered >= self.one_of;
        if takes {
            self.offered = 0;
        }
        !takes
    }

    /// Evicts up to `count` blocks, in the order of the clock. Looks at a limited number of places; returns how many left. From a
    /// directed level, none leaves.
    pub(crate) fn shed(&mut self, count: u32) -> u32 {
        let mut shed = 0;
        let places = if self.config.elastic { self.fresh } else { self.config.blocks };
        let looks = if self.directed { 0 } else { SHED_LOOKS.min(2 * places) };
        for _ in 0..looks {
            if shed == count || self.len == 0 {
                break;
            }
            let place = self.hand;
            self.hand = (self.hand + 1) % places;
            if self.entries[place as usize] == 0 {
                continue;
            }
            if bit(&self.used, place) {
                set_bit(&mut self.used, place, false);
                continue;
            }
            self.take_out(place);
            self.counters.evictions += 1;
            shed += 1;
        }
        shed
    }

    /// The block at `place`, whose store just ended, is not there.
    pub(crate) fn reject(&mut self, place: u32) {
        if !self.off && self.entries[place as usize] != 0 {
            self.take_out(place);
            self.counters.stores -= 1;
            self.counters.drops += 1;
        }
    }

    /// Whether `entry` is being stored.
    pub(crate) fn is_storing(&self, entry: Entry) -> bool {
        self.underway.contains_key(&entry)
    }

    /// Whether `entry` is being stored at `place`.
    pub(crate) fn is_storing_at(&self, entry: Entry, place: u32) -> bool {
        self.underway.get(&entry) == Some(&place)
    }

    /// Takes a place for `entry`, whose store begins; `None` if no place is available.
    pub(crate) fn begin_store(&mut self, entry: Entry) -> Option<u32> {
        if self.is_masked(entry) {
            return None;
        }
        let place = if self.directed { self.take_spare()? } else { self.take_free().or_else(|| self.clear_place())? };
        set_bit(&mut self.busy, place, true);
        self.underway.insert(entry, place);
        self.touched = true;
        Some(place)
    }

    /// A place of a directed level that is free, or whose block belongs elsewhere.
    fn take_spare(&mut self) -> Option<u32> {
        // The host of a shared level has what was at a place until the place is used again: as few places as possible are used. In
        // other levels, copies that belong elsewhere stay as long as possible.
        match self.config.shared {
            true => self.take_listed().or_else(|| self.take_fresh()),
            false => self.take_fresh().or_else(|| self.take_listed()),
        }
    }

    fn take_fresh(&mut self) -> Option<u32> {
        while self.fresh < self.config.blocks {
            let place = self.fresh;
            self.fresh += 1;
            // A restart fills any places.
            let is_listed = self.directed && bit(&self.listed, place);
            if self.entries[place as usize] == 0 && !is_listed && !bit(&self.busy, place) {
                return Some(place);
            }
        }
        None
    }

    fn take_listed(&mut self) -> Option<u32> {
        loop {
            let place = if self.config.shared { self.spare.pop_back()? } else { self.spare.pop_front()? };
            set_bit(&mut self.listed, place, false);
            let is_taken = self.entries[place as usize] != 0;
            if is_taken && bit(&self.used, place) {
                continue;
            }
            if is_taken {
                self.remove(place);
                self.counters.evictions += 1;
            }
            return Some(place);
        }
    }

    /// A free place of a level that is not directed. Fresh places are consecutive, so that stores there are one operation of the
    /// device; but where places take memory, as few as possible are used.
    fn take_free(&mut self) -> Option<u32> {
        match self.config.elastic || self.config.shared {
            true => self.take_chained().or_else(|| self.take_fresh()),
            false => self.take_fresh().or_else(|| self.take_chained()),
        }
    }

    fn take_chained(&mut self) -> Option<u32> {
        let place = self.free.checked_sub(1)?;
        self.free = std::mem::take(&mut self.next[place as usize]);
        Some(place)
    }

    /// A place whose block is evicted, since none is free.
    fn clear_place(&mut self) -> Option<u32> {
        let mut found = None;
        for _ in 0..LOOKS.min(self.config.blocks) {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.config.blocks;
            if self.entries[place as usize] == 0 {
                continue;
            }
            found = Some(place);
            if !bit(&self.used, place) {
                break;
            }
            set_bit(&mut self.used, place, false);
        }
        let place = found?;
        self.remove(place);
        self.counters.evictions += 1;
        Some(place)
    }

    /// The store of `entry` at `place` is over, with contents of this checksum, or `None` if it failed. It counts
    /// unless the entry became invalid meanwhile.
    pub(crate) fn end_store(&mut self, place: u32, entry: Entry, sum: Option<u64>) {
        set_bit(&mut self.busy, place, false);
        if self.off {
            return;
        }
        let is_wanted = self.underway.get(&entry) == Some(&place);
        if is_wanted {
            self.underway.remove(&entry);
        }
        let has_failed = sum.is_none();
        match sum.filter(|_| is_wanted) {
            Some(sum) => {
                self.insert(place, entry, sum);
                self.counters.stores += 1;
            }
            // The place may be the reason: others are used first.
            None if has_failed && self.directed && self.config.shared && !bit(&self.listed, place) => {
                set_bit(&mut self.listed, place, true);
                self.spare.push_front(place);
            }
            None => self.vacate(place),
        }
    }

    /// The contents of `entry` change: the copy that the level holds, or is about to store, is no longer valid.
    pub(crate) fn invalidate(&mut self, entry: Entry) {
        let storing = self.underway.remove(&entry).is_some();
        let stored = self.find(entry);
        if let Some(place) = stored {
            self.take_out(place);
        }
        self.touched = true;
        self.counters.invalidations += u64::from(storing || stored.is_some());
    }

    /// Invalidates a range of blocks of any length. Returns false if it cannot: the caller must then abandon `opening`. A directed
    /// level always can.
    pub(crate) fn invalidate_range(&mut self, opening: u32, blocks: Range<u64>) -> bool {
        if blocks.end - blocks.start <= u64::from(LOOKS) {
            blocks.for_each(|block| self.invalidate(Entry::new(opening, block)));
            return true;
        }
        let inside = |entry: &Entry| entry.opening() == opening && blocks.contains(&entry.block());
        let before = self.underway.len();
        self.underway.retain(|entry, _| !inside(entry));
        self.counters.invalidations += (before - self.underway.len()) as u64;
        self.touched = true;
        let left = self.config.blocks;
        if self.masks.len() >= MASKS {
            if !self.directed {
                return false;
            }
            // Places of an abandoned opening would not be used again: all of it becomes invalid.
            if let Some(mask) = self.masks.iter_mut().find(|mask| mask.opening == opening) {
                (mask.blocks, mask.left) = (0..u64::MAX, left);
                return true;
            }
        }
        self.masks.push(Mask { opening, blocks, left });
        true
    }

    /// Removes the blocks of masks from the next `most` places, and returns them.
    pub(crate) fn sweep(&mut self, most: u32) -> Vec<Entry> {
        let mut gone = Vec::new();
        if self.masks.is_empty() {
            return gone;
        }
        let count = most.min(self.config.blocks);
        for _ in 0..count {
            let place = self.sweep;
            self.sweep = (self.sweep + 1) % self.config.blocks;
            let entry = self.entries[place as usize].checked_sub(1).map(Entry);
            if let Some(entry) = entry.filter(|&entry| self.is_masked(entry)) {
                self.take_out(place);
                self.counters.invalidations += 1;
                gone.push(entry);
            }
        }
        self.masks.retain_mut(|mask| {
            mask.left = mask.left.saturating_sub(count);
            mask.left > 0
        });
        gone
    }

    /// The contents at `place` are not, or no longer, those that were stored there as `entry`.
    pub(crate) fn drop_entry(&mut self, place: u32, entry: Entry) {
        if self.entries.get(place as usize) == Some(&(entry.0 + 1)) {
            self.take_out(place);
        }
    }

    /// Secret of the blocks' checksums. Those of a level that lasts are the same in each run.
    pub(crate) fn secret(&self) -> u64 {
        if self.config.elastic { self.hasher.hash_one(0_u64) } else { 0 }
    }

    /// Whether the device could not be reached, and still has its blocks.
    pub(crate) fn is_away(&self, result: Result<(), Fault>) -> bool {
        self.config.shared && result == Err(Fault::AWAY)
    }

    /// An operation of the level is over. Too many failures in a row switch the level off.
    pub(crate) fn note_result(&mut self, failed: bool) {
        self.faults = if failed { self.faults + 1 } else { 0 };
        self.counters.faults += u64::from(failed);
        if self.faults >= self.config.faults {
            self.switch_off();
        }
    }

    /// Empties the level, which takes no more blocks.
    pub(crate) fn switch_off(&mut self) {
        self.off = true;
        (self.entries, self.sums, self.heads, self.next) = Default::default();
        (self.spare, self.listed) = (VecDeque::new(), vec![0; self.listed.len()]);
        (self.free, self.left, self.fresh) = (0, 0, self.config.blocks);
        self.underway.clear();
        self.masks.clear();
        self.len = 0;
    }

    /// As `bytes`, for an elastic level, whose first places are used first; others take no memory yet.
    pub(crate) fn touched_bytes(&self) -> usize {
        let places = if self.config.elastic { self.fresh } else { self.config.blocks };
        (self.bytes() as u64 * u64::from(places) / u64::from(self.config.blocks)) as usize
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        let words = [&self.entries, &self.sums, &self.used, &self.busy, &self.listed].map(Vec::capacity);
        8 * words.iter().sum::<usize>() + 4 * (self.heads.capacity() + self.next.capacity() + self.spare.capacity())
    }

    /// Recounts.
    pub(crate) fn check(&self) {
        let count = self.entries.iter().filter(|&&entry| entry != 0).count();
        assert_eq!(count as u32, self.len);
        for (place, entry) in (0..).zip(&self.entries) {
            let Some(entry) = entry.checked_sub(1).map(Entry) else { continue };
            assert!(!bit(&self.busy, place), "a place that is being written holds a block");
            assert!(self.is_masked(entry) || self.find(entry) == Some(place), "a block is stored twice, or not found");
            assert!(self.is_masked(entry) || !self.underway.contains_key(&entry), "a stored block is being stored");
        }
        assert!(self.underway.values().all(|&place| bit(&self.busy, place)));
        if !self.directed && !self.config.elastic && !self.off {
            let next = |link: u32| Some(self.next[link as usize]).filter(|&raw| raw != 0).map(Level::link);
            let chain = std::iter::successors((self.free != 0).then(|| Level::link(self.free)), |&link| next(link));
            let free = chain.take(self.config.blocks as usize + 1).collect::<Vec<u32>>();
            let is_free = |place: &u32| self.entries[*place as usize] == 0 && !bit(&self.busy, *place);
            assert!(
                free.iter().all(|place| *place < self.fresh && is_free(place)),
                "a place in use is chained as free"
            );
            assert_eq!(free.len(), (0..self.fresh).filter(is_free).count(), "a free place is lost, or chained twice");
        }
        if self.directed && !self.off {
            let is_listed = |place: u32| bit(&self.listed, place);
            assert_eq!(self.spare.len(), (0..self.config.blocks).filter(|&place| is_listed(place)).count());
            for place in 0..self.fresh {
                let holds = self.entries[place as usize] != 0;
                let is_needed = holds && bit(&self.used, place) || bit(&self.busy, place);
                assert!(is_needed || is_listed(place), "a place is lost");
            }
        }
    }
}

impl LevelState {
    pub(crate) fn new(level: Level) -> LevelState {
        let (at_device, batch, full) = (VecDeque::new(), None, Vec::new());
        let left_out = VecDeque::new();
        LevelState {
            level,
            at_device,
            late: false,
            told_late: false,
            left_out,
            storing: 0,
            batch,
            full,
            attached: true,
        }
    }

    /// Counts that it is left out for a volume, or used again, and keeps that for the host.
    pub(crate) fn note_left_out(&mut self, left_out: LeftOut) {
        self.level.counters.left_out += u64::from(left_out.for_us > 0);
        if self.left_out.len() == REPORTS {
            self.left_out.pop_front();
        }
        self.left_out.push_back(left_out);
    }

    /// The time since which the operation `id` is at the device, in µs.
    pub(crate) fn since(&self, id: u64) -> Option<u64> {
        self.at_device.iter().find(|&&(of, _)| of == id).map(|&(_, since)| since)
    }

    /// When the oldest operation at the device will have taken too long, in µs.
    #[inline]
    pub(crate) fn late_at(&self) -> Option<u64> {
        self.at_device.front().map(|&(_, since)| since.saturating_add(self.level.config.patience_us))
    }

    /// Whether blocks are to be stored, or a range is being removed.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.batch.is_some() || !self.full.is_empty() || !self.level.masks.is_empty()
    }
}

/// Blocks that are about to be stored at consecutive places.
pub(crate) struct Batch {
    pub(crate) place: u32,
    pub(crate) blocks: Vec<(Key, Entry)>,
    pub(crate) frames: Vec<u32>,
    pub(crate) held: Shared,
}

/// A level of the engine.
pub(crate) struct LevelState {
    pub(crate) level: Level,
    /// Its operations at the device, and since when, in µs; the oldest first.
    pub(crate) at_device: VecDeque<(u64, u64)>,
    /// Whether one of them takes too long, and whether the host knows.
    pub(crate) late: bool,
    pub(crate) told_late: bool,
    /// When it was left out for a volume, or used again, as far as the host has not asked; the latest `REPORTS`.
    pub(crate) left_out: VecDeque<LeftOut>,
    /// Blocks on their way to it.
    pub(crate) storing: u32,
    pub(crate) batch: Option<Batch>,
    /// Batches before that one.
    pub(crate) full: Vec<Batch>,
    /// Whether it prevents its port from being detached.
    pub(crate) attached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(blocks: u32) -> LevelConfig {
        let (patience_us, shared, elastic) = (u64::MAX, false, false);
        LevelConfig { port: Port(0), offset: 0, blocks, faults: 3, patience_us, shared, elastic }
    }

    fn level(blocks: u32) -> Level {
        Level::new(config(blocks), false)
    }

    fn store(level: &mut Level, block: u64) -> u32 {
        let entry = Entry::new(1, block);
        let place = level.begin_store(entry).expect("a place");
        level.end_store(place, entry, Some(block));
        level.check();
        place
    }

    fn find(level: &Level, block: u64) -> Option<u32> {
        level.find(Entry::new(1, block))
    }

    #[test]
    fn the_hand_passes_over_what_was_used_once() {
        let mut level = level(4);
        let places: Vec<u32> = (0..4).map(|block| store(&mut level, block)).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        level.note_use(0);
        level.note_use(1);
        assert_eq!((store(&mut level, 10), store(&mut level, 11), store(&mut level, 12)), (2, 3, 0));
        assert_eq!((find(&level, 0), find(&level, 1), find(&level, 12)), (None, Some(1), Some(0)));
        assert_eq!(level.counters.evictions, 3);
    }

    /// A restart brings blocks to any places; those are neither the first nor marked less than others.
    #[test]
    fn warm_4_free_places_are_used_before_those_of_an_earlier_run() {
        let mut level = level(16);
        for place in [0, 1, 2, 9] {
            level.insert(place, Entry::new(1, 100 + u64::from(place)), 0);
            level.note_use(place);
        }
        level.invalidate(Entry::new(1, 109));
        let places: Vec<u32> = (0..13).map(|block| store(&mut level, block)).collect();
        assert_eq!(places, (3..16).collect::<Vec<u32>>());
        assert_eq!(level.counters.evictions, 0);
        level.invalidate(Entry::new(1, 5));
        assert_eq!(store(&mut level, 50), 8, "the one that is free");
        assert_eq!(store(&mut level, 51), 3, "the first that was not used since the hand passed");
        assert_eq!((0..3).map(|place| find(&level, 100 + place)).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
        assert_eq!(store(&mut level, 52), 4);
    }

    #[test]
    fn what_changes_while_it_is_stored_does_not_count() {
        let mut level = level(4);
        let entry = Entry::new(1, 7);
        let first = level.begin_store(entry).expect("a place");
        level.invalidate(entry);
        let second = level.begin_store(entry).expect("another place");
        assert_ne!(first, second);
        level.end_store(first, entry, Some(1));
        assert_eq!(level.find(entry), None);
        level.end_store(second, entry, Some(2));
        assert_eq!(level.find(entry).map(|place| level.sum(place)), Some(2));
        level.check();
    }

    #[test]
    fn long_ranges_are_invalid_at_once_and_taken_out_step_by_step() {
        let mut level = level(256);
        for block in 0..256 {
            store(&mut level, block);
        }
        assert!(level.invalidate_range(1, 100..1 << 30));
        assert!(level.invalidate_range(2, 0..1 << 30));
        assert_eq!((find(&level, 99), find(&level, 100), level.len()), (Some(99), None, 256));
        assert_eq!(level.begin_store(Entry::new(1, 300)), None, "not while the range is being taken out");
        for _ in 0..8 {
            level.sweep(32);
            level.check();
        }
        assert_eq!((find(&level, 99), find(&level, 100), level.len()), (Some(99), None, 100));
        store(&mut level, 300);
    }

    #[test]
    fn an_elastic_level_evicts_when_it_is_told_to() {
        let mut level = Level::new(LevelConfig { elastic: true, ..config(4) }, false);
        let places: Vec<u32> = (0..4).map(|block| store(&mut level, block)).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        level.note_use(0);
        level.note_fetch(1);
        assert_eq!((level.shed(1), find(&level, 1), level.counters.evictions), (1, None, 1));
        assert_eq!(store(&mut level, 4), 2, "a place that was not returned is not used, and no other is free");
        level.invalidate(Entry::new(1, 4));
        assert_eq!(level.take_left(1), [2]);
        assert_eq!((level.take_left(9), level.take_left(9)), (vec![1], vec![]));
        level.return_places(&[2, 1]);
        assert_eq!((store(&mut level, 5), store(&mut level, 6)), (1, 2));

        // A block that changes while it is stored leaves its place, and so does one that finds no room.
        level.shed(2);
        let left = level.take_left(9);
        level.return_places(&left);
        let entry = Entry::new(1, 7);
        let place = level.begin_store(entry).unwrap();
        level.invalidate(entry);
        level.end_store(place, entry, Some(7));
        assert_eq!((level.find(entry), level.take_left(9)), (None, vec![place]));
        level.return_places(&[place]);
        let place = store(&mut level, 8);
        level.reject(place);
        assert_eq!((find(&level, 8), level.take_left(9)), (None, vec![place]));
        level.check();

        level.thin(3);
        let taken = (0..9).filter(|_| !level.leaves_out()).count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn failures_in_a_row_switch_it_off() {
        let mut level = level(4);
        store(&mut level, 1);
        for failed in [true, true, false, true, true] {
            level.note_result(failed);
        }
        assert!(!level.off);
        level.note_result(true);
        assert!(level.off);
        assert_eq!(find(&level, 1), None);
        level.check();
    }
}
