//! Assigns places on a disk to files.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::{Extent, Layout, Overlap};

/// A file and its size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// The file: a trace's volume.
    pub file: u32,
    /// Its size.
    pub bytes: u64,
    /// Its path; empty if it is not known.
    pub path: String,
}

/// The order of files on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of their first use.
    #[default]
    FirstUse,
    /// By path, so that the files of a folder are together.
    Name,
}

/// The rules by which files are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Their order.
    pub order: Order,
    /// The start of the first file, in bytes; a multiple of the block.
    pub base: u64,
    /// Files begin at multiples of this many bytes and are cut only there.
    pub block_bytes: u32,
    /// The share of block borders inside of files where the file is cut, 0 to 1. The pieces after cuts exchange places
    /// with each other at random, all over the disk.
    pub fragmentation: f64,
    /// The seed of the cuts and the places.
    pub seed: u64,
}

impl Placement {
    /// Places `files`, which are in the order of their first use.
    pub fn place(&self, files: &[FileSize]) -> Result<Layout, Overlap> {
        let mut files: Vec<&FileSize> = files.iter().collect();
        if self.order == Order::Name {
            files.sort_by(|one, other| (&one.path, one.file).cmp(&(&other.path, other.file)));
        }
        let mut random = Random::seed_from_u64(self.seed);
        let block = u64::from(self.block_bytes);
        let mut pieces: Vec<Extent> = Vec::new();
        for file in files {
            let mut start = 0;
            let mut at = block;
            while at < file.bytes {
                if self.fragmentation > 0.0 && random.random_bool(self.fragmentation) {
                    pieces.push(Extent { file: file.file, offset: start, disk: 0, length: at - start });
                    start = at;
                }
                at += block;
            }
            if file.bytes > start {
                pieces.push(Extent { file: file.file, offset: start, disk: 0, length: file.bytes - start });
            }
        }
        self.scatter(&mut pieces, &mut random);
        let mut disk = self.base;
        for piece in &mut pieces {
            piece.disk = disk;
            disk += piece.length.next_multiple_of(block);
        }
        Layout::new(pieces)
    }

    /// Exchanges the places of pieces that do not begin their files.
    fn scatter(&self, pieces: &mut [Extent], random: &mut Random) {
        let cut: Vec<usize> =
            pieces.iter().enumerate().filter(|(_, piece)| piece.offset > 0).map(|(at, _)| at).collect();
        // Fisher and Yates.
        for last in (1..cut.len()).rev() {
            let other = random.random_range(0..=last);
            if let (Some(&one), Some(&other)) = (cut.get(last), cut.get(other)) {
                pieces.swap(one, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<FileSize> {
        let file = |file, bytes, path: &str| FileSize { file, bytes, path: path.to_owned() };
        vec![file(5, 10_000, "b/x"), file(2, 4096, "a/y"), file(9, 1, "b/a"), file(4, 0, "c")]
    }

    fn placement() -> Placement {
        Placement { order: Order::FirstUse, base: 8192, block_bytes: 4096, fragmentation: 0.0, seed: 1 }
    }

    #[test]
    fn files_lie_one_behind_the_other() {
        let starts = |order| {
            let layout = Placement { order, ..placement() }.place(&files()).unwrap();
            layout.extents().iter().map(|extent| (extent.file, extent.disk)).collect::<Vec<_>>()
        };
        assert_eq!(starts(Order::FirstUse), [(5, 8192), (2, 20480), (9, 24576)]);
        assert_eq!(starts(Order::Name), [(2, 8192), (9, 12288), (5, 16384)]);
    }

    #[test]
    fn a_degree_of_fragmentation_cuts_that_share_and_loses_nothing() {
        let blocks = 20_000;
        let file = FileSize { file: 1, bytes: blocks * 4096, path: String::new() };
        let place = |fragmentation, seed| {
            Placement { fragmentation, seed, ..placement() }.place(std::slice::from_ref(&file)).unwrap()
        };
        let layout = place(0.1, 1);
        let pieces = layout.extents().len() as f64;
        assert!((1900.0..2100.0).contains(&pieces), "{pieces} pieces");
        assert_eq!(layout.extents().iter().map(|extent| extent.length).sum::<u64>(), file.bytes);
        assert_eq!(layout.places(1, 0..file.bytes).map(|piece| piece.end - piece.start).sum::<u64>(), file.bytes);
        assert_eq!(layout, place(0.1, 1));
        assert_ne!(layout, place(0.1, 2));
        let whole = place(1.0, 1);
        assert_eq!(whole.extents().len() as u64, blocks);
        let in_order = whole.extents().windows(2).filter(|pair| pair[0].offset + 4096 == pair[1].offset).count();
        assert!(in_order < 20, "{in_order} pieces stayed in order");
    }
}
