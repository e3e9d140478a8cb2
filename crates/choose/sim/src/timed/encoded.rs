//! Encoded blocks in virtual time: the first level of the engine, as `nigh serve --content` has it. Contents, codecs, the
//! choice of encodings and the shares of the memory are those of the server (`nigh_content::Writer`); times are those of
//! `contents::times`.
//!
//! Its life:
//! 1. [`EncodedLevel::write`] and [`EncodedLevel::trim`] follow what the programs make of the contents of disks, and
//!    [`EncodedLevel::transfer`] moves bytes between frames and other devices.
//! 2. [`EncodedLevel::store`] takes blocks that left the frames. The encoder begins with the first ones at once, if it is idle.
//! 3. [`EncodedLevel::go_on`] is called when the time that encoding takes is over: it completes the store in the engine, pauses
//!    if the encoder has used its share of the processor, and goes on with the next store.
//! 4. [`EncodedLevel::fetch`] decodes blocks.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use nigh_content::{Area, BLOCK_BYTES, Block, Choice, Codecs, Copied, Host, Lending, Writer};
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

/// Contents of the disks.
struct Disks<'a> {
    encoded: &'a Encoded<'a>,
    written: HashMap<(u16, u64), Written>,
    /// Contents of other levels, by port and block.
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
    writer: Writer,
    codecs: Codecs,
    copied: Copied,
    waiting: VecDeque<Operation>,
    /// The store in progress, and the places of it that found no room.
    storing: Option<(Operation, Vec<u32>)>,
    /// Whether nothing is stored, and nothing will be when a pause is over.
    is_idle: bool,
    outcome: EncodedOutcome,
    /// The counts when the warm-up ended.
    warm: EncodedOutcome,
}

/// The cache, as the writer needs it.
struct Memory<'a> {
    area: &'a mut Area,
    engine: &'a mut Engine,
    /// The time that encoding takes, in ns.
    took_ns: u64,
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
        engine.attach(port, PortConfig { depth: u32::MAX, ..PortConfig::default() })?;
        let blocks = EncodedLevel::lending(pages).places(1);
        let (faults, patience_us) = (u32::MAX, u64::MAX);
        engine.add_level(LevelConfig { port, offset: 0, blocks, faults, patience_us, shared: false, elastic: true })?;
        let disks = Disks { encoded, written: HashMap::new(), below: HashMap::new(), failed: None };
        let area = Area::new(encoded.scheme, SEED, pages.into(), 1);
        Ok(EncodedLevel {
            disks,
            port,
            writer: Writer::new(&area, encoded.cpu),
            area,
            codecs: Codecs::new(),
            copied: Copied::new(),
            waiting: VecDeque::new(),
            storing: None,
            is_idle: true,
            outcome: EncodedOutcome::default(),
            warm: EncodedOutcome::default(),
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
            let id = self.area.copy(PART, place, &mut self.copied);
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
            self.writer.settle(&mut Memory::new(&mut self.area, engine), PART);
            let [now, used] = [now_ns, self.outcome.encode_ns].map(Duration::from_nanos);
            if let Some(debt) = self.writer.debt(now, used) {
                return Some(now_ns + debt.as_nanos() as u64);
            }
        }
        let Some(mut operation) = self.waiting.pop_front() else {
            // Blocks that were trimmed meanwhile.
            self.writer.settle(&mut Memory::new(&mut self.area, engine), PART);
            self.is_idle = true;
            return None;
        };
        self.is_idle = false;
        operation.seal();
        let Action::Write(frames) = &operation.action else { unreachable!("blocks are stored by writes") };
        let blocks = frames.slices().map(|frame| frame.try_into().expect("a level stores whole blocks"));
        let blocks = blocks.map(|block| (Some(DOMAIN), block));
        let first = (operation.offset / BLOCK_BYTES as u64) as u32;
        let mut memory = Memory::new(&mut self.area, engine);
        let rejected = self.writer.store(&mut memory, PART, first, blocks);
        let took_ns = memory.took_ns;
        self.storing = Some((operation, rejected));
        self.outcome.encode_ns += took_ns;
        Some(now_ns + took_ns)
    }

    /// The warm-up ends: what follows is counted.
    pub(super) fn end_warmup(&mut self) {
        self.warm = EncodedOutcome { encoded: self.area.encoded, rejected: self.area.rejected, ..self.outcome.clone() };
    }

    /// The outcome since the warm-up; `cache` has the counts of the engine.
    pub(super) fn outcome(self, cache: LevelCounters) -> io::Result<EncodedOutcome> {
        self.disks.failed.map_or(Ok(()), Err)?;
        let (counts, all, warm) = (self.area.store.counts(), self.outcome, self.warm);
        Ok(EncodedOutcome {
            cache,
            lent_pages: self.area.lending.lent(),
            one_of: self.area.lending.one_of(),
            blocks: counts.owners,
            contents: counts.contents,
            differences: counts.differences,
            encoded: self.area.encoded - warm.encoded,
            encode_ns: all.encode_ns - warm.encode_ns,
            rejected: self.area.rejected - warm.rejected,
            decoded: all.decoded - warm.decoded,
            decode_ns: all.decode_ns - warm.decode_ns,
            missing: all.missing - warm.missing,
        })
    }
}

impl Memory<'_> {
    fn new<'a>(area: &'a mut Area, engine: &'a mut Engine) -> Memory<'a> {
        Memory { area, engine, took_ns: 0 }
    }
}

impl Host for Memory<'_> {
    fn read<R>(&self, look: impl FnOnce(&Area) -> R) -> R {
        look(self.area)
    }

    fn write<R>(&mut self, change: impl FnOnce(&mut Area) -> R) -> R {
        change(self.area)
    }

    fn planned(&mut self, is_thorough: bool, choice: Option<Choice>) {
        self.took_ns += times::encode(self.area.scheme(), is_thorough, choice);
    }

    fn thin(&mut self, one_of: u32) {
        self.engine.thin_level(LEVEL, one_of);
    }

    fn shed(&mut self, _part: u32, count: u32) -> u32 {
        self.engine.shed_level(LEVEL, count)
    }

    fn shed_all(&mut self, _part: u32) {
        while self.engine.level_blocks(LEVEL) != Some(0) {
            self.engine.shed_level(LEVEL, u32::MAX);
        }
    }

    fn take_left(&mut self, _part: u32, most: usize) -> Vec<u32> {
        self.engine.take_left_places(LEVEL, most)
    }

    fn return_places(&mut self, _part: u32, places: &[u32]) {
        self.engine.return_places(LEVEL, places);
    }

    fn adapt_frames(&mut self) -> bool {
        self.engine.resize(self.area.lending.frames(1)).is_ok()
    }
}
