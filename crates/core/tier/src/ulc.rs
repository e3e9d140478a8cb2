//! Unified level-aware caching for one client; `client.rs` adds what several clients of one server need.
//!
//! S. Jiang, "Efficient caching algorithms for memory management in computer systems", dissertation, College of William and
//! Mary, 2004, section 5.3.2.1. The names are those of the text: *uniLRUstack*, *yardsticks*, *level status*, *recency status*.
//!
//! Decisions where the text is silent:
//!
//! * **Recency status** is not stored: it is the first level i whose yardstick was referenced no later than the block. A level
//!   that is not full bounds nothing. While the levels fill, a yardstick can lie above that of a higher level; by this rule the
//!   higher level wins, and the order returns by itself.
//! * **The first reference** to a block when all levels are full: by the text's rules it is cached at no level, because it has no recency
//!   ([`First::Out`]). With [`First::Last`] it is cached at the last one, and with [`Ulc::adapt`] the scheme chooses what it finds to be
//!   better (`trial.rs`). docs/papers/ulc.md has the effects.
//! * **The stack** is kept as several lists, as levels and yardsticks are all that decisions need: for each level, one list for each level at which
//!   its blocks were last retrieved. From one level, blocks of one such list are demoted in the order of their last references, so they enter the next
//!   list at its front: neither *DemotionSearching* nor *YardStickAdjustment* searches. The yardstick of a level is the oldest of the lists' ends.
//! * **Pruning** removes from the bottom what is cached at no level. That changes no decision.
//! * **The length of the stack** is not limited in the text. With [`Ulc::limit_ghosts`], the stack has at most this many blocks that are
//!   cached at no level; the one that was referenced the longest time ago is forgotten. docs/papers/ulc.md has the effect.
//! * **tempLRU** is the [`TRANSIT`] blocks that were last brought to the client and not cached there. Hits in it are counted apart
//!   ([`Counts::transit`]), not as hits of the first level.

use nigh_policy::list::{Links, List};
use nigh_policy::{Slot, Spec, SpecError};

use crate::counts::Counts;
use crate::levels::{LEVELS_MAX, Level, Move, Retrieve, Tier};
use crate::trial::{First, Scale, Trial};

/// Blocks in the client's transit buffer (*tempLRU*, "a small LRU stack").
const TRANSIT: u32 = 64;

/// The most blocks that are passed to find the place of one that got lost. If that is not enough, the block is forgotten.
const PASSED_MOST: u32 = 64;

/// References of earlier runs have numbers up to this one.
const RESTORED: u64 = 1 << 40;

/// L_out: cached at no level.
const OUT: u8 = u8::MAX;

/// The first list of a level, the number of levels for L_out: each level has as many lists as there are levels down to it.
const fn start(level: usize) -> usize {
    level * (level + 1) / 2
}

#[derive(Clone, Copy)]
struct Known {
    /// The number of the last reference; 0 for blocks that are not in the stack.
    last: u64,
    /// The number of the last entry into the transit buffer; 0 for none.
    transit: u32,
    /// The level status.
    level: u8,
    /// The level at which it was retrieved last; the number of levels for none, and one more if it got lost.
    stream: u8,
}

impl Default for Known {
    fn default() -> Known {
        Known { last: 0, transit: 0, level: OUT, stream: 0 }
    }
}

/// The levels of one client. 24 bytes a slot.
pub struct Ulc {
    /// The links of the lists, and what is known of each block.
    known: Links<Known>,
    /// *uniLRUstack*: for each level, and then for L_out, a list for each stream, the most recently referenced block first.
    lists: Vec<List>,
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
    /// Blocks of the stack that are cached at no level.
    ghosts: u32,
    /// The number of the block that was restored last.
    restored: u64,
    first: First,
    /// Finds out what `first` should be.
    trial: Option<Box<Trial<Ulc>>>,
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
        let (mut known, []) = Links::with_own(slots);
        let levels = capacities.len();
        let lists = (0..start(levels) + levels + 2).map(|_| known.list()).collect();
        Ulc {
            known,
            lists,
            blocks: vec![0; levels],
            capacities: capacities.to_vec(),
            left_over: vec![0; levels],
            now: 0,
            entered: 0,
            floor: u64::MAX,
            ghosts_most: u32::MAX,
            ghosts: 0,
            restored: RESTORED,
            first: First::Out,
            trial: None,
            counts: Counts::default(),
        }
    }

    /// As [`Ulc::new`], with the parameters of `spec`: where unknown blocks begin, and the length of the stack.
    ///
    /// # Panics
    /// As [`Ulc::new`], or if `spec` is another scheme.
    pub fn with(spec: &Spec, slots: u32, capacities: &[u32]) -> Result<Ulc, SpecError> {
        let ulc = Ulc::new(slots, capacities);
        let mut ulc = match spec.first()? {
            "out" => ulc,
            "last" => ulc.first(First::Last),
            _ => ulc.adapt(),
        };
        let all = u32::try_from(ulc.capacity()).unwrap_or(u32::MAX);
        ulc.limit_ghosts(nigh_policy::ghosts(spec, all)?, &mut Vec::new());
        ulc.now = RESTORED;
        Ok(ulc)
    }

    /// Has blocks that are not known begin there.
    #[must_use]
    pub fn first(self, first: First) -> Ulc {
        Ulc { first, ..self }
    }

    /// From now on, the scheme finds out where blocks that are not known should begin. To be called before any reference.
    #[must_use]
    pub fn adapt(self) -> Ulc {
        let scale = Scale::new(self.capacity());
        let small: Vec<u32> = self.capacities.iter().map(|&blocks| scale.blocks(blocks)).collect();
        let copies = [First::Out, First::Last].map(|first| Ulc::new(0, &small).first(first));
        let blocks = copies[0].capacity();
        Ulc { trial: Some(Box::new(Trial::new(scale, copies, blocks))), ..self }
    }

    /// The present level of unknown blocks.
    pub fn begins(&self) -> First {
        self.first
    }

    /// Blocks that all levels together hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacities.iter().map(|&blocks| u64::from(blocks)).sum()
    }

    /// Has room for `capacity` blocks at `level` from now on. Blocks beyond that are demoted.
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
        let at = usize::from(level);
        if let Some(trial) = self.trial.as_mut().filter(|_| self.capacities[at] != capacity) {
            trial.each(|copy, scale, moves| copy.resize(level, scale.blocks(capacity), moves));
        }
        (self.capacities[at], self.left_over[at]) = (capacity, self.blocks[at]);
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
        if let Some(trial) = &mut self.trial {
            trial.each(|copy, scale, moves| copy.limit_ghosts(scale.blocks(most), moves));
        }
        self.prune(moves);
    }

    /// Makes room for slots below `slots`, at least as many as before.
    pub fn grow(&mut self, slots: u32) {
        self.known.grow(slots, &mut self.lists);
    }

    /// The block of `slot`, which is not in the stack, was at `level` in an earlier run: it was referenced before all others, those included
    /// that were restored before. Returns whether the level has room. For a scheme from [`Ulc::with`].
    pub fn restore(&mut self, slot: Slot, level: Level) -> bool {
        let at = usize::from(level);
        if self.blocks[at] >= self.capacities[at] {
            return false;
        }
        self.restored -= 1;
        *self.known.own_mut(slot) = Known { last: self.restored, transit: 0, level, stream: level };
        self.lists[start(at) + at].push_back(&mut self.known, slot);
        self.blocks[at] += 1;
        true
    }

    /// Blocks at `level`.
    pub fn blocks(&self, level: Level) -> u32 {
        self.blocks[usize::from(level)]
    }

    /// Blocks in the stack: those cached at a level, and others that were referenced since the oldest of these.
    pub fn known(&self) -> u32 {
        self.ghosts + self.blocks.iter().sum::<u32>()
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

    /// The block that was referenced the longest time ago of those in the lists of `level`, the number of levels for L_out: the
    /// yardstick of a level.
    fn oldest(&self, level: usize) -> Option<Slot> {
        let streams = if level < self.blocks.len() { level + 1 } else { level + 2 };
        let ends = self.lists[start(level)..][..streams].iter().filter_map(|list| list.back(&self.known));
        ends.min_by_key(|&slot| self.last(slot))
    }

    /// The level of a block that was last referenced at `last`.
    fn recency(&self, last: u64) -> u8 {
        let belongs = |level: usize| {
            let is_full = self.blocks[level] >= self.capacities[level];
            !is_full || self.oldest(level).is_some_and(|yardstick| last >= self.last(yardstick))
        };
        let levels = self.blocks.len();
        let lowest = if last != 0 && last >= self.floor { levels as u8 - 1 } else { OUT };
        (0..levels).find(|&level| belongs(level)).map_or(lowest, |level| level as u8)
    }

    /// The number of a level, or of L_out, among the lists.
    fn number(&self, level: u8) -> usize {
        if level == OUT { self.blocks.len() } else { usize::from(level) }
    }

    /// Takes `slot` from its level, or from those that are cached at none. It is in no list then.
    fn leave(&mut self, slot: Slot) {
        let Known { last, level, stream, .. } = *self.known.own(slot);
        if last == 0 {
            return;
        }
        let at = self.number(level);
        self.lists[start(at) + usize::from(stream)].unlink(&mut self.known, slot);
        *self.blocks.get_mut(at).unwrap_or(&mut self.ghosts) -= 1;
    }

    /// Puts `slot`, which is in no list, at a level, or among those that are cached at none.
    fn enter(&mut self, slot: Slot, level: u8) {
        let at = self.number(level);
        let known = self.known.own_mut(slot);
        known.level = level;
        let list = start(at) + usize::from(known.stream);
        self.lists[list].push_front(&mut self.known, slot);
        *self.blocks.get_mut(at).unwrap_or(&mut self.ghosts) += 1;
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
        let victim = self.oldest(level).expect("a level with blocks has a yardstick");
        self.leave(victim);
        if level + 1 < self.blocks.len() {
            self.enter(victim, level as u8 + 1);
            self.counts.demoted(level as Level);
            moves.push(Move::Demote(victim, level as Level));
        } else {
            self.enter(victim, OUT);
            moves.push(Move::Drop(victim, level as Level));
        }
        victim
    }

    /// The request for the block of `slot`: where it is, and where it belongs from now on. [`Ulc::apply`] has that happen.
    pub fn decide(&self, slot: Slot) -> Retrieve {
        let Known { last, level: from, .. } = *self.known.own(slot);
        // A block never goes down because it is referenced: it would have been demoted before.
        let mut to = self.recency(last).min(from);
        if last == 0 && to == OUT && self.first == First::Last {
            to = self.blocks.len() as u8 - 1;
        }
        let named = |level: u8| (level != OUT).then_some(level);
        Retrieve { from: named(from), to: named(to) }
    }

    /// References `block`, the block of `slot`, for which this was decided just before. `block` is any number that stays the same as long as
    /// the scheme is used, while slots can be used again.
    pub fn apply(&mut self, slot: Slot, block: u64, retrieve: Retrieve, moves: &mut Vec<Move>) {
        self.place(slot, retrieve, self.now + 1, moves);
        if let Some(first) = self.trial.as_mut().and_then(|trial| trial.reference(block, Ulc::grow)) {
            self.first = first;
        }
    }

    /// The block of `slot` was retrieved: it moves to the top of the stack, and to its level. `now` numbers this reference; numbers grow.
    pub(crate) fn place(&mut self, slot: Slot, retrieve: Retrieve, now: u64, moves: &mut Vec<Move>) {
        assert!(now > self.now, "references have growing numbers");
        self.now = now;
        let Known { transit, .. } = *self.known.own(slot);
        // Blocks of the first level have no such number.
        self.counts.transit += u64::from(transit != 0 && self.entered.wrapping_sub(transit) < TRANSIT);
        self.leave(slot);
        let transit = if retrieve.to == Some(0) {
            0
        } else {
            self.entered = self.entered.wrapping_add(1).max(1);
            self.entered
        };
        let level = retrieve.to.unwrap_or(OUT);
        let stream = self.number(level) as u8;
        *self.known.own_mut(slot) = Known { last: self.now, transit, level, stream };
        self.enter(slot, level);
        if let Some(to) = retrieve.to {
            self.make_room(usize::from(to), moves);
        }
        self.prune(moves);
        self.counts.count(retrieve);
    }

    /// `level` no longer has the block of `slot`, if it had it. Blocks that the stack forgets are added to `moves`.
    pub fn lose(&mut self, slot: Slot, level: Level, moves: &mut Vec<Move>) {
        if self.known.own(slot).level == level {
            if !self.misplace(slot, PASSED_MOST) {
                self.forget(slot, moves);
            }
            self.prune(moves);
        }
    }

    /// The last level no longer has the block of `slot`, as other clients have its place. It is pruned later.
    pub(crate) fn lose_lowest(&mut self, slot: Slot) {
        if usize::from(self.known.own(slot).level) + 1 == self.blocks.len() {
            self.misplace(slot, u32::MAX);
        }
    }

    /// `slot`, which is at a level, is cached at none from now on. Passes at most this many others that got lost, on the way to its place among
    /// them from either end. Returns whether it got there; then or otherwise, it is in the list.
    fn misplace(&mut self, slot: Slot, most: u32) -> bool {
        self.leave(slot);
        let levels = self.blocks.len();
        let known = self.known.own_mut(slot);
        (known.level, known.stream) = (OUT, levels as u8 + 1);
        let last = known.last;
        self.ghosts += 1;
        let list = &mut self.lists[start(levels) + levels + 1];
        let (mut front, mut back) = (list.front(&self.known), list.back(&self.known));
        for _ in 0..most {
            let is_newer = front.is_none_or(|at| self.known.own(at).last < last);
            let older = back.filter(|&at| self.known.own(at).last > last);
            if is_newer || older.is_some() {
                let next = if is_newer { front } else { older.and_then(|at| list.after(&self.known, at)) };
                match next {
                    Some(next) => list.insert_before(&mut self.known, slot, next),
                    None => list.push_back(&mut self.known, slot),
                }
                return true;
            }
            front = front.and_then(|at| list.after(&self.known, at));
            back = back.and_then(|at| list.before(&self.known, at));
        }
        list.push_front(&mut self.known, slot);
        false
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The blocks at `level`, the most recently referenced first. Looks at all of them.
    pub(crate) fn at(&self, level: Level) -> Vec<Slot> {
        let at = usize::from(level);
        let mut slots: Vec<Slot> =
            self.lists[start(at)..=start(at) + at].iter().flat_map(|list| list.iter(&self.known)).collect();
        slots.sort_unstable_by_key(|&slot| std::cmp::Reverse(self.last(slot)));
        slots
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

    /// Removes what lies below all yardsticks: no such block would be cached if it were referenced. Then those that are too many.
    fn prune(&mut self, moves: &mut Vec<Move>) {
        let yardsticks = (0..self.blocks.len()).filter_map(|level| self.oldest(level));
        let needed = yardsticks.map(|slot| self.last(slot)).min().unwrap_or(u64::MAX).min(self.floor);
        let is_past = |ulc: &Ulc, slot| ulc.last(slot) < needed || ulc.ghosts > ulc.ghosts_most;
        while let Some(oldest) = self.oldest(self.blocks.len()).filter(|&slot| is_past(self, slot)) {
            self.forget(oldest, moves);
        }
    }

    /// `slot`, which is cached at no level, leaves the stack.
    fn forget(&mut self, slot: Slot, moves: &mut Vec<Move>) {
        self.leave(slot);
        *self.known.own_mut(slot) = Known::default();
        moves.push(Move::Forget(slot));
    }
}

impl Tier for Ulc {
    fn reference(&mut self, slot: Slot, moves: &mut Vec<Move>) -> Retrieve {
        let retrieve = self.decide(slot);
        self.apply(slot, slot.0.into(), retrieve, moves);
        retrieve
    }

    fn remove(&mut self, slot: Slot, moves: &mut Vec<Move>) {
        if self.last(slot) != 0 {
            self.leave(slot);
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
        let levels = self.blocks.len();
        for at in 0..=levels {
            let streams = if at < levels { at + 1 } else { at + 2 };
            let mut count = 0;
            for (stream, list) in self.lists[start(at)..][..streams].iter().enumerate() {
                let slots = list.checked(&self.known);
                count += slots.len();
                let is_sorted = slots.is_sorted_by_key(|&slot| std::cmp::Reverse(self.last(slot)));
                assert!(is_sorted, "the stack is out of order");
                for slot in slots {
                    let Known { last, level, stream: of, .. } = *self.known.own(slot);
                    assert!(last > 0 && self.number(level) == at && usize::from(of) == stream, "a block is elsewhere");
                }
            }
            let counted = *self.blocks.get(at).unwrap_or(&self.ghosts);
            assert_eq!(count, counted as usize, "level {at} is miscounted");
            if at < levels {
                assert!(counted <= self.capacities[at].max(self.left_over[at]), "level {at} holds too much");
            }
        }
        assert!(self.ghosts <= self.ghosts_most, "the stack is too long");
    }
}
