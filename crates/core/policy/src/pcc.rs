//! PCC: UBM's partitions, with code classified instead of files (Gniady, Butt, Hu: Program-Counter-Based Pattern
//! Classification in Buffer Caching, OSDI 2004).
//!
//! A table by program counter (`Access::stream`) counts what each piece of code does, and classifies it as sequential,
//! looping or other. The class is learned once: it applies from the first block of the next file that this code reads,
//! and across small files. Replacement and allocation are those of UBM (`marginal.rs`), with one group for each piece of
//! code, whose period is that of its loop.
//!
//! Sources: the abstract, and what later papers say of PCC. The full text was not available, so that sections are not
//! cited. Readings, where the sources are silent:
//!
//! * A reference is consecutive if it follows the last block of the same code, or is to the first block of a file ("PCC
//!   can discover longer sequential/looping length striding across several files", section 5.2 of AOIO). It is a vote for
//!   looping if the block is known, and otherwise for sequential. A reference that is not consecutive is a vote for other
//!   ("data in 'non-consecutive loops' pattern are regarded as random data"). Another reference to the same block is none.
//! * A vote raises the count of its class by one, up to `threshold`, and lowers the other two by one. A class whose count
//!   reaches `threshold` becomes the code's class. Before that, it is other. `threshold` is 4, as UBM's here.
//! * The period of a loop is the average of the times between the references to its blocks, in which the latest has a
//!   weight of 1/16.
//! * A block belongs to the code that referenced it last, and to the class that this code had then, until it is
//!   referenced again.
//! * A block is known while it is resident or a ghost; three times as many as the cache has blocks are ghosts, of all
//!   classes.
//!
//! Deviation: at most 1023 pieces of code are distinguished; further ones count as one.

use crate::codes::{CODES, Codes};
use crate::marginal::{Partitions, Place};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::{HISTORY, Values};
use crate::{Access, Block, Policy, Room, Slot};

/// Class of a piece of code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Sequential,
    Looping,
}

/// One piece of code. Its number is that of its group of blocks.
struct Code {
    class: Class,
    /// Of each class.
    votes: [u32; 3],
    last: Option<Block>,
    /// In references, if it looped.
    period: Option<f64>,
}

/// PCC's replacement.
pub struct Pcc {
    partitions: Partitions,
    /// For each known slot, the tick of its last reference.
    last: Vec<u64>,
    codes: Vec<Code>,
    numbers: Codes,
    threshold: u32,
}

impl Configured for Pcc {
    const INFO: Info = Info {
        name: "pcc",
        summary: "as ubm, but detects which code reads in sequence or in loops, not in which files",
        paper: "Gniady, Butt, Hu, Program-Counter-Based Pattern Classification in Buffer Caching, OSDI 2004",
        params: &[
            Param {
                published: None,
                key: "threshold",
                default: "4",
                values: Values::Whole { least: 1, most: 1_000_000 },
                doc: "consecutive references that classify code, less those that speak against",
            },
            Param {
                published: None,
                key: "ghosts",
                default: "3",
                values: HISTORY,
                doc: "blocks remembered after they left, to see when they are used again, in multiples of the cache",
            },
        ],
        offline: false,
        spatial: true,
        streams: true,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<Pcc, SpecError> {
        let mut pcc = Pcc {
            partitions: Partitions::new(setup, params.history()?, CODES as u32, true),
            last: vec![0; setup.slots as usize],
            codes: Vec::new(),
            numbers: Codes::new(),
            threshold: params.number("threshold")?,
        };
        // That of all others.
        pcc.add();
        Ok(pcc)
    }
}

impl Pcc {
    fn add(&mut self) {
        self.codes.push(Code { class: Class::Other, votes: [0; 3], last: None, period: None });
        self.partitions.add_group();
    }

    fn reference(&mut self, slot: Slot, access: &Access) {
        let number = self.numbers.number(access.stream.0);
        if usize::from(number) == self.codes.len() {
            self.add();
        }
        let last = std::mem::replace(&mut self.last[slot.index()], access.tick);
        let interval = (self.partitions.place(slot) != Place::None).then(|| access.tick.saturating_sub(last));
        let code = &mut self.codes[usize::from(number)];
        code.count(access.block, interval, self.threshold);
        let group = u32::from(number);
        let period = match code.class {
            Class::Looping => code.period.unwrap_or(f64::INFINITY),
            _ => f64::INFINITY,
        };
        if code.class != Class::Other && self.partitions.period(group) != period {
            self.partitions.set_period(group, period);
        }
        let group = (code.class != Class::Other).then_some(group);
        self.partitions.reference(slot, group, access.tick);
    }
}

impl Code {
    /// Counts a reference to `block`, which was referenced `interval` references ago if it is known.
    fn count(&mut self, block: Block, interval: Option<u64>, threshold: u32) {
        let before = self.last.replace(block);
        if before == Some(block) {
            return;
        }
        let follows = |last: Block| last.volume == block.volume && last.index.checked_add(1) == Some(block.index);
        let vote = match interval {
            _ if block.index != 0 && !before.is_some_and(follows) => Class::Other,
            None => Class::Sequential,
            Some(interval) => {
                let interval = interval.max(1) as f64;
                self.period = Some(self.period.map_or(interval, |period| period + (interval - period) / 16.0));
                Class::Looping
            }
        };
        for class in [Class::Other, Class::Sequential, Class::Looping] {
            let votes = &mut self.votes[class as usize];
            *votes = if class == vote { (*votes + 1).min(threshold) } else { votes.saturating_sub(1) };
        }
        if self.votes[vote as usize] == threshold {
            self.class = vote;
        }
    }
}

impl Policy for Pcc {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.reference(slot, access);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.partitions.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.reference(slot, access);
        self.partitions.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.partitions.pop();
        self.partitions.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.partitions.resize(room);
        self.last.resize(room.slots as usize, 0);
    }

    fn remove(&mut self, slot: Slot) {
        self.partitions.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.partitions.take_forgotten()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.partitions.warm(slot);
        prefetch(&self.last, slot.index());
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.partitions.approach(slot);
    }

    fn check(&self) {
        self.partitions.check();
        for code in &self.codes {
            assert!(code.votes.iter().all(|&votes| votes <= self.threshold), "too many votes");
            assert!(code.class != Class::Looping || code.period.is_some(), "a loop without a period");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.partitions.gauges(report);
    }
}
