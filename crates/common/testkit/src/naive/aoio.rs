//! AOIO: blocks of the code whose class comes first leave first; the classes are computed anew from all that each piece
//! of code did.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::naive::{Model, Portion, Reference, Settings, take};

/// References of a piece of code.
#[derive(Default)]
struct Code {
    /// Its place in the order in which code appeared.
    number: u64,
    /// For each reference: does it follow the last block of its file, is it a file's first block, and did nobody or other
    /// code use the block last?
    references: Vec<[bool; 3]>,
    /// How long its blocks waited for their next reference.
    waits: Vec<u64>,
    class: usize,
    period: f64,
    /// The time of its first reference.
    began: u64,
}

const SEQUENTIAL: usize = 0;
const RANDOM: usize = 1;
const SHORT: usize = 2;
const LOOP: usize = 3;

/// The whole cache.
pub(super) struct Aoio {
    /// Class and period by code, from an earlier run.
    table: BTreeMap<u64, (usize, f64)>,
    capacity: usize,
    history: Portion,
    room: usize,
    codes: BTreeMap<u64, Code>,
    /// Resident blocks, the most recently used first.
    resident: Vec<u64>,
    /// Evicted blocks, the latest first.
    ghosts: Vec<u64>,
    /// For each known block, the code that used it last, and when.
    used: BTreeMap<u64, (u64, u64)>,
    tails: BTreeMap<u64, u64>,
    clock: u64,
}

impl Aoio {
    pub(super) fn new(capacity: usize, settings: Settings) -> Aoio {
        let history = settings.history("3");
        let (resident, ghosts, room) = (Vec::new(), Vec::new(), usize::MAX);
        let (codes, used, tails) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let table = BTreeMap::new();
        Aoio { table, capacity, history, room, codes, resident, ghosts, used, tails, clock: 0 }
    }

    /// With the table of a run that made the references `before`, in a cache for all of their blocks.
    pub(super) fn trained(capacity: usize, settings: Settings, before: &[Reference]) -> Aoio {
        let mut first = Aoio::new(before.len().max(1), Settings(""));
        for &reference in before {
            first.reference(reference);
        }
        first.codes.values_mut().for_each(Code::classify);
        let table = first.codes.iter().map(|(&code, seen)| (code, (seen.class, seen.period))).collect();
        Aoio { table, ..Aoio::new(capacity, settings) }
    }

    fn forget(&mut self) {
        let most = self.history.of(self.capacity).min(self.room);
        while self.ghosts.len() > most {
            let oldest = self.ghosts.pop().expect("there are ghosts");
            self.used.remove(&oldest);
        }
    }

    /// The time of the last reference was one tick before the next one's.
    fn victim(&self) -> u64 {
        let now = self.clock.saturating_sub(1);
        let of = |block: &u64| self.used[block].0;
        let age = |block: u64| now - self.used[&block].1;
        let classes = |block: &u64| self.codes[&of(block)].class;
        let first = self.resident.iter().map(classes).min().expect("a block is resident");
        let mut candidates = self.resident.iter().copied().filter(|block| classes(block) == first);
        match first {
            SEQUENTIAL => candidates.next().expect("the most recent one"),
            RANDOM => candidates.next_back().expect("the least recent one"),
            _ => {
                let longest = candidates.map(|block| of(&block)).max_by(|one, other| {
                    let [one, other] = [one, other].map(|code| &self.codes[code]);
                    (one.period.trunc(), other.number)
                        .partial_cmp(&(other.period.trunc(), one.number))
                        .expect("numbers")
                });
                let code = longest.expect("code with blocks");
                let blocks: Vec<u64> = self.resident.iter().copied().filter(|block| of(block) == code).collect();
                let code = &self.codes[&code];
                let (front, back) = (blocks[0], blocks[blocks.len() - 1]);
                if age(back) as f64 > 2.0 * code.period { back } else { front }
            }
        }
    }
}

impl Code {
    fn classify(&mut self) {
        let count = |which: fn(&[bool; 3]) -> bool| self.references.iter().filter(|one| which(one)).count() as f64;
        let all = self.references.len() as f64;
        let (in_order, runs, new) = (count(|one| one[0] || one[1]), count(|one| !one[0]), count(|one| one[2]));
        let waits: Vec<f64> = self.waits.iter().map(|&wait| wait as f64).collect();
        let times = waits.len() as f64;
        let mean = waits.iter().sum::<f64>() / times;
        self.period = if waits.is_empty() { f64::INFINITY } else { mean };
        let deviation = (waits.iter().map(|wait| wait * wait).sum::<f64>() / times - mean * mean).max(0.0).sqrt();
        self.class = if all < 20.0 {
            RANDOM
        } else if times >= 20.0 && times >= 0.5 * new {
            match () {
                () if deviation > mean => RANDOM,
                () if all / runs.max(1.0) >= 20.0 => LOOP,
                () => SHORT,
            }
        } else if 2.0 * in_order >= all {
            SEQUENTIAL
        } else {
            RANDOM
        };
    }
}

impl Model for Aoio {
    fn access(&mut self, block: u64) -> Outcome {
        self.reference(Reference::by(0, block))
    }

    fn reference(&mut self, reference: Reference) -> Outcome {
        let Reference { code, file, index, block } = reference;
        let hit = take(&mut self.resident, block);
        let mut evicted = None;
        if !hit {
            if self.resident.len() == self.capacity {
                let victim = self.victim();
                take(&mut self.resident, victim);
                self.ghosts.insert(0, victim);
                evicted = Some(victim);
            }
            take(&mut self.ghosts, block);
        }
        let number = self.codes.len() as u64;
        self.codes.entry(code).or_insert_with(|| Code {
            number,
            class: RANDOM,
            period: f64::INFINITY,
            began: self.clock,
            ..Code::default()
        });
        let before = self.used.insert(block, (code, self.clock));
        if let Some((other, time)) = before {
            self.codes.get_mut(&other).expect("it is known").waits.push(self.clock - time);
        }
        let follows = self.tails.insert(file, index) == index.checked_sub(1) && index > 0;
        let own = self.codes.get_mut(&code).expect("it is known");
        own.references.push([follows, index == 0, before.is_none_or(|(other, _)| other != code)]);
        if own.references.len() < 64 || own.references.len().is_multiple_of(16) {
            own.classify();
            if let Some(&(class, period)) = self.table.get(&code) {
                let is_early = own.references.len() < 64;
                let is_before_a_round = class >= SHORT && ((self.clock - own.began) as f64) < period;
                if own.class < SHORT && (is_early || is_before_a_round) {
                    (own.class, own.period) = (class, period);
                }
            }
        }
        self.resident.insert(0, block);
        self.clock += 1;
        self.forget();
        Outcome { hit, evicted }
    }

    fn shed(&mut self) -> u64 {
        let victim = self.victim();
        take(&mut self.resident, victim);
        self.ghosts.insert(0, victim);
        self.forget();
        victim
    }

    fn resize(&mut self, capacity: usize, ghosts: usize) {
        (self.capacity, self.room) = (capacity, ghosts);
        self.forget();
    }

    fn ghosts(&self) -> BTreeSet<u64> {
        self.ghosts.iter().copied().collect()
    }
}
