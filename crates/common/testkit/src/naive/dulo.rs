//! DULO as described in sections 3.1 to 3.4 of its paper, with the parts of the stack as vectors and a table of all
//! times; and the same below another policy.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Settings, take};

/// Blocks in a leaf of the block table and entries in a directory, which determine the effect of its limit.
const ENTRIES: u64 = 16;
const NODE_BYTES: u64 = 128;
const BLOCK_BYTES: f64 = 4096.0;

/// The last time at which a block was in a bank, and the time before that.
#[derive(Clone, Copy, Default)]
struct Times {
    last: u64,
    before: u64,
}

/// The lower part of the stack.
struct Sections {
    bank_max: usize,
    /// The first block that entered is in front.
    bank: Vec<u64>,
    /// Blocks with their H values, the stack bottom in front.
    evicting: Vec<(u64, f64)>,
    l: f64,
    position: f64,
    transfer: f64,
    clock: u64,
    times: BTreeMap<u64, Times>,
    /// The largest index that each volume had since its table was empty.
    largest: BTreeMap<u64, u64>,
    threshold: u64,
    nodes_max: u64,
    /// With `adapt=1`: blocks of the last banks, with the banks since they entered,
    /// and their times before.
    recent: Option<BTreeMap<u64, (u64, u64)>>,
    /// Blocks leave in the order in which they entered.
    plain: bool,
}

impl Sections {
    fn new(capacity: usize, bank_max: usize, settings: &Settings) -> Sections {
        let ms = |key, default| settings.get(key, default).trim_end_matches("ms").parse::<f64>().expect("milliseconds");
        Sections {
            bank_max,
            bank: Vec::new(),
            evicting: Vec::new(),
            l: 0.0,
            position: ms("position", "1ms"),
            transfer: ms("transfer", "0ms"),
            clock: 0,
            times: BTreeMap::new(),
            largest: BTreeMap::new(),
            threshold: 0,
            nodes_max: nodes_max(capacity, settings),
            recent: (settings.number("adapt", "0") == 1).then(BTreeMap::new),
            plain: false,
        }
    }

    fn blocks(&self) -> usize {
        self.bank.len() + self.evicting.len()
    }

    fn resize(&mut self, capacity: usize, bank_max: usize, settings: &Settings) {
        self.bank_max = bank_max;
        self.nodes_max = nodes_max(capacity, settings);
        if self.bank.len() >= bank_max {
            self.refill();
        }
    }

    /// Ensures that a block is at the stack bottom: the bank is sequenced before it is full.
    fn fill_evicting(&mut self) {
        if self.evicting.is_empty() {
            self.refill();
        }
    }

    fn contains(&self, block: u64) -> bool {
        self.bank.contains(&block) || self.evicting.iter().any(|&(other, _)| other == block)
    }

    fn remove(&mut self, block: u64) {
        take(&mut self.bank, block);
        self.evicting.retain(|&(other, _)| other != block);
    }

    fn evict(&mut self) -> u64 {
        let (block, h) = self.evicting.remove(0);
        self.l = h;
        block
    }

    fn enter(&mut self, block: u64) {
        self.bank.push(block);
        if self.bank.len() == self.bank_max {
            self.refill();
        }
    }

    fn refill(&mut self) {
        let bank = std::mem::take(&mut self.bank);
        let mut formed = self.form_sequences(&bank);
        if self.plain {
            formed = bank.iter().map(|&block| vec![block]).collect();
        }
        // Those that join move.
        for block in formed.iter().flatten() {
            self.evicting.retain(|(other, _)| other != block);
        }
        let mut sequences: Vec<(f64, usize, Vec<u64>)> = formed
            .into_iter()
            .map(|sequence| {
                let size = sequence.len() as f64;
                let h = self.l + (self.position + size * self.transfer) / size;
                let latest = sequence.iter().filter_map(|block| bank.iter().position(|other| other == block)).max();
                (h, latest.expect("a block of the bank"), sequence)
            })
            .collect();
        sequences.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (h, _, sequence) in sequences {
            let at = self.evicting.iter().position(|&(_, other)| other > h).unwrap_or(self.evicting.len());
            self.evicting.splice(at..at, sequence.into_iter().map(|block| (block, h)));
        }
        while self.nodes() > self.nodes_max {
            self.threshold += (self.clock - self.threshold) / 2 + 1;
            self.reclaim();
        }
    }

    fn form_sequences(&mut self, bank: &[u64]) -> Vec<Vec<u64>> {
        self.clock += 1;
        for &block in bank {
            let times = self.times.entry(block).or_default();
            *times = Times { last: self.clock, before: times.last };
            let largest = self.largest.entry(block >> 32).or_default();
            *largest = (*largest).max(block & 0xffff_ffff);
        }
        let mut blocks = bank.to_vec();
        let adapts = self.recent.is_some();
        if let Some(recent) = &mut self.recent {
            recent.values_mut().for_each(|(age, _)| *age += 1);
            recent.retain(|block, (age, _)| *age <= 4 && self.evicting.iter().any(|(other, _)| other == block));
            blocks.extend(recent.keys());
        }
        let tolerance = if adapts { 4 } else { 1 };
        blocks.sort_unstable();
        let before = |block: u64| match &self.recent {
            Some(recent) if !bank.contains(&block) => recent[&block].1,
            _ => self.times[&block].before,
        };
        let mut sequences: Vec<Vec<u64>> = Vec::new();
        for block in blocks {
            let joined = sequences.last_mut().filter(|sequence| {
                let current = sequence[sequence.len() - 1];
                // The next block on disk; if it was not accessed now, it is not the next of `blocks`.
                let case_1 = current + 1 != block;
                let (one, other) = (before(current), before(block));
                let case_2 = (one == 0) != (other == 0);
                let case_3 = one != 0 && other != 0 && one.abs_diff(other) > tolerance;
                let case_4 = sequence.len() == 128;
                !(case_1 || case_2 || case_3 || case_4)
            });
            match joined {
                Some(sequence) => sequence.push(block),
                None => sequences.push(vec![block]),
            }
        }
        sequences.retain(|sequence| sequence.iter().any(|block| bank.contains(block)));
        let fresh: Vec<(u64, (u64, u64))> = bank.iter().map(|&block| (block, (0, before(block)))).collect();
        if let Some(recent) = &mut self.recent {
            recent.extend(fresh);
        }
        sequences
    }

    /// Directories and leaves of the block tables.
    fn nodes(&self) -> u64 {
        let mut nodes = BTreeSet::new();
        for block in self.times.keys() {
            let (volume, mut index) = (block >> 32, block & 0xffff_ffff);
            let mut largest = self.largest[&volume];
            for level in 0.. {
                index /= ENTRIES;
                largest /= ENTRIES;
                nodes.insert((volume, level, index));
                if largest == 0 {
                    break;
                }
            }
        }
        nodes.len() as u64
    }

    /// Removes leaves that are older than the threshold, and with them the directories above.
    fn reclaim(&mut self) {
        let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
        for (block, times) in &self.times {
            let leaf = latest.entry(block / ENTRIES).or_default();
            *leaf = (*leaf).max(times.last);
        }
        self.times.retain(|block, _| latest[&(block / ENTRIES)] >= self.threshold);
        let times = &self.times;
        self.largest.retain(|volume, _| times.keys().any(|block| block >> 32 == *volume));
    }
}

fn nodes_max(capacity: usize, settings: &Settings) -> u64 {
    let table = settings.share("table", "2%", capacity) * BLOCK_BYTES;
    table as u64 / NODE_BYTES
}

/// Sizes of bank and evicting section in blocks.
fn sizes(capacity: usize, most: usize, auto: (usize, usize), settings: &Settings) -> (usize, usize) {
    let size = |key| match settings.get(key, "auto") {
        "auto" => None,
        text if text.ends_with('K') => {
            Some(text.trim_end_matches('K').parse::<f64>().expect("KiB") * 1024.0 / BLOCK_BYTES)
        }
        text if text.ends_with('%') => Some(settings.share(key, "", capacity)),
        text => Some(text.parse::<f64>().expect("blocks")),
    };
    let (bank, evicting) = match (size("bank"), size("evicting")) {
        (None, None) => auto,
        (Some(bank), Some(evicting)) => (bank.round() as usize, evicting.round() as usize),
        (Some(bank), None) => (bank.round() as usize, (auto.1 as f64).min(capacity as f64 - bank).round() as usize),
        (None, Some(evicting)) => {
            ((auto.0 as f64).min(evicting).min(capacity as f64 - evicting).round() as usize, evicting.round() as usize)
        }
    };
    let bank = bank.clamp(1, most);
    (bank, evicting.min(most - bank))
}

/// DULO on CLOCK.
pub(crate) struct Dulo {
    settings: String,
    capacity: usize,
    first: bool,
    /// The correlation buffer, the stack top at the end.
    buffer: Vec<u64>,
    buffer_size: usize,
    sections: Sections,
    young: BTreeSet<u64>,
}

impl Dulo {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Dulo {
        let (bank, evicting) = sizes(capacity, capacity, auto(capacity, &settings), &settings);
        Dulo {
            settings: settings.0.to_owned(),
            capacity,
            first: settings.number("first", "0") == 1,
            buffer: Vec::new(),
            buffer_size: capacity - bank - evicting,
            sections: Sections::new(capacity, bank, &settings),
            young: BTreeSet::new(),
        }
    }

    fn push(&mut self, block: u64) {
        self.buffer.push(block);
        self.overflow();
    }

    fn overflow(&mut self) {
        while self.buffer.len() > self.buffer_size {
            let bottom = self.buffer.remove(0);
            self.sections.enter(bottom);
        }
    }
}

impl Model for Dulo {
    fn access(&mut self, block: u64) -> Outcome {
        if self.buffer.contains(&block) || self.sections.contains(block) {
            self.young.insert(block);
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.buffer.len() + self.sections.blocks() == self.capacity).then(|| self.shed());
        self.push(block);
        if self.first {
            self.young.insert(block);
        }
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        loop {
            if self.sections.blocks() == 0 {
                let bottom = self.buffer.remove(0);
                self.sections.enter(bottom);
            }
            self.sections.fill_evicting();
            let bottom = self.sections.evicting[0].0;
            if !self.young.remove(&bottom) {
                return self.sections.evict();
            }
            self.sections.remove(bottom);
            self.push(bottom);
        }
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        let settings = Settings(&self.settings);
        let (bank, evicting) = sizes(capacity, capacity, auto(capacity, &settings), &settings);
        self.capacity = capacity;
        self.buffer_size = capacity - bank - evicting;
        self.sections.resize(capacity, bank, &settings);
        self.overflow();
    }
}

fn auto(capacity: usize, settings: &Settings) -> (usize, usize) {
    let (bank, evicting) = ((capacity / 5).max(1), capacity);
    match settings.number("adapt", "0") {
        0 => (bank, evicting),
        _ => ((bank / 8).max(1), evicting + bank - (bank / 8).max(1)),
    }
}

/// A cache without data, whose misses are counted.
struct Sampled {
    dulo: Dulo,
    ticks: BTreeMap<u64, u64>,
    misses: u64,
    cost: f64,
}

impl Sampled {
    fn new(capacity: usize, settings: &str, plain: bool) -> Sampled {
        let mut dulo = Dulo::new(capacity, Settings(settings));
        dulo.sections.plain = plain;
        Sampled { dulo, ticks: BTreeMap::new(), misses: 0, cost: 0.0 }
    }

    fn access(&mut self, block: u64, tick: u64) {
        let outcome = self.dulo.access(block);
        if outcome.hit {
            return;
        }
        self.misses += 1;
        let before = (block & 0xffff_ffff).checked_sub(1).and_then(|_| self.ticks.get(&(block - 1)));
        let continues = before.is_some_and(|&before| tick - before <= 8);
        let Sections { position, transfer, .. } = self.dulo.sections;
        self.cost += transfer + if continues { 0.0 } else { position };
        self.ticks.insert(block, tick);
        if let Some(evicted) = outcome.evicted {
            self.ticks.remove(&evicted);
        }
    }
}

/// DULO with `adapt=1`, in a cache so small that all references are sampled.
pub(crate) struct Adaptive {
    settings: String,
    dulo: Dulo,
    dual: Sampled,
    clock: Sampled,
    /// The size of the sampled caches.
    size: usize,
    plain: bool,
    next: u64,
    tick: u64,
}

impl Adaptive {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Adaptive {
        assert!(capacity < 32768, "a cache that is not sampled");
        let text = settings.0.to_owned();
        Adaptive {
            dual: Sampled::new(capacity, &text, false),
            clock: Sampled::new(capacity, &text, true),
            dulo: Dulo::new(capacity, settings),
            settings: text,
            size: capacity,
            plain: false,
            next: 64,
            tick: 0,
        }
    }
}

impl Model for Adaptive {
    fn access(&mut self, block: u64) -> Outcome {
        let hit = self.dulo.buffer.contains(&block) || self.dulo.sections.contains(block);
        // In a full cache, a block is evicted before the new one enters.
        let full = self.dulo.buffer.len() + self.dulo.sections.blocks() == self.dulo.capacity;
        let evicted = (!hit && full).then(|| self.dulo.shed());
        self.tick += 1;
        self.dual.access(block, self.tick);
        self.clock.access(block, self.tick);
        if self.clock.misses >= self.next {
            self.next = self.clock.misses + 64;
            let share = if self.plain { 0.97 } else { 1.0 };
            self.plain = self.dual.cost > share * self.clock.cost;
            self.dual.cost *= 1.0 - 1.0 / 256.0;
            self.clock.cost *= 1.0 - 1.0 / 256.0;
        }
        self.dulo.sections.plain = self.plain;
        self.dulo.access(block);
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        self.dulo.shed()
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        self.dulo.resize(capacity, ghosts);
        if capacity.abs_diff(self.size) > self.size / 8 {
            let dulo = std::mem::replace(&mut self.dulo, Dulo::new(1, Settings("")));
            let tick = self.tick;
            *self = Adaptive::new(capacity, Settings(&self.settings.clone()));
            (self.dulo, self.tick) = (dulo, tick);
        }
    }
}

/// DULO below another policy, which replaces the correlation buffer.
pub(crate) struct Nominated {
    settings: String,
    capacity: usize,
    base: Box<dyn Model>,
    /// Resident blocks of the base.
    resident: usize,
    sections: Sections,
}

impl Nominated {
    /// `base` creates the base of a given size.
    pub(crate) fn new(capacity: usize, settings: Settings, base: impl FnOnce(usize) -> Box<dyn Model>) -> Nominated {
        let (bank, base_size) = divide(capacity, &settings);
        let (base, sections) = (base(base_size), Sections::new(capacity, bank, &settings));
        Nominated { settings: settings.0.to_owned(), capacity, base, resident: 0, sections }
    }

    fn nominate(&mut self) {
        let nominee = self.base.shed();
        self.resident -= 1;
        self.sections.enter(nominee);
    }
}

/// The sizes of bank and base.
fn divide(capacity: usize, settings: &Settings) -> (usize, usize) {
    let most = (capacity - 1).max(1);
    let (bank, evicting) = sizes(capacity, most, (capacity / 100, capacity / 100 * 8), settings);
    (bank, (capacity - bank - evicting).max(1))
}

impl Model for Nominated {
    fn access(&mut self, block: u64) -> Outcome {
        let nominated = self.sections.contains(block);
        if nominated {
            self.sections.remove(block);
        }
        let outcome = self.base.access(block);
        match outcome.evicted {
            Some(nominee) => self.sections.enter(nominee),
            None => self.resident += usize::from(!outcome.hit),
        }
        let hit = nominated || outcome.hit;
        let over = self.resident + self.sections.blocks() > self.capacity;
        Outcome { hit, evicted: over.then(|| self.sections.evict()) }
    }

    fn shed(&mut self) -> u64 {
        if self.sections.blocks() == 0 {
            self.nominate();
        }
        self.sections.fill_evicting();
        self.sections.evict()
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        let settings = Settings(&self.settings);
        let (bank, base_size) = divide(capacity, &settings);
        self.capacity = capacity;
        self.sections.resize(capacity, bank, &settings);
        self.base.resize(base_size, ghosts);
        while self.resident > base_size {
            self.nominate();
        }
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.base.ghosts().into_iter().filter(|&block| !self.sections.contains(block)).collect()
    }
}
