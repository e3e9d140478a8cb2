//! The numbers of files in a recording.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use crate::Writer;

/// The most files of a recording.
const REMEMBERED_MOST: u64 = 1 << 20;

/// The most paths of one inode, of which the first ones are forgotten.
const NAMES_MOST: usize = 64;

/// A device and an inode.
pub(crate) type Inode = (u64, u64);

/// A file when it was looked at.
pub(crate) struct Found {
    pub(crate) inode: Inode,
    pub(crate) path: String,
    /// When it was created, in nanoseconds; 0 if that is not known.
    pub(crate) born_ns: u64,
    /// How many names it had.
    pub(crate) names: u64,
}

impl Found {
    pub(crate) fn new(found: &Metadata, path: String) -> Found {
        let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.map_or(0, |born| born.as_nanos() as u64);
        Found { inode: (found.dev(), found.ino()), path, born_ns, names: found.nlink() }
    }
}

/// A name of a file.
struct Name {
    path: String,
    born_ns: u64,
    number: u32,
}

/// Which file of a recording an inode and a path are.
pub(crate) struct Files {
    /// Hashes paths, if the recording has none.
    private: Option<RandomState>,
    /// The names that an inode had; its present one is the last.
    known: HashMap<Inode, Vec<Name>>,
    count: u64,
}

impl Files {
    /// None yet. Paths are hashed if they are `private`, with a key that is not kept: another recording has other hashes.
    pub(crate) fn new(private: bool) -> Files {
        Files { private: private.then(RandomState::new), known: HashMap::new(), count: 0 }
    }

    /// Whether paths are hashed.
    pub(crate) fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// How many files there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of a file; `None` if there are too many.
    pub(crate) fn number(&mut self, found: Found, writer: &mut Writer) -> Option<u32> {
        let Found { inode, path, born_ns, names } = found;
        let known = self.known.get(&inode).map_or(&[][..], |known| known);
        if let Some(same) = known.iter().find(|known| known.path == path) {
            return Some(same.number);
        }
        // Under another name, it is the same file if it was created at the same time, or if it has several names.
        let is_same = |known: &&Name| match (known.born_ns, born_ns) {
            (0, _) | (_, 0) => names > 1,
            (known, born) => known == born,
        };
        if let Some(number) = known.iter().rev().find(is_same).map(|known| known.number) {
            self.add(inode, Name { path, born_ns, number });
            return Some(number);
        }
        if self.count >= REMEMBERED_MOST {
            return None;
        }
        self.count += 1;
        let number = writer.file(match &self.private {
            Some(key) => format!("{:016x}", key.hash_one(&path)),
            None => path.clone(),
        });
        self.add(inode, Name { path, born_ns, number });
        Some(number)
    }

    /// The file with this inode has another path.
    pub(crate) fn renamed(&mut self, inode: Inode, path: String) {
        let names = self.known.get(&inode).map_or(&[][..], |names| names);
        if let Some(&Name { born_ns, number, .. }) = names.last()
            && names.iter().all(|known| known.path != path)
        {
            self.add(inode, Name { path, born_ns, number });
        }
    }

    fn add(&mut self, inode: Inode, name: Name) {
        let names = self.known.entry(inode).or_default();
        if names.len() == NAMES_MOST {
            names.remove(0);
        }
        names.push(name);
    }

    /// The file with this inode was deleted; another file may get its inode.
    pub(crate) fn removed(&mut self, inode: Inode) {
        self.known.remove(&inode);
    }
}
