//! Unified level-aware caching for one client; `client.rs` adds what several clients of one server need.
//!
//! S. Jiang, "Efficient caching algorithms for memory management in computer systems", dissertation, College of William and
//! Mary, 2004, section 5.3.2.1. The names are those of the text: *uniLRUstack*, *yardsticks*, *level status*, *recency status*.
//!
//! Where the text is silent:
//!
//! * **Recency status** is not stored: it is the first level i whose yardstick was referenced no later than the block. A level
//!   that is not full bounds nothing. While the levels fill, a yardstick can lie above that of a higher level; by this rule the
//!   higher level wins, and the order returns by itself.
//! * **A demoted block** is at its place in the stack already, so *DemotionSearching* is not needed: the yardstick of its new level
//!   is the only other thing that can change.
//! * **A yardstick that is referenced** is adjusted before the block moves to the top.
//! * **Pruning** removes from the bottom what is cached at no level. That changes no decision.
//! * **The length of the stack** is not limited in the text. With [`Ulc::limit_ghosts`], the stack has at most so many blocks that are
//!   cached at no level; the one that was referenced the longest time ago is forgotten. docs/papers/ulc.md has the effect.
//! * **tempLRU** is the [`TRANSIT`] blocks that were last brought to the client and not cached there. Hits in it are counted apart
//!   ([`Counts::transit`]), not as hits of the first level.

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use crate::counts::Counts;
use crate::levels::{LEVELS_MAX, Level, Move, Retrieve, Tier};

/// Blocks in the client's transit buffer (*tempLRU*, "a small LRU stack").
const TRANSIT: u32 = 64;

/// References of earlier runs have numbers up to this one.
const RESTORED: u64 = 1 << 40;

/// L_out: cached at no level.
const OUT: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Known {
    /// The number of the last reference; 0 for blocks that are not in the stack.
    last: u64,
    /// The number of the last entry into the transit buffer; 0 for none.
    transit: u32,
    /// The level status.
    level: u8,
}

impl Default for Known {
    fn default() -> Known {
        Known { last: 0, transit: 0, level: OUT }
    }
}

/// The levels of one client. 24 bytes a slot.
pub struct Ulc {
    /// The links of *uniLRUstack*, and what is known of each block.
    known: Links<Known>,
    /// *uniLRUstack*, the most recently referenced block first.
    stack: List,
    /// The block of each level that was referenced the longest time ago.
    yardsticks: Vec<Option<Slot>>,
    /// Blocks at each level.
    blocks: Vec<u32>,
    capacities: Vec<u32>,
    /// Blocks that a level may still have although its capacity was lowered.
    left_over: Vec<u32>,
    /// The number of the last reference.
    now: u64,
    /// Entries into the transit buffer so far, modulo 2^32.
    entered: u32,
    /// Blocks whose last reference has this number or a higher one belong to the last level at least, whatever its yardstick.
    floor: u64,
    /// The most blocks of the stack that are cached at no level; `u32::MAX` for no limit.
    ghosts_most: u32,
    /// With a limit: the one of these that was referenced the longest time ago.
    oldest: Option<Slot>,
    counts: Counts,
}

impl Ulc {
    /// Levels of `capacities` blocks, the first one first, and blocks in slots below `slots`. The stack knows more blocks than
    /// the levels hold: a slot is free again when it is reported by [`Move::Forget`].
    ///
    /// # Panics
    /// Without a level, with more than [`LEVELS_MAX`], or if one holds no block.
    pub fn new(slots: u32, capacities: &[u32]) -> Ulc {
        assert!((1..=LEVELS_MAX).contains(&capacities.len()) && !capacities.contains(&0), "levels hold blocks");
        let (known, [stack]) = Links::with_own(slots);
        let levels = capacities.len();
        Ulc {
            known,
            stack,
            yardsticks: vec![None; levels],
            blocks: vec![0; levels],
            capacities: capacities.to_vec(),
            left_over: vec![0; levels],
            now: 0,
            entered: 0,
            floor: u64::MAX,
            ghosts_most: u32::MAX,
            oldest: None,
            counts: Counts::default(),
        }
    }

    /// Has room for `capacity` blocks at `level` from now on. What is too much is demoted.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn resize(&mut self, level: Level, capacity: u32, moves: &mut Vec<Move>) {
        assert!(capacity > 0, "levels hold blocks");
        self.bound(level, capacity);
        while self.blocks[usize::from(level)] > capacity {
            self.make_room(usize::from(level), moves);
        }
        self.prune(moves);
    }

    /// As [`Ulc::resize`], but what is too much stays until [`Ulc::shed`] demotes it.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn bound(&mut self, level: Level, capacity: u32) {
        assert!(capacity > 0, "levels hold blocks");
        let level = usize::from(level);
        (self.capacities[level], self.left_over[level]) = (capacity, self.blocks[level]);
    }

    /// Demotes one block from `level`, and from each lower one that becomes too full. Returns the first of them.
    ///
    /// # Panics
    /// If `level` has no block.
    pub fn shed(&mut self, level: Level, moves: &mut Vec<Move>) -> Slot {
        let victim = self.lower(usize::from(level), moves);
        self.make_room(usize::from(level) + 1, moves);
        self.prune(moves);
        victim
    }

    /// From now on the stack has at most `most` blocks that are cached at no level. To be called first before any reference.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn limit_ghosts(&mut self, most: u32, moves: &mut Vec<Move>) {
        assert!(most > 0, "the block that is referenced may be one");
        self.ghosts_most = most;
        self.prune(moves);
    }

    /// Makes room for slots below `slots`, at least as many as before.
    pub fn grow(&mut self, slots: u32) {
        self.known.grow(slots, [&mut self.stack]);
    }

    /// The block of `slot`, which is not in the stack, was at `level` in an earlier run: it was referenced before all others.
    /// Returns whether the level has room.
    pub fn restore(&mut self, slot: Slot, level: Level) -> bool {
        let level = usize::from(level);
        if self.blocks[level] >= self.capacities[level] {
            return false;
        }
        self.now = self.now.max(RESTORED);
        let last = self.stack.back(&self.known).map_or(self.now, |back| self.last(back) - 1);
        self.stack.push_back(&mut self.known, slot);
        *self.known.own_mut(slot) = Known { last, transit: 0, level: OUT };
        self.enter(slot, level);
        true
    }

    /// Blocks at `level`.
    pub fn blocks(&self, level: Level) -> u32 {
        self.blocks[usize::from(level)]
    }

    /// Blocks of the stack that are cached at no level.
    fn ghosts(&self) -> u32 {
        self.stack.len() - self.blocks.iter().sum::<u32>()
    }

    /// Blocks in the stack: those cached at a level, and others that were referenced since the oldest of these.
    pub fn known(&self) -> u32 {
        self.stack.len()
    }

    /// The number of the last reference of all.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether the block of `slot` is in the stack.
    pub fn knows(&self, slot: Slot) -> bool {
        self.last(slot) != 0
    }

    /// The number of the last reference to the block of `slot`; 0 if it is not in the stack.
    pub fn last(&self, slot: Slot) -> u64 {
        self.known.own(slot).last
    }

    /// Where a block belongs that was last referenced at `last`.
    fn recency(&self, last: u64) -> u8 {
        let bounds = self.yardsticks.iter().zip(self.blocks.iter().zip(&self.capacities));
        let mut at = bounds.map(|(yardstick, (blocks, capacity))| {
            blocks < capacity || yardstick.is_some_and(|yardstick| last >= self.last(yardstick))
        });
        let lowest = if last != 0 && last >= self.floor { self.blocks.len() as u8 - 1 } else { OUT };
        at.position(|belongs| belongs).map_or(lowest, |level| level as u8)
    }

    /// *YardStickAdjustment*: to the next block of the level towards the top.
    fn adjust(&mut self, level: usize) {
        let Some(mut at) = self.yardsticks[level].filter(|_| self.blocks[level] > 1) else {
            self.yardsticks[level] = None;
            return;
        };
        loop {
            at = self.stack.before(&self.known, at).expect("the level has another block, above its yardstick");
            self.counts.steps += 1;
            if usize::from(self.known.own(at).level) == level {
                break;
            }
        }
        self.yardsticks[level] = Some(at);
    }

    /// `slot`, which is cached at no level, leaves the stack or its place there.
    fn pass_oldest(&mut self, slot: Slot) {
        if self.oldest == Some(slot) {
            let others = self.ghosts() > 1;
            let mut above = std::iter::successors(Some(slot), |&at| self.stack.before(&self.known, at)).skip(1);
            self.oldest = if others { above.find(|&at| self.known.own(at).level == OUT) } else { None };
        }
    }

    /// `slot`, which is in the stack, is cached at no level from now on.
    fn enter_ghosts(&mut self, slot: Slot) {
        let is_older = |oldest| self.last(slot) < self.last(oldest);
        if self.ghosts_most < u32::MAX && self.oldest.is_none_or(is_older) {
            self.oldest = Some(slot);
        }
    }

    /// Takes `slot` from its level.
    fn leave(&mut self, slot: Slot) {
        let level = usize::from(self.known.own(slot).level);
        if level < self.blocks.len() {
            if self.yardsticks[level] == Some(slot) {
                self.adjust(level);
            }
            self.blocks[level] -= 1;
        } else {
            self.pass_oldest(slot);
        }
        self.known.own_mut(slot).level = OUT;
    }

    /// Puts `slot`, which is in the stack, at a level.
    fn enter(&mut self, slot: Slot, level: usize) {
        self.known.own_mut(slot).level = level as u8;
        self.blocks[level] += 1;
        if self.yardsticks[level].is_none_or(|yardstick| self.last(slot) < self.last(yardstick)) {
            self.yardsticks[level] = Some(slot);
        }
    }

    /// Demotes one block from `level`, and from each lower one that becomes too full.
    fn make_room(&mut self, level: usize, moves: &mut Vec<Move>) {
        for level in level..self.blocks.len() {
            if self.blocks[level] <= self.capacities[level] {
                return;
            }
            self.lower(level, moves);
        }
    }

    /// Demotes the block at the yardstick of `level`, or drops it from the last level. Returns it.
    fn lower(&mut self, level: usize, moves: &mut Vec<Move>) -> Slot {
        let victim = self.yardsticks[level].expect("a level with blocks has a yardstick");
        self.leave(victim);
        if level + 1 < self.blocks.len() {
            self.enter(victim, level + 1);
            self.counts.demoted(level as Level);
            moves.push(Move::Demote(victim, level as Level));
        } else {
            // At the bottom it is pruned next.
            if self.stack.back(&self.known) != Some(victim) || self.last(victim) >= self.floor {
                self.enter_ghosts(victim);
            }
            moves.push(Move::Drop(victim, level as Level));
        }
        victim
    }

    /// The request for the block of `slot`: where it is, and where it belongs from now on. [`Ulc::apply`] has that happen.
    pub fn decide(&self, slot: Slot) -> Retrieve {
        let Known { last, level: from, .. } = *self.known.own(slot);
        // A block never goes down because it is referenced: it would have been demoted before.
        let to = self.recency(last).min(from);
        let named = |level: u8| (level != OUT).then_some(level);
        Retrieve { from: named(from), to: named(to) }
    }

    /// References the block of `slot`, for which this was decided just before.
    pub fn apply(&mut self, slot: Slot, retrieve: Retrieve, moves: &mut Vec<Move>) {
        self.place(slot, retrieve, self.now + 1, moves);
    }

    /// The block of `slot` was retrieved: it moves to the top of the stack, and to its level. `now` numbers this reference; numbers grow.
    pub(crate) fn place(&mut self, slot: Slot, retrieve: Retrieve, now: u64, moves: &mut Vec<Move>) {
        assert!(now > self.now, "references have growing numbers");
        self.now = now;
        let Known { last, transit, .. } = *self.known.own(slot);
        // Blocks of the first level have no such number.
        self.counts.transit += u64::from(transit != 0 && self.entered.wrapping_sub(transit) < TRANSIT);
        self.leave(slot);
        if last == 0 {
            self.stack.push_front(&mut self.known, slot);
        } else {
            self.stack.move_to_front(&mut self.known, slot);
        }
        let transit = if retrieve.to == Some(0) {
            0
        } else {
            self.entered = self.entered.wrapping_add(1).max(1);
            self.entered
        };
        *self.known.own_mut(slot) = Known { last: self.now, transit, level: OUT };
        if let Some(to) = retrieve.to {
            self.enter(slot, usize::from(to));
            self.make_room(usize::from(to), moves);
        } else {
            self.enter_ghosts(slot);
        }
        self.prune(moves);
        self.counts.count(retrieve);
    }

    /// `level` no longer has the block of `slot`, if it had it. What the stack forgets is added to `moves`.
    pub fn lose(&mut self, slot: Slot, level: Level, moves: &mut Vec<Move>) {
        if self.known.own(slot).level == level {
            self.leave(slot);
            self.enter_ghosts(slot);
            self.prune(moves);
        }
    }

    /// The last level no longer has the block of `slot`, as other clients have its place. It is pruned later.
    pub(crate) fn lose_lowest(&mut self, slot: Slot) {
        if usize::from(self.known.own(slot).level) + 1 == self.blocks.len() {
            self.leave(slot);
        }
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The blocks at `level`, the most recently referenced first. Looks at the whole stack.
    pub(crate) fn at(&self, level: Level) -> Vec<Slot> {
        self.stack.iter(&self.known).filter(|&slot| self.known.own(slot).level == level).collect()
    }

    /// Blocks at the last level.
    pub(crate) fn lowest(&self) -> u32 {
        self.blocks[self.blocks.len() - 1]
    }

    /// The last reference to the oldest block of the last level, those of other clients included, has this number: a block that was
    /// referenced since belongs there at least.
    pub fn set_floor(&mut self, floor: u64) {
        self.floor = floor;
    }

    /// Bounds the last level by `capacity` blocks, without demoting any.
    pub(crate) fn bound_lowest(&mut self, capacity: u32) {
        let last = self.capacities.len() - 1;
        self.capacities[last] = capacity;
    }

    /// Removes what lies below the last yardstick: no such block would be cached if it were referenced. Then those that are too many.
    fn prune(&mut self, moves: &mut Vec<Move>) {
        let is_past = |known: &Known, floor| known.level == OUT && known.last < floor;
        let bottom = |ulc: &Ulc| ulc.stack.back(&ulc.known).filter(|&slot| is_past(ulc.known.own(slot), ulc.floor));
        while let Some(bottom) = bottom(self) {
            self.forget(bottom, moves);
        }
        while self.ghosts() > self.ghosts_most {
            self.forget(self.oldest.expect("there are such blocks"), moves);
        }
    }

    /// `slot`, which is cached at no level, leaves the stack.
    fn forget(&mut self, slot: Slot, moves: &mut Vec<Move>) {
        self.pass_oldest(slot);
        self.stack.unlink(&mut self.known, slot);
        *self.known.own_mut(slot) = Known::default();
        moves.push(Move::Forget(slot));
    }
}

impl Tier for Ulc {
    fn reference(&mut self, slot: Slot, moves: &mut Vec<Move>) -> Retrieve {
        let retrieve = self.decide(slot);
        self.apply(slot, retrieve, moves);
        retrieve
    }

    fn remove(&mut self, slot: Slot, moves: &mut Vec<Move>) {
        if self.last(slot) != 0 {
            self.leave(slot);
            self.stack.unlink(&mut self.known, slot);
            *self.known.own_mut(slot) = Known::default();
            self.prune(moves);
        }
    }

    fn level(&self, slot: Slot) -> Option<Level> {
        Some(self.known.own(slot).level).filter(|&level| level != OUT)
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn restart(&mut self) {
        self.counts = Counts::default();
    }

    fn check(&self) {
        let stack = self.stack.checked(&self.known);
        assert!(stack.is_sorted_by_key(|&slot| std::cmp::Reverse(self.last(slot))), "the stack is out of order");
        let is_needed = |&slot: &Slot| self.level(slot).is_some() || self.last(slot) >= self.floor;
        assert!(stack.last().is_none_or(is_needed), "the stack is not pruned");
        if self.ghosts_most < u32::MAX {
            let oldest = stack.iter().rev().find(|&&slot| self.level(slot).is_none());
            assert_eq!(oldest.copied(), self.oldest, "another block would be forgotten next");
            assert!(self.ghosts() <= self.ghosts_most, "the stack is too long");
        }
        for (level, &capacity) in self.capacities.iter().enumerate() {
            let own = stack.iter().filter(|&&slot| usize::from(self.known.own(slot).level) == level);
            let own: Vec<Slot> = own.copied().collect();
            assert_eq!(own.len(), self.blocks[level] as usize, "level {level} is miscounted");
            assert!(own.len() <= capacity.max(self.left_over[level]) as usize, "level {level} holds too much");
            assert_eq!(own.last().copied(), self.yardsticks[level], "the yardstick of level {level} is wrong");
        }
    }
}
