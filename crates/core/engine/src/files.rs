//! The mapping between blocks of disks and blocks of files.

use std::ops::Range;

use nigh_policy::{Block, Tenant};

use crate::error::ConfigError;
use crate::request::Volume;
use crate::slots::Key;

/// A contiguous piece of a file on a disk. In blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The disk.
    pub volume: Volume,
    /// Its start on the disk.
    pub disk: u64,
    /// The file; below 2^32 - 1.
    pub file: u32,
    /// Its start in the file.
    pub offset: u64,
    /// Its length; not 0.
    pub blocks: u64,
}

impl Piece {
    fn place(&self) -> (Volume, u64) {
        (self.volume, self.disk)
    }
}

/// The places of files. Without any, each volume is a file.
#[derive(Clone, Debug, Default)]
pub struct Files {
    by_disk: Vec<Piece>,
    by_file: Vec<Piece>,
}

/// The volume of blocks that belong to no file.
const NO_FILE: u32 = u32::MAX;

impl Files {
    /// The files made of `pieces`, in any order. No two pieces share a block of a disk or of a file, and all pieces of
    /// a file are on one disk.
    pub fn new(pieces: Vec<Piece>) -> Result<Files, ConfigError> {
        let (mut by_disk, mut by_file) = (pieces.clone(), pieces);
        by_disk.sort_unstable_by_key(Piece::place);
        by_file.sort_unstable_by_key(|piece| (piece.file, piece.offset));
        let on_disk = by_disk.windows(2).all(|pair| {
            pair[0].volume != pair[1].volume || pair[0].disk.saturating_add(pair[0].blocks) <= pair[1].disk
        });
        let in_file = by_file.windows(2).all(|pair| {
            let (one, next) = (pair[0], pair[1]);
            one.file != next.file || (one.volume == next.volume && one.offset.saturating_add(one.blocks) <= next.offset)
        });
        if !on_disk || !in_file || by_file.last().is_some_and(|last| last.file == NO_FILE) {
            return Err(ConfigError::Impossible {
                what: "extents of files must not overlap, a file must be on one disk, and its number must be below 2^32 - 1",
            });
        }
        Ok(Files { by_disk, by_file })
    }

    /// The same files, but those of `volume` replaced by the files made of `pieces`, which are on that volume.
    pub(crate) fn with(&self, volume: Volume, pieces: Vec<Piece>) -> Result<Files, ConfigError> {
        assert!(pieces.iter().all(|piece| piece.volume == volume), "pieces of another volume");
        let others = self.by_disk.iter().copied().filter(|piece| piece.volume != volume);
        Files::new(others.chain(pieces).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_disk.is_empty()
    }

    /// The block of a file at `key`.
    pub(crate) fn block(&self, key: Key) -> Block {
        if self.is_empty() {
            return key.block();
        }
        let behind = self.by_disk.partition_point(|piece| piece.place() <= (key.volume(), key.index()));
        let piece = behind.checked_sub(1).map(|at| self.by_disk[at]);
        match piece.filter(|piece| piece.volume == key.volume() && key.index() - piece.disk < piece.blocks) {
            Some(piece) => Block { volume: piece.file, index: key.index() - piece.disk + piece.offset },
            None => Block { volume: NO_FILE, index: key.block().index },
        }
    }

    /// The files that contain `blocks` of `volume`, with their blocks, in the order of the disk.
    pub(crate) fn within(&self, volume: Volume, blocks: Range<u64>) -> Vec<(u32, Range<u64>)> {
        if self.is_empty() {
            return vec![(volume.0, blocks)];
        }
        let ends = |piece: &Piece| piece.disk.saturating_add(piece.blocks);
        let before = self.by_disk.partition_point(|piece| (piece.volume, ends(piece)) <= (volume, blocks.start));
        let pieces = self.by_disk[before..].iter();
        let pieces = pieces.take_while(|piece| piece.volume == volume && piece.disk < blocks.end);
        let inside = pieces.map(|piece| {
            let (start, end) = (piece.disk.max(blocks.start), ends(piece).min(blocks.end));
            (piece.file, start - piece.disk + piece.offset..end - piece.disk + piece.offset)
        });
        inside.collect()
    }

    /// The place of `block` of a file.
    pub(crate) fn key(&self, block: Block) -> Option<Key> {
        if self.is_empty() {
            let exists = block.volume < Key::VOLUMES && block.index < Key::BLOCKS;
            return exists.then(|| Key::new(Volume(block.volume), block.index));
        }
        let behind = self.by_file.partition_point(|piece| (piece.file, piece.offset) <= (block.volume, block.index));
        let piece = self.by_file[behind.checked_sub(1)?];
        let inside = piece.file == block.volume && block.index - piece.offset < piece.blocks;
        inside.then(|| Key::new(piece.volume, piece.disk + (block.index - piece.offset)))
    }

    /// The volume that contains `file`.
    pub(crate) fn volume_of(&self, file: u32) -> Option<Volume> {
        match self.is_empty() {
            true => Some(Volume(file)),
            false => self.last_piece(file).map(|piece| piece.volume),
        }
    }

    /// The last piece of `file`, by its position in the file.
    pub(crate) fn last_piece(&self, file: u32) -> Option<Piece> {
        let behind = self.by_file.partition_point(|piece| piece.file <= file);
        behind.checked_sub(1).map(|at| self.by_file[at]).filter(|piece| piece.file == file)
    }
}

/// The names and lists of tenants.
pub(crate) struct Tenants {
    /// The files of tenants.
    pub(crate) files: Files,
    /// Tenants with a list whose next prefetches may be due.
    pub(crate) asking: Vec<Tenant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(volume: u32, disk: u64, file: u32, offset: u64, blocks: u64) -> Piece {
        Piece { volume: Volume(volume), disk, file, offset, blocks }
    }

    #[test]
    fn blocks_of_disks_and_of_files_are_found_by_each_other() {
        let pieces = vec![piece(1, 10, 7, 0, 4), piece(1, 30, 7, 4, 2), piece(0, 10, 3, 0, 1), piece(1, 14, 4, 0, 9)];
        let files = Files::new(pieces).unwrap();
        for (place, disk, volume, index) in [(1, 13, 7, 3), (1, 14, 4, 0), (1, 31, 7, 5), (0, 10, 3, 0)] {
            let (key, block) = (Key::new(Volume(place), disk), Block { volume, index });
            assert_eq!((files.block(key), files.key(block)), (block, Some(key)));
        }
        assert_eq!(files.block(Key::new(Volume(0), 11)), Block { volume: NO_FILE, index: 11 });
        assert_eq!(files.key(Block { volume: 7, index: 6 }), None);
        assert_eq!(files.key(Block { volume: 5, index: 0 }), None);
        assert_eq!(files.last_piece(7), Some(piece(1, 30, 7, 4, 2)));
        assert_eq!(files.within(Volume(1), 12..31), [(7, 2..4), (4, 0..9), (7, 4..5)]);
        assert_eq!(files.within(Volume(0), 11..40), []);
        let files = files.with(Volume(1), vec![piece(1, 0, 9, 0, 20)]).unwrap();
        assert_eq!((files.last_piece(7), files.last_piece(3)), (None, Some(piece(0, 10, 3, 0, 1))));
        assert_eq!(files.within(Volume(1), 12..31), [(9, 12..20)]);
    }

    #[test]
    fn overlaps_are_refused() {
        assert!(Files::new(vec![piece(0, 0, 1, 0, 4), piece(0, 3, 2, 0, 4)]).is_err());
        assert!(Files::new(vec![piece(0, 0, 1, 0, 4), piece(0, 9, 1, 3, 4)]).is_err());
        assert!(Files::new(vec![piece(0, 0, 1, 0, 4), piece(1, 9, 1, 4, 4)]).is_err());
        assert!(Files::new(vec![piece(0, 0, u32::MAX, 0, 4)]).is_err());
    }
}
