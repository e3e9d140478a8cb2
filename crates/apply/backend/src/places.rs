//! The places of a level's file, read and written by the calling thread.

use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::path::Path;

use nigh_engine::Fault;
use twox_hash::XxHash3_64;

use crate::error::OpenError;
use crate::level::PLACES;
use crate::open::{OpenFile, Options};
use crate::perform;

/// Alignment of memory for O_DIRECT.
const ALIGN: usize = 4096;

/// The places of a file that is open, which is locked meanwhile. Each has room for a block.
#[derive(Debug)]
pub struct Places {
    file: OpenFile,
    block_bytes: usize,
}

/// Memory for blocks at consecutive places.
#[derive(Debug)]
pub struct PlacesBuffer {
    bytes: Vec<u8>,
    start: usize,
    block_bytes: usize,
}

impl PlacesBuffer {
    /// Memory for this many blocks.
    pub fn new(blocks: usize, block_bytes: u32) -> PlacesBuffer {
        let block_bytes = block_bytes as usize;
        let bytes = vec![0; blocks * block_bytes + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        PlacesBuffer { bytes, start, block_bytes }
    }

    /// Room for the block number `at`.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn block(&mut self, at: usize) -> &mut [u8] {
        let start = self.start + at * self.block_bytes;
        &mut self.bytes[start..start + self.block_bytes]
    }
}

impl Places {
    /// Opens the file at `path`, which [`LevelFile::open`](crate::LevelFile::open) made.
    pub fn open(path: &Path, block_bytes: u32) -> Result<Places, OpenError> {
        let file = OpenFile::open(path, &Options { block_bytes, ..Options::default() })?;
        Ok(Places { file, block_bytes: block_bytes as usize })
    }

    /// The checksum of what is to be at `place`.
    pub fn sum(place: u32, contents: &[u8]) -> NonZeroU64 {
        NonZeroU64::new(XxHash3_64::oneshot_with_seed(place.into(), contents)).unwrap_or(NonZeroU64::MIN)
    }

    fn offset(&self, place: u32) -> u64 {
        PLACES + u64::from(place) * self.block_bytes as u64
    }

    /// Reads the block at `place` into the beginning of `buffer`. Returns its contents, or none if they have another checksum.
    pub fn read<'a>(&self, place: u32, sum: NonZeroU64, buffer: &'a mut PlacesBuffer) -> io::Result<Option<&'a [u8]>> {
        let (offset, contents) = (self.offset(place), buffer.block(0));
        let way = self.file.way_of(&(offset..offset + contents.len() as u64));
        perform::read(way, offset, &mut [IoSliceMut::new(contents)]).map_err(of)?;
        Ok(Some(&*contents).filter(|contents| Places::sum(place, contents) == sum))
    }

    /// Writes the first `count` blocks of `buffer` at `place` and those that follow.
    pub fn write(&self, place: u32, count: usize, buffer: &PlacesBuffer) -> io::Result<()> {
        let length = count * self.block_bytes;
        let (offset, contents) = (self.offset(place), &buffer.bytes[buffer.start..buffer.start + length]);
        let way = self.file.way_of(&(offset..offset + length as u64));
        perform::write(way, offset, &mut [IoSlice::new(contents)]).map_err(of)
    }
}

fn of(Fault(errno): Fault) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LevelFile;

    #[test]
    fn what_is_written_is_read_or_has_another_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("level");
        let (level, _) = LevelFile::open(&path, PLACES + (16 << 12), 4096, 1).unwrap();
        let places = Places::open(&path, 4096).unwrap();
        let mut buffer = PlacesBuffer::new(2, 4096);
        buffer.block(0).fill(7);
        buffer.block(1).fill(8);
        places.write(14, 2, &buffer).unwrap();
        let sum = Places::sum(15, &[8; 4096]);
        assert_eq!(places.read(15, sum, &mut buffer).unwrap(), Some(&[8; 4096][..]));
        assert_eq!(places.read(14, sum, &mut buffer).unwrap(), None);
        assert!(places.read(16, sum, &mut buffer).is_err(), "beyond the end of the file");
        assert_eq!(level.part_blocks(), 16);
    }
}
