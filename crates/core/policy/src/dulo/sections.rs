//! The sequencing bank and the evicting section (sections 3.1 and 3.4).
//!
//! Sequences with equal H values (of one size, from the same bank or sometimes from several) are neighbours. The merge
//! finds the place of all of them at once, by bisection. Choices where the text leaves one:
//!
//! * Of equal H values, those of the evicting section stay nearer to the bottom than those of the bank.
//! * L, "the H value of the most recent evicted sequence", is updated at each evicted block of a sequence. Young blocks
//!   leave the bottom too, but are not evicted.
//! * If a block must leave a cache that is not full and the evicting section is empty, the bank is sequenced before it
//!   is full. A bank that has reached a new BANK_MAX is sequenced at once.

use std::collections::VecDeque;

use super::sequences::{SIZE_MOST, Sequences};
use crate::list::{Links, List};
use crate::{Block, Slot};

// Place of a slot.
const ELSEWHERE: u8 = 0;
const BANK: u8 = 1;
const EVICTING: u8 = 2;
/// In the evicting section, and the last of the blocks with its H value.
const EVICTING_LAST: u8 = 3;

/// The cost of fetching a sequence again.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// For positioning.
    pub(crate) position: f64,
    /// For each block.
    pub(crate) transfer: f64,
}

impl Cost {
    fn per_block(self, size: usize) -> f64 {
        (self.position + size as f64 * self.transfer) / size as f64
    }
}

/// The blocks of the evicting section with one H value.
struct Group {
    h: f64,
    /// The one nearest to the top.
    last: Slot,
}

/// The part of the stack below the correlation buffer. Its operations take the links that its lists were created with.
pub(crate) struct Sections {
    /// Blocks from the one that came first.
    bank: List,
    bank_most: u32,
    /// Blocks from the stack bottom.
    evicting: List,
    /// The groups of the evicting section from the stack bottom, by increasing H.
    groups: VecDeque<Group>,
    /// L.
    inflation: f64,
    cost: Cost,
    sequences: Sequences,
    /// Whether sequences continue across banks.
    joins: bool,
    /// Whether blocks leave in the order of CLOCK, as if all sequences had one block.
    pub(crate) plain: bool,
    /// Blocks that joined a sequence of the last bank.
    moved: Vec<Slot>,
    places: Vec<u8>,
    /// The address of each resident slot.
    volumes: Vec<u32>,
    indexes: Vec<u64>,
    misses: u64,
    sequenced: u64,
    comparisons: u64,
}

impl Sections {
    pub(crate) fn new(
        [bank, evicting]: [List; 2],
        slots: u32,
        bank_most: u32,
        cost: Cost,
        sequences: Sequences,
        joins: bool,
    ) -> Sections {
        Sections {
            bank,
            bank_most,
            evicting,
            groups: VecDeque::new(),
            inflation: 0.0,
            cost,
            sequences,
            joins,
            plain: false,
            moved: Vec::new(),
            places: vec![ELSEWHERE; slots as usize],
            volumes: vec![0; slots as usize],
            indexes: vec![0; slots as usize],
            misses: 0,
            sequenced: 0,
            comparisons: 0,
        }
    }

    /// Records the address of `slot`, which was loaded.
    #[inline]
    pub(crate) fn loaded(&mut self, slot: Slot, block: Block) {
        self.volumes[slot.index()] = block.volume;
        self.indexes[slot.index()] = block.index;
        self.misses += 1;
    }

    /// Whether `slot` is in the bank or the evicting section.
    #[inline(always)]
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.places[slot.index()] != ELSEWHERE
    }

    /// Puts `slot` into the bank; if the bank is then full, its blocks move to the evicting section.
    #[inline]
    pub(crate) fn enter(&mut self, links: &mut Links, slot: Slot) {
        self.bank.push_back(links, slot);
        self.places[slot.index()] = BANK;
        if self.bank.len() == self.bank_most {
            self.refill(links);
        }
    }

    /// Sets the room: slots `0..slots`, a bank of `bank_most` blocks and a block table of `table_bytes`.
    pub(crate) fn resize(&mut self, links: &mut Links, slots: u32, bank_most: u32, table_bytes: u64) {
        self.places.resize(slots as usize, ELSEWHERE);
        self.volumes.resize(slots as usize, 0);
        self.indexes.resize(slots as usize, 0);
        self.sequences.table.limit(table_bytes);
        self.bank_most = bank_most;
        if self.bank.len() >= bank_most {
            self.refill(links);
        }
    }

    /// The cost of loading a block; `continues` if the block before it on disk was loaded just before.
    pub(crate) fn miss_cost(&self, continues: bool) -> f64 {
        self.cost.transfer + if continues { 0.0 } else { self.cost.position }
    }

    /// The lists, so that the owner can grow the links.
    pub(crate) fn lists(&mut self) -> [&mut List; 2] {
        [&mut self.bank, &mut self.evicting]
    }

    /// Whether there are no blocks here.
    pub(crate) fn is_empty(&self) -> bool {
        self.bank.is_empty() && self.evicting.is_empty()
    }

    /// Makes sure that a block is at the stack bottom, if any block is here.
    pub(crate) fn settle_bottom(&mut self, links: &mut Links) {
        if self.evicting.is_empty() && !self.bank.is_empty() {
            self.refill(links);
        }
    }

    /// The block at the stack bottom.
    #[inline]
    pub(crate) fn bottom(&self, links: &Links) -> Slot {
        self.evicting.front(links).expect("a full cache has more blocks here than the bank holds")
    }

    /// Takes out the block at the stack bottom for good.
    #[inline]
    pub(crate) fn evict(&mut self, links: &mut Links) -> Slot {
        self.inflation = self.groups.front().expect("a block in the evicting section is in a group").h;
        let slot = self.bottom(links);
        self.remove(links, slot);
        slot
    }

    /// Takes `slot`, which is in one of the sections, out.
    #[inline]
    pub(crate) fn remove(&mut self, links: &mut Links, slot: Slot) {
        match std::mem::replace(&mut self.places[slot.index()], ELSEWHERE) {
            BANK => self.bank.unlink(links, slot),
            EVICTING => self.evicting.unlink(links, slot),
            _ => {
                let group = self.groups.iter().position(|group| group.last == slot).expect("a group's last block");
                match self.evicting.before(links, slot) {
                    Some(before) if self.places[before.index()] == EVICTING => {
                        self.places[before.index()] = EVICTING_LAST;
                        self.groups[group].last = before;
                    }
                    _ => drop(self.groups.remove(group)),
                }
                self.evicting.unlink(links, slot);
            }
        }
    }

    /// "We refill the evicting section by taking the blocks in the bank, forming sequences out of them, and inserting
    /// them into the evicting section in a desired order." (3.1)
    fn refill(&mut self, links: &mut Links) {
        self.sequenced += u64::from(self.bank.len());
        let (bank, volumes, indexes) = (&mut self.bank, &self.volumes, &self.indexes);
        let block = |slot: Slot| Block { volume: volumes[slot.index()], index: indexes[slot.index()] };
        let taken = std::iter::from_fn(|| bank.pop_front(links)).map(|slot| (slot, block(slot)));
        if self.joins {
            let is_here = |slot: Slot, known| self.places[slot.index()] >= EVICTING && block(slot) == known;
            let mut moved = std::mem::take(&mut self.moved);
            self.sequences.join(taken, is_here, &mut moved);
            if !self.plain {
                moved.iter().for_each(|&slot| self.remove(links, slot));
            }
            moved.clear();
            self.moved = moved;
        } else {
            self.sequences.form(taken);
        }
        if self.plain {
            self.sequences.split();
        }
        for size in (1..=SIZE_MOST).rev() {
            let mut blocks = self.sequences.of_size(size).peekable();
            if blocks.peek().is_none() {
                continue;
            }
            // H(s) = L + 1/size(s), where 1 is the cost of a sequence.
            let h = self.inflation + self.cost.per_block(size);
            let comparisons = &mut self.comparisons;
            let at = self.groups.partition_point(|group| {
                *comparisons += 1;
                group.h <= h
            });
            let below = at.checked_sub(1).map(|below| self.groups[below].last);
            let above = below.map_or(self.evicting.front(links), |last| self.evicting.after(links, last));
            let mut last = None;
            for slot in blocks {
                match above {
                    Some(above) => self.evicting.insert_before(links, slot, above),
                    None => self.evicting.push_back(links, slot),
                }
                self.places[slot.index()] = EVICTING;
                last = Some(slot);
            }
            let last = last.expect("there is a block");
            self.places[last.index()] = EVICTING_LAST;
            match at.checked_sub(1).map(|below| &mut self.groups[below]) {
                Some(group) if group.h == h => {
                    self.places[group.last.index()] = EVICTING;
                    group.last = last;
                }
                _ => self.groups.insert(at, Group { h, last }),
            }
        }
    }

    /// Recounts every invariant of the slots that are `here`, and returns them.
    ///
    /// # Panics
    /// On a broken one.
    pub(crate) fn checked(&self, links: &Links) -> Vec<Slot> {
        let (mut slots, evicting) = (self.bank.checked(links), self.evicting.checked(links));
        assert!(self.bank.len() < self.bank_most, "a full bank was not taken over");
        assert!(
            slots.iter().all(|slot| self.places[slot.index()] == BANK),
            "a block in the bank is said to be elsewhere"
        );
        let is_last = |slot: &&Slot| self.places[slot.index()] == EVICTING_LAST;
        assert!(evicting.iter().all(|slot| is_last(&slot) || self.places[slot.index()] == EVICTING), "as in the bank");
        assert!(evicting.iter().filter(is_last).eq(self.groups.iter().map(|group| &group.last)), "the groups' blocks");
        assert!(evicting.last().is_none_or(|slot| is_last(&slot)), "a block in no group");
        assert!(self.groups.iter().is_sorted_by(|one, next| one.h < next.h), "the groups are ordered by H");
        let least = self.groups.front().map_or(f64::INFINITY, |group| group.h);
        assert!(self.inflation <= least, "L is beyond the least H");
        self.sequences.table.check();
        slots.extend(evicting);
        let here = self.places.iter().filter(|&&place| place != ELSEWHERE).count();
        assert_eq!(here, slots.len(), "a block is here, but in no list");
        slots
    }

    pub(crate) fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("bank", self.bank.len().into());
        report("evicting", self.evicting.len().into());
        report("table_nodes", self.sequences.table.used() as u64);
        let per_1000_misses = |count: u64| (1000 * count).checked_div(self.misses).unwrap_or(0);
        report("sequencings_per_1000_misses", per_1000_misses(self.sequenced));
        report("comparisons_per_1000_misses", per_1000_misses(self.comparisons));
    }
}
