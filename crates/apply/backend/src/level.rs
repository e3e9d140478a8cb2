//! The file of a level: a header, the places of blocks, and behind them the index, while nobody serves it.
//!
//! The header states whether the index is valid: no, on stable storage, before anything is stored, and yes only after a
//! shutdown that wrote the index. After a crash at any moment, the level therefore begins empty. Between opening and
//! [`LevelFile::begin`] nothing is lost: a start that fails costs no warm level.

use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nigh_engine::{Stored, Volume};
use twox_hash::{XxHash3_64, xxhash3_64};

use crate::lock::lock;
use crate::stamp::Stamp;

/// Beginning of the places, in bytes.
pub const PLACES: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"NIGHLVL\n";
const VERSION: u64 = 1;
/// Bytes of the header, and of its fields: all little-endian words after the magic.
const HEADER: usize = 4096;
const FIELDS: usize = 8;
/// Bytes of a block in the index.
const RECORD: usize = 24;
/// Blocks of one piece of the index at most.
const PIECE: usize = 4096;
/// Bytes of the index that are written before they are made durable, so that waiters see progress.
const SYNC: u64 = 64 << 20;
/// Longer names do not occur.
const NAME: u64 = 1 << 16;

/// Why a file cannot be a level, or its index not be kept.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds something else, which is not overwritten.
    #[error("{path} is not empty and not a level: choose another file, or remove this one", path = .0.display())]
    Foreign(PathBuf),
    /// It is no regular file.
    #[error("{path} is no regular file, as a level is", path = .0.display())]
    NoFile(PathBuf),
    /// It is too small for a block of each part.
    #[error("{path}: a level takes at least {least} bytes", path = path.display())]
    Small {
        /// The file.
        path: PathBuf,
        /// The smallest size.
        least: u64,
    },
    /// It is larger than its file system.
    #[error("{path}: a level of {} MiB cannot be on a file system of {} MiB", .asked >> 20, .there >> 20, path = path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// Its size, in bytes.
        asked: u64,
        /// That of the file system.
        there: u64,
    },
    /// Another process uses it, or used it since it was opened.
    #[error("{path} is used by another process", path = .0.display())]
    Taken(PathBuf),
}

/// A volume whose blocks a level holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its number in the index.
    pub volume: Volume,
    /// The host's name for it.
    pub name: String,
    /// As its [`Geometry`](crate::Geometry) reported after the last write.
    pub stamp: Stamp,
}

/// The file of a level, between its opening and its shutdown. Its places are read and written through a device of the same
/// file, which locks it meanwhile.
#[derive(Debug)]
pub struct LevelFile {
    path: PathBuf,
    generation: u64,
    block_bytes: u64,
    blocks: u64,
    parts: u64,
    /// Whether what it was before is used.
    has_image: bool,
}

/// Contents of a level at its shutdown.
#[derive(Debug)]
pub struct Image {
    /// The volumes whose blocks it held, as they were.
    pub homes: Vec<Home>,
    input: BufReader<File>,
}

/// The words of a header.
struct Header {
    valid: bool,
    generation: u64,
    block_bytes: u64,
    blocks: u64,
    parts: u64,
    index_bytes: u64,
    index_sum: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        let Header { valid, generation, block_bytes, blocks, parts, index_bytes, index_sum } = *self;
        let fields: [u64; FIELDS] =
            [VERSION, valid.into(), generation, block_bytes, blocks, index_bytes, index_sum, parts];
        for (at, field) in fields.iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&field.to_le_bytes());
        }
        let sum = XxHash3_64::oneshot(&bytes[..HEADER - 8]);
        bytes[HEADER - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// None where it is damaged, or of another version.
    fn decode(bytes: &[u8; HEADER]) -> Option<Header> {
        let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let [version, valid, generation, block_bytes, blocks, index_bytes, index_sum, parts]: [u64; FIELDS] =
            std::array::from_fn(|at| word(8 + 8 * at));
        let good =
            bytes[..8] == MAGIC && version == VERSION && word(HEADER - 8) == XxHash3_64::oneshot(&bytes[..HEADER - 8]);
        good.then_some(Header { valid: valid == 1, generation, block_bytes, blocks, parts, index_bytes, index_sum })
    }
}

impl LevelFile {
    /// Opens the file at `path`, or makes one, as a level of about `bytes` bytes in `parts` parts of the same size. The image is
    /// there after an orderly shutdown of a level that was set up alike.
    pub fn open(
        path: &Path,
        bytes: u64,
        block_bytes: u32,
        parts: u32,
    ) -> Result<(LevelFile, Option<Image>), LevelError> {
        let (block_bytes, parts) = (u64::from(block_bytes), u64::from(parts));
        let blocks = bytes.saturating_sub(PLACES) / block_bytes / parts * parts;
        if blocks == 0 {
            return Err(LevelError::Small { path: path.to_owned(), least: PLACES + parts * block_bytes });
        }
        let failed = |source| LevelError::Io { path: path.to_owned(), source };
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(LevelError::NoFile(path.to_owned()));
        }
        check_room(path, PLACES + blocks * block_bytes)?;
        // It has the contents of disks, which are nobody else's.
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
        lock(&file, false).map_err(|_| LevelError::Taken(path.to_owned()))?;
        let length = file.metadata().map_err(failed)?.len();
        let mut level =
            LevelFile { path: path.to_owned(), generation: 0, block_bytes, blocks, parts, has_image: false };
        let mut image = None;
        if length == 0 {
            level.write_header(&file, false, 0, 0).map_err(failed)?;
        } else {
            // A header that was never written whole is damaged; what is something else has no magic.
            let mut bytes = [0; HEADER];
            if file.read_exact_at(&mut bytes, 0).is_err() || bytes[..8] != MAGIC {
                return Err(LevelError::Foreign(path.to_owned()));
            }
            if let Some(header) = Header::decode(&bytes) {
                level.generation = header.generation;
                let fits = (header.block_bytes, header.blocks, header.parts) == (block_bytes, blocks, parts);
                image = if header.valid && fits { Image::read(path, &header).ok() } else { None };
            }
        }
        file.set_len(level.index_at().max(length)).map_err(failed)?;
        level.has_image = image.is_some();
        Ok((level, image))
    }

    /// From now on the index is valid no more, whatever happens. To be called before anything is stored. Frees the space of a larger level that the
    /// file was before.
    pub fn begin(&mut self) -> Result<(), LevelError> {
        let failed = |source| LevelError::Io { path: self.path.clone(), source };
        let file = OpenOptions::new().write(true).open(&self.path).map_err(failed)?;
        self.generation += 1;
        self.write_header(&file, false, 0, 0).and_then(|()| file.sync_all()).map_err(failed)?;
        // The image is read later, from behind the places.
        if self.has_image { Ok(()) } else { file.set_len(self.index_at()).map_err(failed) }
    }

    /// How many blocks each of its parts has places for. The first part begins at [`PLACES`], the others follow.
    pub fn part_blocks(&self) -> u64 {
        self.blocks / self.parts
    }

    fn index_at(&self) -> u64 {
        PLACES + self.blocks * self.block_bytes
    }

    fn write_header(&self, file: &File, valid: bool, index_bytes: u64, index_sum: u64) -> io::Result<()> {
        let LevelFile { generation, block_bytes, blocks, parts, .. } = *self;
        let header = Header { valid, generation, block_bytes, blocks, parts, index_bytes, index_sum };
        file.write_all_at(&header.encode(), 0)
    }

    /// Keeps the index: `homes`, and pieces with the numbers of their parts. To be called after the device of the file is gone.
    pub fn close(self, homes: &[Home], pieces: impl Iterator<Item = (u32, Vec<Stored>)>) -> Result<(), LevelError> {
        let failed = |source| LevelError::Io { path: self.path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        lock(&file, false).map_err(|_| LevelError::Taken(self.path.clone()))?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        if Header::decode(&header).is_none_or(|header| header.valid || header.generation != self.generation) {
            return Err(LevelError::Taken(self.path.clone()));
        }
        let write = || {
            let mut output = &file;
            output.seek(SeekFrom::Start(self.index_at()))?;
            let mut output = Summed { inner: BufWriter::new(output), hash: hasher(), bytes: 0 };
            output.word(homes.len() as u64)?;
            for home in homes {
                output.word(home.volume.0.into())?;
                home.stamp.iter().try_for_each(|&word| output.word(word))?;
                output.word(home.name.len() as u64)?;
                output.write_all(home.name.as_bytes())?;
            }
            let mut synced = 0;
            for (part, stored) in pieces {
                for piece in stored.chunks(PIECE) {
                    output.word(u64::from(part) << 32 | piece.len() as u64)?;
                    piece.iter().try_for_each(|stored| output.write_all(&encode(stored)))?;
                }
                if output.bytes - synced >= SYNC {
                    output.flush()?;
                    file.sync_data()?;
                    synced = output.bytes;
                }
            }
            output.word(0)?;
            output.flush()?;
            file.set_len(self.index_at() + output.bytes)?;
            file.sync_all()?;
            self.write_header(&file, true, output.bytes, output.hash.finish())?;
            file.sync_all()
        };
        write().map_err(failed)
    }
}

/// Whether the file system of `path` has room for a level of `asked` bytes. That it has too little at the moment is only logged, because that may change.
fn check_room(path: &Path, asked: u64) -> Result<(), LevelError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Without the folder, the file cannot be made, and that is the error.
    let Ok(room) = rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(folder)) else { return Ok(()) };
    let [there, free] = [room.f_blocks, room.f_bavail].map(|blocks| blocks.saturating_mul(room.f_frsize));
    if asked > there {
        return Err(LevelError::Large { path: path.to_owned(), asked, there });
    }
    // `blocks` counts units of 512 bytes.
    let has = std::fs::metadata(path).map_or(0, |meta| meta.blocks() * 512);
    let missing = asked.saturating_sub(has);
    if missing > free {
        let (level, missing, free) = (path.display(), missing >> 20, free >> 20);
        tracing::warn!(%level, "the level may need {missing} MiB more, but only {free} MiB are free: then its writes fail");
    }
    Ok(())
}

fn encode(stored: &Stored) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..4].copy_from_slice(&stored.place.to_le_bytes());
    bytes[4..8].copy_from_slice(&stored.volume.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&stored.block.to_le_bytes());
    bytes[16..].copy_from_slice(&stored.sum.to_le_bytes());
    bytes
}

fn hasher() -> xxhash3_64::Hasher {
    xxhash3_64::Hasher::new()
}

/// A writer that also computes the checksum of its output.
struct Summed<W> {
    inner: W,
    hash: xxhash3_64::Hasher,
    bytes: u64,
}

impl<W: Write> Summed<W> {
    fn word(&mut self, word: u64) -> io::Result<()> {
        self.write_all(&word.to_le_bytes())
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.write(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn word(input: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

impl Image {
    /// The image that `header` describes; an error where its checksum is wrong.
    fn read(path: &Path, header: &Header) -> io::Result<Image> {
        let mut file = File::open(path)?;
        let start = PLACES + header.blocks * header.block_bytes;
        file.seek(SeekFrom::Start(start))?;
        let mut hash = hasher();
        let mut left = header.index_bytes;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let part = &mut buffer[..left.min(1 << 16) as usize];
            file.read_exact(part)?;
            hash.write(part);
            left -= part.len() as u64;
        }
        if hash.finish() != header.index_sum {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.seek(SeekFrom::Start(start))?;
        let mut input = BufReader::new(file);
        let count = word(&mut input)?;
        let mut homes = Vec::new();
        for _ in 0..count {
            let volume = Volume(word(&mut input)? as u32);
            let mut stamp = [0; 4];
            for field in &mut stamp {
                *field = word(&mut input)?;
            }
            let length = word(&mut input)?.min(NAME);
            let mut name = vec![0; length as usize];
            input.read_exact(&mut name)?;
            let name = String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?;
            homes.push(Home { volume, name, stamp });
        }
        Ok(Image { homes, input })
    }

    /// The next blocks, and the number of their part of the level; none at the end.
    pub fn next_piece(&mut self) -> io::Result<Option<(u32, Vec<Stored>)>> {
        let head = word(&mut self.input)?;
        let (part, count) = ((head >> 32) as u32, head as u32 as usize);
        if count == 0 || count > PIECE {
            return Ok(None);
        }
        let mut stored = Vec::with_capacity(count);
        for _ in 0..count {
            let [first, block, sum] = [word(&mut self.input)?, word(&mut self.input)?, word(&mut self.input)?];
            stored.push(Stored { place: first as u32, volume: Volume((first >> 32) as u32), block, sum });
        }
        Ok(Some((part, stored)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = PLACES + (64 << 12);

    fn blocks(count: u64) -> Vec<Stored> {
        let stored =
            |at: u64| Stored { place: at as u32, volume: Volume(at as u32 % 3), block: at * 7, sum: at << 40 | 5 };
        (0..count).map(stored).collect()
    }

    type Content = (Vec<Home>, Vec<(u32, Stored)>);

    fn homes() -> Vec<Home> {
        vec![Home { volume: Volume(2), name: "disk".into(), stamp: [1, 2, 3, 4] }]
    }

    fn open(path: &Path) -> (LevelFile, Option<Image>) {
        LevelFile::open(path, BYTES, 4096, 4).unwrap()
    }

    fn kept(path: &Path, count: u64) {
        let (mut level, _) = open(path);
        level.begin().unwrap();
        level.close(&homes(), [(0, blocks(count)), (3, blocks(2))].into_iter()).unwrap();
    }

    fn read(image: Option<Image>) -> Option<Content> {
        let mut image = image?;
        let mut all = Vec::new();
        while let Some((part, piece)) = image.next_piece().unwrap() {
            all.extend(piece.into_iter().map(|stored| (part, stored)));
        }
        Some((image.homes, all))
    }

    #[test]
    fn an_index_that_was_kept_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("level");
        kept(&path, 10_000);
        drop(open(&path));
        let (mut level, image) = open(&path);
        assert_eq!(level.part_blocks(), 16);
        let (found, all) = read(image).unwrap();
        assert_eq!((found, all.len()), (homes(), 10_002));
        assert!(all.iter().zip(blocks(10_000)).all(|(&(part, one), other)| part == 0 && one == other));
        assert_eq!(all[10_001], (3, blocks(2)[1]));
        level.begin().unwrap();
        drop(level);
        assert!(open(&path).1.is_none(), "it was not shut down since");
    }

    #[test]
    fn whatever_is_doubtful_makes_it_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("level");
        const WHOLE: u64 = u64::MAX;
        for (at, size, parts) in [
            (4000, BYTES, 4),
            (16, BYTES, 4),
            (BYTES + 9, BYTES, 4),
            (BYTES + 100, BYTES, 4),
            (WHOLE, BYTES + 16384, 4),
            (WHOLE, BYTES, 2),
        ] {
            kept(&path, 10);
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            if at != WHOLE {
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            }
            assert!(
                LevelFile::open(&path, size, 4096, parts).unwrap().1.is_none(),
                "byte {at} of a level of {size} in {parts}"
            );
        }
    }

    #[test]
    fn warm_4_a_level_that_is_made_smaller_frees_its_space_at_once() {
        const LARGE: u64 = PLACES + (8 << 20);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("level");
        let open = |bytes: u64| LevelFile::open(&path, bytes, 4096, 4).unwrap();
        let (mut level, _) = open(LARGE);
        level.begin().unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&vec![7; 8 << 20], PLACES).unwrap();
        level.close(&homes(), [(0, blocks(10))].into_iter()).unwrap();
        let allocated = || {
            file.sync_all().unwrap();
            file.metadata().unwrap().blocks() * 512
        };
        assert!(allocated() >= 8 << 20);
        drop(open(BYTES));
        assert!(open(LARGE).1.is_some(), "a start that fails costs nothing");
        open(BYTES).0.begin().unwrap();
        assert_eq!(file.metadata().unwrap().len(), BYTES);
        assert!(allocated() <= BYTES, "{} bytes", allocated());
    }

    #[test]
    fn what_is_no_level_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        assert!(matches!(LevelFile::open(&path, BYTES, 4096, 1), Err(LevelError::Foreign(_))));
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 10_000]);
        assert!(matches!(LevelFile::open(folder.path(), BYTES, 4096, 1), Err(LevelError::NoFile(_))));
        let new = folder.path().join("new");
        assert!(matches!(LevelFile::open(&new, PLACES + 4096, 4096, 2), Err(LevelError::Small { .. })));
        assert!(!new.exists());
    }

    #[test]
    fn one_that_another_process_took_over_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("level");
        let (mut level, _) = open(&path);
        level.begin().unwrap();
        open(&path).0.begin().unwrap();
        assert!(matches!(level.close(&[], std::iter::empty()), Err(LevelError::Taken(_))));
    }
}
