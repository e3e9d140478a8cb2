//! A small file beside a disk's file: it names the write log without which the disk is stale.
//!
//! It is there while the disk has a log, and is removed at an orderly end with an empty one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nigh_writelog::Id;

use crate::error::{OpenError, OpenErrorKind};

const SUFFIX: &str = ".nigh-write-log";
const TITLE: &str = "nigh write log 1";
/// The longest marker that is read, in bytes.
const LENGTH_MAX: u64 = 8192;

/// The marker of a disk with a log.
pub(crate) struct Marker(PathBuf);

/// The path of the marker of a regular file, by whatever name it is opened; `None` for others, which have no place for one.
pub(crate) fn path_for(target: &Path) -> Option<PathBuf> {
    let real = target.canonicalize().ok().filter(|path| path.is_file())?;
    let mut name = real.into_os_string();
    name.push(SUFFIX);
    Some(name.into())
}

/// The identity and the name of the log that a marker names; `None` if there is no marker.
pub(crate) fn read(path: &Path) -> io::Result<Option<(Id, String)>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let text = io::read_to_string(io::Read::take(file, LENGTH_MAX))?;
    let mut lines = text.lines();
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let found = (|| {
        (field("nigh")? == TITLE.strip_prefix("nigh ")?).then_some(())?;
        let id = u128::from_str_radix(field("id")?, 16).ok()?;
        Some((id.to_be_bytes(), field("log")?.to_owned()))
    })();
    found.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not name a write log"))
}

/// The error of serving the file at `target` without its log, if it has one.
pub(crate) fn refuse(target: &Path) -> Result<(), OpenError> {
    let Some(marker) = path_for(target) else { return Ok(()) };
    let text = match read(&marker) {
        Ok(None) => return Ok(()),
        Ok(Some((_, log))) => format!(
            "its newest writes may be in the write log {log}: serve it with write-log={log} (`nigh ctl export drain` writes them to it). \
             To do without them for good, delete {}",
            marker.display()
        ),
        Err(error) => format!("{}: {error}", marker.display()),
    };
    let source = io::Error::other(text);
    Err(OpenError { kind: OpenErrorKind::Unsuitable, action: "serve", path: target.to_owned(), source })
}

impl Marker {
    /// Makes it, on stable storage.
    pub(crate) fn make(path: PathBuf, id: Id, log: &str) -> io::Result<Marker> {
        let text = format!("{TITLE}\nid {:032x}\nlog {log}\n", u128::from_be_bytes(id));
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, &path)?;
        sync_folder(&path)?;
        Ok(Marker(path))
    }

    /// The log is empty, and goes.
    pub(crate) fn remove(self) {
        let removed = std::fs::remove_file(&self.0).and_then(|()| sync_folder(&self.0));
        if let Err(error) = removed {
            tracing::warn!(path = %self.0.display(), %error, "the file that names an empty write log cannot be removed");
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")))?.sync_all()
}
