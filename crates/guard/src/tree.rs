//! The tree of memory cgroups: which groups compete with each other for whose limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::sample::Group;

/// Which interface the kernel's memory controller has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// `memory.limit_in_bytes`, `memory.swappiness`.
    V1,
    /// `memory.max`, `memory.low`.
    V2,
}

/// A hierarchy of memory cgroups, or the part of it that is ours.
#[derive(Clone, Debug)]
pub struct Tree {
    version: Version,
    memory: PathBuf,
    /// The folder `memory`: what is opened often is found from here with fewer steps.
    root: Arc<OwnedFd>,
    freezer: Option<PathBuf>,
    /// Only what lies below is looked at and changed; empty for everything.
    top: Group,
}

/// The groups that share one limit, and so are reclaimed from together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The group that has the limit; empty for the machine.
    pub group: Group,
    /// The limit in bytes.
    pub limit: u64,
    /// The groups with processes below it, down to the next limit.
    pub candidates: Vec<Group>,
}

/// Why there is no tree to work on.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Neither a v1 nor a v2 memory controller is mounted there.
    #[error("{0}: no memory controller of cgroup v2 or v1 is mounted here, so nothing can be protected")]
    NoController(PathBuf),
    /// The part that was asked for does not exist.
    #[error("{0}: there is no such cgroup")]
    NoGroup(PathBuf),
}

/// More groups are not watched.
const GROUPS_MOST: usize = 16_384;
/// More processes of one group are not looked at.
const PROCESSES_MOST: u64 = 16_384;
/// Deeper groups are not watched.
const DEPTH_MOST: usize = 64;

impl Tree {
    /// What is mounted at `cgroupfs`, usually `/sys/fs/cgroup`, from the group `top` down (empty: all).
    pub fn open(cgroupfs: &Path, top: &str) -> Result<Tree, TreeError> {
        let controllers = fs::read_to_string(cgroupfs.join("cgroup.controllers")).unwrap_or_default();
        let v1 = cgroupfs.join("memory");
        let (version, memory) = if controllers.split_ascii_whitespace().any(|name| name == "memory") {
            (Version::V2, cgroupfs.to_owned())
        } else if v1.join("memory.limit_in_bytes").exists() {
            (Version::V1, v1)
        } else {
            return Err(TreeError::NoController(cgroupfs.to_owned()));
        };
        let top: Group = top.trim_matches('/').into();
        if !memory.join(&*top).join("cgroup.procs").exists() {
            return Err(TreeError::NoGroup(memory.join(&*top)));
        }
        let freezer = Some(cgroupfs.join("freezer")).filter(|path| version == Version::V1 && path.is_dir());
        let root = rustix::fs::open(&memory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = Arc::new(root.map_err(|_| TreeError::NoController(cgroupfs.to_owned()))?);
        Ok(Tree { version, memory, root, freezer, top })
    }

    /// The interface.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The part of the hierarchy that is looked at; empty for everything.
    pub fn top(&self) -> &Group {
        &self.top
    }

    /// A file of the memory controller.
    pub fn file(&self, group: &str, name: &str) -> PathBuf {
        // Joining an empty path would leave a separator at the end, which is harmless in front of a name.
        self.memory.join(group).join(name)
    }

    /// The file that freezes a group, and the word that does; none where the kernel cannot.
    pub fn freezer(&self, group: &str) -> Option<(PathBuf, &'static str)> {
        let (file, word) = match self.version {
            Version::V2 => (self.file(group, "cgroup.freeze"), "1"),
            Version::V1 => (self.freezer.as_ref()?.join(group).join("freezer.state"), "FROZEN"),
        };
        (!group.is_empty() && file.exists()).then_some((file, word))
    }

    /// The limit of a group itself, if it has one below `enclosing`.
    pub fn limit(&self, group: &str, enclosing: u64) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        number(&self.file(group, name)).filter(|limit| *limit < enclosing)
    }

    /// Bytes charged to a group; none where it is gone.
    pub fn held(&self, group: &str) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        number(&self.file(group, name))
    }

    /// The processes of a group itself; none where it is gone.
    pub fn processes(&self, group: &str) -> Vec<u32> {
        let mut text = String::new();
        // What cannot be read to its end is as good as gone.
        let read = self.listed(group).and_then(|file| file.take(PROCESSES_MOST * 16).read_to_string(&mut text));
        let lines = read.is_ok().then(|| text.lines()).into_iter().flatten();
        lines.filter_map(|line| line.parse().ok()).take(PROCESSES_MOST as usize).collect()
    }

    /// Whether one of `processes` is in `group` or below it, where the memory controller or the freezer could stop it.
    ///
    /// # Errors
    /// Where a list of processes cannot be read. A group that is gone has none.
    pub(crate) fn holds(&self, group: &str, processes: &[u32]) -> io::Result<bool> {
        let freezer = self.freezer.as_ref().map(|freezer| freezer.join(group));
        for folder in [Some(self.memory.join(group)), freezer].into_iter().flatten() {
            if folder_holds(&folder, processes, 0)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_processes(&self, group: &str) -> bool {
        self.listed(group).and_then(|mut file| file.read(&mut [0])).is_ok_and(|read| read == 1)
    }

    fn listed(&self, group: &str) -> io::Result<File> {
        let path = Path::new(group).join("cgroup.procs");
        Ok(rustix::fs::openat(&*self.root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// The groups above `group` and below `scope`, innermost first.
    pub fn between<'a>(&self, group: &'a str, scope: &str) -> Vec<&'a str> {
        let scope = scope.to_owned();
        let above = std::iter::successors(parent(group), |group| parent(group));
        above.take_while(|above| **above != scope && !above.is_empty()).collect()
    }

    /// All scopes with at least two groups that can compete. `memory_total` is the machine's, in bytes. `known` gives groups that were
    /// found to have processes not long ago: they are not asked again.
    pub(crate) fn scopes(&self, memory_total: u64, known: impl Fn(&str) -> Option<Group>) -> Vec<Scope> {
        let mut walk = Walk { tree: self, known, scopes: Vec::new(), groups: 0 };
        let limit = self.limit(&self.top, memory_total).unwrap_or(memory_total);
        walk.scopes.push(Scope { group: self.top.clone(), limit, candidates: Vec::new() });
        walk.below(&mut self.file(&self.top, ""), &mut self.top.to_string(), 0, 0);
        if walk.groups > GROUPS_MOST {
            tracing::warn!("more than {GROUPS_MOST} groups: the others are not watched");
        }
        walk.scopes.retain(|scope| scope.candidates.len() >= 2);
        walk.scopes
    }
}

fn folder_holds(folder: &Path, processes: &[u32], depth: usize) -> io::Result<bool> {
    let Some(listed) = unless_gone(fs::read_to_string(folder.join("cgroup.procs")))? else { return Ok(false) };
    if listed.lines().any(|line| line.parse().is_ok_and(|process| processes.contains(&process))) {
        return Ok(true);
    }
    let Some(entries) = unless_gone(fs::read_dir(folder))? else { return Ok(false) };
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        // What lies too deep to be looked at might hold them.
        if depth == DEPTH_MOST || folder_holds(&entry.path(), processes, depth + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The group above; none for the root.
fn parent(group: &str) -> Option<&str> {
    if group.is_empty() {
        return None;
    }
    Some(group.rsplit_once('/').map_or("", |(above, _)| above))
}

struct Walk<'a, Known> {
    tree: &'a Tree,
    known: Known,
    scopes: Vec<Scope>,
    groups: usize,
}

impl<Known: Fn(&str) -> Option<Group>> Walk<'_, Known> {
    /// Visits the groups in `folder`, that of `group`; they share the limit of the scope numbered `scope`. A group that vanishes
    /// meanwhile has no processes and no groups below it.
    fn below(&mut self, folder: &mut PathBuf, group: &mut String, scope: usize, depth: usize) {
        let Ok(entries) = fs::read_dir(&folder) else { return };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || self.groups > GROUPS_MOST {
                continue;
            }
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            self.groups += 1;
            folder.push(&name);
            let above = group.len();
            if above > 0 {
                group.push('/');
            }
            group.push_str(&name);
            let found = (self.known)(group).or_else(|| self.tree.has_processes(group).then(|| group.as_str().into()));
            self.scopes[scope].candidates.extend(found);
            // A folder without folders has two links, in cgroupfs as on disks. Most groups are such: nobody shares their limits.
            if metadata.nlink() != 2 && depth < DEPTH_MOST {
                let inner = match self.tree.limit(group, self.scopes[scope].limit) {
                    Some(limit) => {
                        self.scopes.push(Scope { group: group.as_str().into(), limit, candidates: Vec::new() });
                        self.scopes.len() - 1
                    }
                    None => scope,
                };
                self.below(folder, group, inner, depth + 1);
            }
            group.truncate(above);
            folder.pop();
        }
    }
}

/// The number that a file of the kernel holds; none where it is gone or holds a word.
fn number(file: &Path) -> Option<u64> {
    // One call of the kernel, and none for a length that it does not know.
    let mut text = [0; 32];
    let length = File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}
