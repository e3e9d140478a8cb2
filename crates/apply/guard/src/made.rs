//! The groups and folders that runs made, and remove again: a list in the folder of the state.
//!
//! 1. Groups and files that were made are listed, with the process that made them.
//! 2. At its end, each run and each guard removes what it made itself, and what processes made that have ended: a run that was killed, or one
//!    whose program left processes behind. Entries still in use stay, and stay listed.
//! 3. When nothing is left, the list is removed, and the folder of the state if it was listed.
//!
//! Groups and folders that existed before are never removed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The name of the list in the folder of the state.
const LIST: &str = "made";
/// Attempts to open a list that others remove at the same time.
const ATTEMPTS: usize = 100;
/// How long to wait for processes that are just ending and keep a group in use, and the attempts.
const ENDING: Duration = Duration::from_millis(10);
const ENDING_ATTEMPTS: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    folder: PathBuf,
    /// The process that made it.
    process: u32,
}

/// A list that is open, and locked.
struct List {
    file: File,
    entries: Vec<Entry>,
}

/// Makes the folder of the state, and lists it if it was missing.
pub(crate) fn make_state(state: &Path) -> io::Result<()> {
    if state.is_dir() { Ok(()) } else { List::open(state, true)?.save() }
}

/// Lists `folders`, which this process has just made.
///
/// # Errors
/// If the list cannot be written.
pub fn add(state: &Path, folders: &[PathBuf]) -> io::Result<()> {
    if folders.is_empty() {
        return Ok(());
    }
    let mut list = List::open(state, true)?;
    folders.iter().for_each(|folder| list.add(folder));
    list.save()
}

/// Removes what this process made, and processes that have ended, as far as it is not in use.
///
/// # Errors
/// If the list cannot be read or written.
pub fn tidy(state: &Path) -> io::Result<()> {
    let mut list = match List::open(state, false) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let is_done = |process: u32| process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists();
    // Inner groups first.
    list.entries.sort_by_key(|entry| std::cmp::Reverse(entry.folder.as_os_str().len()));
    list.entries.retain(|entry| entry.folder == state || !is_done(entry.process) || !is_removed(&entry.folder));
    let is_list = |file: io::Result<fs::DirEntry>| file.is_ok_and(|file| file.file_name() == LIST);
    let is_alone = || fs::read_dir(state).is_ok_and(|mut files| files.all(is_list));
    let is_own = list.entries.iter().any(|entry| entry.folder == state);
    if list.entries.len() > usize::from(is_own) || (is_own && !is_alone()) {
        return list.save();
    }
    // While it is locked: who waits for the lock sees that it is gone.
    fs::remove_file(state.join(LIST))?;
    if is_own {
        // Another run may just have made files in it.
        match fs::remove_dir(state) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return add(state, &[state.to_owned()]),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Removes a folder that is not in use; true if there is none.
fn is_removed(folder: &Path) -> bool {
    for _ in 0..ENDING_ATTEMPTS {
        match fs::remove_dir(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::NotFound => return true,
            // Of a process that has just ended.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && !is_used(folder) => {
                std::thread::sleep(ENDING);
            }
            Err(_) => return false,
        }
    }
    false
}

/// Whether a group has processes, or groups in it.
fn is_used(group: &Path) -> bool {
    let has_processes = fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty());
    let mut inner = fs::read_dir(group).into_iter().flatten().flatten();
    has_processes || inner.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

impl List {
    /// With `create`, makes what is missing; a folder that was missing is listed itself.
    fn open(state: &Path, create: bool) -> io::Result<List> {
        let path = state.join(LIST);
        let mut is_new = false;
        for _ in 0..ATTEMPTS {
            if create && !state.is_dir() {
                fs::create_dir_all(state)?;
                is_new = true;
            }
            let mut options = File::options();
            let mut file = match options.read(true).write(true).create(create).mode(0o600).open(&path) {
                // The folder has been removed meanwhile.
                Err(error) if create && error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            file.lock()?;
            if file.metadata()?.nlink() == 0 {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            // A list that was cut off when the machine stopped is of groups that are gone.
            let entries = serde_json::from_str(&text).unwrap_or_default();
            let mut list = List { file, entries };
            if is_new {
                list.add(state);
            }
            return Ok(list);
        }
        Err(io::Error::other(format!("{}: others remove it again and again", path.display())))
    }

    fn add(&mut self, folder: &Path) {
        self.entries.retain(|entry| entry.folder != folder);
        self.entries.push(Entry { folder: folder.to_owned(), process: std::process::id() });
    }

    fn save(&mut self) -> io::Result<()> {
        let text = serde_json::to_string(&self.entries)?;
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }
}
