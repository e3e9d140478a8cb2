//! A file that is being written.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Stdout, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags};
use tempfile::{NamedTempFile, TempPath};

use crate::destination::{Kind, folder};
use crate::{Destination, Error};

/// The most files that killed writers of one file left beside it.
const LEFT_MOST: u32 = 10_000;

/// The open files of this process, by which they can be named.
const DESCRIPTORS: &str = "/proc/self/fd";

/// A file that is being written. [`Draft::commit`] gives it its name.
#[derive(Debug)]
pub struct Draft {
    given: PathBuf,
    output: Output,
    set_aside: Option<PathBuf>,
}

#[derive(Debug)]
enum Output {
    Stdout(Stdout),
    Stream(File),
    /// Gone if it is dropped.
    Whole {
        hidden: Hidden,
        path: PathBuf,
        replaces: bool,
    },
    /// Kept if it is dropped.
    Part {
        file: File,
        part: PathBuf,
        path: PathBuf,
        replaces: bool,
    },
}

/// A file that is not complete.
#[derive(Debug)]
enum Hidden {
    /// It has no name, so that nothing is left if this process is killed.
    Unnamed(File),
    /// For file systems without files that have no name.
    Named(NamedTempFile),
}

impl Hidden {
    fn new(path: &Path, mode: u32) -> io::Result<Hidden> {
        let folder = folder(path);
        if Path::new(DESCRIPTORS).exists() {
            let flags = OFlags::TMPFILE.bits().cast_signed();
            if let Ok(file) = File::options().read(true).write(true).custom_flags(flags).mode(mode).open(folder) {
                return Ok(Hidden::Unnamed(file));
            }
        }
        // Opened as a plain file, whose errors do not show the hidden name.
        hidden_name().make_in(folder, |path| create(path, mode)).map(Hidden::Named)
    }

    fn file(&self) -> &File {
        match self {
            Hidden::Unnamed(file) => file,
            Hidden::Named(file) => file.as_file(),
        }
    }

    /// Gives it its name.
    fn name(self, path: &Path, replaces: bool) -> io::Result<()> {
        match (self, replaces) {
            (Hidden::Unnamed(file), false) => link(&file, path),
            (Hidden::Unnamed(file), true) => {
                let linked = hidden_name().make_in(folder(path), |path| link(&file, path))?;
                linked.persist(path).map(|_| ()).map_err(|error| error.error)
            }
            (Hidden::Named(file), false) => file.persist_noclobber(path).map(|_| ()).map_err(|error| error.error),
            (Hidden::Named(file), true) => file.persist(path).map(|_| ()).map_err(|error| error.error),
        }
    }
}

fn hidden_name() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".nigh-");
    builder
}

/// Names a file without a name; fails if there is a file of this name.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

impl Destination {
    /// Begins a file that is written at once: it is hidden until it is complete.
    pub fn draft(&self) -> Result<Draft, Error> {
        let output = match &self.kind {
            Kind::Stdout => Output::Stdout(io::stdout()),
            Kind::Stream => self.stream()?,
            Kind::File { path, mode, replaces } => {
                let (path, mode, replaces) = (path.clone(), *mode, *replaces);
                let hidden = Hidden::new(&path, mode).map_err(|error| of(&self.given, error))?;
                Output::Whole { hidden, path, replaces }
            }
        };
        Ok(Draft { given: self.given.clone(), output, set_aside: None })
    }

    /// Begins a file that takes long: it is `FILE.part` until it is complete, and remains that if this process is killed. A
    /// file that is there already is set aside, or removed if it `is_useless`.
    pub fn grow(&self, is_useless: impl Fn(&File) -> bool) -> Result<Draft, Error> {
        let (output, set_aside) = match &self.kind {
            Kind::Stdout => (Output::Stdout(io::stdout()), None),
            Kind::Stream => (self.stream()?, None),
            Kind::File { path, mode, replaces } => {
                let part = with(path, ".part");
                let set_aside = clear(&part, is_useless)?;
                let file = create(&part, *mode).map_err(|error| of(&part, error))?;
                lock(&file, &part)?;
                (Output::Part { file, part, path: path.clone(), replaces: *replaces }, set_aside)
            }
        };
        Ok(Draft { given: self.given.clone(), output, set_aside })
    }

    fn stream(&self) -> Result<Output, Error> {
        let stream = File::options().write(true).open(&self.given);
        Ok(Output::Stream(stream.map_err(|error| of(&self.given, error))?))
    }
}

impl Draft {
    /// The file that was found at `FILE.part`, under its new name.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// The file; `None` if it is a pipe or device.
    pub fn file(&self) -> Option<&File> {
        match &self.output {
            Output::Whole { hidden, .. } => Some(hidden.file()),
            Output::Part { file, .. } => Some(file),
            Output::Stream(_) | Output::Stdout(_) => None,
        }
    }

    /// The folder of the file; `None` if it is a pipe or device.
    pub fn folder(&self) -> Option<&Path> {
        match &self.output {
            Output::Whole { path, .. } | Output::Part { path, .. } => Some(folder(path)),
            Output::Stream(_) | Output::Stdout(_) => None,
        }
    }

    /// Makes the file durable and gives it its name. If that is not possible, a file that grew keeps its other name.
    pub fn commit(self) -> Result<(), Error> {
        let Draft { given, output, .. } = self;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists(given.clone()),
            _ => of(&given, error),
        };
        match output {
            Output::Stdout(mut stdout) => stdout.flush().map_err(failed),
            Output::Stream(mut file) => file.flush().map_err(failed),
            Output::Whole { hidden, path, replaces } => {
                hidden.file().sync_all().map_err(failed)?;
                hidden.name(&path, replaces).map_err(failed)?;
                sync_folder(&path).map_err(failed)
            }
            Output::Part { file, part, path, replaces } => {
                file.sync_all().map_err(failed)?;
                let renamed = if replaces { fs::rename(&part, &path) } else { rename_to_new(&part, &path) };
                renamed.map_err(failed)?;
                sync_folder(&path).map_err(failed)
            }
        }
    }

    /// Removes the file.
    pub fn discard(self) -> Result<(), Error> {
        match &self.output {
            Output::Part { part, .. } => fs::remove_file(part).map_err(|error| of(part, error)),
            // Dropped, a whole file is gone.
            Output::Whole { .. } | Output::Stream(_) | Output::Stdout(_) => Ok(()),
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Output::Whole { hidden, .. } => hidden.file().write(bytes),
            Output::Part { file, .. } | Output::Stream(file) => file.write(bytes),
            Output::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Whole { hidden, .. } => hidden.file().flush(),
            Output::Part { file, .. } | Output::Stream(file) => file.flush(),
            Output::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Whether a process writes the file at `path`, which has the form `FILE.part`.
pub fn is_growing(path: &Path) -> bool {
    open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn of(path: &Path, source: io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Opens what is at `path`, if it is a regular file.
fn open(path: &Path) -> io::Result<File> {
    // A pipe does not block, and a link is not followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

/// The lock remains until the process ends, however it ends.
fn lock(file: &File, part: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::Busy(part.to_owned())),
        Err(TryLockError::Error(error)) => Err(of(part, error)),
        Ok(()) => Ok(()),
    }
}

/// Makes room at `part`. Returns the new name of what was there, if it was of use.
fn clear(part: &Path, is_useless: impl Fn(&File) -> bool) -> Result<Option<PathBuf>, Error> {
    let failed = |error| of(part, error);
    let found = match open(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(failed)?,
    };
    lock(&found, part)?;
    if found.metadata().map_err(failed)?.len() == 0 || is_useless(&found) {
        fs::remove_file(part).map_err(failed)?;
        return Ok(None);
    }
    for number in 1..=LEFT_MOST {
        let free = with(part, &format!(".{number}"));
        match rename_to_new(part, &free) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed.map(|()| Some(free)).map_err(failed),
        }
    }
    Err(failed(io::ErrorKind::AlreadyExists.into()))
}

/// Renames a file unless there is one of the new name.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let from = TempPath::try_from_path(from)?;
    match from.persist_noclobber(to) {
        Ok(()) => Ok(()),
        Err(failed) => {
            // It would be removed.
            let _ = failed.path.keep();
            Err(failed.error)
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    // A folder that cannot be read can be written to.
    File::open(folder(path)).map_or(Ok(()), |folder| folder.sync_all())
}
