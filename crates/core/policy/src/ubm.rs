//! UBM: sequential, looping and other blocks share the cache by marginal gain (Kim, Choi, Kim, Noh, Min, Cho, Kim: A
//! Low-Overhead High-Performance Unified Buffer Management Scheme that Exploits Sequential and Looping References, OSDI
//! 2000).
//!
//! * Detection: files and block numbers, not code. A number of consecutive references (`threshold`) to a file is
//!   sequential; a sequence that is referenced again is a loop, whose period is the exponential average of the times
//!   between its rounds; all else is other. Detected patterns are kept as ranges: file, start, end and period.
//! * Replacement: sequential blocks leave in MRU order. Of looping blocks, one of the loop with the longest period
//!   leaves, the most recently used of it. Other blocks leave in LRU order.
//! * Allocation: the partition with the least marginal gain loses a block (`marginal.rs`).
//!
//! Sources: the abstract, lecture notes on the paper (New York University, 2001), and its descriptions by later papers.
//! The full text was not available, so that sections are not cited. Readings, where the sources are silent:
//!
//! * `threshold` is 4. With it, UBM is ahead of LRU-2, 2Q and EELRU on multi1 at 7 of 8 sizes, and with 16 at 2; the
//!   dissertation on LIRS says that UBM's paper shows UBM ahead of these (docs/papers/lirs.md).
//! * A sequence continues one of the last sequences of its file, of which some are remembered, not only the last one:
//!   with one, two programs that read a file or disk at the same time hide each other's sequences.
//! * A sequence is looked up among the ranges when it is as long as `threshold`: until then, its blocks are other, except
//!   those that a loop already holds. A random reference therefore does not count as a round.
//! * A sequence that begins where a range begins is a round of it. If it begins within a range, the rest of that is a
//!   loop of its own, whose period is the time since the block was read with the range. Beyond the end of a loop, a new
//!   sequence begins. Without these, parts of a range that are read more often than others share one period: on multi1 in
//!   600 blocks and with a threshold of 16, 25 % of references hit, not 54 (LRU 47).
//! * The exponential average halves the weight of each earlier round.
//! * Blocks of a sequence or a loop do not become ghosts: detection depends on block numbers only. Other blocks become
//!   ghosts, as many as the cache has blocks.
//!
//! Deviation: at most 4095 ranges are known. A further one takes the place of the one that began a round longest ago,
//! whose blocks become sequential.

use std::collections::BTreeMap;

use crate::list::{Links, List};
use crate::marginal::{Partitions, Place};
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::{HISTORY, Values};
use crate::{Access, Policy, Room, Slot};

/// Ranges, of which the first stands for those that were replaced.
const RANGES: u32 = 4096;

/// Files, by the number of the volume modulo this, and the sequences that are remembered of each.
const FILES: usize = 256;
const RUNS: usize = 8;

/// A sequence of consecutive references.
#[derive(Clone, Copy)]
struct Run {
    volume: u32,
    last: u64,
    length: u64,
    /// The tick of its first reference.
    began: u64,
    /// The range that it belongs to, and its start.
    range: Option<(u32, u64)>,
}

/// A sequence that was detected. Its number is that of its group of blocks.
#[derive(Clone, Copy, Default)]
struct Range {
    volume: u32,
    start: u64,
    end: u64,
    /// The tick at which its last round began.
    began: u64,
}

/// UBM's replacement.
pub struct Ubm {
    partitions: Partitions,
    /// Of each file, the latest first.
    runs: Vec<[Option<Run>; RUNS]>,
    ranges: Vec<Range>,
    /// The number of a range by its volume and start.
    range_at: BTreeMap<(u32, u64), u32>,
    /// The ranges in the order in which their last rounds began, the latest first.
    links: Links,
    rounds: List,
    threshold: u64,
}

impl Configured for Ubm {
    const INFO: Info = Info {
        name: "ubm",
        summary: "detects sequences and loops in files; sequential blocks leave first, others by their marginal gain",
        paper: "Kim, Choi, Kim, Noh, Min, Cho, Kim, A Low-Overhead High-Performance Unified Buffer Management Scheme \
                that Exploits Sequential and Looping References, OSDI 2000",
        params: &[
            Param {
                published: None,
                key: "threshold",
                default: "4",
                values: Values::Whole { least: 2, most: 1_000_000 },
                doc: "consecutive references to a file that are a sequence",
            },
            Param {
                published: None,
                key: "ghosts",
                default: "1",
                values: HISTORY,
                doc: "other blocks remembered after they left, in multiples of the cache",
            },
        ],
        offline: false,
        spatial: true,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<Ubm, SpecError> {
        let mut partitions = Partitions::new(setup, params.history()?, RANGES, false);
        partitions.add_group();
        let (links, [rounds]) = Links::new(RANGES);
        Ok(Ubm {
            partitions,
            runs: vec![[None; RUNS]; FILES],
            ranges: vec![Range::default()],
            range_at: BTreeMap::new(),
            links,
            rounds,
            threshold: params.number("threshold")?,
        })
    }
}

impl Ubm {
    fn reference(&mut self, slot: Slot, access: &Access) {
        let run = self.run(access);
        let group = if run.length >= self.threshold {
            Some(self.range(run, access.tick))
        } else {
            match self.partitions.place(slot) {
                Place::Group(group) if self.partitions.period(group).is_finite() => Some(group),
                _ => None,
            }
        };
        self.partitions.reference(slot, group, access.tick);
    }

    /// The sequence that this reference continues or begins, at the front of its file's.
    fn run(&mut self, access: &Access) -> Run {
        let (volume, index) = (access.block.volume, access.block.index);
        let runs = &mut self.runs[volume as usize % FILES];
        let continued = runs.iter().position(|run| {
            run.is_some_and(|run| run.volume == volume && (run.last == index || run.last.checked_add(1) == Some(index)))
        });
        let at = continued.unwrap_or(RUNS - 1);
        runs[..=at].rotate_right(1);
        let new = Run { volume, last: index, length: 1, began: access.tick, range: None };
        let mut run = runs[0].filter(|_| continued.is_some()).unwrap_or(new);
        if run.last != index {
            (run.last, run.length) = (index, run.length + 1);
        }
        runs[0] = Some(run);
        run
    }

    /// The range of `run`, which is long enough and whose last reference is the current one.
    fn range(&mut self, run: Run, tick: u64) -> u32 {
        let own = run.range.filter(|&(number, start)| {
            let Range { volume, start: now, .. } = self.ranges[number as usize];
            (volume, now) == (run.volume, start)
        });
        let number = match own {
            Some((number, _)) if run.last <= self.ranges[number as usize].end => return number,
            Some((number, _)) if self.is_new(number) && self.containing(run.volume, run.last).is_none() => number,
            Some(_) => self.enter(run.volume, run.last, tick),
            None => self.enter(run.volume, run.last + 1 - run.length, run.began),
        };
        let range = &mut self.ranges[number as usize];
        range.end = range.end.max(run.last);
        let start = range.start;
        let [latest, ..] = &mut self.runs[run.volume as usize % FILES];
        *latest = Some(Run { range: Some((number, start)), ..run });
        number
    }

    /// Whether the range was referenced only once.
    fn is_new(&self, number: u32) -> bool {
        self.partitions.period(number).is_infinite()
    }

    /// The range of a sequence that began with this block: one that starts with it, the rest of one that contains it, or
    /// a new one.
    fn enter(&mut self, volume: u32, index: u64, began: u64) -> u32 {
        let Some(known) = self.containing(volume, index) else {
            return self.add(Range { volume, start: index, end: index, began }, f64::INFINITY);
        };
        let range = self.ranges[known as usize];
        let measured = began.saturating_sub(range.began + (index - range.start)).max(1) as f64;
        if range.start == index {
            self.round(known, began, measured);
            known
        } else {
            self.add(Range { start: index, began, ..range }, measured)
        }
    }

    /// The range with this block.
    fn containing(&self, volume: u32, index: u64) -> Option<u32> {
        let (_, &number) = self.range_at.range((volume, 0)..=(volume, index)).next_back()?;
        (index <= self.ranges[number as usize].end).then_some(number)
    }

    /// A round of the loop `number` began, this long after the one before.
    fn round(&mut self, number: u32, began: u64, measured: f64) {
        self.ranges[number as usize].began = began;
        let period = self.partitions.period(number);
        let period = if period.is_finite() { (period + measured) / 2.0 } else { measured };
        self.partitions.set_period(number, period);
        self.rounds.move_to_front(&mut self.links, Slot(number));
    }

    fn add(&mut self, range: Range, period: f64) -> u32 {
        let number = if self.ranges.len() < RANGES as usize {
            self.ranges.push(range);
            self.partitions.add_group()
        } else {
            let Slot(oldest) = self.rounds.pop_back(&mut self.links).expect("there are ranges");
            let Range { volume, start, .. } = std::mem::replace(&mut self.ranges[oldest as usize], range);
            self.range_at.remove(&(volume, start));
            self.partitions.merge(oldest, 0);
            oldest
        };
        self.partitions.set_period(number, period);
        self.range_at.insert((range.volume, range.start), number);
        self.rounds.push_front(&mut self.links, Slot(number));
        number
    }
}

impl Policy for Ubm {
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
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.partitions.approach(slot);
    }

    fn check(&self) {
        self.partitions.check();
        assert_eq!(self.rounds.checked(&self.links).len(), self.ranges.len() - 1, "a range without an order");
        assert_eq!(self.range_at.len(), self.ranges.len() - 1, "two ranges with one start, or one that is not found");
        for (&(volume, start), &number) in &self.range_at {
            let range = &self.ranges[number as usize];
            assert_eq!((range.volume, range.start), (volume, start), "a range is found at a wrong place");
            assert!(range.start <= range.end, "a range ends before it starts");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.partitions.gauges(report);
    }
}
