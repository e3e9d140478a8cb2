//! Unified level-aware caching (ULC) as decider: it decides for memory and for all levels (`nigh-tier`). `placement.rs` has the
//! blocks follow. Numbers of sections are those of S. Jiang's dissertation (2004).

use std::collections::VecDeque;

use nigh_policy::{Access, Kind, Policy, Room, Setup, Slot, Spec};
use nigh_tier::{Move, Retrieve, Tier, Ulc};

use crate::config::Config;
use crate::error::ConfigError;
use crate::slots::{checked, ghosts_of};

/// Names of the gauges, by level.
const BLOCKS: [&str; 3] = ["memory", "level 1", "level 2"];
const DEMOTIONS: [&str; 3] = ["demotions to level 1", "demotions to level 2", ""];

/// The blocks that ULC keeps at a level of `places`. The others receive blocks before those that make room for them have left.
fn kept(places: u32) -> u32 {
    places - (places / 64).clamp(1, 1024).min(places - 1)
}

/// As [`Decider::ghosts`]: the blocks that only lower levels have, and those that no level has.
pub(crate) fn ghosts(spec: &Spec, levels: &[u32], capacity: u32) -> Result<u32, ConfigError> {
    let below: u64 = levels.iter().map(|&places| u64::from(kept(places))).sum();
    let all = u32::try_from(below + u64::from(capacity)).unwrap_or(u32::MAX);
    let below = u32::try_from(below).unwrap_or(u32::MAX);
    checked(below.saturating_add(ghosts_of(spec, all)?), capacity)
}

/// The most frames for blocks that are held, as a part of memory: one in this many. That is the usual limit of dirty blocks.
const RESERVE: u32 = 8;

fn bit(bits: &[u64], slot: Slot) -> bool {
    bits[slot.index() / 64] >> (slot.index() % 64) & 1 != 0
}

pub(crate) struct Unified {
    ulc: Ulc,
    spec: Spec,
    /// Frames of memory.
    capacity: u32,
    /// Those that level 0 does not have, for blocks that are held.
    reserve: u32,
    /// Blocks that belong elsewhere, but stay in memory until they are written, and by slot whether they do.
    held: u32,
    is_held: Vec<u64>,
    /// Since the last change of the reserve: the most that were held, and the blocks that were not in memory.
    held_most: u32,
    misses: u32,
    /// Places of the levels below memory.
    levels: Vec<u32>,
    /// Which of them are switched off.
    off: Vec<bool>,
    /// If others share the last level.
    shared: Option<Shared>,
    times: Times,
    /// Of the last reference.
    moves: Vec<Move>,
    /// Blocks that levels below memory have to pass on or to drop.
    orders: VecDeque<Slot>,
    forgotten: Vec<Slot>,
}

impl Unified {
    pub(crate) fn new(config: &Config, setup: &Setup) -> Result<Unified, ConfigError> {
        let (spec, levels) = (config.policy.clone(), config.levels.clone());
        let mut capacities = vec![setup.capacity];
        capacities.extend(levels.iter().map(|&places| kept(places)));
        Ok(Unified {
            ulc: Ulc::with(&spec, setup.slots, &capacities)?,
            capacity: setup.capacity,
            reserve: 0,
            held: 0,
            is_held: vec![0; setup.slots.div_ceil(64) as usize],
            held_most: 0,
            misses: 0,
            off: vec![false; levels.len()],
            shared: None,
            times: Times::default(),
            spec,
            levels,
            moves: Vec::new(),
            orders: VecDeque::new(),
            forgotten: Vec::new(),
        })
    }

    /// Limits the stack for the present capacity.
    fn limit(&mut self) {
        let below: u32 = self.levels.iter().map(|&places| kept(places)).sum();
        let all = ghosts(&self.spec, &self.levels, self.capacity).expect("it was asked before");
        self.ulc.limit_ghosts(all - below, &mut self.moves);
        self.settle();
    }

    /// Passes on what has to be done about the last moves. Returns the block that left memory.
    fn settle(&mut self) -> Option<Slot> {
        let mut left = None;
        let Unified { moves, is_held, orders, forgotten, .. } = self;
        for step in moves.drain(..) {
            match step {
                Move::Demote(slot, 0) | Move::Drop(slot, 0) => left = Some(slot),
                Move::Demote(slot, _) | Move::Drop(slot, _) => orders.push_back(slot),
                // One that is held is forgotten later.
                Move::Forget(slot) if bit(is_held, slot) => {}
                Move::Forget(slot) => forgotten.push(slot),
            }
        }
        left
    }

    /// Level 0 has the blocks that the reserve leaves. Its surplus stays until other blocks take its place.
    fn bound(&mut self) {
        let blocks = (self.capacity - self.reserve).max(self.ulc.blocks(0)).max(1);
        self.ulc.bound(0, blocks);
    }

    /// The request for the block of `slot`. A level that others share is full when they leave no room; then a block belongs there
    /// at least if it was referenced after the block that would leave next (section 5.3.2.2, and the deviation in
    /// `nigh_tier::UlcClients`).
    fn decide(&mut self, slot: Slot) -> Retrieve {
        self.bound();
        let Some(shared) = self.shared else { return self.ulc.decide(slot) };
        let last = self.levels.len() as u8;
        let most = if self.off[self.levels.len() - 1] { 1 } else { kept(self.levels[self.levels.len() - 1]) };
        self.ulc.bound(last, self.ulc.blocks(last).saturating_add(shared.free).clamp(1, most));
        self.ulc.set_floor(shared.floor);
        let retrieve = self.ulc.decide(slot);
        // The server makes room for whatever is directed there.
        self.ulc.bound(last, most);
        retrieve
    }

    /// References the block of `slot`. Returns the block that left memory.
    fn apply(&mut self, slot: Slot, access: &Access, retrieve: Retrieve) -> Option<Slot> {
        let block = u64::from(access.block.volume).rotate_right(20) ^ access.block.index;
        self.ulc.apply(slot, block, retrieve, &mut self.moves);
        if let Some(shared) = &mut self.shared {
            let above = self.levels.len() as u8 - 1;
            let sent = self.moves.iter().filter(|step| matches!(step, Move::Demote(_, from) if *from == above));
            let direct = retrieve.to == Some(above + 1) && retrieve.from != retrieve.to;
            shared.free = shared.free.saturating_sub(sent.count() as u32 + u32::from(direct));
        }
        self.settle()
    }

    /// Has `slot` stay in memory until it is written, if the reserve has room.
    fn hold(&mut self, slot: Slot) {
        if self.held >= self.reserve {
            if self.held >= self.capacity / RESERVE {
                return;
            }
            self.reserve = self.held + 1;
        }
        self.is_held[slot.index() / 64] |= 1 << (slot.index() % 64);
        self.held += 1;
        self.held_most = self.held_most.max(self.held);
    }

    /// `slot` is not held any more. Returns whether it was.
    fn clear_held(&mut self, slot: Slot) -> bool {
        let was = bit(&self.is_held, slot);
        if was {
            self.is_held[slot.index() / 64] &= !(1 << (slot.index() % 64));
            self.held -= 1;
        }
        was
    }

    /// If memory has more blocks than frames because of `incoming`: one that leaves.
    fn make_room(&mut self, incoming: Slot) -> Option<Slot> {
        let is_full = self.ulc.blocks(0) + self.held > self.capacity;
        is_full.then(|| {
            let is_needed = self.ulc.level(incoming) == Some(0) && self.ulc.blocks(0) == 1;
            if is_needed || self.ulc.blocks(0) == 0 { self.let_any_go(incoming) } else { self.shed() }
        })
    }

    /// A block other than `but` that is held.
    fn let_any_go(&mut self, but: Slot) -> Slot {
        let words = (0..).zip(&self.is_held);
        let mut slots = words.flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)))
                .take_while(|&word| word != 0)
                .map(move |word| Slot(at * 64 + word.trailing_zeros()))
        });
        let slot = slots.find(|&slot| slot != but).expect("another block is held");
        self.let_go(slot);
        slot
    }

    /// After as many misses as memory has frames, half of the reserve that nobody needed goes back to level 0.
    fn review_reserve(&mut self) {
        self.misses += 1;
        if self.misses >= self.capacity {
            let unused = self.reserve - self.held_most.min(self.reserve);
            self.reserve -= unused.div_ceil(2);
            (self.misses, self.held_most) = (0, self.held);
        }
    }
}

impl Policy for Unified {
    fn hit(&mut self, slot: Slot, access: &Access) {
        let retrieve = self.decide(slot);
        if retrieve.to == Some(0) && self.clear_held(slot) {
            // Its frame belongs to level 0 from now on.
            self.reserve = self.reserve.min(self.capacity - self.ulc.blocks(0) - 1);
            self.bound();
        }
        let left = self.apply(slot, access, retrieve);
        assert_eq!(left, None, "a hit has no frame to ask for");
    }

    /// The block that leaves memory, if any has to; [`Decider::stays`] decides whether `incoming` is kept in memory.
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.review_reserve();
        let retrieve = self.decide(incoming);
        let left = self.apply(incoming, access, retrieve);
        // Dirty blocks stay in memory until they are written.
        if retrieve.to != Some(0) && access.kind == Kind::Write {
            self.hold(incoming);
        }
        left.or_else(|| self.make_room(incoming))
    }

    /// `evict` has referenced it.
    fn insert(&mut self, slot: Slot, _access: &Access) {
        assert!(self.stays(slot), "it is kept in memory");
    }

    fn shed(&mut self) -> Slot {
        if self.held > self.reserve || self.ulc.blocks(0) == 0 {
            return self.let_any_go(Slot(u32::MAX));
        }
        self.ulc.shed(0, &mut self.moves);
        self.settle().expect("a block leaves memory")
    }

    fn resize(&mut self, room: Room) {
        self.ulc.grow(room.slots);
        self.is_held.resize(room.slots.div_ceil(64) as usize, 0);
        self.capacity = room.capacity;
        self.reserve = self.reserve.min(room.capacity / RESERVE);
        self.bound();
        self.limit();
    }

    fn remove(&mut self, slot: Slot) {
        self.clear_held(slot);
        self.ulc.remove(slot, &mut self.moves);
        self.settle();
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    fn check(&self) {
        self.ulc.check();
        let held: u32 = self.is_held.iter().map(|word| word.count_ones()).sum();
        assert_eq!(held, self.held, "held blocks are miscounted");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("known", self.ulc.known().into());
        report("held", self.held.into());
        report("reserve", self.reserve.into());
        for (level, name) in (0..).zip(&BLOCKS[..=self.levels.len()]) {
            report(name, self.ulc.blocks(level).into());
        }
        for (name, &demotions) in DEMOTIONS.iter().zip(&self.ulc.counts().demotions[..self.levels.len()]) {
            report(name, demotions);
        }
    }
}

impl Unified {
    /// Whether levels that are switched off are not empty.
    pub(crate) fn has_lost_levels(&self) -> bool {
        (0..).zip(&self.off).any(|(at, &off)| off && self.ulc.blocks(at + 1) > 1)
    }

    /// Removes at most `most` blocks from each level that is switched off: they would otherwise be looked for there in vain.
    pub(crate) fn empty_lost_levels(&mut self, most: u32) {
        for at in 0..self.off.len() {
            let level = at as u8 + 1;
            for _ in 0..most {
                if self.off[at] && self.ulc.blocks(level) > 1 {
                    self.ulc.shed(level, &mut self.moves);
                }
            }
        }
        self.settle();
    }

    /// The level to which the block of `slot` belongs: 0 is memory, others are levels, counted from 1.
    pub(crate) fn level(&self, slot: Slot) -> Option<usize> {
        self.ulc.level(slot).map(usize::from)
    }

    /// Whether the block of `slot`, for which a decider for all levels was asked to `evict` just before, is kept in memory.
    pub(crate) fn stays(&self, slot: Slot) -> bool {
        bit(&self.is_held, slot) || self.ulc.level(slot) == Some(0)
    }

    /// The block of `slot`, if it belongs elsewhere and was kept in memory until it is written, is kept no longer. Returns whether it was so.
    pub(crate) fn let_go(&mut self, slot: Slot) -> bool {
        let held = self.clear_held(slot);
        if held && !self.ulc.knows(slot) {
            self.forgotten.push(slot);
        }
        held
    }

    /// The next block that a level below memory has to pass on or to drop. To be asked before slots are used again.
    pub(crate) fn next_order(&mut self) -> Option<Slot> {
        self.orders.pop_front()
    }

    /// `level` does not have the block of `slot`.
    pub(crate) fn lose(&mut self, slot: Slot, level: usize) {
        self.ulc.lose(slot, level as u8, &mut self.moves);
        self.settle();
    }

    /// A reference may follow at this time.
    pub(crate) fn note_time(&mut self, now: u64) {
        if self.shared.is_some() {
            self.times.note(self.ulc.now(), now);
        }
    }

    /// How long ago the block of `slot` was referenced, in µs.
    pub(crate) fn age_us(&self, slot: Slot, now: u64) -> u64 {
        now.saturating_sub(self.times.time(self.ulc.last(slot)))
    }

    /// Notes the state of the last level, which is shared: its free room in blocks, and the age of the block that would leave next.
    pub(crate) fn share(&mut self, now: u64, free: u32, oldest_us: Option<u64>) {
        // While there is room, it is a level as any other.
        let oldest_us = oldest_us.filter(|_| free == 0);
        let floor = oldest_us.map_or(u64::MAX, |age| self.times.number(now.saturating_sub(age)));
        self.shared = Some(Shared { free, floor });
    }

    /// `level` is switched off.
    pub(crate) fn lose_level(&mut self, level: usize) {
        self.off[level - 1] = true;
        self.ulc.bound(level as u8, 1);
    }

    /// `level` has the block of `slot` from an earlier run. Returns whether it belongs there.
    pub(crate) fn restore(&mut self, slot: Slot, level: usize) -> bool {
        self.ulc.restore(slot, level as u8)
    }
}

/// The state of the last level, if others share it.
#[derive(Clone, Copy)]
struct Shared {
    /// Blocks that fit in before one leaves.
    free: u32,
    /// The number of the first reference after that to the block that would leave next.
    floor: u64,
}

/// When references were made, so that their ages can be compared with those of other clients: the older, the less precisely. Numbers and
/// times both grow.
#[derive(Default)]
struct Times {
    /// Number and time, in µs. Each list has every second one of those that left the list before it, which is newer.
    known: Vec<Thinned>,
    last: Option<(u64, u64)>,
}

#[derive(Default)]
struct Thinned {
    times: VecDeque<(u64, u64)>,
    leaves_out: bool,
}

/// The most times in a list, and how far apart new ones are at least, in µs.
const TIMES: usize = 256;
const TIMES_APART_US: u64 = 10_000;

impl Times {
    fn note(&mut self, number: u64, now: u64) {
        if self.last.is_some_and(|(last, time)| last >= number || time + TIMES_APART_US > now) {
            return;
        }
        self.last = Some((number, now));
        let mut next = self.last;
        let mut at = 0;
        while let Some(time) = next.take() {
            if at == self.known.len() {
                self.known.push(Thinned::default());
            }
            let Thinned { times, leaves_out } = &mut self.known[at];
            times.push_back(time);
            if times.len() > TIMES {
                *leaves_out = !*leaves_out;
                next = times.pop_front().filter(|_| *leaves_out);
            }
            at += 1;
        }
    }

    /// The oldest known that is not before what `is_before` looks for.
    fn first(&self, is_before: impl Fn(&(u64, u64)) -> bool) -> Option<(u64, u64)> {
        let lists = self.known.iter().rev().map(|list| &list.times);
        let mut found = lists.filter_map(|times| times.get(times.partition_point(&is_before)));
        found.next().copied()
    }

    /// When reference `number` was made, or a little later.
    fn time(&self, number: u64) -> u64 {
        self.first(|&(known, _)| known < number).or(self.last).map_or(0, |(_, time)| time)
    }

    /// The number of the first reference after `time`, or a later one.
    fn number(&self, time: u64) -> u64 {
        self.first(|&(_, known)| known < time).map_or(u64::MAX, |(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_references_are_known_less_precisely_the_older_they_are() {
        let mut times = Times::default();
        assert_eq!((times.time(5), times.number(5)), (0, u64::MAX));
        for at in 0..100_000u64 {
            times.note(at * 10, at * 20_000);
        }
        assert!(times.known.len() < 12);
        assert_eq!((times.time(999_990), times.number(1_999_980_000)), (1_999_980_000, 999_990));
        for number in [10, 1000, 50_000, 400_000, 990_000] {
            let (time, exact) = (times.time(number), number * 2000);
            let age = 2_000_000_000 - exact;
            assert!((exact..exact + age / 20).contains(&time), "{number}: {time}, not {exact}");
            assert!((number..=number + age / 40_000).contains(&times.number(exact)));
        }
    }
}
