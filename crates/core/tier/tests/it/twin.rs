//! [`Ulc`] and [`UniLru`] against naive transcriptions of sections 5.3.2.1 and 5.1.2, reference by reference.

use std::collections::VecDeque;

use nigh_policy::Slot;
use nigh_testkit::workload;
use nigh_tier::{First, LEVELS_MAX, Move, Retrieve, Tier, Ulc, UniLru};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The text in the plainest data: one stack, everything else is counted in it.
struct Naive {
    /// Block and level status, the most recently referenced first.
    stack: VecDeque<(u32, Option<usize>)>,
    capacities: Vec<usize>,
    /// The most blocks without a level status.
    ghosts: usize,
}

impl Naive {
    fn new(capacities: &[u32], ghosts: usize) -> Naive {
        let capacities = capacities.iter().map(|&blocks| blocks as usize).collect();
        Naive { stack: VecDeque::new(), capacities, ghosts }
    }

    fn yardstick(&self, level: usize) -> Option<usize> {
        self.stack.iter().rposition(|&(_, status)| status == Some(level))
    }

    fn is_full(&self, level: usize) -> bool {
        self.stack.iter().filter(|&&(_, status)| status == Some(level)).count() >= self.capacities[level]
    }

    fn prune(&mut self) {
        while self.stack.back().is_some_and(|(_, status)| status.is_none()) {
            self.stack.pop_back();
        }
        while self.stack.iter().filter(|(_, status)| status.is_none()).count() > self.ghosts {
            let oldest = self.stack.iter().rposition(|(_, status)| status.is_none()).unwrap();
            self.stack.remove(oldest);
        }
    }

    /// The block is at its level no more.
    fn lose(&mut self, block: u32) {
        self.stack.iter_mut().filter(|(other, _)| *other == block).for_each(|(_, status)| *status = None);
        self.prune();
    }

    /// Its level before and after the reference, and the blocks that went one level down.
    fn reference(&mut self, block: u32) -> (Option<usize>, Option<usize>, Vec<(u32, usize)>) {
        let place = self.stack.iter().position(|&(other, _)| other == block);
        let from = place.and_then(|place| self.stack[place].1);
        let recency = (0..self.capacities.len()).find(|&level| {
            !self.is_full(level) || place.is_some_and(|place| self.yardstick(level).is_some_and(|at| place <= at))
        });
        let to = match (from, recency) {
            (Some(from), Some(recency)) => Some(from.min(recency)),
            (from, recency) => from.or(recency),
        };
        if let Some(place) = place {
            self.stack.remove(place);
        }
        self.stack.push_front((block, to));
        let mut demoted = Vec::new();
        for level in 0..self.capacities.len() {
            let held = self.stack.iter().filter(|&&(_, status)| status == Some(level)).count();
            if held > self.capacities[level] {
                let place = self.yardstick(level).unwrap();
                let below = Some(level + 1).filter(|&below| below < self.capacities.len());
                self.stack[place].1 = below;
                if below.is_some() {
                    demoted.push((self.stack[place].0, level));
                }
            }
        }
        self.prune();
        (from, to, demoted)
    }
}

/// One LRU stack, cut by positions.
struct Cut {
    stack: VecDeque<u32>,
    capacities: Vec<usize>,
}

impl Cut {
    fn level(&self, place: usize) -> Option<usize> {
        let mut end = 0;
        self.capacities.iter().position(|capacity| {
            end += capacity;
            place < end
        })
    }

    fn reference(&mut self, block: u32) -> (Option<usize>, Option<usize>, Vec<(u32, usize)>) {
        let before: Vec<(u32, Option<usize>)> =
            self.stack.iter().enumerate().map(|(place, &other)| (other, self.level(place))).collect();
        let from = before.iter().find(|&&(other, _)| other == block).and_then(|&(_, level)| level);
        self.stack.retain(|&other| other != block);
        self.stack.push_front(block);
        let mut demoted = Vec::new();
        for (place, &other) in self.stack.iter().enumerate() {
            let was = before.iter().find(|&&(known, _)| known == other).and_then(|&(_, level)| level);
            if let (Some(was), Some(now)) = (was, self.level(place))
                && other != block
                && now > was
            {
                demoted.push((other, was));
            }
        }
        self.stack.truncate(self.capacities.iter().sum());
        (from, Some(0), demoted)
    }
}

fn found(retrieve: Retrieve, moves: &[Move]) -> (Option<usize>, Option<usize>, Vec<(u32, usize)>) {
    let demoted = moves.iter().filter_map(|step| match *step {
        Move::Demote(slot, from) => Some((slot.0, usize::from(from))),
        _ => None,
    });
    (retrieve.from.map(usize::from), retrieve.to.map(usize::from), demoted.collect())
}

/// Level sizes of all kinds: one level, equal ones, small above large, large above small, of one block.
const SIZES: [&[u32]; 6] = [&[7], &[8, 8, 8], &[2, 5, 30], &[30, 5, 2], &[1, 1], &[3, 1, 4, 1, 5]];

fn same<T: Tier>(
    mut tier: T,
    mut naive: impl FnMut(u32) -> (Option<usize>, Option<usize>, Vec<(u32, usize)>),
    seed: u64,
) -> T {
    let mut moves = Vec::new();
    let mut demotions = [0; LEVELS_MAX];
    let references = workload::mixed(seed, 64, 4000);
    for (at, &block) in references.iter().enumerate() {
        let slot = Slot(block as u32);
        moves.clear();
        let own = found(tier.reference(slot, &mut moves), &moves);
        assert_eq!(own, naive(slot.0), "reference {at} of seed {seed} to {block}");
        own.2.iter().for_each(|&(_, from)| demotions[from] += 1);
        assert_eq!(tier.level(slot).map(usize::from), own.1);
        if at % 16 == 0 {
            tier.check();
        }
    }
    let counts = tier.counts();
    assert_eq!((counts.references, counts.demotions), (references.len() as u64, demotions));
    tier
}

#[test]
fn ulc_follows_the_text() {
    for (seed, capacities) in (0..).zip(SIZES.iter().cycle().take(48)) {
        let mut naive = Naive::new(capacities, usize::MAX);
        same(Ulc::new(64, capacities), |block| naive.reference(block), seed);
    }
}

#[test]
fn a_limited_stack_forgets_what_was_referenced_first() {
    for (seed, capacities) in (0..).zip(SIZES.iter().cycle().take(48)) {
        let ghosts = [1, 2, 5, 20][seed as usize % 4];
        let mut naive = Naive::new(capacities, ghosts);
        let mut ulc = Ulc::new(64, capacities);
        ulc.limit_ghosts(ghosts as u32, &mut Vec::new());
        let ulc = same(ulc, |block| naive.reference(block), seed);
        assert_eq!(ulc.known() as usize, naive.stack.len());
    }
}

/// Levels that lose blocks, as live ones do.
#[test]
fn what_a_level_loses_is_a_miss() {
    for (seed, capacities) in (0..).zip(SIZES.iter().cycle().take(48)) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut naive = Naive::new(capacities, 7);
        let mut ulc = Ulc::new(64, capacities);
        let mut moves = Vec::new();
        ulc.limit_ghosts(7, &mut moves);
        for block in workload::mixed(seed, 64, 3000) {
            let slot = Slot(block as u32);
            let lost = Slot(random.random_range(0..64));
            if let Some(level) = ulc.level(lost).filter(|_| random.random_bool(0.1)) {
                ulc.lose(lost, level, &mut moves);
                naive.lose(lost.0);
            }
            moves.clear();
            assert_eq!(found(ulc.reference(slot, &mut moves), &moves), naive.reference(slot.0), "seed {seed}");
            ulc.check();
            assert_eq!(ulc.known() as usize, naive.stack.len());
        }
    }
}

/// The trial of what to do with unknown blocks chooses the level for blocks that are used twice soon, and none for a loop.
#[test]
fn a_sample_decides_where_unknown_blocks_begin() {
    let begins = |references: &mut dyn Iterator<Item = u32>| {
        let mut ulc = Ulc::with(&"ulc".parse().unwrap(), 40_000, &[200, 1000]).unwrap();
        let mut moves = Vec::new();
        for block in references {
            moves.clear();
            ulc.reference(Slot(block), &mut moves);
        }
        ulc.check();
        (ulc.begins(), ulc.counts().misses())
    };
    // Each block comes again after 300 others, once.
    let twice = |first: u32| (300..35_000).flat_map(move |at| [at + first, at + first - 300]);
    let (first, misses) = begins(&mut twice(0));
    assert_eq!(first, First::Last);
    assert!(misses < 42_000, "{misses} of 69,400 references");
    let (first, _) = begins(&mut (0..100_000).map(|at| at % 2500));
    assert_eq!(first, First::Out);
}

/// Blocks of an earlier run are below everything else, in the order in which they are restored.
#[test]
fn a_restart_goes_on_with_what_levels_hold() {
    let mut ulc = Ulc::with(&"ulc:ghosts=0.5:first=out".parse().unwrap(), 16, &[2, 2, 3]).unwrap();
    let mut moves = Vec::new();
    let restored = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)].map(|(slot, level)| ulc.restore(Slot(slot), level));
    assert_eq!(restored, [true, true, false, true, true], "a level takes no more than it has room for");
    ulc.check();
    assert_eq!(ulc.reference(Slot(4), &mut moves), Retrieve { from: Some(2), to: Some(0) });
    assert_eq!(ulc.reference(Slot(8), &mut moves), Retrieve { from: None, to: Some(0) });
    assert_eq!(ulc.reference(Slot(0), &mut moves), Retrieve { from: Some(1), to: Some(1) }, "older than all above");
    assert_eq!(ulc.reference(Slot(0), &mut moves), Retrieve { from: Some(1), to: Some(0) });
    assert_eq!(moves, [Move::Demote(Slot(4), 0)]);
    ulc.check();
}

#[test]
fn unified_lru_is_one_stack() {
    for (seed, capacities) in (0..).zip(SIZES.iter().cycle().take(48)) {
        let capacities_of = capacities.iter().map(|&blocks| blocks as usize).collect();
        let mut naive = Cut { stack: VecDeque::new(), capacities: capacities_of };
        same(UniLru::new(64, capacities), |block| naive.reference(block), seed);
    }
}

/// Blocks are removed and levels resized between references: nothing else is lost, and no level is ever too full.
#[test]
fn removals_and_sizes_keep_the_invariants() {
    for seed in 0..20 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut ulc = Ulc::new(64, &[4, 6, 8]);
        let mut moves = Vec::new();
        let mut known = [false; 64];
        for _ in 0..3000 {
            let slot = Slot(random.random_range(0..64));
            match random.random_range(0..20) {
                0 => {
                    ulc.remove(slot, &mut moves);
                    known[slot.index()] = false;
                    assert_eq!(ulc.level(slot), None);
                }
                1 => ulc.resize(random.random_range(0..3), random.random_range(1..16), &mut moves),
                _ => {
                    ulc.reference(slot, &mut moves);
                    known[slot.index()] = true;
                }
            }
            for step in moves.drain(..) {
                if let Move::Forget(slot) = step {
                    known[slot.index()] = false;
                }
            }
            ulc.check();
            assert_eq!(ulc.known() as usize, known.iter().filter(|&&known| known).count());
        }
    }
}
