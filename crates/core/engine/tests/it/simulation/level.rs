//! Levels whose devices lose, tear and corrupt what they are given, and restarts with what they hold.

use std::ops::Range;

use nigh_content::BLOCK_BYTES;
use nigh_engine::{Action, LevelConfig, Port, PortConfig, Stored};
use rand::RngExt;

use crate::simulation::encoded::Encoded;
use crate::simulation::{InFlight, Random, Safety, World};

/// The port of the first level.
const FIRST: u16 = 100;

/// The device of a level.
pub(crate) struct LevelDisk {
    config: LevelConfig,
    bytes: Vec<u8>,
    /// How likely it fails an operation, and returns or keeps something else without a word.
    fault_rate: f64,
    lie_rate: f64,
    /// In place of `bytes`.
    pub(crate) encoded: Option<Encoded>,
}

/// Up to two levels, and how many frames there are for storing.
pub(crate) fn levels(random: &mut Random, block_bytes: u32, calm: bool) -> (Vec<LevelDisk>, u32) {
    let count = random.random_range(0..=2u16);
    let mut level = |number| {
        let blocks = if random.random_bool(0.2) { random.random_range(1..6) } else { random.random_range(6..150) };
        let offset = u64::from(block_bytes) * random.random_range(0..3u64);
        let faults = random.random_range(1..20);
        let bytes = vec![0x5a; offset as usize + (blocks * block_bytes) as usize];
        let rate = |random: &mut Random, most: f64| {
            if !calm && random.random_bool(0.5) { random.random_range(0.0..most) } else { 0.0 }
        };
        let (fault_rate, lie_rate) = (rate(random, 0.3), rate(random, 0.2));
        let elastic = block_bytes as usize == BLOCK_BYTES && random.random_bool(0.6);
        let encoded = elastic.then(|| Encoded::new(random, blocks, calm));
        // Some are often late, and some never.
        let patience_us = if calm || random.random_bool(0.5) { u64::MAX } else { random.random_range(1..2000) };
        let port = Port(FIRST + number);
        let config = LevelConfig { port, offset, blocks, faults, patience_us, shared: false, elastic };
        LevelDisk { config, bytes, fault_rate, lie_rate, encoded }
    };
    let levels: Vec<LevelDisk> = (0..count).map(&mut level).collect();
    let storing = if levels.is_empty() { 0 } else { random.random_range(1..24) };
    (levels, storing)
}

/// Has ULC decide for memory and levels, unless some are elastic.
pub(crate) fn unify(random: &mut Random, config: &mut nigh_engine::Config, levels: &mut [LevelDisk]) {
    if levels.is_empty() || levels.iter().any(|level| level.config.elastic) {
        return;
    }
    let ghosts = ["ulc", "ulc:ghosts=0:first=last", "ulc:ghosts=0.3"][random.random_range(0..3usize)];
    config.policy = ghosts.parse().expect("a possible policy");
    config.levels = levels.iter().map(|level| level.config.blocks).collect();
    if let Some(last) = levels.last_mut() {
        last.config.shared = random.random_bool(0.5);
    }
}

impl World {
    /// Which level has `port`.
    pub(crate) fn level_of(port: Port) -> Option<usize> {
        port.0.checked_sub(FIRST).map(usize::from)
    }

    pub(crate) fn add_levels(&mut self) {
        for level in &mut self.levels {
            level.encoded.iter_mut().for_each(Encoded::clear);
            let depth = PortConfig { depth: 3, ..PortConfig::default() };
            self.engine.attach(level.config.port, depth).expect("the port is not open");
            self.engine.add_level(level.config).expect("a possible level");
        }
    }

    /// Whether the level's device fails this operation.
    pub(crate) fn level_fails(&mut self, level: usize) -> bool {
        self.random.random_bool(self.levels[level].fault_rate)
    }

    /// The effect of an operation on the level's device.
    pub(crate) fn apply_to_level(&mut self, level: usize, flight: &mut InFlight, whole: bool) {
        let LevelDisk { config, bytes, lie_rate, encoded, .. } = &mut self.levels[level];
        if let Some(encoded) = encoded {
            let place = (flight.operation.offset - config.offset) / BLOCK_BYTES as u64;
            encoded.apply(&mut self.engine, level, place as u32, flight, &mut self.random);
            return;
        }
        let start = flight.operation.offset as usize;
        let place = &mut bytes[start..start + flight.operation.length as usize];
        let lies = self.random.random_bool(*lie_rate);
        let part = if whole && !lies { place.len() } else { self.random.random_range(0..=place.len()) };
        match &mut flight.operation.action {
            Action::Read(frames) => {
                let mut data = place.to_vec();
                data[part..].fill(0xe1);
                frames.copy_from(&data);
                if flight.operation.leaves {
                    place.fill(0x77);
                }
            }
            Action::Write(frames) => {
                let mut data = vec![0; place.len()];
                frames.copy_to(&mut data);
                place[..part].copy_from_slice(&data[..part]);
            }
            other => panic!("a level is read and written, {} otherwise", matches!(other, Action::Flush)),
        }
        if self.random.random_bool(0.5) {
            flight.operation.seal();
        }
    }

    /// An operation of the level is complete.
    pub(crate) fn level_completed(&mut self, level: usize) {
        if let Some(encoded) = &mut self.levels[level].encoded {
            encoded.complete(&mut self.engine, level);
        }
    }

    /// Switches a level off, has it evict blocks, or take fewer.
    pub(crate) fn administer_level(&mut self) {
        let level = self.random.random_range(0..self.levels.len());
        let LevelDisk { config, bytes, .. } = &mut self.levels[level];
        if config.shared && self.random.random_bool(0.8) {
            // Blocks of others take the places of some.
            let left: Vec<u32> = (0..4).map(|_| self.random.random_range(0..config.blocks + 2)).collect();
            let block = self.engine.config().block_bytes as usize;
            for place in left.iter().filter(|place| **place < config.blocks) {
                bytes[config.offset as usize + *place as usize * block..][..block].fill(0x78);
            }
            if self.random.random_bool(0.2) {
                return self.engine.empty_places(level, &left);
            }
            let free = self.random.random_range(0..20);
            let oldest = self.random.random_bool(0.5).then(|| self.random.random_range(0..10_000));
            return self.engine.note_shared(self.now, level, &left, free, oldest);
        }
        match self.random.random_range(0..3) {
            0 => self.engine.drop_level(level),
            1 => _ = self.engine.shed_level(level, self.random.random_range(1..50)),
            _ => self.engine.thin_level(level, self.random.random_range(1..4)),
        }
    }

    pub(crate) fn count_levels(&mut self) {
        for level in 0..self.levels.len() {
            let (counters, off) = self.engine.level_counters(level).expect("a level");
            self.done.level_hits += counters.hits;
            self.done.stores += counters.stores;
            self.done.mismatches += counters.mismatches;
            self.done.late += counters.late;
            if let Some(encoded) = &self.levels[level].encoded {
                self.done.decoded += counters.hits;
                self.done.flipped += encoded.flipped;
            }
            self.done.invalidations += counters.invalidations;
            self.done.switched_off += u64::from(off);
        }
    }

    /// Ends the engine in order and starts another one, which gets the contents of the levels, unless a disk was changed.
    pub(crate) fn restart(&mut self) {
        if self.closed.contains(&true) {
            return;
        }
        let crashes = self.done.crashes;
        self.restarting = true;
        (0..self.disks.len()).for_each(|at| self.close(at, false));
        self.settle(|world| !world.closed.contains(&true) && world.in_flight.is_empty());
        self.restarting = false;
        let shut = std::mem::take(&mut self.shut);
        if self.done.crashes > crashes {
            return;
        }
        if shut.len() < self.disks.len() {
            // Levels that could not be written stay open.
            return shut.into_iter().for_each(|at| self.open(at));
        }
        self.engine.check();
        let mut images: Vec<Vec<Stored>> = Vec::new();
        for (number, level) in self.levels.iter().enumerate() {
            let blocks = level.config.blocks;
            let step = self.random.random_range(1..=blocks);
            let pieces = (0..blocks).step_by(step as usize).map(|start| start..start + step);
            images.push(pieces.flat_map(|places: Range<u32>| self.engine.stored(number, places)).collect());
        }
        self.count();
        let config = self.engine.config().clone();
        self.engine = nigh_engine::Engine::new(config).expect("the set-up is possible");
        if let Some(talk) = &mut self.talk {
            talk.forget();
        }
        self.held.clear();
        let changed = self.random.random_bool(0.3);
        if changed {
            let at = self.random.random_range(0..self.disks.len());
            self.change_disk(at);
        }
        self.open_all();
        // Encoded blocks are gone with their process.
        let lasting = |number: &usize| self.levels[*number].encoded.is_none();
        let lasting: Vec<usize> = (0..self.levels.len()).filter(lasting).collect();
        for (number, image) in lasting.iter().map(|&number| (number, &images[number])).filter(|_| !changed) {
            let taken = self.engine.restore(number, image).expect("nothing happened yet");
            // A level has blocks that belong elsewhere, too, of which ULC takes as many as the level holds by its rules, and none that a
            // level above has.
            let is_directed = !self.engine.config().levels.is_empty();
            let above = || images[..number].iter().flatten().map(|stored| (stored.volume, stored.block));
            let is_above = |stored: &Stored| above().any(|block| block == (stored.volume, stored.block));
            let some = taken > 0 || image.iter().all(is_above);
            assert!(
                taken as usize == image.len() || is_directed && some && (taken as usize) < image.len(),
                "level {number} took {taken} of {} blocks",
                image.len()
            );
            self.done.restored += u64::from(taken);
        }
        self.engine.check();
    }

    /// Somebody else writes to a disk while nobody serves it.
    fn change_disk(&mut self, at: usize) {
        let token = self.next_token;
        self.next_token += 1;
        let atoms = self.disks[at].bytes().len() / crate::simulation::model::ATOM;
        let first = self.random.random_range(0..atoms);
        let began = self.tick();
        self.models[at].begin(began, first..atoms, token, token);
        let mut data = vec![0; (atoms - first) * crate::simulation::model::ATOM];
        for (atom, bytes) in (first..).zip(data.chunks_exact_mut(crate::simulation::model::ATOM)) {
            crate::simulation::model::encode(token, at as u64 + 1, atom, bytes);
        }
        let now = self.tick();
        self.disks[at].overwrite(first * crate::simulation::model::ATOM, &data);
        self.models[at].end(now, first..atoms, token, Some(Safety::Stable));
    }
}
