//! The places of files on a disk, for traces with files and offsets but without places on a disk.

mod fiemap;
mod file;
mod place;

use std::ops::Range;

use crate::{Op, Request};

pub use fiemap::{FiemapError, fiemap};
pub use file::{read_extents, read_files, write_extents};
pub use place::{FileSize, Order, Placement};

/// A contiguous piece of a file on a disk. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file: a trace's volume.
    pub file: u32,
    /// Its start in the file.
    pub offset: u64,
    /// Its start on the disk.
    pub disk: u64,
    /// Its length; not 0.
    pub length: u64,
}

/// Two extents overlap, in the file or on the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "file {}: its extent at {} of the disk, {} bytes, overlaps that of file {} at {}",
    .0.file, .0.disk, .0.length, .1.file, .1.disk
)]
pub struct Overlap(pub Extent, pub Extent);

/// A request to bytes of a file that have no place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file {file}: no extents cover all of its bytes {offset} to {end}")]
pub struct NoPlace {
    /// The file.
    pub file: u32,
    /// The start of the request.
    pub offset: u64,
    /// The end of the request.
    pub end: u64,
}

/// The mapping between bytes of a disk and bytes of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    by_disk: Vec<Extent>,
    by_file: Vec<Extent>,
}

impl Layout {
    /// The layout of `extents`, in any order.
    pub fn new(extents: Vec<Extent>) -> Result<Layout, Overlap> {
        let (mut by_disk, mut by_file) = (extents.clone(), extents);
        by_disk.sort_unstable_by_key(|extent| extent.disk);
        by_file.sort_unstable_by_key(|extent| (extent.file, extent.offset));
        for (one, next) in by_disk.iter().zip(by_disk.iter().skip(1)) {
            if one.disk.saturating_add(one.length) > next.disk {
                return Err(Overlap(*one, *next));
            }
        }
        for (one, next) in by_file.iter().zip(by_file.iter().skip(1)) {
            if one.file == next.file && one.offset.saturating_add(one.length) > next.offset {
                return Err(Overlap(*one, *next));
            }
        }
        Ok(Layout { by_disk, by_file })
    }

    /// The extents, in the order of the disk.
    pub fn extents(&self) -> &[Extent] {
        &self.by_disk
    }

    /// The extent that contains byte `disk` of the disk.
    pub fn at(&self, disk: u64) -> Option<&Extent> {
        let behind = self.by_disk.partition_point(|extent| extent.disk <= disk);
        let extent = self.by_disk.get(behind.checked_sub(1)?)?;
        (disk - extent.disk < extent.length).then_some(extent)
    }

    /// The places of the bytes `range` of `file` on the disk, piece by piece in the order of the file. Bytes beyond the
    /// end of the file or without a place are left out.
    pub fn places(&self, file: u32, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let key = |extent: &Extent| (extent.file, extent.offset + extent.length);
        let first = self.by_file.partition_point(|extent| key(extent) <= (file, range.start));
        let inside = move |extent: &&Extent| extent.file == file && extent.offset < range.end;
        let pieces = self.by_file.iter().skip(first).take_while(inside);
        let (start, end) = (range.start, range.end);
        pieces.map(move |extent| {
            let from = start.max(extent.offset);
            let to = end.min(extent.offset + extent.length);
            extent.disk + (from - extent.offset)..extent.disk + (to - extent.offset)
        })
    }

    /// Appends to `placed` the requests to the disk, its volume 0, that correspond to `request` of a file: one for each
    /// piece.
    pub fn place(&self, request: &Request, placed: &mut Vec<Request>) -> Result<(), NoPlace> {
        if request.op == Op::Flush || request.length == 0 {
            placed.push(Request { volume: 0, offset: 0, length: 0, ..*request });
            return Ok(());
        }
        let end = request.offset.saturating_add(request.length.into());
        let mut missing = u64::from(request.length);
        for piece in self.places(request.volume, request.offset..end) {
            let bytes = piece.end - piece.start;
            missing -= bytes;
            // At most as long as the request.
            placed.push(Request { volume: 0, offset: piece.start, length: bytes as u32, ..*request });
        }
        if missing == 0 { Ok(()) } else { Err(NoPlace { file: request.volume, offset: request.offset, end }) }
    }

    /// The end of the last extent of `file`, in the file; 0 for a file without extents.
    pub fn end_of(&self, file: u32) -> u64 {
        let behind = self.by_file.partition_point(|extent| extent.file <= file);
        let last = behind.checked_sub(1).and_then(|last| self.by_file.get(last));
        last.filter(|extent| extent.file == file).map_or(0, |extent| extent.offset + extent.length)
    }

    /// The end of the last extent on the disk.
    pub fn end(&self) -> u64 {
        self.by_disk.last().map_or(0, |extent| extent.disk + extent.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(file: u32, offset: u64, disk: u64, length: u64) -> Extent {
        Extent { file, offset, disk, length }
    }

    #[test]
    fn files_are_found_by_place_and_places_by_file() {
        let extents = vec![extent(7, 0, 1000, 100), extent(7, 100, 5000, 50), extent(3, 0, 1100, 10)];
        let layout = Layout::new(extents).unwrap();
        assert_eq!(layout.at(1099).map(|extent| extent.file), Some(7));
        assert_eq!(layout.at(1100).map(|extent| extent.file), Some(3));
        assert_eq!((layout.at(999), layout.at(1110), layout.at(5050)), (None, None, None));
        assert_eq!(layout.places(7, 90..200).collect::<Vec<_>>(), [1090..1100, 5000..5050]);
        assert_eq!(layout.places(7, 100..101).next(), Some(5000..5001));
        assert_eq!(layout.places(4, 0..10).count(), 0);
        assert_eq!((layout.end_of(7), layout.end_of(3), layout.end_of(5), layout.end()), (150, 10, 0, 5050));
    }

    #[test]
    fn requests_go_to_the_pieces() {
        let layout = Layout::new(vec![extent(7, 0, 1000, 100), extent(7, 100, 5000, 50)]).unwrap();
        let request = Request { volume: 7, offset: 90, length: 30, tenant: 4, time_ns: 9, ..Request::default() };
        let mut placed = Vec::new();
        layout.place(&request, &mut placed).unwrap();
        let piece = |offset, length| Request { volume: 0, offset, length, ..request };
        assert_eq!(placed, [piece(1090, 10), piece(5000, 20)]);
        let beyond = Request { offset: 140, ..request };
        assert_eq!(layout.place(&beyond, &mut placed), Err(NoPlace { file: 7, offset: 140, end: 170 }));
    }

    #[test]
    fn overlaps_are_refused() {
        assert!(Layout::new(vec![extent(1, 0, 0, 10), extent(2, 0, 9, 10)]).is_err());
        let error = Layout::new(vec![extent(1, 0, 0, 10), extent(1, 5, 100, 10)]).unwrap_err().to_string();
        assert!(error.contains("file 1"), "{error}");
    }
}
