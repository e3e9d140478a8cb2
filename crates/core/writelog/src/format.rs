//! The bytes of a log: two superblocks, and a ring of groups.
//!
//! A *group* is a header of one block and the data of its entries, each padded to whole blocks. It never wraps: a group that does not fit
//! before the end of the ring begins at its start. Positions count blocks since the log was made, so the place of one in the ring is its
//! remainder. A header has the checksum of the header before it (its *chain*), which a group of an earlier session at the expected place does not have.

use std::hash::Hasher;
use twox_hash::XxHash3_64;

use crate::change::Kind;

/// Bytes of a block: everything on the log's device begins at its multiples.
pub const BLOCK: u64 = 4096;
/// Start of the ring on the log's device, in bytes: two superblocks are before it.
pub const RING_OFFSET: u64 = 2 * BLOCK;
/// The smallest ring, in blocks.
pub const RING_BLOCKS_MIN: u64 = 16;
/// The most data of a group, in blocks; an eighth of a small ring.
pub const GROUP_BLOCKS_MAX: u64 = 256;

/// The bytes of one block.
pub type Block = [u8; BLOCK as usize];
/// The identity of a log, random bytes.
pub type Id = [u8; 16];

const SUPER_MAGIC: &[u8; 8] = b"nighwls1";
const GROUP_MAGIC: &[u8; 8] = b"nighwlg1";
/// The checksum at the end of a superblock and of a header covers the bytes before it.
const SUM_AT: usize = BLOCK as usize - 8;
const ENTRIES_AT: usize = 80;
const ENTRY_BYTES: usize = 24;
/// Counts, and positions in blocks, are below this: they have room to grow for as long as any device lives, and fit in bytes.
const COUNT_MOST: u64 = 1 << 48;
/// The most entries of a group.
pub(crate) const ENTRIES_MAX: usize = (SUM_AT - ENTRIES_AT) / ENTRY_BYTES;

/// The blocks of the ring of a log with this many bytes.
pub fn ring_blocks(bytes: u64) -> u64 {
    bytes.saturating_sub(RING_OFFSET) / BLOCK
}

/// The checksum of a group's data.
#[derive(Default)]
pub struct Sum(XxHash3_64);

impl Sum {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all bytes.
    pub fn value(&self) -> u64 {
        self.0.finish()
    }
}

/// A place between two groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The end of the group before it.
    pub(crate) position: u64,
    /// The number of the group after it.
    pub(crate) sequence: u64,
    /// The checksum of the header before it.
    pub(crate) chain: u64,
    /// The epoch of the group after it, or a later one if there is none.
    pub(crate) epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: Id,
    /// Size of the disk, in bytes.
    pub(crate) disk_bytes: u64,
    pub(crate) ring_blocks: u64,
    /// Counts superblocks: the larger one of two is valid.
    pub(crate) number: u64,
    /// Counts the times that the log was opened.
    pub(crate) session: u64,
    /// The groups before it are home.
    pub(crate) tail: Mark,
}

/// A change of the disk, in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Of the disk, in bytes.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Entry {
    /// Blocks of its data.
    pub(crate) fn blocks(&self) -> u64 {
        if self.kind == Kind::Data { self.length.div_ceil(BLOCK) } else { 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: Id,
    pub(crate) session: u64,
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
    pub(crate) position: u64,
    pub(crate) epoch: u64,
    /// The checksum of the data.
    pub(crate) sum: u64,
    pub(crate) entries: Vec<Entry>,
}

/// Writes fields one after the other.
struct Writer<'a>(&'a mut Block, usize);

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(to) = self.0.get_mut(self.1..self.1 + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.1 += bytes.len();
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.bytes(&number.to_le_bytes()));
    }
}

/// Reads fields one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, later) = self.0.split_first_chunk::<N>()?;
        self.0 = later;
        Some(*now)
    }

    fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}

fn sum(block: &Block) -> u64 {
    XxHash3_64::oneshot(block.split_at(SUM_AT).0)
}

fn seal(block: &mut Block) {
    let sum = sum(block);
    block.split_at_mut(SUM_AT).1.copy_from_slice(&sum.to_le_bytes());
}

/// The checksum in a sealed block.
pub(crate) fn sum_in(block: &Block) -> u64 {
    block.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The fields of a block that is sealed and begins with `magic`.
fn open<'a>(block: &'a Block, magic: &[u8; 8]) -> Option<Reader<'a>> {
    let mut fields = Reader(block.split_at(SUM_AT).0);
    (fields.bytes::<8>()? == *magic && sum(block) == sum_in(block)).then_some(fields)
}

impl Superblock {
    /// The place of the superblock, in bytes: two places take turns.
    pub(crate) fn place(&self) -> u64 {
        self.number % 2 * BLOCK
    }

    pub(crate) fn encode(&self) -> Box<Block> {
        let mut block = Box::new([0; BLOCK as usize]);
        let mut to = Writer(&mut block, 0);
        to.bytes(SUPER_MAGIC);
        to.bytes(&self.id);
        let Mark { position, sequence, chain, epoch } = self.tail;
        to.numbers(&[self.disk_bytes, self.ring_blocks, self.number, self.session, position, sequence, chain, epoch]);
        seal(&mut block);
        block
    }

    pub(crate) fn decode(block: &Block) -> Option<Superblock> {
        let mut from = open(block, SUPER_MAGIC)?;
        let id = from.bytes()?;
        let mut next = || from.number();
        let (disk_bytes, ring_blocks, number, session) = (next()?, next()?, next()?, next()?);
        let tail = Mark { position: next()?, sequence: next()?, chain: next()?, epoch: next()? };
        let counts = [number, session, tail.position, tail.sequence, tail.epoch];
        let is_sane =
            (RING_BLOCKS_MIN..1 << 40).contains(&ring_blocks) && counts.iter().all(|count| *count < COUNT_MOST);
        is_sane.then_some(Superblock { id, disk_bytes, ring_blocks, number, session, tail })
    }
}

impl Header {
    /// Blocks of its data.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.entries.iter().map(Entry::blocks).sum()
    }

    pub(crate) fn encode(&self) -> Box<Block> {
        let mut block = Box::new([0; BLOCK as usize]);
        let mut to = Writer(&mut block, 0);
        to.bytes(GROUP_MAGIC);
        to.bytes(&self.id);
        to.numbers(&[self.session, self.sequence, self.chain, self.position, self.epoch, self.sum]);
        to.numbers(&[self.entries.len() as u64]);
        for Entry { kind, offset, length } in &self.entries {
            to.numbers(&[*offset, *length, kind.code()]);
        }
        seal(&mut block);
        block
    }

    pub(crate) fn decode(block: &Block) -> Option<Header> {
        let mut from = open(block, GROUP_MAGIC)?;
        let id = from.bytes()?;
        let mut next = || from.number();
        let (session, sequence, chain, position) = (next()?, next()?, next()?, next()?);
        let (epoch, sum, count) = (next()?, next()?, next()?);
        let count = usize::try_from(count).ok().filter(|count| *count <= ENTRIES_MAX && epoch < COUNT_MOST)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let (offset, length, kind) = (next()?, next()?, Kind::of(next()?)?);
            offset.checked_add(length).filter(|end| *end < 1 << 62)?;
            entries.push(Entry { kind, offset, length });
        }
        let header = Header { id, session, sequence, chain, position, epoch, sum, entries };
        let mut blocks = header.entries.iter().map(Entry::blocks);
        blocks.try_fold(0, |sum: u64, blocks| sum.checked_add(blocks)).filter(|sum| *sum <= GROUP_BLOCKS_MAX)?;
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others may have written them, with a right checksum.
    #[test]
    fn counts_that_cannot_grow_are_refused() {
        let tail = Mark { position: 5, sequence: 6, chain: 7, epoch: 8 };
        let sane = Superblock { id: [1; 16], disk_bytes: 1 << 20, ring_blocks: 64, number: 3, session: 4, tail };
        assert_eq!(Superblock::decode(&sane.encode()), Some(sane.clone()));
        let counts: [fn(&mut Superblock) -> &mut u64; 5] = [
            |of| &mut of.number,
            |of| &mut of.session,
            |of| &mut of.tail.position,
            |of| &mut of.tail.sequence,
            |of| &mut of.tail.epoch,
        ];
        for count in counts {
            let mut other = sane.clone();
            *count(&mut other) = u64::MAX;
            assert_eq!(Superblock::decode(&other.encode()), None);
        }
        let header =
            Header { id: [1; 16], session: 1, sequence: 2, chain: 3, position: 4, epoch: 5, sum: 6, entries: vec![] };
        assert_eq!(Header::decode(&header.encode()), Some(header.clone()));
        assert_eq!(Header::decode(&Header { epoch: u64::MAX, ..header }.encode()), None);
    }

    #[test]
    fn blocks_are_decoded_as_they_were_encoded_and_damage_is_found() {
        let tail = Mark { position: 1, sequence: 2, chain: 3, epoch: 4 };
        let of_log = Superblock { id: [7; 16], disk_bytes: 1 << 30, ring_blocks: 64, number: 9, session: 5, tail };
        let kinds = [Kind::Data, Kind::Zeroes { keep: true }, Kind::Zeroes { keep: false }, Kind::Discard];
        let entries = kinds.into_iter().zip(1..).map(|(kind, at)| Entry { kind, offset: at << 12, length: at * 1000 });
        let header = Header {
            id: [7; 16],
            session: 5,
            sequence: 6,
            chain: 7,
            position: 8,
            epoch: 9,
            sum: 10,
            entries: entries.collect(),
        };
        let (mut one, mut other) = (of_log.encode(), header.encode());
        assert_eq!(Superblock::decode(&one), Some(of_log));
        assert_eq!(Header::decode(&other), Some(header));
        assert_eq!((Header::decode(&one), Superblock::decode(&other)), (None, None));
        for at in 0..one.len() {
            one[at] ^= 1;
            other[at] ^= 1;
            assert_eq!((Superblock::decode(&one), Header::decode(&other)), (None, None), "byte {at}");
            one[at] ^= 1;
            other[at] ^= 1;
        }
    }

    #[test]
    fn a_sealed_header_with_too_many_entries_is_none() {
        let entry = |length| Entry { kind: Kind::Data, offset: 0, length };
        let header =
            |entries| Header { id: [0; 16], session: 0, sequence: 0, chain: 0, position: 0, epoch: 0, sum: 0, entries };
        assert!(Header::decode(&header(vec![entry(1); ENTRIES_MAX]).encode()).is_some());
        assert!(Header::decode(&header(vec![entry(GROUP_BLOCKS_MAX * BLOCK + 1)]).encode()).is_none());
        assert!(Header::decode(&header(vec![Entry { offset: u64::MAX, ..entry(1) }]).encode()).is_none());
        let mut block = header(Vec::new()).encode();
        block[72] = 255;
        seal(&mut block);
        assert!(Header::decode(&block).is_none());
    }
}
