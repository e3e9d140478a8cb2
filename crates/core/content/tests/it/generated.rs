//! Generated contents have the properties of the disks after which they were made.

use std::collections::{BTreeSet, HashMap};

use nigh_content::generated::{Class, Kind, Machines, written};
use nigh_content::lpu::delta::Delta;
use nigh_content::lpu::{signature, similarity};
use nigh_content::{BLOCK_BYTES, Block};

const BLOCKS: usize = 2500;

/// Six machines, as those that were measured.
fn machines() -> Machines {
    Machines::new(1, 6, 3000)
}

/// The bytes of the disks of five machines, and of a write.
const SUM_OF_DISKS: u64 = 15_441_714_661_725_895_223;
const SUM_OF_WRITE: u64 = 11_720_276_486_907_712_181;

/// The distinct contents of a class, up to `most`.
fn of_class(machines: &Machines, class: Class, most: usize) -> Vec<u32> {
    let contents = (0..machines.distinct()).filter(|&content| machines.class(content) == class);
    let all: Vec<u32> = contents.collect();
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}

fn lz4(block: &Block) -> u32 {
    lz4_flex::block::compress(block).len() as u32
}

fn zstd(block: &Block, prefix: Option<&Block>) -> u32 {
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::CompressionLevel(1)).unwrap();
    context.set_parameter(zstd_safe::CParameter::ContentSizeFlag(false)).unwrap();
    if let Some(prefix) = prefix {
        context.ref_prefix(&prefix[..]).unwrap();
    }
    let mut out = vec![0; 8192];
    context.compress2(&mut out[..], &block[..]).unwrap() as u32
}

fn mean(values: impl ExactSizeIterator<Item = u32>) -> f64 {
    let count = values.len() as f64;
    values.map(f64::from).sum::<f64>() / count
}

fn near(found: f64, expected: f64, error: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= error, "{what}: {found}, expected {expected} with an error of {error}");
}

/// A sum of all bytes and their places.
fn sum(block: &Block) -> u64 {
    block.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn a_seed_stands_for_its_bytes() {
    let made = Machines::new(7, 5, 100);
    let contents = made.machines() * made.blocks();
    let of_disks = (0..contents).map(|at| sum(&made.bytes(made.content(at / 100, at % 100))));
    let all = of_disks.fold(0, |all: u64, sum| all.rotate_left(1) ^ sum);
    assert_eq!(all, SUM_OF_DISKS);
    let block = written(&made.bytes(made.content(0, 0)), 3);
    assert_eq!(sum(&block), SUM_OF_WRITE);
    assert!(block != made.bytes(made.content(0, 0)));
}

/// 2.06 measured, and 12 % duplicates on the same machine.
#[test]
fn contents_are_shared() {
    let made = machines();
    let disk = |machine| (0..BLOCKS).map(move |block| (machine, block));
    let contents: Vec<u32> = (0..6).flat_map(disk).map(|(machine, block)| made.content(machine, block)).collect();
    let distinct: BTreeSet<u32> = contents.iter().copied().collect();
    near(contents.len() as f64 / distinct.len() as f64, 2.03, 0.03, "blocks for each distinct content");
    for machine in contents.chunks(BLOCKS) {
        let on_it: BTreeSet<u32> = machine.iter().copied().collect();
        near(BLOCKS as f64 / on_it.len() as f64, 1.12, 0.02, "blocks for each distinct content of a machine");
    }
    let bytes: BTreeSet<Vec<u8>> = distinct.iter().map(|&content| made.bytes(content).to_vec()).collect();
    assert!(bytes.len() >= distinct.len() - 3, "distinct contents have distinct bytes");
    // Of two machines, three of ten contents are shared by both.
    let two = Machines::new(1, 2, BLOCKS);
    let [one, other] =
        [0, 1].map(|machine| (0..BLOCKS).map(|block| two.content(machine, block)).collect::<BTreeSet<u32>>());
    assert!(one.intersection(&other).count() > BLOCKS / 20);
}

/// The tables' means: 1219, 2131 and 3503 bytes with LZ4, 632 for a shifted content with its origin as dictionary.
#[test]
fn codecs_find_what_was_measured() {
    let made = machines();
    for (class, share, bytes) in
        [(Class::InPlace, 0.394, 1219.0), (Class::Shifted, 0.371, 2131.0), (Class::Unrelated, 0.235, 3503.0)]
    {
        let all = of_class(&made, class, usize::MAX);
        near(all.len() as f64 / f64::from(made.distinct()), share, 0.08, &format!("{class:?}"));
        let some = of_class(&made, class, 400);
        let found = mean(some.iter().map(|&content| lz4(&made.bytes(content)).min(BLOCK_BYTES as u32)));
        near(found, bytes, 0.12, &format!("LZ4 of {class:?}"));
    }
    let mut all = Vec::new();
    for content in of_class(&made, Class::Shifted, 600) {
        if let Some(origin) = made.derived_from(content) {
            all.push(zstd(&made.bytes(content), Some(&made.bytes(origin))));
        }
    }
    near(mean(all.into_iter()), 632.0, 0.12, "zstd of shifted contents");
    let some: Vec<Block> = (0..made.distinct()).step_by(11).map(|content| made.bytes(content)).collect();
    let ratio = |bytes: fn(&Block) -> u32| BLOCK_BYTES as f64 / mean(some.iter().map(|block| bytes(block).min(4096)));
    near(ratio(lz4), 1.94, 0.08, "LZ4");
    near(ratio(|block| zstd(block, None)), 2.49, 0.10, "zstd");
}

/// 40.9 % of the contents have another with at least 7 equal sub-signatures, 5.3 % a first one whose difference exceeds 768
/// bytes. LPU finds edits in place only.
#[test]
fn signatures_find_what_was_measured() {
    let made = machines();
    let blocks: HashMap<u32, Block> = (0..made.distinct()).map(|content| (content, made.bytes(content))).collect();
    let signatures: Vec<_> = (0..made.distinct()).map(|content| signature(&blocks[&content])).collect();
    let mut delta = Delta::new();
    let (mut found, mut in_place, mut shifted, mut too_long) = (0, 0, 0, 0);
    let some = (0..made.distinct()).step_by(7);
    let count = some.len() as f64;
    for content in some {
        let own = &signatures[content as usize];
        let mut others = (0..made.distinct()).filter(|&other| other != content);
        let Some(other) = others.find(|&other| similarity(own, &signatures[other as usize]) >= 7) else { continue };
        found += 1;
        in_place += u32::from(made.class(content) == Class::InPlace);
        shifted += u32::from(made.class(content) == Class::Shifted);
        too_long += u32::from(delta.encode(&blocks[&content], &blocks[&other]).len() > 768);
    }
    near(f64::from(found) / count, 0.38, 0.10, "similar contents");
    assert!(f64::from(in_place) / count > 0.31 && f64::from(shifted) / count < 0.02, "{in_place} and {shifted}");
    assert!((0.01..0.06).contains(&(f64::from(too_long) / count)), "{too_long} false positives");
}

/// Pages of a database: none is equal to another, and LPU finds a short difference for most. Nearly all of a page is zeros.
#[test]
fn nearly_empty_pages_are_similar_and_small() {
    let made = Machines::of_kind(3, 2, 1000, Kind::Database, 0.0);
    let blocks: Vec<Block> = (0..made.distinct()).map(|content| made.bytes(content)).collect();
    assert_eq!(blocks.len(), 2000);
    assert_eq!(blocks.iter().map(|block| block.to_vec()).collect::<BTreeSet<_>>().len(), 2000, "no two are equal");
    assert!((0..2000).all(|at| made.content(at / 1000, at % 1000) as usize == at));
    let mut delta = Delta::new();
    for (half, similar_least) in [(0, 0.99), (1, 0.7)] {
        let halves: Vec<&Block> = blocks.iter().skip(half).step_by(2).collect();
        let signatures: Vec<_> = halves.iter().map(|block| signature(block)).collect();
        let mut short = 0;
        for (at, own) in signatures.iter().enumerate() {
            let other = (0..halves.len()).find(|&other| other != at && similarity(own, &signatures[other]) >= 7);
            short += u32::from(other.is_some_and(|other| delta.encode(halves[at], halves[other]).len() <= 768));
        }
        let share = f64::from(short) / halves.len() as f64;
        assert!(share >= similar_least, "half {half}: {share} have a short difference");
    }
    assert!((50.0..400.0).contains(&mean(blocks.iter().map(lz4))), "{}", mean(blocks.iter().map(lz4)));
    // A write changes a block in place, so that it stays similar to what it was.
    for (at, block) in blocks.iter().enumerate() {
        let now = made.written(block, at as u64);
        assert!(
            now != *block
                && now == made.written(block, at as u64)
                && similarity(&signature(&now), &signature(block)) >= 7
        );
        let changed = now.iter().zip(block).filter(|(one, other)| one != other).count();
        assert!(changed <= 14, "{changed} bytes of block {at}");
    }
}

#[test]
fn a_share_of_the_blocks_has_zeros() {
    for kind in [Kind::Packages, Kind::Database] {
        let made = Machines::of_kind(1, 2, 5000, kind, 0.3);
        let is_zero = |machine, block| made.bytes(made.content(machine, block)) == [0; BLOCK_BYTES];
        let zeros = (0..5000).filter(|&block| is_zero(1, block)).count();
        near(zeros as f64 / 5000.0, 0.3, 0.05, "zeros");
        assert!(made.written(&[0; BLOCK_BYTES], 1) != [0; BLOCK_BYTES]);
    }
    // Blocks with zeros do not change the others.
    let [some, none] = [0.3, 0.0].map(|zeros| Machines::of_kind(1, 2, 500, Kind::Packages, zeros));
    let same = (0..500).filter(|&block| some.content(0, block) == none.content(0, block)).count();
    assert!((300..400).contains(&same), "{same}");
}
