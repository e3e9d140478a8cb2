//! DULO (FAST '05, sections 3.1 to 3.4), from the text alone: a stack of vectors. The code of figure 2 is not in the text
//! that this model was written from.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;

/// How the evicting section is filled for the first time. "Suppose we start with an LRU stack whose staging section consists
/// of only the correlation buffer ..., and the evicting section holds the rest" (3.1) does not say in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// "From a full bank" (3.3), as later: each BANK_MAX blocks that leave the correlation buffer are sequenced.
    ByBank,
    /// All blocks below the correlation buffer are sequenced together as soon as the cache is full: the bank is empty then.
    Together,
}

/// When L changes. It "records the H value of the most recent evicted sequence" (3.4), but blocks are evicted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inflates {
    /// With each block of a sequence that is evicted.
    EachBlock,
    /// With the last block of a sequence.
    LastBlock,
}

/// The order of sequences with equal H formed together: "the algorithm degenerates into the LRU replacement algorithm" for
/// random blocks, but "these sequences share the same" recency (3.1, 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The sequence whose least recent block is less recent is evicted first.
    LeastRecent,
    /// The sequence whose most recent block is less recent is evicted first.
    MostRecent,
    /// The sequence with the smaller location is evicted first, in the order in which the table is traversed.
    Location,
}

/// The order of a sequence's blocks in the stack, about which 3.4 is silent. In table 1, X1 is below X2, X3 and X4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The block with the smallest location is evicted first.
    Ascending,
    /// The block with the largest location is evicted first.
    Descending,
    /// The least recent block is evicted first.
    Recency,
}

/// Choice if a block must be replaced while the evicting section is empty, which the text excludes: "a bank size must
/// be less than the evicting section size" (4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// "The block at the stack bottom is examined" (3.4), in whatever section it is.
    StackBottom,
    /// The bank is sequenced, although it is not full.
    Sequence,
}

/// When entries of the block table are reclaimed: "when system memory pressure is too high" it is traversed "with a specified
/// clock time threshold" (3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Never.
    Never,
    /// Entries last accessed more than this many ticks ago, after each sequencing.
    After(u64),
    /// Directories whose latest time is below a threshold, after a sequencing that leaves more directories and leaves than
    /// `nodes`. The threshold moves halfway to the present until few enough remain. Each has `entries` entries.
    Limit {
        /// Most directories and leaves.
        nodes: usize,
        /// Entries of one.
        entries: u64,
    },
}

/// Choices that the text leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How the evicting section is filled for the first time.
    pub fill: Fill,
    /// When L changes.
    pub inflates: Inflates,
    /// Whether a young block that leaves the bottom for the stack top changes L, which "is continuously being inflated by the
    /// evicted blocks" (3.4), as if it were evicted.
    pub spared_inflates: bool,
    /// The order of equal sequences of one bank.
    pub ties: Ties,
    /// Whether a new sequence is evicted before an older one with the same H: a "merge sorting" (3.4) leaves it open.
    pub newer_first: bool,
    /// The order of a sequence's blocks.
    pub within: Within,
    /// An empty evicting section.
    pub empty: Empty,
    /// Whether a hit in the correlation buffer makes its block young: "when a block is hit, it is only flagged as young
    /// block" (3.4), but the buffer's "role is to filter high frequency references" (3.1).
    pub young_in_buffer: bool,
    /// Whether a block is young as it is fetched; only hits flag a block (3.4).
    pub fetched_young: bool,
    /// Condition 1 of 3.3 as printed: a next block that "was accessed in the current clock time" ends the sequence. It can
    /// only mean "was not accessed": "this includes the case where it has never been accessed".
    pub as_printed: bool,
    /// The largest difference between previous accesses in one sequence: "exceeding one" ends it (3.3, condition 3).
    pub difference_max: u64,
    /// The largest sequence (3.3, condition 4).
    pub sequence_max: usize,
    /// The reclamation of the block table.
    pub reclaim: Reclaim,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            fill: Fill::ByBank,
            inflates: Inflates::EachBlock,
            spared_inflates: false,
            ties: Ties::LeastRecent,
            newer_first: false,
            within: Within::Ascending,
            empty: Empty::StackBottom,
            young_in_buffer: true,
            fetched_young: false,
            as_printed: false,
            difference_max: 1,
            sequence_max: 128,
            reclaim: Reclaim::Never,
        }
    }
}

/// Blocks of adjacent locations, the first to be evicted first.
#[derive(Clone, Debug)]
struct Sequence {
    h: f64,
    blocks: Vec<u64>,
}

/// A cache managed by DULO.
#[derive(Clone, Debug)]
pub struct Dulo {
    capacity: usize,
    /// Most blocks in the correlation buffer.
    buffer_max: usize,
    /// BANK_MAX.
    bank_max: usize,
    reading: Reading,
    /// The correlation buffer, the stack top last.
    buffer: Vec<u64>,
    /// The sequencing bank, its bottom first.
    bank: Vec<u64>,
    /// The evicting section, the stack bottom first.
    evicting: Vec<Sequence>,
    young: BTreeSet<u64>,
    /// The block table: at most two times of access by location, the last one last.
    table: BTreeMap<u64, Vec<u64>>,
    /// The largest location since the table was empty.
    largest: u64,
    /// The bank clock.
    clock: u64,
    /// The time below which entries were reclaimed.
    threshold: u64,
    inflation: f64,
    /// Whether the cache was ever full.
    filled: bool,
}

impl Dulo {
    /// An empty cache of `capacity` blocks with a correlation buffer of `buffer_max` blocks and a bank of at most `bank_max`.
    pub fn new(capacity: usize, buffer_max: usize, bank_max: usize, reading: Reading) -> Dulo {
        Dulo {
            capacity,
            buffer_max,
            bank_max,
            reading,
            buffer: Vec::new(),
            bank: Vec::new(),
            evicting: Vec::new(),
            young: BTreeSet::new(),
            table: BTreeMap::new(),
            largest: 0,
            clock: 0,
            threshold: 0,
            inflation: 0.0,
            filled: false,
        }
    }

    /// References `block`.
    pub fn access(&mut self, block: u64) -> Outcome {
        let buffered = self.buffer.contains(&block);
        let below = self.bank.contains(&block) || self.evicting.iter().any(|sequence| sequence.blocks.contains(&block));
        if buffered || below {
            if below || self.reading.young_in_buffer {
                self.young.insert(block);
            }
            return Outcome { hit: true, evicted: None };
        }
        let resident =
            self.buffer.len() + self.bank.len() + self.evicting.iter().map(|s| s.blocks.len()).sum::<usize>();
        let evicted = (resident == self.capacity).then(|| self.replace());
        if self.reading.fetched_young {
            self.young.insert(block);
        }
        self.enter(block);
        if !self.filled && resident + 1 == self.capacity {
            self.filled = true;
            if self.reading.fill == Fill::Together && !self.bank.is_empty() {
                self.refill();
            }
        }
        Outcome { hit: false, evicted }
    }

    /// Puts `block` on the stack top.
    fn enter(&mut self, block: u64) {
        self.buffer.push(block);
        if self.buffer.len() > self.buffer_max {
            let bottom = self.buffer.remove(0);
            self.bank.push(bottom);
        }
        if self.bank.len() >= self.bank_max && (self.filled || self.reading.fill == Fill::ByBank) {
            self.refill();
        }
    }

    /// Takes out the block at the stack bottom that is not young (3.4).
    fn replace(&mut self) -> u64 {
        loop {
            if self.evicting.is_empty() && self.reading.empty == Empty::Sequence {
                if self.bank.is_empty() {
                    self.bank.push(self.buffer.remove(0));
                }
                self.refill();
            }
            let block = self.bottom();
            let spared = self.young.remove(&block);
            let mut inflation = None;
            if let Some(sequence) = self.evicting.first_mut() {
                sequence.blocks.remove(0);
                if self.reading.inflates == Inflates::EachBlock || sequence.blocks.is_empty() {
                    inflation = Some(sequence.h);
                }
                if sequence.blocks.is_empty() {
                    self.evicting.remove(0);
                }
            } else if self.bank.is_empty() {
                self.buffer.remove(0);
            } else {
                self.bank.remove(0);
            }
            if let Some(h) = inflation
                && (!spared || self.reading.spared_inflates)
            {
                self.inflation = h;
            }
            if !spared {
                return block;
            }
            self.enter(block);
        }
    }

    /// The block at the stack bottom.
    fn bottom(&self) -> u64 {
        let sections =
            self.evicting.first().map(|sequence| &sequence.blocks).into_iter().chain([&self.bank, &self.buffer]);
        sections.flatten().copied().next().expect("a block in a full cache")
    }

    /// Forms sequences from the bank and puts them into the evicting section (3.3, 3.4).
    fn refill(&mut self) {
        self.clock += 1;
        for &block in &self.bank {
            self.largest = self.largest.max(block);
            let times = self.table.entry(block).or_default();
            times.push(self.clock);
            if times.len() > 2 {
                times.remove(0);
            }
        }
        let mut formed = self.form();
        formed.sort_by(|one, other| one.h.total_cmp(&other.h));
        for sequence in formed {
            let below = |older: &&Sequence| older.h < sequence.h || older.h == sequence.h && !self.reading.newer_first;
            let at = self.evicting.iter().take_while(below).count();
            self.evicting.insert(at, sequence);
        }
        self.bank.clear();
        self.reclaim();
    }

    /// Reclaims memory of the block table (3.2).
    fn reclaim(&mut self) {
        let last = |times: &Vec<u64>| times[times.len() - 1];
        match self.reading.reclaim {
            Reclaim::Never => {}
            Reclaim::After(ticks) => self.table.retain(|_, times| last(times) + ticks >= self.clock),
            Reclaim::Limit { nodes, entries } => {
                while self.nodes(entries) > nodes {
                    self.threshold += (self.clock - self.threshold) / 2 + 1;
                    let mut leaves: BTreeMap<u64, u64> = BTreeMap::new();
                    for (block, times) in &self.table {
                        let latest = leaves.entry(block / entries).or_default();
                        *latest = last(times).max(*latest);
                    }
                    self.table.retain(|block, _| leaves[&(block / entries)] >= self.threshold);
                }
            }
        }
        if self.table.is_empty() {
            self.largest = 0;
        }
    }

    /// Directories and leaves of a block table that reaches the largest location recorded in it, if each has `entries` entries.
    fn nodes(&self, entries: u64) -> usize {
        let mut level: BTreeSet<u64> = self.table.keys().copied().collect();
        let (mut largest, mut nodes) = (self.largest, 0);
        loop {
            level = level.into_iter().map(|index| index / entries).collect();
            nodes += level.len();
            largest /= entries;
            if largest == 0 {
                return nodes;
            }
        }
    }

    /// The sequences in the bank, those to be evicted first first if their H is equal.
    fn form(&self) -> Vec<Sequence> {
        let mut locations = self.bank.clone();
        locations.sort_unstable();
        let mut sequences: Vec<Vec<u64>> = Vec::new();
        for location in locations {
            match sequences.last_mut() {
                Some(sequence) if self.joins(sequence, location) => sequence.push(location),
                _ => sequences.push(vec![location]),
            }
        }
        let age = |block: &u64| self.bank.iter().position(|other| other == block);
        match self.reading.ties {
            Ties::LeastRecent => sequences.sort_by_key(|sequence| sequence.iter().map(age).min()),
            Ties::MostRecent => sequences.sort_by_key(|sequence| sequence.iter().map(age).max()),
            Ties::Location => {}
        }
        for sequence in &mut sequences {
            match self.reading.within {
                Within::Ascending => {}
                Within::Descending => sequence.reverse(),
                Within::Recency => sequence.sort_by_key(age),
            }
        }
        let h = |size: usize| self.inflation + 1.0 / size as f64;
        sequences.into_iter().map(|blocks| Sequence { h: h(blocks.len()), blocks }).collect()
    }

    /// Whether `next`, a block of the bank, becomes part of the developing `sequence` (3.3).
    fn joins(&self, sequence: &[u64], next: u64) -> bool {
        let current = sequence[sequence.len() - 1];
        if next != current + 1 || self.reading.as_printed || sequence.len() >= self.reading.sequence_max {
            return false;
        }
        let before = |block: u64| Some(&self.table[&block]).filter(|times| times.len() == 2).map(|times| times[0]);
        match (before(current), before(next)) {
            (None, None) => true,
            (Some(one), Some(other)) => one.abs_diff(other) <= self.reading.difference_max,
            _ => false,
        }
    }
}
