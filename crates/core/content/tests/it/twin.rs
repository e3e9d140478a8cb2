//! [`Lpu`] and [`Dedup`] against naive transcriptions of the text, which have the bytes, request by request.

use std::collections::HashMap;

use nigh_content::dedup::Dedup;
use nigh_content::lpu::delta::Delta;
use nigh_content::lpu::{Contents, Counts, Kind, Lpu, Settings, Signature, signature};
use nigh_content::{BLOCK_BYTES, Block, Content};
use nigh_policy::Slot;
use nigh_testkit::naive::lpu as naive;
use nigh_testkit::workload;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// Contents with their bytes.
struct Bytes {
    blocks: Vec<Box<Block>>,
    names: HashMap<Vec<u8>, Content>,
    delta: Option<Delta>,
}

impl Bytes {
    /// With `real` differences, or with ones that can be computed quickly.
    fn new(real: bool) -> Bytes {
        Bytes { blocks: Vec::new(), names: HashMap::new(), delta: real.then(Delta::new) }
    }

    fn name(&mut self, block: &Block) -> Content {
        *self.names.entry(block.to_vec()).or_insert_with(|| {
            self.blocks.push(Box::new(*block));
            Content(self.blocks.len() as u32 - 1)
        })
    }

    fn block(&self, content: Content) -> &Block {
        &self.blocks[content.0 as usize]
    }
}

fn difference(delta: &mut Option<Delta>, block: &Block, reference: &Block) -> usize {
    match delta {
        Some(delta) => delta.encode(block, reference).len(),
        None => 3 * block.iter().zip(reference).filter(|(one, other)| one != other).count(),
    }
}

impl Contents for Bytes {
    fn signature(&mut self, content: Content) -> Signature {
        signature(self.block(content))
    }

    fn delta_bytes(&mut self, content: Content, reference: Content) -> u32 {
        let (block, reference) = (*self.block(content), *self.block(reference));
        difference(&mut self.delta, &block, &reference) as u32
    }
}

/// A block of one of a few families: equal to its first, edited in places that the signature sees, or elsewhere.
fn block(random: &mut Random) -> Block {
    let family: u64 = random.random_range(0..6);
    let mut bytes = Random::seed_from_u64(family);
    let mut block: Block = std::array::from_fn(|_| if family == 0 { 0 } else { bytes.random() });
    if random.random_range(0..3) == 0 {
        return block;
    }
    for _ in 0..random.random_range(0..3) {
        let offset = [0, 16, 32, 64][random.random_range(0..4)];
        block[random.random_range(0..8) * 512 + offset] = random.random_range(0..3);
    }
    let length = [1, 8, 30, 250, 300, 2000][random.random_range(0..6)];
    let start = random.random_range(0..BLOCK_BYTES - length);
    let value = random.random_range(0..4);
    for byte in &mut block[start..start + length] {
        *byte ^= value;
    }
    block
}

/// Each block with the content that it has, and those that it gets.
fn requests(seed: u64, blocks: u64, length: usize, writes: f64) -> Vec<(u64, bool, Block)> {
    let mut random = Random::seed_from_u64(!seed);
    let mut disk: Vec<Block> = (0..blocks).map(|_| block(&mut random)).collect();
    let references = workload::mixed(seed, blocks, length);
    references
        .into_iter()
        .map(|address| {
            let write = random.random_bool(writes);
            if write {
                disk[address as usize] = if random.random_range(0..2) == 0 {
                    block(&mut random)
                } else {
                    let mut edited = disk[address as usize];
                    edited[random.random_range(0..BLOCK_BYTES)] ^= random.random_range(0..4u8);
                    edited
                };
            }
            (address, write, disk[address as usize])
        })
        .collect()
}

/// Data, delta and virtual blocks, requests between scans, and warm blocks.
const SIZES: [[usize; 5]; 6] = [
    [16, 64, 60, 50, 40],
    [16, 12, 60, 30, 40],
    [4, 200, 20, 17, 9],
    [1, 20, 2, 3, 64],
    [30, 3, 64, 10, 64],
    [24, 0, 32, 25, 20],
];

fn sizes(numbers: [usize; 5], identical: bool) -> naive::Settings {
    let [data_blocks, delta_blocks, virtual_blocks, scan_every, warm_blocks] = numbers;
    naive::Settings { data_blocks, delta_blocks, virtual_blocks, scan_every, warm_blocks, identical }
}

fn settings(of: naive::Settings) -> Settings {
    Settings {
        data_blocks: of.data_blocks as u32,
        delta_blocks: of.delta_blocks as u32,
        virtual_blocks: of.virtual_blocks as u32,
        scan_every: of.scan_every as u64,
        warm_blocks: of.warm_blocks,
        identical: of.identical,
        ..Settings::published(1 << 16)
    }
}

/// Compares both after each of `length` requests, and returns what happened.
fn same(seed: u64, sizes: naive::Settings, writes: f64, length: usize, real: bool) -> Counts {
    let (mut bytes, mut delta) = (Bytes::new(real), real.then(Delta::new));
    let mut lpu = Lpu::new(64, settings(sizes));
    let mut twin = naive::Lpu::new(sizes);
    let mut deltas = |block: &[u8], reference: &[u8]| {
        difference(&mut delta, block.try_into().unwrap(), reference.try_into().unwrap())
    };
    for (at, (address, write, block)) in requests(seed, 64, length, writes).into_iter().enumerate() {
        let content = bytes.name(&block);
        let hit = lpu.access(Slot(address as u32), write, content, &mut bytes);
        let case = format!("request {at} of seed {seed} to {address}, {sizes:?}");
        assert_eq!(hit, twin.access(address, write, &block, &mut deltas), "{case}");
        lpu.check();
        let own = lpu.queue().map(|view| {
            let kind = match view.kind {
                Kind::Independent => naive::Kind::Independent,
                Kind::Reference => naive::Kind::Reference,
                Kind::Associate(reference) => naive::Kind::Associate(reference.0.into()),
            };
            (u64::from(view.slot.0), kind, view.data, view.delta_blocks as usize, view.signature.to_vec())
        });
        let theirs = twin.queue.iter().map(|entry| {
            (entry.address, entry.kind, entry.data.is_some(), entry.delta_blocks, entry.signature.clone())
        });
        assert!(own.eq(theirs), "{case}: the queues differ");
    }
    for row in 0..8 {
        assert_eq!(lpu.heatmap().row(row)[..], twin.heatmap[row]);
    }
    lpu.counts()
}

#[test]
fn lpu_follows_the_text() {
    let mut all = Counts::default();
    for (seed, numbers) in (0..).zip(SIZES.iter().cycle().take(72)) {
        // Half of the seeds with each.
        let sizes = sizes(*numbers, seed % 12 >= 6);
        let counts = same(seed, sizes, [0.1, 0.5, 0.0][seed as usize / 6 % 3], 1500, false);
        all.hits += counts.hits;
        all.false_positives += counts.false_positives;
        all.disconnected += counts.disconnected;
        all.virtual_replaced += counts.virtual_replaced;
        all.delta_replaced += counts.delta_replaced;
        all.dissolved += counts.dissolved;
        all.associates += counts.associates;
        all.references += counts.references;
    }
    // Every kind of transition occurred.
    for (count, what) in [
        (all.hits, "hits"),
        (all.references, "reference blocks"),
        (all.associates, "associate blocks"),
        (all.false_positives, "false positives"),
        (all.disconnected, "blocks disconnected"),
        (all.virtual_replaced, "virtual blocks replaced"),
        (all.delta_replaced, "deltas replaced"),
        (all.dissolved, "reference blocks dissolved"),
    ] {
        assert!(count >= 50, "{count} {what}");
    }
}

#[test]
fn lpu_follows_the_text_with_real_differences() {
    for (seed, numbers) in (100..).zip(SIZES) {
        same(seed, sizes(numbers, false), 0.3, 600, true);
    }
}

#[test]
fn dedup_follows_the_text() {
    for seed in 0..30 {
        let capacity = [1, 2, 7, 20, 40][seed as usize % 5];
        let mut bytes = Bytes::new(false);
        let mut dedup = Dedup::new(64, capacity);
        let mut twin = naive::Dedup::new(capacity as usize);
        for (at, (address, write, block)) in requests(seed, 64, 1500, 0.3).into_iter().enumerate() {
            let content = bytes.name(&block);
            let hit = dedup.access(Slot(address as u32), write, content);
            assert_eq!(hit, twin.access(address, &block), "request {at} of seed {seed} to {address}");
            assert_eq!(dedup.blocks(), twin.pointers.len());
            assert_eq!(dedup.data_blocks() as usize, twin.contents.len());
        }
    }
}
