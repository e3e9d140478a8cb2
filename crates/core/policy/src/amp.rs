//! AMP: each program context has its own partition and replacement policy (Zhou, von Behren, Brewer: AMP: Program Context
//! Specific Buffer Caching, USENIX Annual Technical Conference 2005).
//!
//! * Contexts: the code that issues a reference, by its stack (`Access::stream`).
//! * Detection: the access recency R of a reference to a block that its context referenced before. In the order in which
//!   the n blocks of the context were last used, R = p / (n - 1), where p of them were used before this block. Thus R is 0
//!   in a loop, 1 if the latest block is used again, and 1/2 on average if blocks are chosen at random. The average of R
//!   decides: one-shot (no block is used again) and looping contexts are served by MRU, temporally clustered ones by LRU,
//!   probabilistic ones by LFU. R needs neither block numbers nor files.
//! * Allocation: a partition whose ghosts are hit becomes larger at the cost of a partition that is chosen at random.
//!
//! Sources: the abstract, and what later papers say of AMP. The full text was not available, so that sections are not
//! cited, and the form of R is itself a reading. Readings, where the sources are silent:
//!
//! * R is averaged exponentially; the latest has a weight of 1/32, as has the latest reference in the share of
//!   references that are to known blocks of the context. A context is one-shot if that share is below 0.1; looping if
//!   the average R is below 0.4, clustered if it is above 0.6, and otherwise probabilistic.
//! * A block belongs to the context that referenced it last. If another context references it, R is not defined.
//! * LFU counts the references to a block while it is resident, up to 8; among equals, the least recently used leaves.
//! * Each partition has a target. While the targets together are less than the cache, each block that enters raises its
//!   context's target by one. A hit of a ghost moves the target of the partition that it left by ARC's rule: by 1, or by
//!   the quotient of the numbers of ghosts, if the other partition has more. The other one is chosen with a probability in
//!   proportion to its target. The generator is SplitMix64, and starts at 0.
//! * The partition that exceeds its target most loses a block.
//! * There are as many ghosts as the cache has blocks, as in ARC; the oldest one is forgotten, whatever its partition.
//! * If the cache becomes smaller than half of the targets, all targets are halved.
//!
//! Deviation: at most 1023 contexts are distinguished; further ones count as one.

use crate::codes::{CODES, Codes};
use crate::fenwick::Fenwick;
use crate::heap::Heap;
use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::split_mix::SplitMix64;
use crate::values::HISTORY;
use crate::{Access, Policy, Room, Slot};

/// References that are counted.
const COUNTS: usize = 8;

/// Weight of the latest value in an average.
const WEIGHT: f64 = 1.0 / 32.0;

/// Share of references to known blocks below which a context is one-shot.
const ONE_SHOT: f64 = 0.1;

/// The average R below which a context loops, and above which it is clustered.
const LOOPING: f64 = 0.4;
const CLUSTERED: f64 = 0.6;

/// The least number of places in a history.
const PLACES_LEAST: usize = 64;

/// A place in a history that no slot has.
const EMPTY: u32 = u32::MAX;

/// Bits of a key that number the context.
const CONTEXT_BITS: u32 = 10;

/// Place of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Place {
    #[default]
    None,
    Resident,
    Ghost,
}

/// State of a slot.
#[derive(Clone, Copy, Default)]
struct Own {
    place: Place,
    /// References since it is resident, less one, up to `COUNTS` - 1.
    count: u8,
    /// The context that referenced it last.
    context: u16,
    /// Its place in the history of that context.
    at: u32,
}

/// How a context uses its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    OneShot,
    Looping,
    Clustered,
    Probabilistic,
}

const PATTERNS: [(Pattern, &str); 4] = [
    (Pattern::OneShot, "one_shot"),
    (Pattern::Looping, "looping"),
    (Pattern::Clustered, "clustered"),
    (Pattern::Probabilistic, "probabilistic"),
];

/// The known blocks of a context in the order in which they were last used, the oldest first.
///
/// Places are handed out in ascending order. When they are used up, the occupied ones move together, into twice as many:
/// O(1) a reference, amortized.
struct History {
    /// For each place, its slot or `EMPTY`.
    slots: Vec<u32>,
    /// For each place, 1 if it has a slot.
    occupied: Fenwick,
    /// Places that were handed out.
    used: usize,
    len: u32,
}

impl History {
    fn new() -> History {
        History::of(Vec::new())
    }

    fn of(mut slots: Vec<u32>) -> History {
        let used = slots.len();
        slots.resize((2 * used).max(PLACES_LEAST), EMPTY);
        let occupied = Fenwick::new(slots.iter().map(|&slot| u32::from(slot != EMPTY)));
        History { slots, occupied, used, len: used as u32 }
    }

    /// Adds `slot` as the latest.
    fn push(&mut self, links: &mut Links<Own>, slot: Slot) {
        if self.used == self.slots.len() {
            *self = History::of(self.slots.iter().copied().filter(|&slot| slot != EMPTY).collect());
            for (at, &slot) in self.slots[..self.used].iter().enumerate() {
                links.own_mut(Slot(slot)).at = at as u32;
            }
        }
        links.own_mut(slot).at = self.used as u32;
        self.slots[self.used] = slot.0;
        self.occupied.add(self.used, 1);
        self.used += 1;
        self.len += 1;
    }

    fn remove(&mut self, at: u32) {
        self.slots[at as usize] = EMPTY;
        self.occupied.subtract(at as usize, 1);
        self.len -= 1;
    }

    /// The access recency of the slot at this place; `None` if no other one is known.
    fn recency(&self, at: u32) -> Option<f64> {
        (self.len > 1).then(|| f64::from(self.occupied.before(at as usize)) / f64::from(self.len - 1))
    }
}

/// A context and its partition.
struct Context {
    history: History,
    /// The average R.
    recency: Option<f64>,
    /// The average share of references to known blocks.
    known: f64,
    /// Its resident blocks by their counts, the most recently used first.
    blocks: [List; COUNTS],
    resident: u32,
    ghosts: u32,
    target: u32,
    /// Its key in the heap, if it has blocks.
    key: Option<u64>,
}

impl Context {
    fn pattern(&self) -> Pattern {
        match self.recency {
            Some(recency) if self.known >= ONE_SHOT => match recency {
                _ if recency < LOOPING => Pattern::Looping,
                _ if recency > CLUSTERED => Pattern::Clustered,
                _ => Pattern::Probabilistic,
            },
            _ => Pattern::OneShot,
        }
    }
}

/// AMP's replacement.
pub struct Amp {
    links: Links<Own>,
    /// The latest first.
    ghosts: List,
    contexts: Vec<Context>,
    numbers: Codes,
    /// Contexts with blocks; the one that exceeds its target most on top.
    order: Heap,
    /// The contexts' targets, and their sum.
    targets: Fenwick,
    targets_sum: u32,
    random: SplitMix64,
    capacity: u32,
    history: Portion,
    ghosts_most: u32,
    forgotten: Vec<Slot>,
}

impl Configured for Amp {
    const INFO: Info = Info {
        name: "amp",
        summary: "each piece of code has a partition with MRU, LRU or LFU, by how recent the blocks are that it reuses",
        paper: "Zhou, von Behren, Brewer, AMP: Program Context Specific Buffer Caching, USENIX ATC 2005",
        params: &[Param {
            published: None,
            key: "ghosts",
            default: "1",
            values: HISTORY,
            doc: "blocks remembered after they left, in multiples of the cache",
        }],
        offline: false,
        spatial: false,
        streams: true,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<Amp, SpecError> {
        let (links, [ghosts]) = Links::with_own(setup.slots);
        let history = params.history()?;
        let mut amp = Amp {
            links,
            ghosts,
            contexts: Vec::new(),
            numbers: Codes::new(),
            order: Heap::new(CODES as u32, 0),
            targets: Fenwick::new([0; CODES]),
            targets_sum: 0,
            random: SplitMix64::new(0),
            capacity: setup.capacity,
            history,
            ghosts_most: history.of(setup.capacity, 0, setup.ghosts),
            forgotten: Vec::new(),
        };
        // That of all others.
        amp.add();
        Ok(amp)
    }
}

impl Amp {
    fn add(&mut self) {
        let blocks = std::array::from_fn(|_| self.links.list());
        let history = History::new();
        let (recency, known, resident, ghosts, target, key) = (None, 0.0, 0, 0, 0, None);
        self.contexts.push(Context { history, recency, known, blocks, resident, ghosts, target, key });
    }

    fn reference(&mut self, slot: Slot, access: &Access) {
        let number = self.numbers.number(access.stream.0);
        if usize::from(number) == self.contexts.len() {
            self.add();
        }
        let Own { place, count, context: before, at } = *self.links.own(slot);
        let context = &mut self.contexts[usize::from(number)];
        let is_known = place != Place::None && before == number;
        context.known += (f64::from(u8::from(is_known)) - context.known) * WEIGHT;
        if is_known && let Some(recency) = context.history.recency(at) {
            let average = context.recency.unwrap_or(recency);
            context.recency = Some(average + (recency - average) * WEIGHT);
        }
        if place == Place::Ghost {
            self.adapt(before);
        }
        self.leave(slot);
        let count = if place == Place::Resident { (count + 1).min(COUNTS as u8 - 1) } else { 0 };
        *self.links.own_mut(slot) = Own { place: Place::Resident, count, context: number, at: 0 };
        let context = &mut self.contexts[usize::from(number)];
        context.history.push(&mut self.links, slot);
        context.blocks[usize::from(count)].push_front(&mut self.links, slot);
        context.resident += 1;
        if place != Place::Resident && self.targets_sum < self.capacity {
            context.target += 1;
            self.targets.add(number.into(), 1);
            self.targets_sum += 1;
        }
        self.arrange(number);
        if place == Place::Resident && before != number {
            self.arrange(before);
        }
    }

    /// Moves a part of another target to that of `context`, one of whose ghosts is hit.
    fn adapt(&mut self, context: u16) {
        if self.targets_sum == 0 {
            return;
        }
        let unit = self.random.next() % u64::from(self.targets_sum);
        let from = self.targets.exceeds(unit as u32);
        let to = usize::from(context);
        if from == to {
            return;
        }
        let step = (self.contexts[from].ghosts / self.contexts[to].ghosts).clamp(1, self.contexts[from].target);
        self.contexts[from].target -= step;
        self.contexts[to].target += step;
        self.targets.subtract(from, step);
        self.targets.add(to, step);
        self.arrange(from as u16);
        self.arrange(context);
    }

    /// Takes `slot` out of its list and its context's history. The context is to be arranged if the slot was resident.
    fn leave(&mut self, slot: Slot) {
        let Own { place, count, context, at } = *self.links.own(slot);
        let context = &mut self.contexts[usize::from(context)];
        match place {
            Place::None => return,
            Place::Resident => {
                context.blocks[usize::from(count)].unlink(&mut self.links, slot);
                context.resident -= 1;
            }
            Place::Ghost => {
                self.ghosts.unlink(&mut self.links, slot);
                context.ghosts -= 1;
            }
        }
        context.history.remove(at);
    }

    /// Moves context `number` to its place in the order of eviction, after its blocks or its target changed.
    fn arrange(&mut self, number: u16) {
        let key = self.key(number);
        self.order.arrange(Slot(number.into()), &mut self.contexts[usize::from(number)].key, key);
    }

    /// The place of context `number` in the order of eviction, by how much it exceeds its target.
    fn key(&self, number: u16) -> Option<u64> {
        let Context { resident, target, .. } = self.contexts[usize::from(number)];
        let missing = (1 << 32) + u64::from(target) - u64::from(resident);
        (resident > 0).then_some(missing << CONTEXT_BITS | u64::from(number))
    }

    /// The block of context `number` that its policy evicts.
    fn victim(&self, number: u16) -> Slot {
        let context = &self.contexts[usize::from(number)];
        let at = |slot: &Slot| self.links.own(*slot).at;
        let fronts = context.blocks.iter().filter_map(|list| list.front(&self.links));
        let mut backs = context.blocks.iter().filter_map(|list| list.back(&self.links));
        let victim = match context.pattern() {
            Pattern::OneShot | Pattern::Looping => fronts.max_by_key(at),
            Pattern::Clustered => backs.min_by_key(at),
            Pattern::Probabilistic => backs.next(),
        };
        victim.expect("contexts in the order have blocks")
    }

    fn pop(&mut self) -> Slot {
        let (_, Slot(number)) = self.order.least().expect("a block is resident");
        let victim = self.victim(number as u16);
        let count = self.links.own(victim).count;
        let context = &mut self.contexts[number as usize];
        context.blocks[usize::from(count)].unlink(&mut self.links, victim);
        context.resident -= 1;
        context.ghosts += 1;
        self.links.own_mut(victim).place = Place::Ghost;
        self.ghosts.push_front(&mut self.links, victim);
        self.arrange(number as u16);
        victim
    }

    fn limit_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_most {
            let oldest = self.ghosts.back(&self.links).expect("there are ghosts");
            self.leave(oldest);
            *self.links.own_mut(oldest) = Own::default();
            self.forgotten.push(oldest);
        }
    }
}

impl Policy for Amp {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.reference(slot, access);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.reference(slot, access);
        self.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.pop();
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        let lists = self.contexts.iter_mut().flat_map(|context| &mut context.blocks);
        self.links.grow(room.slots, std::iter::once(&mut self.ghosts).chain(lists));
        self.capacity = room.capacity;
        self.ghosts_most = self.history.of(room.capacity, 0, room.ghosts);
        while self.targets_sum / 2 >= room.capacity {
            self.contexts.iter_mut().for_each(|context| context.target /= 2);
            let targets = self.contexts.iter().map(|context| context.target);
            self.targets_sum = targets.clone().sum();
            self.targets = Fenwick::new(targets.chain(std::iter::repeat(0)).take(CODES));
            (0..self.contexts.len()).for_each(|number| self.arrange(number as u16));
        }
        self.limit_ghosts();
    }

    fn remove(&mut self, slot: Slot) {
        self.leave(slot);
        let Own { place, context, .. } = std::mem::take(self.links.own_mut(slot));
        if place == Place::Resident {
            self.arrange(context);
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
        let Own { context, at, .. } = self.links.own(slot);
        prefetch(&self.contexts[usize::from(*context)].history.slots, *at as usize);
    }

    fn check(&self) {
        let of = |place| self.links.owns().filter(|own| own.place == place).count();
        let mut resident = 0;
        let mut known = vec![0; self.contexts.len()];
        for own in self.links.owns().filter(|own| own.place != Place::None) {
            known[usize::from(own.context)] += 1;
        }
        for (number, context) in self.contexts.iter().enumerate() {
            let number = number as u16;
            let mut own_resident = 0;
            for (count, list) in context.blocks.iter().enumerate() {
                let blocks = list.checked(&self.links);
                let owns: Vec<&Own> = blocks.iter().map(|&slot| self.links.own(slot)).collect();
                let is_right =
                    |own: &&Own| (own.place, own.context, usize::from(own.count)) == (Place::Resident, number, count);
                assert!(owns.iter().all(is_right), "a block of another context or count");
                assert!(
                    owns.is_sorted_by(|later, earlier| later.at > earlier.at),
                    "blocks are not in the order of use"
                );
                own_resident += blocks.len();
            }
            assert_eq!(own_resident, context.resident as usize, "resident blocks are counted wrongly");
            resident += own_resident;
            assert_eq!(known[usize::from(number)], context.history.len, "a known block is not in the history");
            for (at, &slot) in context.history.slots.iter().enumerate().filter(|(_, slot)| **slot != EMPTY) {
                let own = self.links.own(Slot(slot));
                assert_eq!((own.context, own.at), (number, at as u32), "a block at a wrong place of the history");
            }
            assert_eq!(context.ghosts, context.history.len - context.resident, "ghosts are counted wrongly");
            assert_eq!(context.key, self.key(number), "the order of context {number} is old");
            let place = usize::from(number);
            let target = self.targets.before(place + 1) - self.targets.before(place);
            assert_eq!(context.target, target, "the target of context {number} differs");
        }
        assert_eq!(resident, of(Place::Resident), "a resident block in no list");
        assert_eq!(self.ghosts.checked(&self.links).len(), of(Place::Ghost), "a ghost in no list");
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
        assert_eq!(self.targets.before(CODES), self.targets_sum, "the sum of the targets is wrong");
        let mut keys: Vec<u64> = self.order.checked().map(|(key, _)| key).collect();
        keys.sort_unstable();
        let mut expected: Vec<u64> = self.contexts.iter().filter_map(|context| context.key).collect();
        expected.sort_unstable();
        assert_eq!(keys, expected, "a context that is not in the order, or twice");
        assert!(
            self.forgotten.iter().all(|&slot| self.links.own(slot).place == Place::None),
            "a known block is forgotten"
        );
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        for (pattern, name) in PATTERNS {
            let contexts = self.contexts.iter().filter(|context| context.pattern() == pattern);
            report(name, contexts.map(|context| u64::from(context.resident)).sum());
        }
    }
}
