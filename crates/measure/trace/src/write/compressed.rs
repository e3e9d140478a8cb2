//! The output of a trace, through a compressor if its name requests one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use nigh_output::Draft;

const BUFFER_BYTES: usize = 1 << 17;
const ZSTD_LEVEL: i32 = 3;
const XZ_LEVEL: u32 = 6;

/// A file or stream that is being written, through a compressor if its name requests one.
pub(super) struct Compressed {
    encoder: Encoder,
    /// The folder for intermediate results.
    folder: Option<PathBuf>,
}

enum Encoder {
    Plain(BufWriter<Draft>),
    Zstd(zstd::Encoder<'static, BufWriter<Draft>>),
    Gzip(GzEncoder<BufWriter<Draft>>),
    Xz(XzEncoder<BufWriter<Draft>>),
}

/// The compression of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compression {
    Zstd,
    Gzip,
    Xz,
}

impl Compression {
    /// The compression that the name of `path` requests.
    pub(super) fn named(path: &Path) -> Option<Compression> {
        match path.extension()?.to_str()? {
            "zst" => Some(Compression::Zstd),
            "gz" => Some(Compression::Gzip),
            "xz" => Some(Compression::Xz),
            _ => None,
        }
    }
}

impl Compressed {
    /// The output `draft`, whose file is to be called `path`.
    pub(super) fn new(draft: Draft, path: &Path) -> io::Result<Compressed> {
        let folder = draft.folder().map(Path::to_owned);
        let plain = BufWriter::with_capacity(BUFFER_BYTES, draft);
        let encoder = match Compression::named(path) {
            None => Encoder::Plain(plain),
            Some(Compression::Zstd) => Encoder::Zstd(zstd::Encoder::new(plain, ZSTD_LEVEL)?),
            Some(Compression::Gzip) => Encoder::Gzip(GzEncoder::new(plain, flate2::Compression::default())),
            Some(Compression::Xz) => Encoder::Xz(XzEncoder::new(plain, XZ_LEVEL)),
        };
        Ok(Compressed { encoder, folder })
    }

    /// An unnamed file beside the output, or in the system's folder for temporary files.
    pub(super) fn scratch(&self) -> io::Result<File> {
        self.folder.as_ref().map_or_else(tempfile::tempfile, tempfile::tempfile_in)
    }

    /// Completes the compression.
    pub(super) fn finish(self) -> io::Result<Draft> {
        let buffer = match self.encoder {
            Encoder::Plain(buffer) => buffer,
            Encoder::Zstd(encoder) => encoder.finish()?,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Xz(encoder) => encoder.finish()?,
        };
        buffer.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.encoder {
            Encoder::Plain(writer) => writer,
            Encoder::Zstd(writer) => writer,
            Encoder::Gzip(writer) => writer,
            Encoder::Xz(writer) => writer,
        }
    }
}

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}
