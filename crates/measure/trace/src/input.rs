//! The bytes of a trace: a file or standard input, decompressed according to its first bytes, and as UTF-8 if it is UTF-16.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use crate::utf16::Utf8;
use crate::{Error, Result};

/// The size of one read, which fits in the second-level cache.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest line or header of any format.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// The size of a decompressor's reads.
const COMPRESSED_BYTES: usize = 64 << 10;
/// The most memory of an xz decoder: four times what the highest preset of `xz` needs. The file asks for it, whatever its length.
const XZ_BYTES_MAX: u64 = 256 << 20;

/// The first byte of each member of a gzip file.
const GZIP_FIRST: u8 = 0x1f;

/// A window on the decompressed bytes: `data` returns the bytes in memory, `fill` adds more, `consume` drops some.
pub(crate) struct Input {
    source: Box<dyn Read + Send>,
    compression: Option<&'static str>,
    path: PathBuf,
    buffer: Vec<u8>,
    /// `buffer[start..end]` is read but not consumed.
    start: usize,
    end: usize,
    /// The offset of `start` in the decompressed content.
    offset: u64,
    consumed: Arc<AtomicU64>,
    size: Option<u64>,
}

impl Input {
    /// `size` is the length of `source` in bytes, if it is known; `path` is used only in errors.
    pub(crate) fn new(mut source: impl Read + Send + 'static, path: &Path, size: Option<u64>) -> Result<Input> {
        let mut magic = Vec::with_capacity(6);
        let io = |source| Error::Io { path: path.to_owned(), source };
        source.by_ref().take(6).read_to_end(&mut magic).map_err(io)?;
        let consumed = Arc::new(AtomicU64::new(0));
        let compression = compression(&magic);
        if let Some(program) = foreign_compression(&magic) {
            return Err(Error::ForeignCompression { path: path.to_owned(), program });
        }
        let whole = Counted { source: Cursor::new(magic).chain(source), consumed: consumed.clone() };
        let source: Box<dyn Read + Send> = match compression {
            None => Box::new(whole),
            Some("gzip") => Box::new(Members { decoder: Some(GzDecoder::new(buffered(whole))) }),
            Some("zstd") => Box::new(zstd::Decoder::with_buffer(buffered(whole)).map_err(io)?),
            Some(_) => {
                let decoder = Stream::new_stream_decoder(XZ_BYTES_MAX, CONCATENATED);
                let decoder = decoder.map_err(|error| io(error.into()))?;
                Box::new(XzDecoder::new_stream(buffered(whole), decoder))
            }
        };
        Ok(Input {
            source: Box::new(Utf8::new(source)),
            compression,
            path: path.to_owned(),
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            consumed,
            size: size.filter(|&bytes| bytes > 0),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `path` is an uncompressed file.
    pub(crate) fn is_plain_file(&self) -> bool {
        self.size.is_some() && self.compression.is_none()
    }

    /// The offset of the first byte of `data` in the decompressed content.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Share of the (compressed) bytes taken from the source.
    pub(crate) fn progress(&self) -> Option<f64> {
        let size = self.size?;
        Some((self.consumed.load(Ordering::Relaxed) as f64 / size as f64).min(1.0))
    }

    /// The bytes in memory.
    pub(crate) fn data(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Drops the first `bytes` bytes of `data`.
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Appends to `data`; returns `false` at the end of the content, or at the limit of a line or header.
    pub(crate) fn fill(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.is_full() {
                return Ok(false);
            }
            self.buffer.resize(2 * self.end, 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.source.read(room) {
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Whether `data` has reached the largest size allowed in memory.
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start >= BUFFER_BYTES_MAX
    }

    /// Fills until `data` has `bytes` bytes; returns `false` if the content ends before.
    pub(crate) fn fill_to(&mut self, bytes: usize) -> Result<bool> {
        while self.data().len() < bytes {
            if !self.fill()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies the rest of the content to an unnamed file.
    pub(crate) fn spool(&mut self) -> Result<File> {
        use std::io::Write;

        let failed = |source| Error::Io { path: std::env::temp_dir(), source };
        let mut file = tempfile::tempfile().map_err(failed)?;
        loop {
            file.write_all(self.data()).map_err(failed)?;
            self.consume(self.data().len());
            if !self.fill()? {
                return Ok(file);
            }
        }
    }

    fn error(&self, source: io::Error) -> Error {
        let path = self.path.clone();
        let cause = source.get_ref().and_then(|cause| cause.downcast_ref());
        match self.compression {
            Some("xz") if cause == Some(&liblzma::stream::Error::MemLimit) => {
                let problem = format!("its decompression takes more than {} MiB of memory", XZ_BYTES_MAX >> 20);
                Error::Io { path, source: io::Error::other(problem) }
            }
            // A decompressor's own errors have no number of the operating system.
            Some(compression) if source.raw_os_error().is_none() => {
                let truncated = source.kind() == io::ErrorKind::UnexpectedEof;
                Error::Compressed { path, compression, truncated, source }
            }
            _ => Error::Io { path, source },
        }
    }
}

fn compression(magic: &[u8]) -> Option<&'static str> {
    match magic {
        [GZIP_FIRST, 0x8b, ..] => Some("gzip"),
        // A frame of data, or one that decoders skip.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some("zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        _ => None,
    }
}

/// The command that decompresses other files with these first bytes.
fn foreign_compression(magic: &[u8]) -> Option<&'static str> {
    match magic {
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Some("bzip2 -dc"),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some("lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => Some("unzip -p"),
        [b'7', b'z', 0xbc, 0xaf, ..] => Some("7z x -so"),
        _ => None,
    }
}

fn buffered<R: Read>(source: R) -> BufReader<R> {
    BufReader::with_capacity(COMPRESSED_BYTES, source)
}

/// The members of a gzip file, one after the other.
struct Members<R> {
    /// Of the member that is being read; `None` after the last.
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let bytes = decoder.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            match decoder.get_mut().fill_buf()? {
                [] => self.decoder = None,
                [GZIP_FIRST, ..] => self.decoder = self.decoder.take().map(|ended| GzDecoder::new(ended.into_inner())),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "there is other data after its end")),
            }
        }
        Ok(0)
    }
}

/// Counts the bytes read.
struct Counted<R> {
    source: Chain<Cursor<Vec<u8>>, R>,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(buffer)?;
        self.consumed.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}
