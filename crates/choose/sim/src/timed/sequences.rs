//! How much of what a device reads lies together: the distribution of figures 3 and 4 of the DULO paper (Jiang, Ding, Tan,
//! Zhang, DULO, FAST 2005).

/// Lengths up to this one are counted one by one; beyond, the lengths up to each power of two together.
const EXACT: u64 = 256;

/// The blocks that were read from a device, by the length of the sequence that each was part of. A sequence is as many
/// blocks as were read one behind the other on the disk, in one request or in several that follow each other at the
/// device; a write between them ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// Blocks in sequences of 1, 2, ... `EXACT` blocks, and of up to 2, 4, 8... times as many.
    blocks: Vec<u64>,
    /// How many sequences there were.
    count: u64,
    /// The sequence that may go on: where it ends, and its length, in blocks.
    end: u64,
    length: u64,
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences { blocks: vec![0; EXACT as usize], count: 0, end: u64::MAX, length: 0 }
    }
}

impl Sequences {
    /// Blocks `first` to `first + blocks` are read.
    pub fn read(&mut self, first: u64, blocks: u64) {
        if self.end != first {
            self.interrupt();
        }
        self.length += blocks;
        self.end = first + blocks;
    }

    /// The device does something else.
    pub fn interrupt(&mut self) {
        self.end = u64::MAX;
        let length = std::mem::take(&mut self.length);
        if length == 0 {
            return;
        }
        let at =
            if length <= EXACT { length - 1 } else { EXACT - 1 + u64::from((length - 1).ilog2() + 1 - EXACT.ilog2()) };
        if self.blocks.len() <= at as usize {
            self.blocks.resize(at as usize + 1, 0);
        }
        self.blocks[at as usize] += length;
        self.count += 1;
    }

    /// Adds what was read from another device. No sequence of either goes on.
    pub fn add(&mut self, mut other: Sequences) {
        self.interrupt();
        other.interrupt();
        if self.blocks.len() < other.blocks.len() {
            self.blocks.resize(other.blocks.len(), 0);
        }
        self.blocks.iter_mut().zip(&other.blocks).for_each(|(sum, blocks)| *sum += blocks);
        self.count += other.count;
    }

    /// Blocks of a sequence on average, but for one that goes on; none where there was no other.
    pub fn mean(&self) -> Option<f64> {
        let total: u64 = self.blocks.iter().sum();
        (self.count > 0).then(|| total as f64 / self.count as f64)
    }

    /// For each length with any, ascending: the length, the longest of those that are counted together, and the share of
    /// all blocks in sequences of at most this length.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, f64)> {
        let total: u64 = self.blocks.iter().sum();
        let mut sum = 0;
        self.blocks.iter().enumerate().filter(|&(_, &blocks)| blocks > 0).map(move |(at, blocks)| {
            sum += blocks;
            let at = at as u64;
            let length = if at < EXACT { at + 1 } else { EXACT << (at + 1 - EXACT) };
            (length, sum as f64 / total as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_the_length_of_their_sequence() {
        let mut sequences = Sequences::default();
        // 10 to 13 in two requests; 20; 21 is another after a write; 600 in one.
        sequences.read(10, 3);
        sequences.read(13, 1);
        sequences.read(20, 1);
        sequences.interrupt();
        sequences.read(21, 1);
        sequences.read(1000, 594);
        sequences.interrupt();
        let points: Vec<_> = sequences.cumulative().collect();
        assert_eq!(points, [(1, 2.0 / 600.0), (4, 6.0 / 600.0), (1024, 1.0)]);
        assert_eq!(sequences.mean(), Some(150.0));
        sequences.add(sequences.clone());
        assert_eq!(sequences.mean(), Some(150.0));
        assert_eq!(Sequences::default().mean(), None);
    }

    #[test]
    fn the_borders_of_the_lengths_counted_together() {
        for (length, counted) in [(255, 255), (256, 256), (257, 512), (512, 512), (513, 1024), (1 << 20, 1 << 20)] {
            let mut sequences = Sequences::default();
            sequences.read(0, length);
            sequences.interrupt();
            assert_eq!(sequences.cumulative().collect::<Vec<_>>(), [(counted, 1.0)], "{length}");
        }
    }
}
