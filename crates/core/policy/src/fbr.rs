//! FBR: of the blocks not referenced for a while, the one with the fewest references leaves.
//!
//! The LRU stack has three sections: new, middle and old. A reference counts only if its block is not in the new
//! section, which factors out locality; only a block of the old section leaves.
//!
//! The paper finds the four parameters by trial for each workload; the defaults are ours. Invalidation, which the paper
//! does not cover, moves the sections' boundaries down the stack; a new cache size moves them down or up. If a block
//! must leave a cache that is not full and has no old section, the least recently used block leaves.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{Values, part};
use crate::{Access, Policy, Room, Slot};

const NEW: usize = 0;
const MIDDLE: usize = 1;
const OLD: usize = 2;
/// One chain per count that fits into a word of bits; count 0 does not occur.
const CHAINS: usize = 64;

/// Frequency-based replacement.
pub struct Fbr {
    stack: Links,
    /// The new, middle and old sections of the LRU stack, each with the most recently used slot first.
    sections: [List; 3],
    /// Slots that fit into the new and the middle section.
    section_most: [u32; 2],
    /// The shares of the new and the old section in the cache.
    portions: [Portion; 2],
    /// By slot, the section it is in.
    section: Vec<u8>,
    chain: Links,
    /// By count, the slots of the old section with it, the most recently used first; for counts up to `chained_most`.
    chains: [List; CHAINS],
    /// Which of `chains` are not empty, as bits.
    chained: u64,
    /// The paper's C_max.
    chained_most: u32,
    /// By slot, the references counted.
    count: Vec<u32>,
    /// All counts of resident slots.
    sum: u64,
    /// The paper's A_max.
    average_most: u64,
    forgotten: Option<Slot>,
}

/// The sizes of the new and the middle section.
fn divide([new, old]: [Portion; 2], capacity: u32) -> [u32; 2] {
    let old = old.of(capacity, 1, capacity);
    let new = new.of(capacity, 0, capacity - old);
    [new, capacity - old - new]
}

impl Fbr {
    fn chain(&mut self, slot: Slot) {
        let count = self.count[slot.index()];
        if count <= self.chained_most {
            self.chains[count as usize].push_front(&mut self.chain, slot);
            self.chained |= 1 << count;
        }
    }

    fn unchain(&mut self, slot: Slot) {
        let count = self.count[slot.index()];
        if count <= self.chained_most {
            let chain = &mut self.chains[count as usize];
            chain.unlink(&mut self.chain, slot);
            self.chained &= !(u64::from(chain.is_empty()) << count);
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let section = self.section[slot.index()] as usize;
        self.sections[section].unlink(&mut self.stack, slot);
        if section == OLD {
            self.unchain(slot);
        }
    }

    /// Makes `slot` the most recently used; each section passes its excess on to the next.
    fn push(&mut self, slot: Slot) {
        self.section[slot.index()] = NEW as u8;
        self.sections[NEW].push_front(&mut self.stack, slot);
        for section in [NEW, MIDDLE] {
            if self.sections[section].len() <= self.section_most[section] {
                return;
            }
            self.pass(section);
        }
    }

    /// Moves the last slot of `section` to the next.
    fn pass(&mut self, section: usize) {
        let passed = self.sections[section].pop_back(&mut self.stack).expect("the section is not empty");
        self.section[passed.index()] = section as u8 + 1;
        self.sections[section + 1].push_front(&mut self.stack, passed);
        if section == MIDDLE {
            self.chain(passed);
        }
    }

    /// Takes out the block that leaves next.
    fn pop(&mut self) -> Slot {
        let victim = match self.chained {
            0 => self.sections.iter().rev().find_map(|section| section.back(&self.stack)),
            chained => self.chains[chained.trailing_zeros() as usize].back(&self.chain),
        };
        let victim = victim.expect("a block is resident");
        self.unlink(victim);
        self.sum -= u64::from(self.count[victim.index()]);
        self.forgotten = Some(victim);
        victim
    }

    /// When the average count exceeds A_max, every count C becomes ⌈C/2⌉. Takes time in proportion to the resident
    /// slots, and runs again after half as many references at the earliest.
    fn age(&mut self) {
        let resident: u64 = self.sections.iter().map(|section| u64::from(section.len())).sum();
        if self.sum <= self.average_most * resident {
            return;
        }
        for chain in &mut self.chains {
            while chain.pop_front(&mut self.chain).is_some() {}
        }
        self.chained = 0;
        self.sum = 0;
        for section in [NEW, MIDDLE, OLD] {
            let mut at = self.sections[section].back(&self.stack);
            while let Some(slot) = at {
                let count = &mut self.count[slot.index()];
                *count = count.div_ceil(2);
                self.sum += u64::from(*count);
                if section == OLD {
                    self.chain(slot);
                }
                at = self.sections[section].before(&self.stack, slot);
            }
        }
    }

    /// Fills the new and the middle section from below.
    fn refill(&mut self) {
        for section in [NEW, MIDDLE] {
            while self.sections[section].len() < self.section_most[section] {
                let Some(below) = (section + 1..=OLD).find(|&below| !self.sections[below].is_empty()) else {
                    return;
                };
                let slot = self.sections[below].front(&self.stack).expect("the section is not empty");
                self.unlink(slot);
                self.section[slot.index()] = section as u8;
                self.sections[section].push_back(&mut self.stack, slot);
            }
        }
    }
}

impl Configured for Fbr {
    const INFO: Info = Info {
        name: "fbr",
        summary: "evicts the least referenced of the least recently used blocks; quick repeats do not count",
        paper: "Robinson, Devarakonda, Data Cache Management Using Frequency-Based Replacement, SIGMETRICS 1990",
        params: &[
            Param {
                published: Some("found for each workload"),
                key: "new",
                default: "25%",
                values: part(0, "the cache without the old section"),
                doc: "blocks in the new section, as a share of the cache or a count",
            },
            Param {
                published: None,
                key: "old",
                default: "60%",
                values: part(1, "the size of the cache"),
                doc: "blocks in the old section, as a share of the cache or a count",
            },
            Param {
                published: None,
                key: "cmax",
                default: "32",
                values: Values::Whole { least: 1, most: CHAINS as u64 - 1 },
                doc: "C_max: if all old blocks have more references than this, the least recently used leaves",
            },
            Param {
                published: None,
                key: "amax",
                default: "100",
                values: Values::Whole { least: 2, most: u32::MAX as u64 },
                doc: "A_max: all counts are halved when the average exceeds this",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Fbr, SpecError> {
        let old = params.portion("old", 1, setup.capacity)?;
        let most = setup.capacity - old.of(setup.capacity, 1, setup.capacity);
        let portions = [params.portion("new", 0, most)?, old];
        let (stack, sections) = Links::new(setup.slots);
        let (chain, chains) = Links::new(setup.slots);
        Ok(Fbr {
            stack,
            sections,
            section_most: divide(portions, setup.capacity),
            portions,
            section: vec![0; setup.slots as usize],
            chain,
            chains,
            chained: 0,
            chained_most: params.number("cmax")?,
            count: vec![0; setup.slots as usize],
            sum: 0,
            average_most: params.number("amax")?,
            forgotten: None,
        })
    }
}

impl Policy for Fbr {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.unlink(slot);
        if self.section[slot.index()] as usize != NEW && self.count[slot.index()] < u32::MAX {
            self.count[slot.index()] += 1;
            self.sum += 1;
        }
        self.push(slot);
        self.age();
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.count[slot.index()] = 1;
        self.sum += 1;
        self.push(slot);
        self.age();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.pop();
        self.refill();
        victim
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        self.stack.grow(room.slots, &mut self.sections);
        self.chain.grow(room.slots, &mut self.chains);
        self.section.resize(slots, 0);
        self.count.resize(slots, 0);
        self.section_most = divide(self.portions, room.capacity);
        for section in [NEW, MIDDLE] {
            while self.sections[section].len() > self.section_most[section] {
                self.pass(section);
            }
        }
        self.refill();
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        self.sum -= u64::from(self.count[slot.index()]);
        self.refill();
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.stack.warm(slot);
        self.chain.warm(slot);
        prefetch(&self.section, slot.index());
        prefetch(&self.count, slot.index());
    }

    fn check(&self) {
        let mut sum = 0;
        let mut below_full = true;
        for (number, section) in self.sections.iter().enumerate() {
            for slot in section.checked(&self.stack) {
                assert!(below_full, "section {number} is not empty, but one above it is not full");
                assert_eq!(self.section[slot.index()] as usize, number, "{slot:?} is in another section");
                sum += u64::from(self.count[slot.index()]);
            }
            if number < OLD {
                assert!(section.len() <= self.section_most[number], "section {number} is too long");
                below_full &= section.len() == self.section_most[number];
            }
        }
        assert_eq!(self.sum, sum, "the sum of counts is wrong");
        let old: Vec<Slot> = self.sections[OLD].checked(&self.stack);
        for (count, chain) in self.chains.iter().enumerate() {
            let in_order = old.iter().copied().filter(|slot| self.count[slot.index()] as usize == count);
            let expected = if count <= self.chained_most as usize { in_order.collect() } else { Vec::new() };
            assert_eq!(chain.checked(&self.chain), expected, "the chain of count {count} is wrong");
            assert_eq!(self.chained >> count & 1 == 1, !chain.is_empty(), "the bit of count {count} is wrong");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("count_sum", self.sum);
    }
}
