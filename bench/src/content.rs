//! The codecs for blocks beside zstd and LZ4, and what the sketch finds beside an exhaustive search.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use nigh_content::{
    BLOCK_BYTES, Block, CANDIDATES, Codec, Codecs, ContentId, Copied, DELTA_MAX, ENCODED_MAX, Encoder, GOOD_MAX, Rules,
    Settings, Signatures, Sketches, Store, candidates, hash, signature, sketch,
};
use rustix::time::{ClockId, clock_gettime};

use crate::measure::{load, nigh};

/// The most blocks of images; they are kept in memory.
const BLOCKS_MOST: usize = 1 << 19;

/// Blocks that compression alone makes shorter than this need no difference.
const HARD: usize = 1024;

/// Times each block is encoded and decoded.
const ROUNDS: usize = 5;

/// Shingles of a block that the exhaustive search looks for: those whose hash ends with this many zeros.
const SHINGLES: u32 = 4;

/// Blocks with one shingle, and blocks with most shingles in common that are tried.
const OF_SHINGLE: usize = 64;
const TRIED: usize = 16;

/// Most blocks of the store whose hits are measured.
const STORED: usize = 100_000;

/// The paper's times of a difference, encoded and decoded, in microseconds.
const PAPER: (f64, f64) = (400.0, 60.0);

pub(crate) fn run(images: &[PathBuf], targets: usize) -> anyhow::Result<()> {
    let blocks = match images {
        [] => distinct(&[nigh()?.get_program().into()])?,
        images => distinct(images)?,
    };
    ensure!(!blocks.is_empty(), "the files have no blocks that are not zero");
    println!("{} distinct blocks; load {}", blocks.len(), load());
    let index = Index::new(&blocks);
    let mut random = fastrand::Rng::with_seed(1);
    let mut chosen: Vec<usize> = (0..blocks.len()).collect();
    random.shuffle(&mut chosen);
    chosen.truncate(20_000);
    let sketch_us = own_steps(&blocks, &chosen);
    let edited: Vec<(Block, Block)> =
        chosen.iter().take(500).map(|&at| (edited(&blocks[at], &mut random), *blocks[at])).collect();
    let in_place = codecs("blocks edited in place, in up to 4 places of up to 64 bytes each", &edited)?;
    let similar = chosen.iter().filter_map(|&at| {
        let (_, found) = index.shortest(&mut Codecs::new(), at, 1).filter(|&(length, _)| length <= DELTA_MAX)?;
        Some((*blocks[at], *blocks[found]))
    });
    let similar: Vec<(Block, Block)> = similar.take(500).collect();
    let shifted = match similar.as_slice() {
        [] => None,
        similar => Some(codecs("similar blocks of the files, by the sketch", similar)?),
    };
    let hit_us = hits(&blocks)?;
    println!("\n{:48} {:>6} {:>9}", "goal, in microseconds", "most", "measured");
    let goal = |name: &str, most: f64, us: f64| {
        println!("{name:48} {most:6.1} {us:9.2}  {}", if us <= most { "reached" } else { "missed" });
    };
    let row = |rows: &[Row], name: &str| rows.iter().find(|row| row.name == name).map(|row| (row.encode, row.decode));
    let line = row(&in_place, "Line").context("the line difference was measured")?;
    goal("line difference of an edit in place, encoded", 1.0, line.0);
    goal("the same, decoded", 1.0, line.1);
    goal("sketch", 2.0, sketch_us);
    if let Some((_, us)) = shifted.as_deref().and_then(|rows| row(rows, "ZstdDelta")) {
        goal("zstd difference to a similar block, decoded", 6.0, us);
    }
    goal("hit of a content in a store, as a mean", 6.0, hit_us);
    if !images.is_empty() {
        exhaustive(&blocks, &index, &chosen, targets);
    }
    Ok(())
}

/// The distinct blocks of files that are not zero.
fn distinct(files: &[PathBuf]) -> anyhow::Result<Vec<Box<Block>>> {
    let mut seen = HashSet::new();
    let mut blocks = Vec::new();
    let mut extent = vec![0; 256 * BLOCK_BYTES];
    for path in files {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut at = 0;
        loop {
            let read = file.read_at(&mut extent, at).with_context(|| path.display().to_string())?;
            if read == 0 {
                break;
            }
            at += read as u64;
            for block in extent[..read].as_chunks::<BLOCK_BYTES>().0 {
                if *block != [0; BLOCK_BYTES] && seen.insert(hash(0, block)) {
                    blocks.push(Box::new(*block));
                }
            }
            ensure!(blocks.len() <= BLOCKS_MOST, "more than {BLOCKS_MOST} distinct blocks; give less");
        }
    }
    Ok(blocks)
}

/// `block` after a few edits in place.
fn edited(block: &Block, random: &mut fastrand::Rng) -> Block {
    let mut edited = *block;
    for _ in 0..random.usize(1..=4) {
        let length = random.usize(1..=64);
        let at = random.usize(..BLOCK_BYTES - length);
        random.fill(&mut edited[at..at + length]);
    }
    edited
}

/// Processor time of this thread in microseconds.
fn now() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// The steps that are no codecs; returns the microseconds of a sketch.
fn own_steps(blocks: &[Box<Block>], chosen: &[usize]) -> f64 {
    println!("\nprocessor microseconds a block, in the cache of the processor");
    let few: Vec<&Block> = chosen.iter().take(8).map(|&at| &*blocks[at]).collect();
    let time = |name: &str, step: &dyn Fn(&Block)| {
        let mut best = f64::MAX;
        for _ in 0..20 {
            let start = now();
            (0..50).for_each(|_| few.iter().for_each(|block| step(std::hint::black_box(block))));
            best = best.min((now() - start) / (50 * few.len()) as f64);
        }
        println!("{name:24} {best:8.3}");
        best
    };
    time("hash (xxh3-128)", &|block| {
        std::hint::black_box(hash(1, block));
    });
    time("signature (LPU)", &|block| {
        std::hint::black_box(signature(block));
    });
    time("sketch", &|block| {
        std::hint::black_box(sketch(block));
    })
}

/// A codec, microseconds, and bytes.
struct Row {
    name: &'static str,
    encode: f64,
    decode: f64,
    bytes: f64,
}

/// Times `encode` and `decode` on pairs of a block and its base.
fn measured(
    name: &'static str,
    pairs: &[(Block, Block)],
    mut encode: impl FnMut(&Block, &Block) -> anyhow::Result<Vec<u8>>,
    mut decode: impl FnMut(&[u8], &Block, &mut Block) -> anyhow::Result<()>,
) -> anyhow::Result<Row> {
    let mut best = (f64::MAX, f64::MAX);
    let mut encoded = Vec::with_capacity(pairs.len());
    let mut decoded = [0; BLOCK_BYTES];
    for _ in 0..ROUNDS {
        encoded.clear();
        let start = now();
        for (block, base) in pairs {
            encoded.push(encode(block, base)?);
        }
        best.0 = best.0.min(now() - start);
        let start = now();
        for (bytes, (_, base)) in encoded.iter().zip(pairs) {
            decode(bytes, base, &mut decoded)?;
        }
        best.1 = best.1.min(now() - start);
    }
    for (bytes, (block, base)) in encoded.iter().zip(pairs) {
        decode(bytes, base, &mut decoded)?;
        ensure!(decoded == *block, "{name} decoded another block");
    }
    let count = pairs.len() as f64;
    let bytes = encoded.iter().map(Vec::len).sum::<usize>() as f64;
    Ok(Row { name, encode: best.0 / count, decode: best.1 / count, bytes: bytes / count })
}

/// Every codec on pairs of a block and its base.
fn codecs(title: &str, pairs: &[(Block, Block)]) -> anyhow::Result<Vec<Row>> {
    println!("\n{} {title}; processor microseconds, least of {ROUNDS} rounds", pairs.len());
    println!(
        "{:12} {:>8} {:>8} {:>8}   {:>26} {:>26}",
        "", "encode", "decode", "bytes", "decode: of zstd, of lz4", "bytes: of zstd, of lz4"
    );
    let own = [Codec::Zstd, Codec::Lz4, Codec::Line, Codec::ZstdDelta, Codec::Lz4Delta];
    let names = ["Zstd", "Lz4", "Line", "ZstdDelta", "Lz4Delta"];
    let mut rows = Vec::new();
    for (codec, name) in own.into_iter().zip(names) {
        let (mut encoder, mut decoder, mut out) = (Codecs::new(), Codecs::new(), [0; ENCODED_MAX]);
        rows.push(measured(
            name,
            pairs,
            |block, base| {
                let length = encoder.encode(codec, block, base, &mut out).context("a block that was not encoded")?;
                Ok(out[..length].to_vec())
            },
            |bytes, base, decoded| Ok(decoder.decode(codec, bytes, base, decoded)?),
        )?);
    }
    rows.push(measured(
        "gdelta",
        pairs,
        |block, base| Ok(gdelta::encode(block, base)?),
        |bytes, base, decoded| {
            decoded.copy_from_slice(&gdelta::decode(bytes, base)?);
            Ok(())
        },
    )?);
    let (zstd, lz4) = (&rows[0], &rows[1]);
    for Row { name, encode, decode, bytes } in &rows {
        println!(
            "{name:12} {encode:8.2} {decode:8.2} {bytes:8.0}   {:>17.2}x {:>7.2}x {:>17.2}x {:>7.2}x",
            decode / zstd.decode,
            decode / lz4.decode,
            bytes / zstd.bytes,
            bytes / lz4.bytes
        );
    }
    println!("{:12} {:8.2} {:8.2}   (the paper, in 2011)", "zdelta", PAPER.0, PAPER.1);
    Ok(rows)
}

/// A store with the blocks: what each step of a block takes, and how long a hit does, by how it is encoded. Returns the
/// microseconds of a hit, as a mean of all contents.
fn hits(blocks: &[Box<Block>]) -> anyhow::Result<f64> {
    let blocks = &blocks[..blocks.len().min(STORED)];
    let count = blocks.len() as u32;
    let mut store = Store::new(Settings { pages: count, contents: count, ..Settings::default() });
    let mut encoder = Encoder::new(Rules::default());
    let mut ids: Vec<ContentId> = Vec::with_capacity(blocks.len());
    let (mut plan_us, mut apply_us) = (0.0, 0.0);
    for block in blocks {
        let start = now();
        let plan = store.plan(&mut encoder, 0, block);
        let planned = now();
        ids.push(store.apply(&plan)?);
        (plan_us, apply_us) = (plan_us + planned - start, apply_us + now() - planned);
    }
    let pages = store.pool().frames + store.pool().run_pages;
    let mut random = fastrand::Rng::with_seed(2);
    let mut order: Vec<usize> = (0..ids.len()).collect();
    random.shuffle(&mut order);
    let (mut copied, mut codecs, mut out) = (Copied::new(), Codecs::new(), [0; BLOCK_BYTES]);
    let mut of_codec: HashMap<Codec, (u32, f64, f64)> = HashMap::new();
    // The clock takes part of a microsecond, so it is read once for several copies of a content.
    const TIMES: u32 = 4;
    for at in order {
        let start = now();
        for _ in 0..TIMES {
            ensure!(store.copy(ids[at], &mut copied), "a content that is missing");
        }
        let copy = now();
        for _ in 0..TIMES {
            ensure!(copied.decode(&mut codecs, &mut out), "a content that is damaged");
        }
        let decode = now();
        ensure!(out == *blocks[at], "a content that is another one");
        let (codec, _) = store.encoding(ids[at]).context("a content that is missing")?;
        let (count, copies, decodes) = of_codec.entry(codec).or_default();
        *count += 1;
        *copies += (copy - start) / f64::from(TIMES);
        *decodes += (decode - copy) / f64::from(TIMES);
    }
    println!(
        "\na store of {count} distinct blocks, in {pages} pages; processor microseconds a hit, with the copy under the lock"
    );
    println!("{:12} {:>8} {:>8} {:>8}", "", "contents", "copy", "decode");
    let (mut copies, mut decodes) = (0.0, 0.0);
    for codec in Codec::ALL {
        let Some((of, copy, decode)) = of_codec.get(&codec) else { continue };
        println!("{:12} {of:8} {:8.2} {:8.2}", format!("{codec:?}"), copy / f64::from(*of), decode / f64::from(*of));
        (copies, decodes) = (copies + copy, decodes + decode);
    }
    let each = |us: f64| us / f64::from(count);
    println!("{:12} {count:8} {:8.2} {:8.2}", "all", each(copies), each(decodes));
    println!("to add a block: plan {:.2}, apply {:.2} (with the clock)", each(plan_us), each(apply_us));
    let start = now();
    ids.iter().for_each(|&id| store.release(id));
    println!("to release it: {:.2}", each(now() - start));
    Ok(each(copies + decodes))
}

/// All blocks, by signature and sketch.
struct Index<'a> {
    blocks: &'a [Box<Block>],
    signatures: Signatures,
    sketches: Sketches,
}

impl<'a> Index<'a> {
    fn new(blocks: &'a [Box<Block>]) -> Index<'a> {
        let count = blocks.len();
        let (mut signatures, mut sketches) = (Signatures::with_room(count, count), Sketches::with_room(count, count));
        for (at, block) in blocks.iter().enumerate() {
            signatures.insert(signature(block), at as u32);
            sketches.insert(&sketch(block), at as u32);
        }
        Index { blocks, signatures, sketches }
    }

    /// The shortest difference of the block at `at` to the `tried` contents with the most similar sketches, and which one.
    fn shortest(&self, codecs: &mut Codecs, at: usize, tried: usize) -> Option<(usize, usize)> {
        let found = self.sketches.best(&sketch(&self.blocks[at]), |other| (other as usize != at).then_some(0));
        let found = found.into_iter().flatten().take(tried);
        found.map(|other| (difference(codecs, self.blocks, at, other as usize), other as usize)).min()
    }

    /// The difference that the store would take: by signature, then by sketch, until one is short.
    fn as_stored(&self, codecs: &mut Codecs, at: usize) -> usize {
        let weight = |other: u32| (other as usize != at).then_some(0);
        let block = &self.blocks[at];
        let in_place = self.signatures.best(signature(block), weight);
        let mut best = usize::MAX;
        for other in candidates(in_place, self.sketches.best(&sketch(block), weight)) {
            best = best.min(difference(codecs, self.blocks, at, other as usize));
            if best <= GOOD_MAX {
                break;
            }
        }
        best
    }
}

fn difference(codecs: &mut Codecs, blocks: &[Box<Block>], at: usize, base: usize) -> usize {
    let mut out = [0; ENCODED_MAX];
    codecs.encode(Codec::ZstdDelta, &blocks[at], &blocks[base], &mut out).unwrap_or(usize::MAX)
}

/// Hashes of windows of 16 bytes, each once, sampled.
fn shingles(block: &Block) -> Vec<u32> {
    let mut found: Vec<u32> = block
        .windows(16)
        .filter_map(|window| {
            let window = u128::from_le_bytes(window.try_into().expect("16 bytes"));
            let hash = window.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            let is_run = window == window.rotate_left(8);
            (!is_run && hash >> (128 - SHINGLES) == 0).then_some((hash >> 80) as u32)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// For blocks that do not compress well alone: how often an exhaustive search finds a short difference, and how often the
/// signature and the sketch do.
fn exhaustive(blocks: &[Box<Block>], index: &Index, chosen: &[usize], targets: usize) {
    let mut codecs = Codecs::new();
    let mut out = [0; ENCODED_MAX];
    let mut alone = |at: usize| codecs.encode(Codec::Lz4, &blocks[at], &blocks[at], &mut out).unwrap_or(BLOCK_BYTES);
    let hard: Vec<usize> = chosen.iter().copied().filter(|&at| alone(at) > HARD).take(targets).collect();
    let of_targets: Vec<Vec<u32>> = hard.iter().map(|&at| shingles(&blocks[at])).collect();
    let mut with: HashMap<u32, Vec<u32>> = of_targets.iter().flatten().map(|&shingle| (shingle, Vec::new())).collect();
    for (at, block) in blocks.iter().enumerate() {
        for shingle in shingles(block) {
            if let Some(with) = with.get_mut(&shingle).filter(|with| with.len() < OF_SHINGLE) {
                with.push(at as u32);
            }
        }
    }
    let mut found: Vec<[usize; 5]> = Vec::new();
    for (&at, shingles) in hard.iter().zip(&of_targets) {
        let mut common: HashMap<u32, u32> = HashMap::new();
        for other in shingles.iter().flat_map(|shingle| &with[shingle]).filter(|&&other| other as usize != at) {
            *common.entry(*other).or_default() += 1;
        }
        let mut common: Vec<(u32, u32)> = common.into_iter().map(|(other, count)| (count, other)).collect();
        common.sort_unstable_by(|one, other| other.cmp(one));
        let tried = common.iter().take(TRIED).map(|&(_, other)| difference(&mut codecs, blocks, at, other as usize));
        let by_shingles = tried.min().unwrap_or(usize::MAX);
        let weight = |other: u32| (other as usize != at).then_some(0);
        let in_place = index.signatures.best(signature(&blocks[at]), weight);
        let in_place = in_place.map_or(usize::MAX, |other| difference(&mut codecs, blocks, at, other as usize));
        let [one, all] = [1, CANDIDATES]
            .map(|tried| index.shortest(&mut codecs, at, tried).map_or(usize::MAX, |(length, _)| length));
        let stored = index.as_stored(&mut codecs, at);
        found.push([by_shingles.min(in_place).min(all), in_place, one, all, stored]);
    }
    println!(
        "\n{} blocks that LZ4 leaves above {HARD} bytes, any other block may be the base: short differences by zstd",
        hard.len()
    );
    println!("up to     exhaustive   signature   sketch, first   sketch, all   as stored");
    for most in [GOOD_MAX, 2 * GOOD_MAX] {
        let short = |way: usize| found.iter().filter(|found| found[way] <= most).count() as f64;
        let all = short(0).max(1.0);
        let [signature, one, two, stored] = [1, 2, 3, 4].map(|way| 100.0 * short(way) / all);
        println!(
            "{most:>5} B {:>10.1} % {signature:>9.1} % {one:>13.1} % {two:>11.1} % {stored:>9.1} %",
            100.0 * all / hard.len().max(1) as f64
        );
    }
    println!("(the first of all blocks, the others of what the exhaustive search finds)");
}
