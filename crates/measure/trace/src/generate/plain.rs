//! Generators whose only state is a position: uniform, loop, scan, zigzag, two pools.

use rand::RngExt;

use super::spec::{Part, SpecError};
use super::{BLOCKS_MOST, Made, Random, References};

/// `uniform`: independent references; all blocks are equally likely.
struct Uniform {
    blocks: u64,
}

pub(super) fn uniform(part: &Part, _: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    Ok(Made { blocks, references: Box::new(Uniform { blocks }) })
}

impl References for Uniform {
    fn next(&mut self, random: &mut Random) -> Option<u64> {
        Some(random.random_range(0..self.blocks))
    }
}

/// `loop` and `scan`: each block in turn, repeatedly or once.
struct Sequence {
    blocks: u64,
    at: u64,
    again: bool,
}

pub(super) fn cyclic(part: &Part, _: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    Ok(Made { blocks, references: Box::new(Sequence { blocks, at: 0, again: true }) })
}

pub(super) fn scan(part: &Part, _: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    Ok(Made { blocks, references: Box::new(Sequence { blocks, at: 0, again: false }) })
}

impl References for Sequence {
    fn next(&mut self, _: &mut Random) -> Option<u64> {
        if self.at == self.blocks {
            if !self.again {
                return None;
            }
            self.at = 0;
        }
        self.at += 1;
        Some(self.at - 1)
    }
}

/// `zigzag`: the blocks from first to last and from last to first in turn.
struct Zigzag {
    blocks: u64,
    /// Position in both directions, below twice `blocks`.
    at: u64,
}

pub(super) fn zigzag(part: &Part, _: &mut Random) -> Result<Made, SpecError> {
    let blocks = part.count("blocks", 1, BLOCKS_MOST)?;
    Ok(Made { blocks, references: Box::new(Zigzag { blocks, at: 0 }) })
}

impl References for Zigzag {
    fn next(&mut self, _: &mut Random) -> Option<u64> {
        let at = self.at;
        self.at = (at + 1) % (2 * self.blocks);
        Some(at.min(2 * self.blocks - 1 - at))
    }
}

/// `two-pools`: I(1), R(1), I(2), R(2), …, a random index block and then a random record block. Record blocks follow
/// the index blocks.
struct TwoPools {
    index: u64,
    records: u64,
    record_next: bool,
}

pub(super) fn two_pools(part: &Part, _: &mut Random) -> Result<Made, SpecError> {
    let index = part.count("index", 1, BLOCKS_MOST / 2)?;
    let records = part.count("records", 1, BLOCKS_MOST / 2)?;
    Ok(Made { blocks: index + records, references: Box::new(TwoPools { index, records, record_next: false }) })
}

impl References for TwoPools {
    fn next(&mut self, random: &mut Random) -> Option<u64> {
        let record = self.record_next;
        self.record_next = !record;
        Some(if record {
            self.index + random.random_range(0..self.records)
        } else {
            random.random_range(0..self.index)
        })
    }
}
