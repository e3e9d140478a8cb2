//! Encoded blocks in virtual time: the first level of the engine, as `nigh serve --content` has it. Contents, codecs, the
//! choice of encodings and the shares of the memory are those of the server; times are those of `contents::times`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use nigh_content::{Area, BLOCK_BYTES, Block, Budget, Codecs, ContentId, Copied, Encoder, Lending, Refused, Room};
use nigh_engine::{Action, ConfigError, Engine, LevelConfig, LevelCounters, Operation, Port, PortConfig};

use super::{Encoded, EncodedOutcome, Step};
use crate::contents::{Written, times};
use crate::references::content_of;

/// The number of the level.
const LEVEL: usize = 0;
/// The cache is one part.
const PART: u32 = 0;
/// All disks share equal and similar blocks.
const DOMAIN: u32 = 0;
/// Contents are the same in each run.
const SEED: u64 = 1;
/// How many blocks are evicted at a time.
const SHED: u32 = 16;
/// How often room is made for one block.
const TRIES: u32 = 64;

/// What the disks have.
struct Disks<'a> {
    encoded: &'a Encoded<'a>,
    written: HashMap<(u16, u64), Written>,
    /// What other levels have, by port and block.
    below: HashMap<(u16, u64), Box<Block>>,
    /// The first image that could not be read.
    failed: Option<io::Error>,
}

impl Disks<'_> {
    /// The present bytes of a block.
    fn bytes(&mut self, disk: u16, block: u64, bytes: &mut Block) {
        let now = self.written.get(&(disk, block)).copied().unwrap_or_default();
        let volume = self.encoded.volumes[usize::from(disk)];
        let of = nigh_policy::Block { volume, index: block };
        let salt = self.encoded.seed ^ (u64::from(volume) << 40 ^ block).wrapping_mul(0xd6e8_feb8_6659_fd93);
        if let Err(error) = self.encoded.source.bytes(of, now, salt, bytes) {
            self.failed.get_or_insert(error);
        }
    }
}

/// The level of encoded blocks.
pub(super) struct EncodedLevel<'a> {
    disks: Disks<'a>,
    port: Port,
    area: Area,
    lending: Lending,
    /// None while it encodes a block.
    encoder: Option<Encoder>,
    codecs: Codecs,
    copied: Copied,
    budget: Budget,
    /// When the budget was last looked at, and the time that was used since, in ns.
    looked_ns: u64,
    used_ns: u64,
    waiting: VecDeque<Operation>,
    /// What is being stored, and the places of it that found no room.
    storing: Option<(Operation, Vec<u32>)>,
    /// Whether nothing is stored, and nothing will be when a pause is over.
    is_idle: bool,
    one_of: u32,
    /// Whether the encoder takes its time.
    is_thorough: bool,
    outcome: EncodedOutcome,
}

impl<'a> EncodedLevel<'a> {
    /// How memory of `pages` pages is shared at first.
    pub(super) fn lending(pages: u32) -> Lending {
        Lending::new(pages.into())
    }

    /// Adds it to an engine without levels.
    pub(super) fn new(
        encoded: &'a Encoded<'a>,
        pages: u32,
        port: Port,
        engine: &mut Engine,
    ) -> Result<EncodedLevel<'a>, ConfigError> {
        let lending = EncodedLevel::lending(pages);
        engine.attach(port, PortConfig { depth: u32::MAX, ..PortConfig::default() })?;
        let blocks = lending.places().clamp(1, u64::from(u32::MAX - 2)) as u32;
        let (faults, patience_us) = (u32::MAX, u64::MAX);
        engine.add_level(LevelConfig { port, offset: 0, blocks, faults, patience_us, shared: false, elastic: true })?;
        let disks = Disks { encoded, written: HashMap::new(), below: HashMap::new(), failed: None };
        Ok(EncodedLevel {
            disks,
            port,
            area: Area::new(encoded.scheme.store(lending, SEED), 1),
            lending,
            encoder: Some(Encoder::new(encoded.scheme.rules())),
            codecs: Codecs::new(),
            copied: Copied::new(),
            budget: Budget::new(encoded.cpu),
            looked_ns: 0,
            used_ns: 0,
            waiting: VecDeque::new(),
            storing: None,
            is_idle: true,
            one_of: 1,
            is_thorough: true,
            outcome: EncodedOutcome::default(),
        })
    }

    /// Whether it has this port.
    pub(super) fn has(&self, port: Port) -> bool {
        self.port == port
    }

    /// A program writes from `offset` on, as a part of `step`. `frames` are those of the write, one for each block.
    pub(super) fn write<'f>(&mut self, step: &Step, offset: u64, frames: impl Iterator<Item = &'f mut [u8]>) {
        let mut bytes = [0; BLOCK_BYTES];
        let mut skip = (offset % BLOCK_BYTES as u64) as usize;
        let first = step.offset / BLOCK_BYTES as u64;
        for (block, frame) in (offset / BLOCK_BYTES as u64..).zip(frames) {
            let written = self.disks.written.entry((step.disk, block)).or_default();
            let content = Some(content_of(step.content, block - first)).filter(|&content| content != 0);
            *written = Written { times: written.times + 1, content, is_trimmed: false };
            self.disks.bytes(step.disk, block, &mut bytes);
            frame.copy_from_slice(&bytes[skip..skip + frame.len()]);
            skip = 0;
        }
    }

    /// A program discards whole blocks of a range.
    pub(super) fn trim(&mut self, disk: u16, offset: u64, length: u64) {
        let block = BLOCK_BYTES as u64;
        for block in offset.div_ceil(block)..(offset + length) / block {
            self.disks.written.entry((disk, block)).or_default().is_trimmed = true;
        }
    }

    /// A disk or another level is done with an operation. `disk` is the number of the disk, if it is one.
    pub(super) fn transfer(&mut self, operation: &mut Operation, disk: Option<u16>) {
        let (port, first) = (operation.port.0, operation.offset / BLOCK_BYTES as u64);
        match (&mut operation.action, disk) {
            (Action::Read(frames), Some(disk)) => {
                let mut bytes = [0; BLOCK_BYTES];
                for (block, frame) in (first..).zip(frames.slices_mut()) {
                    // A block that is read has no newer bytes in memory, so its disk has the present ones.
                    self.disks.bytes(disk, block, &mut bytes);
                    frame.copy_from_slice(&bytes[..frame.len()]);
                }
            }
            (Action::Read(frames), None) => {
                for (block, frame) in (first..).zip(frames.slices_mut()) {
                    frame.copy_from_slice(&self.disks.below[&(port, block)][..]);
                }
            }
            (Action::Write(frames), None) => {
                for (block, frame) in (first..).zip(frames.slices()) {
                    let bytes = self.disks.below.entry((port, block)).or_insert_with(|| Box::new([0; BLOCK_BYTES]));
                    bytes.copy_from_slice(frame);
                }
            }
            _ => {}
        }
    }

    /// Decodes blocks; returns how long that takes, in ns. A block whose content is gone becomes zeros: the engine compares
    /// checksums, and loads it from below.
    pub(super) fn fetch(&mut self, operation: &mut Operation) -> u64 {
        let first = (operation.offset / BLOCK_BYTES as u64) as u32;
        let Action::Read(frames) = &mut operation.action else { return 0 };
        let mut took_ns = 0;
        for (place, frame) in (first..).zip(frames.slices_mut()) {
            let id = self.area.id(PART, place).filter(|&id| self.area.store.copy(id, &mut self.copied));
            let frame: &mut Block = frame.try_into().expect("a level has whole blocks");
            match id.and_then(|id| self.area.store.encoding(id)) {
                Some((codec, _)) if self.copied.decode(&mut self.codecs, frame) => {
                    self.outcome.decoded += 1;
                    took_ns += times::decode(codec);
                }
                _ => {
                    self.outcome.missing += 1;
                    frame.fill(0);
                }
            }
        }
        self.outcome.decode_ns += took_ns;
        took_ns
    }

    /// Takes blocks to be stored. When the encoder is next to be called, if it has to be.
    pub(super) fn store(&mut self, operation: Operation, engine: &mut Engine, now_ns: u64) -> Option<u64> {
        self.waiting.push_back(operation);
        if self.is_idle { self.go_on(engine, now_ns) } else { None }
    }

    /// The encoder is done with something, or with a pause. When it is next to be called, if it has to be.
    pub(super) fn go_on(&mut self, engine: &mut Engine, now_ns: u64) -> Option<u64> {
        if let Some((operation, rejected)) = self.storing.take() {
            engine.complete(now_ns / 1000, operation, Ok(()));
            rejected.iter().for_each(|&place| engine.reject_place(LEVEL, place));
            self.settle(engine);
            let passed = Duration::from_nanos(now_ns - self.looked_ns);
            let used = Duration::from_nanos(std::mem::take(&mut self.used_ns));
            self.looked_ns = now_ns;
            if let Some(debt) = self.budget.debt(passed, used) {
                return Some(now_ns + debt.as_nanos() as u64);
            }
        }
        let Some(operation) = self.waiting.pop_front() else {
            // What was trimmed meanwhile.
            self.settle(engine);
            self.is_idle = true;
            return None;
        };
        self.is_idle = false;
        self.is_thorough = self.budget.is_ample() && self.one_of == 1;
        self.encoder.iter_mut().for_each(|encoder| encoder.set_thorough(self.is_thorough));
        let took_ns = self.encode(operation, engine);
        self.used_ns += took_ns;
        self.outcome.encode_ns += took_ns;
        Some(now_ns + took_ns)
    }

    /// Encodes blocks; returns how long that takes, in ns.
    fn encode(&mut self, mut operation: Operation, engine: &mut Engine) -> u64 {
        operation.seal();
        let first = (operation.offset / BLOCK_BYTES as u64) as u32;
        let (mut took_ns, mut rejected) = (0, Vec::new());
        if let Action::Write(frames) = &operation.action {
            for (place, frame) in (first..).zip(frames.slices()) {
                let block = frame.try_into().expect("a level stores whole blocks");
                self.area.release(PART, place);
                match self.insert(engine, block, &mut took_ns) {
                    Some(id) => self.area.put(PART, place, id),
                    None => rejected.push(place),
                }
            }
        }
        // Those that were given up with all others since.
        let count = (operation.length / BLOCK_BYTES as u64) as u32;
        rejected.extend((first..first + count).filter(|&place| self.area.id(PART, place).is_none()));
        rejected.sort_unstable();
        rejected.dedup();
        self.outcome.rejected += rejected.len() as u64;
        self.area.store.rebase(self.encoder.as_mut().expect("it is back after each block"));
        self.storing = Some((operation, rejected));
        took_ns
    }

    /// Stores the content of a block.
    fn insert(&mut self, engine: &mut Engine, block: &Block, took_ns: &mut u64) -> Option<ContentId> {
        self.outcome.encoded += 1;
        self.lending.note_store();
        // Plans borrow it, while blocks leave to make room.
        let mut encoder = self.encoder.take().expect("it is back after each block");
        let stored = self.try_to_insert(&mut encoder, engine, block, took_ns);
        self.encoder = Some(encoder);
        stored
    }

    fn try_to_insert(
        &mut self,
        encoder: &mut Encoder,
        engine: &mut Engine,
        block: &Block,
        took_ns: &mut u64,
    ) -> Option<ContentId> {
        let mut tries = 0;
        while tries < TRIES {
            let plan = self.area.store.plan(encoder, DOMAIN, block);
            let scheme = self.disks.encoded.scheme;
            *took_ns += times::encode(scheme, self.is_thorough, plan.encoded());
            let mut applied = self.area.store.apply(&plan);
            while applied == Err(Refused::Full) && tries < TRIES {
                self.make_room(engine);
                applied = self.area.store.apply(&plan);
                tries += 1;
            }
            if let Ok(id) = applied {
                return Some(id);
            }
            // A content that it builds on left to make room.
            tries += 1;
        }
        None
    }

    /// The store is full: it gets more memory if it is worth it, or blocks are evicted.
    fn make_room(&mut self, engine: &mut Engine) {
        let before = self.lending;
        let room = self.lending.full(self.area.store.counts().owners, self.area.pages_in_use());
        if std::mem::replace(&mut self.one_of, self.lending.one_of()) != self.lending.one_of() {
            engine.thin_level(LEVEL, self.one_of);
        }
        match room {
            Room::Lent if self.move_memory(engine) => {}
            Room::Lent => {
                self.lending = before;
                self.evict(engine);
            }
            Room::GiveBack => self.begin_anew(engine),
            Room::Evict => self.evict(engine),
        }
    }

    fn evict(&mut self, engine: &mut Engine) {
        engine.shed_level(LEVEL, SHED);
        self.settle(engine);
    }

    /// Releases the contents of blocks that left the level.
    fn settle(&mut self, engine: &mut Engine) {
        let places = engine.take_left_places(LEVEL, usize::MAX);
        places.iter().for_each(|&place| self.area.release(PART, place));
        engine.return_places(LEVEL, &places);
    }

    /// Adapts frames and store to the pages that are lent. Returns whether that was possible.
    fn move_memory(&mut self, engine: &mut Engine) -> bool {
        let frames = self.lending.frames().clamp(1, u64::from(u32::MAX)) as u32;
        let is_possible = engine.resize(frames).is_ok();
        if is_possible {
            self.area.store.allow(self.lending.lent() as u32);
        }
        is_possible
    }

    /// Gives up all encoded blocks. Their memory, except for a small share, goes back to the frames.
    fn begin_anew(&mut self, engine: &mut Engine) {
        self.lending.restart();
        self.area.begin_anew(self.disks.encoded.scheme.store(self.lending, SEED));
        // Those of which operations are under way stay; they are loaded from below.
        while engine.shed_level(LEVEL, u32::MAX) > 0 {}
        let places = engine.take_left_places(LEVEL, usize::MAX);
        engine.return_places(LEVEL, &places);
        self.move_memory(engine);
    }

    /// What it did. `cache` is what the engine counted.
    pub(super) fn outcome(self, cache: LevelCounters) -> io::Result<EncodedOutcome> {
        self.disks.failed.map_or(Ok(()), Err)?;
        let counts = self.area.store.counts();
        Ok(EncodedOutcome {
            cache,
            lent_pages: self.lending.lent(),
            one_of: self.lending.one_of(),
            blocks: counts.owners,
            contents: counts.contents,
            differences: counts.differences,
            ..self.outcome
        })
    }
}
