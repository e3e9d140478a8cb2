//! The numbers of files in a recording.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::Writer;

/// The most files that are remembered.
const REMEMBERED_MOST: usize = 1 << 20;

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
        let room = self.count < REMEMBERED_MOST as u64;
        let names = self.known.entry(inode).or_default();
        let known = names.iter().find(|(known, _)| *known == path).map(|&(_, number)| number);
        known.or_else(|| {
            room.then(|| {
                let number = writer.file(match &self.private {
                    Some(key) => format!("{:016x}", key.hash_one(&path)),
                    None => path.clone(),
                });
                names.push((path, number));
                self.count += 1;
                number
            })
        })
    }

    /// The file with this inode has another path.
    pub(crate) fn renamed(&mut self, inode: Inode, path: String) {
        if let Some(names) = self.known.get_mut(&inode)
            && let Some(&(_, number)) = names.last()
            && names.iter().all(|(known, _)| *known != path)
        {
            names.push((path, number));
        }
    }

    /// The file with this inode is no more: another one may get it.
    pub(crate) fn removed(&mut self, inode: Inode) {
        self.known.remove(&inode);
    }
}
