//! Files that the kernel knows, by their numbers. A number is that of the file in the source, so programs see the source's.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nigh_host::front::lock;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::attributes::Id;
use crate::source;

/// The number of the mounted folder.
pub(crate) const ROOT: u64 = 1;
/// Numbers from here on stand for files on other file systems below the source, and for those whose own number means something else.
const FOREIGN: u64 = 1 << 63;

/// As many numbers of files that the kernel has forgotten may be in the list of those that it knows, beyond twice their number.
const STALE_MOST: usize = 1 << 12;

/// A file that the kernel knows.
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) id: Id,
    pub(crate) kind: FileType,
    /// Stands for the file, whatever its name is. As long as it is open, the source gives its number to no other file.
    pub(crate) path: Arc<OwnedFd>,
    /// As it was found last.
    name: Mutex<Name>,
    /// A name of it was removed.
    unlinked: AtomicBool,
}

/// The name of a file.
#[derive(Clone, Default)]
pub(crate) struct Name {
    /// The number of its folder.
    pub(crate) folder: u64,
    pub(crate) last: OsString,
    /// From the source on; only where names matter.
    path: PathBuf,
}

impl Inode {
    /// Its present attributes.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        source::stat(&self.path)
    }

    pub(crate) fn name(&self) -> Name {
        lock(&self.name).clone()
    }

    /// Its name from the source on, where names matter.
    pub(crate) fn path_below_source(&self) -> PathBuf {
        lock(&self.name).path.clone()
    }

    pub(crate) fn note_unlinked(&self) {
        self.unlinked.store(true, Ordering::Relaxed);
    }

    /// Whether the file is gone: it has no name any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.unlinked.load(Ordering::Relaxed) && self.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }
}

/// The files that the kernel knows.
pub(crate) struct Inodes {
    root: Id,
    /// Whether names matter.
    named: bool,
    /// The number of files that the kernel may know.
    most: usize,
    state: Mutex<State>,
}

struct State {
    /// With the number of look-ups that the kernel has not forgotten.
    known: HashMap<u64, (Arc<Inode>, u64)>,
    /// Their numbers, in the order in which they became known; also some that are not known any more.
    order: VecDeque<u64>,
    foreign: HashMap<Id, u64>,
}

impl Inodes {
    /// The files below the open folder `root`; not many more than `most` at a time.
    pub(crate) fn new(root: OwnedFd, named: bool, most: usize) -> io::Result<Inodes> {
        let stat = source::stat(&root)?;
        let id = Id::of(&stat);
        let inode = Inode {
            number: ROOT,
            id,
            kind: FileType::Directory,
            path: Arc::new(root),
            name: Mutex::default(),
            unlinked: AtomicBool::new(false),
        };
        let known = HashMap::from([(ROOT, (Arc::new(inode), 1))]);
        let state = State { known, order: VecDeque::new(), foreign: HashMap::new() };
        Ok(Inodes { root: id, named, most, state: Mutex::new(state) })
    }

    /// The file with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        lock(&self.state).known.get(&number).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)
    }

    /// The file `id`, if the kernel knows it.
    pub(crate) fn known(&self, id: Id) -> Option<Arc<Inode>> {
        let state = lock(&self.state);
        let number = self.own_number(id).or_else(|| state.foreign.get(&id).copied())?;
        state.known.get(&number).map(|(inode, _)| inode.clone())
    }

    /// The number of a file that has the source's.
    fn own_number(&self, id: Id) -> Option<u64> {
        if id == self.root {
            return Some(ROOT);
        }
        let is_own = id.device == self.root.device && (ROOT + 1..FOREIGN).contains(&id.inode);
        is_own.then_some(id.inode)
    }

    /// The number of the file `id`, which the kernel may not know.
    pub(crate) fn number(&self, id: Id) -> u64 {
        self.own_number(id).unwrap_or_else(|| foreign_number(&mut lock(&self.state), id))
    }

    /// The file `name` in `folder` was found: `path` stands for it. Counts a look-up.
    pub(crate) fn add(&self, folder: &Inode, name: &OsStr, path: OwnedFd, stat: &Stat) -> Arc<Inode> {
        let id = Id::of(stat);
        let path_below = if self.named { folder.path_below_source().join(name) } else { PathBuf::new() };
        let name = Name { folder: folder.number, last: name.to_owned(), path: path_below };
        let mut state = lock(&self.state);
        let number = self.own_number(id).unwrap_or_else(|| foreign_number(&mut state, id));
        let is_new = !state.known.contains_key(&number);
        let (inode, lookups) = state.known.entry(number).or_insert_with(|| {
            let inode = Inode {
                number,
                id,
                kind: FileType::from_raw_mode(stat.st_mode),
                path: Arc::new(path),
                name: Mutex::default(),
                unlinked: AtomicBool::new(false),
            };
            (Arc::new(inode), 0)
        });
        *lookups += 1;
        let inode = inode.clone();
        *lock(&inode.name) = name;
        if is_new {
            state.order.push_back(number);
            if state.order.len() > 2 * state.known.len() + STALE_MOST {
                state.order = state.known.keys().copied().collect();
            }
        }
        inode
    }

    /// The file `id`, if the kernel knows it: counts another look-up.
    pub(crate) fn again(&self, id: Id) -> Option<Arc<Inode>> {
        let mut state = lock(&self.state);
        let number = self.own_number(id).or_else(|| state.foreign.get(&id).copied())?;
        let (inode, lookups) = state.known.get_mut(&number).filter(|_| number != ROOT)?;
        *lookups += 1;
        Some(inode.clone())
    }

    /// Whether the kernel knows so many files that it should forget some.
    pub(crate) fn are_many(&self) -> bool {
        lock(&self.state).known.len() > self.most
    }

    /// Some of the files that the kernel has known for longest, except folders, whose files it needs.
    pub(crate) fn oldest(&self) -> Vec<Arc<Inode>> {
        let mut state = lock(&self.state);
        let wanted = state.known.len().saturating_sub(self.most - self.most / 8);
        let mut found = Vec::new();
        // Each is asked once in a round: one that is in use stays, and is asked again later.
        for _ in 0..state.order.len() {
            if found.len() == wanted {
                break;
            }
            let Some(number) = state.order.pop_front() else { break };
            let Some((inode, _)) = state.known.get(&number) else { continue };
            let inode = inode.clone();
            state.order.push_back(number);
            if inode.kind != FileType::Directory {
                found.push(inode);
            }
        }
        found
    }

    /// The kernel forgot `lookups` of the file. Returns the file if these were all.
    pub(crate) fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Inode>> {
        let mut state = lock(&self.state);
        let (_, left) = state.known.get_mut(&number)?;
        *left = left.saturating_sub(lookups);
        let is_gone = *left == 0 && number != ROOT;
        if is_gone { state.known.remove(&number).map(|(inode, _)| inode) } else { None }
    }
}

fn foreign_number(state: &mut State, id: Id) -> u64 {
    let next = FOREIGN + state.foreign.len() as u64;
    *state.foreign.entry(id).or_insert(next)
}

/// Whether one of `patterns` describes the file `name`: those with a slash its path, others its last component.
pub(crate) fn is_described(patterns: &[glob::Pattern], name: &Path) -> bool {
    let last = name.file_name().unwrap_or_default();
    let describes = |pattern: &glob::Pattern| match pattern.as_str().contains('/') {
        true => pattern.matches_path(name),
        false => pattern.matches_path(Path::new(last)),
    };
    patterns.iter().any(describes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_names_and_paths() {
        let patterns: Vec<glob::Pattern> =
            ["*.log", "build/**/*.o"].iter().map(|text| glob::Pattern::new(text).unwrap()).collect();
        let is = |name: &str| is_described(&patterns, Path::new(name));
        assert!(is("a.log") && is("deep/down/a.log") && is("build/x/y.o"));
        assert!(!is("a.logs") && !is("x/y.o"));
    }
}
