//! The journal of original values: what was changed can be changed back, by this run or, after a crash, by the next.
//!
//! **Invariant:** the journal on disk names a file and its original value before the file is changed, and until it is
//! restored.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mechanism::{Change, Setting};
use crate::sample::Group;
use crate::writer::Writer;

/// Changes files and remembers how to undo it. There is one a machine at a time: a lock says so.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
    writer: Writer,
    /// Held as long as this lives.
    _lock: File,
}

/// A file that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The protected group on whose behalf it is.
    owner: Group,
    file: PathBuf,
    original: String,
    /// What it may hold if nobody else changed it: what was written last, as written and as the kernel tells it, and before a
    /// change also what is about to be.
    ours: Vec<String>,
    /// Whether it was to be restored and could not be: it is tried again.
    #[serde(skip)]
    is_due: bool,
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another guard has it.
    #[error("{}: another guard is running", .0.display())]
    Busy(PathBuf),
    /// What is there was not written by a guard.
    #[error("{}: not a journal of this program: {source}", path.display())]
    Garbled {
        /// The journal.
        path: PathBuf,
        /// What was wrong.
        source: serde_json::Error,
    },
    /// The journal cannot be read or written, so nothing may be changed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Why settings are not in force.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The kernel refused a value, or the file is gone.
    #[error("{}: {source}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else set a value meanwhile. It stays.
    #[error("{} was set to {value} by another program", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What it holds now.
        value: String,
    },
    /// The journal could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What became of a changed file.
#[derive(Debug)]
pub struct Restored {
    /// The file.
    pub file: PathBuf,
    /// Its original value.
    pub original: String,
    /// What happened.
    pub outcome: Outcome,
}

/// What became of one changed value.
#[derive(Debug)]
pub enum Outcome {
    /// It has its original value.
    Original,
    /// Somebody else had set it to this meanwhile; it stays.
    Foreign(String),
    /// The group is gone, and the value with it.
    Gone,
    /// The file cannot be read, or the kernel or systemd refused the value; the entry stays in the journal.
    Refused(io::Error),
}

impl Journal {
    /// Opens, or begins, the journal at `path` and locks it. `entries` of a run that ended without restoring are still in it:
    /// see [`Journal::restore_all`].
    pub fn open(path: &Path, writer: Writer) -> Result<Journal, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        // Nobody else may open it: whoever could, could lock it, and no guard would start.
        let mut lock = File::options();
        let lock = lock.write(true).create(true).mode(0o600).open(path.with_extension("lock")).map_err(io)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::Busy(path.to_owned()),
            TryLockError::Error(error) => io(error),
        })?;
        let entries = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| JournalError::Garbled { path: path.to_owned(), source })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        Ok(Journal { path: path.to_owned(), entries, writer, _lock: lock })
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes `settings` what is in force on behalf of `owner`: files that are no longer among them are restored. On an error
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
        // Some values are told in other words than they were written in.
        let told = read(file).map_err(refused)?;
        self.entries[at].ours = if told == new { vec![new] } else { vec![new, told] };
        Ok(())
    }

    /// The settings of `owner` that keep others frozen.
    pub(crate) fn frozen(&self, owner: &Group) -> Vec<Setting> {
        let entries = self.entries.iter().filter(|entry| entry.owner == *owner);
        let frozen = entries.filter_map(|entry| {
            let word = if entry.file.ends_with("cgroup.freeze") { "1" } else { "FROZEN" };
            let is_one = ["cgroup.freeze", "freezer.state"].iter().any(|name| entry.file.ends_with(name));
            is_one.then(|| Setting { file: entry.file.clone(), change: Change::Word(word) })
        });
        frozen.collect()
    }

    /// Restores what was changed on behalf of `owner`, latest first.
    pub fn restore(&mut self, owner: &Group) -> Result<Vec<Restored>, JournalError> {
        self.restore_where(|entry| entry.owner == *owner)
    }

    /// Restores everything, latest first.
    pub fn restore_all(&mut self) -> Result<Vec<Restored>, JournalError> {
        self.restore_where(|_| true)
    }

    /// Whether a value could not be restored yet.
    pub fn has_due(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_due)
    }

    /// Tries again to restore what could not be restored. What is still refused is not reported again.
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
            // Only this means that the group is gone. Any other error may pass, and the value is still changed.
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
            // systemd's refusal does not tell whether the unit is gone.
            Err(_) if matches!(entry.file.try_exists(), Ok(false)) => Outcome::Gone,
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Writes the journal as a whole, so that no reader finds half of it.
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
    // While processes enter a frozen group of cgroup v1, it is being frozen again.
    let value = if text.trim() == "FREEZING" { "FROZEN" } else { text.trim() };
    Ok(value.to_owned())
}
