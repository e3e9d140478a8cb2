//! W-TinyLFU: a block enters through a small LRU window, and stays only if it was recently referenced more often than
//! the block that would leave in its place.
//!
//! The frequencies come from TinyLFU: a count-min sketch of 4-bit counters, all halved after every sample of
//! references. The main cache is a segmented LRU (SLRU) of a probation and a protected segment.
//!
//! Deviations:
//! * The four counters of a block are in one 64-byte line of the sketch, each in another quarter of it, so that a
//!   reference costs one load from memory. The paper's rows are independent.
//! * There is no doorkeeper, the Bloom filter that the paper puts before the sketch to save space.
//! * A miss is counted when its block enters, after the contest that makes room for it; the block does not take part in
//!   that contest.
//!
//! A cache that becomes smaller or larger:
//! * The excess of the protected segment or the window moves to the front of probation, the least recently used first,
//!   and that of the segment before that of the window.
//! * While the window is below its share, or empty, no candidate leaves: the victim comes from the main cache, and from
//!   its protected segment if none is on probation. Thus the window grows by the blocks that enter.
//! * The sketch doubles when the cache outgrows it, with each counter copied to both halves. It is halved when a
//!   quarter of it would suffice, with the greater of each two counters. If the new sample is no larger than the
//!   references counted, all counters are halved.
//!
//! This policy hashes: the sketch is keyed by the block itself and not by its slot, so that it remembers blocks that
//! its host has forgotten. [`mix`] is the hash.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{Values, part};
use crate::{Access, Block, Policy, Room, Slot};

/// The hash of a block, which selects its counters: bits 0 to 31 select the line, modulo the number of lines, and bits
/// 32 + 5 r to 36 + 5 r the counter in row r of the line.
pub fn mix(block: Block) -> u64 {
    // The finalizer of SplitMix64, over the block's position displaced by a multiple of the golden ratio per volume.
    let mut z = block.index.wrapping_add(u64::from(block.volume).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Four rows of 32 counters of 4 bits: each row two words.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

/// A count-min sketch of the frequency of recent references to blocks.
struct Sketch {
    /// The lines; their number is a power of two.
    lines: Vec<Line>,
    /// References counted, halved as the counters are.
    size: u64,
    /// The paper's sample size W.
    sample: u64,
    /// W as a multiple of the cache size.
    samples: u64,
    /// The most lines that hold a copy of a counter, since the lines doubled.
    copies: u64,
}

impl Sketch {
    /// Counters in each row per block of the cache, at the least.
    const WIDTH: u32 = 4;

    fn new(capacity: u32, samples: u64) -> Sketch {
        let lines = vec![Line([0; 8]); Sketch::lines_for(capacity)];
        Sketch { lines, size: 0, sample: samples * u64::from(capacity), samples, copies: 1 }
    }

    fn lines_for(capacity: u32) -> usize {
        let lines = u64::from(capacity) * u64::from(Sketch::WIDTH) / 32;
        lines.max(1).next_power_of_two() as usize
    }

    fn resize(&mut self, capacity: u32) {
        let wanted = Sketch::lines_for(capacity);
        while self.lines.len() < wanted {
            self.lines.extend_from_within(..);
            self.copies *= 2;
        }
        while self.lines.len() >= 4 * wanted {
            let upper = self.lines.split_off(self.lines.len() / 2);
            for (line, other) in self.lines.iter_mut().zip(upper) {
                for (word, other) in line.0.iter_mut().zip(other.0) {
                    *word = greater_counters(*word, other);
                }
            }
            self.lines.shrink_to_fit();
        }
        self.sample = self.samples * u64::from(capacity);
        while self.size >= self.sample {
            self.halve();
        }
    }

    fn line(&self, hash: u64) -> usize {
        hash as u32 as usize & (self.lines.len() - 1)
    }

    /// For each row, the word in the line and the shift of the counter in the word.
    fn counters(hash: u64) -> [(usize, u32); 4] {
        std::array::from_fn(|row| {
            let counter = (hash >> (32 + 5 * row)) as usize & 31;
            (2 * row + counter / 16, 4 * (counter as u32 % 16))
        })
    }

    fn frequency(&self, hash: u64) -> u64 {
        let line = &self.lines[self.line(hash)].0;
        Sketch::counters(hash).map(|(word, shift)| line[word] >> shift & 15).into_iter().min().expect("four rows")
    }

    fn count(&mut self, hash: u64) {
        let at = self.line(hash);
        let line = &mut self.lines[at].0;
        for (word, shift) in Sketch::counters(hash) {
            line[word] += u64::from(line[word] >> shift & 15 != 15) << shift;
        }
        self.size += 1;
        if self.size == self.sample {
            self.halve();
        }
    }

    /// The paper's reset: all counters are halved, including that of the sample.
    fn halve(&mut self) {
        for word in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.size /= 2;
    }
}

/// The greater of each two counters.
fn greater_counters(one: u64, other: u64) -> u64 {
    (0..16).map(|counter| 15 << (4 * counter)).map(|mask: u64| (one & mask).max(other & mask)).sum()
}

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Window TinyLFU.
pub struct WTinyLfu {
    sketch: Sketch,
    /// By slot, the hash of its block.
    hash: Vec<u64>,
    links: Links,
    /// The window and the two segments of the main cache, each with the most recently used slot first.
    lists: [List; 3],
    /// By slot, which of `lists` it is in.
    list: Vec<u8>,
    window_most: u32,
    protected_most: u32,
    /// The share of the window in the cache, and of the protected segment in the rest.
    portions: [Portion; 2],
    forgotten: Option<Slot>,
}

/// The sizes of window and protected segment.
fn divide([window, protected]: [Portion; 2], capacity: u32) -> [u32; 2] {
    let window = window.of(capacity, 1, capacity);
    let main = capacity - window;
    // One less than the main cache, so that a full main cache has a block on probation.
    [window, protected.of(main, 0, main.saturating_sub(1))]
}

impl WTinyLfu {
    fn frequency(&self, slot: Slot) -> u64 {
        self.sketch.frequency(self.hash[slot.index()])
    }

    /// The window's victim is the candidate: it enters the main cache if it is more frequent than the main cache's
    /// victim, which then leaves instead.
    #[inline]
    fn choose(&mut self) -> Slot {
        if self.lists[WINDOW].len() < self.window_most
            && let Some(main) = [PROBATION, PROTECTED].into_iter().find(|&list| !self.lists[list].is_empty())
        {
            let victim = self.lists[main].pop_back(&mut self.links).expect("the list is not empty");
            self.forgotten = Some(victim);
            return victim;
        }
        let candidate = self.lists[WINDOW].pop_back(&mut self.links).expect("a block is resident");
        let victim = match self.lists[PROBATION].back(&self.links) {
            Some(victim) if self.frequency(candidate) > self.frequency(victim) => {
                self.unlink(victim);
                self.push(PROBATION, candidate);
                victim
            }
            _ => candidate,
        };
        self.forgotten = Some(victim);
        victim
    }

    /// Moves the blocks of `list` beyond `most` to probation.
    fn pass(&mut self, list: usize, most: u32) {
        while self.lists[list].len() > most {
            let passed = self.lists[list].pop_back(&mut self.links).expect("the list is not empty");
            self.push(PROBATION, passed);
        }
    }

    fn unlink(&mut self, slot: Slot) {
        self.lists[self.list[slot.index()] as usize].unlink(&mut self.links, slot);
    }

    fn push(&mut self, list: usize, slot: Slot) {
        self.list[slot.index()] = list as u8;
        self.lists[list].push_front(&mut self.links, slot);
    }
}

impl Configured for WTinyLfu {
    const INFO: Info = Info {
        name: "w-tinylfu",
        summary: "admits a block to a segmented LRU only if it was recently referenced more often than the victim",
        paper: "Einziger, Friedman, Manes, TinyLFU: A Highly Efficient Cache Admission Policy, ACM Transactions on \
                Storage 2017",
        params: &[
            Param {
                published: None,
                key: "window",
                default: "1%",
                values: part(1, "the size of the cache"),
                doc: "blocks in the window, as a share of the cache or a count",
            },
            Param {
                published: None,
                key: "protected",
                default: "80%",
                values: part(0, "one less than the cache without the window"),
                doc: "blocks in the protected segment, as a share of the cache without its window or a count",
            },
            Param {
                published: None,
                key: "sample",
                default: "10",
                values: Values::Whole { least: 1, most: 1000 },
                doc: "references after which all counters are halved, as a multiple of the cache size",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<WTinyLfu, SpecError> {
        let window = params.portion("window", 1, setup.capacity)?;
        let main = setup.capacity - window.of(setup.capacity, 1, setup.capacity);
        let portions = [window, params.portion("protected", 0, main.saturating_sub(1))?];
        let [window_most, protected_most] = divide(portions, setup.capacity);
        let (links, lists) = Links::new(setup.slots);
        Ok(WTinyLfu {
            sketch: Sketch::new(setup.capacity, params.number("sample")?),
            hash: vec![0; setup.slots as usize],
            links,
            lists,
            list: vec![0; setup.slots as usize],
            window_most,
            protected_most,
            portions,
            forgotten: None,
        })
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.sketch.count(self.hash[slot.index()]);
        let list = self.list[slot.index()] as usize;
        if list != PROBATION {
            self.lists[list].move_to_front(&mut self.links, slot);
            return;
        }
        self.lists[PROBATION].unlink(&mut self.links, slot);
        self.push(PROTECTED, slot);
        if self.lists[PROTECTED].len() > self.protected_most {
            let demoted = self.lists[PROTECTED].pop_back(&mut self.links).expect("the segment is not empty");
            self.push(PROBATION, demoted);
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.choose())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let hash = mix(access.block);
        self.hash[slot.index()] = hash;
        self.sketch.count(hash);
        self.push(WINDOW, slot);
        if self.lists[WINDOW].len() > self.window_most {
            let passed = self.lists[WINDOW].pop_back(&mut self.links).expect("the window is not empty");
            self.push(PROBATION, passed);
        }
    }

    fn shed(&mut self) -> Slot {
        self.choose()
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        self.links.grow(room.slots, &mut self.lists);
        self.hash.resize(slots, 0);
        self.list.resize(slots, 0);
        [self.window_most, self.protected_most] = divide(self.portions, room.capacity);
        self.pass(PROTECTED, self.protected_most);
        self.pass(WINDOW, self.window_most);
        self.sketch.resize(room.capacity);
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        let hash = self.hash[slot.index()];
        prefetch(&self.list, slot.index());
        prefetch(&self.sketch.lines, self.sketch.line(hash));
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        for (number, list) in self.lists.iter().enumerate() {
            for slot in list.checked(&self.links) {
                assert_eq!(self.list[slot.index()] as usize, number, "{slot:?} is in another list");
            }
        }
        let [window, _, protected] = self.lists.each_ref().map(List::len);
        assert!(window <= self.window_most, "the window is too large");
        assert!(protected <= self.protected_most, "the protected segment is too large");
        assert!(self.sketch.size < self.sketch.sample, "the counters were not halved");
        let words = || self.sketch.lines.iter().flat_map(|line| line.0.iter().enumerate());
        for row in 0..4 {
            let counters = words().filter(|(word, _)| word / 2 == row).map(|(_, &word)| word);
            let sum: u64 = counters.map(|word| (0..16).map(|counter| word >> (4 * counter) & 15).sum::<u64>()).sum();
            // Each reference counts at most once in a row, and halving rounds each counter down but the size only once.
            assert!(
                sum <= self.sketch.copies * (self.sketch.size + 1),
                "row {row} has counted more than the references"
            );
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("protected", u64::from(self.lists[PROTECTED].len()));
        report("sample", self.sketch.size);
    }
}
