//! A checked place for output.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::Error;

/// The most links in a row, as in the kernel.
const LINKS_MOST: usize = 40;

/// Write permission of the group, and of everybody.
const OTHERS_WRITE: u32 = 0o022;

/// In such a folder, users replace their own files only.
const STICKY: u32 = 0o1000;

/// The mode of new files, before the process's umask.
const NEW_FILE_MODE: u32 = 0o666;

/// A place that may be written to.
#[derive(Clone, Debug)]
pub struct Destination {
    /// As the user named it.
    pub(crate) given: PathBuf,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Stdout,
    /// A pipe, a terminal or another character device.
    Stream,
    /// A regular file, or none yet.
    File {
        /// Without links.
        path: PathBuf,
        mode: u32,
        /// Whether it may replace a file.
        replaces: bool,
    },
}

impl Destination {
    /// Checks that the file `path`, `-` for standard output, can be written, and that this destroys nothing: neither an existing
    /// file, unless `force`, nor in any case one of the files `read`, of which `-` is standard input.
    pub fn new(path: &Path, force: bool, read: &[&Path]) -> Result<Destination, Error> {
        let given = path.to_owned();
        let io = |source| Error::Io { path: given.clone(), source };
        if path == Path::new("-") {
            return Ok(Destination { given, kind: Kind::Stdout });
        }
        let target = resolved(path)?;
        let mode = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(Error::IsFolder(given)),
            Ok(found) if found.file_type().is_block_device() => return Err(Error::BlockDevice(given)),
            Ok(found) if !found.is_file() => {
                // To open a pipe would wait for its reader.
                rustix::fs::access(path, Access::WRITE_OK).map_err(|error| io(error.into()))?;
                return Ok(Destination { given, kind: Kind::Stream });
            }
            Ok(found) if read.iter().any(|read| is_at(read, &found)) => return Err(Error::Read(given)),
            Ok(_) if !force => return Err(Error::Exists(given)),
            Ok(found) => found.mode(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => NEW_FILE_MODE,
            Err(error) => return Err(io(error)),
        };
        let folder = folder(&target);
        if !folder.is_dir() {
            return Err(Error::NoFolder { path: given, folder: folder.to_owned() });
        }
        // Two paths to one file are equal.
        let path = match target.file_name() {
            Some(name) => folder.canonicalize().map_err(io)?.join(name),
            None => return Err(Error::IsFolder(given)),
        };
        let destination = Destination { given: given.clone(), kind: Kind::File { path, mode, replaces: force } };
        // That a file can be created there is known only when one was.
        destination.draft()?;
        Ok(destination)
    }

    /// Whether both are the same file, or standard output.
    pub fn is_same(&self, other: &Destination) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::File { path, .. }, Kind::File { path: other, .. }) => path == other,
            (Kind::Stdout, Kind::Stdout) => true,
            _ => false,
        }
    }

    /// The file as the user named it, `-` for standard output.
    pub fn path(&self) -> &Path {
        &self.given
    }
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path without links. Those at its end must be in folders that nobody else can write to, and others may only be this user's or root's, where
/// nobody else can replace them.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut left: Vec<OsString> = parts(path);
    let mut target = PathBuf::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        let next = target.join(part);
        let Some(link) = fs::symlink_metadata(&next).ok().filter(Metadata::is_symlink) else {
            target = next;
            continue;
        };
        let folder = fs::metadata(folder(&next)).map_err(io)?;
        let is_safe = !is_of_others(&folder) || !left.is_empty() && is_own(&link) && folder.mode() & STICKY != 0;
        if !is_safe {
            return Err(Error::Link(path.to_owned()));
        }
        links += 1;
        if links > LINKS_MOST {
            return Err(io(rustix::io::Errno::LOOP.into()));
        }
        left.extend(parts(&fs::read_link(&next).map_err(io)?));
    }
    Ok(target)
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Whether users other than this one and root can write to a folder.
fn is_of_others(folder: &Metadata) -> bool {
    !is_own(folder) || folder.mode() & OTHERS_WRITE != 0
}

fn is_own(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0
}

/// Whether `read` is the file `found`.
fn is_at(read: &Path, found: &Metadata) -> bool {
    let read = if read == Path::new("-") { Path::new("/dev/stdin") } else { read };
    fs::metadata(read).is_ok_and(|read| (read.dev(), read.ino()) == (found.dev(), found.ino()))
}
