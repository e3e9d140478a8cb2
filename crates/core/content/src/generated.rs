//! Contents of virtual machines, made up from a seed: the same seed gives the same bytes on any machine.
//!
//! The distributions are those of six Debian root file systems (1.38 million blocks, 0.67 million distinct): how many
//! machines share a content, how many contents are similar to others by edits in place or by shifts, how well LZ4
//! compresses them, and how long their differences are. A block is the output of a random program: literals and copies
//! within the block for a content of its own, and literals and copies of another block for a similar one. Codecs therefore
//! find what the program did, and their sizes follow the tables.
//!
//! [`Kind::Database`] is another kind of disk: the pages of small tables, as PostgreSQL lays them out, most of them empty. No two
//! blocks are equal, and nearly all are similar.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::lpu::{SAMPLED, SUB_BLOCKS};
use crate::{BLOCK_BYTES, Block};

/// How contents resemble each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Others of its family differ in a few bytes at the same places.
    InPlace,
    /// Others of its family have the same bytes at other places.
    Shifted,
    /// No other content is similar.
    Unrelated,
}

use Class::{InPlace, Shifted, Unrelated};

/// The share of the distinct contents that are of each class.
const CLASSES: [(Class, f64); 3] = [(InPlace, 0.394), (Shifted, 0.371), (Unrelated, 0.235)];
/// Contents in a family of similar ones.
const FAMILY: std::ops::RangeInclusive<u32> = 4..=12;
/// The share of the distinct contents that one to six of six machines have.
const OWNERS: [f64; 6] = [0.559, 0.307, 0.009, 0.017, 0.100, 0.008];
/// Copies of a block elsewhere on the same machine, for each block.
const LOCAL_DUPLICATES: f64 = 0.12;
/// The share of the unrelated contents that have the bytes of another content where LPU's signature looks: 2 % of all
/// contents.
const MASKED: f64 = 0.085;

/// Quantiles at 5 %, 15 %, ... 95 %: bytes that LZ4 needs for a content alone.
const LZ4_IN_PLACE: Quantiles = [91, 331, 352, 578, 596, 796, 1899, 2059, 2443, 3044];
const LZ4_SHIFTED: Quantiles = [915, 1323, 1537, 1863, 2020, 2172, 2378, 2610, 3037, 3447];
const LZ4_UNRELATED: Quantiles = [2340, 2798, 3011, 3134, 3296, 4055, 4096, 4096, 4096, 4096];
/// Bytes that a line difference needs for an edit in place.
const IN_PLACE_BYTES: Quantiles = [17, 20, 31, 56, 91, 100, 200, 251, 311, 574];
/// Bytes that zstd with the other block as dictionary needs for a shifted content.
const SHIFTED_BYTES: Quantiles = [81, 242, 373, 496, 577, 684, 799, 932, 1139, 1388];

type Quantiles = [u32; 10];

/// A value between the quantiles.
fn sample(quantiles: &Quantiles, random: &mut Random) -> f64 {
    let place = (random.random::<f64>() * 10.0 - 0.5).clamp(0.0, 9.0);
    let (low, part) = (place as usize, place.fract());
    let high = (low + 1).min(9);
    f64::from(quantiles[low]) * (1.0 - part) + f64::from(quantiles[high]) * part
}

/// Bytes of a database's page, which is two blocks.
const PAGE_BYTES: usize = 2 * BLOCK_BYTES;
/// Rows of a page, and bytes of each.
const ROWS: std::ops::RangeInclusive<usize> = 1..=4;
const ROW_BYTES: std::ops::RangeInclusive<usize> = 40..=160;
/// The header of a page, the pointer to a row, and the header of a row, in bytes.
const PAGE_HEADER: usize = 24;
const POINTER: usize = 4;
const ROW_HEADER: usize = 24;

/// The content of blocks with zeros.
const ZEROS: u32 = u32::MAX;

/// The contents of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Installed packages.
    #[default]
    Packages,
    /// Nearly empty pages of a database.
    Database,
}

/// A content's place in its family.
#[derive(Clone, Copy, Debug)]
struct Origin {
    family: u32,
    /// 0 is the one from which the others are derived.
    member: u8,
    class: Class,
}

/// The disks of several machines, each with the same number of blocks.
#[derive(Debug)]
pub struct Machines {
    seed: u64,
    kind: Kind,
    origins: Vec<Origin>,
    /// The distinct content of each block, machine by machine.
    disks: Vec<Vec<u32>>,
}

impl Machines {
    /// The disks of this many machines, with this many blocks each.
    ///
    /// For other than six machines, the number that share a content is in the same proportion, at least one.
    ///
    /// # Panics Without machines or blocks.
    pub fn new(seed: u64, machines: usize, blocks: usize) -> Machines {
        Machines::of_kind(seed, machines, blocks, Kind::Packages, 0.0)
    }

    /// The same for disks of this kind, of which a share of the blocks, chosen at random, has zeros.
    ///
    /// # Panics Without machines or blocks, or if `zeros` is no share.
    pub fn of_kind(seed: u64, machines: usize, blocks: usize, kind: Kind, zeros: f64) -> Machines {
        assert!(machines > 0 && blocks > 0, "machines with blocks");
        let mut made = match kind {
            Kind::Packages => Machines::with_packages(seed, machines, blocks),
            Kind::Database => {
                let first = |machine: usize| (machine * blocks) as u32;
                let disks = (0..machines).map(|machine| (first(machine)..first(machine + 1)).collect()).collect();
                Machines { seed, kind, origins: Vec::new(), disks }
            }
        };
        let mut random = Random::seed_from_u64(mixed(seed, ZEROS));
        for block in made.disks.iter_mut().flatten() {
            if random.random_bool(zeros) {
                *block = ZEROS;
            }
        }
        made
    }

    fn with_packages(seed: u64, machines: usize, blocks: usize) -> Machines {
        let mut random = Random::seed_from_u64(seed);
        let disks = vec![Vec::with_capacity(blocks); machines];
        let mut made = Machines { seed, kind: Kind::Packages, origins: Vec::new(), disks };
        let mut order: Vec<usize> = (0..machines).collect();
        for family in 0.. {
            let (class, members) = draw_family(&mut random);
            for member in 0..members {
                let content = made.origins.len() as u32;
                made.origins.push(Origin { family, member: member as u8, class });
                let of_six = 1 + draw(OWNERS.iter().copied(), &mut random);
                let owners = (of_six as f64 * machines as f64 / 6.0).round().clamp(1.0, machines as f64) as usize;
                for place in 0..owners {
                    order.swap(place, random.random_range(place..machines));
                    let disk = &mut made.disks[order[place]];
                    if disk.len() < blocks {
                        disk.push(content);
                    }
                    if disk.len() < blocks && random.random_bool(LOCAL_DUPLICATES) {
                        disk.push(disk[random.random_range(0..disk.len())]);
                    }
                }
            }
            if made.disks.iter().all(|disk| disk.len() == blocks) {
                break;
            }
        }
        made
    }

    /// How many machines there are.
    pub fn machines(&self) -> usize {
        self.disks.len()
    }

    /// Blocks of each machine.
    pub fn blocks(&self) -> usize {
        self.disks[0].len()
    }

    /// How many distinct contents other than zeros were made up. A few of them may be on no disk.
    pub fn distinct(&self) -> u32 {
        match self.kind {
            Kind::Packages => self.origins.len() as u32,
            Kind::Database => (self.machines() * self.blocks()) as u32,
        }
    }

    /// The distinct content of a machine's block.
    pub fn content(&self, machine: usize, block: usize) -> u32 {
        self.disks[machine][block]
    }

    /// The class of a distinct content of installed packages.
    pub fn class(&self, content: u32) -> Class {
        self.origins[content as usize].class
    }

    /// The content of installed packages of which a similar one is an edited copy.
    pub fn derived_from(&self, content: u32) -> Option<u32> {
        let member = u32::from(self.origins[content as usize].member);
        (member > 0).then(|| content - member)
    }

    /// The bytes of a distinct content.
    pub fn bytes(&self, content: u32) -> Block {
        match (content, self.kind) {
            (ZEROS, _) => [0; BLOCK_BYTES],
            (_, Kind::Packages) => self.of_packages(content),
            (_, Kind::Database) => half_page(self.seed, content),
        }
    }

    /// The contents of a block after a write. The same seed gives the same bytes.
    pub fn written(&self, block: &Block, seed: u64) -> Block {
        match self.kind {
            Kind::Packages => written(block, seed),
            Kind::Database => updated(block, seed),
        }
    }

    fn of_packages(&self, content: u32) -> Block {
        let Origin { family, member, class } = self.origins[content as usize];
        let root = self.root(family, class);
        if member == 0 {
            return root;
        }
        let mut random = Random::seed_from_u64(mixed(mixed(self.seed, family), 1 + u32::from(member)));
        match class {
            InPlace => edited(&root, &mut random),
            Shifted => shifted(&root, &mut random),
            Unrelated => root,
        }
    }

    fn root(&self, family: u32, class: Class) -> Block {
        let mut random = Random::seed_from_u64(mixed(self.seed, family));
        // Most contents of a family have the bytes of their difference besides.
        let (quantiles, less) = match class {
            InPlace => (&LZ4_IN_PLACE, 280.0),
            Shifted => (&LZ4_SHIFTED, 650.0),
            Unrelated => (&LZ4_UNRELATED, 0.0),
        };
        let mut block = alone(f64::max(sample(quantiles, &mut random) - less, 60.0), &mut random);
        if class == Unrelated && random.random_bool(MASKED) {
            let start = random.random_range(0..self.origins.len());
            let other = self.origins[start..].iter().find(|origin| origin.class == InPlace);
            if let Some(&Origin { family, class, .. }) = other {
                let other = self.root(family, class);
                let sub_blocks = (0..SUB_BLOCKS).map(|at| at * BLOCK_BYTES / SUB_BLOCKS);
                for at in sub_blocks.flat_map(|sub_block| SAMPLED.map(|offset| sub_block + offset)) {
                    block[at] = other[at];
                }
            }
        }
        block
    }
}

/// A block of a database: block 2n is the first half of page n, which has the header and the pointers to rows, and the next one the
/// second half, at whose end the rows are.
fn half_page(seed: u64, content: u32) -> Block {
    let mut random = Random::seed_from_u64(mixed(seed, content / 2));
    let mut page = [0; PAGE_BYTES];
    // The position in the log, whose upper half changes rarely, and a checksum.
    page[4..8].copy_from_slice(&random.random::<[u8; 4]>());
    page[8..10].copy_from_slice(&random.random::<[u8; 2]>());
    let mut end = PAGE_BYTES;
    let rows = random.random_range(ROWS);
    for row in 0..rows {
        let bytes = random.random_range(ROW_BYTES);
        end -= bytes.next_multiple_of(8);
        fill_row(&mut page[end..end + bytes], row, &mut random);
        // 15 bits of the offset, 2 bits of a state, 15 bits of the length.
        let pointer = end as u32 | 1 << 15 | (bytes as u32) << 17;
        page[PAGE_HEADER + row * POINTER..][..POINTER].copy_from_slice(&pointer.to_le_bytes());
    }
    let fields = [PAGE_HEADER + rows * POINTER, end, PAGE_BYTES, PAGE_BYTES | 4];
    for (to, field) in page[12..20].chunks_exact_mut(2).zip(fields) {
        to.copy_from_slice(&(field as u16).to_le_bytes());
    }
    let (first, second) = page.split_first_chunk().expect("a page has two blocks");
    if content.is_multiple_of(2) { *first } else { second.try_into().expect("a page has two blocks") }
}

/// A row: the transaction that made it, its number in the page, then numbers and letters.
fn fill_row(bytes: &mut [u8], row: usize, random: &mut Random) {
    bytes[..3].copy_from_slice(&random.random::<[u8; 3]>());
    bytes[16] = row as u8 + 1;
    bytes[22] = ROW_HEADER as u8;
    for byte in &mut bytes[ROW_HEADER..] {
        *byte = b'a' + random.random_range(0..26);
    }
}

/// A database writes a block: the position in the log and the checksum, if it has them, and eight bytes of a row, if it has one.
fn updated(block: &Block, seed: u64) -> Block {
    let mut random = Random::seed_from_u64(seed);
    let mut block = *block;
    if block[14..20] != [0; 6] {
        block[4..10].copy_from_slice(&random.random::<[u8; 6]>());
    }
    if block[BLOCK_BYTES - ROW_BYTES.start()..] != [0; 40] {
        let at = BLOCK_BYTES - random.random_range(1..=(ROW_BYTES.start() - ROW_HEADER) / 8) * 8;
        block[at..at + 8].copy_from_slice(&random.random::<[u8; 8]>());
    } else if block == [0; BLOCK_BYTES] {
        fill_row(&mut block[BLOCK_BYTES - ROW_BYTES.start()..], 0, &mut random);
    }
    block
}

/// Contents after a write of a block: three of four writes edit it in place, the others replace it. The same seed gives the
/// same bytes.
pub fn written(block: &Block, seed: u64) -> Block {
    let mut random = Random::seed_from_u64(seed);
    if random.random_bool(0.75) {
        edited(block, &mut random)
    } else {
        alone(sample(&LZ4_UNRELATED, &mut random), &mut random)
    }
}

/// A seed of its own for each number.
fn mixed(seed: u64, number: u32) -> u64 {
    (seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
}

/// The number of one of `weights`, with its probability.
fn draw(weights: impl Iterator<Item = f64> + Clone, random: &mut Random) -> usize {
    let mut left = random.random::<f64>() * weights.clone().sum::<f64>();
    let last = weights.clone().count() - 1;
    weights
        .take(last)
        .position(|weight| {
            left -= weight;
            left < 0.0
        })
        .unwrap_or(last)
}

/// A content of its own, as different seeds give different ones: it is like no other, and compresses as those of the tables do.
pub fn unlike(seed: u64) -> Block {
    let mut random = Random::seed_from_u64(seed);
    let (class, _) = CLASSES[draw(CLASSES.iter().map(|&(_, share)| share), &mut random)];
    let quantiles = match class {
        InPlace => &LZ4_IN_PLACE,
        Shifted => &LZ4_SHIFTED,
        Unrelated => &LZ4_UNRELATED,
    };
    let bytes = sample(quantiles, &mut random);
    alone(bytes, &mut random)
}

/// The class of the next family, and its members, so that the contents have the classes' shares.
fn draw_family(random: &mut Random) -> (Class, u32) {
    let mean = f64::from(FAMILY.start() + FAMILY.end()) / 2.0;
    let weight = |&(class, share): &(Class, f64)| if class == Unrelated { share } else { share / mean };
    let (class, _) = CLASSES[draw(CLASSES.iter().map(weight), random)];
    (class, if class == Unrelated { 1 } else { random.random_range(FAMILY) })
}

/// Literals, which compress to three quarters by their frequencies alone, as those of text and code.
fn fill_literals(bytes: &mut [u8], random: &mut Random) {
    for four in bytes.chunks_mut(4) {
        let values = random.random::<u64>().to_le_bytes();
        for (byte, pair) in four.iter_mut().zip(values.chunks_exact(2)) {
            *byte = if pair[0] < 192 { pair[1] & 15 } else { pair[1] };
        }
    }
}

/// A length around `mean`, at least `least`.
fn length(mean: f64, least: usize, random: &mut Random) -> usize {
    ((mean * (0.5 + random.random::<f64>())).round() as usize).max(least)
}

/// A content for which LZ4 needs about `bytes`.
fn alone(bytes: f64, random: &mut Random) -> Block {
    let part = bytes / BLOCK_BYTES as f64;
    // LZ4 needs this much more than the program has, for copies that it finds late and short ones that it does not use.
    let bytes = bytes * 0.93;
    let mut block = [0; BLOCK_BYTES];
    if part >= 0.97 {
        random.fill(&mut block[..]);
        return block;
    }
    // Each sequence of LZ4 costs its literals and three bytes, and copies of six bytes or more are worth it.
    let literals = f64::max(8.0, (6.0 * part - 3.0) / (1.0 - part));
    let sequences = bytes / (literals + 3.0);
    let copies = BLOCK_BYTES as f64 / sequences - literals;
    let mut at = 0;
    while at < BLOCK_BYTES {
        let end = (at + length(literals, 1, random)).min(BLOCK_BYTES);
        fill_literals(&mut block[at..end], random);
        at = end;
        let distance = random.random_range(1..=at);
        let end = (at + length(copies, 4, random)).min(BLOCK_BYTES);
        for to in at..end {
            block[to] = block[to - distance];
        }
        at = end;
    }
    block
}

/// Another content by edits in place.
fn edited(root: &Block, random: &mut Random) -> Block {
    let bytes = sample(&IN_PLACE_BYTES, random);
    let mut block = *root;
    // The mask of lines, and for each run two or three masks.
    let mut cost = 8.0;
    let mut start = 0;
    loop {
        let run = random.random_range(1..=8);
        // Every other run is near the one before it, as the fields of a record are.
        let is_near = random.random_bool(0.5);
        start = if is_near { start + random.random_range(8..48) } else { random.random_range(0..BLOCK_BYTES) };
        start %= BLOCK_BYTES - run;
        // None of them stays the same.
        let changes = random.random::<u64>().to_le_bytes();
        block[start..start + run].iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change | 1);
        cost += run as f64 + 2.5;
        if cost >= bytes {
            return block;
        }
    }
}

/// Another content with the same bytes at other places.
fn shifted(root: &Block, random: &mut Random) -> Block {
    // The codec finds late where a copy begins.
    let bytes = 0.87 * sample(&SHIFTED_BYTES, random);
    let literals = 12.0;
    let copies = BLOCK_BYTES as f64 / (bytes / (literals + 4.0)) - literals;
    let mut block = [0; BLOCK_BYTES];
    let (mut at, mut from) = (0, 0);
    while at < BLOCK_BYTES {
        let end = (at + length(literals, 1, random)).min(BLOCK_BYTES);
        fill_literals(&mut block[at..end], random);
        at = end;
        from += random.random_range(0..16);
        // A shifted block ends with the beginning of what followed the other one.
        let end = (at + length(copies, 8, random)).min(BLOCK_BYTES);
        for byte in &mut block[at..end] {
            *byte = root[from % BLOCK_BYTES];
            from += 1;
        }
        at = end;
    }
    block
}
