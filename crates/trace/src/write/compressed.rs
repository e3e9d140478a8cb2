//! The output of a trace: a file that appears only when it is complete, or a stream.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Stdout, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use tempfile::NamedTempFile;

const BUFFER_BYTES: usize = 1 << 17;
const ZSTD_LEVEL: i32 = 3;
const XZ_LEVEL: u32 = 6;

/// The mode of new files, before the process's umask.
const NEW_FILE_MODE: u32 = 0o666;

/// A file or stream that is being written, through a compressor if its name requests one.
pub(super) struct Output {
    encoder: Encoder,
    /// The folder for intermediate results.
    folder: Option<PathBuf>,
}

enum Encoder {
    Plain(BufWriter<Target>),
    Zstd(zstd::Encoder<'static, BufWriter<Target>>),
    Gzip(GzEncoder<BufWriter<Target>>),
    Xz(XzEncoder<BufWriter<Target>>),
}

enum Target {
    /// A regular file, under a temporary name until it is complete.
    Whole {
        temporary: NamedTempFile,
        path: PathBuf,
    },
    /// A device or pipe.
    Stream(File),
    Stdout(Stdout),
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

impl Output {
    /// Opens the output `path`, `-` for standard output.
    pub(super) fn create(path: &Path) -> io::Result<Output> {
        let (target, folder) = Target::create(path)?;
        let plain = BufWriter::with_capacity(BUFFER_BYTES, target);
        let encoder = match Compression::named(path) {
            None => Encoder::Plain(plain),
            Some(Compression::Zstd) => Encoder::Zstd(zstd::Encoder::new(plain, ZSTD_LEVEL)?),
            Some(Compression::Gzip) => Encoder::Gzip(GzEncoder::new(plain, flate2::Compression::default())),
            Some(Compression::Xz) => Encoder::Xz(XzEncoder::new(plain, XZ_LEVEL)),
        };
        Ok(Output { encoder, folder })
    }

    /// An unnamed file beside the output, or in the system's folder for temporary files.
    pub(super) fn scratch(&self) -> io::Result<File> {
        self.folder.as_ref().map_or_else(tempfile::tempfile, tempfile::tempfile_in)
    }

    /// Completes the file, makes it durable and renames it to its final name.
    pub(super) fn commit(self) -> io::Result<()> {
        let buffer = match self.encoder {
            Encoder::Plain(buffer) => buffer,
            Encoder::Zstd(encoder) => encoder.finish()?,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Xz(encoder) => encoder.finish()?,
        };
        match buffer.into_inner().map_err(io::IntoInnerError::into_error)? {
            Target::Whole { temporary, path } => {
                temporary.as_file().sync_all()?;
                temporary.persist(&path).map_err(|failed| failed.error)?;
                File::open(folder(&path))?.sync_all()
            }
            Target::Stream(mut file) => file.flush(),
            Target::Stdout(mut stdout) => stdout.flush(),
        }
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

impl Write for Output {
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

impl Target {
    fn create(path: &Path) -> io::Result<(Target, Option<PathBuf>)> {
        if path == Path::new("-") {
            return Ok((Target::Stdout(io::stdout()), None));
        }
        let (path, permissions) = match fs::metadata(path) {
            Ok(existing) if !existing.is_file() => {
                return Ok((Target::Stream(File::options().write(true).open(path)?), None));
            }
            // The target of a link is replaced, not the link.
            Ok(existing) => (fs::canonicalize(path)?, existing.permissions()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (path.to_owned(), Permissions::from_mode(NEW_FILE_MODE))
            }
            Err(error) => return Err(error),
        };
        let folder = folder(&path).to_owned();
        // Opened and written as a plain file, whose errors do not show the temporary name.
        let open = |path: &Path| File::options().write(true).create_new(true).mode(permissions.mode()).open(path);
        let temporary = tempfile::Builder::new().prefix(".nigh-").make_in(&folder, open)?;
        Ok((Target::Whole { temporary, path }, Some(folder)))
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Whole { temporary, .. } => temporary.as_file_mut().write(bytes),
            Target::Stream(file) => file.write(bytes),
            Target::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Whole { temporary, .. } => temporary.as_file_mut().flush(),
            Target::Stream(file) => file.flush(),
            Target::Stdout(stdout) => stdout.flush(),
        }
    }
}
