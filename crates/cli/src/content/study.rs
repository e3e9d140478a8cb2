//! The study: every block that is read, once through each scheme.
//!
//! Extents are read in batches. Threads read and hash the blocks of a batch; equal ones are recognized in order; threads
//! then compress the distinct ones and make their signatures and sketches. Meanwhile one thread looks for bases for the
//! distinct blocks of the batch before, in order, so that what is counted does not depend on the number of threads. Times
//! are processor time of the thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use nigh_content::{
    BLOCK_BYTES, Block, Codec, Codecs, DEPENDENTS_MAX, ENCODED_MAX, Encoder, GOOD_MAX, Rules, SELF_MAX, Signature,
    Signatures, Sketch, Sketches, candidates, hash, signature, sketch,
};
use nigh_sim::threads::in_threads;
use rustix::time::{ClockId, clock_gettime};

use super::images::{EXTENT_BLOCKS, Extent, Images, Place};

/// Extents of a batch.
const BATCH: usize = 32;

/// One block of this many is decoded to measure the time that takes.
const DECODED: usize = 8;

/// Memory of a distinct block, and the number of its copies.
pub(super) struct Distinct {
    pub(super) copies: u32,
    pub(super) lz4: u16,
    pub(super) zstd: u16,
    /// With the scheme `sketch`.
    pub(super) codec: Codec,
    pub(super) length: u16,
    /// Whether its base was found by the signature, and not by the sketch.
    pub(super) in_place: bool,
    dependents: u32,
    place: Place,
}

/// Processor time in seconds, and what it was for.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) blocks: u64,
}

impl Cost {
    fn add(&mut self, seconds: f64, blocks: usize) {
        self.seconds += seconds;
        self.blocks += blocks as u64;
    }

    fn add_cost(&mut self, other: Cost) {
        self.seconds += other.seconds;
        self.blocks += other.blocks;
    }

    /// Of a block, in microseconds.
    pub(super) fn us(&self) -> f64 {
        self.seconds * 1e6 / self.blocks.max(1) as f64
    }
}

/// Processor time of each step.
#[derive(Clone, Copy, Default)]
pub(super) struct Costs {
    pub(super) hash: Cost,
    pub(super) lz4: Cost,
    pub(super) zstd: Cost,
    /// Signatures and sketches.
    pub(super) sketch: Cost,
    /// The search for bases, and differences.
    pub(super) delta: Cost,
    pub(super) lz4_decode: Cost,
    pub(super) zstd_decode: Cost,
    /// With the scheme `sketch`.
    pub(super) decode: Cost,
}

impl Costs {
    fn add(&mut self, other: &Costs) {
        let pairs = [
            (&mut self.hash, other.hash),
            (&mut self.lz4, other.lz4),
            (&mut self.zstd, other.zstd),
            (&mut self.sketch, other.sketch),
            (&mut self.delta, other.delta),
            (&mut self.lz4_decode, other.lz4_decode),
            (&mut self.zstd_decode, other.zstd_decode),
            (&mut self.decode, other.decode),
        ];
        pairs.into_iter().for_each(|(own, other)| own.add_cost(other));
    }
}

/// Findings.
#[derive(Default)]
pub(super) struct Study {
    /// Blocks, and those of them that are zero.
    pub(super) blocks: u64,
    pub(super) zero: u64,
    pub(super) distinct: Vec<Distinct>,
    pub(super) costs: Costs,
}

/// A block that was read and is not zero.
struct Hashed {
    hash: u128,
    place: Place,
    /// Its place in the bytes of its extent.
    at: usize,
}

/// An extent that was read.
struct Read {
    bytes: Vec<u8>,
    hashed: Vec<Hashed>,
    blocks: u64,
    cost: Cost,
}

/// A distinct block of a batch.
struct New {
    index: u32,
    place: Place,
    extent: usize,
    at: usize,
}

struct Compressed {
    lz4: u16,
    zstd: u16,
    signature: Signature,
    sketch: Sketch,
}

/// The distinct blocks of a batch, ready for the search for bases.
#[derive(Default)]
struct Ready {
    read: Vec<Read>,
    new: Vec<New>,
    compressed: Vec<Compressed>,
}

/// A batch that was read, and whose distinct blocks were compressed.
#[derive(Default)]
struct Prepared {
    ready: Ready,
    costs: Costs,
    blocks: u64,
    zero: u64,
    /// Distinct blocks that were there before, once for each block that equals one.
    again: Vec<u32>,
}

impl Study {
    /// Studies `extents`, adding blocks to `done` as they are finished.
    pub(super) fn of(images: &Images, extents: &[Extent], threads: usize, done: &AtomicU64) -> anyhow::Result<Study> {
        let mut study = Study::default();
        let mut seen = HashMap::new();
        let mut bases = Bases::new(extents.len() * EXTENT_BLOCKS);
        let mut before = Ready::default();
        // The bases of a batch are looked for while the next one is read, so that there is one more step than batches.
        for batch in extents.chunks(BATCH).chain([&[][..]]) {
            let known = study.distinct.len();
            let (searched, prepared) = std::thread::scope(|scope| {
                let (bases, before, distinct) = (&mut bases, &before, &mut study.distinct);
                let search = scope.spawn(move || bases.search(images, before, distinct));
                let prepared = prepare(images, batch, threads, &mut seen, known);
                (search.join().expect("the search does not panic"), prepared)
            });
            let Prepared { ready, costs, blocks, zero, again } = prepared?;
            study.costs.add(&searched?);
            study.costs.add(&costs);
            for (new, compressed) in ready.new.iter().zip(&ready.compressed) {
                study.distinct.push(Distinct {
                    copies: 1,
                    lz4: compressed.lz4,
                    zstd: compressed.zstd,
                    codec: Codec::Raw,
                    length: BLOCK_BYTES as u16,
                    in_place: false,
                    dependents: 0,
                    place: new.place,
                });
            }
            again.into_iter().for_each(|index| study.distinct[index as usize].copies += 1);
            study.blocks += blocks;
            study.zero += zero;
            done.fetch_add((batch.len() * EXTENT_BLOCKS) as u64, Ordering::Relaxed);
            before = ready;
        }
        Ok(study)
    }
}

/// Reads a batch, and compresses the blocks that are not in `seen`, of which there are `known`.
fn prepare(
    images: &Images,
    batch: &[Extent],
    threads: usize,
    seen: &mut HashMap<u128, u32>,
    known: usize,
) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared::default();
    let read = in_threads(batch, threads, |&extent| read(images, extent));
    let read = read.into_iter().collect::<anyhow::Result<Vec<Read>>>()?;
    let mut new = Vec::new();
    for (extent, of) in read.iter().enumerate() {
        prepared.blocks += of.blocks;
        prepared.zero += of.blocks - of.hashed.len() as u64;
        prepared.costs.hash.add_cost(of.cost);
        for &Hashed { hash, place, at } in &of.hashed {
            match seen.entry(hash) {
                Entry::Occupied(entry) => prepared.again.push(*entry.get()),
                Entry::Vacant(entry) => {
                    let index = *entry.insert((known + new.len()) as u32);
                    new.push(New { index, place, extent, at });
                }
            }
        }
    }
    let chunks: Vec<&[New]> = new.chunks(EXTENT_BLOCKS).collect();
    let mut compressed = Vec::with_capacity(new.len());
    for (chunk, costs) in in_threads(&chunks, threads, |chunk| compress(chunk, &read)) {
        compressed.extend(chunk);
        prepared.costs.add(&costs);
    }
    prepared.ready = Ready { read, new, compressed };
    Ok(prepared)
}

fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn block_at(bytes: &[u8], at: usize) -> &Block {
    bytes[at..].first_chunk().expect("extents have whole blocks")
}

fn read(images: &Images, extent: Extent) -> anyhow::Result<Read> {
    let blocks = images.blocks(extent);
    let bytes = images.read(extent)?.unwrap_or_default();
    let start = seconds();
    let mut hashed = Vec::new();
    for at in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let block = block_at(&bytes, at);
        if *block != [0; BLOCK_BYTES] {
            let number = extent.index * EXTENT_BLOCKS as u32 + (at / BLOCK_BYTES) as u32;
            hashed.push(Hashed { hash: hash(0, block), place: Place { image: extent.image, block: number }, at });
        }
    }
    let cost = Cost { seconds: seconds() - start, blocks: hashed.len() as u64 };
    Ok(Read { bytes, hashed, blocks, cost })
}

/// Compresses distinct blocks alone, with all codecs.
fn compress(new: &[New], read: &[Read]) -> (Vec<Compressed>, Costs) {
    let mut codecs = Codecs::new();
    let mut costs = Costs::default();
    let mut out = [0; ENCODED_MAX];
    let mut decoded = [0; BLOCK_BYTES];
    let blocks: Vec<&Block> = new.iter().map(|new| block_at(&read[new.extent].bytes, new.at)).collect();
    let mut compress = |codec: Codec, encode: &mut Cost, decode: &mut Cost| -> Vec<u16> {
        let mut lengths = Vec::with_capacity(blocks.len());
        let start = seconds();
        for block in &blocks {
            // As an encoder that has time.
            let length = match codec {
                Codec::Lz4 => codecs.encode_thoroughly(block, &mut out),
                codec => codecs.encode(codec, block, block, &mut out),
            };
            let length = length.filter(|&length| length <= SELF_MAX);
            lengths.push(length.unwrap_or(BLOCK_BYTES) as u16);
        }
        encode.add(seconds() - start, blocks.len());
        for (block, &length) in blocks.iter().zip(&lengths).step_by(DECODED) {
            if usize::from(length) == BLOCK_BYTES {
                decode.add(0.0, 1);
            } else if let Some(length) = codecs.encode(codec, block, block, &mut out) {
                let start = seconds();
                let _ = codecs.decode(codec, &out[..length], block, &mut decoded);
                decode.add(seconds() - start, 1);
            }
        }
        lengths
    };
    let lz4 = compress(Codec::Lz4, &mut costs.lz4, &mut costs.lz4_decode);
    let zstd = compress(Codec::Zstd, &mut costs.zstd, &mut costs.zstd_decode);
    let start = seconds();
    let features: Vec<(Signature, Sketch)> = blocks.iter().map(|block| (signature(block), sketch(block))).collect();
    costs.sketch.add(seconds() - start, blocks.len());
    let lengths = lz4.into_iter().zip(zstd);
    let compressed =
        lengths.zip(features).map(|((lz4, zstd), (signature, sketch))| Compressed { lz4, zstd, signature, sketch });
    (compressed.collect(), costs)
}

/// The blocks that are stored alone with the scheme `sketch`, and the search among them.
struct Bases {
    signatures: Signatures,
    sketches: Sketches,
    encoder: Encoder,
}

impl Bases {
    /// For up to `blocks` blocks, with the indices of a store with room for as many contents.
    fn new(blocks: usize) -> Bases {
        let (signatures, sketches) = (Signatures::new(blocks), Sketches::new(blocks));
        Bases { signatures, sketches, encoder: Encoder::new(Rules::default()) }
    }

    fn search(&mut self, images: &Images, ready: &Ready, distinct: &mut [Distinct]) -> anyhow::Result<Costs> {
        let mut costs = Costs::default();
        let [mut candidate, mut base, mut decoded] = [[0; BLOCK_BYTES]; 3];
        for (at, (new, of)) in ready.new.iter().zip(&ready.compressed).enumerate() {
            let block = block_at(&ready.read[new.extent].bytes, new.at);
            // Alone, it was encoded before; that time is not counted again.
            let mut choice = self.encoder.begin(block);
            let weight = |index: u32| {
                let dependents = distinct[index as usize].dependents;
                (dependents < DEPENDENTS_MAX).then_some(dependents)
            };
            let start = seconds();
            let in_place = self.signatures.best(of.signature, weight);
            let shifted = self.sketches.best(&of.sketch, weight);
            let mut spent = seconds() - start;
            let mut found = None;
            for index in candidates(in_place, shifted) {
                images.read_block(distinct[index as usize].place, &mut candidate)?;
                let start = seconds();
                let better = self.encoder.against(block, &candidate);
                spent += seconds() - start;
                if let Some(better) = better {
                    (choice, found, base) = (better, Some((index, in_place == Some(index))), candidate);
                    if choice.length <= GOOD_MAX {
                        break;
                    }
                }
            }
            costs.delta.add(spent, 1);
            if at % DECODED == 0 {
                let bytes = self.encoder.bytes().to_vec();
                let mut spent = 0.0;
                if let Some((index, _)) = found.filter(|&(index, _)| distinct[index as usize].codec != Codec::Raw) {
                    // The base is decoded first.
                    let mut encoder = Encoder::new(Rules::default());
                    let alone = encoder.begin(&base);
                    let bytes = encoder.bytes().to_vec();
                    let start = seconds();
                    let _ = encoder.codecs().decode(alone.codec, &bytes, block, &mut decoded);
                    spent += seconds() - start;
                    debug_assert_eq!(usize::from(distinct[index as usize].length), alone.length);
                }
                if choice.codec != Codec::Raw {
                    let start = seconds();
                    let _ = self.encoder.codecs().decode(choice.codec, &bytes, &base, &mut decoded);
                    spent += seconds() - start;
                }
                costs.decode.add(spent, 1);
            }
            let own = &mut distinct[new.index as usize];
            (own.codec, own.length) = (choice.codec, choice.length as u16);
            match found {
                Some((index, in_place)) => {
                    own.in_place = in_place;
                    distinct[index as usize].dependents += 1;
                    self.signatures.renew(of.signature, index);
                    self.sketches.renew(&of.sketch, index);
                }
                None => {
                    self.signatures.insert(of.signature, new.index);
                    self.sketches.insert(&of.sketch, new.index);
                }
            }
        }
        Ok(costs)
    }
}
