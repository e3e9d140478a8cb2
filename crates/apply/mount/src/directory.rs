//! Open folders. Their entries are read when a program begins to list them, and again when it starts over.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, OnceLock};

use nigh_host::front::lock;
use rustix::fs::{Dir, FileType, OFlags};

use crate::attributes::Id;
use crate::source;

/// An open folder.
pub(crate) struct Directory {
    /// Stands for it.
    path: Arc<OwnedFd>,
    opened: OnceLock<OwnedFd>,
    device: u64,
    entries: Mutex<Option<Arc<Vec<Entry>>>>,
}

/// An entry of a folder.
pub(crate) struct Entry {
    pub(crate) id: Id,
    pub(crate) kind: FileType,
    pub(crate) name: OsString,
}

impl Entry {
    /// Whether it stands for the folder itself or the one above.
    pub(crate) fn is_dots(&self) -> bool {
        self.name == "." || self.name == ".."
    }
}

impl Directory {
    /// The folder that `path` stands for, on this device. The source is asked when it is used.
    pub(crate) fn new(path: &Arc<OwnedFd>, device: u64) -> Directory {
        Directory { path: path.clone(), opened: OnceLock::new(), device, entries: Mutex::default() }
    }

    /// Its descriptor.
    pub(crate) fn opened(&self) -> io::Result<&OwnedFd> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = source::reopen(&self.path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Its entries; as they are now if `starts`.
    pub(crate) fn entries(&self, starts: bool) -> io::Result<Arc<Vec<Entry>>> {
        let mut entries = lock(&self.entries);
        match &*entries {
            Some(entries) if !starts => Ok(entries.clone()),
            _ => Ok(entries.insert(Arc::new(self.read()?)).clone()),
        }
    }

    fn read(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(self.opened()?)? {
            let entry = entry?;
            entries.push(Entry {
                id: Id { device: self.device, inode: entry.ino() },
                kind: entry.file_type(),
                name: std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
            });
        }
        Ok(entries)
    }
}
