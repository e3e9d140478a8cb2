//! The numbers of files in a recording.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::Writer;

/// The most files of a recording.
const REMEMBERED_MOST: u64 = 1 << 20;

/// The most paths of one inode, of which the first ones are forgotten.
const NAMES_MOST: usize = 64;

/// A device and an inode.
pub(crate) type Inode = (u64, u64);

/// Which file of a recording an inode and a path are.
pub(crate) struct Files {
    /// Hashes paths, if the recording has none.
    private: Option<RandomState>,
    /// The paths that an inode had, each with the number of the file; its present path is the last one.
    known: HashMap<Inode, Vec<(String, u32)>>,
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

    /// The number of the file that has this inode at this path; `None` if there are too many.
    pub(crate) fn number(&mut self, inode: Inode, path: String, writer: &mut Writer) -> Option<u32> {
        let names = self.known.get(&inode).map_or(&[][..], |names| names);
        if let Some(&(_, number)) = names.iter().find(|(known, _)| *known == path) {
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
        self.add(inode, path, number);
        Some(number)
    }

    /// The file with this inode has another path.
    pub(crate) fn renamed(&mut self, inode: Inode, path: String) {
        let names = self.known.get(&inode).map_or(&[][..], |names| names);
        if let Some(&(_, number)) = names.last()
            && names.iter().all(|(known, _)| *known != path)
        {
            self.add(inode, path, number);
        }
    }

    fn add(&mut self, inode: Inode, path: String, number: u32) {
        let names = self.known.entry(inode).or_default();
        if names.len() == NAMES_MOST {
            names.remove(0);
        }
        names.push((path, number));
    }

    /// The file with this inode was deleted; another file may get its inode.
    pub(crate) fn removed(&mut self, inode: Inode) {
        self.known.remove(&inode);
    }
}
