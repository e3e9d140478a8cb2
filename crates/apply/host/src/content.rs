//! Encoded blocks: a level in memory that keeps equal contents once, and others as differences or compressed.
//!
//! The engines have its index and decide what is stored and fetched, as for any level. This is its device. A thread that
//! misses a block decodes it, outside of all locks; one thread encodes what leaves the frames (`encode.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_backend::{Completion, Job};
use nigh_content::{Area, BLOCK_BYTES, Block, Codecs, ContentId, Copied, Lending, StoreCounts};
use nigh_engine::{Action, Fault, LevelConfig, Operation, Port, PortConfig, Stored, Volume};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::latency::{Histogram, LatencySummary};
use crate::level::INDEX;
use crate::settings::{BLOCK, ContentSettings};
use crate::work::Encoding;

/// The level of encoded blocks is the first one.
pub(crate) const LEVEL: usize = 0;
/// Its port.
pub(crate) const PORT: Port = Port(0);
/// Damaged contents that wait to be removed. Others are found again.
const DAMAGED_MOST: usize = 1024;
/// How long a change of the memory waits for encoded blocks to begin anew.
const RESIZING: Duration = Duration::from_secs(2);
/// Blocks that are charged during one lock of the store.
const CHARGED_AT_ONCE: usize = 256;
/// Decoders that are kept for later use: at most as many as threads that decode at a time.
const SPARES: usize = 16;

/// State that a thread needs to decode a block.
struct Decoder {
    codecs: Codecs,
    copied: Copied,
    block: Box<Block>,
}

/// Stores that were not begun, and whether the end has come.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) stores: VecDeque<Encoding>,
    /// Contents that were found to be damaged, at most [`DAMAGED_MOST`].
    pub(crate) damaged: Vec<ContentId>,
    /// Changes of the memory, after which encoded blocks begin anew, and those after which they did.
    pub(crate) resizes: u64,
    pub(crate) resized: u64,
    pub(crate) is_over: bool,
}

impl Inbox {
    /// Whether encoded blocks are to begin anew.
    pub(crate) fn is_resized(&self) -> bool {
        self.resized < self.resizes
    }
}

/// Counters of encoded blocks since the start.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) encode_ns: AtomicU64,
    pub(crate) decoded: AtomicU64,
    pub(crate) missing: AtomicU64,
    pub(crate) damaged: AtomicU64,
}

/// The level of encoded blocks.
pub(crate) struct Contents {
    pub(crate) settings: ContentSettings,
    shards: usize,
    pub(crate) part_blocks: u32,
    /// Only the thread that encodes changes it, except for the size of the memory. That thread looks for similar contents and
    /// encodes beside threads that copy encodings, and excludes them only to change the store.
    pub(crate) area: RwLock<Area>,
    /// Held while frames are given up or added.
    pub(crate) moving: Mutex<()>,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) wake: Condvar,
    /// Signalled when encoded blocks have begun anew.
    pub(crate) anew: Condvar,
    spares: Mutex<Vec<Decoder>>,
    pub(crate) counts: Counts,
    decodes: Histogram,
}

/// The state of encoded blocks at one moment. Counts are since the start.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ContentStatistics {
    /// Name of the scheme: which blocks are stored once, and how the rest is encoded.
    pub scheme: String,
    /// The memory that encoded blocks may take at the moment, in bytes. Frames have the rest.
    pub bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// The number of blocks that are encoded.
    pub blocks: u64,
    /// The number of different contents that these have.
    pub contents: u64,
    /// Of these, the number that is stored as differences to others.
    pub differences: u64,
    /// The number of contents that only differences need.
    pub orphans: u64,
    /// The bytes of these.
    pub orphan_bytes: u64,
    /// The bytes that the blocks have beyond those in use.
    pub saved_bytes: u64,
    /// Memory of the index and of what is known of contents, in bytes; in addition to `bytes`.
    pub metadata_bytes: u64,
    /// One of this many blocks that leave memory is encoded: more than one if encoding did not pay.
    pub one_of: u64,
    /// Blocks that were encoded.
    pub encoded: u64,
    /// Processor time for that, in µs.
    pub encode_us: u64,
    /// Blocks that found no room.
    pub rejected: u64,
    /// Blocks that were not encoded, because too many were on their way.
    pub dropped: u64,
    /// Blocks evicted to make room for others.
    pub evictions: u64,
    /// Blocks that were decoded.
    pub decoded: u64,
    /// Blocks whose content had left when it was asked for; they were loaded from below.
    pub missing: u64,
    /// Blocks whose content was damaged in memory; they were loaded from below.
    pub damaged: u64,
    /// The time to decode a block.
    pub decode_latency: LatencySummary,
}

impl Contents {
    /// For memory that can grow to `memory_max` bytes.
    pub(crate) fn new(settings: ContentSettings, memory: u64, memory_max: u64, shards: usize) -> Contents {
        let part_blocks = Lending::new(memory_max.max(memory) / BLOCK).places(shards as u32);
        // A client that does not know the seed cannot choose contents whose hashes collide.
        let seed = RandomState::new().build_hasher().finish();
        let area = Area::new(settings.scheme, seed, memory / BLOCK, shards);
        Contents {
            shards,
            settings,
            part_blocks,
            area: RwLock::new(area),
            moving: Mutex::default(),
            inbox: Mutex::default(),
            wake: Condvar::new(),
            anew: Condvar::new(),
            spares: Mutex::default(),
            counts: Counts::default(),
            decodes: Histogram::default(),
        }
    }

    /// Its configuration in the engine of a shard.
    pub(crate) fn part(&self) -> LevelConfig {
        // A store that finds no room is no failure of a device.
        let (blocks, faults, patience_us) = (self.part_blocks, u32::MAX, u64::MAX);
        LevelConfig { port: PORT, offset: 0, blocks, faults, patience_us, shared: false, elastic: true }
    }

    /// Its port has no queue: fetches are done at once, and stores wait here.
    pub(crate) fn port(ports: PortConfig) -> PortConfig {
        PortConfig { depth: u32::MAX, ..ports }
    }

    /// Takes blocks for the thread that encodes.
    pub(crate) fn take(&self, encoding: Encoding) -> Option<Completion> {
        let mut inbox = self.inbox.lock();
        if inbox.is_over {
            drop(inbox);
            return Some(void(encoding));
        }
        inbox.stores.push_back(encoding);
        drop(inbox);
        self.wake.notify_one();
        None
    }

    /// Decodes blocks. One whose content is gone or damaged becomes zeros: the engine compares checksums, and loads it from
    /// below.
    pub(crate) fn fetch(&self, shard: u32, mut operation: Operation) -> Completion {
        let first = (operation.offset / BLOCK) as u32;
        let mut decoder = self.spares.lock().pop().unwrap_or_default();
        if let Action::Read(frames) = &mut operation.action {
            for (place, frame) in (first..).zip(frames.slices_mut()) {
                let begin = Instant::now();
                if self.decode(shard, place, &mut decoder) {
                    frame.copy_from_slice(&decoder.block[..]);
                    self.counts.decoded.fetch_add(1, Ordering::Relaxed);
                    self.decodes.add(begin.elapsed());
                } else {
                    frame.fill(0);
                }
            }
        }
        let mut spares = self.spares.lock();
        if spares.len() < SPARES {
            spares.push(decoder);
        }
        drop(spares);
        Job::new(shard, operation).finish(Ok(()))
    }

    /// Decodes the content at a place to `decoder.block`.
    fn decode(&self, shard: u32, place: u32, decoder: &mut Decoder) -> bool {
        let copied = self.area.read().copy(shard, place, &mut decoder.copied);
        let Some(id) = copied else {
            self.counts.missing.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let is_right = decoder.copied.decode(&mut decoder.codecs, &mut decoder.block);
        if !is_right {
            self.counts.damaged.fetch_add(1, Ordering::Relaxed);
            let mut inbox = self.inbox.lock();
            if inbox.damaged.len() < DAMAGED_MOST {
                inbox.damaged.push(id);
            }
            drop(inbox);
            self.wake.notify_one();
        }
        is_right
    }

    /// Frames and encoded blocks together have `memory` bytes from now on. `change` gets the frames of each shard, after
    /// encoded blocks have begun anew, unless that takes long.
    pub(crate) fn resize<R>(&self, memory: u64, shards: u32, change: impl FnOnce(u32) -> R) -> R {
        let is_changed = self.area.write().lending.resize(memory / BLOCK);
        if is_changed {
            let mut inbox = self.inbox.lock();
            inbox.resizes += 1;
            let asked = inbox.resizes;
            self.wake.notify_one();
            self.anew.wait_while_for(&mut inbox, |inbox| inbox.resized < asked && !inbox.is_over, RESIZING);
        }
        let _moving = self.moving.lock();
        change(self.frames(shards))
    }

    /// Whether other encoded blocks have the content of the one at a place.
    pub(crate) fn is_shared(&self, shard: u32, place: u32) -> bool {
        let area = self.area.read();
        area.id(shard, place).is_some_and(|id| area.store.owners(id) > 1)
    }

    /// Adds to `charged` what each block of `places` takes, a shared one an equal part.
    pub(crate) fn charge(&self, shard: u32, places: &[Stored], charged: &mut BTreeMap<Volume, f64>) {
        for places in places.chunks(CHARGED_AT_ONCE) {
            let area = self.area.read();
            for stored in places {
                if let Some(id) = area.id(shard, stored.place) {
                    *charged.entry(stored.volume).or_default() += area.store.charge(id);
                }
            }
        }
    }

    /// Ends the thread that encodes. Returns the stores that were not begun, which fail.
    pub(crate) fn end(&self) -> Vec<Completion> {
        let mut inbox = self.inbox.lock();
        inbox.is_over = true;
        let stores = std::mem::take(&mut inbox.stores);
        drop(inbox);
        self.wake.notify_one();
        self.anew.notify_all();
        stores.into_iter().map(void).collect()
    }

    /// The memory that its indexes can take, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        let area = self.area.read();
        let each = INDEX + size_of::<ContentId>() as u64;
        u64::from(self.part_blocks) * self.shards as u64 * each + area.store.metadata_bytes() as u64
    }

    /// The blocks of each shard that are frames at the moment.
    pub(crate) fn frames(&self, shards: u32) -> u32 {
        self.area.read().lending.frames(shards)
    }

    /// Its present state. The rest is known to the engines: blocks that were dropped and evicted, and the memory of the index.
    pub(crate) fn statistics(&self, dropped: u64, evictions: u64, index_bytes: u64) -> ContentStatistics {
        let area = self.area.read();
        let (counts, used_bytes) = (area.store.counts(), area.pages_in_use() * BLOCK);
        let metadata_bytes = (area.store.metadata_bytes() + area.index_bytes()) as u64 + index_bytes;
        let Area { lending, encoded, rejected, .. } = *area;
        drop(area);
        let StoreCounts { contents, owners, differences, orphans, orphan_bytes, .. } = counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ContentStatistics {
            scheme: self.settings.scheme.to_string(),
            bytes: lending.lent() * BLOCK,
            used_bytes,
            blocks: owners,
            contents: contents.into(),
            differences: differences.into(),
            orphans: orphans.into(),
            orphan_bytes,
            saved_bytes: (owners * BLOCK).saturating_sub(used_bytes),
            metadata_bytes,
            one_of: lending.one_of().into(),
            encoded,
            encode_us: read(&self.counts.encode_ns) / 1000,
            rejected,
            dropped,
            evictions,
            decoded: read(&self.counts.decoded),
            missing: read(&self.counts.missing),
            damaged: read(&self.counts.damaged),
            decode_latency: self.decodes.read().into(),
        }
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { codecs: Codecs::new(), copied: Copied::new(), block: Box::new([0; BLOCK_BYTES]) }
    }
}

/// A store failed: the engine is notified.
fn void(encoding: Encoding) -> Completion {
    Job::new(encoding.shard, encoding.operation).finish(Err(Fault::SHUT_DOWN))
}

#[cfg(test)]
mod tests {
    use nigh_content::Scheme;

    use super::*;

    /// LPU's virtual blocks take 60 bytes (Ren and Yang, 4.2.3).
    #[test]
    fn a_block_has_at_most_60_bytes_of_metadata() {
        let memory = 64 << 20;
        let contents = Contents::new(ContentSettings { scheme: Scheme::Sketch, cpu: 0.25 }, memory, memory, 1);
        let (places, metadata) = (contents.part_blocks as usize, contents.area.read().store.metadata_bytes());
        // The index of a level has 24 bytes and two bits for each place.
        let each = (metadata + places * size_of::<ContentId>()) as f64 / places as f64 + 24.25;
        assert!(each <= 60.0, "{each} bytes");
    }
}
