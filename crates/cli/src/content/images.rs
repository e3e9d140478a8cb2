//! The images: what of them is data, which extents are read, and their blocks.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nigh_content::{BLOCK_BYTES, Block};

/// Blocks of an extent.
pub(super) const EXTENT_BLOCKS: usize = 256;

const EXTENT_BYTES: u64 = (EXTENT_BLOCKS * BLOCK_BYTES) as u64;

/// An open image.
pub(super) struct Image {
    path: PathBuf,
    file: File,
    pub(super) bytes: u64,
    /// Whether each extent has data; others are holes, which read as zeros.
    has_data: Vec<bool>,
}

impl Image {
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// The images of a command line.
pub(super) struct Images {
    pub(super) images: Vec<Image>,
}

/// An extent of an image.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) image: u32,
    pub(super) index: u32,
}

/// Place of a block.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) image: u32,
    pub(super) block: u32,
}

impl Images {
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Images> {
        let images: Vec<Image> = paths.iter().map(|path| open(path)).collect::<anyhow::Result<_>>()?;
        for (at, image) in images.iter().enumerate() {
            let is_twice = images[..at].iter().any(|other| is_same(&image.file, &other.file));
            ensure!(!is_twice, "{}: this file is there twice; all its blocks would be equal", image.name());
        }
        Ok(Images { images })
    }

    /// Bytes of the extents that are no holes.
    pub(super) fn data_bytes(&self) -> u64 {
        let extents = self.images.iter().flat_map(|image| &image.has_data).filter(|&&has_data| has_data).count();
        extents as u64 * EXTENT_BYTES
    }

    /// The extents with offsets of which a share of `rate` is chosen by hash: the same ones in all images, because clones
    /// have the same blocks at the same offsets.
    pub(super) fn sampled(&self, rate: f64) -> Vec<Extent> {
        let limit = (rate * 2f64.powi(64)) as u64;
        let is_sampled = |index: u32| rate >= 1.0 || mixed(u64::from(index)) < limit;
        let images = (0..).zip(&self.images);
        let all =
            images.flat_map(|(image, of)| (0..of.has_data.len() as u32).map(move |index| Extent { image, index }));
        all.filter(|extent| is_sampled(extent.index)).collect()
    }

    /// Reads an extent; `None` for a hole. The last block of an image is filled up with zeros.
    pub(super) fn read(&self, extent: Extent) -> anyhow::Result<Option<Vec<u8>>> {
        let image = &self.images[extent.image as usize];
        if !image.has_data[extent.index as usize] {
            return Ok(None);
        }
        let offset = u64::from(extent.index) * EXTENT_BYTES;
        let length = (image.bytes - offset).min(EXTENT_BYTES) as usize;
        let mut bytes = vec![0; length.next_multiple_of(BLOCK_BYTES)];
        let read = image.file.read_exact_at(&mut bytes[..length], offset);
        read.with_context(|| format!("{}: at byte {offset}", image.name()))?;
        Ok(Some(bytes))
    }

    /// Blocks of an extent.
    pub(super) fn blocks(&self, extent: Extent) -> u64 {
        let offset = u64::from(extent.index) * EXTENT_BYTES;
        (self.images[extent.image as usize].bytes - offset).min(EXTENT_BYTES).div_ceil(BLOCK_BYTES as u64)
    }

    /// Reads a block again.
    pub(super) fn read_block(&self, place: Place, block: &mut Block) -> anyhow::Result<()> {
        let image = &self.images[place.image as usize];
        let offset = u64::from(place.block) * BLOCK_BYTES as u64;
        let length = (image.bytes - offset).min(BLOCK_BYTES as u64) as usize;
        block[length..].fill(0);
        let read = image.file.read_exact_at(&mut block[..length], offset);
        read.with_context(|| format!("{}: at byte {offset}", image.name()))
    }
}

fn open(path: &Path) -> anyhow::Result<Image> {
    let name = || path.display().to_string();
    let mut file = File::open(path).with_context(name)?;
    let metadata = file.metadata().with_context(name)?;
    let kind = metadata.file_type();
    ensure!(!kind.is_dir(), "{}: this is a folder; expected an image of a disk or a block device", name());
    ensure!(kind.is_file() || kind.is_block_device(), "{}: expected an image of a disk or a block device", name());
    if let Some(format) = nigh_backend::format_of(&file) {
        anyhow::bail!("{}: it is {format}, not a raw disk; make a raw copy and study that", name());
    }
    let bytes = file.seek(SeekFrom::End(0)).with_context(name)?;
    ensure!(bytes > 0, "{}: it is empty", name());
    let extents = bytes.div_ceil(EXTENT_BYTES);
    ensure!(extents <= u64::from(u32::MAX) / EXTENT_BLOCKS as u64, "{}: it has more than 16 TiB", name());
    let mut has_data = vec![false; extents as usize];
    for (start, end) in data(&file, bytes, kind.is_file()).with_context(name)? {
        has_data[(start / EXTENT_BYTES) as usize..end.div_ceil(EXTENT_BYTES) as usize].fill(true);
    }
    Ok(Image { path: path.to_owned(), file, bytes, has_data })
}

/// The ranges of a file that are no holes.
fn data(file: &File, bytes: u64, is_file: bool) -> io::Result<Vec<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    let mut ranges = Vec::new();
    let mut at = 0;
    while is_file && at < bytes {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(ranges),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(start))?.min(bytes);
        ranges.push((start, at));
    }
    Ok(if at < bytes { vec![(0, bytes)] } else { ranges })
}

fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino(), metadata.rdev()));
    matches!((number(one), number(other)), (Ok(one), Ok(other)) if one == other)
}

/// Mixes the bits of a number (the finalizer of splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
