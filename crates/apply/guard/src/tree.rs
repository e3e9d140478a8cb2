//! The tree of memory cgroups: which groups compete with each other for which limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::sample::Group;

/// The version of the kernel's memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// `memory.limit_in_bytes`, `memory.swappiness`.
    V1,
    /// `memory.max`, `memory.low`.
    V2,
}

/// A hierarchy of memory cgroups, or the part of it that the guard manages.
#[derive(Clone, Debug)]
pub struct Tree {
    version: Version,
    memory: PathBuf,
    /// The folder `memory`: frequently opened files are found from here in fewer steps.
    root: Arc<OwnedFd>,
    freezer: Option<PathBuf>,
    /// Only groups below this one are watched and changed; empty for all.
    top: Group,
}

impl Version {
    /// Memory that it cannot protect.
    pub fn limits(self) -> Option<&'static str> {
        match self {
            Version::V1 => Some(
                "cgroup v1: only memory that can be swapped is protected, not pages of files, and only within the limit of a group, not on the \
                 whole machine",
            ),
            Version::V2 => None,
        }
    }
}

/// Pages that were reclaimed and read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refaults {
    pub(crate) all: u64,
    /// Those of them that are pages of files; `None` if the kernel does not count them apart.
    pub(crate) of_files: Option<u64>,
}

/// The groups that share one limit, and therefore compete in reclaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The group that has the limit; empty for the machine.
    pub group: Group,
    /// The limit in bytes.
    pub limit: u64,
    /// The groups with processes below it, down to the next limit.
    pub candidates: Vec<Group>,
}

/// Why there is no usable tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Neither a v1 nor a v2 memory controller is mounted there.
    #[error("{0}: no memory controller of cgroup v2 or v1 is mounted here, and protection needs one")]
    NoController(PathBuf),
    /// The group requested does not exist.
    #[error("{0}: there is no such cgroup")]
    NoGroup(PathBuf),
}

/// The most groups that are watched.
const GROUPS_MOST: usize = 16_384;
/// The most processes of one group that are examined.
const PROCESSES_MOST: u64 = 16_384;
/// The greatest depth of groups that are watched.
const DEPTH_MOST: usize = 64;

impl Tree {
    /// The hierarchy mounted at `cgroupfs`, usually `/sys/fs/cgroup`, from the group `top` down (empty: all).
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

    /// The part of the hierarchy that is watched; empty for all.
    pub fn top(&self) -> &Group {
        &self.top
    }

    /// A file of the memory controller.
    pub fn file(&self, group: &str, name: &str) -> PathBuf {
        // Joining an empty path would leave a separator at the end, which is harmless in front of a name.
        self.memory.join(group).join(name)
    }

    /// The file that freezes a group, and the value to write; `None` if the kernel cannot freeze.
    pub fn freezer(&self, group: &str) -> Option<(PathBuf, &'static str)> {
        let (file, word) = match self.version {
            Version::V2 => (self.file(group, "cgroup.freeze"), "1"),
            Version::V1 => (self.freezer.as_ref()?.join(group).join("freezer.state"), "FROZEN"),
        };
        (!group.is_empty() && file.exists()).then_some((file, word))
    }

    /// The limit of the group itself, if it is lower than `enclosing`.
    pub fn limit(&self, group: &str, enclosing: u64) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        number(&self.file(group, name)).filter(|limit| *limit < enclosing)
    }

    /// Bytes charged to a group; `None` if it no longer exists.
    pub fn held(&self, group: &str) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        number(&self.file(group, name))
    }

    /// Pages of a group that were reclaimed and read again, since it exists; `None` if the kernel does not count them
    /// for groups.
    pub(crate) fn refaults(&self, group: &str) -> Option<Refaults> {
        let text = fs::read_to_string(self.file(group, "memory.stat")).ok()?;
        let count = |wanted: &str| {
            let number = |line: &str| line.strip_prefix(wanted)?.strip_prefix(' ')?.parse::<u64>().ok();
            text.lines().find_map(number)
        };
        match (count("workingset_refault_anon"), count("workingset_refault_file")) {
            // Before 5.9, there was one count of both.
            (None, None) => count("workingset_refault").map(|all| Refaults { all, of_files: None }),
            (anon, file) => {
                let all = anon.unwrap_or(0).saturating_add(file.unwrap_or(0));
                Some(Refaults { all, of_files: file })
            }
        }
    }

    /// The processes in the group itself; `None` if it no longer exists.
    pub fn processes(&self, group: &str) -> Vec<u32> {
        let mut text = String::new();
        // A list that cannot be read to its end is treated as missing.
        let read = self.listed(group).and_then(|file| file.take(PROCESSES_MOST * 16).read_to_string(&mut text));
        let lines = read.is_ok().then(|| text.lines()).into_iter().flatten();
        lines.filter_map(|line| line.parse().ok()).take(PROCESSES_MOST as usize).collect()
    }

    /// Whether one of `processes` is in `group` or below it, where the memory controller or the freezer could stop it.
    ///
    /// # Errors
    /// If a list of processes cannot be read. A group that no longer exists has none.
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

    /// All scopes with at least two groups that can compete. `memory_total` is that of the machine, in bytes. `known`
    /// reports groups that recently had processes: these are not read again.
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
        // Groups that are too deep to be examined could contain them.
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

/// The parent group; `None` for the root.
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
    /// Visits the groups in `folder`, which is that of `group`; they share the limit of scope number `scope`. A group
    /// that is removed meanwhile has no processes and no groups below it.
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
            // A folder without subfolders has two links, in cgroupfs as on disks. Most groups have none, and no other
            // group shares their limits.
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

/// The number in a file of the kernel; `None` if the file does not exist or contains a word.
fn number(file: &Path) -> Option<u64> {
    // A single system call, and none for a length that the kernel does not report.
    let mut text = [0; 32];
    let length = File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}
