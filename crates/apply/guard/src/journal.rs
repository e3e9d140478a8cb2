//! The journal of original values: this run can restore the values that it changed, and after a crash the next run can.
//!
//! **Invariant:** the journal on disk names a file and its original value before the file is changed, and until it is
//! restored.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::made;
use crate::mechanism::{Change, Setting};
use crate::sample::Group;
use crate::writer::Writer;

/// Changes files and records how to undo the changes. A lock ensures that there is only one for each journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
    writer: Writer,
    /// Held during the lifetime of the journal.
    _lock: Lock,
}

/// The lock of a journal. Its file is removed together with it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: who locks it from now on sees that it is gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The protected group for which it was changed.
    owner: Group,
    file: PathBuf,
    original: String,
    /// The values it can hold if no other program changed it: the last one written, as written and as the kernel
    /// reports it, and during a change also the next one.
    ours: Vec<String>,
    /// Whether restoring it failed: it is tried again.
    #[serde(skip)]
    is_due: bool,
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another guard holds the lock.
    #[error("{}: another guard is running", .0.display())]
    Busy(PathBuf),
    /// The file was not written by a guard.
    #[error("{}: not a journal of nigh guard: {source}", path.display())]
    Garbled {
        /// The journal.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// The journal cannot be read or written, so nothing may be changed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Why settings were not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The kernel rejected a value, or the file no longer exists.
    #[error("{}: {source}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another program set a value meanwhile. It stays.
    #[error("{} was set to {value} by another program", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Its present value.
        value: String,
    },
    /// The journal could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The outcome of restoring a file.
#[derive(Debug)]
pub struct Restored {
    /// The file.
    pub file: PathBuf,
    /// Its original value.
    pub original: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of restoring a value.
#[derive(Debug)]
pub enum Outcome {
    /// It has its original value.
    Original,
    /// Another program had set it to this value; it stays.
    Foreign(String),
    /// The group was removed, and the value with it.
    Gone,
    /// The file cannot be read, or the kernel or systemd rejected the value; the entry stays in the journal.
    Refused(io::Error),
}

/// Attempts to lock a file that others remove at the same time.
const ATTEMPTS: usize = 100;

/// Locks the journal at `path`.
fn lock(path: &Path) -> Result<Lock, JournalError> {
    let io = |source| JournalError::Io { path: path.to_owned(), source };
    let lock = path.with_extension("lock");
    for _ in 0..ATTEMPTS {
        if let Some(state) = path.parent() {
            made::make_state(state).map_err(io)?;
        }
        // Only the owner may open it: any program that can open it could lock it, and then no guard would start.
        let mut options = File::options();
        let file = match options.write(true).create(true).mode(0o600).open(&lock) {
            // The folder has been removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(io)?,
        };
        match file.try_lock() {
            Ok(()) if file.metadata().map_err(io)?.nlink() == 0 => {}
            Ok(()) => return Ok(Lock { path: lock, _file: file }),
            Err(TryLockError::WouldBlock) => return Err(JournalError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
    }
    Err(io(io::Error::other("others remove its lock again and again")))
}

impl Journal {
    /// Opens or creates the journal at `path` and locks it. It still contains the entries of a run that ended without
    /// restoring: see [`Journal::restore_all`].
    pub fn open(path: &Path, writer: Writer) -> Result<Journal, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let lock = lock(path)?;
        let entries = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| JournalError::Garbled { path: path.to_owned(), source })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        Ok(Journal { path: path.to_owned(), entries, writer, _lock: lock })
    }

    /// Whether no file is changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes `settings` the settings of `owner`: files that are no longer among them are restored. After an error
    /// everything of the owner is as it was before the first call.
    pub fn apply(&mut self, owner: &Group, settings: &[Setting]) -> Result<(), ApplyError> {
        let dropped =
            |entry: &Entry| entry.owner == *owner && !settings.iter().any(|setting| setting.file == entry.file);
        self.restore_where(dropped)?;
        for setting in settings {
            if let Err(error) = self.set(owner, setting) {
                self.restore(owner)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn set(&mut self, owner: &Group, setting: &Setting) -> Result<(), ApplyError> {
        let file = &setting.file;
        let refused = |source| ApplyError::Refused { file: file.clone(), source };
        let current = read(file).map_err(refused)?;
        let known = self.entries.iter().position(|entry| entry.file == *file);
        let at = match known {
            Some(at) => {
                let entry = &mut self.entries[at];
                if !entry.ours.contains(&current) {
                    self.entries.remove(at);
                    self.save()?;
                    return Err(ApplyError::Foreign { file: file.clone(), value: current });
                }
                if std::mem::take(&mut entry.is_due) {
                    entry.owner = owner.clone();
                }
                at
            }
            None => {
                let (owner, file, original) = (owner.clone(), file.clone(), current.clone());
                let entry = Entry { owner, file, original, ours: Vec::new(), is_due: false };
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        let original = &self.entries[at].original;
        let new = setting.change.of(original).unwrap_or_else(|| original.clone());
        if known.is_none() && current == new {
            self.entries.pop();
        }
        if current == new {
            return Ok(());
        }
        self.entries[at].ours = vec![current, new.clone()];
        self.save()?;
        self.writer.write(file, &new).map_err(refused)?;
        tracing::debug!(file = %file.display(), value = new, instead_of = self.entries[at].ours[0], for_group = &**owner, "set");
        // The kernel reports some values in another form than they were written in.
        let told = read(file).map_err(refused)?;
        self.entries[at].ours = if told == new { vec![new] } else { vec![new, told] };
        Ok(())
    }

    /// The settings of `owner` that freeze others.
    pub(crate) fn frozen(&self, owner: &Group) -> Vec<Setting> {
        let entries = self.entries.iter().filter(|entry| entry.owner == *owner);
        let frozen = entries.filter_map(|entry| {
            let word = if entry.file.ends_with("cgroup.freeze") { "1" } else { "FROZEN" };
            let is_one = ["cgroup.freeze", "freezer.state"].iter().any(|name| entry.file.ends_with(name));
            is_one.then(|| Setting { file: entry.file.clone(), change: Change::Word(word) })
        });
        frozen.collect()
    }

    /// Restores the files changed for `owner`, latest first.
    pub fn restore(&mut self, owner: &Group) -> Result<Vec<Restored>, JournalError> {
        self.restore_where(|entry| entry.owner == *owner)
    }

    /// Restores everything, latest first.
    pub fn restore_all(&mut self) -> Result<Vec<Restored>, JournalError> {
        self.restore_where(|_| true)
    }

    /// Whether restoring a value failed.
    pub fn has_due(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_due)
    }

    /// Tries again to restore values for which it failed. Another failure is not reported again.
    pub fn restore_due(&mut self) -> Result<Vec<Restored>, JournalError> {
        if !self.has_due() {
            return Ok(Vec::new());
        }
        let mut restored = self.restore_where(|entry| entry.is_due)?;
        restored.retain(|one| !matches!(one.outcome, Outcome::Refused(_)));
        Ok(restored)
    }

    fn restore_where(&mut self, is_meant: impl Fn(&Entry) -> bool) -> Result<Vec<Restored>, JournalError> {
        let (mut all, mut is_changed) = (Vec::new(), false);
        for at in (0..self.entries.len()).rev() {
            if !is_meant(&self.entries[at]) {
                continue;
            }
            let outcome = self.undo(&self.entries[at]);
            let entry = &mut self.entries[at];
            entry.is_due = matches!(outcome, Outcome::Refused(_));
            all.push(Restored { file: entry.file.clone(), original: entry.original.clone(), outcome });
            if !self.entries[at].is_due {
                self.entries.remove(at);
                is_changed = true;
            }
        }
        if is_changed {
            self.save()?;
        }
        Ok(all)
    }

    fn undo(&self, entry: &Entry) -> Outcome {
        let current = match read(&entry.file) {
            Ok(current) => current,
            // Only this error means that the group was removed. Any other error may be temporary, and the value is
            // still changed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Outcome::Gone,
            Err(error) => return Outcome::Refused(error),
        };
        if current == entry.original {
            return Outcome::Original;
        }
        if !entry.ours.contains(&current) {
            return Outcome::Foreign(current);
        }
        match self.writer.write(&entry.file, &entry.original) {
            Ok(()) => Outcome::Original,
            // systemd's error does not show whether the unit still exists.
            Err(_) if matches!(entry.file.try_exists(), Ok(false)) => Outcome::Gone,
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Writes the journal as a whole, so that no reader sees a part of it.
    fn save(&self) -> Result<(), JournalError> {
        let write = || -> io::Result<()> {
            if self.entries.is_empty() {
                return match fs::remove_file(&self.path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            let temporary = self.path.with_extension("new");
            fs::write(&temporary, serde_json::to_vec(&self.entries)?)?;
            fs::rename(&temporary, &self.path)
        };
        write().map_err(|source| JournalError::Io { path: self.path.clone(), source })
    }
}

fn read(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file)?;
    // While processes enter a frozen group of cgroup v1, it is frozen again.
    let value = if text.trim() == "FREEZING" { "FROZEN" } else { text.trim() };
    Ok(value.to_owned())
}
