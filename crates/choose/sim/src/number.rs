//! Numbers the distinct blocks of a trace densely, in the order of their first reference.

use hashbrown::HashMap;
use nigh_policy::Block;

const CHUNK_BITS: u32 = 12;
const CHUNK: u64 = 1 << CHUNK_BITS;
/// Volumes, and chunks in a volume, beyond which a directory entry would cost more than it saves.
const DIRECTORY_VOLUMES: u32 = 1 << 16;
const DIRECTORY_CHUNKS: u64 = 1 << 20;
/// Chunks are made as long as their entries number at most this plus four for each distinct block,
/// so that a sparse trace costs no more than a hash table would.
const CHUNK_ENTRIES_FREE: u64 = 1 << 22;

const NONE: u32 = u32::MAX;

/// A map from blocks to dense numbers.
///
/// Neighbouring blocks share a chunk of a two-level table, where a look-up is two loads; blocks of sparsely used
/// ranges (such as hashed object identities) are kept in a hash table.
#[derive(Default)]
pub struct Numbering {
    /// For each volume, for each chunk of its blocks, where the chunk starts in `chunks`, or `NONE`.
    directories: Vec<Vec<u32>>,
    /// The numbers of the blocks of all chunks, or `NONE`.
    chunks: Vec<u32>,
    sparse: HashMap<Block, u32>,
    /// The block of each number.
    blocks: Vec<Block>,
}

/// A trace has more distinct blocks than can be numbered.
#[derive(Debug)]
pub struct TooMany;

impl Numbering {
    /// The block of each number.
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// How many distinct blocks have been numbered.
    pub fn distinct(&self) -> usize {
        self.blocks.len()
    }

    /// Appends the number of each of `blocks` to `numbers`; a new block gets the next.
    pub fn number(&mut self, blocks: &[Block], numbers: &mut Vec<u32>) -> Result<(), TooMany> {
        let start = numbers.len();
        let mut all_known = true;
        // A loop of independent look-ups, so that many cache misses are under way at once.
        numbers.extend(blocks.iter().map(|&block| {
            let number = self.look_up(block);
            all_known &= number != NONE;
            number
        }));
        if all_known {
            return Ok(());
        }
        for (number, &block) in numbers[start..].iter_mut().zip(blocks) {
            if *number == NONE {
                *number = self.look_further(block)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn look_up(&self, block: Block) -> u32 {
        let chunks = self.directories.get(block.volume as usize);
        let chunk = chunks.and_then(|chunks| chunks.get((block.index >> CHUNK_BITS) as usize));
        let number = chunk.and_then(|&chunk| self.chunks.get(chunk as usize + (block.index % CHUNK) as usize));
        number.copied().unwrap_or(NONE)
    }

    /// The number of a block that was not in a chunk when `look_up` looked.
    #[cold]
    fn look_further(&mut self, block: Block) -> Result<u32, TooMany> {
        let number = self.look_up(block);
        if number != NONE {
            return Ok(number);
        }
        if let Some(&number) = self.sparse.get(&block) {
            return Ok(number);
        }
        // Policies keep a few numbers beyond the slots for themselves.
        let number = u32::try_from(self.blocks.len()).ok().filter(|&n| n < NONE - 64).ok_or(TooMany)?;
        self.blocks.push(block);
        match self.place(block) {
            Some(place) => self.chunks[place] = number,
            None => {
                self.sparse.insert(block, number);
            }
        }
        Ok(number)
    }

    /// Place of `block`'s number in `chunks`, if a chunk is worth while.
    fn place(&mut self, block: Block) -> Option<usize> {
        let at = block.index >> CHUNK_BITS;
        if block.volume >= DIRECTORY_VOLUMES || at >= DIRECTORY_CHUNKS {
            return None;
        }
        let (volume, at) = (block.volume as usize, at as usize);
        let known = self.directories.get(volume).and_then(|directory| directory.get(at)).copied().unwrap_or(NONE);
        let start = if known == NONE {
            let start = self.chunks.len() as u64;
            if start + CHUNK > CHUNK_ENTRIES_FREE + 4 * self.blocks.len() as u64 || start + CHUNK > u64::from(NONE) {
                return None;
            }
            if self.directories.len() <= volume {
                self.directories.resize_with(volume + 1, Vec::new);
            }
            let directory = &mut self.directories[volume];
            if directory.len() <= at {
                directory.resize(at + 1, NONE);
            }
            directory[at] = start as u32;
            self.chunks.resize((start + CHUNK) as usize, NONE);
            start as usize
        } else {
            known as usize
        };
        Some(start + (block.index % CHUNK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stable() {
        let mut numbering = Numbering::default();
        let mut model = HashMap::new();
        let (mut blocks, mut expected) = (Vec::new(), Vec::new());
        let mut state = 7u64;
        for step in 0..200_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Dense neighbours, a far volume, a far index, and identities all over the 64 bits.
            let block = match step % 4 {
                0 => Block { volume: 0, index: state >> 50 },
                1 => Block { volume: u32::MAX - 1, index: state >> 54 },
                2 => Block { volume: 3, index: u64::MAX - (state >> 56) },
                _ => Block { volume: 1, index: (state >> 48).wrapping_mul(0x9E3779B97F4A7C15) },
            };
            let next = model.len() as u32;
            expected.push(*model.entry(block).or_insert(next));
            blocks.push(block);
        }
        let mut numbers = Vec::new();
        for part in blocks.chunks(1_000) {
            numbering.number(part, &mut numbers).unwrap();
        }
        assert_eq!(numbers, expected);
        assert_eq!(numbering.distinct(), model.len());
        let table = numbering.chunks.len() as u64;
        assert!(table <= CHUNK_ENTRIES_FREE + 4 * model.len() as u64 + CHUNK);
        for (number, block) in numbering.into_blocks().into_iter().enumerate() {
            assert_eq!(model[&block], number as u32);
        }
    }
}
